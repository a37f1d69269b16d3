//! A server dies; another one goes on with its session; waiting readers get the answer.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use hs_fuse::{Disk, HeldSession, Negotiated, Reply, Session, SessionOptions};
use hs_linux::mounts::MountTable;
use hs_testing::Test;
use hs_testing::noise;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::MemoryDisk;

pub(crate) const TESTS: &[Test] = &[
    ("readers_wait_for_the_next_server", readers_wait_for_the_next_server),
    (
        "a_session_is_seen_when_the_next_server_can_go_on_with_it",
        a_session_is_seen_when_the_next_server_can_go_on_with_it,
    ),
    ("reads_that_may_have_crashed_servers_fail", reads_that_may_have_crashed_servers_fail),
    ("reads_that_cannot_be_resent_fail", reads_that_cannot_be_resent_fail),
    ("a_push_that_waits_for_a_read_lets_it_fail", a_push_that_waits_for_a_read_lets_it_fail),
    ("a_session_that_was_just_shown_is_gone_on_with", a_session_that_was_just_shown_is_gone_on_with),
    (
        "what_a_server_takes_beside_the_next_one_is_asked_for",
        what_a_server_takes_beside_the_next_one_is_asked_for,
    ),
];

/// The first argument that makes this program the server that dies.
pub(crate) const VICTIM: &str = "__resume_victim";
/// What stands before its directory where it dies earlier: before it shows the mount, or right after.
const PREPARED: &str = "prepared:";
const SHOWN: &str = "shown:";
/// The same where it acts as on a kernel that cannot resend.
const OLD: &str = "old:";
/// The same where it then pushes what it was asked for.
const PUSHING: &str = "pushing:";

const DISK_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
const READERS: usize = 4;
const MAXIMUM_DESCRIPTORS: usize = 8;

fn options() -> SessionOptions {
    SessionOptions { threads: 2, direct_io: true, ..Default::default() }
}

/// As on a kernel before Linux 6.9.
fn options_of_old() -> SessionOptions {
    SessionOptions { resend: false, ..options() }
}

/// Pushes go into the page cache.
fn options_of_pushing() -> SessionOptions {
    SessionOptions { direct_io: false, ..options_of_old() }
}

/// A disk that takes reads and never answers them.
struct Silent(Sender<Reply>);

impl Disk for Silent {
    fn bytes(&self) -> u64 {
        DISK_BYTES as u64
    }

    fn read(&self, _offset: u64, _len: u32, reply: Reply) {
        self.0.send(reply).unwrap();
    }
}

/// Mounts, hands everything a supervisor needs over standard input (a socket), says for every read that
/// it was taken, and waits to be killed.
pub(crate) fn victim(directory: &OsStr) -> ! {
    let (sender, taken) = unbounded();
    let said = directory.to_str().expect("a path that is text");
    let word = [PREPARED, SHOWN, OLD, PUSHING].into_iter().find(|word| said.starts_with(word));
    let directory = Path::new(&said[word.map_or(0, str::len)..]);
    let options = match word {
        Some(OLD) => options_of_old(),
        Some(PUSHING) => options_of_pushing(),
        _ => options(),
    };
    let mut session = Session::prepare(directory, Arc::new(Silent(sender)), options).unwrap();
    let early = word.filter(|word| [PREPARED, SHOWN].contains(word));
    if early.is_none() {
        session.show().unwrap();
    }
    // SAFETY: descriptor 0 is the socket this program was started with, and nothing else uses it.
    let socket = unsafe { BorrowedFd::borrow_raw(0) };
    let fds: Vec<_> = session.descriptors().chain(session.detached()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAXIMUM_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let agreed = session.negotiated().as_bytes();
    sendmsg(socket, &[IoSlice::new(agreed)], &mut control, SendFlags::empty()).unwrap();
    if early == Some(SHOWN) {
        session.show().unwrap();
        rustix::io::write(socket, b"!").unwrap();
    }
    // Kept, because a dropped Reply is an answer.
    let mut unanswered = Vec::new();
    loop {
        unanswered.push(taken.recv().unwrap());
        rustix::io::write(socket, b"!").unwrap();
        if word == Some(PUSHING) {
            let pushed = session.pusher().push(0, &[&[0; PAGE_BYTES]]);
            panic!("nothing answers the read: {pushed:?}");
        }
    }
}

/// What the supervisor gets.
fn receive(socket: &UnixStream) -> (Negotiated, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAXIMUM_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut agreed = [0; size_of::<Negotiated>()];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut agreed)], &mut control, flags).unwrap();
    assert_eq!(received.bytes, agreed.len());
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let fds = fds.collect();
    (Negotiated::read_from_bytes(&agreed).unwrap(), fds)
}

/// Starts the server that dies, in `target`, and gives the socket to it.
fn start_victim(early: &str, target: &Path) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let victim = Command::new("/proc/self/exe")
        .arg(VICTIM)
        .arg(format!("{early}{}", target.display()))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    (victim, ours)
}

/// What a server has left that died before it had said that its mount is shown.
fn early_death(early: &str, target: &Path) -> HeldSession {
    let (mut victim, ours) = start_victim(early, target);
    let (negotiated, mut descriptors) = receive(&ours);
    if early == SHOWN {
        std::io::Read::read_exact(&mut &ours, &mut [0]).unwrap();
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let detached = descriptors.pop();
    assert!(!descriptors.is_empty());
    HeldSession { detached, ..held(negotiated, descriptors, target) }
}

/// What a supervisor has held of a server whose mount is shown.
fn held(negotiated: Negotiated, descriptors: Vec<OwnedFd>, target: &Path) -> HeldSession {
    HeldSession {
        descriptors,
        detached: None,
        negotiated,
        mount_point: target.into(),
        refuse_waiting: false,
        replay: None,
    }
}

/// A server that died after its mount was seen and before its supervisor held it cut off the first readers.
fn a_session_is_seen_when_the_next_server_can_go_on_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().canonicalize().unwrap();
    let held = early_death(PREPARED, &target);
    assert!(!MountTable::open().unwrap().has(&target).unwrap(), "no reader has seen it");
    go_on(held, &target);
}

fn a_session_that_was_just_shown_is_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().canonicalize().unwrap();
    let held = early_death(SHOWN, &target);
    assert!(MountTable::open().unwrap().has(&target).unwrap());
    go_on(held, &target);
}

/// The next server shows the disk, once, and takes it down.
fn go_on(held: HeldSession, target: &Path) {
    let content = noise(DISK_BYTES, 5);
    let session = Session::resume(held, MemoryDisk::new(content.clone()), options()).unwrap();
    assert!(session.detached().is_none());
    assert!(std::fs::read(target.join("disk.img")).unwrap() == content);
    session.unmount().unwrap();
    assert!(!MountTable::open().unwrap().has(target).unwrap(), "it was mounted once");
}

fn readers_wait_for_the_next_server() {
    resume_with_readers("", options(), None);
}

fn reads_that_may_have_crashed_servers_fail() {
    resume_with_readers("", options(), Some(libc::EIO));
}

/// They would hang: the kernel asks no later server for them.
fn reads_that_cannot_be_resent_fail() {
    resume_with_readers(OLD, options_of_old(), Some(libc::ECONNABORTED));
}

/// It waits for the page of a read that was taken, and no signal ends that.
fn a_push_that_waits_for_a_read_lets_it_fail() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().canonicalize().unwrap();
    let (mut victim, ours) = start_victim(PUSHING, &target);
    let (negotiated, descriptors) = receive(&ours);
    let file = File::open(target.join("disk.img")).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(move || file.read_exact_at(&mut [0; PAGE_BYTES], 0));
        std::io::Read::read_exact(&mut &ours, &mut [0]).unwrap();
        // For longer than for memory or a lock.
        wait_until("the push waits", || {
            (0..4).all(|_| {
                thread::sleep(Duration::from_millis(5));
                pushes_uninterruptibly(&victim)
            })
        });
        assert!(victim.try_wait().unwrap().is_none(), "the push waits");
        victim.kill().unwrap();
        let held = held(negotiated, descriptors, &target);
        let disk = MemoryDisk::new(noise(DISK_BYTES, 5));
        let session = Session::resume(held, disk, options_of_pushing()).unwrap();
        // What was read ahead the kernel asks for again.
        wait_until("the read ends", || reader.is_finished());
        let _ = reader.join().unwrap();
        victim.wait().unwrap();
        session.unmount().unwrap();
    });
}

/// Where the next server begins before the one before it is dead, both take requests.
fn what_a_server_takes_beside_the_next_one_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().canonicalize().unwrap();
    let (mut victim, ours) = start_victim("", &target);
    let (negotiated, descriptors) = receive(&ours);
    let held = held(negotiated, descriptors, &target);
    if !held.can_be_asked_again() {
        hs_testing::skip("this kernel cannot resend requests (Linux 6.9 can)");
        victim.kill().unwrap();
        victim.wait().unwrap();
        return;
    }
    let content = noise(DISK_BYTES, 5);
    let session = Session::resume(held, MemoryDisk::new(content.clone()), options()).unwrap();
    ours.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        let mut readers = Vec::new();
        wait_until("the victim takes a read", || {
            let place = readers.len() % (DISK_BYTES / PAGE_BYTES) * PAGE_BYTES;
            let file = File::open(target.join("disk.img")).unwrap();
            readers.push(scope.spawn(move || {
                let mut bytes = [0; PAGE_BYTES];
                file.read_exact_at(&mut bytes, place as u64).map(|()| (place, bytes))
            }));
            std::io::Read::read_exact(&mut &ours, &mut [0]).is_ok()
        });
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert!(!readers.iter().all(thread::ScopedJoinHandle::is_finished), "what it has taken waits");
        session.ask_again().unwrap();
        for reader in readers {
            let (place, bytes) = reader.join().unwrap().expect("a reader waits, and then goes on");
            assert!(bytes == content[place..][..PAGE_BYTES], "byte {place}");
        }
    });
    session.unmount().unwrap();
}

/// Ends this program when it never is so: a thread that hangs here is joined by no test.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        if Instant::now() > end {
            eprintln!("not within two minutes: {what}");
            std::process::abort();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the thread that pushes is in the state D of proc_pid_stat(5).
fn pushes_uninterruptibly(process: &Child) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains("(hs-pushing) D")
    })
}

/// The error is that of reads that the dead server had taken; none, and the next server answers them.
fn resume_with_readers(victim: &str, options: SessionOptions, error: Option<i32>) {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().canonicalize().unwrap();
    let (mut victim, ours) = start_victim(victim, &target);
    let (negotiated, descriptors) = receive(&ours);
    assert_eq!(descriptors.len(), if negotiated.has_resend() { options.threads } else { 1 });
    if options.resend && !negotiated.has_resend() {
        hs_testing::skip("this kernel cannot resend requests (Linux 6.9 can)");
        victim.kill().unwrap();
        victim.wait().unwrap();
        return;
    }
    let content = noise(DISK_BYTES, 5);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let file = File::open(target.join("disk.img")).unwrap();
                scope.spawn(move || {
                    let mut bytes = [0; 4096];
                    file.read_exact_at(&mut bytes, reader as u64 * 8192).map(|()| bytes)
                })
            })
            .collect();
        // All reads are taken before the server dies.
        let mut taken = [0; READERS];
        std::io::Read::read_exact(&mut &ours, &mut taken).unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        let disk = MemoryDisk::new(content.clone());
        let refuse_waiting = error == Some(libc::EIO);
        let held = HeldSession { refuse_waiting, ..held(negotiated, descriptors, &target) };
        let session = Session::resume(held, disk, options).unwrap();
        for (reader, handle) in readers.into_iter().enumerate() {
            let read = handle.join().unwrap();
            if error.is_some() {
                assert_eq!(read.expect_err("what waited fails").raw_os_error(), error);
                continue;
            }
            let bytes = read.expect("a reader waits, and then goes on");
            assert!(bytes == content[reader * 8192..][..4096], "reader {reader}");
        }
        assert!(std::fs::read(target.join("disk.img")).unwrap() == content, "new reads are served as well");
        session.unmount().unwrap();
    });
}
