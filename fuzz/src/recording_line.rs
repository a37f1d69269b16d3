//! What a machine says on the line by which it records itself, in pieces of any size: the first byte is the
//! size. What is understood does not depend on it.

use hs_start::recording_line::{Listener, Said};

/// Whether a profile came; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Some((&size, bytes)) = data.split_first() else { return false };
    let hear = |size: usize| -> (Vec<Said>, bool) {
        let mut listener = Listener::default();
        let said = bytes.chunks(size).flat_map(|piece| listener.feed(piece)).collect();
        (said, listener.is_receiving())
    };
    let (said, is_receiving) = hear(usize::from(size).max(1));
    assert_eq!((&said, is_receiving), (&hear(bytes.len().max(1)).0, hear(1).1));
    let profiles = said.iter().filter_map(|said| match said {
        Said::Profile(profile) => Some(profile.len()),
        _ => None,
    });
    // None comes whose bytes have not.
    let (count, total) = profiles.fold((0, 0), |(count, total), bytes| (count + 1, total + bytes));
    assert!(total <= bytes.len());
    count > 0
}
