//! Flags of servers that speak TLS.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Whether clients may or must speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMode {
    /// No TLS.
    Off,
    /// TLS is offered; clients may also connect without it.
    On,
    /// TLS is mandatory.
    Require,
}

/// How a server speaks TLS.
#[derive(Clone, Debug, Args)]
pub(crate) struct TlsFlags {
    /// Whether clients may or must use TLS. Default: require with --tls-certificates, else off.
    #[arg(long, value_enum, value_name = "MODE", hide_short_help = true, help_heading = "TLS")]
    pub tls: Option<TlsMode>,
    /// Directory with server-cert.pem and server-key.pem, and for --tls-verify-peer ca-cert.pem and
    /// optionally ca-crl.pem, as for nbdkit and QEMU.
    #[arg(long, value_name = "DIR", required_if_eq_any = [("tls", "on"), ("tls", "require")], hide_short_help = true, help_heading = "TLS")]
    pub tls_certificates: Option<PathBuf>,
    /// Accept only clients with a certificate signed by ca-cert.pem.
    #[arg(long, hide_short_help = true, requires = "tls_certificates", help_heading = "TLS")]
    pub tls_verify_peer: bool,
}
