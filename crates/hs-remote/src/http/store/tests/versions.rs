//! What a file's tag is good for: a strong one is matched by the server, a weak one never is.

use parking_lot::Mutex;
use reqwest::header::{ETAG, HeaderValue};

use super::*;
use crate::http::{Pending, Reply};

/// Behaves, gives the file this tag, and keeps the `If-Match` of each request. It compares as RFC 9110,
/// section 13.1.1 demands: a weak tag matches nothing.
struct Tagging {
    tag: &'static str,
    file: Arc<Faulty>,
    matched: Mutex<Vec<Option<String>>>,
}

impl Transport for Tagging {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        Box::pin(self.answer(request))
    }
}

impl Tagging {
    async fn answer(&self, request: &Request) -> Result<Reply, HttpError> {
        self.matched.lock().push(request.if_match.clone());
        let refused = request.if_match.as_deref().is_some_and(|tag| tag.starts_with("W/") || tag != self.tag);
        let mut reply = self.file.ask(&Request { if_match: None, ..request.clone() }).await?;
        reply.headers.insert(ETAG, HeaderValue::from_static(self.tag));
        Ok(if refused { Reply { status: 412, ..reply } } else { reply })
    }
}

/// The `If-Match` of the requests that opening, a read and a stream make.
fn matched(tag: &'static str) -> Vec<Option<String>> {
    let file = Faulty::new(contract::noise(300_000, 17));
    let server = Arc::new(Tagging { tag, file, matched: Mutex::default() });
    let address = RemoteAddress::parse("http://server.example/fast.hsi").expect("an address");
    let transport = Arc::clone(&server) as Arc<dyn Transport>;
    let store = HttpStore::open(Box::new(address), transport, options(&Arc::default())).expect("opened");
    assert_eq!(store.version().etag.as_deref(), Some(tag));
    let mut bytes = vec![0; 10];
    store.read_at(200_000, &mut bytes).expect("read");
    assert!(bytes == server.file.bytes()[200_000..200_010]);
    let streamed = contract::collect(&store, ByteRange::new(100_000, 50_000)).expect("streamed");
    assert!(streamed == server.file.bytes()[100_000..150_000]);
    server.matched.lock().clone()
}

#[test]
fn a_strong_tag_is_matched_by_the_server_in_every_request_after_the_first() {
    let tag = Some("\"a\"".to_owned());
    assert_eq!(matched("\"a\""), [None, tag.clone(), tag]);
}

#[test]
fn a_weak_tag_is_never_matched() {
    assert_eq!(matched("W/\"a\""), [None, None, None]);
}
