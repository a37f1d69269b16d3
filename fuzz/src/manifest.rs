//! Bytes as the answer of a registry: a manifest, or a challenge.

use hs_remote::registry::{challenge_of, described};

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let is_challenge = std::str::from_utf8(data).is_ok_and(challenge_of);
    let Ok((blob, _, name)) = described(data) else { return is_challenge };
    assert!(blob.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64), "{blob}");
    assert!(name.is_none_or(|name| data.len() > name.len()));
    true
}
