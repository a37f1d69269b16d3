//! Clients: from their keys to small numbers, and what is known of each.

use hs_units::Nanos;

use super::request::ClientKey;

const NONE: u32 = u32::MAX;

/// How many clients are remembered before those that want nothing are forgotten.
const REMEMBERED: usize = 1024;

/// How many are examined to find one that can be forgotten.
const SEARCHED: usize = 16;

/// One client, however many connections it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub key: ClientKey,
    pub connections: u32,
    /// Requests that have not ended.
    requests: u32,
    /// When the first of these came.
    since: Nanos,
    /// How long there were such requests before that.
    active: Nanos,
    /// Bytes that were sent to the medium for it.
    pub bytes: u64,
}

impl Client {
    const fn new(key: ClientKey) -> Self {
        Self { key, connections: 0, requests: 0, since: Nanos::ZERO, active: Nanos::ZERO, bytes: 0 }
    }

    pub(super) fn handle_request(&mut self, now: Nanos) {
        if self.requests == 0 {
            self.since = now;
        }
        self.requests += 1;
    }

    pub(super) fn handle_ended(&mut self, now: Nanos) {
        self.requests -= 1;
        if self.requests == 0 {
            self.active += now.saturating_sub(self.since);
        }
    }

    /// How long the client has had requests up to now, in all.
    pub(super) fn active(&self, now: Nanos) -> Nanos {
        if self.requests == 0 { self.active } else { self.active + now.saturating_sub(self.since) }
    }
}

/// All clients, found by key in a table with open addressing. The queue must replay, which excludes the
/// standard table with its random order, and a lookup costs a few nanoseconds.
#[derive(Debug)]
pub(super) struct Clients {
    clients: Vec<Client>,
    /// Numbers of clients; a power of two, at most half full.
    table: Vec<u32>,
    /// Where the search for a client to forget goes on.
    hand: usize,
}

impl Default for Clients {
    fn default() -> Self {
        Self { clients: Vec::new(), table: vec![NONE; 16], hand: 0 }
    }
}

impl Clients {
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Client {
        &mut self.clients[number as usize]
    }

    /// The number of a client, if it is known.
    pub(super) fn find(&self, key: ClientKey) -> Option<u32> {
        let number = self.table[self.place(key)];
        (number != NONE).then_some(number)
    }

    /// Adds a new client, perhaps in the place of one that has no requests and no connections, and that
    /// `may_forget` allows to forget.
    pub(super) fn add(&mut self, key: ClientKey, may_forget: impl Fn(u32) -> bool) -> u32 {
        if self.clients.len() >= REMEMBERED
            && let Some(number) = self.forgettable(may_forget)
        {
            self.clients[number as usize] = Client::new(key);
            self.rebuild(self.table.len());
            return number;
        }
        let number = self.clients.len() as u32;
        self.clients.push(Client::new(key));
        let len = self.table.len();
        if self.clients.len() * 2 > len {
            self.rebuild(len * 2);
        } else {
            let place = self.place(key);
            self.table[place] = number;
        }
        number
    }

    /// All known clients.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter()
    }

    /// The next client, in a circle, that can be forgotten; a few are examined.
    fn forgettable(&mut self, may_forget: impl Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..SEARCHED {
            self.hand = (self.hand + 1) % self.clients.len();
            let client = &self.clients[self.hand];
            if client.connections == 0 && client.requests == 0 && may_forget(self.hand as u32) {
                return Some(self.hand as u32);
            }
        }
        None
    }

    fn rebuild(&mut self, len: usize) {
        self.table.clear();
        self.table.resize(len, NONE);
        for number in 0..self.clients.len() {
            let place = self.place(self.clients[number].key);
            self.table[place] = number as u32;
        }
    }

    /// The place of a key in the table, or the free one where it belongs.
    fn place(&self, key: ClientKey) -> usize {
        let mask = self.table.len() - 1;
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4): the highest bits of the
        // product, in which keys that follow one another lie apart.
        let unused_bits = self.table.len().leading_zeros() + 1;
        let mut place = (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> unused_bits) as usize;
        while self.table[place] != NONE && self.clients[self.table[place] as usize].key != key {
            place = (place + 1) & mask;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use hs_units::Prng;

    use super::*;

    #[test]
    fn each_client_is_found_by_its_key() {
        let mut clients = Clients::default();
        let mut prng = Prng::new(1);
        let keys: Vec<ClientKey> = (0..500).map(|_| ClientKey(prng.below(u64::MAX))).collect();
        for (number, key) in (0..).zip(&keys) {
            assert_eq!(clients.find(*key), None);
            assert_eq!(clients.add(*key, |_| false), number);
        }
        assert!((0..).zip(&keys).all(|(number, key)| clients.find(*key) == Some(number)));
    }

    #[test]
    fn of_many_clients_those_are_forgotten_that_want_nothing_and_are_not_connected() {
        let mut clients = Clients::default();
        // One of four is connected, one has a request, one must not be forgotten.
        for key in 0..REMEMBERED as u64 {
            let number = clients.add(ClientKey(key), |_| false);
            match number % 4 {
                0 => clients.get_mut(number).connections = 1,
                1 => clients.get_mut(number).handle_request(Nanos::ZERO),
                _ => {}
            }
        }
        let may_forget = |number: u32| number % 4 == 3;
        for key in (10_000..).take(REMEMBERED / 4) {
            let number = clients.add(ClientKey(key), may_forget);
            assert!(number < REMEMBERED as u32 && may_forget(number), "{number} was forgotten");
            assert_eq!(
                (clients.find(ClientKey(key)), clients.find(ClientKey(number.into()))),
                (Some(number), None)
            );
            clients.get_mut(number).connections = 1;
        }
        assert_eq!(clients.add(ClientKey(20_000), may_forget), REMEMBERED as u32, "all others are needed");
    }
}
