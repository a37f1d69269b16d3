//! Disks, images of them and profiles of their starts, all from a seed.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_build::source::{Source, SourceOptions};
use hs_build::{BaseBlocks, BuildError, BuildOptions, BuildReport, OptimizeOptions, OptimizeReport};
use hs_format::Superblock;
use hs_format::limits::SUPERBLOCK_BYTES;
use hs_image::{BaseDisk, Codec, Image, ReadBase};
use hs_store::{FileStore, MemoryStore, Store};
use hs_trace::{BlockDigest, FileRun, FileUse, Profile, Read};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos, Prng};

pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;

/// A folder with a raw disk and images of it.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) disk: Vec<u8>,
}

impl Bench {
    pub(crate) fn new(disk: Vec<u8>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("disk.raw"), &disk).expect("the disk is written");
        Self { folder, disk }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn source(&self) -> Source {
        source(&self.path("disk.raw"))
    }

    pub(crate) fn build(&self, name: &str, options: &BuildOptions) -> BuildReport {
        hs_build::build(&self.source(), &self.path(name), options, &|_| {}).expect("built")
    }

    pub(crate) fn optimize(&self, from: &str, to: &str, profiles: &[Profile]) -> OptimizeReport {
        self.optimize_with(from, to, profiles, &hot_options(2)).expect("optimized")
    }

    pub(crate) fn optimize_with(
        &self,
        from: &str,
        to: &str,
        profiles: &[Profile],
        options: &OptimizeOptions,
    ) -> Result<OptimizeReport, BuildError> {
        let image = open(&self.path(from));
        hs_build::optimize(&image, Some(&self.path(from)), profiles, &self.path(to), options, &|_| {})
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("the file can be read")
    }

    /// What is left in the folder beside the disk, hidden files included.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder can be listed");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "disk.raw")
            .collect();
        names.sort();
        names
    }
}

/// Two disks, and an image of each: `base.hsi`, and `child.hsi`, which does not store what the other disk
/// has.
pub(crate) struct WithBase {
    pub(crate) base: Bench,
    pub(crate) child: Bench,
    pub(crate) report: BuildReport,
}

impl WithBase {
    pub(crate) fn new(base: Vec<u8>, base_window: u64, child: Vec<u8>, options: &BuildOptions) -> Self {
        let (base, child) = (Bench::new(base), Bench::new(child));
        base.build("base.hsi", &fast_build(base_window, 1));
        let blocks = BaseBlocks::read(&open(&base.path("base.hsi")), options.threads, &|_| {}).expect("read");
        let options = BuildOptions { base: Some(Arc::new(blocks)), ..options.clone() };
        let report = child.build("child.hsi", &options);
        Self { base, child, report }
    }

    /// A store as the base, read directly.
    pub(crate) fn read_base(store: Arc<dyn Store>) -> Arc<dyn BaseDisk> {
        Arc::new(ReadBase::new(Image::open(store).expect("an image")))
    }

    /// A base whose superblock says something else than its author wrote.
    pub(crate) fn lying_base(mut bytes: Vec<u8>, superblock: &Superblock) -> MemoryStore {
        for at in [0, bytes.len() - SUPERBLOCK_BYTES] {
            bytes[at..][..SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
        }
        MemoryStore::new(bytes).named("lying")
    }

    /// An image of the child's disk, with its base.
    pub(crate) fn open(&self, name: &str) -> Arc<Image> {
        self.open_on(name, "base.hsi")
    }

    /// The same with this image of the other disk as its base.
    pub(crate) fn open_on(&self, name: &str, base: &str) -> Arc<Image> {
        let image = open(&self.child.path(name));
        let base = FileStore::open(self.base.path(base)).expect("the base is there");
        image.use_base(Self::read_base(Arc::new(base))).expect("it is the base");
        image
    }
}

/// A disk of so many blocks, many of which are somewhere on `base`, some of them in a row.
pub(crate) fn disk_like(prng: &mut Prng, base: &[u8], blocks: u64) -> Vec<u8> {
    let base_blocks = base.len() as u64 / BLOCK_BYTES;
    let (mut disk, mut from) = (Vec::new(), 0);
    for _ in 0..blocks {
        let mut block = [0; BLOCK];
        match prng.below(8) {
            0 => {}
            1 | 2 => prng.fill(&mut block),
            3 => block[..BLOCK / 2].fill(prng.below(256) as u8),
            4 => from = prng.below(base_blocks),
            _ => from = (from + 1) % base_blocks,
        }
        if block == [0; BLOCK] {
            block.copy_from_slice(&base[from as usize * BLOCK..][..BLOCK]);
        }
        disk.extend(block);
    }
    disk
}

pub(crate) fn source(path: &Path) -> Source {
    Source::open(path, &SourceOptions::default(), &|_| {}).expect("a source")
}

pub(crate) fn open(path: &Path) -> Arc<Image> {
    Arc::new(Image::open(Arc::new(FileStore::open(path).expect("the image is there"))).expect("an image"))
}

pub(crate) fn fast_build(window_bytes: u64, threads: usize) -> BuildOptions {
    let threads = NonZeroUsize::new(threads).expect("threads");
    BuildOptions { window_bytes, codec: Codec::Zstd, level: 1, threads, ..BuildOptions::default() }
}

pub(crate) fn hot_options(threads: usize) -> OptimizeOptions {
    let threads = NonZeroUsize::new(threads).expect("threads");
    let mut options = OptimizeOptions { level: 1, threads, ..OptimizeOptions::default() };
    options.layout.first_chunk_bytes = 8 << 10;
    options.layout.max_chunk_bytes = 32 << 10;
    options
}

/// A disk of so many blocks: zeros, repeated windows, text-like and random ones, and ones with a
/// single block of data, in a random order.
pub(crate) fn disk(prng: &mut Prng, blocks: u64, window_bytes: u64) -> Vec<u8> {
    let mut disk = vec![0; (blocks * BLOCK_BYTES) as usize];
    let common = prng.next_u64();
    for window in disk.chunks_mut(window_bytes as usize) {
        match prng.below(6) {
            0 => {}
            1 => Prng::new(common).fill(window),
            2 => {
                let seed = prng.next_u64();
                window.chunks_mut(96).for_each(|line| Prng::new(seed % 5).fill(line));
                window[0] = seed as u8;
            }
            3 => {
                let block = prng.below(window.len() as u64 / BLOCK_BYTES) as usize;
                Prng::new(prng.next_u64()).fill(&mut window[block * BLOCK..][..BLOCK]);
            }
            _ => Prng::new(prng.next_u64()).fill(window),
        }
    }
    disk
}

/// A start that made these reads.
pub(crate) fn profile(image: &Image, disk: &[u8], reads: &[BlockRange]) -> Profile {
    let reads: Vec<Read> = reads
        .iter()
        .enumerate()
        .map(|(number, blocks)| Read { at: Nanos(number as u64 * 1000), blocks: *blocks, cost: Nanos(10) })
        .collect();
    let mut profile = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        ended: Nanos(reads.len() as u64 * 1000),
        reads,
        ..Profile::default()
    };
    profile.digests = profile
        .first_access()
        .into_iter()
        .map(|lba| BlockDigest::of(&disk[lba.byte_offset() as usize..][..BLOCK]))
        .collect();
    profile
}

/// A start that made random reads, a few of which belong to a file.
pub(crate) fn random_profile(prng: &mut Prng, image: &Image, disk: &[u8]) -> Profile {
    let blocks = disk.len() as u64 / BLOCK_BYTES;
    let reads: Vec<BlockRange> = (0..1 + prng.below(30))
        .map(|_| {
            let start = prng.below(blocks);
            BlockRange::new(Lba(start), 1 + prng.below((blocks - start).min(9)))
        })
        .collect();
    let mut profile = profile(image, disk, &reads);
    if prng.below(2) == 0 {
        let runs = vec![FileRun { page: prng.below(100), blocks: reads[0] }];
        profile.files = vec![FileUse { path: "/bin/program".to_owned(), inode: 12, runs }];
    }
    profile
}

pub(crate) fn as_store(store: impl Store + 'static) -> Arc<dyn Store> {
    Arc::new(store)
}
