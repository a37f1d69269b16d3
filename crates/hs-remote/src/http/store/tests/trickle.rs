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

/// The same of a server whose answers are well but say that they bring less than was asked for. Answers that
/// bring some progress are as good as one long one.
#[test]
fn short_answers_have_an_end_unless_they_bring_progress() {
    let server = Faulty::new(contract::noise(1_000_000, 16));
    let clock = Arc::<Virtual>::default();
    let patience = Patience::within(std::time::Duration::from_secs(6));
    let store = open_with(&server, HttpOptions { patience, ..options(&clock) }).expect("opened");
    server.mishaps(std::iter::repeat_n(Mishap::Less(1), 20_000));
    let before = (server.seen(), clock.now());
    let error = store.read_at(80_000, &mut [0; 10_000]).expect_err("too little comes").with_causes();
    assert!(error.contains("the answer ended after 1 of"), "{error}");
    assert!(server.seen() - before.0 < 20, "{} requests", server.seen() - before.0);
    assert!(clock.now().saturating_sub(before.1) <= Nanos::from(patience.total), "{}", clock.now());

    server.behave();
    let before = clock.now();
    server.mishaps(std::iter::repeat_n(Mishap::Less(PROGRESS_BYTES), 20_000));
    let mut bytes = vec![0; 900_000];
    store.read_at(100_000, &mut bytes).expect("piece by piece");
    assert!(bytes == server.bytes()[100_000..]);
    assert_eq!(clock.now(), before, "without a pause");
    // Some of the way is short: it goes on after pauses, as after a cut.
    server.behave();
    server.mishaps(std::iter::repeat_n(Mishap::Less(PROGRESS_BYTES / 2), 20_000));
    store.read_at(100_000, &mut bytes).expect("piece by piece");
    assert!(bytes == server.bytes()[100_000..]);
}
