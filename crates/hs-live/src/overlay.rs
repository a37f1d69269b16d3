//! What the system writes: an overlay above the read-only file system, in memory or on a device.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_linux::mounts::overlay_options;
use hs_output::whole_file::write_whole;
use rustix::mount::{MountFlags, UnmountFlags, unmount};

use crate::device;
use crate::words::{DeviceName, Overlay};

/// Which image's disk the writes in a persistent file system belong to.
const MARKER: &str = "headstart-overlay";
/// A stick with persistence is there when the medium is, or soon after.
const PATIENCE: Duration = Duration::from_secs(10);
/// With less free than this a persistent file system is as good as full.
const NEARLY_FULL_BYTES: u64 = 8 << 20;

/// Mounts the overlay at `new_root`, above the file system at `lower`. Writes lie below `place`, a folder.
///
/// A persistent file system that is missing, belongs to another image or has no room for an overlay is left
/// alone, which is said, and writes go to memory: a machine that starts without its memory is better than
/// none.
///
/// # Errors
/// When even that cannot be mounted.
pub fn mount(
    overlay: &Overlay,
    disk_digest: &str,
    lower: &Path,
    place: &Path,
    new_root: &Path,
) -> anyhow::Result<()> {
    if let Overlay::Device(name) = overlay {
        match persistent(name, disk_digest, place).and_then(|()| above(lower, place, new_root)) {
            Ok(()) => return Ok(()),
            Err(error) => {
                log::error!("{name}: {error:#}; what is written now is lost when the machine stops");
                // Without a device nothing is mounted there.
                let _ = unmount(place, UnmountFlags::DETACH);
            }
        }
    }
    let memory = std::ffi::CString::new("mode=0755").ok();
    rustix::mount::mount("tmpfs", place, "tmpfs", MountFlags::empty(), memory.as_deref())
        .context("mount memory for writes")?;
    above(lower, place, new_root)
}

/// Mounts the overlay, with the folders that it needs in the file system at `place`.
fn above(lower: &Path, place: &Path, new_root: &Path) -> anyhow::Result<()> {
    let (upper, work) = (place.join("upper"), place.join("work"));
    for folder in [&upper, &work] {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    // The overlay's own root has the permissions of the upper one.
    let permissions = lower.metadata().context("look at the image's root")?.permissions();
    std::fs::set_permissions(&upper, permissions).context("set up the overlay")?;
    let data =
        std::ffi::CString::new(overlay_options(lower, &upper, &work)).context("paths of the overlay")?;
    rustix::mount::mount("headstart", new_root, "overlay", MountFlags::empty(), Some(data.as_c_str()))
        .with_context(|| format!("mount the root at {}", new_root.display()))
}

/// Mounts the file system that keeps writes, if its writes are of this disk.
fn persistent(name: &DeviceName, disk_digest: &str, place: &Path) -> anyhow::Result<()> {
    let found = device::wait_for(name, PATIENCE, Duration::ZERO, |found| match found {
        [one] => Ok(one.clone()),
        several => bail!("{} devices have this name: take out all but one", several.len()),
    })?;
    if found.file_system != "ext4" {
        bail!("it holds {}, and writes can be kept in ext4 only: mkfs.ext4 makes one", found.file_system);
    }
    device::mount(&found, place, true)?;
    check(place, disk_digest)
}

/// Notes down the disk that writes belong to, or compares it with what was noted before.
fn check(place: &Path, disk_digest: &str) -> anyhow::Result<()> {
    let marker = place.join(MARKER);
    match std::fs::read_to_string(&marker) {
        Ok(noted) if noted.trim() == disk_digest => {}
        Ok(noted) => bail!(
            "its writes belong to the disk {}, and this image has {disk_digest}: remove its folder 'upper' and \
             the file {MARKER} to begin anew",
            noted.trim()
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Synced: after a power cut it is whole, or not there.
            write_whole(&marker, format!("{disk_digest}\n").as_bytes())?;
        }
        Err(error) => return Err(error).context(format!("read {MARKER}")),
    }
    let room = rustix::fs::statvfs(place).context("look at its room")?;
    let free_bytes = room.f_bavail * room.f_frsize;
    if free_bytes < NEARLY_FULL_BYTES {
        log::error!(
            "the file system that keeps writes is nearly full ({} KiB): delete files",
            free_bytes >> 10
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_stay_with_their_own_disk() {
        let place = tempfile::tempdir().expect("a folder");
        check(place.path(), "one").expect("the first");
        check(place.path(), "one").expect("the same");
        let error = check(place.path(), "two").expect_err("another").to_string();
        assert!(error.contains("belong to the disk one") && error.contains("has two"), "{error}");
    }
}
