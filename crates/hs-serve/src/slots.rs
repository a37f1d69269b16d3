//! Which clients may be connected: a bounded number of slots for all of them together.
//!
//! When all slots are taken, the client with the most of them gives one up to a client with fewer: an idle
//! connection first, and the one that was idle longest. So a client that opens many connections loses its
//! own, and a client with one connection gets in and stays. The HTTP and the NBD server share this rule.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hs_engine::queue::ClientKey;
use parking_lot::Mutex;

/// A client that takes fewer bytes than this in the patience with it takes none: a kernel whose program reads
/// nothing may still take a few.
pub const PROGRESS_BYTES: u64 = 16 << 10;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// Of all clients together.
    pub all: usize,
    /// Of one client.
    pub client: usize,
}

/// The activity of a connection, as far as its slot depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It has no unanswered requests.
    pub is_idle: bool,
    /// Since it has become idle, or made progress last.
    pub since: Instant,
}

/// A connection that has a slot.
pub trait Occupant: Send + Sync {
    /// What it does now.
    fn standing(&self) -> Standing;
    /// Ends it soon; its slot is already given to another connection.
    fn evict(&self);
}

/// The slots of a server.
pub struct Slots {
    limits: SlotLimits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    occupants: HashMap<u64, (ClientKey, Arc<dyn Occupant>)>,
    of_client: HashMap<ClientKey, usize>,
    next: u64,
}

/// A connection's slot, until it is dropped.
pub struct Slot {
    slots: Arc<Slots>,
    number: u64,
}

impl Slots {
    /// All are free.
    pub fn new(limits: SlotLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// A slot for a connection of this client. If there is none left, another connection is ended for it;
    /// `None` when no connection may be ended.
    pub fn take(self: &Arc<Self>, client: ClientKey, occupant: Arc<dyn Occupant>) -> Option<Slot> {
        let mut taken = self.taken.lock();
        let own = taken.of_client.get(&client).copied().unwrap_or(0);
        if own >= self.limits.client {
            taken.evict_idle_of(client)?;
        } else if taken.occupants.len() >= self.limits.all {
            taken.evict_for(own)?;
        }
        let number = taken.next;
        taken.next += 1;
        taken.occupants.insert(number, (client, occupant));
        *taken.of_client.entry(client).or_default() += 1;
        Some(Slot { slots: Arc::clone(self), number })
    }

    /// Ends one connection, when the system has no descriptors for another one.
    pub fn make_room(&self) {
        self.taken.lock().evict_for(0);
    }
}

impl Taken {
    /// Ends the client's connection that is idle longest.
    fn evict_idle_of(&mut self, client: ClientKey) -> Option<()> {
        let own = self.occupants.iter().filter(|(_, (of, _))| *of == client);
        let standings = own.map(|(number, (_, occupant))| (*number, occupant.standing()));
        let idle = standings.filter(|(_, standing)| standing.is_idle);
        let (number, _) = idle.min_by_key(|(_, standing)| standing.since)?;
        self.evict(number)
    }

    /// Ends another client's connection to free a slot for a client that has `own` other slots.
    fn evict_for(&mut self, own: usize) -> Option<()> {
        let ranks = self.occupants.iter().filter_map(|(number, (client, occupant))| {
            let (count, standing) = (self.of_client.get(client).copied()?, occupant.standing());
            // A client that has many takes no slot from one that has fewer; and a busy connection is only
            // ended for a client that has fewer even then.
            let may_go = if standing.is_idle { count >= own } else { count > own + 1 };
            may_go.then_some(((count, standing.is_idle, std::cmp::Reverse(standing.since)), *number))
        });
        let (_, number) = ranks.max()?;
        self.evict(number)
    }

    fn evict(&mut self, number: u64) -> Option<()> {
        let occupant = self.remove(number)?;
        occupant.evict();
        Some(())
    }

    fn remove(&mut self, number: u64) -> Option<Arc<dyn Occupant>> {
        let (client, occupant) = self.occupants.remove(&number)?;
        if let Some(count) = self.of_client.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&client);
            }
        }
        Some(occupant)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;

    struct Fake {
        standing: Standing,
        is_evicted: AtomicBool,
    }

    impl Occupant for Fake {
        fn standing(&self) -> Standing {
            self.standing
        }
        fn evict(&self) {
            self.is_evicted.store(true, Relaxed);
        }
    }

    /// Connections that began one second after another.
    struct Scene {
        slots: Arc<Slots>,
        began: Instant,
        seconds: u64,
        /// Kept, as connections keep them.
        held: Vec<Slot>,
    }

    impl Scene {
        fn new(all: usize, client: usize) -> Self {
            let slots = Slots::new(SlotLimits { all, client });
            Self { slots, began: Instant::now(), seconds: 0, held: Vec::new() }
        }

        /// A connection of a client, if there is a slot for it.
        fn connect(&mut self, client: u64, is_idle: bool) -> Option<Arc<Fake>> {
            self.seconds += 1;
            let since = self.began + Duration::from_secs(self.seconds);
            let fake = Arc::new(Fake { standing: Standing { is_idle, since }, is_evicted: false.into() });
            self.held.push(self.slots.take(ClientKey(client), fake.clone())?);
            Some(fake)
        }
    }

    fn gone(fake: &Fake) -> bool {
        fake.is_evicted.load(Relaxed)
    }

    #[test]
    fn a_client_at_its_limit_loses_its_own_connection_that_was_idle_longest() {
        let mut scene = Scene::new(10, 3);
        let other = scene.connect(2, true).unwrap();
        let busy = scene.connect(1, false).unwrap();
        let first = scene.connect(1, true).unwrap();
        let second = scene.connect(1, true).unwrap();
        let third = scene.connect(1, true).unwrap();
        assert!(gone(&first));
        assert_eq!([&other, &busy, &second, &third].map(|fake| gone(fake)), [false; 4]);
    }

    #[test]
    fn a_client_whose_connections_are_all_busy_gets_no_more_than_its_limit() {
        let mut scene = Scene::new(10, 2);
        let _busy = [scene.connect(1, false).unwrap(), scene.connect(1, false).unwrap()];
        assert!(scene.connect(1, true).is_none());
        scene.held.pop();
        assert!(scene.connect(1, true).is_some());
    }

    #[test]
    fn when_all_are_taken_the_client_with_the_most_gives_one_up() {
        let mut scene = Scene::new(4, 4);
        let oldest = scene.connect(1, true).unwrap();
        let many: Vec<_> = [false, true, true].map(|is_idle| scene.connect(2, is_idle).unwrap()).into();
        let newcomer = scene.connect(3, true).unwrap();
        assert_eq!(many.iter().map(|fake| gone(fake)).collect::<Vec<_>>(), [false, true, false]);
        assert!(!gone(&oldest) && !gone(&newcomer));
    }

    #[test]
    fn connections_that_are_all_busy_do_not_lock_others_out() {
        let mut scene = Scene::new(4, 4);
        let busy: Vec<_> = (0..4).map(|_| scene.connect(1, false).unwrap()).collect();
        let newcomer = scene.connect(2, false).unwrap();
        assert!(gone(&busy[0]) && !gone(&newcomer));
        // Two and two: neither client takes a slot that it would then owe to the other.
        scene.connect(2, false).unwrap();
        assert!(scene.connect(2, false).is_none());
    }

    #[test]
    fn a_client_with_many_takes_no_idle_place_of_one_with_few() {
        let mut scene = Scene::new(3, 3);
        let idle = scene.connect(1, true).unwrap();
        let _busy = [scene.connect(2, false).unwrap(), scene.connect(2, false).unwrap()];
        assert!(scene.connect(2, false).is_none());
        assert!(!gone(&idle));
    }
}
