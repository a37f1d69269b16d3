//! The memory of guests over userfaultfd, with a client that does what a VMM does.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hs_linux::userfault::Userfault;
use hs_units::Prng;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};

use crate::scene::{Running, Scene, machine_has, run, wait_until};

const PAGE: usize = 4096;

/// A VMM: memory that another process fills.
struct Vmm {
    memory: usize,
    bytes: usize,
    _faults: Userfault,
    stream: UnixStream,
}

impl Vmm {
    /// Maps `bytes` of memory, and has them filled by the server at `socket`.
    fn new(socket: &Path, bytes: usize) -> Self {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: new memory, which only this has.
        let memory =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }.expect("memory") as usize;
        let faults = Userfault::new().expect("userfaultfd");
        faults.register(memory as u64, bytes as u64).expect("registered");
        let stream = UnixStream::connect(socket).expect("a server");
        // In two regions, as with a hole for devices.
        let half = bytes / PAGE / 2 * PAGE;
        let region = |address: usize, bytes: usize, offset: usize| serde_json::json!({ "base_host_virt_addr": address, "size": bytes, "offset": offset, "page_size": PAGE });
        let regions = [region(memory, half, 0), region(memory + half, bytes - half, half)];
        send(&stream, &serde_json::to_vec(&regions).expect("text"), faults.as_fd());
        Self { memory, bytes, _faults: faults, stream }
    }

    /// Touches a page.
    fn page(&self, number: usize) -> &[u8] {
        assert!((number + 1) * PAGE <= self.bytes);
        // SAFETY: it is mapped as long as this lives, and nothing writes to it once it is there.
        unsafe { std::slice::from_raw_parts((self.memory + number * PAGE) as *const u8, PAGE) }
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        // SAFETY: what refers to it has ended.
        let _ = unsafe { munmap(self.memory as *mut _, self.bytes) };
    }
}

fn send(stream: &UnixStream, message: &[u8], descriptor: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(stream, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL).expect("sent");
}

/// A server of `image`, which listens.
fn serve(scene: &Scene, image: &str, flags: &[&str]) -> Running {
    let socket = scene.arg("uffd");
    let running = Running::start(["serve", image, "--uffd", &socket].iter().chain(flags));
    wait_until("the server listens", || UnixStream::connect(&socket).is_ok());
    running
}

/// The server of a supervisor.
fn server_of(supervisor: u32) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

fn is_allowed() -> bool {
    let is_allowed = Userfault::new().is_ok();
    if !is_allowed {
        hs_testing::skip("userfaultfd is not allowed");
    }
    is_allowed && machine_has(&[])
}

#[test]
fn guests_get_the_right_pages_however_often_their_server_is_killed() {
    if !is_allowed() {
        return;
    }
    let scene = Scene::new();
    let mut disk = scene.image("memory.hsi", 3000, 5);
    disk.truncate(3000 * PAGE);
    let running = serve(&scene, &scene.arg("memory.hsi"), &[]);
    let first = Vmm::new(&scene.path("uffd"), disk.len());
    let second = Vmm::new(&scene.path("uffd"), disk.len());
    let mut order: Vec<usize> = (0..disk.len() / PAGE).collect();
    let mut prng = Prng::new(3);
    for at in (1..order.len()).rev() {
        order.swap(at, prng.below(at as u64 + 1) as usize);
    }
    std::thread::scope(|scope| {
        let touch = |vmm: &Vmm| {
            for &number in &order {
                assert!(vmm.page(number) == &disk[number * PAGE..][..PAGE], "page {number}");
            }
        };
        let touching: Vec<_> = [&first, &second].map(|vmm| scope.spawn(move || touch(vmm))).into();
        let mut killed = 0;
        while touching.iter().any(|thread| !thread.is_finished()) {
            // Each server is killed at another moment of its life.
            if let Some(server) = server_of(running.id()) {
                std::thread::sleep(Duration::from_millis(prng.below(150)));
                killed += usize::from(kill_process(server, Signal::KILL).is_ok());
            }
        }
        eprintln!("killed {killed} servers");
    });
    // A VMM that ends is forgotten, and another one can come.
    drop((first, second));
    let third = Vmm::new(&scene.path("uffd"), disk.len());
    assert!(third.page(7) == &disk[7 * PAGE..8 * PAGE]);
    running.signal(Signal::TERM);
    let (status, _, said) = running.end();
    assert!(status.success(), "{said}");
}

#[test]
fn pages_come_from_the_base_too() {
    if !is_allowed() {
        return;
    }
    let scene = Scene::new();
    let mut disk = scene.image("base.hsi", 500, 5);
    disk.rotate_left(7 * PAGE);
    disk[3 * PAGE..9 * PAGE].fill(3);
    std::fs::write(scene.path("memory.raw"), &disk).expect("written");
    let (raw, memory, base) = (scene.arg("memory.raw"), scene.arg("memory.hsi"), scene.arg("base.hsi"));
    run(["build", "--raw", &raw, "-o", &memory, "--window", "16K", "--base", &base]).ok();
    let running = serve(&scene, &memory, &["--base", &base]);
    let vmm = Vmm::new(&scene.path("uffd"), disk.len());
    for (number, expected) in disk.chunks(PAGE).enumerate() {
        assert!(vmm.page(number) == expected, "page {number}");
    }
    drop(vmm);
    running.signal(Signal::TERM);
    let (status, _, said) = running.end();
    assert!(status.success(), "{said}");
}

#[test]
fn a_page_that_cannot_be_had_is_never_zeros() {
    if !is_allowed() {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("memory.hsi", 3000, 5);
    let half = std::fs::metadata(scene.path("memory.hsi")).expect("there").len() / 2 / 4096 * 4096;
    let bad = format!("{half}+64K");
    let running = serve(&scene, &scene.arg("memory.hsi"), &["--bad-sectors", &bad, "--no-prefetch"]);
    let vmm = Vmm::new(&scene.path("uffd"), disk.len());
    let null = std::fs::File::options().write(true).open("/dev/null").expect("null");
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let mut refused = 0;
    for number in 0..disk.len() / PAGE {
        // The kernel touches the page, which tells an error where a program gets SIGBUS.
        let address = (vmm.memory + number * PAGE) as *const u8;
        // SAFETY: mapped; the kernel checks whether it can be read.
        let wrote = unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&writer), address.cast(), PAGE) };
        if wrote < 0 {
            refused += 1;
            continue;
        }
        let mut page = vec![0; PAGE];
        let mut reading = std::fs::File::from(reader.try_clone().expect("the same pipe"));
        reading.read_exact(&mut page).expect("read");
        assert!(page == disk[number * PAGE..][..PAGE], "page {number}");
    }
    drop(null);
    assert!(refused > 0 && refused < disk.len() / PAGE / 2, "{refused} pages");
    running.signal(Signal::TERM);
    assert!(running.end().2.contains("cannot be had"));
}

#[test]
fn vmms_that_lie_harm_no_other() {
    if !is_allowed() {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("memory.hsi", 300, 5);
    let running = serve(&scene, &scene.arg("memory.hsi"), &[]);
    let honest = Vmm::new(&scene.path("uffd"), disk.len());
    let connect = || UnixStream::connect(scene.path("uffd")).expect("a server");
    let faults = Userfault::new().expect("userfaultfd");
    let null = std::fs::File::open("/dev/zero").expect("a file");
    let _silent = connect();
    let here =
        format!(r#"[{{"base_host_virt_addr":{},"size":8192,"offset":0,"page_size":4096}}]"#, 1_u64 << 40);
    for (message, descriptor) in [
        (&b"nonsense"[..], faults.as_fd()),
        (b"[]", faults.as_fd()),
        (br#"[{"base_host_virt_addr":0,"size":18446744073709547520,"offset":0}]"#, faults.as_fd()),
        (here.as_bytes(), null.as_fd()),
    ] {
        let mut stream = connect();
        send(&stream, message, descriptor);
        // It is hung up on.
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    }
    // Memory that it never registered: nothing happens.
    let stream = connect();
    send(&stream, here.as_bytes(), faults.as_fd());
    assert!(honest.page(9) == &disk[9 * PAGE..10 * PAGE]);
    assert!(honest.stream.peer_addr().is_ok());
    running.signal(Signal::TERM);
    let (status, _, said) = running.end();
    assert!(status.success() && said.contains("a VMM is refused"), "{said}");
}
