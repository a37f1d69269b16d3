//! Several clients of one disk, and reads of different urgency.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use hs_disk::{ReadOptions, Requester, ServedDisk};
use hs_engine::queue::{Class, ClientKey, Event};
use hs_image::Image;
use hs_store::{FileStore, Sink, Store, StoreError};
use hs_units::{ByteRange, Prng};

use crate::sample::{Bench, fast_build};
use crate::served::{disk_with, reads};

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
        self.inner.stream(range, sink)
    }
}

/// A disk of noise, served with one fetcher, and what lets its medium continue.
fn held() -> (Bench, Arc<ServedDisk>, Sender<()>) {
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
    let disk = disk_with(&image, ReadOptions { read_ahead_bytes: 0, ..reads(1, 1 << 20) });
    disk.read_at((WINDOWS - 1) * WINDOW_BYTES, &mut [0; 8]).expect("read");
    while permits.try_recv().is_ok() {}
    (bench, disk, permit)
}

fn ask(disk: &ServedDisk, requester: Requester, window: u64, answers: &Sender<(u64, u64)>) {
    let answers = answers.clone();
    disk.submit_for(requester, window * WINDOW_BYTES, 8, move |result| {
        assert!(result.is_ok());
        answers.send((requester.client.0, window)).expect("the test listens");
    });
}

/// The first answers, so many, in the order in which the medium serves their requests: the next one may begin
/// when the one before is answered. A request that answers nothing is followed by another after a moment.
fn in_order(permit: &Sender<()>, answered: &Receiver<(u64, u64)>, count: usize) -> Vec<(u64, u64)> {
    let mut order = Vec::new();
    while order.len() < count {
        permit.send(()).expect("a permit");
        order.extend(answered.recv_timeout(Duration::from_millis(500)));
    }
    order
}

const fn waiting(client: ClientKey) -> Requester {
    Requester { client, class: Class::Demand }
}

#[test]
fn a_client_with_many_reads_does_not_keep_another_waiting() {
    let (_bench, disk, permit) = held();
    let (answers, answered) = unbounded();
    let (greedy, modest) = (waiting(ClientKey(1)), waiting(ClientKey(2)));
    // Every second window, so that no request brings what another waits for.
    (0..80).for_each(|read| ask(&disk, greedy, read * 2, &answers));
    ask(&disk, modest, 190, &answers);
    let order = in_order(&permit, &answered, 81);
    let place = order.iter().position(|(client, _)| *client == 2).expect("it is answered");
    // The request that was under way already, and the first turn, bring several of the 80.
    assert!(place <= 40, "{place} reads of the other client were answered before");
    assert_eq!(disk.queue_metrics().clients, 3);
}

#[test]
fn what_no_reader_waits_for_comes_last_until_one_does() {
    let (_bench, disk, permit) = held();
    let (answers, answered) = unbounded();
    let client = ClientKey(1);
    let patient = Requester { client, class: Class::Prefetch };
    ask(&disk, waiting(client), 0, &answers);
    (1..10).for_each(|read| ask(&disk, patient, read * 8, &answers));
    ask(&disk, waiting(client), 100, &answers);
    // The same window as one of those that wait patiently.
    let promoted = || disk.queue_events(64).iter().any(|event| matches!(event.event, Event::Promoted { .. }));
    assert!(!promoted());
    ask(&disk, waiting(client), 9 * 8, &answers);
    assert!(promoted());
    let order: Vec<u64> = in_order(&permit, &answered, 12).into_iter().map(|(_, window)| window).collect();
    let place = |window: u64| order.iter().position(|other| *other == window).expect("it is answered");
    assert!(place(100) <= 2, "{order:?}");
    assert!(place(9 * 8) <= 4, "{order:?}");
}
