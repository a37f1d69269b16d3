//! A disk and images of it, from a seed.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, OptimizeOptions};
use hs_image::{Codec, Image};
use hs_store::FileStore;
use hs_trace::{BlockDigest, Profile, Read};
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos, Prng};

/// Bytes of a cold window of the sample.
pub const WINDOW: usize = 64 << 10;
const BLOCK: usize = BLOCK_BYTES as usize;
/// 6 MiB and a bit: the last window is not whole.
const BLOCKS: usize = 1539;

/// A raw disk, and an image of it with a hot region.
pub struct Sample {
    /// Where the files lie.
    pub folder: tempfile::TempDir,
    /// The content of the disk.
    pub disk: Vec<u8>,
}

impl Sample {
    /// The disk of this seed, raw as `disk.raw`, as an image without a profile as `cold.hsi`, and with one as
    /// `hot.hsi`.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut disk = vec![0; BLOCKS * BLOCK];
        for (number, window) in disk.chunks_mut(WINDOW).enumerate() {
            // Every fourth window is a hole, and there is a long one.
            if number % 4 != 3 && !(40..60).contains(&number) {
                window.chunks_mut(BLOCK).for_each(|block| Prng::new(prng.next_u64()).fill(&mut block[..900]));
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let sample = Self { folder, disk };
        std::fs::write(sample.path("disk.raw"), &sample.disk).expect("written");
        let threads = NonZeroUsize::MIN;
        let options = BuildOptions {
            window_bytes: WINDOW as u64,
            codec: Codec::Zstd,
            level: 1,
            threads,
            ..BuildOptions::default()
        };
        let source =
            Source::open(&sample.path("disk.raw"), &SourceOptions::default(), &|_| {}).expect("a source");
        hs_build::build(&source, &sample.path("cold.hsi"), &options, &|_| {}).expect("built");
        let cold = sample.open("cold.hsi");
        let profile = sample.profile(&cold, &mut prng);
        let mut options = OptimizeOptions { level: 1, threads, ..OptimizeOptions::default() };
        options.layout.first_chunk_bytes = 8 << 10;
        options.layout.max_chunk_bytes = 32 << 10;
        let (from, to) = (sample.path("cold.hsi"), sample.path("hot.hsi"));
        hs_build::optimize(&cold, Some(&from), &[profile], &to, &options, &|_| {}).expect("optimized");
        sample
    }

    /// The path of one of the files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Opens one of the images.
    ///
    /// # Panics
    /// When it is none.
    pub fn open(&self, name: &str) -> Image {
        Image::open(Arc::new(FileStore::open(self.path(name)).expect("there"))).expect("an image")
    }

    /// A start that read every third stretch of four blocks or so, in some order.
    fn profile(&self, image: &Image, prng: &mut Prng) -> Profile {
        let mut reads: Vec<BlockRange> = (0..BLOCKS as u64 - 4)
            .step_by(12)
            .map(|start| BlockRange::new(Lba(start + prng.below(3)), 1 + prng.below(4)))
            .collect();
        for at in (1..reads.len()).rev() {
            reads.swap(at, prng.below(at as u64 + 1) as usize);
        }
        let read = |(number, blocks): (usize, &BlockRange)| Read {
            at: Nanos(number as u64 * 1000),
            blocks: *blocks,
            cost: Nanos(10),
        };
        let mut profile = Profile {
            disk_digest: image.disk_digest(),
            disk_bytes: image.disk_bytes(),
            ended: Nanos(reads.len() as u64 * 1000),
            reads: reads.iter().enumerate().map(read).collect(),
            ..Profile::default()
        };
        let digest = |lba: Lba| BlockDigest::of(&self.disk[lba.byte_offset() as usize..][..BLOCK]);
        profile.digests = profile.first_access().into_iter().map(digest).collect();
        profile
    }
}
