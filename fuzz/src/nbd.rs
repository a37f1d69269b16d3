//! Bytes as messages of an NBD client. The first byte chooses how much of a valid conversation comes before
//! them, since the fuzzer would rarely reach an open export: none, a handshake, or a handshake with
//! structured replies and holes; the use of TLS; and whether the disk can be written. The second byte is the
//! length of the pieces in which everything comes a second time.

use std::sync::Arc;

use hs_nbd::protocol::{
    Event, ExportInfo, MAX_READ_BYTES, MAX_WRITE_BYTES, Protocol, Security, WRITE_PART_BYTES,
};

const DISKS: [u64; 2] = [1 << 40, 5];

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let [mode, piece_bytes, rest @ ..] = data else { return false };
    let mut said = Vec::new();
    if mode % 3 > 0 {
        said.extend([0, 0, 0, 3]);
        if mode % 3 == 2 {
            said.extend(option(8, b""));
            said.extend(option(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation"));
        }
        said.extend(option(7, b"\0\0\0\0\0\x01\0\x03"));
    }
    said.extend(rest);
    // The use of TLS in the handshake.
    let security =
        [Security::Off, Security::Secured, Security::Offered, Security::Required][usize::from(mode / 3) % 4];
    let writable = mode / 12 % 2 == 1;
    let mut whole = conversation(security, writable);
    let expected = events(&mut whole, &said);
    check(&expected);
    let read = expected.iter().any(|event| matches!(event, Event::Read { .. }));
    if matches!(security, Security::Offered | Security::Required) {
        // Here it matters what has come together: nothing may follow a request for TLS.
        return read;
    }
    let mut cut = conversation(security, writable);
    let pieces = said.chunks(usize::from(*piece_bytes).max(1));
    let mut found = events(&mut cut, b"");
    found.extend(pieces.flat_map(|piece| events(&mut cut, piece)));
    assert_eq!(found, expected);
    read
}

fn conversation(security: Security, writable: bool) -> Protocol {
    let export = |bytes: &u64| ExportInfo {
        name: bytes.to_string(),
        description: "x".into(),
        bytes: *bytes,
        writable,
    };
    Protocol::new(Arc::from(DISKS.iter().map(export).collect::<Vec<_>>()), security)
}

fn events(protocol: &mut Protocol, bytes: &[u8]) -> Vec<Event> {
    protocol.handle_bytes(bytes);
    std::iter::from_fn(|| protocol.poll()).collect()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// Each event can be carried out.
fn check(events: &[Event]) {
    let mut disk_bytes = None;
    let mut ended = false;
    for event in events {
        assert!(!ended, "nothing follows the end");
        match event {
            Event::Send(bytes) => assert!(!bytes.is_empty()),
            Event::StartTls => assert!(disk_bytes.is_none()),
            Event::Opened(export) => {
                assert!(disk_bytes.is_none());
                disk_bytes = Some(DISKS[*export]);
            }
            Event::Read { request, .. } => {
                assert!(request.len <= MAX_READ_BYTES);
                lies_within(request.offset, request.len, disk_bytes);
            }
            Event::Write { request, offset, bytes, .. } => {
                assert!(request.len <= MAX_WRITE_BYTES && bytes.len() <= WRITE_PART_BYTES as usize);
                lies_within(*offset, bytes.len() as u32, disk_bytes);
                let end = request.offset + u64::from(request.len);
                assert!(*offset >= request.offset && offset + bytes.len() as u64 <= end);
            }
            Event::Flush(_) => assert!(disk_bytes.is_some()),
            Event::Allocation { request, .. } | Event::Cache(request) | Event::Zero { request, .. } => {
                lies_within(request.offset, request.len, disk_bytes);
            }
            Event::Ended(_) => ended = true,
        }
    }
}

fn lies_within(offset: u64, len: u32, disk_bytes: Option<u64>) {
    let disk_bytes = disk_bytes.expect("an export is open");
    assert!(len > 0 && offset.checked_add(len.into()).is_some_and(|end| end <= disk_bytes));
}
