//! How much all answers together may hold: bytes of files that are read, or being read, and that no socket
//! took yet.
//!
//! What is held comes from a pool that clients have [`Shares`] of. An answer that finds little left reads
//! smaller pieces, and waits where there is too little even for the smallest. Beyond the pool each client may
//! have [`OWN_BYTES`], in all its connections together, so that the first piece of a client never waits for
//! others. What is given back goes to the client that holds least.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use hs_engine::queue::ClientKey;
use hs_serve::Shares;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The smallest piece, unless less is wanted.
const LEAST_BYTES: i64 = 16 << 10;
/// Every client may hold so much, whatever others hold: a piece that is sent, and one that is read meanwhile.
const OWN_BYTES: i64 = 2 * LEAST_BYTES;

/// The pool of a server.
pub(super) struct Room {
    state: Mutex<Pool>,
}

struct Pool {
    shares: Shares,
    /// Answers that wait, of each client in their order.
    waiting: HashMap<ClientKey, VecDeque<Waiting>>,
    /// The clients of these, with what they hold.
    order: BTreeSet<(i64, ClientKey)>,
    next_number: u64,
}

struct Waiting {
    number: u64,
    wanted: i64,
    given: oneshot::Sender<Held>,
}

/// Room for a piece, until it is dropped.
pub(super) struct Held {
    room: Arc<Room>,
    client: ClientKey,
    bytes: i64,
}

/// An answer's place in the queue, until it is dropped.
struct Ticket {
    room: Arc<Room>,
    client: ClientKey,
    number: u64,
}

impl Pool {
    /// How much a client may have of what it wants now.
    fn portion(&self, client: ClientKey, wanted: i64) -> Option<i64> {
        let most = self.shares.left(client).max(OWN_BYTES - self.shares.held(client));
        if wanted <= most {
            return Some(wanted);
        }
        let most = most / LEAST_BYTES * LEAST_BYTES;
        (most > 0).then_some(most)
    }

    fn change(&mut self, client: ClientKey, bytes: i64) {
        let before = self.shares.held(client);
        self.shares.change(client, bytes);
        if self.order.remove(&(before, client)) {
            self.order.insert((before + bytes, client));
        }
    }

    /// The next answer that gets something, and how much.
    fn next(&mut self) -> Option<(oneshot::Sender<Held>, ClientKey, i64)> {
        loop {
            // Where the client that holds least gets nothing, no other does.
            let (_, client) = *self.order.first()?;
            let wanted = self.waiting.get(&client)?.front()?.wanted;
            let bytes = self.portion(client, wanted)?;
            let given = self.leave(client, |_| true)?;
            if !given.is_closed() {
                self.change(client, bytes);
                return Some((given, client, bytes));
            }
        }
    }

    /// The client's first answer of these waits no more.
    fn leave(
        &mut self,
        client: ClientKey,
        is_it: impl Fn(&Waiting) -> bool,
    ) -> Option<oneshot::Sender<Held>> {
        let queue = self.waiting.get_mut(&client)?;
        let waiting = queue.iter().position(is_it).and_then(|at| queue.remove(at))?;
        if queue.is_empty() {
            self.waiting.remove(&client);
            self.order.remove(&(self.shares.held(client), client));
        }
        Some(waiting.given)
    }
}

impl Room {
    /// So many bytes, beside what clients have of their own.
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        let state = Pool {
            shares: Shares::new(bytes.min(1 << 60)),
            waiting: HashMap::new(),
            order: BTreeSet::new(),
            next_number: 0,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Room for so many bytes, or for fewer; none where the answer has to wait.
    pub(super) fn take(self: &Arc<Self>, client: ClientKey, wanted: u64) -> Option<Held> {
        let mut state = self.state.lock();
        // Others of the same client were first.
        if state.waiting.contains_key(&client) {
            return None;
        }
        let bytes = state.portion(client, wanted as i64)?;
        state.change(client, bytes);
        Some(Held { room: Arc::clone(self), client, bytes })
    }

    /// The same, once it is to be had.
    pub(super) async fn wait(self: Arc<Self>, client: ClientKey, wanted: u64) -> Held {
        loop {
            let (given, gets) = oneshot::channel();
            let _ticket = self.queue(client, wanted as i64, given);
            // It may be to be had meanwhile.
            self.give();
            if let Ok(held) = gets.await {
                return held;
            }
        }
    }

    fn queue(self: &Arc<Self>, client: ClientKey, wanted: i64, given: oneshot::Sender<Held>) -> Ticket {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        let held = state.shares.held(client);
        state.order.insert((held, client));
        state.waiting.entry(client).or_default().push_back(Waiting { number, wanted, given });
        Ticket { room: Arc::clone(self), client, number }
    }

    /// What all answers hold.
    pub(super) fn held_bytes(&self) -> u64 {
        self.state.lock().shares.all_held().unsigned_abs()
    }

    /// Gives what there is to those who wait.
    fn give(self: &Arc<Self>) {
        loop {
            let Some((given, client, bytes)) = self.state.lock().next() else { return };
            // An answer that ended just now gives it back at once.
            let _ = given.send(Held { room: Arc::clone(self), client, bytes });
        }
    }
}

impl Held {
    /// How much.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.state.lock().change(self.client, -self.bytes);
        self.room.give();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.room.state.lock().leave(self.client, |waiting| waiting.number == self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ONE: ClientKey = ClientKey(1);
    const TWO: ClientKey = ClientKey(2);
    const THREE: ClientKey = ClientKey(3);
    const LEAST: u64 = LEAST_BYTES as u64;
    const PIECE: u64 = 8 * LEAST;

    /// All that a client can have.
    fn take_all(room: &Arc<Room>, client: ClientKey) -> Vec<Held> {
        std::iter::from_fn(|| room.take(client, PIECE)).collect()
    }

    fn bytes(held: &[Held]) -> u64 {
        held.iter().map(Held::bytes).sum()
    }

    #[test]
    fn a_client_that_takes_all_it_can_leaves_room_for_others() {
        let room = Room::new(50 * LEAST);
        let one = take_all(&room, ONE);
        // Where little is left the last piece is small.
        assert_eq!(one.iter().map(Held::bytes).collect::<Vec<_>>(), [PIECE, PIECE, PIECE, 2 * LEAST]);
        let two = take_all(&room, TWO);
        assert_eq!(bytes(&two), 16 * LEAST);
        let three = take_all(&room, THREE);
        assert_eq!(bytes(&three), PIECE);
        drop((one, two, three));
        assert!(room.state.lock().shares.are_unused());
        assert_eq!(room.state.lock().shares.all_held(), 0);
    }

    #[test]
    fn a_client_has_something_of_its_own_when_others_hold_everything() {
        let room = Room::new(0);
        for client in 1..100 {
            let held = take_all(&room, ClientKey(client));
            assert_eq!(bytes(&held), OWN_BYTES as u64);
            std::mem::forget(held);
        }
    }

    #[test]
    fn what_is_given_back_goes_to_the_client_that_holds_least() {
        let room = Room::new(6 * LEAST);
        let mut one: Vec<Held> = (0..3).map_while(|_| room.take(ONE, LEAST)).collect();
        let two: Vec<Held> = (0..2).map_while(|_| room.take(TWO, LEAST)).collect();
        assert_eq!((bytes(&one), bytes(&two)), (3 * LEAST, 2 * LEAST));
        let mut context = Context::from_waker(Waker::noop());
        let mut of_one = pin!(Arc::clone(&room).wait(ONE, LEAST));
        let mut of_two = pin!(Arc::clone(&room).wait(TWO, LEAST));
        assert!(of_one.as_mut().poll(&mut context).is_pending());
        assert!(of_two.as_mut().poll(&mut context).is_pending());
        // An answer that comes later waits behind those of its client.
        assert!(room.take(TWO, LEAST).is_none());
        one.pop();
        assert!(of_one.as_mut().poll(&mut context).is_pending(), "both hold two, and two are free");
        one.pop();
        let Poll::Ready(held) = of_one.as_mut().poll(&mut context) else { panic!("one holds least") };
        assert_eq!(held.bytes(), LEAST);
        assert!(of_two.as_mut().poll(&mut context).is_pending());
        drop((one, two, held));
        assert!(of_two.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn answers_that_end_while_they_wait_leave_nothing_behind() {
        let room = Room::new(0);
        let held = take_all(&room, ONE);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut waits = Box::pin(Arc::clone(&room).wait(ONE, PIECE));
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        assert!(room.state.lock().waiting.is_empty() && room.state.lock().order.is_empty());
        // One is given something, and ends before it knows.
        let mut waits = Box::pin(Arc::clone(&room).wait(ONE, PIECE));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(held);
        drop(waits);
        assert!(room.state.lock().shares.are_unused());
    }
}
