use proptest::prelude::*;

use super::*;

const DISK: u64 = 1 << 20;

fn exports() -> Arc<[ExportInfo]> {
    [("a", DISK), ("b", 5)]
        .map(|(name, bytes)| ExportInfo {
            name: name.to_owned(),
            description: "about".to_owned(),
            bytes,
            writable: false,
        })
        .into()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A name with its length, and so many information requests.
fn go(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((kinds.len() as u16).to_be_bytes());
    kinds.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
    option(wire::option::GO, &data)
}

fn contexts(number: u32, export: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut text = |text: &str| {
        data.extend((text.len() as u32).to_be_bytes());
        data.extend(text.as_bytes());
    };
    text(export);
    let count = (queries.len() as u32).to_be_bytes();
    queries.iter().for_each(|query| text(query));
    let at = 4 + export.len();
    data.splice(at..at, count);
    option(number, &data)
}

fn request(flags: u16, command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = wire::REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

const HELLO: [u8; 4] = [0, 0, 0, 3];

/// Everything that comes of these bytes.
fn events(protocol: &mut Protocol, bytes: &[u8]) -> Vec<Event> {
    protocol.handle_bytes(bytes);
    std::iter::from_fn(|| protocol.poll()).collect()
}

fn all(pieces: &[Vec<u8>]) -> Vec<Event> {
    let mut protocol = Protocol::new(exports(), Security::Off);
    let bytes: Vec<u8> = HELLO.into_iter().chain(pieces.concat()).collect();
    let events = events(&mut protocol, &bytes);
    assert!(matches!(&events[0], Event::Send(greeting) if greeting.starts_with(b"NBDMAGICIHAVEOPT\0\x03")));
    events[1..].to_vec()
}

/// Kinds of the replies to options in these bytes.
fn kinds(event: &Event) -> Vec<u32> {
    let Event::Send(mut bytes) = event.clone() else { panic!("{event:?}") };
    let mut kinds = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
        kinds.push(u32::from_be_bytes(bytes[12..16].try_into().expect("four")));
        let length = u32::from_be_bytes(bytes[16..20].try_into().expect("four"));
        bytes.drain(..20 + length as usize);
    }
    kinds
}

fn structured() -> Vec<u8> {
    option(wire::option::STRUCTURED_REPLY, b"")
}

#[test]
fn a_usual_handshake_opens_an_export() {
    let events = all(&[
        structured(),
        contexts(wire::option::SET_META_CONTEXT, "a", &["base:allocation", "other:thing"]),
        go("a", &[1, 2, 3, 3, 99]),
        request(0, 0, 7, 4096, 10),
        request(8, 7, 8, 0, 1 << 20),
        request(0, 5, 9, 0, 4096),
        request(0, 2, 10, 0, 0),
    ]);
    use wire::option_reply::{ACK, INFO, META_CONTEXT};
    assert_eq!(kinds(&events[0]), [ACK]);
    assert_eq!(kinds(&events[1]), [META_CONTEXT, ACK]);
    assert_eq!(kinds(&events[2]), [INFO, INFO, INFO, INFO, ACK]);
    assert_eq!(events[3], Event::Opened(0));
    let of = |cookie, offset, len| Request { reply: Reply { cookie, structured: true }, offset, len };
    assert_eq!(events[4], Event::Read { request: of(7, 4096, 10), uncut: false });
    assert_eq!(events[5], Event::Allocation { request: of(8, 0, 1 << 20), one: true });
    assert_eq!(events[6], Event::Cache(of(9, 0, 4096)));
    assert_eq!(events[7..], [Event::Ended(End::Done)]);
}

#[test]
fn the_empty_name_is_the_first_export_and_unknown_ones_are_none() {
    let events = all(&[go("c", &[]), go("", &[])]);
    assert_eq!(kinds(&events[0]), [wire::option_reply::ERR_UNKNOWN]);
    assert_eq!(events[2], Event::Opened(0));
    let events = all(&[option(wire::option::EXPORT_NAME, b"b")]);
    // Size, flags, and no zeros, as the client has said that it needs none.
    assert_eq!(events[0], Event::Send([&5_u64.to_be_bytes()[..], &[0x05, 0x03]].concat()));
    assert_eq!(events[1], Event::Opened(1));
    assert_eq!(all(&[option(wire::option::EXPORT_NAME, b"c")]), [Event::Ended(End::NoSuchExport)]);
}

#[test]
fn options_that_make_no_sense_are_answered_and_forgotten() {
    use wire::option_reply::{ACK, ERR_INVALID, ERR_TOO_BIG, ERR_UNSUP, SERVER};
    let big = vec![0; MAX_OPTION_BYTES as usize + 1];
    let events = all(&[
        option(5, b""),
        option(wire::option::LIST, b"x"),
        option(wire::option::LIST, b""),
        option(wire::option::GO, b"\0\0\0\x09a"),
        option(wire::option::INFO, &big),
        contexts(wire::option::LIST_META_CONTEXT, "a", &[]),
        structured(),
        contexts(wire::option::LIST_META_CONTEXT, "a", &["base:"]),
        option(wire::option::SET_META_CONTEXT, b"\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0"),
        option(wire::option::ABORT, b""),
        go("a", &[]),
    ]);
    let said: Vec<Vec<u32>> = events[..10].iter().map(kinds).collect();
    assert_eq!(
        said[..5],
        [vec![ERR_UNSUP], vec![ERR_INVALID], vec![SERVER, SERVER, ACK], vec![ERR_INVALID], vec![ERR_TOO_BIG]]
    );
    assert_eq!(said[5], [ERR_INVALID], "contexts need structured replies");
    assert_eq!(said[7], [wire::option_reply::META_CONTEXT, ACK]);
    assert_eq!(said[8], [ERR_INVALID]);
    assert_eq!(events[10..], [Event::Ended(End::Done)]);
}

#[test]
fn a_context_belongs_to_its_export() {
    let events = all(&[
        structured(),
        contexts(wire::option::SET_META_CONTEXT, "b", &["base:allocation"]),
        go("a", &[]),
        request(0, 7, 1, 0, 4096),
    ]);
    let refused = Reply { cookie: 1, structured: true }.error(errno::EINVAL);
    assert_eq!(events.last(), Some(&Event::Send(refused)));
}

fn starttls(data: &[u8]) -> Vec<u8> {
    option(wire::option::STARTTLS, data)
}

/// What comes of an option in a conversation with this security, which has only been greeted.
fn answered(security: Security, said: &[u8]) -> Vec<Event> {
    let mut protocol = Protocol::new(exports(), security);
    events(&mut protocol, &HELLO);
    events(&mut protocol, said)
}

#[test]
fn tls_is_started_where_it_may_be() {
    use wire::option_reply::{ACK, ERR_INVALID, ERR_UNSUP};
    for (security, data, kind) in [
        (Security::Off, &b""[..], ERR_UNSUP),
        (Security::Secured, b"", ERR_INVALID),
        (Security::Offered, b"x", ERR_INVALID),
        (Security::Required, b"x", ERR_INVALID),
    ] {
        let events = answered(security, &starttls(data));
        assert_eq!(events.iter().map(kinds).collect::<Vec<_>>(), [[kind]], "{security:?}");
    }
    for security in [Security::Offered, Security::Required] {
        let events = answered(security, &starttls(b""));
        let [said, Event::StartTls] = &events[..] else { panic!("{events:?}") };
        assert_eq!(kinds(said), [ACK]);
    }
}

#[test]
fn before_tls_nothing_is_told_where_it_is_required() {
    use wire::option_reply::{ACK, ERR_TLS_REQD};
    for said in [go("a", &[]), option(wire::option::LIST, b""), option(8, b""), option(99, b"what")] {
        let events = answered(Security::Required, &said);
        assert_eq!(events.iter().map(kinds).collect::<Vec<_>>(), [[ERR_TLS_REQD]]);
    }
    let events = answered(Security::Required, &option(wire::option::ABORT, b""));
    assert!(kinds(&events[0]) == [ACK] && events[1] == Event::Ended(End::Done), "{events:?}");
    let events = answered(Security::Required, &option(wire::option::EXPORT_NAME, b"a"));
    assert_eq!(events, [Event::Ended(End::WithoutTls)]);
    // A client to which TLS is only offered may do without it.
    assert!(answered(Security::Offered, &go("a", &[])).contains(&Event::Opened(0)));
}

#[test]
fn what_was_said_in_the_clear_does_not_count_under_tls() {
    // Structured replies and a context, then TLS: both are to be agreed on again.
    let mut protocol = Protocol::new(exports(), Security::Offered);
    events(&mut protocol, &HELLO);
    let context = contexts(wire::option::SET_META_CONTEXT, "a", &["base:allocation"]);
    events(&mut protocol, &[structured(), context].concat());
    assert_eq!(events(&mut protocol, &starttls(b"")).last(), Some(&Event::StartTls));
    let opened = events(&mut protocol, &go("a", &[]));
    assert!(opened.contains(&Event::Opened(0)), "{opened:?}");
    let status = events(&mut protocol, &request(0, command::BLOCK_STATUS, 1, 0, 512));
    assert_eq!(status, [Event::Send(Reply { cookie: 1, structured: false }.error(errno::EINVAL))]);
    assert!(matches!(
        events(&mut protocol, &request(0, command::READ, 2, 0, 512))[..],
        [Event::Read { request: Request { reply: Reply { structured: false, .. }, .. }, .. }]
    ));
}

#[test]
fn words_between_the_request_for_tls_and_its_answer_end_the_conversation() {
    for injected in [go("a", &[]), vec![0]] {
        let bytes = injected.len();
        let events = answered(Security::Offered, &[starttls(b""), injected].concat());
        assert!(
            matches!(&events[..], [Event::Send(_), Event::Ended(end)] if *end == End::Injected { bytes }),
            "{events:?}"
        );
    }
}

#[test]
fn requests_that_cannot_be_served_get_their_error() {
    let refused = |flags, command, offset, len| {
        let events = all(&[
            structured(),
            go("a", &[]),
            request(flags, command, 3, offset, len),
            request(0, 2, 0, 0, 0),
        ]);
        assert_eq!(events.last(), Some(&Event::Ended(End::Done)), "what follows is understood");
        let Event::Send(bytes) = &events[events.len() - 2] else { panic!("{events:?}") };
        if bytes.len() == 20 { 0 } else { u32::from_be_bytes(bytes[20..24].try_into().expect("four")) }
    };
    assert_eq!(refused(0, 0, DISK - 1, 2), errno::EINVAL);
    assert_eq!(refused(0, 0, u64::MAX, 2), errno::EINVAL);
    assert_eq!(refused(1, 0, 0, 2), errno::EINVAL, "flags of writes");
    assert_eq!(refused(0, 0, 0, 0), 0);
    assert_eq!(refused(0, 0, DISK, 0), 0);
    assert_eq!(refused(0, 7, 0, 4096), errno::EINVAL, "no context was chosen");
    assert_eq!(refused(0, 4, 0, 4096), errno::EPERM);
    assert_eq!(refused(0, 6, 0, 4096), errno::EPERM);
    assert_eq!(refused(0, 3, 0, 0), errno::EINVAL, "a flush was not offered");
    assert_eq!(refused(0, 99, 0, 0), errno::EINVAL);
    assert_eq!(refused(0, 5, DISK, 1), errno::EINVAL);
}

#[test]
fn long_reads_are_refused() {
    let long =
        vec![ExportInfo { name: "x".into(), description: String::new(), bytes: 1 << 40, writable: false }];
    let mut protocol = Protocol::new(long.into(), Security::Off);
    let hello = [HELLO.to_vec(), structured(), go("x", &[])].concat();
    events(&mut protocol, &hello);
    let reply = Reply { cookie: 0, structured: true };
    let refused = |errno| [Event::Send(reply.error(errno))];
    assert_eq!(events(&mut protocol, &request(0, 0, 0, 0, MAX_READ_BYTES + 1)), refused(errno::EINVAL));
    assert_eq!(events(&mut protocol, &request(4, 0, 0, 0, MAX_UNCUT_BYTES + 1)), refused(errno::EOVERFLOW));
    assert!(matches!(
        events(&mut protocol, &request(4, 0, 0, 0, MAX_UNCUT_BYTES))[..],
        [Event::Read { uncut: true, .. }]
    ));
    assert!(matches!(events(&mut protocol, &request(0, 0, 0, 0, MAX_READ_BYTES))[..], [Event::Read { .. }]));
}

#[test]
fn what_a_write_carries_is_not_kept() {
    let mut protocol = Protocol::new(exports(), Security::Off);
    events(&mut protocol, &[HELLO.to_vec(), go("a", &[])].concat());
    let said = events(&mut protocol, &request(0, 1, 5, 0, u32::MAX));
    assert_eq!(said, [Event::Send(Reply { cookie: 5, structured: false }.error(errno::EPERM))]);
    let mut left = u64::from(u32::MAX);
    let piece = vec![0x25; 1 << 20];
    while left > 0 {
        let count = left.min(piece.len() as u64);
        left -= count;
        assert_eq!(events(&mut protocol, &piece[..count as usize]), []);
        assert!(protocol.input.bytes.len() <= 1 << 20);
    }
    assert!(matches!(events(&mut protocol, &request(0, 0, 6, 0, 1))[..], [Event::Read { .. }]));
}

#[test]
fn strangers_are_hung_up_on() {
    let hang = |bytes: &[u8]| {
        let mut protocol = Protocol::new(exports(), Security::Off);
        let said = events(&mut protocol, bytes);
        assert_eq!(events(&mut protocol, &request(0, 0, 0, 0, 1)), []);
        said.last().cloned()
    };
    assert!(matches!(hang(b"GET / HTTP/1.0\r\n\r\n"), Some(Event::Ended(End::Flags { .. }))));
    assert!(matches!(hang(b"\0\0\0\x03GET / HTTP/1.0\r\n\r\n"), Some(Event::Ended(End::Magic { .. }))));
    let mut open = [HELLO.to_vec(), go("a", &[])].concat();
    open.extend([0x26; 28]);
    assert!(matches!(hang(&open), Some(Event::Ended(End::Magic { .. }))));
}

/// Bytes that are often understood.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let any_option = (0..14_u32, proptest::collection::vec(any::<u8>(), 0..40));
    let piece = prop_oneof![
        any_option.prop_map(|(number, data)| option(number, &data)),
        Just(structured()),
        Just(go("", &[3])),
        Just(contexts(wire::option::SET_META_CONTEXT, "a", &["base:allocation"])),
        (0..16_u16, 0..10_u16, any::<u64>(), 0..DISK + 9, 0..9000_u32)
            .prop_map(|(flags, command, cookie, offset, len)| request(flags, command, cookie, offset, len)),
        proptest::collection::vec(any::<u8>(), 0..60),
    ];
    (prop_oneof![9 => Just(HELLO), 1 => any::<[u8; 4]>()], proptest::collection::vec(piece, 0..12))
        .prop_map(|(hello, pieces)| hello.into_iter().chain(pieces.concat()).collect())
}

proptest! {
    #[test]
    fn nothing_depends_on_where_bytes_are_cut(
        bytes in conversation(),
        cuts in proptest::collection::vec(1..50_usize, 1..40),
    ) {
        let mut whole = Protocol::new(exports(), Security::Off);
        let expected = events(&mut whole, &bytes);
        let mut cut = Protocol::new(exports(), Security::Off);
        let mut found = Vec::new();
        let mut rest = &bytes[..];
        for count in cuts.into_iter().cycle() {
            let (piece, after) = rest.split_at(count.min(rest.len()));
            found.extend(events(&mut cut, piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn what_is_to_be_read_lies_in_the_disk(bytes in conversation()) {
        let mut protocol = Protocol::new(exports(), Security::Off);
        let mut open = None;
        for event in events(&mut protocol, &bytes) {
            match event {
                Event::Opened(export) => open = Some([DISK, 5][export]),
                Event::Read { request, .. } | Event::Allocation { request, .. } | Event::Cache(request) => {
                    prop_assert!(request.len > 0);
                    prop_assert!(request.offset + u64::from(request.len) <= open.expect("open"));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_writable_disk_takes_writes_in_parts() {
    let writable = ExportInfo { name: "x".into(), description: String::new(), bytes: DISK, writable: true };
    let mut protocol = Protocol::new(vec![writable].into(), Security::Off);
    events(&mut protocol, &[HELLO.to_vec(), go("x", &[])].concat());
    let reply = |cookie| Reply { cookie, structured: false };
    // Cut at a multiple of the size of parts; nothing before a part has come as a whole.
    let (offset, len) = (u64::from(WRITE_PART_BYTES) - 5, 20);
    let asked = Request { reply: reply(1), offset, len };
    let data: Vec<u8> = (0..20).collect();
    assert_eq!(events(&mut protocol, &request(1, 1, 1, offset, len)), []);
    let part =
        |offset, bytes: &[u8]| Event::Write { request: asked, offset, bytes: bytes.to_vec(), lasting: true };
    assert_eq!(events(&mut protocol, &data[..7]), [part(offset, &data[..5])]);
    let rest = [&data[7..], &request(0, 3, 2, 0, 0)[..]].concat();
    assert_eq!(events(&mut protocol, &rest), [part(offset + 5, &data[5..]), Event::Flush(reply(2))]);
    for (flags, command, zeroing, lasting) in
        [(0, 4, Zeroing::Trim, false), (1, 6, Zeroing::Holes, true), (2, 6, Zeroing::Zeros, false)]
    {
        let asked = Request { reply: reply(3), offset: 5, len: 9 };
        let zero = Event::Zero { request: asked, zeroing, lasting };
        assert_eq!(events(&mut protocol, &request(flags, command, 3, 5, 9)), [zero]);
    }
    let refused = |errno| [Event::Send(reply(4).error(errno))];
    assert_eq!(events(&mut protocol, &request(0, 6, 4, DISK, 1)), refused(errno::ENOSPC));
    assert_eq!(events(&mut protocol, &request(0, 3, 4, 0, 1)), refused(errno::EINVAL));
    assert_eq!(events(&mut protocol, &request(4, 4, 4, 0, 1)), refused(errno::EINVAL));
    // What a refused write carries is not kept.
    let beyond = [request(0, 1, 4, DISK - 1, 2), vec![0; 2]].concat();
    assert_eq!(events(&mut protocol, &beyond), refused(errno::ENOSPC));
}
