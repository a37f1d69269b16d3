//! Whether use of what was prefetched is seen where the kernel answers from its pages.
//!
//! A disk has files of which every second one is hot. The medium gives the first of them and then holds the
//! stream up, so that there is always something left to request. It also holds up cold reads when it is told
//! to, so that nothing here depends on time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, OptimizeOptions};
use hs_conformance::{Gates, OpenAtEnd};
use hs_engine::PrefetchConfig;
use hs_fuse::ServedImage;
use hs_image::{Codec, Image};
use hs_serve::{MountFsOptions, MountedFs, Prefetching, ServeConfig};
use hs_store::{FileStore, Store};
use hs_testing::{machine_has, noise};
use hs_trace::{BlockDigest, BlockSet, FileRun, FileUse, Profile, Read};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange, Lba, Nanos};

use crate::scene::Scene;

const FILES: usize = 120;
const FILE_BYTES: usize = 64 << 10;
/// Chunks that have come for sure: they are in the request that opens the image, which brings 1 MiB.
const COME: u32 = 10;
/// For what happens soon or never.
const PATIENCE: Duration = Duration::from_secs(120);

fn name(file: usize) -> String {
    format!("file-{file:03}")
}

fn content(file: usize) -> Vec<u8> {
    noise(FILE_BYTES, 1_000 + file as u64)
}

/// An image of an ext4 with files, and where each of them lies, in the order of their places.
struct Sample {
    folder: tempfile::TempDir,
    places: Vec<(usize, Vec<BlockRange>)>,
}

impl Sample {
    fn new() -> Self {
        let fill = |tree: &Path| {
            (0..FILES).for_each(|file| fs::write(tree.join(name(file)), content(file)).unwrap());
        };
        let scene = Scene::new(4096, fill);
        let inodes: Vec<u64> = (0..FILES).map(|file| scene.inode(&name(file))).collect();
        let blocks = FILE_BYTES as u64 / BLOCK_BYTES;
        let found = scene.places(&inodes.iter().map(|inode| (*inode, blocks)).collect::<Vec<_>>());
        let mut places: Vec<(usize, Vec<BlockRange>)> =
            (0..FILES).map(|file| (file, runs_of(&found, inodes[file]))).collect();
        places.sort_by_key(|(_, runs)| runs[0].start);
        let sample = Self { folder: tempfile::tempdir().unwrap(), places };
        sample.build(scene.disk(), &inodes);
        sample
    }

    fn image(&self) -> std::path::PathBuf {
        self.folder.path().join("hot.hsi")
    }

    /// Every second file is hot, and so is all metadata.
    fn hot(&self) -> impl Iterator<Item = &(usize, Vec<BlockRange>)> {
        self.places.iter().step_by(2)
    }

    fn cold(&self) -> Vec<usize> {
        self.places.iter().skip(1).step_by(2).map(|(file, _)| *file).collect()
    }

    fn build(&self, raw: &Path, inodes: &[u64]) {
        let threads = NonZeroUsize::MIN;
        let cold = self.folder.path().join("cold.hsi");
        let options = BuildOptions {
            window_bytes: 64 << 10,
            codec: Codec::Zstd,
            level: 1,
            threads,
            ..BuildOptions::default()
        };
        let source = Source::open(raw, &SourceOptions::default(), &|_| {}).unwrap();
        hs_build::build(&source, &cold, &options, &|_| {}).unwrap();
        let image = Image::open(Arc::new(FileStore::open(&cold).unwrap())).unwrap();
        let profile = self.profile(&image, &fs::read(raw).unwrap(), inodes);
        let mut options = OptimizeOptions { level: 1, threads, ..OptimizeOptions::default() };
        options.layout.first_chunk_bytes = 64 << 10;
        options.layout.max_chunk_bytes = 64 << 10;
        hs_build::optimize(&image, Some(&cold), &[profile], &self.image(), &options, &|_| {}).unwrap();
    }

    fn profile(&self, image: &Image, disk: &[u8], inodes: &[u64]) -> Profile {
        let mut of_files = BlockSet::new();
        self.places.iter().flat_map(|(_, runs)| runs).for_each(|run| of_files.insert(*run, |_| {}));
        let block = |lba: Lba| &disk[lba.byte_offset() as usize..][..BLOCK_BYTES as usize];
        let is_metadata = |lba: &Lba| !of_files.contains(*lba) && block(*lba).iter().any(|byte| *byte != 0);
        let metadata = (0..disk.len() as u64 / BLOCK_BYTES).map(Lba).filter(is_metadata);
        let reads: Vec<BlockRange> = metadata
            .map(|lba| BlockRange::new(lba, 1))
            .chain(self.hot().flat_map(|(_, runs)| runs.iter().copied()))
            .collect();
        let files = self.hot().map(|(file, runs)| {
            let mut page = 0;
            let runs = runs.iter().map(|blocks| {
                page += blocks.count;
                FileRun { page: page - blocks.count, blocks: *blocks }
            });
            FileUse { path: format!("/{}", name(*file)), inode: inodes[*file], runs: runs.collect() }
        });
        let read = |(number, blocks): (usize, &BlockRange)| Read {
            at: Nanos(number as u64 * 1_000),
            blocks: *blocks,
            cost: Nanos(10),
        };
        let mut profile = Profile {
            disk_digest: image.disk_digest(),
            disk_bytes: image.disk_bytes(),
            ended: Nanos(reads.len() as u64 * 1_000),
            reads: reads.iter().enumerate().map(read).collect(),
            files: files.collect(),
            ..Profile::default()
        };
        profile.digests = profile.first_access().into_iter().map(|lba| BlockDigest::of(block(lba))).collect();
        profile
    }

    /// Hot files whose chunks have all come when the image is open.
    fn come(&self, image: &Image) -> Vec<usize> {
        let has_come = |runs: &[BlockRange]| {
            runs.iter().flat_map(|run| run.blocks()).all(|lba| image.hot_place(lba).unwrap().chunk < COME)
        };
        self.hot().filter(|(_, runs)| has_come(runs)).map(|(file, _)| *file).collect()
    }
}

fn runs_of(places: &BTreeMap<(u64, u64), u64>, inode: u64) -> Vec<BlockRange> {
    let mut runs: Vec<BlockRange> = Vec::new();
    for place in places.range((inode, 0)..(inode + 1, 0)).map(|(_, place)| *place) {
        match runs.last_mut() {
            Some(run) if run.start.0 + run.count == place => run.count += 1,
            _ => runs.push(BlockRange::new(Lba(place), 1)),
        }
    }
    runs
}

/// The gate of what the stream brings behind the chunks of which some have come.
const STREAM: usize = 0;
/// The gate of what lies in the cold region.
const COLD: usize = 1;

/// How files are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Through {
    /// The mounted file system, whose caches are warmed.
    FileSystem,
    /// The disk, whose page cache is filled.
    Disk,
}

/// A sample that is served, with its gates closed to the stream.
struct Shown {
    // Dropped in this order.
    _opens: OpenAtEnd,
    mounted: Option<MountedFs>,
    served: ServedImage,
    gates: Arc<Gates>,
    places: BTreeMap<usize, Vec<BlockRange>>,
    _folders: [tempfile::TempDir; 2],
}

impl Shown {
    fn new(sample: &Sample, through: Through, tripwires: bool) -> Self {
        let store = FileStore::open(sample.image()).unwrap();
        let image = Image::open(Arc::new(FileStore::open(sample.image()).unwrap())).unwrap();
        let chunks = image.hot_chunk_count();
        assert!(chunks > 3 * COME, "{chunks} chunks");
        let (held, last) = (image.hot_chunk(2 * COME).1, image.hot_chunk(chunks - 1).1);
        let stream = ByteRange::new(held.offset, last.end() - held.offset);
        let gates = Gates::new(store, &[stream, image.superblock().cold.range]);
        gates.open(COLD);
        let opens = gates.open_at_end();
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let prefetching = if through == Through::Disk { Prefetching::Push } else { Prefetching::Hold };
        // One request of the stream is held up, and its other threads go on deciding.
        // Tripwires are as close together on the fastest medium as on a slow one.
        let prefetch = PrefetchConfig {
            most_under_way: 1,
            tripwires_apart: Nanos::ZERO,
            max_request_bytes: 64 << 10,
            ..PrefetchConfig::default()
        };
        let config = ServeConfig { prefetching, tripwires, prefetch, ..ServeConfig::default() };
        let store: Arc<dyn Store> = gates.clone();
        let served = ServedImage::start(store, folders[0].path(), &config, None).unwrap();
        let options = MountFsOptions { inode_readahead_blocks: Some(1), ..MountFsOptions::default() };
        let mounted =
            (through == Through::FileSystem).then(|| served.mount_fs(folders[1].path(), &options).unwrap());
        let places = sample.places.iter().cloned().collect();
        Self { _opens: opens, mounted, served, gates, places, _folders: folders }
    }

    /// Something that reads a file as a program does, from any thread.
    fn read(&self, file: usize) -> impl FnOnce() -> Vec<u8> + Send + 'static {
        let path = match &self.mounted {
            Some(mounted) => mounted.target().join(name(file)),
            None => self.served.session().mount_point().join("disk.img"),
        };
        let runs = self.mounted.is_none().then(|| self.places[&file].clone());
        move || match runs {
            None => fs::read(path).unwrap(),
            Some(runs) => {
                let disk = File::open(path).unwrap();
                let piece = |run: &BlockRange| {
                    let mut bytes = vec![0; (run.count * BLOCK_BYTES) as usize];
                    disk.read_exact_at(&mut bytes, run.start.byte_offset()).unwrap();
                    bytes
                };
                runs.iter().flat_map(piece).collect()
            }
        }
    }

    /// Reads a file that nothing holds up.
    fn check(&self, file: usize) {
        let (sender, read) = mpsc::channel();
        let reader = self.read(file);
        std::thread::spawn(move || sender.send(reader()));
        let bytes = read.recv_timeout(PATIENCE).expect("no read waits for the medium");
        assert!(bytes == content(file), "{}", name(file));
    }

    /// Waits until the stream is throttled, or is not.
    fn comes_to(&self, throttled: bool) {
        self.wait_until("the stream decides", |shown| {
            shown.served.disk().wake();
            shown.served.disk().is_throttled() == throttled
        });
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !condition(self) {
            let reader = self.served.disk();
            let known = || format!("{:?}, {:?}", reader.tripwire_count(), reader.stats());
            assert!(began.elapsed() < PATIENCE, "{what}: {}", known());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A thread reads cold files, and while it waits for the last of them another thread reads hot ones.
fn use_is_seen(through: Through) {
    let sample = Sample::new();
    let shown = Shown::new(&sample, through, true);
    shown.wait_until("tripwires", |shown| shown.served.disk().tripwire_count().placed >= 4);
    shown.served.disk().wait_until(|prefetch| prefetch.has_arrived(COME - 1));
    let cold = sample.cold();
    [5, 20, 35].into_iter().for_each(|number| shown.check(cold[number]));
    shown.gates.shut(COLD);
    let waits = std::thread::spawn(shown.read(cold[50]));
    shown.wait_until("a read waits", |shown| shown.gates.waiting(COLD) > 0);
    // While a read waits no time passes for the policy: the stream is throttled until its chunks are used.
    shown.comes_to(true);
    let before = shown.served.disk().tripwire_count().used;
    let hot = sample.come(shown.served.disk().image());
    assert!(hot.len() >= 6, "{hot:?}");
    hot.iter().for_each(|file| shown.check(*file));
    shown.comes_to(false);
    let count = shown.served.disk().tripwire_count();
    assert!(count.used > before, "{count:?}");
    [STREAM, COLD].into_iter().for_each(|gate| shown.gates.open(gate));
    assert!(waits.join().unwrap() == content(cold[50]));
    // All of it, marked or not.
    sample.places.iter().for_each(|(file, _)| shown.check(*file));
}

/// Without tripwires the same use is not seen, and the stream is never throttled.
fn use_is_not_seen(through: Through) {
    let sample = Sample::new();
    let shown = Shown::new(&sample, through, false);
    shown.served.disk().wait_until(|prefetch| prefetch.has_arrived(COME - 1));
    let cold = sample.cold();
    for number in [5, 20, 35, 50] {
        shown.check(cold[number]);
        shown.served.disk().wake();
        assert!(!shown.served.disk().is_throttled());
    }
    assert_eq!(shown.served.disk().tripwire_count().placed, 0);
}

const TOOLS: [&str; 2] = ["mkfs.ext4", "debugfs"];

/// Pages that the kernel has dropped come back by whole chunks: nothing reads ahead of an optimized disk.
#[test]
fn dropped_pages_are_not_read_one_by_one() {
    if !machine_has(&TOOLS) {
        return;
    }
    let sample = Sample::new();
    let shown = Shown::new(&sample, Through::Disk, false);
    shown.gates.open(STREAM);
    let files: Vec<usize> = sample.hot().map(|(file, _)| *file).collect();
    let read = |pages: bool| {
        let disk = File::open(shown.served.session().mount_point().join("disk.img")).unwrap();
        let before = shown.served.disk().stats().demand_requests;
        for file in &files {
            let runs = shown.places[file].iter();
            let blocks: Vec<Lba> = runs.flat_map(|run| run.blocks()).collect();
            let mut bytes = vec![0; FILE_BYTES];
            for (lba, page) in blocks.iter().zip(bytes.chunks_mut(BLOCK_BYTES as usize)) {
                disk.read_exact_at(page, lba.byte_offset()).unwrap();
            }
            assert!(bytes == content(*file), "{}", name(*file));
        }
        if pages {
            rustix::fs::fadvise(&disk, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        shown.served.disk().stats().demand_requests - before
    };
    read(true);
    let (again, pages) = (read(false), files.len() * FILE_BYTES / BLOCK_BYTES as usize);
    let chunks = u64::from(shown.served.disk().image().hot_chunk_count());
    assert!(again <= 2 * chunks, "{again} reads of {pages} pages in {chunks} chunks");
}

#[test]
fn who_uses_a_warmed_file_system_is_seen() {
    if machine_has(&TOOLS) {
        use_is_seen(Through::FileSystem);
        use_is_not_seen(Through::FileSystem);
    }
}

#[test]
fn who_uses_a_pushed_disk_is_seen() {
    if machine_has(&TOOLS) {
        use_is_seen(Through::Disk);
        use_is_not_seen(Through::Disk);
    }
}
