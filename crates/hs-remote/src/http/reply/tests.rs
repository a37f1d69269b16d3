use proptest::prelude::*;

use super::*;

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), value.parse().expect("a field's value"))
    };
    fields.iter().map(field).collect()
}

fn opened() -> Version {
    Version { len: 1_000, etag: Some("\"one\"".to_owned()), last_modified: None }
}

fn understand(
    status: u16,
    head: &HeaderMap,
    range: ByteRange,
    opened: Option<&Version>,
) -> Result<Brings, HttpError> {
    super::understand(status, head, range, Expected { opened, is_proven: false })
}

const ASKED: ByteRange = ByteRange::new(100, 50);

#[test]
fn a_part_may_be_shorter_but_begins_where_it_was_asked_for() {
    for (field, came) in [("bytes 100-149/1000", Some(50)), ("bytes 100-100/1000", Some(1))] {
        let head = headers(&[("content-range", field), ("etag", "\"one\"")]);
        let brings = understand(206, &head, ASKED, Some(&opened())).expect(field);
        assert_eq!(brings, Brings::Bytes(ByteRange::new(100, came.expect("bytes")), opened()));
    }
    for field in [
        "bytes 0-99/1000",
        "bytes 101-149/1000",
        "bytes 100-99/1000",
        "bytes 100-18446744073709551615/*",
        "bytes 100-149/149",
        "bytes 100-149/x",
        "bytes */1000",
        "lines 100-149/1000",
        "100-149/1000",
        "",
        "bytes 100-149",
        "bytes -1-5/9",
        "bytes 100-99999999999999999999/1000",
    ] {
        let head = headers(&[("content-range", field)]);
        let error = understand(206, &head, ASKED, None).expect_err(field);
        assert!(matches!(error, HttpError::Nonsense { .. }) && error.is_transient(), "{field}: {error}");
    }
    let head = headers(&[("content-range", "bytes 100-149/1000"), ("content-length", "49")]);
    assert!(matches!(understand(206, &head, ASKED, None), Err(HttpError::Nonsense { .. })));
    assert!(matches!(understand(206, &headers(&[]), ASKED, None), Err(HttpError::Nonsense { .. })));
    let head = headers(&[("content-range", "bytes 100-149/1000"), ("content-encoding", "gzip")]);
    assert!(matches!(understand(206, &head, ASKED, None), Err(HttpError::Nonsense { .. })));
}

/// A cache that rounds ranges to its blocks.
#[test]
fn more_than_was_asked_for_is_cut_to_it() {
    for (field, came) in [
        ("bytes 100-150/1000", ByteRange::new(100, 50)),
        ("bytes 0-999/1000", ByteRange::new(0, 150)),
        ("bytes 99-149/1000", ByteRange::new(99, 51)),
        ("bytes 99-100/1000", ByteRange::new(99, 2)),
        ("Bytes  100-149/1000", ByteRange::new(100, 50)),
    ] {
        let head = headers(&[("content-range", field), ("etag", "\"one\"")]);
        let brings = understand(206, &head, ASKED, Some(&opened())).expect(field);
        assert_eq!(brings, Brings::Bytes(came, opened()), "{field}");
    }
    // What would have to be skipped costs more than another request.
    let far = ByteRange::new(SKIPPED_BYTES + 1, 10);
    for (first, is_fine) in [(0, false), (1, true)] {
        let field = format!("bytes {first}-999999/1000000");
        let understood = understand(206, &headers(&[("content-range", &field)]), far, None);
        assert_eq!(understood.is_ok(), is_fine, "{field}");
    }
}

#[test]
fn a_length_that_is_not_said_is_that_of_the_opened_file() {
    let head = headers(&[("content-range", "bytes 100-149/*"), ("etag", "\"one\"")]);
    let came = ByteRange::new(100, 50);
    let brings = understand(206, &head, ASKED, Some(&opened())).expect("known");
    assert_eq!(brings, Brings::Bytes(came, opened()));
    let brings = understand(206, &head, ASKED, None).expect("to be found out");
    assert_eq!(brings, Brings::Unmeasured(came, Version { len: 0, ..opened() }));
    let short = Version { len: 120, ..opened() };
    assert!(matches!(understand(206, &head, ASKED, Some(&short)), Err(HttpError::Nonsense { .. })));
    for (status, fields, length) in [
        (200, &[("content-length", "1000"), ("etag", "\"one\"")][..], Some(1_000)),
        (200, &[("content-length", "1000")], Some(1_000)),
        (200, &[("content-length", "1000"), ("etag", "\"two\"")], None),
        (200, &[("content-length", "1000"), ("content-encoding", "gzip")], None),
        (200, &[("etag", "\"one\"")], None),
        (405, &[("content-length", "1000")], None),
    ] {
        assert_eq!(length_of_head(status, &headers(fields), &opened()), length, "{status} {fields:?}");
    }
}

#[test]
fn compressed_bytes_are_refused_and_other_codings_are_none() {
    for (fields, is_fine) in [
        (&["identity"][..], true),
        (&["Identity", ""], true),
        (&["aws-chunked"], true),
        (&["gzip"], false),
        (&["identity", "br"], false),
        (&["aws-chunked, GZIP"], false),
    ] {
        let mut head = headers(&[("content-range", "bytes 100-149/1000"), ("content-length", "50")]);
        for field in fields {
            head.append(CONTENT_ENCODING, field.parse().expect("a value"));
        }
        match understand(206, &head, ASKED, None) {
            Ok(_) => assert!(is_fine, "{fields:?}"),
            Err(error) => {
                assert!(!is_fine && error.to_string().contains("compressed"), "{fields:?}: {error}");
            }
        }
    }
}

#[test]
fn a_refused_range_says_whether_the_file_is_another_one() {
    fn refused(field: &str, opened: Option<&Version>) -> HttpError {
        understand(416, &headers(&[("content-range", field)]), ASKED, opened).expect_err("refused")
    }
    // It has the bytes by its own account.
    let error = refused("bytes */1000", Some(&opened()));
    assert!(matches!(error, HttpError::Nonsense { .. }) && error.is_transient(), "{error}");
    assert!(matches!(refused("bytes */120", Some(&opened())), HttpError::Replaced { .. }));
    assert!(refused("bytes */0", None).to_string().contains("empty"));
    assert!(matches!(refused("bytes */9", None), HttpError::Status { status: 416, .. }));
}

#[test]
fn tags_and_dates_are_compared_by_their_meaning() {
    let tagged = |tag: &str| Version { len: 9, etag: Some(tag.to_owned()), last_modified: None };
    assert!(tagged("W/\"a\"").may_be(&tagged("\"a\"")) && tagged("\"a\"").may_be(&tagged("W/\"a\"")));
    assert!(!tagged("W/\"a\"").may_be(&tagged("W/\"b\"")));
    assert_eq!((tagged("W/\"a\"").strong_tag(), tagged("\"a\"").strong_tag()), (None, Some("\"a\"")));
    let dated = |date: &str| Version { len: 9, etag: None, last_modified: Some(date.to_owned()) };
    let one = dated("Sun, 06 Nov 1994 08:49:37 GMT");
    for same in [
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 09:49:37 +0100",
        "Sun, 06 Nov 1994 03:19:37 -0530",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ] {
        assert!(one.may_be(&dated(same)) && dated(same).may_be(&one), "{same}");
    }
    for other in [
        "Sun, 06 Nov 1994 08:49:38 GMT",
        "Sun, 06 Nov 1994 08:49:37 +0100",
        "Sun, 06 Nov 1994 08:49:37 +0",
        "soon",
        "",
        "+0000",
    ] {
        assert!(!one.may_be(&dated(other)), "{other}");
    }
    assert!(dated("soon").may_be(&dated("soon")) && !dated("soon").may_be(&dated("later")));
}

#[test]
fn the_whole_file_will_do_from_its_start() {
    let head = headers(&[("content-length", "1000"), ("etag", "\"one\"")]);
    let brings = understand(200, &head, ByteRange::new(0, 50), Some(&opened()));
    assert_eq!(brings.expect("it will"), Brings::Bytes(ByteRange::new(0, 50), opened()));
    // A file that was opened by a part of it may be had by parts the next time.
    let error = understand(200, &head, ASKED, Some(&opened())).expect_err("not from there");
    assert!(matches!(error, HttpError::Nonsense { .. }) && error.is_transient(), "{error}");
    assert!(matches!(understand(200, &head, ASKED, None), Err(HttpError::RangesIgnored)));
    let error = understand(200, &headers(&[]), ByteRange::new(0, 5), Some(&opened())).expect_err("no length");
    assert!(matches!(error, HttpError::Nonsense { .. }));
}

#[test]
fn a_server_must_show_that_it_can_do_ranges() {
    let all = ByteRange::new(0, 2_000);
    for (fields, range, is_fine) in [
        (&[("content-length", "1000")][..], ByteRange::new(0, 50), false),
        (&[("content-length", "1000")], all, false),
        (&[("content-length", "1000"), ("accept-ranges", "none")], all, false),
        (&[("content-length", "1000"), ("accept-ranges", "bytes")], ByteRange::new(0, 50), false),
        (&[("content-length", "1000"), ("accept-ranges", "bytes")], all, true),
    ] {
        match understand(200, &headers(fields), range, None) {
            Ok(_) => assert!(is_fine, "{fields:?} {range}"),
            Err(error) => {
                assert!(!is_fine && matches!(error, HttpError::RangesIgnored), "{fields:?} {range}: {error}");
                assert!(!error.is_transient());
            }
        }
    }
}

#[test]
fn another_file_is_noticed_by_tag_length_or_date() {
    let replaced = |status, fields: &[_], opened: &Version| {
        let error = understand(status, &headers(fields), ASKED, Some(opened)).expect_err("another file");
        assert!(matches!(error, HttpError::Replaced { .. }) && !error.is_transient(), "{error}");
        error.to_string()
    };
    let text = replaced(206, &[("content-range", "bytes 100-149/1000"), ("etag", "\"two\"")], &opened());
    assert!(text.contains("1000 bytes \"one\"") && text.contains("1000 bytes \"two\""), "{text}");
    replaced(206, &[("content-range", "bytes 100-149/1001"), ("etag", "\"one\"")], &opened());
    replaced(412, &[], &opened());
    replaced(416, &[("content-range", "bytes */20")], &opened());
    let dated = Version { len: 1_000, etag: None, last_modified: Some("monday".to_owned()) };
    replaced(206, &[("content-range", "bytes 100-149/1000"), ("last-modified", "tuesday")], &dated);
    // Where digests prove the bytes only the length counts.
    let proven = |fields| {
        let expected = Expected { opened: Some(&dated), is_proven: true };
        super::understand(206, &headers(fields), ASKED, expected)
    };
    assert!(proven(&[("content-range", "bytes 100-149/1000"), ("last-modified", "tuesday")]).is_ok());
    assert!(proven(&[("content-range", "bytes 100-149/1001"), ("last-modified", "monday")]).is_err());
    // What is not said cannot differ.
    let head = headers(&[("content-range", "bytes 100-149/1000")]);
    assert!(understand(206, &head, ASKED, Some(&dated)).is_ok());
    assert_eq!(understand(304, &headers(&[]), ASKED, Some(&dated)).expect("the same"), Brings::Unchanged);
}

#[test]
fn a_server_says_when_to_come_back() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
    let asked = |value: &str| retry_after(&headers(&[("retry-after", value)]), now);
    assert_eq!(asked("120"), Some(Duration::from_secs(120)));
    assert_eq!(asked("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
    assert_eq!(asked("Sun, 06 Nov 1994 08:40:37 GMT"), Some(Duration::ZERO));
    assert_eq!(asked("soon"), None);
    for (status, transient) in
        [(429, true), (503, true), (404, false), (403, false), (500, true), (501, false)]
    {
        let error = understand(status, &headers(&[("retry-after", "7")]), ASKED, None).expect_err("refused");
        assert_eq!(error.is_transient(), transient, "{status}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    }
}

proptest! {
    /// Whatever a server says, what it is taken to bring lies in what was asked for, and in the file.
    #[test]
    fn no_head_brings_what_was_not_asked_for(
        status in prop_oneof![Just(200_u16), Just(206), 100..600_u16],
        field in "(bytes )?[0-9]{0,4}-[0-9]{0,4}/([0-9]{0,4}|\\*)",
        length in "[0-9]{0,5}",
        offset in 0..2_000_u64,
        len in 1..2_000_u64,
    ) {
        let head = headers(&[("content-range", &field), ("content-length", &length)]);
        let asked = ByteRange::new(offset, len);
        if let Ok(Brings::Bytes(came, version)) = understand(status, &head, asked, None) {
            prop_assert!(came.offset <= offset && offset - came.offset <= SKIPPED_BYTES);
            prop_assert!(came.end() > offset && came.end() <= asked.end() && came.end() <= version.len);
        }
    }
}
