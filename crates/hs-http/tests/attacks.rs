//! `HttpServer` under attack, each attack tried over sockets: the attacker's connection ends, and an honest
//! client is served.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hs_http::{HttpFile, HttpPage, HttpServeOptions, HttpServer, Rates};
use hs_store::{FileStore, MemoryStore, Store};
use hs_units::ByteRange;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketType};

/// What must happen happens within this, on any machine; what must not, need not be waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The server's, for the test: far less, so that a connection that lives on is told from one that ends.
const SHORT: Duration = Duration::from_millis(300);
const FILE_BYTES: usize = 8 << 20;

fn options() -> HttpServeOptions {
    HttpServeOptions { head_patience: SHORT, answer_patience: SHORT, ..HttpServeOptions::default() }
}

fn file(name: &str, store: Arc<dyn Store>) -> HttpFile {
    HttpFile { name: name.into(), store, tag: "tag".into(), modified: SystemTime::UNIX_EPOCH }
}

fn memory_file() -> HttpFile {
    file("a", Arc::new(MemoryStore::new((0..FILE_BYTES).map(|at| (at >> 8) as u8).collect())))
}

/// A server of these files at a port of all IPv4 addresses of this machine, so that clients may have several.
fn serve(files: Vec<HttpFile>, options: HttpServeOptions) -> (HttpServer, u16) {
    let socket = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    let page = HttpPage {
        name: "page".into(),
        content_type: "text/plain",
        headers: &[],
        text: Arc::new(|_| "made\n".to_owned()),
    };
    let server = HttpServer::start(files, vec![page], vec![OwnedFd::from(socket)], options);
    (server.expect("started"), port)
}

/// A connection from 127.0.0.`client` that receives into a small buffer, so that little is on its way.
fn connect(client: u8, port: u16) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("set");
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, client], 0))).expect("bound");
    rustix::net::connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).expect("connected");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// What the server says until it hangs up, which it must.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        outcome => drop(outcome.expect("the server hangs up")),
    }
    said
}

fn get(client: u8, port: u16, path: &str) -> Vec<u8> {
    let mut stream = connect(client, port);
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("asked");
    rest(stream)
}

fn assert_served(client: u8, port: u16) {
    let said = get(client, port, "/a");
    assert!(said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said[..said.len().min(200)]));
    assert!(said.len() > FILE_BYTES);
}

/// What a client can begin with that is not a request.
const BEGINNINGS: [&[u8]; 7] = [
    b"",
    b"G",
    b"P",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r",
    b"GET /a HTTP/1.1\r\nHost: x\r\n",
    b"GET /a HTTP/1.1\r\nHost: x\r\nX: ",
    b"\r\n",
];

#[test]
fn a_connection_without_a_whole_head_ends_however_it_began() {
    let (_server, port) = serve(vec![memory_file()], options());
    let streams = BEGINNINGS.map(|beginning| {
        let mut stream = connect(1, port);
        stream.write_all(beginning).expect("sent");
        stream
    });
    for stream in streams {
        let said = rest(stream);
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 400"), "{said:?}");
    }
    assert_served(2, port);
}

/// Each byte does not buy time: the limit is for all of the head.
#[test]
fn a_trickled_head_ends() {
    let (_server, port) = serve(vec![memory_file()], options());
    let mut stream = connect(1, port);
    let mut reader = stream.try_clone().expect("cloned");
    let hung_up = std::thread::spawn(move || {
        // Not merely late: that would be another error.
        match reader.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    });
    stream.write_all(b"GET /a HTTP/1.1\r\nX: ").expect("sent");
    while !hung_up.is_finished() {
        // It fails once the server has hung up.
        let _ = stream.write_all(b"x");
        std::thread::sleep(SHORT / 10);
    }
    assert!(hung_up.join().expect("ended"));
}

#[test]
fn an_idle_connection_that_has_asked_ends_too() {
    let (_server, port) = serve(vec![memory_file()], options());
    let mut stream = connect(1, port);
    stream.write_all(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
    let said = rest(stream);
    assert!(said.starts_with(b"HTTP/1.1 200") && said.ends_with(b"made\n"));
}

#[test]
fn http_2_is_not_spoken_in_the_clear() {
    let (_server, port) = serve(vec![memory_file()], options());
    let mut stream = connect(1, port);
    // The preface, and an empty frame of settings.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    let said = rest(stream);
    // Settings of the server would begin with their length and the kind 4.
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 "), "{said:?}");
}

#[test]
fn a_head_is_16_kib_at_most() {
    let (_server, port) = serve(vec![memory_file()], HttpServeOptions::default());
    let mut stream = connect(1, port);
    let head = [b"GET /a HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 390 << 10]].concat();
    // The server may hang up before it is sent.
    let _ = stream.write_all(&head);
    let said = rest(stream);
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 431"), "{said:?}");
    assert_served(1, port);
}

#[test]
fn answers_that_are_not_read_end_and_others_of_the_address_are_served_again() {
    let most = 4;
    let limited = HttpServeOptions { most_answers_of_client: most, ..options() };
    let (_server, port) = serve(vec![memory_file()], limited);
    let unread: Vec<TcpStream> = (0..most)
        .map(|_| {
            let mut stream = connect(1, port);
            stream.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
            // The head of the answer: it has begun.
            stream.read_exact(&mut [0; 16]).expect("answered");
            stream
        })
        .collect();
    let end = std::time::Instant::now() + PATIENCE;
    while !get(1, port, "/a").starts_with(b"HTTP/1.1 200") {
        assert!(std::time::Instant::now() < end, "the answers never end");
    }
    for stream in unread {
        assert!(rest(stream).len() < FILE_BYTES, "it was cut off");
    }
}

/// It takes all the time that it wants, as long as it takes something.
#[test]
fn a_slow_reader_is_not_cut_off() {
    // Much longer than a pause, also on a machine that is late with it, and less than all of them.
    let (patience, pause) = (Duration::from_secs(2), Duration::from_millis(300));
    let patient = HttpServeOptions { answer_patience: patience, head_patience: patience, ..options() };
    let (_server, port) = serve(vec![memory_file()], patient);
    let mut stream = connect(1, port);
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
    let (mut heard, mut piece) = (0, vec![0; 256 << 10]);
    for _ in 0..10 {
        std::thread::sleep(pause);
        stream.read_exact(&mut piece).expect("more");
        heard += piece.len();
    }
    assert!(heard + rest(stream).len() > FILE_BYTES);
}

/// What the server itself is slow with is not held against the client.
#[test]
fn a_client_that_waits_for_a_slow_medium_or_a_limit_is_not_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a"), vec![7; 10_000]).expect("written");
    let store = FileStore::open(folder.path().join("a")).expect("there");
    let gates = hs_conformance::Gates::new(store, &[ByteRange::new(0, 1)]);
    let _opens = gates.open_at_end();
    let (_server, port) = serve(vec![file("slow", gates.clone())], options());
    let waiting = std::thread::spawn(move || get(1, port, "/slow"));
    while gates.waiting(0) == 0 {
        std::thread::yield_now();
    }
    std::thread::sleep(5 * SHORT);
    gates.open(0);
    assert!(waiting.join().expect("ended").ends_with(&[7; 10_000]));

    let rates = Rates { client: Some(4 << 20), together: None };
    let (_server, port) = serve(vec![memory_file()], HttpServeOptions { rates, ..options() });
    assert_served(1, port);
}

#[test]
fn a_client_at_its_limit_of_connections_loses_the_one_that_is_idle_longest() {
    let limited = HttpServeOptions { most_connections_of_client: 8, ..HttpServeOptions::default() };
    let (_server, port) = serve(vec![memory_file()], limited);
    let silent: Vec<TcpStream> = (0..8).map(|_| connect(1, port)).collect();
    assert_served(1, port);
    let first = silent.into_iter().next().expect("eight");
    assert!(rest(first).is_empty());
}

#[test]
fn silent_connections_that_take_all_places_lock_no_other_client_out() {
    let limited = HttpServeOptions { most_connections: 16, ..HttpServeOptions::default() };
    let (server, port) = serve(vec![memory_file()], limited);
    let _silent: Vec<TcpStream> = (0..64).map(|_| connect(1, port)).collect();
    let mut honest = connect(2, port);
    let mut ask = || {
        honest.write_all(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
        let mut said = Vec::new();
        while !said.ends_with(b"made\n") {
            let mut piece = [0; 512];
            let bytes = honest.read(&mut piece).expect("answered");
            assert!(bytes > 0, "hung up on: {}", String::from_utf8_lossy(&said));
            said.extend(&piece[..bytes]);
        }
    };
    ask();
    // It stays, however many come after it.
    let more: Vec<TcpStream> = (0..64).map(|_| connect(1, port)).collect();
    while server.stats(None).connections < 129 {
        std::thread::yield_now();
    }
    ask();
    drop(more);
}

#[test]
fn a_file_whose_medium_hangs_stops_no_other_file() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a"), vec![7; 10_000]).expect("written");
    let store = FileStore::open(folder.path().join("a")).expect("there");
    let gates = hs_conformance::Gates::new(store, &[ByteRange::new(0, 1)]);
    let _opens = gates.open_at_end();
    let files = vec![file("stuck", gates.clone()), memory_file()];
    let (_server, port) = serve(files, HttpServeOptions::default());
    let stuck: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(1, port);
            stream.write_all(b"GET /stuck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
            stream
        })
        .collect();
    while gates.waiting(0) < 16 {
        std::thread::yield_now();
    }
    assert_served(1, port);
    // All of them are answered in the end.
    gates.open(0);
    for stream in stuck {
        assert!(rest(stream).ends_with(&[7; 10_000]));
    }
}

/// Clients of sixteen addresses fill the room of all answers, and take nothing; another one is served.
#[test]
fn clients_that_ask_and_do_not_read_leave_room_for_others() {
    let limited = HttpServeOptions { most_held_bytes: 4 << 20, ..HttpServeOptions::default() };
    let (server, port) = serve(vec![memory_file()], limited);
    let _unread: Vec<TcpStream> = (0..160)
        .map(|number| {
            let mut stream = connect(1 + number % 16, port);
            stream.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
            // The head of the answer: it has begun.
            stream.read_exact(&mut [0; 16]).expect("answered");
            stream
        })
        .collect();
    let (own, shared) = ((17 * 32) << 10, 4 << 20);
    for client in [100, 101, 1] {
        if client > 16 {
            assert_served(client, port);
        }
        let held = server.stats(None).held_bytes;
        assert!(held <= own + shared, "{held} bytes are held");
    }
}
