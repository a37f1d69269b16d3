//! Servers that bring so little that it is no progress.

use super::*;

/// Each response brings one byte before its connection ends. If that were progress, a read of 10,000 bytes
/// would make 10,000 requests, with a pause before each.
#[test]
fn a_byte_now_and_then_is_not_waited_for_for_ever() {
    let server = Faulty::new(contract::noise(100_000, 16));
    let store = opened(&server);
    let before = server.seen();
    server.mishaps(std::iter::repeat_n(Mishap::Cut(1), 20_000));
    store.read_at(80_000, &mut [0; 10_000]).expect_err("too little comes");
    let requests = server.seen() - before;
    assert!(requests < 100, "{requests} requests");
}
