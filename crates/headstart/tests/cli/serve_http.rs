//! `headstart serve --http`: read by our own client, and by nginx as a proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::nbd_tls::certificates;
use crate::scene::{Ran, Running, Scene, machine_has, run};
use crate::web::{NGINX, Nginx, remote, run_remote};

/// A server at work, and where it says that its first image is.
pub(crate) fn serve(scene: &Scene, arguments: &[&str]) -> (Running, String) {
    // Whole paths, so that the scene knows the server as its own and ends it when the test fails.
    let paths: Vec<String> = arguments
        .iter()
        .map(|word| match word.split_once('=') {
            Some((name, file)) if file.ends_with(".hsi") => format!("{name}={}", scene.arg(file)),
            None if word.ends_with(".hsi") => scene.arg(word),
            _ => (*word).to_owned(),
        })
        .collect();
    let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
    let arguments = &arguments[..];
    let all = [&["serve"], arguments, &["--http", "127.0.0.1:0", "--json"]].concat();
    let mut running = Running::start_command(remote(scene, all));
    let line = running.said();
    let address = line.trim().rsplit(' ').next().expect("words");
    let (url, name) = address.split_once('#').expect("an address with the image's name");
    assert!(url.starts_with("http") && name.starts_with("hs1-"), "{line}");
    (running, url.to_owned())
}

fn name_of(scene: &Scene, image: &str) -> String {
    run(["verify", &scene.arg(image)]).ok().stdout.lines().last().expect("a name").to_owned()
}

/// Says this to the server, and hears all of the answer.
fn ask(url: &str, request: &str) -> String {
    let host = url.split('/').nth(2).expect("a host");
    let mut stream = TcpStream::connect(host).expect("connected");
    stream.write_all(request.as_bytes()).expect("said");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("heard");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn images_are_served_and_read_again() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 500, 1);
    let name = name_of(&scene, "a.hsi");
    fs::write(scene.path("stable.minisig"), "a pointer\n").expect("written");
    let (server, url) = serve(
        &scene,
        &["a.hsi", "b=a.hsi", "--channel", "stable.minisig", "--access-log", "log", "--unsupervised"],
    );
    let port = url.split(':').nth(2).and_then(|rest| rest.split('/').next()).expect("a port");
    let proxy = Nginx::start(&scene, &format!("location / {{ proxy_pass http://127.0.0.1:{port}; }}"));
    for url in [&url, &proxy.url("b.hsi")] {
        let named = format!("{url}#{name}");
        let export = ["export", &named, "-o", "out.raw", "--format", "raw", "--force", "--disk-cache=none"];
        run_remote(&scene, &export).ok();
        assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    }
    let answer = ask(&url, "GET /stable.minisig HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("a pointer\n"), "{answer}");
    let answer = ask(&url, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains(&format!("/a.hsi {}", fs::metadata(scene.path("a.hsi")).expect("there").len())));
    let answer = ask(&url, "HEAD /a.hsi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains(&format!("etag: \"{name}\"")) && answer.ends_with("\r\n\r\n"), "{answer}");
    for method in ["PUT", "POST", "DELETE"] {
        let answer = ask(
            &url,
            &format!("{method} /a.hsi HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        );
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
    for path in ["/../a.hsi", "/%2e%2e/a.hsi", "/disk.raw", "//a.hsi"] {
        let answer = ask(&url, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    assert!(ask(&url, "no HTTP at all\r\n\r\n").starts_with("HTTP/1.1 400"));

    let status = run(["status", "--json"]).ok().json();
    let of_a = |status: &serde_json::Value| {
        let all = status["mounts"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|one| one["nbd"].as_str().is_some_and(|at| at.contains(port))).count()
    };
    assert_eq!(of_a(&status), 2, "{status}");
    server.signal(Signal::INT);
    let (code, printed, said) = server.end();
    assert_eq!(code.code(), Some(0), "{said}");
    let totals: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let log = fs::read_to_string(scene.path("log")).expect("a log");
    assert_eq!(totals["http_requests"].as_u64(), Some(log.lines().count() as u64), "{totals}\n{log}");
    assert!(totals["http_sent_bytes"].as_u64() > Some(500_000), "{totals}");
    assert!(
        log.lines().any(|line| line.contains("\"GET /a.hsi HTTP/1.1\" 206") && line.contains("bytes=0-")),
        "{log}"
    );
}

#[test]
fn a_server_that_is_killed_is_replaced_at_the_same_port() {
    let scene = Scene::new();
    scene.image("a.hsi", 100, 2);
    let name = name_of(&scene, "a.hsi");
    let (server, url) = serve(&scene, &["a.hsi"]);
    let status = run(["status", "--json"]).ok().json();
    let all = status["mounts"].as_array().cloned().unwrap_or_default();
    let at = |one: &&serde_json::Value| one["nbd"].as_str() == Some(&url);
    let pid = all.iter().find(at).expect("told of")["pid"].as_i64().expect("a process") as i32;
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, Signal::KILL).expect("killed");
    run_remote(&scene, &["verify", &format!("{url}#{name}"), "--disk-cache=none"]).ok();
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn with_tls_it_is_read_by_who_trusts_the_authority_and_by_nobody_else() {
    if !crate::scene::has_tools(&["certtool"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 200, 3);
    let name = name_of(&scene, "a.hsi");
    let pki = certificates(&scene, "pki");
    certificates(&scene, "other");
    let (server, url) = serve(&scene, &["a.hsi", "--unsupervised", "--tls-certificates", &pki]);
    let url = format!("{}#{name}", url.replace("127.0.0.1", "localhost"));
    assert!(url.starts_with("https://"));
    let export = ["export", &url, "-o", "out.raw", "--format", "raw", "--disk-cache=none"];
    let as_one_who_trusts = |file: &str| -> Ran {
        let mut command = remote(&scene, export);
        command.env("SSL_CERT_FILE", scene.path(file)).output().expect("the program starts").into()
    };
    as_one_who_trusts("pki/ca-cert.pem").ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    fs::remove_file(scene.path("out.raw")).expect("removed");
    as_one_who_trusts("other/ca-cert.pem").fails(1, &["certificate"]);
    // Nor is anything to be had in the clear.
    assert!(
        ask(&url, "GET /a.hsi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").find("200 OK").is_none()
    );
    server.signal(Signal::INT);
    assert_eq!(server.end().0.code(), Some(0));
}

/// Resident memory of a process.
fn memory_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process with memory");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number");
    kib << 10
}

/// Lets this process, and those that it starts, open so many files more than they may now.
pub(crate) fn allow_files(more: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = current.map(|current| (current + more).min(maximum.unwrap_or(u64::MAX)));
    setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum }).expect("no more than is allowed");
}

/// A connection from 127.0.0.`client`, which no program that another test starts has as well. One that is not
/// to be read from receives into a small buffer, so that little is on its way.
pub(crate) fn connect_from(client: u8, port: u16, is_unread: bool) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    if is_unread {
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("set");
    }
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, client], 0))).expect("bound");
    rustix::net::connect(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).expect("connected");
    TcpStream::from(socket)
}

#[test]
fn idle_connections_take_little_memory() {
    /// A task, hyper's buffers, and what the allocator makes of it; the sockets are the kernel's.
    const MOST_BYTES_EACH: u64 = 48 << 10;
    const CONNECTIONS: u64 = 1000;
    allow_files(2 * CONNECTIONS);
    let scene = Scene::new();
    scene.image("a.hsi", 500, 4);
    let (server, url) = serve(&scene, &["a.hsi", "--unsupervised"]);
    let host = url.split('/').nth(2).expect("a host");
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /a.hsi HTTP/1.1\r\nHost: x\r\nRange: bytes=0-0\r\n\r\n").expect("said");
        let mut heard = Vec::new();
        let mut piece = [0; 4096];
        // The head, and the one byte behind it.
        while !heard.iter().rev().skip(1).take(4).eq(b"\n\r\n\r") {
            let bytes = stream.read(&mut piece).expect("heard");
            assert!(bytes > 0, "{}", String::from_utf8_lossy(&heard));
            heard.extend(&piece[..bytes]);
        }
        assert!(heard.starts_with(b"HTTP/1.1 206"), "{}", String::from_utf8_lossy(&heard));
    };
    // An address may have 256 of them.
    let port = host.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let connect = |number: u64| connect_from(2 + (number % 8) as u8, port, false);
    let mut first = connect(0);
    ask(&mut first);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("a process");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("listed");
    let [soft, hard] = [0, 1].map(|place| files.split_whitespace().nth(place));
    assert_eq!(soft, hard, "as many connections as there may be");
    let before = memory_bytes(server.id());
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    connections.iter_mut().for_each(ask);
    let more = memory_bytes(server.id()).saturating_sub(before);
    assert!(more <= CONNECTIONS * MOST_BYTES_EACH, "{more} bytes more");
    // They are still of use, all of them.
    connections.iter_mut().for_each(ask);
    drop(connections);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}

/// As under LimitNOFILE=128: a connection is two descriptors, and everything else needs some too.
#[test]
fn connections_fit_into_the_limit_of_open_files() {
    let scene = Scene::new();
    scene.image("a.hsi", 100, 6);
    let image = scene.arg("a.hsi");
    let words = ["serve", &image, "--unsupervised", "--http", "0.0.0.0:0"];
    let mut command = remote(&scene, words);
    // SAFETY: the closure makes one system call, which is allowed after fork.
    unsafe {
        command.pre_exec(|| {
            use rustix::process::{Resource, Rlimit, setrlimit};
            Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: Some(128) })?)
        });
    }
    let mut server = Running::start_command(command);
    let warning = server.said();
    assert!(warning.contains("HTTP connections at once instead of 4096"), "{warning}");
    assert!(warning.contains("128 open files"), "{warning}");
    let url = server.said();
    let port = url.trim().rsplit(':').next().and_then(|rest| rest.split('/').next()?.parse().ok());
    let port = port.expect("a port");
    let silent: Vec<TcpStream> = (0..200).map(|_| connect_from(2, port, false)).collect();
    let mut honest = connect_from(3, port, false);
    honest.write_all(b"GET /a.hsi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("said");
    let mut answer = Vec::new();
    honest.read_to_end(&mut answer).expect("heard");
    assert!(answer.ends_with(&fs::read(scene.path("a.hsi")).expect("an image")));
    // Files are left for everything else.
    let open = fs::read_dir(format!("/proc/{}/fd", server.id())).expect("a process").count();
    assert!(open <= 100, "{open} of 128 descriptors are taken");
    drop(silent);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}

/// logrotate(8) moves the log away and says SIGHUP, and so does what renews certificates.
#[test]
fn a_hangup_opens_the_log_and_reads_the_certificates_again() {
    if !crate::scene::has_tools(&["certtool"]) {
        return;
    }
    let scene = Scene::new();
    scene.image("a.hsi", 100, 7);
    let pki = certificates(&scene, "pki");
    certificates(&scene, "renewed");
    let (image, log) = (scene.arg("a.hsi"), scene.arg("log"));
    let words = ["serve", &image, "--http", "127.0.0.1:0", "--tls-certificates", &pki, "--access-log", &log];
    let mut command = remote(&scene, words);
    // SAFETY: the closure makes one system call, which is allowed after fork.
    unsafe {
        // With a terminal a hangup is the end.
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    let mut server = Running::start_command(command);
    let said = server.said();
    let url = said.trim().rsplit(' ').next().expect("an address").replace("127.0.0.1", "localhost");
    let verify = |authority: &str| -> Ran {
        let mut command = remote(&scene, ["verify", &url, "--disk-cache=none"]);
        command.env("SSL_CERT_FILE", scene.path(authority)).output().expect("the program starts").into()
    };
    verify("pki/ca-cert.pem").ok();
    // As certificates are renewed, and logs rotated: other files by the same names.
    for file in ["server-cert.pem", "server-key.pem"] {
        fs::rename(scene.path("renewed").join(file), scene.path("pki").join(file)).expect("renewed");
    }
    fs::rename(scene.path("log"), scene.path("log.1")).expect("rotated");
    verify("pki/ca-cert.pem").ok();
    server.signal(Signal::HUP);
    crate::scene::wait_until("the log is made again", || scene.path("log").exists());
    crate::scene::wait_until("the new certificate is shown", || {
        verify("renewed/ca-cert.pem").code == Some(0)
    });
    verify("pki/ca-cert.pem").fails(1, &["certificate"]);
    let log = |name: &str| fs::read_to_string(scene.path(name)).expect("a log").contains("GET /a.hsi");
    // A line is written a moment after its answer.
    crate::scene::wait_until("both logs have lines", || log("log") && log("log.1"));
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn a_limit_of_clients_is_kept_and_changes_no_byte() {
    let scene = Scene::new();
    scene.image("a.hsi", 500, 5);
    let image = fs::read(scene.path("a.hsi")).expect("an image");
    let rate = image.len() as u64 / 2;
    let limits = ["--client-rate", &rate.to_string(), "--http-rate", "10M"];
    let (server, url) = serve(&scene, &[&["a.hsi", "--unsupervised"][..], &limits].concat());
    let host = url.split('/').nth(2).expect("a host");
    let began = std::time::Instant::now();
    let mut stream = TcpStream::connect(host).expect("connected");
    stream.write_all(b"GET /a.hsi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("said");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("heard");
    assert!(answer.ends_with(&image), "the bytes are those of the image");
    // Two seconds, less the last piece, which is sent when its time begins.
    assert!(began.elapsed().as_secs_f64() > 1.9, "it took {:?}", began.elapsed());
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}
