use std::cell::Cell;
use std::rc::Rc;

use super::*;

fn client(number: u8) -> ClientKey {
    ClientKey(number.into())
}

/// Pieces of clients with so many connections each, which all want piece after piece, until there were `most`
/// in all.
fn pieces_of(connections: &[usize], most: u64) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let counts: Rc<Vec<Cell<u64>>> = Rc::new(connections.iter().map(|_| Cell::new(0)).collect());
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let pacer = Pacer::new(Rates { together: Some(64 << 20), client: None });
        tokio::task::spawn_local(Arc::clone(&pacer).run());
        let enough = Rc::new(Notify::new());
        for (number, connections) in connections.iter().enumerate() {
            for _ in 0..*connections {
                let (pacer, counts, enough) = (Arc::clone(&pacer), Rc::clone(&counts), Rc::clone(&enough));
                tokio::task::spawn_local(async move {
                    loop {
                        Arc::clone(&pacer).wait(client(number as u8), pacer.piece_bytes()).await;
                        counts[number].set(counts[number].get() + 1);
                        if counts.iter().map(Cell::get).sum::<u64>() == most {
                            enough.notify_one();
                        }
                    }
                });
            }
        }
        enough.notified().await;
    });
    counts.iter().map(Cell::get).collect()
}

#[test]
fn ten_connections_have_the_share_of_one() {
    let counts = pieces_of(&[10, 1], 200);
    let ratio = counts[0] as f64 / counts[1] as f64;
    assert!((0.9..=1.1).contains(&ratio), "{counts:?}");
}

#[test]
fn many_clients_have_equal_shares() {
    let counts = pieces_of(&[1, 4, 1, 2, 8], 500);
    let shares: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
    let jain = hs_engine::queue::jain_index(shares.iter().copied());
    assert!(jain >= 0.98, "{counts:?}: {jain}");
}

#[test]
fn a_client_that_leaves_while_it_waits_costs_no_other_a_piece() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let pacer = Pacer::new(Rates { together: Some(1 << 30), client: None });
        let mut gone = Box::pin(Arc::clone(&pacer).wait(client(1), 1 << 20));
        // No piece is let go yet, so it stays in the queue.
        assert!(poll_once(gone.as_mut()).await.is_none());
        drop(gone);
        tokio::spawn(Arc::clone(&pacer).run());
        Arc::clone(&pacer).wait(client(2), 1 << 20).await;
        let state = pacer.state.lock();
        assert_eq!((state.waiting.len(), state.free_tags.len()), (1, 1));
    });
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn a_clients_limit_holds_over_all_its_connections() {
    let pacer = Pacer::new(Rates { together: None, client: Some(1000) });
    let mut state = pacer.state.lock();
    let now = Nanos::from_millis(5_000);
    let of = |state: &mut LinkQueue, number| state.reserve(now, client(number), Nanos::from_millis(100));
    assert_eq!(of(&mut state, 1), now.saturating_sub(CATCHES_UP), "it has had nothing yet");
    for tenths in 1..5 {
        assert_eq!(of(&mut state, 1), Nanos::from_millis(4_990 + 100 * tenths));
    }
    assert_eq!(of(&mut state, 2), now.saturating_sub(CATCHES_UP), "another client has its own");
    state.most_clients = 2;
    let later = Nanos::from_millis(5_200);
    state.reserve(later, client(3), Nanos::from_millis(1));
    assert_eq!(state.clients.len(), 2, "the second is forgotten, which could have more by now");
}

#[test]
fn pieces_are_small_where_they_take_long() {
    let bytes = |together, client| piece_bytes(Rates { together, client });
    assert_eq!(bytes(None, None), 256 << 10);
    assert_eq!(bytes(Some(125_000_000), None), 256 << 10);
    assert_eq!(bytes(Some(125_000_000), Some(1_250_000)), 25_000);
    assert_eq!(bytes(None, Some(1000)), 16 << 10);
}
