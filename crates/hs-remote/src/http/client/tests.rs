use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hs_units::ByteRange;
use reqwest::header::HeaderMap;

use super::*;

/// More than connections hold on their way.
const LARGE: usize = 64 << 20;
/// Nothing here takes so long, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn request(server: &TcpListener, bytes: usize) -> Request {
    let url = format!("http://{}/x", server.local_addr().expect("an address")).parse().expect("a URL");
    let range = ByteRange::new(0, bytes as u64);
    Request { url, headers: HeaderMap::new(), range, if_match: None, if_none_match: None, only_head: false }
}

/// Reads one request's head.
fn head(connection: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if connection.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Reads one request's head and answers with this many bytes, as far as they are taken.
fn answer(connection: &mut BufReader<TcpStream>, bytes: usize) -> std::io::Result<()> {
    head(connection)?;
    send(connection, bytes)
}

/// Sends an answer of this many bytes.
fn send(connection: &mut BufReader<TcpStream>, bytes: usize) -> std::io::Result<()> {
    let last = bytes - 1;
    let head =
        format!("HTTP/1.1 206 \r\nContent-Length: {bytes}\r\nContent-Range: bytes 0-{last}/{bytes}\r\n\r\n");
    connection.get_mut().write_all(head.as_bytes())?;
    connection.get_mut().write_all(&vec![7; bytes])
}

fn ask(client: &HttpClient, request: &Request) -> Result<Reply, HttpError> {
    let transport: &dyn Transport = client;
    transport.wait_for(transport.while_open(transport.ask(request)))
}

fn piece(client: &HttpClient, reply: &mut Reply) -> Result<Option<bytes::Bytes>, HttpError> {
    let transport: &dyn Transport = client;
    transport.wait_for(transport.while_open(poll_fn(|context| reply.body.poll_piece(context))))
}

fn accept(server: &TcpListener) -> BufReader<TcpStream> {
    let (connection, _) = server.accept().expect("a connection");
    connection.set_read_timeout(Some(PATIENCE)).expect("set");
    connection.set_write_timeout(Some(PATIENCE)).expect("set");
    BufReader::new(connection)
}

/// The client is not called afterwards.
#[test]
fn who_drops_an_answer_ends_its_transfer() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let request = request(&server, LARGE);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| answer(&mut accept(&server), LARGE));
        let mut reply = ask(&client, &request).expect("answered");
        assert!(piece(&client, &mut reply).expect("some of it").is_some());
        drop(reply);
        let error = serving.join().expect("a server").expect_err("not all of it is taken");
        assert!(
            !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
            "{error}"
        );
    });
}

fn take(client: &HttpClient, request: &Request) {
    let mut reply = ask(client, request).expect("answered");
    let mut bytes = 0;
    while let Some(piece) = piece(client, &mut reply).expect("the next") {
        assert!(piece.iter().all(|byte| *byte == 7));
        bytes += piece.len() as u64;
    }
    assert_eq!(bytes, request.range.len);
}

#[test]
fn every_waiting_thread_gets_its_answer_from_the_thread_that_drives() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let request = request(&server, 300_000);
    let (is_over, connections) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let mut connection = accept(&server);
                if is_over.load(Relaxed) {
                    return;
                }
                connections.fetch_add(1, Relaxed);
                scope.spawn(move || while answer(&mut connection, 300_000).is_ok() {});
            }
        });
        let takers: Vec<_> = (0..8)
            .map(|_| {
                let (client, request) = (Arc::clone(&client), request.clone());
                scope.spawn(move || (0..20).for_each(|_| take(&client, &request)))
            })
            .collect();
        takers.into_iter().for_each(|taker| taker.join().expect("all of it"));
        // Its connections end with the client.
        drop(client);
        is_over.store(true, Relaxed);
        TcpStream::connect(server.local_addr().expect("an address")).expect("connected");
    });
    // A connection whose answer was read serves the next request, unless that comes before the client has
    // seen the end of the answer.
    assert!(connections.into_inner() < 8 * 20, "every request had a connection of its own");
}

/// The status of the answer to a request that may not be repeated.
fn post(client: &HttpClient, to: &Request) -> Result<u16, HttpError> {
    client.exchange(client.requests().post(to.url.clone()).body("")).map(|answer| answer.status)
}

/// As by a server that ends, or that has waited long enough: no thread drives the connections meanwhile.
#[test]
fn a_kept_connection_that_was_closed_meanwhile_costs_no_request() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let request = request(&server, 1);
    std::thread::scope(|scope| {
        // Its end closes the connection.
        let serve_once = || scope.spawn(|| answer(&mut accept(&server), 1).expect("answered"));
        for _ in 0..3 {
            let serving = serve_once();
            take(&client, &request);
            serving.join().expect("a server");
            let serving = serve_once();
            assert_eq!(post(&client, &request).expect("answered"), 206);
            serving.join().expect("a server");
        }
    });
}

/// The server closes connections when a request comes over them.
#[test]
fn a_request_that_fails_on_kept_connections_is_made_again_on_one_of_its_own() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let request = request(&server, 1);
    std::thread::scope(|scope| {
        let three = scope.spawn(|| {
            // None is answered before each has its request.
            let mut three = [(); 3].map(|()| accept(&server));
            three.iter_mut().for_each(|connection| head(connection).expect("a request"));
            three.iter_mut().for_each(|connection| send(connection, 1).expect("sent"));
            three
        });
        let takers = [(); 3].map(|()| scope.spawn(|| take(&client, &request)));
        takers.into_iter().for_each(|taker| taker.join().expect("taken"));
        let three = three.join().expect("three connections");
        let closing = three.map(|mut connection| scope.spawn(move || head(&mut connection)));
        let fourth = scope.spawn(|| {
            let mut connection = accept(&server);
            answer(&mut connection, 1).expect("answered");
            head(&mut connection)
        });
        take(&client, &request);
        for closing in closing {
            closing.join().expect("a server").expect("a request came over it");
        }
        // What may not be repeated is not, and neither is what fails on a connection of its own.
        post(&client, &request).expect_err("closed");
        fourth.join().expect("a server").expect("the request came");
        let fifth = scope.spawn(|| head(&mut accept(&server)));
        ask(&client, &request).map(drop).expect_err("closed");
        fifth.join().expect("a server").expect("the request came");
    });
    server.set_nonblocking(true).expect("set");
    assert!(server.accept().is_err(), "one more connection was made");
}

/// Answers requests with redirects, to the place that each of them names: `/N` leads to `/N-1`, and `/0` is
/// an end.
fn redirects(server: &TcpListener, elsewhere: &str) {
    for stream in server.incoming() {
        let mut connection = BufReader::new(stream.expect("a connection"));
        let mut first = String::new();
        connection.read_line(&mut first).expect("a request");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            connection.read_line(&mut line).expect("a head");
        }
        let place = first.split(' ').nth(1).expect("a place");
        let (status, place) = match place[1..].parse::<u32>() {
            Ok(0) => ("200 OK", String::new()),
            Ok(left) => ("302 Found", format!("Location: /{}\r\n", left - 1)),
            Err(_) if place == "/end" => return,
            Err(_) => ("302 Found", format!("Location: {elsewhere}\r\n")),
        };
        let text = format!("HTTP/1.1 {status}\r\n{place}Content-Length: 0\r\nConnection: close\r\n\r\n");
        connection.get_mut().write_all(text.as_bytes()).expect("answered");
    }
}

/// The status or the error of these places, where every other place leads to `elsewhere`.
fn followed<const N: usize>(places: [&str; N], elsewhere: &str) -> [Result<u16, HttpError>; N] {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let base = format!("http://{}", server.local_addr().expect("an address"));
    std::thread::scope(|scope| {
        scope.spawn(|| redirects(&server, elsewhere));
        let found = places.map(|place| {
            let asked = client.requests().get(format!("{base}{place}"));
            client.exchange(asked).map(|answer| answer.status)
        });
        TcpStream::connect(server.local_addr().expect("an address"))
            .and_then(|mut stream| stream.write_all(b"GET /end HTTP/1.1\r\n\r\n"))
            .expect("ended");
        found
    })
}

#[test]
fn redirects_are_followed_ten_times() {
    let [ten, eleven] = followed(["/10", "/11"], "/");
    assert_eq!(ten.expect("the last is followed"), 200);
    let error = eleven.expect_err("one too many");
    assert!(error.to_string().contains("more than 10 redirects") && !error.is_transient(), "{error}");
}

#[test]
fn a_redirect_leads_to_http_or_https_only() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let [secure] = followed(["/x"], &format!("https://{closed}/"));
    let error = secure.expect_err("no server");
    assert!(error.to_string().contains("no connection") && error.is_transient(), "{error}");
    let [other] = followed(["/x"], &format!("ftp://{closed}/"));
    let error = other.expect_err("another protocol");
    assert!(error.to_string().contains("neither http nor https") && !error.is_transient(), "{error}");
}

#[test]
fn an_error_says_whether_there_was_a_connection() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let request = request(&server, 1);
    let says = || ask(&client, &request).map(drop).expect_err("no answer").to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(accept(&server)));
        let said = says();
        assert!(said.contains("the connection failed"), "{said}");
    });
    drop(server);
    assert!(says().contains("no connection"), "{}", says());
}

#[test]
fn what_is_spawned_runs_while_nothing_waits() {
    let client = HttpClient::new(Timeouts::default()).expect("a client");
    let (done, is_done) = std::sync::mpsc::channel();
    let transport: &dyn Transport = &*client;
    assert!(transport.spawn(Box::pin(async move { done.send(()).expect("heard") })));
    is_done.recv_timeout(PATIENCE).expect("it ran");
}
