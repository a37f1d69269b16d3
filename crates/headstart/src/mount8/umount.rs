//! `/sbin/umount.fuse.headstart`: ends a mount by the directory of its disk. The file system in it keeps
//! the disk busy, so it must go first; then the server takes down the rest.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{CommandFactory, Parser};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{FAILED, enter};
use hs_linux::mounts::MountTable;
use hs_output::log_output;
use hs_service::careful::resolve;

/// How long a server may take to unmount.
const PATIENCE: Duration = Duration::from_secs(30);

/// Unmount a headstart image; umount(8) calls this for the type fuse.headstart.
///
/// DIR is the directory with disk.img. The file system that the option fs of mount.headstart(8) has mounted
/// from it is unmounted first; then the server ends.
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.headstart", version)]
struct Arguments {
    /// The directory that disk.img is in.
    dir: PathBuf,
    /// Cut waiting readers off.
    #[arg(short = 'f')]
    force: bool,
    /// Detach now, and end when the last user goes.
    #[arg(short = 'l')]
    lazy: bool,
    /// Accepted.
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Accepted; everything is read-only.
    #[arg(short = 'r')]
    read_only: bool,
    /// Say more.
    #[arg(short = 'v')]
    verbose: bool,
    /// Unmount in this mount namespace: a file, or a process id.
    #[arg(short = 'N', value_name = "NS")]
    namespace: Option<PathBuf>,
    /// Accepted; there is one type.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

/// The definition, for its man page.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

/// Unmounts; gives umount(8)'s exit code.
pub(super) fn run(arguments: &[OsString]) -> u8 {
    let arguments: Arguments = match super::parse("umount.fuse.headstart", arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    log_output::start(false, u8::from(arguments.verbose));
    match unmount(&arguments) {
        Ok(()) => 0,
        Err(error) => {
            log_output::failure(&format!("{error:#}"));
            FAILED
        }
    }
}

fn unmount(arguments: &Arguments) -> anyhow::Result<()> {
    // Before another namespace is entered, in which the run folder may be another.
    let servers = hs_service::status::servers()?;
    if let Some(namespace) = &arguments.namespace {
        enter(namespace).with_context(|| format!("enter the namespace {}", namespace.display()))?;
    }
    let dir = resolve(&arguments.dir);
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::FORCE, arguments.force);
    flags.set(UnmountFlags::DETACH, arguments.lazy);
    let server = servers.into_iter().find(|status| status.dir == dir && shares_mounts(status.pid));
    let target = server.as_ref().and_then(|server| server.fs.as_ref()).unwrap_or(&dir);
    match rustix::mount::unmount(target, flags) {
        Ok(()) => {}
        // It went meanwhile, as when a user has just unmounted the file system, and its server ends.
        Err(Errno::INVAL) if !MountTable::open()?.has(target)? => {}
        Err(Errno::BUSY) => bail!("{} is busy: end what uses it, or use umount -l", target.display()),
        Err(error) => return Err(error).with_context(|| format!("unmount {}", target.display())),
    }
    // Its server sees that, and takes the rest down; with files open, that may take as long as they are.
    if server.is_some() && !arguments.lazy {
        hs_daemon::mount::wait_until_gone(&dir, PATIENCE)?;
    }
    Ok(())
}

/// Whether the process is in our mount namespace: others may have a mount of the same name.
fn shares_mounts(process: u32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    namespace(&process.to_string()).is_some_and(|theirs| Some(theirs) == namespace("self"))
}
