//! Clients of a server with TLS that do not use it, or not correctly.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use hs_conformance::Sample;
use hs_serve::{Prefetching, ServeConfig};
use hs_store::FileStore;

use crate::certificates;
use crate::fronts::{Front, Shown};
use crate::nbd_client::{NbdClient, ask_for_tls, greet};

/// A record that says that a handshake message of so many bytes follows (RFC 8446, 5.1).
const HALF_A_HANDSHAKE: [u8; 5] = [22, 3, 1, 2, 0];

fn show(sample: &Sample) -> Option<Shown> {
    if !certificates::are_to_be_had() {
        return None;
    }
    let store = FileStore::open(sample.path("cold.hsi")).expect("there");
    let config = ServeConfig { prefetching: Prefetching::Off, ..ServeConfig::default() };
    Some(Front::NbdTls.show(Arc::new(store), &config))
}

fn check(shown: &Shown, sample: &Sample) {
    let found = shown.reader().read(70_001, 90_001).expect("read");
    assert!(found == sample.disk[70_001..][..90_001]);
}

/// What is said until the end.
fn rest(stream: &mut UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    // Reset, when the server has hung up on what it has not read.
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn in_the_clear_nothing_is_told() {
    let sample = Sample::new(40);
    let Some(shown) = show(&sample) else { return };
    let refused = NbdClient::open(&shown.socket(), "disk", false).err().expect("refused").to_string();
    assert!(refused.contains("0x80000005"), "TLS is required: {refused}");
    // By the old option there is no other answer.
    let mut old = greet(&shown.socket()).expect("connected");
    old.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk").expect("sent");
    assert!(rest(&mut old).is_empty());
    check(&shown, &sample);
}

/// Bytes that an attacker puts behind the request for TLS would count as the client's, were they kept.
#[test]
fn what_comes_with_the_request_for_tls_is_not_taken_for_the_clients() {
    let sample = Sample::new(41);
    let Some(shown) = show(&sample) else { return };
    let go = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    for injected in [&go[..], &HALF_A_HANDSHAKE, b"x"] {
        let mut client = greet(&shown.socket()).expect("connected");
        let said = [b"IHAVEOPT\0\0\0\x05\0\0\0\0", injected].concat();
        client.write_all(&said).expect("sent");
        // At most the answer to the request, and the end.
        assert!(rest(&mut client).len() <= 20);
    }
    check(&shown, &sample);
}

#[test]
fn who_does_not_speak_tls_after_all_is_hung_up_on_and_the_silent_hold_nobody() {
    let sample = Sample::new(42);
    let Some(mut shown) = show(&sample) else { return };
    for garbage in [b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0".to_vec(), vec![0xa5; 3000], vec![0; 64]] {
        let mut client = ask_for_tls(&shown.socket()).expect("connected");
        client.write_all(&garbage).expect("sent");
        // An alert is a record of kind 21.
        let said = rest(&mut client);
        assert!(said.is_empty() || said[0] == 21, "{said:?}");
    }
    let silent = ask_for_tls(&shown.socket()).expect("connected");
    let mut half = ask_for_tls(&shown.socket()).expect("connected");
    half.write_all(&HALF_A_HANDSHAKE).expect("sent");
    check(&shown, &sample);
    shown.server().stop();
    assert_eq!(shown.server().stats().connected, 0);
    drop((silent, half));
}

/// A client under TLS that asks for much and reads nothing delays only itself, as one in the clear.
#[test]
fn who_does_not_read_his_records_holds_only_himself() {
    let sample = Sample::new(43);
    let Some(mut shown) = show(&sample) else { return };
    let config = certificates::client_config();
    let mut slow = NbdClient::open_tls(&shown.socket(), "disk", &config).expect("connected");
    for _ in 0..200 {
        slow.ask(0, 0, 0, 4 << 20).expect("sent");
    }
    for _ in 0..20 {
        check(&shown, &sample);
    }
    shown.server().stop();
    let asked = shown.disk().stats().demand_bytes;
    assert!(asked < 14 << 20, "{asked}");
}
