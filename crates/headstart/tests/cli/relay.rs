//! A relay between the program and a server: it records requests, and holds back those that a test chooses.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use parking_lot::Mutex;

/// Which requests are kept back, by the first line of each.
type Rule = Box<dyn FnMut(&str) -> bool + Send>;

#[derive(Default)]
struct Traffic {
    lines: Vec<String>,
    held: usize,
}

/// Beginnings of a request's first line.
const METHODS: [&[u8]; 6] = [b"GET /", b"HEAD /", b"PUT /", b"POST /", b"PATCH /", b"DELETE /"];

pub(crate) struct Relay {
    pub(crate) port: u16,
    seen: Arc<Mutex<Traffic>>,
    rule: Arc<Mutex<Rule>>,
    answers: Arc<Answers>,
}

/// What comes from the server.
#[derive(Default)]
pub(crate) struct Answers {
    /// Pieces that have come.
    pub(crate) seen: AtomicUsize,
    /// While a test holds it, nothing is passed on.
    pub(crate) gate: Mutex<()>,
}

impl Relay {
    /// Hands connections on to this port. A request that `rule` chooses never gets there: it waits until its
    /// client is gone.
    pub(crate) fn start(to: u16, rule: impl FnMut(&str) -> bool + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Traffic::default()));
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Box::new(rule)));
        let (all_seen, rules) = (Arc::clone(&seen), Arc::clone(&rule));
        let answers = Arc::<Answers>::default();
        let all_answers = Arc::clone(&answers);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                // The server may be about to start again.
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (from_server, to_client) =
                    (server.try_clone().expect("one"), client.try_clone().expect("one"));
                let answers = Arc::clone(&all_answers);
                thread::spawn(move || pass_answers(from_server, to_client, &answers));
                let (seen, rule) = (Arc::clone(&all_seen), Arc::clone(&rules));
                thread::spawn(move || pass(client, server, &seen, &rule));
            }
        });
        Self { port, seen, rule, answers }
    }

    /// Keeps back what this chooses, from now on.
    pub(crate) fn hold(&self, rule: impl FnMut(&str) -> bool + Send + 'static) {
        *self.rule.lock() = Box::new(rule);
    }

    pub(crate) fn answers(&self) -> Arc<Answers> {
        Arc::clone(&self.answers)
    }

    /// How many requests are, or were, kept back.
    pub(crate) fn held(&self) -> usize {
        self.seen.lock().held
    }

    /// The first lines of all requests since this was asked last, with the range that each asks for.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().lines)
    }
}

fn pass_answers(mut server: TcpStream, mut client: TcpStream, answers: &Answers) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        answers.seen.fetch_add(1, SeqCst);
        let _passes = answers.gate.lock();
        if client.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// The range that a request asks for, behind a space; or nothing.
fn range_of(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let mut lines = head.split("\r\n");
    lines
        .find_map(|line| line.strip_prefix("range: bytes="))
        .map(|range| format!(" {range}"))
        .unwrap_or_default()
}

fn pass(mut client: TcpStream, mut server: TcpStream, seen: &Mutex<Traffic>, rule: &Mutex<Rule>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = client.read(&mut buffer) {
        // A request begins when the answer to the one before has come, so its head begins a read.
        let first = buffer[..read].split(|byte| *byte == b'\r').next().unwrap_or_default();
        if METHODS.iter().any(|method| first.starts_with(method)) {
            let line = String::from_utf8_lossy(first).into_owned();
            let is_held = rule.lock()(&line);
            let mut seen = seen.lock();
            seen.lines.push(line + &range_of(&buffer[..read]));
            seen.held += usize::from(is_held);
            drop(seen);
            if is_held {
                let _ = std::io::copy(&mut client, &mut std::io::sink());
                break;
            }
        }
        if read == 0 || server.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
