//! Several clients of one reader, and reads of different urgency.

use std::ops::ControlFlow;

use crossbeam_channel::{Receiver, Sender, unbounded};
use hs_engine::queue::{Class, ClientKey, Event};
use hs_store::{Sink, Store, StoreError};

use super::super::jobs::Job;
use super::super::memory::Key;
use super::*;
use crate::{Asker, NoStream};

const WINDOW_BYTES: u64 = 64 << 10;
const WINDOWS: u64 = 200;

/// A medium that serves one request for each permit.
struct Permitted {
    inner: FileStore,
    permits: Receiver<()>,
}

impl Store for Permitted {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let _ = self.permits.recv();
        self.inner.read_at(offset, buf)
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        let _ = self.permits.recv();
        self.inner.stream(range, &mut |piece| match sink(piece) {
            ControlFlow::Break(()) => ControlFlow::Break(()),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        })
    }
}

/// A disk of noise, a reader with one thread, and what lets its medium continue.
fn held() -> (Bench, Arc<Reader>, Sender<()>) {
    let mut content = vec![0; (WINDOWS * WINDOW_BYTES) as usize];
    Prng::new(5).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold.hsi", &fast_build(WINDOW_BYTES, 1));
    let (permit, permits) = unbounded();
    // What opening and the index need, and a first read, behind which the others wait.
    for _ in 0..64 {
        permit.send(()).expect("a permit");
    }
    let inner = FileStore::open(bench.path("cold.hsi")).expect("opened");
    let image =
        Arc::new(Image::open(Arc::new(Permitted { inner, permits: permits.clone() })).expect("an image"));
    let options = ReaderOptions { demand_threads: 1, read_ahead_bytes: 0, ..ReaderOptions::default() };
    let reader = Arc::new(Reader::new(image, options, Arc::new(NoStream), None).expect("a reader"));
    reader.read_at((WINDOWS - 1) * WINDOW_BYTES, &mut [0; 8]).expect("read");
    while permits.try_recv().is_ok() {}
    (bench, reader, permit)
}

fn ask(reader: &Reader, asker: Asker, window: u64, answers: &Sender<(u64, u64)>) {
    let answers = answers.clone();
    reader.submit_for(asker, window * WINDOW_BYTES, 8, move |result| {
        assert!(result.is_ok());
        answers.send((asker.client.0, window)).expect("the test listens");
    });
}

#[test]
fn a_client_with_many_reads_does_not_keep_another_waiting() {
    let (_bench, reader, permit) = held();
    let (answers, answered) = unbounded();
    let (greedy, modest) = (Asker::waiting(ClientKey(1)), Asker::waiting(ClientKey(2)));
    // Every second window, so that no request brings what another waits for.
    (0..80).for_each(|read| ask(&reader, greedy, read * 2, &answers));
    ask(&reader, modest, 190, &answers);
    (0..500).for_each(|_| permit.send(()).expect("a permit"));
    let order: Vec<(u64, u64)> = answered.iter().take(81).collect();
    let place = order.iter().position(|(client, _)| *client == 2).expect("it is answered");
    assert!(place <= 20, "{place} reads of the other client were answered before");
    assert_eq!(reader.queue_metrics().clients, 3);
}

#[test]
fn what_nobody_waits_for_comes_last_until_somebody_does() {
    let (_bench, reader, permit) = held();
    let (answers, answered) = unbounded();
    let client = ClientKey(1);
    let patient = Asker { client, class: Class::Prefetch };
    ask(&reader, Asker::waiting(client), 0, &answers);
    (1..10).for_each(|read| ask(&reader, patient, read * 8, &answers));
    ask(&reader, Asker::waiting(client), 100, &answers);
    // The same window as one of those that wait patiently.
    ask(&reader, Asker::waiting(client), 9 * 8, &answers);
    (0..500).for_each(|_| permit.send(()).expect("a permit"));
    let order: Vec<u64> = answered.iter().take(12).map(|(_, window)| window).collect();
    let place = |window: u64| order.iter().position(|other| *other == window).expect("it is answered");
    assert!(place(100) <= 2, "{order:?}");
    assert!(place(9 * 8) <= 4, "{order:?}");
}

/// It comes when the window is marked as coming, and what will read it ahead is not handed in yet.
#[test]
fn who_comes_before_what_he_could_hurry_is_not_kept_waiting() {
    let (_bench, reader, permit) = held();
    let (answers, answered) = unbounded();
    let asker = Asker::waiting(ClientKey(1));
    ask(&reader, asker, 0, &answers);
    let shared = &reader.shared;
    let windows = 50..52;
    let first = shared.begin_next(&mut shared.memory.lock(), &windows);
    assert_eq!(first, Some(windows.start));
    ask(&reader, asker, windows.start, &answers);
    let promoted =
        || reader.queue_events(64).iter().any(|event| matches!(event.event, Event::Promoted { .. }));
    assert!(!promoted() && shared.memory.lock().is_loading(Key::Cold(windows.start)));
    shared.hand_in(Asker { class: Class::ReadAhead, ..asker }, Job::Ahead(windows));
    assert!(promoted());
    (0..500).for_each(|_| permit.send(()).expect("a permit"));
    assert_eq!(answered.iter().take(2).map(|(_, window)| window).collect::<Vec<_>>(), [0, 50]);
}
