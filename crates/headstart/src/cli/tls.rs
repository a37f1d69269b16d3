//! Flags of servers that speak TLS.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Whether clients may or must speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsMode {
    /// It is not offered.
    Off,
    /// It is offered; who does not ask for it is served in the clear.
    On,
    /// Who does not ask for it is told nothing.
    Require,
}

/// How a server speaks TLS.
#[derive(Clone, Debug, Args)]
pub(crate) struct TlsFlags {
    /// Whether clients may or must speak TLS; `require` when there are certificates, else `off`.
    #[arg(long, value_enum, value_name = "MODE")]
    pub tls: Option<TlsMode>,
    /// The folder with server-cert.pem and server-key.pem, and for --tls-verify-peer ca-cert.pem and perhaps
    /// ca-crl.pem, as for nbdkit and QEMU.
    #[arg(long, value_name = "DIR", required_if_eq_any = [("tls", "on"), ("tls", "require")])]
    pub tls_certificates: Option<PathBuf>,
    /// Serve only clients that have a certificate of the authority in ca-cert.pem.
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,
}
