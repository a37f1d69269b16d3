//! How much all connections together may have under way: asked for and not sent yet.
//!
//! Each connection has [`OWN_BYTES`] of its own. What it holds beyond that comes from a pool of which each
//! client has its [`Shares`].

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hs_engine::queue::ClientKey;
use hs_serve::Shares;
use parking_lot::Mutex;

/// Every connection may hold so much, whatever others hold.
pub(super) const OWN_BYTES: u64 = 512 << 10;

/// The pool of a server.
pub(super) struct Room {
    state: Mutex<Pool>,
}

struct Pool {
    shares: Shares,
    /// Connections that wait for room, by their descriptors.
    waiting: HashMap<usize, Waiting>,
}

struct Waiting {
    client: ClientKey,
    bytes: u64,
    wake: Arc<OwnedFd>,
}

impl Room {
    /// So many bytes, beside what connections have of their own.
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(Pool { shares: Shares::new(bytes), waiting: HashMap::new() }) })
    }

    /// Takes bytes for a client's connection if they are to be had. Otherwise `wake` becomes readable once
    /// they are.
    pub(super) fn take(&self, client: ClientKey, bytes: u64, wake: &Arc<OwnedFd>) -> bool {
        let mut state = self.state.lock();
        if bytes as i64 <= state.shares.left(client) {
            state.shares.change(client, bytes as i64);
            return true;
        }
        let waiting = Waiting { client, bytes, wake: Arc::clone(wake) };
        state.waiting.insert(Arc::as_ptr(wake) as usize, waiting);
        false
    }

    /// A client's connection has gone from `before` to `after` bytes, which are not to be refused.
    pub(super) fn moved(&self, client: ClientKey, before: u64, after: u64) {
        let [before, after] = [before, after].map(|held| held.saturating_sub(OWN_BYTES) as i64);
        if before == after {
            return;
        }
        let mut state = self.state.lock();
        state.shares.change(client, after - before);
        if after < before {
            let Pool { shares, waiting } = &mut *state;
            waiting.retain(|_, waits| {
                let fits = waits.bytes as i64 <= shares.left(waits.client);
                if fits {
                    // It can only fail when the thread was woken 2^64 times and has not looked.
                    let _ = rustix::io::write(&waits.wake, &1_u64.to_ne_bytes());
                }
                !fits
            });
        }
    }

    /// A connection is gone.
    pub(super) fn forget(&self, wake: &Arc<OwnedFd>) {
        self.state.lock().waiting.remove(&(Arc::as_ptr(wake) as usize));
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const ONE: ClientKey = ClientKey(1);
    const TWO: ClientKey = ClientKey(2);

    fn wake() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an event"))
    }

    fn is_woken(wake: &OwnedFd) -> bool {
        rustix::io::read(wake, &mut [0; 8]).is_ok()
    }

    #[test]
    fn a_client_that_takes_all_it_can_leaves_room_for_others() {
        let (room, wake) = (Room::new(900), wake());
        let mut taken = [0; 2];
        for (client, taken) in [ONE, TWO].into_iter().zip(&mut taken) {
            while room.take(client, 10, &wake) {
                *taken += 10;
            }
        }
        assert_eq!(taken, [450, 230]);
    }

    #[test]
    fn who_waits_is_woken_when_there_is_room_and_not_before() {
        let (room, wake) = (Room::new(100), wake());
        assert!(room.take(ONE, 50, &wake));
        assert!(!room.take(ONE, 40, &wake));
        room.moved(ONE, OWN_BYTES + 50, OWN_BYTES + 49);
        assert!(!is_woken(&wake));
        room.moved(ONE, OWN_BYTES + 49, OWN_BYTES + 10);
        assert!(is_woken(&wake));
        assert!(room.take(ONE, 40, &wake));
        // What a connection has of its own is no part of it.
        room.moved(TWO, 0, OWN_BYTES);
        room.moved(ONE, OWN_BYTES + 50, 0);
        assert_eq!(room.state.lock().shares.all_held(), 0);
        assert!(room.state.lock().shares.are_unused());
    }
}
