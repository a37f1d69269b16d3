//! A disk that is changed by one program at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_linux::{LockKind, lock_bytes, lock_disk, loop_device_of};

/// udev looks at a disk for a moment, and the kernel detaches a loop device behind its last user.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

/// Takes the disk, which stays taken as long as `file` is open.
///
/// # Errors
/// When another program changes it, a machine runs from it, or a loop device reads it.
pub(super) fn take(path: &Path, file: &File) -> anyhow::Result<()> {
    let shown = path.display();
    take_lock(path, file, LockKind::Exclusive)?;
    if !passes(path, || lock_bytes(file))? {
        bail!("{shown} is in use by another program, as by QEMU: end it");
    }
    let is_device =
        file.metadata().with_context(|| format!("look at {shown}"))?.file_type().is_block_device();
    if is_device || passes(path, || Ok(loop_device_of(path).is_none()))? {
        return Ok(());
    }
    let device = loop_device_of(path).unwrap_or_default();
    let device = device.display();
    bail!(
        "{shown} is attached to {device}: unmount what is mounted from it (`lsblk {device}` shows that), and detach \
         it with `losetup --detach {device}`"
    );
}

/// Keeps out a program that takes the disk, as long as `file` is open.
///
/// # Errors
/// When another program changes it.
pub(super) fn look_at(path: &Path, file: &File) -> anyhow::Result<()> {
    take_lock(path, file, LockKind::Shared)
}

fn take_lock(path: &Path, file: &File, kind: LockKind) -> anyhow::Result<()> {
    if !passes(path, || lock_disk(file, kind))? {
        bail!(
            "{}: another program works on this disk, as `headstart install`: wait for its end",
            path.display()
        );
    }
    Ok(())
}

/// Asks until it is so; a file system without locks has none that another program could hold.
fn passes(path: &Path, ask: impl Fn() -> io::Result<bool>) -> anyhow::Result<bool> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(true) => return Ok(true),
            Ok(false) if Instant::now() >= until => return Ok(false),
            Ok(false) => std::thread::sleep(LOOK),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(true),
            Err(error) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }
}
