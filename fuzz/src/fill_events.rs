//! Bytes as what a fanotify group says, and as the header of a sidecar.

use hs_fill::Header;
use hs_fill::event::{Event, EventError, events};

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let found: Vec<Result<Event, EventError>> = events(data).collect();
    // An event has at least its metadata, and nothing follows an error.
    assert!(found.len() <= data.len() / 24 + 1);
    assert!(found.iter().rev().skip(1).all(Result::is_ok));
    for event in found.iter().flatten() {
        assert!(event.fd.is_none_or(|fd| fd >= 0));
    }
    Header::decode(data).is_ok() || !found.is_empty() && found.iter().all(Result::is_ok)
}
