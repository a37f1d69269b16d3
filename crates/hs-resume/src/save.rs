//! Makes a snapshot of a guest that has stopped.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use hs_build::source::{Source, SourceOptions};
use hs_build::{BaseBlocks, BuildOptions};
use hs_image::Image;
use hs_start::boot::{SaveGuest, SavedParts};
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_units::BLOCK_BYTES;
use rustix::fs::OFlags;

use crate::description::{Description, Part};

/// Pages that are touched together do not lie together, so a miss should bring little beside its page. With
/// larger windows a resume moves a fifth more bytes, with smaller ones the snapshot is a twentieth larger.
const WINDOW_BYTES: u64 = 16 << 10;

/// Writes a snapshot to a file.
pub struct Saver {
    output: PathBuf,
    disk_name: String,
    base: Option<ImageSource>,
}

impl Saver {
    /// Writes to `output`, which appears when it is complete. `disk_name` is the file name of the image that
    /// the guest is booted from. Pages that `base`, the same image, has on its disk are not stored.
    #[must_use]
    pub const fn new(output: PathBuf, disk_name: String, base: Option<ImageSource>) -> Self {
        Self { output, disk_name, base }
    }

    /// What the disk has, unless the snapshot is to be whole. The image is opened anew: that of the guest has
    /// been closed, and its medium may be an emulated one.
    fn base_blocks(&self) -> anyhow::Result<Option<Arc<BaseBlocks>>> {
        let Some(base) = &self.base else { return Ok(None) };
        let disk = open_image(base)?;
        if disk.superblock().base.is_some() {
            log::info!("{} has a base itself: the whole snapshot is stored", disk.name());
            return Ok(None);
        }
        let threads = BuildOptions::default().threads;
        Ok(Some(Arc::new(BaseBlocks::read(&disk, threads, &|_| {})?)))
    }
}

impl SaveGuest for Saver {
    fn output(&self) -> &Path {
        &self.output
    }

    fn save(&self, parts: &SavedParts, disk: &Image) -> anyhow::Result<()> {
        let memory = own_file(&parts.memory_file, true)?;
        let memory_bytes = length(&memory)?;
        let state = append(&memory, &own_file(&parts.state_file, false)?)?;
        let overlay = append(&memory, &own_file(&parts.overlay_file, false)?)?;
        let description = Description {
            format: Description::FORMAT,
            disk_digest: disk.disk_digest().to_string(),
            disk_bytes: disk.disk_bytes(),
            disk_name: self.disk_name.clone(),
            qemu: parts.qemu.clone(),
            machine: parts.machine.clone(),
            cpu: parts.cpu.clone(),
            accelerator: parts.accelerator.to_owned(),
            memory_bytes,
            state,
            overlay,
            has_network: parts.has_network,
        };
        // In a window of its own, which is read before the disk is known.
        let end = length(&memory)?.next_multiple_of(WINDOW_BYTES);
        memory.write_all_at(&description.encode()?, end).context("write the description of the guest")?;
        // Memory may begin like anything.
        let raw = SourceOptions { raw: true, ..SourceOptions::default() };
        let source = Source::open(&parts.memory_file, &raw, &|_| {})?;
        let base = self.base_blocks().unwrap_or_else(|error| {
            log::warn!("{error:#}: the whole snapshot is stored");
            None
        });
        // Keys and passwords in the guest's memory are in it.
        let is_private = true;
        let build = BuildOptions { window_bytes: WINDOW_BYTES, base, is_private, ..BuildOptions::default() };
        hs_build::build(&source, &self.output, &build, &|_| {})?;
        Ok(())
    }
}

/// Opens a file that the guest's user made or could have changed: a link is none.
fn own_file(path: &Path, writes: bool) -> anyhow::Result<File> {
    let context = || format!("open {}", path.display());
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let file =
        File::options().read(true).write(writes).custom_flags(flags).open(path).with_context(context)?;
    ensure!(file.metadata().with_context(context)?.is_file(), "{} is no file", path.display());
    Ok(file)
}

fn length(file: &File) -> anyhow::Result<u64> {
    Ok(file.metadata().context("look at the memory of the guest")?.len())
}

/// Appends `part` to the guest's memory, at the next block.
fn append(memory: &File, mut part: &File) -> anyhow::Result<Part> {
    let offset = length(memory)?.next_multiple_of(BLOCK_BYTES);
    let mut end = memory;
    end.seek(SeekFrom::Start(offset))?;
    part.seek(SeekFrom::Start(0))?;
    let bytes = io::copy(&mut part, &mut end).context("append to the memory of the guest")?;
    Ok(Part { offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_at_whole_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("memory"), [1; 8192]).unwrap();
        std::fs::write(path("state"), [2; 5000]).unwrap();
        let memory = own_file(&path("memory"), true).unwrap();
        let state = own_file(&path("state"), false).unwrap();
        assert_eq!(append(&memory, &state).unwrap(), Part { offset: 8192, bytes: 5000 });
        assert_eq!(append(&memory, &state).unwrap(), Part { offset: 16384, bytes: 5000 });
        let all = std::fs::read(path("memory")).unwrap();
        assert_eq!(all[8192..13192], [2; 5000]);
        assert!(all[13192..16384].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn links_and_folders_of_the_guest_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("memory");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert!(own_file(&link, false).is_err());
        assert!(own_file(folder.path(), false).is_err());
    }
}
