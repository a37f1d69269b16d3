//! What a guest reads of the medium that it boots from: by firmware and boot loader, which no program in the
//! guest sees, and by all that comes after them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_store::{Filter, Layer, Sink, Store, StoreError};
use hs_units::{ByteRange, Nanos};
use parking_lot::Mutex;

use super::{BootDisk, BootSpec};
use crate::el_torito;
use crate::iso_files::{self, FileExtent};
use crate::on_medium::OnMedium;
use crate::stage_spans::{StageSpan, spans, stage_at};
use crate::summary::{FileReads, Stage};

/// Reads beyond this are not counted.
const MOST_READS: usize = 1 << 20;
/// What reads before the kernel's first line: firmware, until a file is read that firmware does not read.
const FIRMWARE: &str = "firmware";
const BOOT_LOADER: &str = "boot loader";
/// A file's last sector comes with it, and so does the rest of the page in which it ends.
const PAGE_BYTES: u64 = 4096;

/// The reads of a start.
#[derive(Default)]
struct SeenReads {
    reads: Vec<SeenRead>,
    /// The start is over.
    ended: bool,
}

struct SeenRead {
    at: Instant,
    took: Duration,
    bytes: ByteRange,
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
        let store = Arc::new(Layer::around(on_medium.store, Watching { reads: Arc::clone(&reads) }));
        (OnMedium { store, ..on_medium }, Some(Self(reads)))
    }

    /// The start is over: what is read from now on is not a part of it.
    pub(super) fn end(&self) {
        self.0.lock().ended = true;
    }

    /// What was read in a start that began then, ended so long after, and whose console showed these stages.
    pub(super) fn of_start(
        &self,
        spec: &BootSpec,
        began: Instant,
        stages: &[Stage],
        ended: Nanos,
    ) -> MediumStart {
        let BootDisk::Raw(path) = &spec.disk else { return MediumStart::default() };
        let files = MediumFiles::read(path).unwrap_or_else(|error| {
            log::warn!("which files of the medium were read is not known: {error:#}");
            MediumFiles::default()
        });
        let mut seen = self.0.lock();
        if seen.reads.len() == MOST_READS {
            log::warn!("reads of the medium beyond {MOST_READS} are not counted");
        }
        let since = |at: Instant| at.checked_duration_since(began).map(Nanos::from);
        // What warms the medium comes before the start.
        let reads = std::mem::take(&mut seen.reads).into_iter().filter_map(|SeenRead { at, took, bytes }| {
            Some(MediumRead { at: since(at)?, took: took.into(), bytes })
        });
        let mut reads: Vec<MediumRead> = reads.collect();
        // They were seen in the order in which they ended.
        reads.sort_by_key(|read| read.at);
        let loader = files.boot_loader_from(&reads).map(|at| (BOOT_LOADER, at));
        let before: Vec<_> = [(FIRMWARE, Nanos::ZERO)].into_iter().chain(loader).collect();
        MediumStart { files, reads, stages: spans(&before, stages, ended) }
    }
}

/// What lies on a medium.
#[derive(Debug, Default)]
struct MediumFiles {
    /// By their places.
    files: Vec<FileExtent>,
    /// Where the files begin that firmware itself reads.
    of_firmware: Vec<u64>,
}

impl MediumFiles {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        // The length of a device is not in its metadata.
        let bytes = file.seek(SeekFrom::End(0)).context("look at the medium")?;
        let mut read = |at, into: &mut [u8]| -> io::Result<()> { file.read_exact_at(into, at) };
        let of_firmware = el_torito::read_by_firmware(&mut read, bytes)?;
        Ok(Self { files: iso_files::files(&mut read, bytes)?, of_firmware })
    }

    /// The file in which a byte of the medium lies, and how far from there nothing changes. Where files
    /// overlap, the one that begins last has the byte.
    fn at(&self, offset: u64) -> (Option<&FileExtent>, u64) {
        let before = self.files.partition_point(|file| file.bytes.offset <= offset);
        let next = self.files.get(before).map_or(u64::MAX, |next| next.bytes.offset);
        let end_of = |file: &FileExtent| file.bytes.end().next_multiple_of(PAGE_BYTES);
        match self.files[..before].last().filter(|file| offset < end_of(file)) {
            Some(file) => (Some(file), end_of(file).min(next)),
            None => (None, next),
        }
    }

    /// When a file was read first that firmware does not read itself.
    fn boot_loader_from(&self, reads: &[MediumRead]) -> Option<Nanos> {
        let is_firmwares = |file: &FileExtent| {
            self.of_firmware.iter().any(|at| (file.bytes.offset..file.bytes.end()).contains(at))
        };
        let is_loaders =
            |read: &&MediumRead| self.at(read.bytes.offset).0.is_some_and(|file| !is_firmwares(file));
        reads.iter().find(is_loaders).map(|read| read.at)
    }
}

/// A read of the medium.
#[derive(Clone, Copy, Debug)]
pub struct MediumRead {
    /// When it came, from the start on.
    pub at: Nanos,
    /// How long the medium took.
    pub took: Nanos,
    /// What was read. Not empty.
    pub bytes: ByteRange,
}

/// What a start from a medium read of it.
#[derive(Debug, Default)]
pub struct MediumStart {
    files: MediumFiles,
    /// By their times.
    pub reads: Vec<MediumRead>,
    /// Firmware, boot loader, and what the console showed.
    pub stages: Vec<StageSpan>,
}

impl MediumStart {
    /// What a read covers, file by file: with the file's path, or without where none lies.
    pub fn parts(&self, read: ByteRange) -> impl Iterator<Item = (Option<&str>, ByteRange)> {
        let mut offset = read.offset;
        std::iter::from_fn(move || {
            let left = read.end().checked_sub(offset).filter(|left| *left > 0)?;
            let (file, until) = self.files.at(offset);
            let part = ByteRange::new(offset, left.min(until - offset));
            offset = part.end();
            Some((file.map(|file| file.path.as_str()), part))
        })
    }

    /// Reads of one stage and one file, in the order of the first of each.
    pub(super) fn by_stage_and_file(&self) -> Vec<FileReads> {
        let mut counted: Vec<FileReads> = Vec::new();
        let mut places = HashMap::new();
        let mut position = None;
        for MediumRead { at, bytes, .. } in &self.reads {
            let stage = stage_at(&self.stages, *at).unwrap_or(FIRMWARE);
            let file = self.files.at(bytes.offset).0.map(|file| file.path.as_str());
            let place = *places.entry((stage, file)).or_insert_with(|| {
                let (file, first_s) = (file.map(str::to_owned), at.as_secs_f64());
                counted.push(FileReads { stage, file, first_s, ..FileReads::default() });
                counted.len() - 1
            });
            let of_file = &mut counted[place];
            of_file.last_s = at.as_secs_f64();
            of_file.requests += 1;
            of_file.bytes += bytes.len;
            of_file.seeks += u64::from(position.is_some_and(|position| position != bytes.offset));
            position = Some(bytes.end());
        }
        counted
    }
}

/// Keeps when a store was read.
struct Watching {
    reads: Reads,
}

impl Watching {
    /// Reads, and keeps when that was.
    fn seen<T>(&self, bytes: ByteRange, read: impl FnOnce() -> T) -> T {
        let at = Instant::now();
        let result = read();
        let took = at.elapsed();
        let mut seen = self.reads.lock();
        if !seen.ended && seen.reads.len() < MOST_READS {
            seen.reads.push(SeenRead { at, took, bytes });
        }
        result
    }
}

impl Filter for Watching {
    fn read_at(&self, next: &dyn Store, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        self.seen(ByteRange::new(offset, buf.len() as u64), || next.read_at(offset, buf))
    }

    fn stream(&self, next: &dyn Store, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        self.seen(range, || next.stream(range, sink))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, offset: u64, len: u64) -> FileExtent {
        FileExtent { path: path.into(), bytes: ByteRange::new(offset, len) }
    }

    fn read((at_s, offset, len): (f64, u64, u64)) -> MediumRead {
        MediumRead { at: Nanos::from_secs_f64(at_s), took: Nanos(1), bytes: ByteRange::new(offset, len) }
    }

    #[test]
    fn reads_are_counted_by_stage_and_file() {
        let listed = [
            file("/boot/bios.img", 4096, 4096),
            file("/boot/vmlinuz", 8192, 5000),
            file("/root", 65536, 100_000),
        ];
        let files = MediumFiles { files: listed.into(), of_firmware: vec![4096] };
        let stage = |name, at_s| Stage { name, at_s, ..Stage::default() };
        let reads: Vec<_> = [
            (0.4, 0, 2048),
            (0.5, 4096, 2048),
            (0.6, 8192, 4096),
            (0.7, 12_288, 4096),
            (1.0, 32_768, 2048),
            (2.5, 65_536, 4096),
            (3.5, 69_632, 4096),
            (3.6, 8192, 4096),
        ]
        .map(read)
        .into();
        let loader = files.boot_loader_from(&reads).expect("the kernel is read");
        let before = [(FIRMWARE, Nanos::ZERO), (BOOT_LOADER, loader)];
        let shown = [stage("kernel", 2.0), stage("init", 3.0)];
        let stages = spans(&before, &shown, Nanos::from_secs_f64(4.0));
        let counted = MediumStart { files, reads, stages }.by_stage_and_file();
        let shown: Vec<_> = counted
            .iter()
            .map(|of| (of.stage, of.file.as_deref().unwrap_or("-"), of.requests, of.bytes, of.seeks))
            .collect();
        assert_eq!(
            shown,
            [
                ("firmware", "-", 1, 2048, 0),
                ("firmware", "/boot/bios.img", 1, 2048, 1),
                ("boot loader", "/boot/vmlinuz", 2, 8192, 1),
                ("boot loader", "-", 1, 2048, 1),
                ("kernel", "/root", 1, 4096, 1),
                ("init", "/root", 1, 4096, 0),
                ("init", "/boot/vmlinuz", 1, 4096, 1),
            ]
        );
        assert_eq!((counted[2].first_s, counted[2].last_s), (0.6, 0.7));
    }

    #[test]
    fn a_read_has_a_part_for_each_file() {
        let listed = vec![file("/a", 4096, 100), file("/b", 6144, 3000), file("/in b", 8192, 10)];
        let start = MediumStart {
            files: MediumFiles { files: listed, of_firmware: Vec::new() },
            ..MediumStart::default()
        };
        let of = |offset, len| {
            let parts = start.parts(ByteRange::new(offset, len));
            let shown =
                parts.map(|(file, part)| (file.unwrap_or_default().to_owned(), part.offset, part.len));
            shown.collect::<Vec<_>>()
        };
        let part = |file: &str, offset: u64, len: u64| (file.to_owned(), offset, len);
        let expected = [
            part("", 0, 4096),
            part("/a", 4096, 2048),
            part("/b", 6144, 2048),
            part("/in b", 8192, 4096),
            part("", 12_288, 4096),
        ];
        assert_eq!(of(0, 16_384), expected);
        assert_eq!(of(4200, 8), [part("/a", 4200, 8)]);
        assert!(of(5, 0).is_empty());
    }
}
