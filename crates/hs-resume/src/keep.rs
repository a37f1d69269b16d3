//! What a guest that goes on writes to its disk, kept in an overlay's file.
//!
//! The guest's memory knows the disk as it was when the guest was saved: it has parts of it in its caches. So
//! a file begins with what the guest had written until then, which has a name there, as a snapshot of the
//! overlay. Only while the disk is as it was at that name can the guest go on with it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hs_build::source::qcow2::own_parts;
use hs_keep::{KeepFile, NewFile, OpenedAs};
use hs_serve::ServedDisk;
use hs_service::status::unix_now;
use hs_units::{BLOCK_BYTES, ByteSize, Digest, to_usize};

use crate::ResumeError;
use crate::description::{Description, Part};
use crate::memory::ShownMemory;

/// Of what a guest had written so much is copied at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// What the name of the disk of a saved guest begins with. The rest says of which guest: a later version must
/// give the same names.
const NAME: &str = "resumed-";
const NAME_CONTEXT: &str = "headstart 2026-11-28 disk of a saved guest";
const NAME_DIGITS: usize = 16;

/// A guest, and the disk that it was booted from, whose changes are to be kept.
pub(crate) struct Keeping<'a> {
    pub(crate) memory: &'a ShownMemory,
    pub(crate) description: &'a Description,
    pub(crate) disk: &'a Arc<ServedDisk>,
    /// For messages.
    pub(crate) disk_name: &'a str,
}

impl Keeping<'_> {
    /// The file at `path`, whose disk is the one that the guest knows. It is begun where there is none.
    pub(crate) fn open(&self, path: &Path) -> anyhow::Result<KeepFile> {
        let name = self.name()?;
        let file = KeepFile::open(path, OpenedAs::Keeping, KeepFile::PATIENCE)?;
        if file.is_new()? {
            return self.begin(file, &name);
        }
        let is_at = file.overlay(Some(self.identity()), true)?.is_at(&name);
        let (file_name, snapshot) = (path.display().to_string(), self.memory.name.clone());
        let disk = self.disk_name.to_owned();
        match is_at {
            Some(true) => Ok(file),
            Some(false) => Err(ResumeError::DiskChanged { file: file_name, snapshot, disk, name }.into()),
            None => Err(ResumeError::OtherChanges { file: file_name, snapshot, disk }.into()),
        }
    }

    fn identity(&self) -> (Digest, u64) {
        let image = self.disk.image();
        (image.disk_digest(), image.disk_bytes())
    }

    /// What the disk of the guest is called, as it was saved. The state of its devices is that of no other
    /// moment: it has the time, and what its processors were about to do.
    fn name(&self) -> anyhow::Result<String> {
        let mut hasher = blake3::Hasher::new_derive_key(NAME_CONTEXT);
        hasher.update(self.description.disk_digest.as_bytes());
        let read = self.memory.read_part(self.description.state, |piece| {
            hasher.update(piece);
            Ok(())
        });
        read.with_context(|| format!("read the state of devices in {}", self.memory.name))?;
        Ok(format!("{NAME}{}", &hasher.finalize().to_hex()[..NAME_DIGITS]))
    }

    /// Copies what the guest had written until it was saved.
    fn begin(&self, file: KeepFile, name: &str) -> anyhow::Result<KeepFile> {
        let Part { offset, bytes: file_bytes } = self.description.overlay;
        let unusable = |why: String| ResumeError::Overlay { snapshot: self.memory.name.clone(), why };
        let read = |at: u64, buf: &mut [u8]| self.memory.read_at(offset + at, buf);
        let parts = own_parts(file_bytes, &read).map_err(|fault| unusable(fault.to_string()))?;
        let mut new = NewFile::instead_of(file, self.identity())?;
        let (mut piece, mut copied) = (Vec::new(), 0);
        for part in parts {
            let Some(place) = part.place else {
                new.zero(part.range.offset / BLOCK_BYTES, part.range.len / BLOCK_BYTES, false)?;
                continue;
            };
            for at in (0..part.range.len).step_by(to_usize(PIECE_BYTES)) {
                let len = PIECE_BYTES.min(part.range.len - at);
                piece.clear();
                piece.resize(to_usize(len), 0);
                // The last cluster of the file may be shorter: the rest are zeros.
                let there = file_bytes.saturating_sub(place + at).min(len);
                read(place + at, &mut piece[..to_usize(there)])
                    .map_err(|error| unusable(error.to_string()))?;
                new.write((part.range.offset + at) / BLOCK_BYTES, &piece)?;
                copied += len;
            }
        }
        new.take_snapshot(name, unix_now() as u64)?;
        let file = new.finish()?;
        log::info!("{}: begins with {} that the guest had written", file.path().display(), ByteSize(copied));
        Ok(file)
    }
}
