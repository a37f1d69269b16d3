//! A web server of one file that misbehaves, over real connections.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hs_units::Prng;

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// Nothing comes after so many bytes of the body, though the connection stays.
    Stall(usize),
    /// It ends before it has said anything.
    Silence,
    /// This status, and perhaps when to come back.
    Status(u16, Option<u64>),
    /// The whole file instead of a part.
    Whole,
    /// Other bytes than were asked for, and it says so.
    Elsewhere,
    /// A length that contradicts the range.
    WrongLength,
    /// One bit of the body is another.
    Flip(usize),
}

/// The last answers of a server that does not recover: a client that gets one does not ask again.
const FINAL: [(u16, Option<u64>); 4] = [(404, None), (410, None), (403, None), (503, Some(3_600))];

/// How it says which file it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// By an entity tag, and it answers 412 where another was wanted.
    Tag,
    /// By an entity tag; conditions of requests are ignored.
    TagOnly,
    /// By a date alone.
    Date,
}

struct ServerState {
    file: Vec<u8>,
    generation: u64,
    /// The file that takes the place of this one as soon as a request wants something of this range.
    next: Option<(Range<usize>, Vec<u8>)>,
    /// The fault of each request for bytes of this range.
    refused: Option<(Range<usize>, u16, Option<u64>)>,
    faults: Option<Prng>,
    /// Whether faults are such that the client cannot go on as well.
    is_harsh: bool,
    in_a_row: u32,
    seen: u64,
    mishaps: u64,
    /// Bytes of bodies that were sent.
    sent: u64,
    /// Where it stops, in those bytes, until the test lets it go on.
    pause: Option<u64>,
    /// Whether it has come there.
    is_paused: bool,
}

/// One server, which ends when it is dropped.
pub(crate) struct FaultyServer {
    state: Arc<Mutex<ServerState>>,
    ended: Arc<AtomicBool>,
    address: SocketAddr,
}

/// Further tries of a request end at last; so that every request can be answered, no more than so many go
/// wrong one after the other.
const MOST_IN_A_ROW: u32 = 2;

impl FaultyServer {
    /// A server without faults.
    pub(crate) fn start(file: Vec<u8>, identity: Identity) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = ServerState {
            file,
            generation: 1,
            next: None,
            refused: None,
            faults: None,
            is_harsh: false,
            in_a_row: 0,
            seen: 0,
            mishaps: 0,
            sent: 0,
            pause: None,
            is_paused: false,
        };
        let state = Arc::new(Mutex::new(state));
        let ended = Arc::new(AtomicBool::new(false));
        let (accepting, of_clients) = (Arc::clone(&ended), Arc::clone(&state));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&of_clients);
                // A client that goes away in the middle is no fault of the server.
                std::thread::spawn(move || {
                    while answer(&client, &state, identity).is_some() {}
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { state, ended, address }
    }

    /// The address of its file.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/faulty.hsi", self.address)
    }

    /// From now on about every third request goes wrong somehow, which ones and how is drawn from the seed;
    /// `None` ends that. With every fourth seed some of it is such that the client must give up.
    pub(crate) fn misbehave(&self, seed: Option<u64>) {
        let mut state = self.state.lock().expect("no panic");
        state.faults = seed.map(Prng::new);
        state.is_harsh = seed.is_some_and(|seed| seed % 4 == 3);
    }

    /// From now on requests for any part of `range` get this status, and perhaps a time to retry.
    pub(crate) fn refuse(&self, range: Range<usize>, status: u16, again: Option<u64>) {
        self.state.lock().expect("no panic").refused = Some((range, status, again));
    }

    /// From now on one bit of the byte at this offset is another, and the file claims to be the same.
    pub(crate) fn spoil(&self, at: usize) {
        self.state.lock().expect("no panic").file[at] ^= 1;
    }

    /// Another file takes this one's place as soon as something of `range` is asked for.
    pub(crate) fn replace_when_asked(&self, range: Range<usize>, file: Vec<u8>) {
        self.state.lock().expect("no panic").next = Some((range, file));
    }

    /// Stops when it has sent so many bytes more, in the middle of an answer.
    pub(crate) fn pause_after(&self, bytes: u64) {
        let mut state = self.state.lock().expect("no panic");
        state.pause = Some(state.sent + bytes);
        state.is_paused = false;
    }

    /// Whether it has stopped.
    pub(crate) fn is_paused(&self) -> bool {
        self.state.lock().expect("no panic").is_paused
    }

    /// Stops no more.
    pub(crate) fn go_on(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.pause = None;
        state.is_paused = false;
    }

    /// Bytes of bodies that it has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.state.lock().expect("no panic").sent
    }

    /// How many requests came, and how many of them went wrong.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock().expect("no panic");
        (state.seen, state.mishaps)
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl ServerState {
    /// What goes wrong with the next request.
    fn draw(&mut self, range: &Range<usize>) -> Option<Mishap> {
        self.seen += 1;
        if let Some((at, status, again)) = &self.refused
            && at.start < range.end
            && range.start < at.end
        {
            self.mishaps += 1;
            return Some(Mishap::Status(*status, *again));
        }
        let prng = self.faults.as_mut()?;
        if self.in_a_row >= MOST_IN_A_ROW || prng.below(100) >= 35 {
            self.in_a_row = 0;
            return None;
        }
        self.in_a_row += 1;
        self.mishaps += 1;
        if self.is_harsh && prng.below(4) == 0 {
            let (status, again) = FINAL[prng.below(FINAL.len() as u64) as usize];
            return Some(Mishap::Status(status, again));
        }
        let bytes = if prng.below(2) == 0 { prng.below(1_000) } else { prng.below(300_000) } as usize;
        Some(match prng.below(24) {
            0..=6 => Mishap::Cut(bytes),
            7..=9 => Mishap::Silence,
            10..=11 => Mishap::Status(500, None),
            12 => Mishap::Status(502, None),
            13..=14 => Mishap::Status(429, Some(prng.below(2))),
            15..=16 => Mishap::Status(503, Some(0)),
            17 => Mishap::Whole,
            18 => Mishap::Elsewhere,
            19..=20 => Mishap::WrongLength,
            // The client waits twenty seconds for it: once in a while only.
            21 if prng.below(8) == 0 => Mishap::Stall(bytes),
            _ => Mishap::Flip(bytes),
        })
    }

    fn asked_for(&mut self, range: &Range<usize>) {
        if self.next.as_ref().is_some_and(|(at, _)| at.start < range.end && range.start < at.end) {
            let (_, file) = self.next.take().expect("looked at");
            self.file = file;
            self.generation += 1;
        }
    }
}

/// What a request asks for.
#[derive(Default)]
struct Asked {
    range: Option<Range<usize>>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

fn request(client: &TcpStream) -> Option<Asked> {
    let mut asked = Asked::default();
    let mut lines = BufReader::new(client).lines();
    lines.next()?.ok()?;
    loop {
        let line = lines.next()?.ok()?;
        let Some((name, value)) = line.split_once(':') else { return Some(asked) };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                let end = last.parse::<usize>().map_or(usize::MAX, |last| last + 1);
                asked.range = Some(first.parse().ok()?..end);
            }
            "if-match" => asked.if_match = Some(value.to_owned()),
            "if-none-match" => asked.if_none_match = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// Answers one request; `None` when no other will come over this connection.
fn answer(client: &TcpStream, state: &Mutex<ServerState>, identity: Identity) -> Option<()> {
    let asked = request(client)?;
    let (mishap, file, generation, range) = {
        let mut state = state.lock().expect("no panic");
        let range = asked.range.clone().unwrap_or(0..usize::MAX);
        state.asked_for(&range);
        let range = range.start..range.end.min(state.file.len());
        (state.draw(&range), state.file.clone(), state.generation, range)
    };
    let tag = format!("\"{generation}\"");
    let known = match identity {
        Identity::Tag | Identity::TagOnly => format!("ETag: {tag}\r\n"),
        Identity::Date => format!("Last-Modified: Thu, 01 Jan 2026 00:00:{generation:02} GMT\r\n"),
    };
    let bodyless = |status: u16, fields: &str| {
        send(client, format!("HTTP/1.1 {status} -\r\n{fields}Content-Length: 0\r\n\r\n").as_bytes())
    };
    match mishap {
        Some(Mishap::Silence) => return None,
        Some(Mishap::Status(status, again)) => {
            let again = again.map(|again| format!("Retry-After: {again}\r\n"));
            return bodyless(status, &again.unwrap_or_default());
        }
        _ => {}
    }
    if identity == Identity::Tag && asked.if_match.is_some_and(|wanted| wanted != tag) {
        return bodyless(412, &known);
    }
    if asked.if_none_match == Some(tag) {
        return send(client, format!("HTTP/1.1 304 -\r\n{known}\r\n").as_bytes());
    }
    if asked.range.is_none() || matches!(mishap, Some(Mishap::Whole)) {
        let head = format!("HTTP/1.1 200 -\r\n{known}Content-Length: {}\r\n\r\n", file.len());
        send(client, head.as_bytes())?;
        return send(client, &file);
    }
    if range.is_empty() {
        return bodyless(416, &format!("Content-Range: bytes */{}\r\n", file.len()));
    }
    send_part(client, state, &file, range, &known, mishap)
}

fn send_part(
    client: &TcpStream,
    state: &Mutex<ServerState>,
    file: &[u8],
    mut range: Range<usize>,
    known: &str,
    mishap: Option<Mishap>,
) -> Option<()> {
    if matches!(mishap, Some(Mishap::Elsewhere)) {
        range = range.start.saturating_sub(1)..(range.end - 1).max(1);
    }
    let mut body = file[range.clone()].to_vec();
    let length = body.len() + usize::from(matches!(mishap, Some(Mishap::WrongLength)));
    if let Some(Mishap::Flip(at)) = mishap {
        let at = at % body.len();
        body[at] ^= 1 << (at % 8);
    }
    let (first, last, all) = (range.start, range.end - 1, file.len());
    let head = format!(
        "HTTP/1.1 206 -\r\n{known}Content-Range: bytes {first}-{last}/{all}\r\nContent-Length: {length}\r\n\r\n"
    );
    send(client, head.as_bytes())?;
    match mishap {
        Some(Mishap::Cut(after)) => {
            send(client, &body[..after.min(body.len() - 1)])?;
            None
        }
        Some(Mishap::Stall(after)) => {
            send(client, &body[..after.min(body.len() - 1)])?;
            // Until the client goes away.
            request(client);
            None
        }
        Some(Mishap::WrongLength) => {
            send(client, &body)?;
            None
        }
        _ => body.chunks(PIECE_BYTES).try_for_each(|piece| {
            wait_for_pause(state, piece.len() as u64);
            send(client, piece)
        }),
    }
}

/// How much is sent between two looks whether to stop.
const PIECE_BYTES: usize = 4 << 10;

/// Counts bytes that are to be sent, and waits before them where the server is to stop.
fn wait_for_pause(state: &Mutex<ServerState>, bytes: u64) {
    loop {
        let mut state = state.lock().expect("no panic");
        if state.pause.is_none_or(|pause| state.sent + bytes <= pause) {
            state.sent += bytes;
            return;
        }
        state.is_paused = true;
        drop(state);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn send(mut client: &TcpStream, bytes: &[u8]) -> Option<()> {
    client.write_all(bytes).ok()
}
