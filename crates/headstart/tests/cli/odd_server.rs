//! A web server whose answers are a test's own: what real servers do within the protocol, or beside it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// The bytes of the file; all of it without a range.
    pub(crate) range: Option<Range<usize>>,
    pub(crate) headers: BTreeMap<String, String>,
    /// How many came before.
    pub(crate) number: usize,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// A part of a file, with these fields and a `Content-Range` that ends so.
    pub(crate) fn part(&self, file: &[u8], fields: &str, length: &str) -> Said {
        let range = self.range.clone().unwrap_or(0..file.len());
        let range = range.start..range.end.min(file.len());
        self.bytes(file, range, fields, length)
    }

    /// These bytes of a file.
    pub(crate) fn bytes(&self, file: &[u8], range: Range<usize>, fields: &str, length: &str) -> Said {
        let (first, last) = (range.start, range.end - 1);
        let fields = format!("{fields}Content-Range: bytes {first}-{last}/{length}\r\n");
        Said { status: 206, fields, body: file[range].to_vec() }
    }
}

/// One answer.
pub(crate) struct Said {
    pub(crate) status: u16,
    /// Lines that end in CR LF.
    pub(crate) fields: String,
    pub(crate) body: Vec<u8>,
}

impl Said {
    pub(crate) fn nothing(status: u16, fields: &str) -> Self {
        Self { status, fields: fields.to_owned(), body: Vec::new() }
    }
}

/// One server, which ends when it is dropped.
pub(crate) struct OddServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl OddServer {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (ended, asked) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Asked>>>::default());
        let (ending, noted, answer) = (Arc::clone(&ended), Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ending.load(Relaxed) {
                    return;
                }
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                std::thread::spawn(move || {
                    while serve(&client, &noted, &*answer).is_some() {}
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, ended, asked }
    }

    /// The address of its file.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/odd.hsi", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests that came.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Drop for OddServer {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers one request; nothing when the connection is over.
fn serve(mut client: &TcpStream, noted: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Said) -> Option<()> {
    let mut lines = BufReader::new(client).lines();
    let method = lines.next()?.ok()?.split(' ').next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let line = lines.next()?.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let range = headers.get("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some(first.parse().ok()?..last.parse::<usize>().ok()? + 1)
    });
    let asked = {
        let mut noted = noted.lock().expect("no panic");
        let number = noted.len();
        noted.push(Asked { method, range, headers, number });
        noted[number].clone()
    };
    let Said { status, fields, body } = answer(&asked);
    // The head of an answer to HEAD has the length of what GET would bring.
    let length = if fields.contains("Content-Length") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    client.write_all(format!("HTTP/1.1 {status} -\r\n{fields}{length}\r\n").as_bytes()).ok()?;
    client.write_all(&body).ok()
}
