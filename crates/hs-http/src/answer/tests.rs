use std::time::Duration;

use hs_store::MemoryStore;
use hyper::header::HeaderName;
use proptest::prelude::*;

use super::*;

fn files() -> Vec<HttpFile> {
    let file = |name: &str, len: usize| HttpFile {
        name: name.to_owned(),
        store: Arc::new(MemoryStore::new(vec![7; len])),
        tag: format!("hs1-{}", name.replace([' ', '+'], "-")),
        modified: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
    };
    vec![file("a.hsi", 1_000), file("b c.hsi", 5), file("v1+2.hsi", 5)]
}

fn asked(fields: &[(&'static str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), value.parse().expect("a field's value"))
    };
    fields.iter().map(field).collect()
}

fn get(fields: &[(&'static str, &str)]) -> (u16, Option<(u64, u64)>, HeaderMap) {
    let answer = answer(&files(), &[], &Method::GET, "/a.hsi", "", &asked(fields));
    let sent = match answer.content {
        Content::File(0, range) => Some((range.offset, range.len)),
        Content::File(..) => panic!("another file"),
        _ => None,
    };
    (answer.status.as_u16(), sent, answer.headers)
}

#[test]
fn ranges_as_the_standard_has_them() {
    for (range, status, sent, field) in [
        ("bytes=0-0", 206, Some((0, 1)), "bytes 0-0/1000"),
        ("bytes=10-19", 206, Some((10, 10)), "bytes 10-19/1000"),
        ("bytes=990-", 206, Some((990, 10)), "bytes 990-999/1000"),
        ("bytes=990-5000", 206, Some((990, 10)), "bytes 990-999/1000"),
        ("bytes=-10", 206, Some((990, 10)), "bytes 990-999/1000"),
        ("bytes=1000-", 416, None, "bytes */1000"),
        ("bytes=5000-6000", 416, None, "bytes */1000"),
        ("bytes=0-1,5-6", 200, Some((0, 1_000)), ""),
        ("lines=1-2", 200, Some((0, 1_000)), ""),
        ("bytes=x", 200, Some((0, 1_000)), ""),
    ] {
        let (got, bytes, headers) = get(&[("range", range)]);
        if (got, bytes) != (status, sent) && got == 416 {
            // What is no range may be refused as well as ignored.
            assert!(!range.starts_with("bytes=0") && status == 200, "{range}");
            continue;
        }
        assert_eq!((got, bytes), (status, sent), "{range}");
        let found = headers.get("content-range").map_or("", |field| field.to_str().expect("text"));
        assert_eq!(found, field, "{range}");
    }
    let (status, sent, headers) = get(&[]);
    assert_eq!((status, sent), (200, Some((0, 1_000))));
    for (name, value) in [("etag", "\"hs1-a.hsi\""), ("accept-ranges", "bytes"), ("content-length", "1000")] {
        assert_eq!(headers.get(name).map(HeaderValue::as_bytes), Some(value.as_bytes()));
    }
}

#[test]
fn conditions_as_the_standard_has_them() {
    let (right, wrong) = ("\"hs1-a.hsi\"", "\"other\"");
    let (before, after) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 2039 08:49:37 GMT");
    for (fields, status) in [
        (&[("if-match", right)][..], 200),
        (&[("if-match", wrong)], 412),
        (&[("if-match", "*")], 200),
        (&[("if-none-match", right)], 304),
        (&[("if-none-match", wrong)], 200),
        (&[("if-none-match", right), ("range", "bytes=0-5")], 304),
        (&[("if-range", right), ("range", "bytes=0-5")], 206),
        (&[("if-range", wrong), ("range", "bytes=0-5")], 200),
        (&[("if-match", wrong), ("range", "bytes=0-5")], 412),
        (&[("if-modified-since", after)], 304),
        (&[("if-modified-since", before)], 200),
        (&[("if-unmodified-since", before)], 412),
        // A tag says more than a date.
        (&[("if-none-match", wrong), ("if-modified-since", after)], 200),
    ] {
        let (got, sent, _) = get(fields);
        assert_eq!(got, status, "{fields:?}");
        assert_eq!(sent.is_some(), status < 300, "{fields:?}");
    }
}

#[test]
fn nothing_but_what_was_named_exists_and_nothing_can_be_changed() {
    let status = |method: &Method, path: &str| {
        let answer = answer(&files(), &[], method, path, "", &HeaderMap::new());
        (answer.status.as_u16(), matches!(answer.content, Content::File(..)))
    };
    assert_eq!(status(&Method::GET, "/b%20c.hsi"), (200, true));
    for path in ["/%62%20c.hsi", "/v1%2B2.hsi", "/v1%2b2.hsi", "/v1+2.hsi"] {
        assert_eq!(status(&Method::GET, path), (200, true), "{path}");
    }
    assert_eq!(status(&Method::HEAD, "/a.hsi"), (200, false));
    assert_eq!(status(&Method::GET, "/"), (200, false));
    for path in [
        "/x",
        "/../a.hsi",
        "/a.hsi/",
        "//a.hsi",
        "/a.hsi%00",
        "/a.hsi%",
        "/a.hsi%2",
        "/%2e%2e%2fa.hsi",
        "/%2Fa.hsi",
        "/etc/passwd",
        "*",
    ] {
        assert_eq!(status(&Method::GET, path), (404, false), "{path}");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS, Method::TRACE] {
        assert_eq!(status(&method, "/a.hsi"), (405, false), "{method}");
    }
}

proptest! {
    #[test]
    fn no_request_reads_beyond_a_file(range in "(bytes=)?[0-9]{0,4}-[0-9]{0,20}(,[0-9]{0,3}-[0-9]{0,3})?") {
        let (status, sent, _) = get(&[("range", &range)]);
        prop_assert!(matches!(status, 200 | 206 | 416));
        if let Some((offset, len)) = sent {
            prop_assert!(len > 0 && offset + len <= 1_000);
        }
    }
}
