//! `headstart serve` under attack: what a process needs of memory and threads for clients that want to use it
//! up.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use rustix::process::Signal;

use crate::scene::{PATIENCE, Running, Scene, wait_until};
use crate::serve_http::{allow_files, connect_from};

/// A line of what the kernel says of a process: its first number.
fn status_of(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a process with that");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

fn memory_bytes(pid: u32) -> u64 {
    status_of(pid, "VmRSS") << 10
}

/// A server of an image, for NBD clients and with metrics, and where these are.
fn serve(scene: &Scene) -> (Running, String, String) {
    let image = scene.arg("a.hsi");
    let arguments = ["serve", &image, "--unsupervised", "--cache", "16M", "--nbd", "127.0.0.1:0"];
    let mut server = Running::start(arguments.iter().chain(&["--metrics", "127.0.0.1:0"]));
    let (nbd, metrics) = (server.said(), server.said());
    let nbd = nbd.trim().rsplit("nbd://").next().and_then(|rest| rest.split('/').next()).expect("a place");
    let metrics = metrics.trim().rsplit("http://").next().and_then(|rest| rest.split('/').next());
    (server, nbd.to_owned(), metrics.expect("a place").to_owned())
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// A connection that has chosen the only export. Replies are simple.
fn open(address: &str) -> TcpStream {
    let mut stream = connect(address);
    stream.read_exact(&mut [0; 18]).expect("greeted");
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x01a").expect("said");
    stream.read_exact(&mut [0; 10]).expect("opened");
    stream
}

fn ask(stream: &mut TcpStream, offset: u64, len: u32) {
    let head =
        [&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0][..], &[7; 8], &offset.to_be_bytes(), &len.to_be_bytes()];
    stream.write_all(&head.concat()).expect("asked");
}

fn metrics(address: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

fn end(server: Running) {
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert!(status.success(), "{said}");
}

/// 32 of them took 999 MiB.
#[test]
fn nbd_clients_that_ask_and_do_not_read_have_256_mib_together() {
    const MOST_BYTES: u64 = 256 << 20;
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 10_000, 90);
    let (server, nbd, _) = serve(&scene);
    let before = memory_bytes(server.id());
    let mut unread: Vec<TcpStream> = (0..60).map(|_| open(&nbd)).collect();
    for (number, stream) in unread.iter_mut().enumerate() {
        // Little is on its way to a client that does not read.
        rustix::net::sockopt::set_socket_recv_buffer_size(stream.as_fd(), 4096).expect("set");
        // Whole ones, and many small ones.
        let reads = if number % 2 == 0 { [(32 << 20, 1)] } else { [(512 << 10, 40)] };
        for (len, count) in reads {
            (0..count).for_each(|read| ask(stream, read << 19, len));
        }
    }
    let mut honest = open(&nbd);
    let mut most = 0;
    for offset in (0..disk.len() - 300_000).step_by(300_000) {
        ask(&mut honest, offset as u64, 300_000);
        let mut found = vec![0; 16 + 300_000];
        honest.read_exact(&mut found).expect("answered");
        assert!(found[16..] == disk[offset..][..300_000]);
        most = most.max(memory_bytes(server.id()));
    }
    assert!(most.saturating_sub(before) <= MOST_BYTES, "{} MiB", most.saturating_sub(before) >> 20);
    drop((unread, honest));
    end(server);
}

/// 64 answers of each of 16 addresses took 512 MiB.
#[test]
fn http_clients_that_ask_and_do_not_read_have_256_mib_together() {
    const ADDRESSES: u8 = 16;
    const ANSWERS_OF_ADDRESS: u32 = 60;
    /// Beside the room for all: that of each client, connections, and what the allocator makes of it.
    const MOST_BYTES: u64 = (256 + 48) << 20;
    let answers = u32::from(ADDRESSES) * ANSWERS_OF_ADDRESS;
    allow_files(u64::from(answers) + 100);
    let scene = Scene::new();
    scene.image("a.hsi", 10_000, 92);
    let image = fs::read(scene.path("a.hsi")).expect("an image");
    assert!(image.len() > 8 << 20, "one answer is more than sockets and server hold of it");
    let (server, url) = crate::serve_http::serve(&scene, &["a.hsi", "--unsupervised"]);
    let host = url.split('/').nth(2).expect("a host");
    let port = host.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let before = memory_bytes(server.id());
    let ask = |client: u8, unread: bool| {
        let mut stream = connect_from(client, port, unread);
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(b"GET /a.hsi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
        // The head of the answer: it has begun.
        stream.read_exact(&mut [0; 16]).expect("answered");
        stream
    };
    let mut unread = Vec::new();
    for _ in 0..ANSWERS_OF_ADDRESS {
        unread.extend((0..ADDRESSES).map(|client| ask(2 + client, true)));
    }
    // Another client is served.
    let mut answer = Vec::new();
    ask(200, false).read_to_end(&mut answer).expect("answered");
    assert!(answer.ends_with(&image));
    let more = memory_bytes(server.id()).saturating_sub(before);
    assert!(more <= MOST_BYTES, "{} MiB", more >> 20);
    drop(unread);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}

/// A head of 300 MiB took 372 MiB, and 500 connections 397 threads.
#[test]
fn metrics_take_16_mib_whatever_they_are_sent() {
    const MOST_BYTES: u64 = 16 << 20;
    let scene = Scene::new();
    scene.image("a.hsi", 100, 91);
    let (server, _, address) = serve(&scene);
    assert!(metrics(&address).contains("headstart_demand_bytes_total"));
    let (memory, threads) = (memory_bytes(server.id()), status_of(server.id(), "Threads"));
    let mut idle: Vec<TcpStream> = (0..500).map(|_| connect(&address)).collect();
    for stream in &mut idle {
        // It may have given its place up already.
        let _ = stream.write_all(b"G");
    }
    assert!(metrics(&address).contains("headstart_demand_bytes_total"));
    let mut endless = connect(&address);
    let mut sent = endless.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
    let line = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        sent = sent.and_then(|()| endless.write_all(&line));
    }
    assert!(sent.is_err(), "a head of 64 MiB is taken");
    let more = memory_bytes(server.id()).saturating_sub(memory);
    assert!(more <= MOST_BYTES, "{more} bytes");
    assert!(status_of(server.id(), "Threads") <= threads, "threads for connections");
    // What is silent is hung up on; 16 are left of 500, each with its time.
    wait_until("the silent are gone", || {
        idle.iter_mut().all(|stream| {
            stream.set_read_timeout(Some(std::time::Duration::from_millis(1))).expect("set");
            match stream.read(&mut [0; 512]) {
                Ok(read) => read == 0,
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        })
    });
    assert!(metrics(&address).ends_with("# EOF\n"));
    end(server);
}
