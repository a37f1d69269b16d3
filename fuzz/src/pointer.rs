//! Any text as a signed pointer, under a key that has not signed it: it must be refused.

use hs_trust::keys::{Key, generate};
use hs_trust::pointer::Pointer;
use std::sync::OnceLock;

/// Whether the input is a signature of a pointer, though not by this key; panics when it is accepted.
pub fn run(data: &[u8]) -> bool {
    static KEY: OnceLock<Key> = OnceLock::new();
    let key = KEY.get_or_init(|| generate(None).expect("random numbers").2);
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let error = Pointer::verify(text, key, "input").expect_err("this key has signed nothing");
    !matches!(error, hs_trust::SigningError::Malformed { .. })
}
