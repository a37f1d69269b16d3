//! `headstart cache fill`: brings a whole image into the disk cache.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_image::Progress;
use hs_start::progress;
use hs_units::ByteSize;
use serde::Serialize;

use hs_output::show::{self, Bar};
use hs_service::ending::Interruption;
use hs_service::signals::Ends;
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::open::{is_kept, open_image};

/// Bytes of a request at most: a moment on most links, so that filling is polite between two of them.
const REQUEST_BYTES: u64 = 4 << 20;
/// How long the media of this machine's servers must have been left alone.
const QUIET: Duration = Duration::from_millis(500);
/// How often that, and whether a signal has come, is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// As nice(1) counts: all processor time that others leave.
const NICE: i32 = 19;

#[derive(Serialize)]
struct Filled {
    image: String,
    name: String,
    fetched_bytes: u64,
    kept_bytes: u64,
    is_complete: bool,
}

/// What is brought, and how.
#[derive(Clone, Debug)]
pub struct CacheFill {
    /// Address of the image.
    pub address: String,
    /// Folder of the cache.
    pub disk_cache: Option<PathBuf>,
    /// Do not wait for other servers of this machine.
    pub now: bool,
    /// Print the result as JSON.
    pub json: bool,
}

/// Fills the cache with an image.
///
/// # Errors
/// When the cache is not filled to the end.
pub fn run(args: &CacheFill, quiet: bool) -> anyhow::Result<()> {
    let address = &args.address;
    let signals = Ends::block().context("wait for signals")?;
    let interruption = Interruption::watch(signals, || {}).context("wait for signals")?;
    let remote = RemoteOptions { disk_cache: args.disk_cache.clone(), ..RemoteOptions::default() };
    let arg = ImageSource::parse(OsStr::new(address), &remote)?;
    if arg.file().is_some() {
        bail!("{address} is a file: only what lies elsewhere is kept");
    }
    let image = open_image(&arg)?;
    let name = image.superblock().image_digest().to_string();
    if !args.now {
        // Programs of this machine go before.
        let _ = rustix::process::setpriority_process(None, NICE);
    }
    let bar = Bar::new(quiet);
    let mut seen = None;
    let mut between = |progress: Progress| {
        progress::of_image(&bar, progress);
        let is_over =
            if args.now { interruption.has_come() } else { !wait_for_quiet(&interruption, &mut seen) };
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let report = hs_image::fill_cache(&image, REQUEST_BYTES, &mut between)?;
    drop(bar);
    // What was fetched is on disk when no thread writes any more. Errors of writing are seen only then.
    drop(image);
    if report.is_complete && !is_kept(&arg).unwrap_or(false) {
        bail!(
            "{}: not all of it could be kept: the disk is full, or the cache's limit too small (`headstart cache limit`)",
            arg.display()
        );
    }
    let filled = Filled {
        image: arg.display().to_string(),
        name,
        fetched_bytes: report.fetched_bytes,
        kept_bytes: report.kept_bytes,
        is_complete: report.is_complete,
    };
    if args.json {
        show::json(&filled)?;
    } else if !quiet {
        let state = if filled.is_complete { "all of it is there" } else { "interrupted" };
        let [fetched, kept] = [filled.fetched_bytes, filled.kept_bytes].map(ByteSize);
        show::line(format_args!("{}: {fetched} fetched, {kept} were there; {state}", filled.image));
    }
    if !filled.is_complete {
        bail!("{}: the cache was not filled to the end", filled.image);
    }
    Ok(())
}

/// Waits until no server of this machine asks its medium for anything; false when a signal ends the waiting.
/// `seen` is how many requests they had made, and when that was.
fn wait_for_quiet(interruption: &Interruption, seen: &mut Option<(u64, Instant)>) -> bool {
    loop {
        if interruption.has_come() {
            return false;
        }
        // A server that does not answer is not waited for.
        let servers = hs_service::status::servers().unwrap_or_default();
        if servers.is_empty() {
            return true;
        }
        let requests = servers.iter().map(|status| status.store_requests).sum();
        match seen {
            Some((before, since)) if *before == requests => {
                if since.elapsed() >= QUIET {
                    return true;
                }
            }
            _ => *seen = Some((requests, Instant::now())),
        }
        std::thread::sleep(LOOK);
    }
}
