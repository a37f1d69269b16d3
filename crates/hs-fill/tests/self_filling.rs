//! Files that fill themselves, in one process: what they hold, what they remember, and what they refuse.

#[path = "support/filling.rs"]
mod filling;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use filling::FillingFolder;
use hs_conformance::{Sample, WINDOW};
use hs_engine::{Prefetch, PrefetchConfig, PrefetchRate};
use hs_fill::{
    Attachment, FileTime, FillError, FillOptions, Marker, OpenedFile, SelfFilling, Subject, look_at,
    sidecar_path,
};
use hs_format::WindowRef;
use hs_image::Image;
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_serve::{Prefetching, ServeConfig};
use hs_store::{Count, Counters, Fault, FaultKind, FileStore, Rule, Store};
use hs_units::{ByteRange, Lba, Prng};

const BLOCK: usize = 4096;
/// `cachestat(2)` has one number on every architecture.
const CACHESTAT: libc::c_long = 451;

/// A sample, and where its disk fills a file.
struct Scene {
    sample: Sample,
    folder: FillingFolder,
}

impl Scene {
    fn new(seed: u64) -> Option<Self> {
        let folder = FillingFolder::new()?;
        Some(Self { sample: Sample::new(seed), folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn subject(&self) -> Subject {
        subject(&self.sample.open("cold.hsi"), &self.sample.path("cold.hsi"))
    }

    fn attachment(&self) -> Result<OpenedFile, FillError> {
        open(&self.file(), &self.subject())
    }

    fn refused(&self) -> FillError {
        match self.attachment() {
            Err(error) => error,
            Ok(found) => panic!("{found:?}"),
        }
    }

    /// Fills from `name`, and counts what is asked of it.
    fn fill(&self, name: &str, config: &ServeConfig, hydrate: bool) -> (SelfFilling, Arc<Counters>) {
        let store = Count::new(FileStore::open(self.sample.path(name)).expect("there"));
        let counters = store.counters();
        let subject = subject(&self.sample.open(name), &self.sample.path(name));
        let Ok(OpenedFile::Incomplete(attachment)) = open(&self.file(), &subject) else {
            panic!("it is not complete")
        };
        let filling = SelfFilling::start(Arc::new(store), config, attachment, FillOptions { hydrate });
        (filling.expect("started"), counters)
    }

    fn on_demand(&self) -> (SelfFilling, Arc<Counters>) {
        self.fill("cold.hsi", &off(), false)
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            read(&self.file(), offset, len).expect("it can be read") == self.sample.disk[offset..][..len]
        );
    }
}

/// Other tests start programs, and a child has all locks of this process until it calls `exec`: so a file
/// that is no longer attached may still be locked for a moment.
fn open(path: &Path, subject: &Subject) -> Result<OpenedFile, FillError> {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match Attachment::open(path, subject) {
            Err(FillError::Attached { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2))
            }
            opened => return opened,
        }
    }
}

fn subject(image: &Image, path: &Path) -> Subject {
    let mtime = FileTime { seconds: 1_000_000_000, nanos: 123_456_789 };
    Subject { mtime, ..Subject::of(image, path).expect("looked at") }
}

fn off() -> ServeConfig {
    ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() }
}

fn read(path: &Path, offset: usize, len: usize) -> Result<Vec<u8>, i32> {
    let mut found = vec![0; len];
    let file = File::open(path).expect("opened");
    file.read_exact_at(&mut found, offset as u64)
        .map(|()| found)
        .map_err(|error| error.raw_os_error().expect("one"))
}

/// For what happens in another thread, on machines that may be slow.
fn wait_until(what: &str, mut happens: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !happens() {
        assert!(Instant::now() < end, "{what}: not within two minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the file is complete.
fn wait_complete(filling: &SelfFilling) {
    use rustix::event::{PollFd, PollFlags, poll};
    let ended = filling.ended();
    poll(&mut [PollFd::new(&ended, PollFlags::IN)], None).expect("waited");
    assert!(filling.is_finished());
}

#[test]
fn what_was_filled_is_not_asked_for_again() {
    let Some(scene) = Scene::new(1) else { return };
    let (filling, _) = scene.on_demand();
    scene.check(5 * WINDOW + 100, 3 * WINDOW);
    let filled = filling.progress().filled_bytes;
    assert!((3 * WINDOW as u64..4 * WINDOW as u64).contains(&filled), "{filled}");
    drop(filling);
    let (filling, counters) = scene.on_demand();
    assert_eq!(filling.progress().filled_bytes, filled);
    let before = counters.snapshot().requests;
    scene.check(5 * WINDOW + 100, 3 * WINDOW);
    assert_eq!(counters.snapshot().requests, before);
    scene.check(0, scene.sample.disk.len());
    wait_complete(&filling);
    assert!(!sidecar_path(&scene.file()).exists());
}

/// The kernel asks before it reads what is filled as well, so nothing need be kept back for use to be seen.
#[test]
fn reads_of_what_is_filled_are_counted() {
    let Some(scene) = Scene::new(14) else { return };
    let image = scene.sample.open("hot.hsi");
    let hot_blocks = |chunk: u32| image.hot_extents(chunk).iter().flat_map(|run| run.blocks());
    let chunks = image.hot_chunk_count();
    let (filling, _) = scene.fill("hot.hsi", &ServeConfig::default(), false);
    (0..chunks).flat_map(hot_blocks).for_each(|block| scene.check(block.byte_offset() as usize, BLOCK));
    drop(filling);
    let (filling, _) = scene.fill("hot.hsi", &ServeConfig::default(), false);
    let read: Vec<u32> = (0..chunks).step_by(3).collect();
    for chunk in &read {
        hot_blocks(*chunk).for_each(|block| scene.check(block.byte_offset() as usize + 7, 100));
    }
    // A reader is let go first.
    wait_until("every read is counted", || filling.stats().hot_chunks_used == read.len() as u32);
    assert_eq!(filling.stats().waited, 0);
    // A cold block, wherever there is one, is no use of the hot region.
    let cold = (0..).map(Lba).find(|block| image.hot_place(*block).is_none()).expect("there are");
    scene.check(cold.byte_offset() as usize, BLOCK);
    assert_eq!(filling.stats().hot_chunks_used, read.len() as u32);
}

/// Misses lower the confidence in the prefetch, and reads of what it has filled raise it.
#[test]
fn the_prefetch_is_told_of_reads_of_what_is_filled() {
    let Some(scene) = Scene::new(15) else { return };
    let image = scene.sample.open("hot.hsi");
    // The stream does not end while the test lasts.
    let prefetch = PrefetchConfig {
        first_request_bytes: 8 << 10,
        rate: PrefetchRate::BytesPerS(100),
        ..PrefetchConfig::default()
    };
    let (mut filling, _) = scene.fill("hot.hsi", &ServeConfig { prefetch, ..ServeConfig::default() }, false);
    let driver = Arc::clone(filling.disk());
    let first = image.hot_extents(0)[0].start.byte_offset() as usize;
    let use_it = || scene.check(first, BLOCK);
    // Whether it is there already or not, now it is filled.
    use_it();
    // One block in ten windows: neighbours of a miss are nearer, and no reader is taken for a sequential one.
    let windows = (0..scene.sample.disk.len() / WINDOW).step_by(9);
    let stored = windows.filter(|window| matches!(image.window(*window as u64), Ok(WindowRef::Chunk(_))));
    let is_cold = |at: &usize| image.hot_place(Lba::containing(*at as u64)).is_none();
    let cold =
        stored.filter_map(|window| (window * WINDOW..(window + 1) * WINDOW).step_by(BLOCK).find(is_cold));
    let cold: Vec<usize> = cold.collect();
    let doubts = || driver.is(Prefetch::lacks_confidence);
    assert!(driver.ended().is_none() && cold.len() > 3);
    for missed in &cold[..3] {
        scene.check(*missed, BLOCK);
        assert!(doubts(), "a reader has missed");
        let waited = filling.stats().waited;
        wait_until("use is told", || {
            use_it();
            !doubts()
        });
        // When this later read is answered, the earlier one has been counted.
        scene.check(*missed, BLOCK);
        assert_eq!(filling.stats().waited, waited);
    }
    scene.check(cold[3], BLOCK);
    assert!(doubts(), "a reader has missed");
    // Hydration wants all of the disk: nothing counts against the prefetch any more.
    filling.hydrate().expect("started");
    assert!(driver.ended().is_none() && !doubts());
}

#[test]
fn a_complete_file_is_a_file_like_any_other() {
    let Some(scene) = Scene::new(2) else { return };
    let (filling, counters) = scene.fill("hot.hsi", &ServeConfig::default(), true);
    wait_complete(&filling);
    let digest = scene.subject().disk_digest;
    assert_eq!(look_at(&scene.file()).expect("ours").0, Marker::Complete(digest));
    let waited = filling.stats().waited;
    let before = counters.snapshot().requests;
    assert!(fs::read(scene.file()).expect("read") == scene.sample.disk);
    assert_eq!((filling.stats().waited, counters.snapshot().requests), (waited, before));
    let metadata = fs::metadata(scene.file()).expect("there");
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o400);
    // The disk has 20 windows of zeros in a row.
    assert!(metadata.blocks() * 512 < metadata.len(), "zeros are holes");
    drop(filling);
    assert!(matches!(scene.attachment(), Ok(OpenedFile::Complete)));
    assert!(!sidecar_path(&scene.file()).exists());
}

/// Pages came in one by one, in folios of one page; what the kernel reads ahead comes back in large ones.
#[test]
fn what_came_in_piece_by_piece_leaves_memory_when_the_file_is_complete() {
    let Some(scene) = Scene::new(13) else { return };
    let (mut filling, _) = scene.on_demand();
    let blocks = scene.sample.disk.len() / BLOCK;
    for block in (0..blocks).step_by(2) {
        scene.check(block * BLOCK, BLOCK);
    }
    filling.hydrate().expect("started");
    wait_complete(&filling);
    // The kernel may be busy with a few of them.
    let left = pages_in_memory(&scene.file());
    assert!(left < blocks as u64 / 4, "{left} of {blocks}");
    scene.check(0, scene.sample.disk.len());
}

/// Pages of a file in the page cache: cachestat(2), which is older than what files fill themselves by.
fn pages_in_memory(path: &Path) -> u64 {
    let file = File::open(path).expect("opened");
    // Offset and length; a length of 0 means up to the end.
    let range = [0_u64; 2];
    // Cached, dirty, under write-back, evicted, recently evicted.
    let mut pages = [0_u64; 5];
    // SAFETY: both arrays are laid out as the kernel's structs.
    let asked = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) };
    assert_eq!(asked, 0, "{}", std::io::Error::last_os_error());
    pages[0]
}

#[test]
fn every_file_system_that_asks_can_hold_one() {
    if FillingFolder::new().is_none() {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        let tool = format!("mkfs.{kind}");
        if Command::new(&tool).arg("-V").output().is_err() {
            hs_testing::skip_part(format!("{tool} is missing"));
            continue;
        }
        let Some(folder) = FillingFolder::on(kind) else { continue };
        let scene = Scene { sample: Sample::new(12), folder };
        let (filling, _) = scene.fill("hot.hsi", &ServeConfig::default(), false);
        scene.check(30 * WINDOW + 5, 3 * WINDOW);
        drop(filling);
        let (filling, _) = scene.fill("hot.hsi", &off(), false);
        assert!(filling.progress().filled_bytes >= 3 * WINDOW as u64, "{kind}");
        scene.check(0, scene.sample.disk.len());
        wait_complete(&filling);
        let metadata = fs::metadata(scene.file()).expect("there");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789), "{kind}");
        scene.check(0, scene.sample.disk.len());
    }
}

#[test]
fn the_modification_time_stays_while_the_file_is_filled() {
    let Some(scene) = Scene::new(3) else { return };
    let (_filling, _) = scene.on_demand();
    for window in [3, 1, 17] {
        scene.check(window * WINDOW + 9, 5000);
        let metadata = fs::metadata(scene.file()).expect("there");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 123_456_789));
    }
}

/// All ways to read that are not read(2): a mapping, copy_file_range, O_DIRECT, a read-only bind mount, an
/// overlay.
#[test]
fn every_way_to_read_is_seen() {
    let Some(scene) = Scene::new(4) else { return };
    let (_filling, _) = scene.on_demand();
    let (file, disk) = (File::open(scene.file()).expect("opened"), &scene.sample.disk);
    let (at, len) = (2 * WINDOW, 10 * WINDOW);
    // SAFETY: a new mapping of a file that is there and long enough; it is unmapped below.
    let mapped = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), at as i64)
    };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: the mapping is `len` bytes long, and the file is not written to.
    assert!(unsafe { std::slice::from_raw_parts(mapped.cast::<u8>(), len) } == &disk[at..at + len]);
    // SAFETY: it was mapped above.
    unsafe { libc::munmap(mapped, len) };
    let copy = scene.folder.path().join("copy");
    let copied = File::create(&copy).expect("created");
    let mut from = 20 * WINDOW as u64;
    let count =
        rustix::fs::copy_file_range(&file, Some(&mut from), &copied, None, 2 * WINDOW).expect("copied");
    assert!(fs::read(&copy).expect("read") == disk[20 * WINDOW..][..count]);
    let shell = "dd if=\"$0\" iflag=direct bs=65536 skip=30 count=1 status=none
        mkdir \"$1\" \"$1/lower\" \"$1/upper\" \"$1/work\" \"$1/on\"
        ln \"$0\" \"$1/lower/disk\"
        mount --bind \"$1/lower\" \"$1/on\" && mount -o remount,bind,ro \"$1/on\" || exit 1
        dd if=\"$1/on/disk\" bs=65536 skip=32 count=1 status=none
        umount \"$1/on\"
        mount -t overlay none -o \"lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work\" \"$1/on\" || exit 1
        dd if=\"$1/on/disk\" bs=65536 skip=34 count=1 status=none
        umount \"$1/on\"";
    let own = scene.folder.path().join("mounts");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", shell])
        .args([scene.file(), own])
        .output()
        .expect("unshare starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected: Vec<u8> =
        [30, 32, 34].iter().flat_map(|window| &disk[window * WINDOW..][..WINDOW]).copied().collect();
    assert!(output.stdout == expected, "{} bytes", output.stdout.len());
}

#[test]
fn a_damaged_record_costs_time_and_no_bytes() {
    let Some(scene) = Scene::new(5) else { return };
    let place = sidecar_path(&scene.file());
    let mut prng = Prng::new(50);
    for round in 0..6 {
        let (filling, _) = scene.on_demand();
        scene.check(0, 20 * WINDOW);
        drop(filling);
        let mut bytes = fs::read(&place).expect("there");
        match round {
            0 => bytes.truncate(4100),
            1 => bytes.clear(),
            2 => bytes[4096 + 17] ^= 0xff,
            _ => {
                let at = prng.below(4096) as usize;
                bytes[at] ^= 1;
            }
        }
        fs::write(&place, bytes).expect("written");
        let (filling, _) = scene.on_demand();
        assert_eq!(filling.progress().filled_bytes, 0, "round {round}");
        scene.check(0, 30 * WINDOW);
    }
    // One that is of another file, as a copy has it.
    let before = fs::read(&place).expect("there");
    fs::remove_file(scene.file()).expect("removed");
    drop(scene.on_demand());
    fs::write(&place, before).expect("written");
    let (filling, _) = scene.on_demand();
    assert_eq!(filling.progress().filled_bytes, 0);
    scene.check(0, scene.sample.disk.len());
    wait_complete(&filling);
}

#[test]
fn a_bad_place_fails_alone_and_leaves_the_file_incomplete() {
    let Some(scene) = Scene::new(6) else { return };
    let image = scene.sample.open("cold.hsi");
    let WindowRef::Chunk(chunk) = image.window(5).expect("whole") else { panic!("it is stored") };
    let place: ByteRange = image.cold_range(&chunk);
    let store = FileStore::open(scene.sample.path("cold.hsi")).expect("there");
    let faulty: Arc<dyn Store> = Arc::new(Fault::new(store, vec![Rule::new(FaultKind::Flip, place)], 60));
    let Ok(OpenedFile::Incomplete(attachment)) = scene.attachment() else { panic!("a new file") };
    let mut filling =
        SelfFilling::start(faulty, &off(), attachment, FillOptions { hydrate: true }).expect("started");
    filling.wait_hydrated();
    let progress = filling.progress();
    assert_eq!(progress.disk_bytes - progress.filled_bytes, WINDOW as u64);
    assert!(!filling.is_finished());
    for (block, expected) in scene.sample.disk.chunks(BLOCK).enumerate() {
        let found = read(&scene.file(), block * BLOCK, BLOCK);
        let is_bad = block * BLOCK / WINDOW == 5;
        assert_eq!(found.as_deref(), if is_bad { Err(&libc::EIO) } else { Ok(expected) }, "block {block}");
    }
    assert!(filling.stats().denied >= 16);
    drop(filling);
    // A whole image completes it.
    let (filling, _) = scene.fill("cold.hsi", &off(), true);
    wait_complete(&filling);
    assert!(fs::read(scene.file()).expect("read") == scene.sample.disk);
}

#[test]
fn what_somebody_writes_stays_and_ends_the_filling() {
    let Some(scene) = Scene::new(7) else { return };
    let (filling, _) = scene.on_demand();
    scene.check(0, WINDOW);
    let writer = OpenOptions::new().write(true).open(scene.file()).expect("root may");
    writer.write_all_at(b"mine", 8 * WINDOW as u64 + 5).expect("written");
    let unfilled = |window: usize| read(&scene.file(), window * WINDOW, BLOCK);
    // The event of the write was queued before the event of this read.
    assert_eq!(unfilled(9), Err(libc::EIO));
    assert_eq!(unfilled(70), Err(libc::EIO));
    let found = read(&scene.file(), 8 * WINDOW, BLOCK).expect("it was filled first");
    let expected = &scene.sample.disk[8 * WINDOW..][..BLOCK];
    assert_eq!((&found[..5], &found[5..9], &found[9..]), (&expected[..5], &b"mine"[..], &expected[9..]));
    assert_eq!(look_at(&scene.file()).expect("ours").0, Marker::Changed);
    drop(filling);
    assert!(matches!(scene.refused(), FillError::Changed { .. }));
}

#[test]
fn a_file_that_was_cut_is_not_made_long_again() {
    let Some(scene) = Scene::new(8) else { return };
    let (_filling, _) = scene.on_demand();
    let writer = OpenOptions::new().write(true).open(scene.file()).expect("root may");
    writer.set_len(40 * WINDOW as u64).expect("cut");
    assert_eq!(read(&scene.file(), 9 * WINDOW, BLOCK), Err(libc::EIO));
    assert_eq!(fs::metadata(scene.file()).expect("there").len(), 40 * WINDOW as u64);
    assert_eq!(look_at(&scene.file()).expect("ours").0, Marker::Changed);
}

#[test]
fn files_that_must_not_be_filled_are_refused() {
    let Some(scene) = Scene::new(9) else { return };
    fs::write(scene.file(), "precious").expect("written");
    assert!(matches!(scene.refused(), FillError::Foreign { .. }));
    assert!(!sidecar_path(&scene.file()).exists());
    fs::remove_file(scene.file()).expect("removed");
    fs::write(sidecar_path(&scene.file()), "precious").expect("written");
    assert!(matches!(scene.refused(), FillError::Foreign { path } if path == sidecar_path(&scene.file())));
    assert_eq!(fs::read(sidecar_path(&scene.file())).expect("read"), b"precious");
    fs::remove_file(sidecar_path(&scene.file())).expect("removed");
    let (filling, _) = scene.on_demand();
    let attached = Attachment::open(&scene.file(), &scene.subject());
    assert!(matches!(attached, Err(FillError::Attached { .. })), "{attached:?}");
    let other = Sample::new(90);
    let of_other = subject(&other.open("cold.hsi"), &other.path("cold.hsi"));
    drop(filling);
    assert!(matches!(open(&scene.file(), &of_other), Err(FillError::OtherDisk { .. })));
    let link = scene.folder.path().join("link");
    std::os::unix::fs::symlink(scene.file(), &link).expect("linked");
    assert!(Attachment::open(&link, &scene.subject()).is_err());
    let in_memory = Path::new("/dev/shm").join(format!("headstart-test-{}", std::process::id()));
    if Path::new("/dev/shm").is_dir() {
        let refused = Attachment::open(&in_memory, &scene.subject());
        assert!(matches!(refused, Err(FillError::FileSystem { .. })), "{refused:?}");
        assert!(!in_memory.exists() && !sidecar_path(&in_memory).exists());
    }
}

/// The name of an image is certain; that two of them hold the same disk is their claim.
#[test]
fn another_image_goes_on_only_where_nothing_is_filled() {
    let Some(scene) = Scene::new(12) else { return };
    drop(scene.on_demand());
    drop(scene.fill("hot.hsi", &off(), false));
    let (filling, _) = scene.on_demand();
    scene.check(5 * WINDOW, WINDOW);
    drop(filling);
    let hot = subject(&scene.sample.open("hot.hsi"), &scene.sample.path("hot.hsi"));
    let refused = open(&scene.file(), &hot);
    assert!(matches!(refused, Err(FillError::OtherImage { .. })), "{refused:?}");
    scene.on_demand();
    // Nor does a server with another image than its guard had.
    let Ok(OpenedFile::Incomplete(attachment)) = scene.attachment() else { panic!("it is not complete") };
    let store: Arc<dyn Store> = Arc::new(FileStore::open(scene.sample.path("hot.hsi")).expect("there"));
    let started = SelfFilling::start(store, &off(), attachment, FillOptions { hydrate: true });
    assert!(started.is_err_and(|error| error.to_string().contains("another image")));
}

#[test]
fn a_file_below_a_loop_device_is_refused() {
    let Some(scene) = Scene::new(10) else { return };
    if !Path::new("/dev/loop-control").exists() {
        hs_testing::skip("/dev/loop-control is missing");
        return;
    }
    drop(scene.on_demand());
    let device = LoopDevice::attach(&scene.file(), LoopOptions::default()).expect("attached");
    let error = scene.refused();
    assert!(matches!(error, FillError::UncoveredUse { .. }), "{error}");
    assert!(error.to_string().contains("/dev/loop"), "{error}");
    drop(device);
}

#[test]
fn an_image_of_another_disk_fills_nothing() {
    let Some(scene) = Scene::new(11) else { return };
    let Ok(OpenedFile::Incomplete(attachment)) = scene.attachment() else { panic!("a new file") };
    let other = Sample::new(110);
    let store: Arc<dyn Store> = Arc::new(FileStore::open(other.path("cold.hsi")).expect("there"));
    let started = SelfFilling::start(store, &off(), attachment, FillOptions { hydrate: true });
    let error = started.err().expect("refused").to_string();
    assert!(error.contains("another image"), "{error}");
}
