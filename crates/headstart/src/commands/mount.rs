//! `headstart mount`

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_serve::fuse::Session;
use hs_serve::{MountFsOptions, Prefetching, ServedImage};
use rustix::event::{PollFd, PollFlags, poll};

use super::run::prefetching;
use crate::cli::{Mount, PrefetchMode};
use crate::signals::Ends;
use crate::{medium, start};

/// Shows an image's disk until it is unmounted.
pub(crate) fn run(args: &Mount, quiet: bool) -> anyhow::Result<()> {
    if !args.foreground {
        return in_background();
    }
    let signals = Ends::block()?;
    let default = if args.fs.is_some() { PrefetchMode::Warm } else { PrefetchMode::Push };
    let mode = args.prefetch.prefetch.unwrap_or(default);
    let config = start::config(&args.image, prefetching(mode), args.prefetch.budget.0)?;
    let on_medium = medium::open(&args.image, &args.medium)?;
    let served = ServedImage::start(Arc::clone(&on_medium.store), &args.dir, &config, None)?;
    let mounted = match &args.fs {
        Some(target) => Some(served.mount_fs(
            target,
            &MountFsOptions {
                direct_io: mode != PrefetchMode::Push,
                warm: mode == PrefetchMode::Warm,
                trusted: args.trusted,
                inode_readahead_blocks: (config.prefetching != Prefetching::Off).then_some(1),
                ..MountFsOptions::default()
            },
        )?),
        None => None,
    };
    if let Some(mounted) = &mounted {
        mounted.wait_until_warming_leads();
    }
    if let Some(fd) = args.ready_fd {
        // SAFETY: the parent, this program too, passed the descriptor for this alone.
        let mut ready = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        ready.write_all(b"1").context("tell the parent")?;
        crate::log_output::go_to_background().context("go to the background")?;
    } else if !quiet {
        eprintln!("{} mounted; `umount {}` or Ctrl-C ends it", args.image.display(), args.dir.display());
    }
    let target = mounted.as_ref().map(hs_serve::MountedFs::target);
    wait_for_end(served.session(), target.as_deref(), &signals)
}

/// Waits until the disk, or the file system in it, is unmounted, or a signal comes.
pub(crate) fn wait_for_end(session: &Session, fs: Option<&Path>, signals: &Ends) -> anyhow::Result<()> {
    let mut table = File::open("/proc/self/mountinfo").context("open /proc/self/mountinfo")?;
    loop {
        let mut text = String::new();
        std::io::Seek::rewind(&mut table)
            .and_then(|()| table.read_to_string(&mut text))
            .context("read mounts")?;
        let mounted = |path: &Path| text.lines().any(|line| is_mount_point(line, path));
        if !mounted(session.mount_point()) || fs.is_some_and(|fs| !mounted(fs)) {
            return Ok(());
        }
        let mut events = [
            // The kernel raises an error condition here when the table of mounts changes.
            PollFd::new(&table, PollFlags::PRI),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("wait for the end of the mount: {error}"),
        }
        if events[1].revents().contains(PollFlags::IN) {
            return Ok(());
        }
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
fn in_background() -> anyhow::Result<()> {
    let (ready, theirs) = rustix::pipe::pipe().context("make a pipe")?;
    rustix::io::fcntl_setfd(&ready, rustix::io::FdFlags::CLOEXEC)?;
    let program = std::env::current_exe().context("find this program")?;
    let mut command = std::process::Command::new(program);
    let mut arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let fd = theirs.as_raw_fd().to_string();
    arguments.extend(["--foreground".into(), "--ready-fd".into(), fd.into()]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: setsid is safe between fork and exec.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let mut child = command.spawn().context("start the server")?;
    drop(theirs);
    let mut byte = [0];
    if File::from(ready).read(&mut byte).context("wait for the server")? == 1 {
        return Ok(());
    }
    // It has said why on standard error, which it shares.
    let status = child.wait().context("wait for the server")?;
    std::process::exit(status.code().unwrap_or(1));
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
