//! Bytes as what a fanotify group says, and as the header of a sidecar.

#![no_main]

use hs_serve::self_filling::Header;
use hs_serve::self_filling::event::{Event, EventError, events};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let found: Vec<Result<Event, EventError>> = events(data).collect();
    // An event has at least its metadata, and nothing follows an error.
    assert!(found.len() <= data.len() / 24 + 1);
    assert!(found.iter().rev().skip(1).all(Result::is_ok));
    for event in found.iter().flatten() {
        assert!(event.fd.is_none_or(|fd| fd >= 0));
    }
    let _ = Header::decode(data);
});
