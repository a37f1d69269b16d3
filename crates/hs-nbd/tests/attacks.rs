//! `NbdServer` under attack, each attack tried over sockets: the attacker's connection ends, and an honest
//! client is served.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use hs_nbd::{Export, ExportedDisk, NbdAddress, NbdListeners, NbdOptions, NbdServer};
use hs_serve::FileDisk;
use hs_store::{Fault, FaultKind, MemoryStore, Rule, Store};
use hs_units::ByteRange;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// What must happen happens within this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server's, for the test.
const SHORT: Duration = Duration::from_millis(300);
const DISK_BYTES: usize = 40 << 20;
/// Clients from this number on mean well.
const HONEST: u8 = 5;

fn disk() -> Vec<u8> {
    (0..DISK_BYTES).map(|at| (at >> 12) as u8 ^ at as u8).collect()
}

fn serve_store(store: Arc<dyn Store>, options: NbdOptions) -> (NbdServer, u16) {
    let disk = ExportedDisk::File(Arc::new(FileDisk::new(store).expect("a disk")));
    let export = Export { name: "disk".into(), description: String::new(), disk };
    let address = NbdAddress::Tcp { host: "0.0.0.0".into(), port: 0 };
    let listeners = NbdListeners::at(&[address]).expect("listens");
    let server = NbdServer::start(vec![export], listeners, options).expect("served");
    let uri = server.uris(0)[0].clone();
    let port = uri.rsplit(':').next().and_then(|rest| rest.split('/').next()?.parse().ok());
    (server, port.expect("a port"))
}

fn serve(options: NbdOptions) -> (NbdServer, u16) {
    serve_store(Arc::new(MemoryStore::new(disk())), options)
}

/// A connection from 127.0.0.`client`. Those of clients below [`HONEST`] receive into a small buffer, so that
/// little is on its way to them.
fn connect(client: u8, port: u16) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    if client < HONEST {
        sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("set");
    }
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, client], 0))).expect("bound");
    rustix::net::connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).expect("connected");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

fn hear<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).expect("heard");
    bytes
}

/// One that has chosen the export. Replies are simple.
fn open(client: u8, port: u16) -> TcpStream {
    let mut stream = connect(client, port);
    assert_eq!(&hear::<18>(&mut stream)[..8], b"NBDMAGIC");
    // No zeroes; the export by its name, to which nothing but its size and flags is said.
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04disk").expect("said");
    hear::<10>(&mut stream);
    stream
}

fn ask(stream: &mut TcpStream, offset: u64, len: u32) {
    let head =
        [&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0][..], &[7; 8], &offset.to_be_bytes(), &len.to_be_bytes()];
    stream.write_all(&head.concat()).expect("asked");
}

/// The error of the next reply.
fn replied(stream: &mut TcpStream) -> u32 {
    let head = hear::<16>(stream);
    assert_eq!((&head[..4], &head[8..]), (&[0x67, 0x44, 0x66, 0x98][..], &[7; 8][..]));
    u32::from_be_bytes([head[4], head[5], head[6], head[7]])
}

fn check(stream: &mut TcpStream, disk: &[u8], offset: usize, len: usize) {
    ask(stream, offset as u64, len as u32);
    assert_eq!(replied(stream), 0);
    let mut found = vec![0; len];
    stream.read_exact(&mut found).expect("heard");
    assert!(found == disk[offset..][..len], "{offset}+{len}");
}

/// What the server says until it hangs up, which it must.
fn rest(mut stream: TcpStream) -> usize {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        outcome => drop(outcome.expect("the server hangs up")),
    }
    said.len()
}

#[test]
fn a_client_that_takes_nothing_is_hung_up_on() {
    let (server, port) = serve(NbdOptions { read_patience: SHORT, ..NbdOptions::default() });
    let mut unread = open(1, port);
    ask(&mut unread, 0, 32 << 20);
    let mut idle = open(HONEST, port);
    let end = std::time::Instant::now() + PATIENCE;
    while server.stats().connected > 1 {
        assert!(std::time::Instant::now() < end, "it is still connected");
        std::thread::yield_now();
    }
    assert!(rest(unread) < 32 << 20);
    // A client that makes no request is not disconnected for it.
    check(&mut idle, &disk(), 5, 100_000);
}

#[test]
fn a_client_that_reads_slowly_is_not_hung_up_on() {
    // Much longer than a pause, also on a machine that is late with it, and less than all of them.
    let (patience, pause) = (Duration::from_secs(2), Duration::from_millis(300));
    let (disk, mut piece) = (disk(), vec![0; 512 << 10]);
    let (_server, port) = serve(NbdOptions { read_patience: patience, ..NbdOptions::default() });
    let mut slow = open(HONEST, port);
    ask(&mut slow, 0, 16 << 20);
    assert_eq!(replied(&mut slow), 0);
    for number in 0..32 {
        if number < 10 {
            std::thread::sleep(pause);
        }
        slow.read_exact(&mut piece).expect("more");
        assert!(piece == disk[number * piece.len()..][..piece.len()]);
    }
}

/// They are sent in pieces, and others after them in order, also when the medium is late with a last piece.
#[test]
fn long_simple_replies_are_whole_and_in_order() {
    let late = Rule::new(FaultKind::Delay(SHORT), ByteRange::new(777 + (5 << 20), 1));
    let store = Fault::new(MemoryStore::new(disk()), vec![late], 1);
    let (server, port) = serve_store(Arc::new(store), NbdOptions::default());
    let (disk, mut client) = (disk(), open(HONEST, port));
    let reads = [(1, 32 << 20), (4096, 100), (777, (5 << 20) + 3), (9 << 20, 4096), (0, 2 << 20)];
    for (offset, len) in reads {
        ask(&mut client, offset as u64, len as u32);
    }
    for (offset, len) in reads {
        // Short ones may come in any order, but a long one comes alone: here each is asked between two that
        // are long.
        assert_eq!(replied(&mut client), 0);
        let mut found = vec![0; len];
        client.read_exact(&mut found).expect("heard");
        assert!(found == disk[offset..][..len], "{offset}+{len}");
    }
    assert_eq!(server.stats().reads, 5);
}

/// An error in the first bytes of an answer is reported. Later, when the client already counts on the bytes,
/// the server closes the connection.
#[test]
fn a_long_simple_reply_that_fails_is_never_wrong_bytes() {
    let bad = Rule::new(FaultKind::Io, ByteRange::new(20 << 20, 1));
    let faulty = Fault::new(MemoryStore::new(disk()), vec![bad], 1);
    let (_server, port) = serve_store(Arc::new(faulty), NbdOptions::default());
    let (disk, mut client) = (disk(), open(HONEST, port));
    ask(&mut client, 20 << 20, 16 << 20);
    assert_eq!(replied(&mut client), libc::EIO as u32);
    check(&mut client, &disk, 0, 10 << 20);
    ask(&mut client, 10 << 20, 16 << 20);
    assert_eq!(replied(&mut client), 0);
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said);
    assert!(said.len() <= 10 << 20 && said == disk[10 << 20..][..said.len()]);
    check(&mut open(HONEST, port), &disk, 0, 4096);
}

/// Clients of four addresses fill their connections with reads that they do not take; others go on.
#[test]
fn clients_that_ask_and_do_not_read_leave_room_for_others() {
    let (_server, port) = serve(NbdOptions::default());
    let unread: Vec<TcpStream> = (0..128)
        .map(|number| {
            let mut stream = open(1 + number % 4, port);
            (0..16).for_each(|read| ask(&mut stream, read << 20, 2 << 20));
            stream
        })
        .collect();
    let (disk, mut honest) = (disk(), open(HONEST, port));
    for number in 0..20 {
        check(&mut honest, &disk, number * 70_000, 300_000);
    }
    check(&mut honest, &disk, 3, 8 << 20);
    drop(unread);
}

#[test]
fn silent_and_idle_clients_that_take_all_places_lock_nobody_out() {
    for opened in [false, true] {
        let options = NbdOptions { most_connections: 16, ..NbdOptions::default() };
        let (server, port) = serve(options);
        let attack = || (0..40).map(|_| if opened { open(1, port) } else { connect(1, port) });
        let first: Vec<TcpStream> = attack().collect();
        let (disk, mut honest) = (disk(), open(HONEST, port));
        check(&mut honest, &disk, 0, 4096);
        // It stays, however many come after it.
        let more: Vec<TcpStream> = attack().collect();
        while server.stats().connections < 81 {
            std::thread::yield_now();
        }
        check(&mut honest, &disk, 4096, 4096);
        drop((first, more));
    }
}

/// Also one that has the same address as they.
#[test]
fn at_its_limit_a_client_loses_the_connection_that_is_idle_longest() {
    let (_server, port) = serve(NbdOptions { most_connections_of_client: 4, ..NbdOptions::default() });
    let (disk, idle) = (disk(), open(1, port));
    let mut others: Vec<TcpStream> = (0..3).map(|_| open(1, port)).collect();
    // Reads, so that the first one's thread is long done with its handshake.
    others.iter_mut().for_each(|other| check(other, &disk, 0, 8 << 20));
    check(&mut open(1, port), &disk, 0, 4096);
    assert_eq!(rest(idle), 0);
    check(&mut others[2], &disk, 0, 4096);
}

/// Connections that all wait to be read give places up as well, to a client with fewer.
#[test]
fn unread_clients_that_take_all_places_lock_nobody_out() {
    let (_server, port) = serve(NbdOptions { most_connections: 8, ..NbdOptions::default() });
    let _unread: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = open(1, port);
            ask(&mut stream, 0, 32 << 20);
            stream
        })
        .collect();
    check(&mut open(HONEST, port), &disk(), 0, 1 << 20);
}
