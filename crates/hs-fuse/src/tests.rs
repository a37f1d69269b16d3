//! The front end against a real kernel.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded, unbounded};
use hs_linux::LinuxError;
use hs_serve::FileAccess;
use hs_units::Prng;

use super::mount::Mounter;
use super::{Disk, PushError, Reply, Session, SessionOptions};
use crate::FuseError;

const DISK_BYTES: usize = 5 * (1 << 20) + 1234;

/// True when this machine allows mounts. Otherwise the test is skipped and says so; where CI runs it, it
/// fails.
fn can_mount() -> bool {
    if PathBuf::from("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
        return true;
    }
    hs_testing::skip("mounting needs root and /dev/fuse");
    false
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Prng::new(7).fill(&mut noise);
    noise
}

/// What a [`TestDisk`] does with a read.
enum Behaviour {
    /// Answers in pieces of so many bytes.
    Pieces(usize),
    /// Gives the read to another thread.
    Later(Sender<(u64, u32, Reply)>),
    /// Answers block 1 with an error, drops the reply for 2, answers 3 too shortly, panics at 4.
    Faulty,
}

struct TestDisk {
    content: Vec<u8>,
    behaviour: Behaviour,
    reads: AtomicUsize,
    /// The longest read, in bytes.
    longest: AtomicUsize,
}

impl TestDisk {
    fn new(behaviour: Behaviour) -> Arc<Self> {
        let (reads, longest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { content: noise(DISK_BYTES), behaviour, reads, longest })
    }
}

impl Disk for TestDisk {
    fn bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.longest.fetch_max(len as usize, Ordering::SeqCst);
        assert_eq!(reply.len(), len);
        let bytes = &self.content[offset as usize..][..len as usize];
        match &self.behaviour {
            Behaviour::Pieces(size) => reply.data(&bytes.chunks(*size).collect::<Vec<_>>()),
            Behaviour::Later(sender) => sender.send((offset, len, reply)).unwrap(),
            Behaviour::Faulty => match offset / 4096 {
                1 => reply.error(libc::ENOMEDIUM),
                2 => drop(reply),
                3 => reply.data(&[&bytes[1..]]),
                4 => panic!("a mistake in the disk, made on purpose by this test"),
                _ => reply.data(&[bytes]),
            },
        }
    }
}

/// A mounted disk and what a test wants to look at.
struct Mounted {
    session: Session,
    disk: Arc<TestDisk>,
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new(behaviour: Behaviour, options: SessionOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let disk = TestDisk::new(behaviour);
        let session = Session::mount(directory.path(), disk.clone(), options).unwrap();
        Self { session, disk, directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("disk.img")
    }

    fn open(&self, flags: i32) -> File {
        File::options().read(true).custom_flags(flags).open(self.file()).unwrap()
    }
}

/// Memory that `O_DIRECT` accepts: page aligned.
fn aligned(bytes: usize) -> (Vec<u8>, usize) {
    let memory = vec![0; bytes + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    (memory, skip)
}

#[test]
fn the_file_system_is_one_read_only_file() {
    if !can_mount() {
        return;
    }
    let options = SessionOptions { mtime_s: 1_234_567, ..Default::default() };
    let mounted = Mounted::new(Behaviour::Pieces(1 << 20), options);
    let names: Vec<_> =
        fs::read_dir(mounted.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk.img"]);
    let metadata = fs::metadata(mounted.file()).unwrap();
    assert_eq!((metadata.len(), metadata.mode()), (DISK_BYTES as u64, libc::S_IFREG | 0o400));
    assert_eq!((metadata.mtime(), metadata.uid()), (1_234_567, 0));
    assert_eq!(fs::metadata(mounted.directory.path()).unwrap().mode(), libc::S_IFDIR | 0o555);
    let missing = fs::metadata(mounted.directory.path().join("other")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let write = File::options().write(true).open(mounted.file()).unwrap_err();
    assert_eq!(write.raw_os_error(), Some(libc::EROFS));
    let made = File::create(mounted.directory.path().join("new")).unwrap_err();
    assert_eq!(made.raw_os_error(), Some(libc::EROFS));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(mounted.directory.path().to_str().unwrap())).unwrap();
    assert!(line.starts_with("headstart "), "{line}");
    for option in [" fuse.headstart ", "ro,", "nosuid", "nodev", "default_permissions", "allow_other"] {
        assert!(line.contains(option), "{option} in {line}");
    }
    assert_eq!(mounted.disk.reads.load(Ordering::SeqCst), 0, "nothing of this reads the disk");
}

#[test]
fn only_those_whom_the_mode_lets_read_the_disk_can() {
    if !can_mount() {
        return;
    }
    const NOBODY: u32 = 65534;
    let read_as_nobody = |access: FileAccess| {
        let mounted =
            Mounted::new(Behaviour::Pieces(1 << 20), SessionOptions { access, ..Default::default() });
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", mounted.file().display())).args(["of=/dev/null", "bs=4096", "count=1"]);
        let ran = dd.uid(NOBODY).gid(NOBODY).output().unwrap();
        let metadata = fs::metadata(mounted.file()).unwrap();
        (ran.status.success(), metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
    };
    let mounter = FileAccess::default();
    assert_eq!(read_as_nobody(mounter), (false, 0, 0, 0o400));
    assert_eq!(read_as_nobody(mounter.owned_by(NOBODY, NOBODY)), (true, NOBODY, NOBODY, 0o400));
    assert_eq!(read_as_nobody(FileAccess { mode: 0o444, ..mounter }), (true, 0, 0, 0o444));
}

#[test]
fn every_way_of_reading_gives_the_same_bytes() {
    if !can_mount() {
        return;
    }
    // The last size makes more pieces than one call to the kernel takes.
    for piece in [1 << 20, 4096, 100_000, 1000] {
        let mounted = Mounted::new(Behaviour::Pieces(piece), SessionOptions::default());
        let content = &mounted.disk.content;
        assert!(fs::read(mounted.file()).unwrap() == *content, "whole, in pieces of {piece}");
        let direct = mounted.open(libc::O_DIRECT);
        let (mut memory, skip) = aligned(2 << 20);
        for (offset, len) in [(0, 4096), (4096, 512), (8192, 1 << 20), (512, 2 << 20), (5 << 20, 4096)] {
            let read = direct.read_at(&mut memory[skip..skip + len], offset as u64).unwrap();
            let expected = &content[offset..(offset + len).min(content.len())];
            assert_eq!(read, expected.len(), "direct read of {len} at {offset}");
            assert!(memory[skip..skip + read] == *expected, "direct read of {len} at {offset}");
        }
        let file = mounted.open(0);
        assert_eq!(file.read_at(&mut [0; 10], DISK_BYTES as u64).unwrap(), 0, "nothing after the end");
        assert_eq!(file.read_at(&mut [0; 10], DISK_BYTES as u64 - 3).unwrap(), 3);
    }
}

#[test]
fn a_read_is_of_the_user_whose_process_reads() {
    const NOBODY: u32 = 65_534;
    if !can_mount() {
        return;
    }
    let (sender, reads) = unbounded();
    let mounted = Mounted::new(Behaviour::Later(sender), SessionOptions::default());
    let mut reader = Command::new("cat")
        .stdin(mounted.open(0))
        .stdout(Stdio::null())
        .uid(NOBODY)
        .spawn()
        .expect("cat starts");
    let (mut answered, mut users) = (0, BTreeSet::new());
    while answered < DISK_BYTES {
        let (offset, len, reply) = reads.recv_timeout(Duration::from_secs(120)).expect("the file is read");
        users.insert(reply.uid());
        reply.data(&[&mounted.disk.content[offset as usize..][..len as usize]]);
        answered += len as usize;
    }
    assert!(reader.wait().expect("it ends").success());
    assert!(users.contains(&NOBODY), "{users:?}");
}

#[test]
fn direct_mode_asks_the_disk_for_exactly_what_is_read() {
    if !can_mount() {
        return;
    }
    let options = SessionOptions { direct_io: true, ..Default::default() };
    let mounted = Mounted::new(Behaviour::Pieces(1 << 20), options);
    let file = mounted.open(0);
    let mut prng = Prng::new(3);
    for round in 1..=100 {
        let offset = prng.below(DISK_BYTES as u64 - 70_000) as usize;
        let mut bytes = vec![0; 1 + prng.below(65_536) as usize];
        file.read_exact_at(&mut bytes, offset as u64).unwrap();
        assert!(bytes == mounted.disk.content[offset..offset + bytes.len()], "odd read at {offset}");
        assert_eq!(mounted.disk.reads.load(Ordering::SeqCst), round, "one request a read, nothing cached");
    }
}

#[test]
fn a_mapped_file_shows_the_same_bytes() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(Behaviour::Pieces(4096), SessionOptions::default());
    let file = mounted.open(0);
    // SAFETY: a fresh mapping at an address the kernel chooses, of a file that never changes, unmapped
    // after its last use.
    unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        let address =
            mmap(std::ptr::null_mut(), DISK_BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap();
        let mapped = std::slice::from_raw_parts(address.cast::<u8>(), DISK_BYTES);
        for page in (0..DISK_BYTES / 4096).rev().step_by(7) {
            assert!(mapped[page * 4096..][..4096] == mounted.disk.content[page * 4096..][..4096]);
        }
        munmap(address, DISK_BYTES).unwrap();
    }
}

#[test]
fn parallel_readers_and_answers_out_of_order() {
    if !can_mount() {
        return;
    }
    const READERS: usize = 8;
    let (sender, taken) = unbounded();
    let options = SessionOptions { direct_io: true, threads: 3, ..Default::default() };
    let mounted = Mounted::new(Behaviour::Later(sender), options);
    let disk = Arc::clone(&mounted.disk);
    // Collects one request of every reader before it answers any, the last one first: that can only
    // work when requests overlap and answers need no order.
    let answerer = thread::spawn(move || {
        for _ in 0..50 {
            let mut batch: Vec<(u64, u32, Reply)> = taken.iter().take(READERS).collect();
            while let Some((offset, len, reply)) = batch.pop() {
                reply.data(&[&disk.content[offset as usize..][..len as usize]]);
            }
        }
    });
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (file, content) = (mounted.open(0), &mounted.disk.content);
            scope.spawn(move || {
                let mut prng = Prng::new(reader as u64);
                for _ in 0..50 {
                    let offset = prng.below(DISK_BYTES as u64 - 9000) as usize;
                    let mut bytes = [0; 9000];
                    file.read_exact_at(&mut bytes, offset as u64).unwrap();
                    assert!(bytes == content[offset..offset + 9000]);
                }
            });
        }
    });
    answerer.join().unwrap();
}

#[test]
fn a_failed_read_is_an_error_and_the_next_one_works() {
    if !can_mount() {
        return;
    }
    let options = SessionOptions { direct_io: true, threads: 1, ..Default::default() };
    let mounted = Mounted::new(Behaviour::Faulty, options);
    let file = mounted.open(0);
    let read = |block: u64| file.read_at(&mut [0; 4096], block * 4096);
    for (block, errno) in [(1, libc::ENOMEDIUM), (2, libc::EIO), (3, libc::EIO), (4, libc::EIO)] {
        assert_eq!(read(block).unwrap_err().raw_os_error(), Some(errno), "block {block}");
        assert_eq!(read(0).unwrap(), 4096, "after block {block}");
    }
    let mounted =
        Mounted::new(Behaviour::Faulty, SessionOptions { max_readahead_bytes: 0, ..Default::default() });
    let error = mounted.open(0).read_at(&mut [0; 4096], 2 * 4096).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "through the page cache");
    assert_eq!(fs::metadata(mounted.file()).unwrap().len(), DISK_BYTES as u64);
}

#[test]
fn pushed_bytes_are_read_without_asking() {
    if !can_mount() {
        return;
    }
    for resend in [true, false] {
        // Another process of the machine may drop its caches just then; not five times in a row.
        let is_complete = (0..5).any(|_| reads_after_pushing_everything(resend) == 0);
        assert!(is_complete, "a disk pushed as a whole was asked ({resend})");
    }
}

/// Pushes a whole disk and reads it; returns how often the disk was asked.
fn reads_after_pushing_everything(resend: bool) -> usize {
    let options = SessionOptions { resend, ..SessionOptions::default() };
    let mounted = Mounted::new(Behaviour::Pieces(4096), options);
    let (pusher, content) = (mounted.session.pusher(), &mounted.disk.content);
    fs::metadata(mounted.file()).unwrap();
    for start in (0..DISK_BYTES).step_by(1 << 20) {
        let bytes = &content[start..(start + (1 << 20)).min(DISK_BYTES)];
        pusher.push(start as u64, &bytes.chunks(4096).collect::<Vec<_>>()).unwrap();
    }
    // Twice, because opening the file must not drop its pages either.
    for _ in 0..2 {
        assert!(fs::read(mounted.file()).unwrap() == *content);
    }
    mounted.disk.reads.load(Ordering::SeqCst)
}

#[test]
fn a_push_that_cannot_be_says_why() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(Behaviour::Pieces(4096), SessionOptions::default());
    let pusher = mounted.session.pusher();
    assert_eq!(pusher.push(0, &[&[0; 4096]]), Err(PushError::NotLookedUp));
    let end = DISK_BYTES as u64;
    assert!(matches!(pusher.push(end - 1, &[b"ab"]), Err(PushError::OutOfRange { .. })));
    assert!(matches!(pusher.push(u64::MAX, &[b"ab"]), Err(PushError::OutOfRange { .. })));
    mounted.session.unmount().unwrap();
    assert_eq!(pusher.push(0, &[&[0; 4096]]), Err(PushError::Unmounted));
}

#[test]
fn read_ahead_is_what_was_asked_for() {
    if !can_mount() {
        return;
    }
    for (window_bytes, longest_bytes) in [(0, 4096), (256 << 10, 256 << 10)] {
        let options = SessionOptions { max_readahead_bytes: window_bytes, ..Default::default() };
        let mounted = Mounted::new(Behaviour::Pieces(1 << 20), options);
        let mut file = mounted.open(0);
        let mut page = [0; 4096];
        while file.read(&mut page).unwrap() > 0 {}
        assert_eq!(mounted.disk.longest.load(Ordering::SeqCst), longest_bytes, "window {window_bytes}");
    }
}

#[test]
fn unmounting_ends_reads_that_still_wait() {
    if !can_mount() {
        return;
    }
    let (sender, taken) = unbounded();
    let options = SessionOptions { direct_io: true, ..Default::default() };
    let mounted = Mounted::new(Behaviour::Later(sender), options);
    let file = mounted.open(0);
    let reader = thread::spawn(move || file.read_at(&mut [0; 4096], 0));
    let (_, _, unanswered) = taken.recv().unwrap();
    mounted.session.unmount().unwrap();
    assert!(reader.join().unwrap().is_err());
    mounted.session.wait();
    // Too late, and harmless.
    unanswered.data(&[&[0; 4096]]);
    assert_eq!(fs::read_dir(mounted.directory.path()).unwrap().count(), 0, "an empty directory again");
}

#[test]
fn another_program_may_unmount() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(Behaviour::Pieces(4096), SessionOptions::default());
    // What another test is just starting has all files of this process, those of the mount among them, and
    // keeps it busy.
    let end = Instant::now() + Duration::from_secs(120);
    let unmount = || rustix::mount::unmount(mounted.directory.path(), rustix::mount::UnmountFlags::empty());
    while let Err(error) = unmount() {
        assert!(error == rustix::io::Errno::BUSY && Instant::now() < end, "{error}");
        thread::sleep(Duration::from_millis(5));
    }
    mounted.session.wait();
    mounted.session.unmount().unwrap();
}

#[test]
fn a_mount_point_is_used_once() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new(Behaviour::Pieces(4096), SessionOptions::default());
    let again = Session::mount(mounted.directory.path(), mounted.disk.clone(), SessionOptions::default());
    let message = again.err().unwrap().to_string();
    assert!(message.contains("already a mount point (fuse.headstart)"), "{message}");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let disk = TestDisk::new(Behaviour::Faulty);
    let good = SessionOptions::default();
    for options in [
        SessionOptions { threads: 0, ..good.clone() },
        SessionOptions { file_name: "a/b".into(), ..good.clone() },
        SessionOptions { file_name: "..".into(), ..good.clone() },
        SessionOptions { max_read_bytes: 5000, ..good.clone() },
        SessionOptions { access: FileAccess { mode: 0o4444, ..good.access }, ..good.clone() },
        SessionOptions { max_read_bytes: 2 << 20, ..good.clone() },
        SessionOptions { max_readahead_bytes: 2 << 20, ..good },
    ] {
        let refused = Session::mount(&PathBuf::from("/nonexistent"), disk.clone(), options);
        assert!(matches!(refused.err(), Some(FuseError::Linux(LinuxError::Option { .. }))));
    }
}

#[test]
fn the_helper_mounts_too() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk = TestDisk::new(Behaviour::Pieces(4096));
    let options = SessionOptions { source_name: "a,b".into(), ..Default::default() };
    let session = Session::mount_with(Mounter::Fusermount, directory.path(), disk.clone(), options);
    match session {
        Ok(session) => {
            assert!(fs::read(directory.path().join("disk.img")).unwrap() == disk.content);
            session.unmount().unwrap();
        }
        Err(FuseError::FusermountMissing) => {
            hs_testing::skip("fusermount3 is not installed (package fuse3)");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn closing_the_file_does_not_wait_for_the_server() {
    if !can_mount() {
        return;
    }
    // The only worker hands a read over that no thread takes, and takes no other request meanwhile.
    let (sender, reads) = bounded(0);
    let options = SessionOptions { threads: 1, direct_io: true, ..Default::default() };
    let mounted = Mounted::new(Behaviour::Later(sender), options);
    if mounted.session.negotiated().kernel_minor < 35 {
        hs_testing::skip("before Linux 5.16 a program that closes a file waits");
        return;
    }
    let (read, closed) = (mounted.open(0), mounted.open(0));
    let reader = thread::spawn(move || read.read_at(&mut [0; 4096], 0).map(|count| (count, read)));
    let end = Instant::now() + Duration::from_secs(120);
    while mounted.disk.reads.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < end, "no thread reads");
        thread::yield_now();
    }
    let (closing, closed_at_last) = unbounded();
    thread::spawn(move || {
        drop(closed);
        closing.send(()).unwrap();
    });
    let waited = closed_at_last.recv_timeout(Duration::from_secs(60)).is_err();
    let (_, len, reply) = reads.recv().unwrap();
    reply.data(&[&mounted.disk.content[..len as usize]]);
    assert_eq!(reader.join().unwrap().unwrap().0, 4096);
    assert!(!waited, "closing waits for an answer");
}
