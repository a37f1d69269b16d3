//! Addresses that a redirect leads to, and that are good for a single request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{OnceLock, Weak};

use super::*;
use crate::http::{Pending, Reply, Request};

/// A server whose own address leads to another one for each request. Before a request comes to an address
/// that was used, another reader has used the next one up as well.
struct Crowded {
    below: Arc<Faulty>,
    store: OnceLock<Weak<HttpStore>>,
    given: AtomicU64,
    refused: AtomicU64,
    is_others: AtomicBool,
}

impl Transport for Crowded {
    fn ask<'a>(&'a self, request: &'a Request) -> Pending<'a, Result<Reply, HttpError>> {
        Box::pin(async move {
            if request.url.path() == "/fast.hsi" {
                let mut reply = self.below.ask(request).await?;
                let number = self.given.fetch_add(1, Relaxed);
                reply.url = format!("http://elsewhere.example/{number}").parse().expect("a URL");
                return Ok(reply);
            }
            assert!(self.refused.fetch_add(1, Relaxed) < 50, "used addresses are asked without an end");
            let store = self.store.get().and_then(Weak::upgrade);
            if let Some(store) = store.filter(|_| !self.is_others.swap(true, Relaxed)) {
                store.read_at(300_000, &mut [0; 100]).expect("it asks the server itself in the end");
                self.is_others.store(false, Relaxed);
            }
            self.below.mishaps([Mishap::Status(403, None)]);
            self.below.ask(request).await
        })
    }
}

#[test]
fn a_reader_whose_addresses_others_use_up_asks_the_file_itself() {
    let below = Faulty::new(contract::noise(600_000, 21));
    let server = Arc::new(Crowded {
        below: Arc::clone(&below),
        store: OnceLock::new(),
        given: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        is_others: AtomicBool::new(false),
    });
    let address = RemoteAddress::parse("http://server.example/fast.hsi").expect("an address");
    let transport = Arc::clone(&server) as Arc<dyn Transport>;
    let options = options(&Arc::default());
    let store = Arc::new(HttpStore::open(Box::new(address), transport, options).expect("opened"));
    server.store.set(Arc::downgrade(&store)).expect("once");
    let mut bytes = [0; 5000];
    store.read_at(500_000, &mut bytes).expect("read");
    assert!(bytes == below.bytes()[500_000..505_000]);
    // Four of its own, and one of each reader that came before it.
    assert_eq!(server.refused.load(Relaxed), 8);
}
