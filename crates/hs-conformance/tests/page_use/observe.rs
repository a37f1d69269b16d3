//! What is seen of accesses to a mounted file system.

use std::fs::{self, File};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use hs_fuse::{Disk, Reply, Session, SessionOptions};
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_observe::{
    AccessKind, NotObserved, Object, Observed, Observer, Prefetched, TargetDevice, Targets, Usage, account,
};
use hs_testing::{machine_has, noise};
use hs_trace::BlockSet;
use hs_units::{BLOCK_BYTES, BlockRange, Lba, Nanos};
use rustix::fs::Advice;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::scene::{self, Scene};

const FILE_PAGES: u32 = 64;
/// For what happens soon or never.
const PATIENCE: Duration = Duration::from_secs(120);

/// The observer, or a skip that is said aloud; where CI runs it, a failure.
fn started(observer: Result<Observer, NotObserved>) -> Option<Observer> {
    match observer {
        Ok(observer) => Some(observer),
        Err(reason) => {
            hs_testing::skip(reason);
            None
        }
    }
}

fn fill(tree: &Path) {
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        fs::write(tree.join(name), noise(FILE_PAGES as usize * 4096, seed)).unwrap();
    }
    fs::copy("/bin/sh", tree.join("program")).unwrap();
    fs::create_dir(tree.join("directory")).unwrap();
    for number in 0..400 {
        fs::write(tree.join(format!("directory/a name of some length, number {number}")), "").unwrap();
    }
}

fn fs_dev(root: &Path) -> u64 {
    root.metadata().unwrap().dev()
}

fn files_only(scene: &Scene, ignore_own_process: bool) -> Targets {
    Targets { fs_dev: fs_dev(scene.root()), device: None, ignore_own_process }
}

fn now() -> Nanos {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a whole timespec, alive for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Has all pages of the file read by the kernel, which is no access.
fn will_need(path: &Path) -> Prefetched {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::WillNeed).unwrap();
    // mincore says when they are there.
    let bytes = FILE_PAGES as usize * 4096;
    // SAFETY: a fresh mapping that is only asked about and then unmapped, and a byte for each page of it.
    unsafe {
        let address =
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0).unwrap();
        let mut cached = [0_u8; FILE_PAGES as usize];
        // Another process of the machine may drop its caches just then: then it is asked again.
        let end = Instant::now() + PATIENCE;
        loop {
            assert_eq!(libc::mincore(address, bytes, cached.as_mut_ptr()), 0);
            if cached.iter().all(|byte| byte & 1 == 1) {
                break;
            }
            assert!(Instant::now() < end, "the pages of {} do not come", path.display());
            rustix::fs::fadvise(&file, 0, None, Advice::WillNeed).unwrap();
            std::thread::yield_now();
        }
        munmap(address, bytes).unwrap();
    }
    let object = Object::Inode(file.metadata().unwrap().ino());
    Prefetched { object, page: 0, pages: FILE_PAGES, at: now() }
}

fn usage_of(observed: &Observed, part: Prefetched) -> [u64; 4] {
    let Usage { used_bytes, late_bytes, unused_bytes, mapped_only_bytes } = account(observed, &[part]);
    [used_bytes, late_bytes, unused_bytes, mapped_only_bytes].map(|bytes| bytes / BLOCK_BYTES)
}

#[test]
fn reads_and_mappings_are_seen_and_read_ahead_is_not() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new(4096, fill);
    let Some(observer) = started(Observer::start(files_only(&scene, false))) else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| will_need(&scene.path(name)));
    let mut content = vec![0; 10 * 4096];
    File::open(scene.path("a")).unwrap().read_exact_at(&mut content, 0).unwrap();
    let file = File::open(scene.path("b")).unwrap();
    // SAFETY: a fresh mapping of a file that never changes, of which one byte is read, then unmapped.
    unsafe {
        let len = FILE_PAGES as usize * 4096;
        let address =
            mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0).unwrap();
        std::hint::black_box(address.cast::<u8>().add(40 * 4096).read_volatile());
        munmap(address, len).unwrap();
        // A mapping of one page leaves no doubt which one was meant.
        let one =
            mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 4096).unwrap();
        std::hint::black_box(one.cast::<u8>().read_volatile());
        munmap(one, 4096).unwrap();
    }
    let observed = observer.finish().unwrap();
    assert_eq!(observed.lost_events, 0);
    assert!(observed.accesses.is_sorted_by_key(|access| access.at));
    assert_eq!(usage_of(&observed, a), [10, 0, u64::from(FILE_PAGES) - 10, 0]);
    let [used, late, unused, mapped] = usage_of(&observed, b);
    assert_eq!((late, used + unused + mapped), (0, u64::from(FILE_PAGES)));
    assert!((1..=2).contains(&used) && used + mapped <= 17 && used + mapped >= 2, "{used} {mapped}");
    let touches_40 = |access: &&hs_observe::Access| {
        access.object == b.object && (access.page..access.page + u64::from(access.pages)).contains(&40)
    };
    assert!(observed.accesses.iter().any(|access| touches_40(&access)));
    assert_eq!(usage_of(&observed, c), [0, 0, u64::from(FILE_PAGES), 0]);
}

#[test]
fn other_processes_are_seen_and_this_one_is_left_out_when_asked() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "dd"]) {
        return;
    }
    let scene = Scene::new(4096, fill);
    let Some(observer) = started(Observer::start(files_only(&scene, true))) else { return };
    let [a, b] = ["a", "b"].map(|name| will_need(&scene.path(name)));
    let program = scene.inode("program");
    let read = Command::new("dd")
        .arg(format!("if={}", scene.path("a").display()))
        .args(["of=/dev/null", "bs=4096", "skip=3", "count=2"])
        .stderr(Stdio::null())
        .status();
    assert!(read.unwrap().success());
    assert_eq!(fs::read(scene.path("b")).unwrap().len(), FILE_PAGES as usize * 4096);
    assert!(Command::new(scene.path("program")).args(["-c", ":"]).status().unwrap().success());
    let observed = observer.finish().unwrap();
    assert_eq!(observed.lost_events, 0);
    assert_eq!(usage_of(&observed, a), [2, 0, u64::from(FILE_PAGES) - 2, 0]);
    assert_eq!(usage_of(&observed, b), [0, 0, u64::from(FILE_PAGES), 0]);
    let of_program: Vec<_> =
        observed.accesses.iter().filter(|access| access.object == Object::Inode(program)).collect();
    assert!(of_program.iter().any(|access| access.kind == AccessKind::Read && access.page == 0), "its head");
    assert!(of_program.iter().any(|access| access.kind != AccessKind::Read), "its code, by faults");
}

#[test]
fn a_flood_is_seen_whole_or_said_to_be_incomplete() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "dd"]) {
        return;
    }
    let scene = Scene::new(4096, |tree| fs::write(tree.join("big"), noise(8 << 20, 5)).unwrap());
    let Some(observer) = started(Observer::start(files_only(&scene, true))) else { return };
    let read = Command::new("dd")
        .arg(format!("if={}", scene.path("big").display()))
        .args(["of=/dev/null", "bs=64"])
        .stderr(Stdio::null())
        .status();
    assert!(read.unwrap().success());
    let observed = observer.finish().unwrap();
    let seen: u64 = observed
        .accesses
        .iter()
        .filter(|access| access.kind == AccessKind::Read)
        .map(|access| u64::from(access.pages))
        .sum();
    assert!(seen == (8 << 20) / BLOCK_BYTES || observed.lost_events > 0, "{seen} pages");
}

#[test]
fn metadata_is_seen_by_its_marks() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "debugfs"]) {
        return;
    }
    // Another process of the machine may drop its caches just then; not five times in a row.
    assert!((0..5).any(|_| metadata_is_seen()), "used metadata was never seen");
}

fn metadata_is_seen() -> bool {
    let scene = Scene::new(4096, fill);
    // Two inodes of one block: with the second look a page changes its mark.
    let names = [200, 201].map(|number| format!("directory/a name of some length, number {number}"));
    let inode_block = |inode: u64| {
        let answer = &scene.debugfs(&[format!("imap <{inode}>")])[0];
        answer.split("located at block ").nth(1).unwrap().split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let whole = BlockSet::from_iter([BlockRange::new(Lba(0), (64 << 20) / BLOCK_BYTES)]);
    let device = TargetDevice { path: scene.device.path().to_owned(), pages: whole };
    let targets = Targets { fs_dev: fs_dev(scene.root()), device: Some(device), ignore_own_process: true };
    let Some(observer) = started(Observer::start(targets)) else { return true };
    // In steps, because the kernel reads no more than its largest request for each.
    let file = File::open(scene.device.path()).unwrap();
    let step = NonZeroU64::new(128 << 10).unwrap();
    for offset in (0..64 << 20).step_by(128 << 10) {
        rustix::fs::fadvise(&file, offset, Some(step), Advice::WillNeed).unwrap();
    }
    for name in &names {
        assert!(Command::new("stat").arg(scene.path(name)).stdout(Stdio::null()).status().unwrap().success());
    }
    let read = Command::new("dd")
        .arg(format!("if={}", scene.device.path().display()))
        .args(["of=/dev/null", "bs=4096", "skip=16000", "count=3"])
        .stderr(Stdio::null())
        .status();
    assert!(read.unwrap().success());
    let observed = observer.finish().unwrap();
    assert!(observed.sees_metadata);
    let reads: Vec<_> = observed
        .accesses
        .iter()
        .filter(|access| (access.object, access.kind) == (Object::Device, AccessKind::Read))
        .map(|access| (access.page, access.pages))
        .collect();
    assert_eq!(reads.iter().map(|(_, pages)| pages).sum::<u32>(), 3, "{reads:?}");
    assert!(reads.iter().all(|(page, _)| (16_000..16_003).contains(page)), "{reads:?}");
    let mut needed: Vec<u64> = names.iter().map(|name| inode_block(scene.inode(name))).collect();
    needed.extend(scene.places(&[(scene.inode("directory"), 1)]).values());
    // The inode table has 16 inodes a block; this block's were never asked for.
    let other = inode_block(scene.inode(&names[0]) + 160);
    let page = |page| Prefetched { object: Object::Device, page, pages: 1, at: Nanos::ZERO };
    let used = needed.iter().all(|block| usage_of(&observed, page(*block)) == [1, 0, 0, 0]);
    assert_eq!(usage_of(&observed, page(other)), [0, 0, 1, 0], "no program looked at block {other}");
    used
}

/// A disk that keeps one read waiting.
struct HeldDisk {
    content: Vec<u8>,
    held: u64,
    waiting: Mutex<mpsc::Sender<(u64, u32, Reply)>>,
}

impl Disk for HeldDisk {
    fn bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        if (offset..offset + u64::from(len)).contains(&self.held) {
            self.waiting.lock().unwrap().send((offset, len, reply)).unwrap();
        } else {
            reply.data(&[&self.content[offset as usize..][..len as usize]]);
        }
    }
}

#[test]
fn a_read_that_waits_is_late() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4", "debugfs", "dd"]) {
        return;
    }
    let a = Scene::new(4096, fill);
    let inode = a.inode("a");
    let held = a.places(&[(inode, 20)])[&(inode, 19)] * BLOCK_BYTES;
    let directory = tempfile::tempdir().unwrap();
    let content = fs::read(scene::image(directory.path(), 4096, fill)).unwrap();
    drop(a);
    let (sender, waiting) = mpsc::channel();
    let disk = Arc::new(HeldDisk { content, held, waiting: Mutex::new(sender) });
    let (shown, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = SessionOptions { direct_io: true, ..Default::default() };
    let session = Session::mount(shown.path(), disk.clone(), options).unwrap();
    let device = LoopDevice::attach(&shown.path().join("disk.img"), LoopOptions::default()).unwrap();
    let mounted = scene::mount(device.path(), root.path());
    let target = Targets { fs_dev: fs_dev(mounted.target()), device: None, ignore_own_process: true };
    let Some(observer) = started(Observer::start(target)) else { return };
    let file = File::open(mounted.target().join("a")).unwrap();
    // Prefetched, and on its way, when the reader comes.
    rustix::fs::fadvise(&file, 19 * BLOCK_BYTES, NonZeroU64::new(BLOCK_BYTES), Advice::WillNeed).unwrap();
    let (offset, len, reply) = waiting.recv().unwrap();
    let mut reader = Command::new("dd")
        .arg(format!("if={}", mounted.target().join("a").display()))
        .args(["of=/dev/null", "bs=4096", "skip=19", "count=1"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The reader is in its read when the kernel says that it waits for nothing but a page.
    let status = format!("/proc/{}/syscall", reader.id());
    let reading = format!("{} 0x0 ", libc::SYS_read);
    let end = Instant::now() + PATIENCE;
    while !is_waiting(&status, &reading) {
        assert!(Instant::now() < end, "dd does not wait: {:?}", fs::read_to_string(&status));
        std::thread::yield_now();
    }
    let arrived = now();
    reply.data(&[&disk.content[offset as usize..][..len as usize]]);
    assert!(reader.wait().unwrap().success());
    let observed = observer.finish().unwrap();
    assert_eq!(observed.lost_events, 0);
    let part = Prefetched { object: Object::Inode(inode), page: 19, pages: 1, at: arrived };
    let expected = if observed.sees_late_reads { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    assert_eq!(usage_of(&observed, part), expected, "{:?}", observed.accesses);
    drop(file);
    mounted.unmount().unwrap();
    drop(device);
    session.unmount().unwrap();
}

/// Whether the process is blocked in the system call that the line begins with, on descriptor 0 (dd
/// makes its input that).
fn is_waiting(status: &str, reading: &str) -> bool {
    fs::read_to_string(status).is_ok_and(|line| line.starts_with(reading))
}

#[test]
fn nothing_is_left_behind() {
    if !machine_has(&["/dev/fuse", "mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new(4096, fill);
    let abandoned = Observer::start(files_only(&scene, true));
    let Some(abandoned) = started(abandoned) else { return };
    let second = Observer::start(files_only(&scene, true)).unwrap();
    drop(abandoned);
    second.finish().unwrap();
    let nowhere = Targets {
        device: Some(TargetDevice { path: "/nonexistent".into(), pages: BlockSet::new() }),
        ..files_only(&scene, true)
    };
    assert!(Observer::start(nowhere).unwrap_err().to_string().contains("/nonexistent"));
}
