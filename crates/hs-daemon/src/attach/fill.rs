//! `headstart fill`: completes a file that fills itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_device::Medium;
use hs_output::show::{self, Bar};
use hs_serve::Prefetching;
use hs_serve::self_filling::{
    Attachment, FillError, FillOptions, FillProgress, Found, Marker, SelfFilling, look_at,
};
use hs_service::careful::resolve;
use hs_service::ending::{Deadline, EndsEarly};
use hs_service::signals::Ends;
use hs_service::status;
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::medium::{self, Damage};
use hs_start::open::open_image;
use hs_start::start;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::control::{Request, ask};

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);

#[derive(Serialize)]
struct Hydrated {
    file: PathBuf,
    disk_bytes: u64,
    disk_digest: String,
}

/// What is completed.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The file.
    pub file: PathBuf,
    /// The image, if it has moved.
    pub image: Option<PathBuf>,
    /// How a remote image is fetched.
    pub remote: RemoteOptions,
    /// Print the result as JSON.
    pub json: bool,
}

/// Completes a file that fills itself.
///
/// # Errors
/// When it stays incomplete.
pub fn run(args: &Completion, quiet: bool) -> anyhow::Result<()> {
    let bar = Bar::new(quiet);
    let (marker, header) = look_at(&args.file)?;
    if let Marker::Incomplete(_) = marker {
        if ask(&args.file, Request::Hydrate)? {
            watch(&args.file, &bar)?;
        } else {
            let known = || header.map(|header| header.image).filter(|path| !path.as_os_str().is_empty());
            let word = args.image.clone().or_else(known).with_context(|| {
                format!("where the image of {} lies is not known: give --image", args.file.display())
            })?;
            let image = ImageSource::parse(word.as_os_str(), &args.remote)?;
            complete(&args.file, &image, &bar)?;
        }
    }
    drop(bar);
    let (marker, _) = look_at(&args.file)?;
    let digest = match marker {
        Marker::Complete(digest) => digest,
        Marker::Contradicted(found) => {
            return Err(FillError::Contradicted { path: args.file.clone(), found }.into());
        }
        _ => bail!(
            "{} was written to by another program: it stays as it is; attach the image under another name",
            args.file.display()
        ),
    };
    if args.json {
        let disk_bytes = std::fs::metadata(&args.file)?.len();
        let file = args.file.to_string_lossy().into_owned().into();
        return show::json(&Hydrated { file, disk_bytes, disk_digest: digest.to_string() });
    }
    if !quiet {
        hs_output::note!("{} is complete", args.file.display());
    }
    Ok(())
}

fn shown(bar: &Bar, progress: FillProgress) {
    bar.update("fill", progress.filled_bytes, progress.disk_bytes);
}

/// Another process fills it.
fn watch(file: &Path, bar: &Bar) -> anyhow::Result<()> {
    let path = resolve(file);
    // The server begins at the request, but its first status may be older than that.
    let mut rested = 0;
    while let (Marker::Incomplete(_), _) = look_at(file)? {
        let servers = status::servers()?;
        let fill = servers.iter().find(|server| server.dir == path).and_then(|server| server.fill.as_ref());
        rested = if fill.is_some_and(|fill| fill.hydrating) { 0 } else { rested + 1 };
        if let Some(fill) = fill {
            shown(bar, FillProgress { filled_bytes: fill.filled_bytes, disk_bytes: fill.disk_bytes });
        }
        if rested > 50 {
            bail!("{} cannot be completed: `headstart status` and the messages say why", file.display());
        }
        std::thread::sleep(SHOW_EVERY);
    }
    Ok(())
}

/// This process does.
fn complete(file: &Path, image_arg: &ImageSource, bar: &Bar) -> anyhow::Result<()> {
    let signals = Ends::block()?;
    let early = EndsEarly::watch(Some(&signals), || {})?;
    let image = open_image(image_arg)?;
    let subject = image_arg.subject(&image)?;
    drop(image);
    let found = match Attachment::open(file, &subject) {
        Err(error @ (FillError::KernelLacksEvents { .. } | FillError::NeedsRoot)) => {
            log::warn!(
                "until it is complete, reads of {} give zeros where blocks are missing: {error}",
                file.display()
            );
            Attachment::open_unguarded(file, &subject)?
        }
        found => found?,
    };
    let Found::Incomplete(attachment) = found else { return Ok(()) };
    let on_medium = medium::open(image_arg, &Medium::None, &Damage::default())?;
    let config = start::config(image_arg, Prefetching::Off, None, &Medium::None)?;
    let config = on_medium.config(&config);
    let filling = SelfFilling::start(on_medium.store, &config, attachment, FillOptions { hydrate: true })?;
    early.end();
    let ended = follow(&filling, file, &signals, bar);
    // From here on nothing may wait for the medium.
    let deadline = ended.is_err().then(|| Deadline::begin(Vec::new(), || {}));
    drop(filling);
    drop(deadline);
    ended
}

/// Shows how far it is, until it is complete.
fn follow(filling: &SelfFilling, file: &Path, signals: &Ends, bar: &Bar) -> anyhow::Result<()> {
    let pause = Timespec::try_from(SHOW_EVERY).context("the time to wait")?;
    while !filling.is_finished() {
        let is_over = !filling.is_hydrating();
        let ended = filling.ended();
        let mut events = [
            PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(signals), PollFlags::IN),
            PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&ended), PollFlags::IN),
        ];
        match poll(&mut events, Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("wait for a signal: {error}"),
        }
        let progress = filling.progress();
        shown(bar, progress);
        if events[0].revents().contains(PollFlags::IN) {
            bail!("interrupted; what is filled stays so");
        }
        if is_over && progress.filled_bytes < progress.disk_bytes {
            let missing = hs_units::ByteSize(progress.disk_bytes - progress.filled_bytes);
            bail!("{} cannot be completed: {missing} of it cannot be had", file.display());
        }
    }
    Ok(())
}
