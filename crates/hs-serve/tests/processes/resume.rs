//! A server dies; another one goes on with its session; who waited gets the answer.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{Sender, unbounded};
use hs_serve::fuse::{Disk, Negotiated, Reply, Session, SessionOptions};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::Test;
use crate::support::{MemoryDisk, noise};

pub(crate) const TESTS: &[Test] = &[("readers_wait_for_the_next_server", readers_wait_for_the_next_server)];

/// The first argument that makes this program the server that dies.
pub(crate) const VICTIM: &str = "__resume_victim";

const DISK_BYTES: usize = 1 << 20;
const READERS: usize = 4;
const MAXIMUM_DESCRIPTORS: usize = 8;

fn options() -> SessionOptions {
    SessionOptions { threads: 2, direct_io: true, ..Default::default() }
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
    let session = Session::mount(Path::new(directory), Arc::new(Silent(sender)), options()).unwrap();
    // SAFETY: descriptor 0 is the socket this program was started with, and nothing else uses it.
    let socket = unsafe { BorrowedFd::borrow_raw(0) };
    let fds: Vec<_> = session.descriptors().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAXIMUM_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let agreed = session.negotiated().as_bytes();
    sendmsg(socket, &[IoSlice::new(agreed)], &mut control, SendFlags::empty()).unwrap();
    // Kept, because a dropped Reply is an answer.
    let mut unanswered = Vec::new();
    loop {
        unanswered.push(taken.recv().unwrap());
        rustix::io::write(socket, b"!").unwrap();
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

fn readers_wait_for_the_next_server() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().canonicalize().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut victim = Command::new("/proc/self/exe")
        .arg(VICTIM)
        .arg(&target)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    let (negotiated, descriptors) = receive(&ours);
    if !negotiated.has_resend() {
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
        let session = Session::resume(descriptors, negotiated, &target, disk, options()).unwrap();
        for (reader, handle) in readers.into_iter().enumerate() {
            let bytes = handle.join().unwrap().expect("a reader waits, and then goes on");
            assert!(bytes == content[reader * 8192..][..4096], "reader {reader}");
        }
        assert!(std::fs::read(target.join("disk.img")).unwrap() == content, "new reads are served as well");
        session.unmount().unwrap();
    });
}
