//! An image on a web server of this process, which misbehaves when a test says so.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use hs_remote::http::{HttpClient, HttpOptions, HttpStore, Patience, RemoteAddress, Timeouts};
use parking_lot::{Condvar, Mutex};

/// How requests are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// After so many milliseconds.
    After(u64),
    /// Not before the manner changes.
    Held,
    /// The connection ends after so many bytes of each answer.
    Cut(usize),
    /// With bytes that were not asked for.
    Elsewhere,
    /// With a status that is final.
    Gone,
}

/// A server of one file. Its threads end with the process.
pub(crate) struct Web {
    address: String,
    file: Vec<u8>,
    state: Mutex<Requests>,
    changed: Condvar,
}

struct Requests {
    manner: Manner,
    /// How many have come.
    came: u64,
    /// How many wait for their answer, and the most that ever did.
    waiting: u64,
    most: u64,
}

impl Web {
    pub(crate) fn serve(file: Vec<u8>) -> Arc<Self> {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}/image.hsi", server.local_addr().expect("an address"));
        let state = Mutex::new(Requests { manner: Manner::After(0), came: 0, waiting: 0, most: 0 });
        let web = Arc::new(Self { address, file, state, changed: Condvar::new() });
        let serving = Arc::clone(&web);
        std::thread::spawn(move || {
            for stream in server.incoming().flatten() {
                let web = Arc::clone(&serving);
                std::thread::spawn(move || {
                    let mut connection = BufReader::new(stream);
                    while web.answer(&mut connection).is_ok_and(|goes_on| goes_on) {}
                });
            }
        });
        web
    }

    /// A store in the file, which gives a silent server up after a tenth of a second.
    pub(crate) fn open(&self) -> HttpStore {
        let stall = Duration::from_millis(100);
        let client = HttpClient::new(Timeouts { connect: Duration::from_secs(10), stall }).expect("a client");
        let pause = Duration::from_millis(1);
        let patience =
            Patience { tries: 40, first_pause: pause, longest_pause: pause, ..Patience::default() };
        let options = HttpOptions { opening_bytes: 4096, patience, ..HttpOptions::default() };
        let address = RemoteAddress::parse(&self.address).expect("an address");
        HttpStore::open(Box::new(address), client, options).expect("opened")
    }

    /// The same with a silent server waited for.
    pub(crate) fn open_patiently(&self) -> HttpStore {
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        let address = RemoteAddress::parse(&self.address).expect("an address");
        HttpStore::open(Box::new(address), client, HttpOptions::default()).expect("opened")
    }

    pub(crate) fn behave(&self, manner: Manner) {
        self.state.lock().manner = manner;
        self.changed.notify_all();
    }

    /// Waits until so many requests wait for their answers.
    pub(crate) fn wait_for_requests(&self, count: u64) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.waiting < count);
    }

    /// Waits until so many requests have come.
    pub(crate) fn wait_until_came(&self, count: u64) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.came < count);
    }

    /// How many requests have come.
    pub(crate) fn came(&self) -> u64 {
        self.state.lock().came
    }

    /// The most requests that waited at once.
    pub(crate) fn most(&self) -> u64 {
        self.state.lock().most
    }

    fn answer(&self, connection: &mut BufReader<TcpStream>) -> std::io::Result<bool> {
        let (mut line, mut range) = (String::new(), None);
        while line != "\r\n" {
            line.clear();
            if connection.read_line(&mut line)? == 0 {
                return Ok(false);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                let (first, last) = value.trim().split_once('-').expect("a range");
                range = Some((first.parse().expect("a number"), last.parse::<usize>().expect("a number")));
            }
        }
        let (first, last): (usize, usize) = range.expect("only ranges are asked for");
        let manner = self.wait();
        let len = self.file.len();
        let last = last.min(len - 1);
        let body = &self.file[first..=last];
        let told = if manner == Manner::Elsewhere { first + 1 } else { first };
        let status = if manner == Manner::Gone { "410 Gone" } else { "206 Partial Content" };
        let head = format!(
            "HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Length: {}\r\nContent-Range: bytes {told}-{last}/{len}\r\n\r\n",
            body.len()
        );
        let stream = connection.get_mut();
        stream.write_all(head.as_bytes())?;
        if let Manner::Cut(most) = manner {
            stream.write_all(&body[..most.min(body.len())])?;
            return Ok(false);
        }
        stream.write_all(body)?;
        Ok(true)
    }

    fn wait(&self) -> Manner {
        let mut state = self.state.lock();
        state.came += 1;
        state.waiting += 1;
        state.most = state.most.max(state.waiting);
        self.changed.notify_all();
        if let Manner::After(millis) = state.manner {
            drop(state);
            // The network's latency.
            std::thread::sleep(Duration::from_millis(millis));
            state = self.state.lock();
        }
        self.changed.wait_while(&mut state, |state| state.manner == Manner::Held);
        state.waiting -= 1;
        state.manner
    }
}
