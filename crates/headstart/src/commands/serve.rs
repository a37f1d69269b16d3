//! `headstart serve`

use std::ffi::OsString;

use hs_daemon::serve::{self, Tls};
use hs_daemon::serve_guests::Guests;

use crate::cli::{Serve, TlsFlags, TlsMode};

/// Serves images until a signal comes; gives the exit code. `arguments` are those of the program.
pub(crate) fn run(args: &Serve, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    let serve = serve::Serve {
        images: args.images.clone(),
        remote: args.remote.value(),
        keep: args.keep.keep.clone(),
        nbd: args.nbd.clone(),
        uffd: args.uffd.clone(),
        guests: args.vhost_user_blk.clone().map(|socket| Guests { socket, queues: args.vhost_queues }),
        ublk: args.ublk,
        http: args.http.http.clone(),
        channel: args.http.channel.clone(),
        access_log: args.http.access_log.clone(),
        http_rate: args.http.http_rate,
        client_rate: args.http.client_rate,
        tls: tls(&args.tls),
        certificates: args.tls.tls_certificates.clone(),
        medium: args.emulation.medium,
        damage: args.emulation.damage.value(),
        no_prefetch: args.no_prefetch,
        limits: *args.limits,
        cache: *args.cache,
        fill: args.filling.fill(),
        json: args.json,
        ui: args.page.ui.clone(),
        serving: args.serving.value(),
    };
    serve::run(&serve, arguments, quiet)
}

/// How the server speaks TLS, if it does.
fn tls(flags: &TlsFlags) -> Option<Tls> {
    let directory = flags.tls_certificates.clone()?;
    let required = match flags.tls {
        Some(TlsMode::Off) => return None,
        Some(TlsMode::On) => false,
        Some(TlsMode::Require) | None => true,
    };
    Some(Tls { directory, required, verify_peer: flags.tls_verify_peer })
}
