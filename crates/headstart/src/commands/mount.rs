//! `headstart mount`

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use hs_serve::fuse::Session;
use hs_serve::{MountFsOptions, MountedFs, Prefetching, ServedImage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::run::prefetching;
use crate::cli::{Mount, PrefetchMode};
use crate::medium::OnMedium;
use crate::service::careful::{self, resolve};
use crate::service::notify::Manager;
use crate::service::run_folder::{RunFolder, StatusSocket};
use crate::service::status::{PrefetchStatus, Status, Subject, unix_now};
use crate::signals::Ends;
use crate::{log_output, medium, start};

/// Shows an image's disk until it is unmounted; gives the exit code. `arguments` are those of the program.
pub(crate) fn run(args: &Mount, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    if !args.foreground {
        return in_background(arguments);
    }
    let signals = Ends::block()?;
    let targets: Vec<&Path> = args.fs.iter().map(PathBuf::as_path).chain([&*args.dir]).collect();
    if args.clear_dead && hs_serve::clear_dead(&args.dir, args.fs.as_deref())? {
        log::warn!("cleared away what a server that died had left at {}", args.dir.display());
    }
    careful::refuse_to_cover_itself(&args.image, RunFolder::place().as_deref(), &targets)?;
    let default = if args.fs.is_some() { PrefetchMode::Warm } else { PrefetchMode::Push };
    let mode = args.prefetch.prefetch.unwrap_or(default);
    let mut config = start::config(&args.image, prefetching(mode), Some(args.prefetch.limits))?;
    args.cache.apply(&mut config);
    let on_medium = medium::open(&args.image, &args.medium, &args.damage)?;
    let served = ServedImage::start(Arc::clone(&on_medium.store), &args.dir, &config, None)?;
    let mounted = match &args.fs {
        Some(target) => Some(mount_fs(args, &served, target, mode, config.prefetching)?),
        None => None,
    };
    serve(args, quiet, mode, &on_medium, &served, mounted.as_ref(), &signals)?;
    Ok(0)
}

fn mount_fs(
    args: &Mount,
    served: &ServedImage,
    target: &Path,
    mode: PrefetchMode,
    prefetching: Prefetching,
) -> anyhow::Result<MountedFs> {
    let mounted = served.mount_fs(
        target,
        &MountFsOptions {
            direct_io: mode != PrefetchMode::Push,
            warm: mode == PrefetchMode::Warm,
            trusted: args.trusted,
            inode_readahead_blocks: (prefetching != Prefetching::Off).then_some(1),
            ..MountFsOptions::default()
        },
    )?;
    if !args.trusted {
        log::warn!(
            "the kernel has mounted the {} in {}, which nobody vouches for (--trusted does); drivers of file \
             systems are not made to stand malice",
            mounted.file_system(),
            args.image.display()
        );
    }
    mounted.wait_until_warming_leads();
    Ok(mounted)
}

/// From the moment that everything is mounted to its end.
fn serve(
    args: &Mount,
    quiet: bool,
    mode: PrefetchMode,
    on_medium: &OnMedium,
    served: &ServedImage,
    mounted: Option<&MountedFs>,
    signals: &Ends,
) -> anyhow::Result<()> {
    careful::survive_low_memory();
    match careful::stay_in_memory() {
        Ok(bytes) => log::info!("{} of program and libraries stay in memory", hs_units::ByteSize(bytes)),
        Err(error) => log::info!("program and libraries may leave memory (ulimit -l): {error}"),
    }
    let folder =
        RunFolder::create().inspect_err(|error| log::warn!("no status to be asked for: {error:#}")).ok();
    let socket = folder.as_ref().and_then(|folder| {
        StatusSocket::listen(folder)
            .inspect_err(|error| log::warn!("no status to be asked for: {error}"))
            .ok()
    });
    let log_file = LogFile::of(folder.as_ref());
    if let Some(fd) = args.ready_fd {
        // SAFETY: the parent, this program too, passed the descriptor for this alone.
        let mut ready = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        log_output::go_to_background(|| log_file.create()).context("go to the background")?;
        ready.write_all(b"1").context("tell the parent")?;
    } else if !quiet {
        eprintln!("{} mounted; `umount {}` or Ctrl-C ends it", args.image.display(), args.dir.display());
    }
    let target = mounted.map(MountedFs::target);
    let subject = Subject {
        fixed: Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            image: shown(&resolve(&args.image)),
            dir: shown(served.session().mount_point()),
            fs: target.as_deref().map(shown),
            since: unix_now(),
            medium: args.medium.to_string(),
            log: log_output::place().to_owned(),
            prefetch: PrefetchStatus { mode: word(mode), ..PrefetchStatus::default() },
            ..Status::default()
        },
        served: served.disk(),
        counters: Arc::clone(&on_medium.counters),
        retries: Arc::clone(&on_medium.retries),
    };
    // A background server has told its parent already; whoever manages that one was not this one's.
    let manager = if args.ready_fd.is_none() { Manager::of_this_process() } else { Manager::none() };
    manager.ready(&format!("{} at {}", args.image.display(), args.dir.display()));
    let answering = socket.as_ref().map(|socket| (socket, &subject));
    let ended = wait_for_end(served.session(), target.as_deref(), signals, answering);
    manager.stopping();
    ended
}

/// JSON has no other paths; one that is no text is shown with marks in it.
fn shown(path: &Path) -> PathBuf {
    path.to_string_lossy().into_owned().into()
}

fn word(mode: PrefetchMode) -> String {
    mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The file for messages where the system has no log; it stays behind only when the server dies.
struct LogFile(Option<PathBuf>);

impl LogFile {
    fn of(folder: Option<&RunFolder>) -> Self {
        Self(folder.map(|folder| folder.path().join(format!("{}.log", std::process::id()))))
    }

    fn create(&self) -> Option<File> {
        let path = self.0.as_ref()?;
        File::create(path).inspect_err(|error| log::warn!("{}: {error}", path.display())).ok()
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Waits until the disk, or the file system in it, is unmounted, or a signal comes. Meanwhile those who ask
/// are told how the server is.
pub(crate) fn wait_for_end(
    session: &Session,
    fs: Option<&Path>,
    signals: &Ends,
    answering: Option<(&StatusSocket, &Subject<'_>)>,
) -> anyhow::Result<()> {
    let mut table = MountTable::open()?;
    loop {
        for target in [Some(session.mount_point()), fs].into_iter().flatten() {
            if !table.has(target)? {
                return Ok(());
            }
        }
        let mut events = vec![table.changes(), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if let Some((socket, _)) = answering {
            events.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
        }
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("wait for the end of the mount: {error}"),
        }
        if events[1].revents().contains(PollFlags::IN) {
            return Ok(());
        }
        if let Some((socket, subject)) = answering {
            socket.answer(|| subject.json());
        }
    }
}

/// Waits until nothing is mounted at `path` any more.
pub(crate) fn wait_until_gone(path: &Path, patience: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + patience;
    let mut table = MountTable::open()?;
    while table.has(path)? {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("{} is still mounted after {} s", path.display(), patience.as_secs());
        }
        let timeout = Timespec::try_from(left).context("the time to wait")?;
        match poll(&mut [table.changes()], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("wait for the end of the mount: {error}"),
        }
    }
    Ok(())
}

/// This namespace's table of mounts.
struct MountTable(File);

impl MountTable {
    fn open() -> anyhow::Result<Self> {
        File::open("/proc/self/mountinfo").map(Self).context("open /proc/self/mountinfo")
    }

    fn has(&mut self, path: &Path) -> anyhow::Result<bool> {
        let mut text = String::new();
        std::io::Seek::rewind(&mut self.0)
            .and_then(|()| self.0.read_to_string(&mut text))
            .context("read mounts")?;
        Ok(text.lines().any(|line| is_mount_point(line, path)))
    }

    /// The kernel raises an error condition here when the table changes.
    fn changes(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::PRI)
    }
}

/// Whether a line of mountinfo names `path` as its mount point; octal escapes are decoded.
fn is_mount_point(line: &str, path: &Path) -> bool {
    let Some(field) = line.split(' ').nth(4) else { return false };
    let mut decoded = Vec::with_capacity(field.len());
    let mut bytes = field.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            let digits: Vec<u8> = bytes.by_ref().take(3).collect();
            decoded.push(
                digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
            );
        } else {
            decoded.push(byte);
        }
    }
    decoded == path.as_os_str().as_encoded_bytes()
}

/// Starts this program again in the foreground of a session of its own, and waits until it has
/// mounted or failed.
fn in_background(arguments: &[OsString]) -> anyhow::Result<i32> {
    let (ready, theirs) = rustix::pipe::pipe().context("make a pipe")?;
    rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::CLOEXEC)?;
    // By this name it is found in any mount namespace; the other names of this program are not for the server.
    let mut command = std::process::Command::new("/proc/self/exe");
    let fd = format!("--ready-fd={}", theirs.as_raw_fd());
    // The command comes first, or after flags for all commands; its own may stand before the rest.
    let (before, after) =
        arguments.split_at(arguments.iter().position(|word| word == "mount").unwrap_or(0) + 1);
    command.arg0("headstart").args(before).args(["--foreground", &fd]).args(after);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: setsid is safe between fork and exec.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let mut child = command.spawn().context("start the server")?;
    drop(theirs);
    let mut byte = [0];
    if File::from(ready).read(&mut byte).context("wait for the server")? == 1 {
        return Ok(0);
    }
    // It has said why on standard error, which it shares.
    let status = child.wait().context("wait for the server")?;
    Ok(status.code().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_escapes_are_found() {
        let line = r"36 35 98:0 / /a\040b rw,noatime master:1 - ext3 /dev/root rw";
        assert!(is_mount_point(line, Path::new("/a b")));
        assert!(!is_mount_point(line, Path::new("/a")));
    }
}
