//! `VhostServer` and guests: those that read, those that attack, and those whose server ends.

#[path = "support/guest.rs"]
#[expect(dead_code, reason = "the suite of all front ends uses the rest")]
mod guest;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_conformance::{Gates, Sample, WINDOW};
use hs_image::WindowRef;
use hs_keep::{KeepFile, KeptDisk, OpenedAs};
use hs_linux::SocketFile;
use hs_serve::{Prefetching, ServeConfig, ServedDisk};
use hs_store::{FileStore, Store};
use hs_units::{ByteRange, Prng};
use hs_vhost::{VhostOptions, VhostServer};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vm_memory::{Bytes, GuestAddress};

use crate::guest::{DATA_AT, ENTRIES, FLUSH, GET_ID, Guest, IN, INDIRECT, MEMORY_BYTES, NEXT, OUT, WRITE};

const SECTOR: usize = 512;

struct ServedGuests {
    server: VhostServer,
    disk: Arc<ServedDisk>,
    socket: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

fn serve_at(socket: &Path, store: Arc<dyn Store>, options: VhostOptions) -> ServedGuests {
    let config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    let disk = config.open(store, None).expect("opened");
    let file = SocketFile::bind(socket).expect("listens");
    let server = VhostServer::start(Arc::clone(&disk), None, file, options).expect("served");
    ServedGuests { server, disk, socket: socket.to_owned(), _folder: None }
}

fn serve(sample: &Sample, options: VhostOptions) -> ServedGuests {
    let folder = tempfile::tempdir().expect("a folder");
    let store = FileStore::open(sample.path("cold.hsi")).expect("there");
    let served = serve_at(&folder.path().join("socket"), Arc::new(store), options);
    ServedGuests { _folder: Some(folder), ..served }
}

fn check(guest: &mut Guest, queue: usize, disk: &[u8], sector: usize, sectors: usize) {
    let (status, found) = guest.get(queue, IN, sector as u64, (sectors * SECTOR) as u32);
    assert_eq!(status, 0);
    assert!(found == disk[sector * SECTOR..][..sectors * SECTOR], "{sectors} sectors from {sector}");
}

/// Another guest reads what it should.
fn assert_serves(served: &ServedGuests, sample: &Sample) {
    let mut guest = Guest::served(&served.socket, 1).expect("served");
    check(&mut guest, 0, &sample.disk, 300, 200);
}

/// The disk with what is written to it, in a file of the folder.
fn serve_kept(sample: &Sample, folder: &Path, options: VhostOptions) -> (ServedGuests, Arc<KeptDisk>) {
    let store = Arc::new(FileStore::open(sample.path("cold.hsi")).expect("there"));
    let config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    let disk = config.open(store, None).expect("opened");
    let file = KeepFile::open(&folder.join("kept"), OpenedAs::Keeping, KeepFile::PATIENCE).expect("opened");
    let kept = Arc::new(KeptDisk::new(disk.clone(), file).expect("an overlay"));
    let socket = folder.join("socket");
    let file = SocketFile::bind(&socket).expect("listens");
    let server = VhostServer::start(Arc::clone(&disk), Some(Arc::clone(&kept)), file, options);
    (ServedGuests { server: server.expect("served"), disk, socket, _folder: None }, kept)
}

/// A guest without memory barriers may think that the server still looks.
#[test]
fn a_ring_that_has_become_empty_is_looked_at_once_more() {
    const LOOKED: Duration = Duration::from_millis(20);
    let sample = Sample::new(96);
    let served = serve(&sample, VhostOptions::default());
    let mut guest = Guest::served(&served.socket, 1).expect("served");
    // A busy machine may bring the request after that look.
    let was_seen = (0..100).any(|_| {
        check(&mut guest, 0, &sample.disk, 0, 1);
        while !guest.wants_kicks(0) {
            std::thread::yield_now();
        }
        guest.set_mute(0, true);
        let (before, asked) = (guest.used_idx(0), Instant::now());
        guest.ask(0, 0, (IN, 1), (DATA_AT, SECTOR as u32));
        while guest.used_idx(0) == before && asked.elapsed() < LOOKED {
            std::thread::yield_now();
        }
        let was_seen = guest.used_idx(0) != before;
        guest.set_mute(0, false);
        assert_eq!(guest.answered(0), (0, SECTOR as u32 + 1));
        was_seen
    });
    assert!(was_seen);
}

#[test]
fn of_answers_that_come_together_a_guest_is_told_together() {
    const REQUESTS: u16 = 12;
    let sample = Sample::new(96);
    let served = serve(&sample, VhostOptions::default());
    let mut guest = Guest::new(&served.socket, 1).expect("connected");
    guest.introduce().expect("introduced");
    for request in 0..REQUESTS {
        guest.ask(0, 3 * request, (GET_ID, 0), (DATA_AT, 20));
    }
    guest.start(0).expect("served");
    (0..REQUESTS).for_each(|request| assert_eq!(guest.answered(0).0, 3 * request));
    // A ring that has stopped has told of all.
    assert_eq!(guest.vmm.get_vring_base(0).expect("stopped"), u32::from(REQUESTS));
    assert_eq!(guest.interrupts(0), 2, "once when the ring was set up, and once for all answers");
}

#[test]
fn what_a_guest_writes_is_read_and_lasts() {
    const DISCARD: u32 = 11;
    const WRITE_ZEROES: u32 = 13;
    let sample = Sample::new(96);
    let (mut disk, folder) = (sample.disk.clone(), tempfile::tempdir().expect("a folder"));
    let (served, kept) = serve_kept(&sample, folder.path(), VhostOptions::default());
    let mut guest = Guest::served(&served.socket, 2).expect("served");
    let mut prng = Prng::new(5);
    for round in 0..60 {
        let queue = (round % 2) as usize;
        let sectors = 1 + prng.below(if round % 10 == 0 { 3_000 } else { 64 }) as usize;
        let sector = prng.below((disk.len() / SECTOR - sectors) as u64) as usize;
        let range = &mut disk[sector * SECTOR..][..sectors * SECTOR];
        let status = if round % 5 == 4 {
            range.fill(0);
            let segment = [&(sector as u64).to_le_bytes()[..], &(sectors as u32).to_le_bytes(), &[0; 4]];
            guest.order(queue, WRITE_ZEROES, 0, &segment.concat())
        } else {
            prng.fill(range);
            guest.order(queue, OUT, sector as u64, range)
        };
        assert_eq!(status, 0, "round {round}");
        check(&mut guest, queue, &disk, sector, sectors);
    }
    // Whole blocks of a discard read as zeros, parts of blocks as before.
    let discarded = [&7_u64.to_le_bytes()[..], &10_u32.to_le_bytes(), &[0; 4]].concat();
    assert_eq!(guest.order(0, DISCARD, 0, &discarded), 0);
    disk[8 * SECTOR..16 * SECTOR].fill(0);
    let end = (disk.len() / SECTOR) as u64;
    assert_eq!(guest.order(0, OUT, end - 1, &[1; 2 * SECTOR]), 1, "beyond the end");
    assert_eq!(guest.order(0, FLUSH, 0, &[]), 0);
    assert_eq!((served.server.stats().writes, served.server.stats().connected), (61, 1));
    // A second kernel would destroy what the first one writes.
    assert!(Guest::served(&served.socket, 1).is_err());
    // As after a power cut: what was flushed is there, by another server.
    drop((guest, served, kept));
    let (served, _kept) = serve_kept(&sample, folder.path(), VhostOptions::default());
    let mut guest = Guest::served(&served.socket, 1).expect("served");
    for sector in (0..disk.len() / SECTOR).step_by(2048) {
        let sectors = 2048.min(disk.len() / SECTOR - sector);
        check(&mut guest, 0, &disk, sector, sectors);
    }
}

#[test]
fn guests_read_the_disk_by_every_queue() {
    let sample = Sample::new(90);
    let served = serve(&sample, VhostOptions { queues: 2, ..VhostOptions::default() });
    let mut guest = Guest::served(&served.socket, 2).expect("served");
    assert_eq!(guest.vmm.get_queue_num().expect("asked"), 2);
    let (_, space) = guest.vmm.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]).expect("asked");
    let capacity = u64::from_le_bytes(space[..8].try_into().expect("eight bytes"));
    let sectors = sample.disk.len() / SECTOR;
    assert_eq!((capacity, space[34]), (sectors as u64, 2));
    let mut prng = Prng::new(91);
    for turn in 0..200 {
        let sector = prng.below(sectors as u64) as usize;
        let most = (sectors - sector).min(2000) as u64;
        check(&mut guest, turn % 2, &sample.disk, sector, 1 + prng.below(most) as usize);
    }
    check(&mut guest, 1, &sample.disk, 0, sectors);
    // Flush, serial number, write, and a kind that is not offered.
    assert_eq!(guest.get(0, 4, 0, 0).0, 0);
    let (status, serial) = guest.get(0, 8, 0, 20);
    assert_eq!(
        (status, serial),
        (0, served.disk.image().image_digest().to_string().as_bytes()[..20].to_vec())
    );
    assert_eq!(guest.get(0, 1, 0, 512).0, 1);
    assert_eq!(guest.get(0, 11, 0, 512).0, 2);
    assert_eq!(guest.get(0, IN, sectors as u64, 512).0, 1, "past the end");
    let stats = served.server.stats();
    assert_eq!((stats.connections, stats.connected, stats.reads), (1, 1, 201));
}

#[test]
fn requests_that_no_driver_makes_are_answered_and_hurt_none() {
    let sample = Sample::new(92);
    let served = serve(&sample, VhostOptions::default());
    let mut guest = Guest::served(&served.socket, 2).expect("served");
    let header = 0x2_a000;
    guest.memory.write_obj(0_u64, GuestAddress(header)).expect("written");
    guest.memory.write_obj(0_u64, GuestAddress(header + 8)).expect("written");
    let outside = MEMORY_BYTES - 1;
    let chains: [&[(u64, u32, u16, u16)]; 8] = [
        &[(header, 16, NEXT, 0)],
        &[(header, 16, NEXT, ENTRIES)],
        &[(header, 16, NEXT, 1), (DATA_AT, u32::MAX, WRITE | NEXT, 2), (DATA_AT, u32::MAX, WRITE, 0)],
        &[(header, 16, NEXT, 1), (DATA_AT, u32::MAX - 16, WRITE, 0)],
        &[(header, 16, 0, 0)],
        &[(header, 16, NEXT, 1), (u64::MAX - 3, 513, WRITE, 0)],
        &[(outside, 16, NEXT, 1), (DATA_AT, 513, WRITE, 0)],
        &[(0, 16, INDIRECT, 0)],
    ];
    for chain in chains {
        for (number, descriptor) in chain.iter().enumerate() {
            guest.describe(0, number as u16, *descriptor);
        }
        guest.offer(0, 0);
        assert_eq!(guest.answered(0).0, 0, "the buffers are given back");
    }
    // Much, but possible: more than a connection may have under way, of two queues.
    let len: u32 = 3 << 20;
    for queue in 0..2 {
        guest.describe(queue, 0, (header, 16, NEXT, 1));
        for number in 1..=2 {
            let at = DATA_AT + (2 * queue as u64 + u64::from(number) - 1) * u64::from(len);
            guest.describe(queue, number, (at, len, WRITE | NEXT, number + 1));
        }
        guest.describe(queue, 3, (header + 64, 1, WRITE, 0));
        guest.offer(queue, 0);
    }
    for queue in 0..2 {
        assert_eq!(guest.answered(queue), (0, 2 * len + 1));
        let at = DATA_AT + 2 * queue as u64 * u64::from(len);
        assert!(guest.bytes(at, 2 * len as usize) == sample.disk[..2 * len as usize]);
    }
    check(&mut guest, 0, &sample.disk, 7, 9);
    assert_serves(&served, &sample);
}

#[test]
fn a_ring_that_is_broken_ends_alone_and_comes_back_with_a_reset() {
    let sample = Sample::new(93);
    let served = serve(&sample, VhostOptions::default());
    let mut guest = Guest::served(&served.socket, 2).expect("served");
    // More requests than there are descriptors.
    guest.available(0, 1000);
    check(&mut guest, 1, &sample.disk, 5, 5);
    // The connection lives: a driver that begins anew is served.
    guest.vmm.get_vring_base(0).expect("stopped");
    guest.available(0, 0);
    guest.start(0).expect("started");
    check(&mut guest, 0, &sample.disk, 5, 5);
    let mut another = Guest::served(&served.socket, 1).expect("served");
    another.offer(0, ENTRIES);
    assert_serves(&served, &sample);
}

#[test]
fn vmms_that_say_what_is_wrong_are_disconnected() {
    let sample = Sample::new(94);
    let patience = Duration::from_millis(300);
    let served = serve(&sample, VhostOptions { silence_patience: patience, ..VhostOptions::default() });
    let introduced = |queues| {
        let mut guest = Guest::new(&served.socket, queues).expect("connected");
        guest.introduce().expect("heard");
        guest
    };
    assert!(introduced(1).start_at(0, ENTRIES, 0x1000).is_err(), "a ring that is not in memory");
    assert!(introduced(1).start_at(0, ENTRIES, 0x7000_0000_0008).is_err(), "a ring that is not aligned");
    assert!(introduced(1).start_at(0, 48, 0x7000_0000_0000).is_err(), "no power of two");
    assert!(introduced(20).start(17).is_err(), "a queue that is not offered");
    let mut small = introduced(1);
    let shared = small.share(MEMORY_BYTES + 4096);
    assert!(shared.and_then(|()| small.vmm.get_features()).is_err(), "more memory than its file has");
    for words in [&[0xff_u8; 64][..], &[1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f], &[1, 0], &[]] {
        let mut stream = UnixStream::connect(&served.socket).expect("connected");
        stream.write_all(words).expect("said");
        if words.len() == 2 {
            // It goes in the middle of a message.
            continue;
        }
        // The others are hung up on, the silent one after its time.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_serves(&served, &sample);
}

/// Where the stored bytes of a cold window lie.
fn place(sample: &Sample, window: u64) -> ByteRange {
    let image = sample.open("cold.hsi");
    match image.window(window).expect("the index is whole") {
        WindowRef::Chunk(chunk) => image.cold_range(&chunk),
        other => panic!("window {window} is {other:?}"),
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

const SLOW_WINDOW: usize = 5;
const SLOW_SECTOR: u64 = (SLOW_WINDOW * WINDOW / SECTOR) as u64;

#[test]
fn what_waits_for_the_medium_holds_no_other_request_and_a_reset_waits_for_it() {
    let sample = Sample::new(95);
    let folder = tempfile::tempdir().expect("a folder");
    let file = FileStore::open(sample.path("cold.hsi")).expect("there");
    let gates = Gates::new(file, &[place(&sample, SLOW_WINDOW as u64)]);
    let socket = folder.path().join("socket");
    let served = serve_at(&socket, Arc::clone(&gates) as Arc<dyn Store>, VhostOptions::default());
    let _opens = gates.open_at_end();
    let mut guest = Guest::served(&socket, 1).expect("served");
    let slow_at = DATA_AT + (8 << 20);
    guest.ask(0, 8, (IN, SLOW_SECTOR), (slow_at, 4096));
    for window in [70, 72, 80] {
        check(&mut guest, 0, &sample.disk, window * WINDOW / SECTOR, 16);
    }
    wait_until(|| gates.waiting(0) > 0);
    assert_eq!(guest.status(0, 8), 0xff);
    let mut left = None;
    std::thread::scope(|scope| {
        let reset = scope.spawn(|| guest.vmm.get_vring_base(0).expect("stopped"));
        // A VMM that is gone, with a request under way.
        let mut gone = Guest::served(&socket, 1).expect("served");
        gone.ask(0, 0, (IN, SLOW_SECTOR), (DATA_AT, 4096));
        wait_until(|| served.server.stats().reads == 5);
        let Guest { vmm, memory, .. } = gone;
        drop(vmm);
        wait_until(|| served.server.stats().connected == 1);
        assert!(!reset.is_finished());
        gates.open(0);
        assert_eq!(reset.join().expect("joined"), 4);
        left = Some(memory);
    });
    assert_eq!(guest.answered(0), (8, 4097));
    assert!(guest.bytes(slow_at, 4096) == sample.disk[SLOW_WINDOW * WINDOW..][..4096]);
    guest.start(0).expect("started");
    check(&mut guest, 0, &sample.disk, 1, 1);
    // Its memory is another one's by now.
    let mut found = vec![1; 4096];
    left.expect("there was one").read_slice(&mut found, GuestAddress(DATA_AT)).expect("in memory");
    assert!(found.iter().all(|byte| *byte == 0), "a guest whose connection has ended is not written to");
}

#[test]
fn the_next_server_answers_what_the_last_one_left_and_nothing_twice() {
    let sample = Sample::new(96);
    let folder = tempfile::tempdir().expect("a folder");
    let file = || FileStore::open(sample.path("cold.hsi")).expect("there");
    let gates = Gates::new(file(), &[place(&sample, SLOW_WINDOW as u64)]);
    let socket = folder.path().join("socket");
    let first = serve_at(&socket, Arc::clone(&gates) as Arc<dyn Store>, VhostOptions::default());
    let opens = gates.open_at_end();
    let mut guest = Guest::new(&socket, 1).expect("connected");
    guest.introduce().expect("heard");
    guest.keep_inflight().expect("kept");
    guest.start(0).expect("started");
    let place = |head: u16| DATA_AT + u64::from(head) * 0x1_0000;
    for (head, sector) in [(3, SLOW_SECTOR), (6, SLOW_SECTOR + 8), (9, 0)] {
        guest.ask(0, head, (IN, sector), (place(head), 4096));
    }
    assert_eq!(guest.answered(0), (9, 4097));
    wait_until(|| gates.waiting(0) > 0);
    // It ends as a server does, and what waits is left: the guest sees no error.
    drop(first.server);
    first.disk.close();
    assert_eq!(guest.used_idx(0), 1);
    drop(opens);
    // Asked while there is no server.
    guest.ask(0, 12, (IN, 8), (place(12), 4096));
    let _second = serve_at(&socket, Arc::new(file()), VhostOptions::default());
    guest.connect_again(&socket).expect("connected again");
    let mut heads: Vec<u16> = (0..3).map(|_| guest.answered(0).0).collect();
    heads.sort_unstable();
    assert_eq!(heads, [3, 6, 12]);
    for (head, sector) in [(3, SLOW_SECTOR), (6, SLOW_SECTOR + 8), (12, 8)] {
        assert_eq!(guest.status(0, head), 0);
        assert!(guest.bytes(place(head), 4096) == sample.disk[sector as usize * SECTOR..][..4096], "{head}");
    }
    check(&mut guest, 0, &sample.disk, 1, 1);
    assert_eq!(guest.used_idx(0), 5, "nothing was answered twice");
}
