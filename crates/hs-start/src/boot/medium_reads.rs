//! What a guest reads of the medium that it boots from: by firmware and boot loader, which no program in the
//! guest sees, and by all that comes after them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use hs_store::{Sink, Store, StoreError};
use hs_units::ByteRange;
use parking_lot::Mutex;

use super::{BootDisk, BootSpec};
use crate::iso_files::{self, FileExtent};
use crate::on_medium::OnMedium;
use crate::summary::{FileReads, Stage, Summary};

/// Reads beyond this are not counted.
const MOST_READS: usize = 1 << 20;
/// What reads before the kernel's first line.
const FIRMWARE: &str = "firmware";

/// The reads of a start.
#[derive(Default)]
struct SeenReads {
    reads: Vec<(Instant, ByteRange)>,
    /// The start is over.
    ended: bool,
}

type Reads = Arc<Mutex<SeenReads>>;

/// Sees what is read of a medium.
pub(super) struct MediumReads(Reads);

impl MediumReads {
    /// Sees the reads of a guest that starts from a medium.
    pub(super) fn watch(spec: &BootSpec, on_medium: OnMedium) -> (OnMedium, Option<Self>) {
        if !spec.starts_from_medium() {
            return (on_medium, None);
        }
        let reads = Reads::default();
        let store = Arc::new(Watched { inner: on_medium.store, reads: Arc::clone(&reads) });
        (OnMedium { store, ..on_medium }, Some(Self(reads)))
    }

    /// The start is over: what is read from now on is not a part of it.
    pub(super) fn end(&self) {
        self.0.lock().ended = true;
    }

    /// Says which files were read in which stages of a start that began then.
    pub(super) fn fill(&self, spec: &BootSpec, began: Instant, summary: &mut Summary) {
        let BootDisk::Raw(path) = &spec.disk else { return };
        let files = files(path).unwrap_or_else(|error| {
            log::warn!("which files of the medium were read is not known: {error:#}");
            Vec::new()
        });
        let seen = self.0.lock();
        // What warms the medium comes before the start.
        let since = |at: &Instant| Some(at.checked_duration_since(began)?.as_secs_f64());
        let reads = seen.reads.iter().filter_map(|(at, bytes)| Some((since(at)?, *bytes)));
        summary.medium_files = count(reads, &files, &summary.stages);
    }
}

fn files(path: &Path) -> anyhow::Result<Vec<FileExtent>> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    // The length of a device is not in its metadata.
    let bytes = file.seek(SeekFrom::End(0)).context("look at the medium")?;
    Ok(iso_files::files(&mut |at, into| file.read_exact_at(into, at), bytes)?)
}

/// Reads of one stage and one file, in the order of the first of each.
fn count(
    reads: impl Iterator<Item = (f64, ByteRange)>,
    files: &[FileExtent],
    stages: &[Stage],
) -> Vec<FileReads> {
    let mut counted: Vec<FileReads> = Vec::new();
    let mut places = HashMap::new();
    let mut position = None;
    for (at_s, bytes) in reads {
        let stage = stages.iter().rev().find(|stage| stage.at_s <= at_s).map_or(FIRMWARE, |stage| stage.name);
        let file = file_at(files, bytes.offset);
        let place = *places.entry((stage, file)).or_insert_with(|| {
            let file = file.map(str::to_owned);
            counted.push(FileReads { stage, file, first_s: at_s, ..FileReads::default() });
            counted.len() - 1
        });
        let of_file = &mut counted[place];
        of_file.last_s = at_s;
        of_file.requests += 1;
        of_file.bytes += bytes.len;
        of_file.seeks += u64::from(position.is_some_and(|position| position != bytes.offset));
        position = Some(bytes.end());
    }
    counted
}

/// The file in which a byte of the medium lies.
fn file_at(files: &[FileExtent], offset: u64) -> Option<&str> {
    let before = files.partition_point(|file| file.bytes.offset <= offset);
    let file = files[..before].last()?;
    // What lies behind its last byte, in its last sector, comes with it.
    (offset < file.bytes.end().next_multiple_of(4096)).then_some(&file.path)
}

/// A store whose reads are kept.
struct Watched {
    inner: Arc<dyn Store>,
    reads: Reads,
}

impl Watched {
    fn saw(&self, range: ByteRange) {
        let mut seen = self.reads.lock();
        if !seen.ended && seen.reads.len() < MOST_READS {
            seen.reads.push((Instant::now(), range));
        }
    }
}

impl Store for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.saw(ByteRange::new(offset, buf.len() as u64));
        self.inner.read_at(offset, buf)
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.saw(range);
        self.inner.stream(range, sink)
    }

    fn close(&self) {
        self.inner.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_by_stage_and_file() {
        let file =
            |path: &str, offset, len| FileExtent { path: path.into(), bytes: ByteRange::new(offset, len) };
        let files = [file("/boot/vmlinuz", 8192, 5000), file("/headstart/root.hsi", 65536, 100_000)];
        let stage = |name, at_s| Stage { name, at_s, ..Stage::default() };
        let stages = [stage("kernel", 2.0), stage("init", 3.0)];
        let reads = [
            (0.5, 0, 2048),
            (0.6, 8192, 4096),
            (0.7, 12_288, 4096),
            (1.0, 32_768, 2048),
            (2.5, 65_536, 4096),
            (3.5, 69_632, 4096),
            (3.6, 8192, 4096),
        ];
        let reads = reads.map(|(at, offset, len)| (at, ByteRange::new(offset, len)));
        let counted = count(reads.into_iter(), &files, &stages);
        let shown: Vec<_> = counted
            .iter()
            .map(|of| (of.stage, of.file.as_deref().unwrap_or("-"), of.requests, of.bytes, of.seeks))
            .collect();
        assert_eq!(
            shown,
            [
                ("firmware", "-", 2, 4096, 1),
                ("firmware", "/boot/vmlinuz", 2, 8192, 1),
                ("kernel", "/headstart/root.hsi", 1, 4096, 1),
                ("init", "/headstart/root.hsi", 1, 4096, 0),
                ("init", "/boot/vmlinuz", 1, 4096, 1),
            ]
        );
        assert_eq!((counted[0].first_s, counted[0].last_s), (0.5, 1.0));
    }
}
