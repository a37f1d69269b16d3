//! What only NBD has: holes, CACHE, and clients that behave badly.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use hs_conformance::{Sample, WINDOW};
use hs_nbd::{Export, NbdAddress, NbdListeners, NbdOptions, NbdServer};
use hs_serve::{Prefetching, ServeConfig};
use hs_store::{Count, Fault, FaultKind, FileStore, Rule};
use hs_units::ByteRange;

use crate::fronts::{Front, Shown};
use crate::nbd_client::NbdClient;

fn off() -> ServeConfig {
    ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() }
}

fn show(sample: &Sample) -> Shown {
    let store = FileStore::open(sample.path("cold.hsi")).expect("there");
    Front::NbdStructured.show(Arc::new(store), &off())
}

fn client(shown: &Shown) -> NbdClient {
    NbdClient::open(&shown.socket(), "", true).expect("connected")
}

fn check(client: &mut NbdClient, sample: &Sample) {
    let found = client.read(70_001, 90_001).expect("connected").expect("read");
    assert!(found == sample.disk[70_001..][..90_001]);
}

#[test]
fn holes_are_where_the_disk_is_zero() {
    let sample = Sample::new(20);
    let shown = show(&sample);
    let mut client = client(&shown);
    let size = sample.disk.len();
    let (mut at, mut holes) = (0, 0);
    while at < size {
        let extents = client.allocation(false, at as u64, (size - at) as u32).expect("said");
        for (len, state) in extents {
            let bytes = &sample.disk[at..at + len as usize];
            assert!([0, 3].contains(&state));
            assert_eq!(state == 3, bytes.iter().all(|byte| *byte == 0), "{at}+{len}");
            holes += if state == 3 { len as usize } else { 0 };
            at += len as usize;
        }
    }
    assert_eq!(at, size);
    assert!(holes >= 20 * WINDOW, "{holes}");
    // From within a hole, one extent only, and not beyond what was asked for.
    assert_eq!(
        client.allocation(true, 3 * WINDOW as u64 + 5, 1 << 20).expect("said"),
        [(WINDOW as u32 - 5, 3)]
    );
    assert_eq!(client.allocation(true, 3 * WINDOW as u64 + 5, 7).expect("said"), [(7, 3)]);
    let refused = client.allocation(false, size as u64 - 1, 2).expect_err("past the end");
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn what_is_cached_is_not_fetched_again() {
    let sample = Sample::new(21);
    let store = Count::new(FileStore::open(sample.path("cold.hsi")).expect("there"));
    let counters = store.counters();
    let shown = Front::NbdSimple.show(Arc::new(store), &off());
    let mut client = NbdClient::open(&shown.socket(), "disk", false).expect("connected");
    // To the end of the disk: behind anything else the reader would go on reading ahead.
    let (command_cache, len) = (5, sample.disk.len() as u32 - 12_345);
    client.command(command_cache, 12_345, len).expect("connected").expect("cached");
    let before = counters.snapshot().requests;
    assert!(before > 0);
    let found = client.read(12_345, len).expect("connected").expect("read");
    assert!(found == sample.disk[12_345..][..len as usize]);
    assert_eq!(counters.snapshot().requests, before);
    assert_eq!(client.command(command_cache, sample.disk.len() as u64, 1).expect("connected"), Err(22));
}

#[test]
fn what_cannot_be_cached_is_said() {
    let sample = Sample::new(22);
    let store = FileStore::open(sample.path("cold.hsi")).expect("there");
    let bad = Rule::new(FaultKind::Flip, ByteRange::new(4096, 100)).one_in(2);
    let shown = Front::NbdStructured.show(Arc::new(Fault::new(store, vec![bad], 9)), &off());
    let mut client = client(&shown);
    assert_eq!(client.command(5, 0, 4096).expect("connected"), Err(libc::EIO as u32));
    assert_eq!(client.command(5, 8 * WINDOW as u64, 4096).expect("connected"), Ok(()));
}

#[test]
fn nothing_can_be_written() {
    let sample = Sample::new(23);
    let shown = show(&sample);
    let mut client = client(&shown);
    assert_eq!(client.flags & 0b11, 0b11, "read-only");
    client.ask(0, 1, 0, 4096).expect("sent");
    client.stream().write_all(&[0xff; 4096]).expect("sent");
    let mut said = [0; 26];
    client.stream().read_exact(&mut said).expect("said");
    assert_eq!(said[20..24], 1_u32.to_be_bytes(), "EPERM");
    check(&mut client, &sample);
}

/// A client that asks for much and reads nothing is not served further, and delays no other client.
#[test]
fn who_does_not_read_his_answers_holds_only_himself() {
    let sample = Sample::new(24);
    let mut shown = show(&sample);
    let mut slow = client(&shown);
    for _ in 0..200 {
        slow.ask(0, 0, 0, 4 << 20).expect("sent");
    }
    let mut other = client(&shown);
    for _ in 0..20 {
        check(&mut other, &sample);
    }
    shown.server().stop();
    let asked = shown.disk().stats().demand_bytes;
    // 8 MiB, what the sockets hold, and what the other one has read.
    assert!(asked < 14 << 20, "{asked}");
}

#[test]
fn strangers_and_the_silent_hold_nobody() {
    let sample = Sample::new(25);
    let mut shown = show(&sample);
    let silent = UnixStream::connect(shown.socket()).expect("connected");
    let mut half = client(&shown);
    half.stream().write_all(&[0x25, 0x60, 0x95]).expect("sent");
    let mut web = UnixStream::connect(shown.socket()).expect("connected");
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let mut said = Vec::new();
    web.read_to_end(&mut said).ok();
    assert!(said.starts_with(b"NBDMAGIC") && said.len() == 18, "{said:?}");
    let mut garbage = client(&shown);
    garbage.stream().write_all(&[0xa5; 100]).expect("sent");
    assert!(matches!(garbage.stream().read(&mut [0; 10]), Ok(0) | Err(_)));
    check(&mut client(&shown), &sample);
    shown.server().stop();
    assert_eq!(shown.server().stats().connected, 0);
    drop((silent, half));
}

#[test]
fn a_handshake_has_its_time() {
    let sample = Sample::new(26);
    let store = FileStore::open(sample.path("cold.hsi")).expect("there");
    let disk = off().open(Arc::new(store), None).expect("opened");
    let export = Export { name: "disk".into(), description: String::new(), disk: Arc::clone(&disk).into() };
    let address = NbdAddress::Unix(sample.path("socket"));
    let options = NbdOptions { handshake_patience: Duration::from_millis(30), ..NbdOptions::default() };
    let listeners = NbdListeners::at(&[address]).expect("listens");
    let server = NbdServer::start(vec![export], listeners, options).expect("served");
    let mut silent = UnixStream::connect(sample.path("socket")).expect("connected");
    let mut said = Vec::new();
    silent.read_to_end(&mut said).expect("hung up on");
    assert_eq!(said.len(), 18);
    drop(server);
    assert!(!sample.path("socket").exists());
}

/// What was asked for before the end is answered, however slow the medium; afterwards there is no listener.
#[test]
fn an_ending_server_answers_what_was_asked() {
    let sample = Sample::new(27);
    let store = FileStore::open(sample.path("cold.hsi")).expect("there");
    let everything = ByteRange::new(4096, u64::MAX / 2);
    let slow = Rule::new(FaultKind::Delay(Duration::from_millis(50)), everything);
    let faulty = Fault::new(store, vec![slow], 1);
    let mut shown = Front::NbdSimple.show(Arc::new(faulty), &off());
    let mut client = NbdClient::open(&shown.socket(), "", false).expect("connected");
    client.ask(0, 0, 0, 4096).expect("sent");
    let reads = |shown: &mut Shown| shown.server().stats().reads;
    while reads(&mut shown) == 0 {
        std::thread::yield_now();
    }
    shown.server().stop();
    let mut said = Vec::new();
    client.stream().read_to_end(&mut said).expect("the end");
    assert_eq!(said.len(), 16 + 4096);
    assert!(said[16..] == sample.disk[..4096]);
    assert!(UnixStream::connect(shown.socket()).is_err());
    assert!(!shown.folder().join("socket").exists());
}
