//! Who asks: from the keys of clients to small numbers, and what is known of each.

use super::request::ClientKey;

const NONE: u32 = u32::MAX;

/// How many clients without connections and without requests are remembered.
const REMEMBERED: usize = 1024;

/// One client, however many connections it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub key: ClientKey,
    pub connections: u32,
    /// Requests that have not ended.
    pub requests: u32,
}

impl Client {
    const fn is_idle(&self) -> bool {
        self.connections == 0 && self.requests == 0
    }
}

/// All clients, found by key in a table with open addressing: the queue must replay, so that the standard table with
/// its random order is out of the question, and a lookup costs a few nanoseconds.
#[derive(Debug)]
pub(super) struct Clients {
    clients: Vec<Client>,
    /// Numbers of clients; a power of two, at most half full.
    table: Vec<u32>,
    /// Where the search for somebody to forget goes on.
    hand: usize,
}

impl Default for Clients {
    fn default() -> Self {
        Self { clients: Vec::new(), table: vec![NONE; 16], hand: 0 }
    }
}

impl Clients {
    pub(super) fn get(&self, number: u32) -> &Client {
        &self.clients[number as usize]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut Client {
        &mut self.clients[number as usize]
    }

    /// The number of a client; `true` when it was not known, so that whoever keeps something by number starts anew.
    pub(super) fn number(&mut self, key: ClientKey) -> (u32, bool) {
        let place = self.probe(key);
        if self.table[place] != NONE {
            return (self.table[place], false);
        }
        if self.clients.len() >= REMEMBERED
            && let Some(number) = self.forgettable()
        {
            self.replace(number, key);
            return (number, true);
        }
        let number = self.clients.len() as u32;
        self.clients.push(Client { key, connections: 0, requests: 0 });
        self.table[place] = number;
        if self.clients.len() * 2 > self.table.len() {
            self.rebuild(self.table.len() * 2);
        }
        (number, true)
    }

    /// Clients that are known.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Client)> {
        (0..).zip(&self.clients)
    }

    /// The next client, round and round, that has neither connections nor requests; a few are looked at.
    fn forgettable(&mut self) -> Option<u32> {
        for _ in 0..16 {
            self.hand = (self.hand + 1) % self.clients.len();
            if self.clients[self.hand].is_idle() {
                return Some(self.hand as u32);
            }
        }
        None
    }

    fn replace(&mut self, number: u32, key: ClientKey) {
        self.clients[number as usize] = Client { key, connections: 0, requests: 0 };
        self.rebuild(self.table.len());
    }

    fn rebuild(&mut self, len: usize) {
        self.table.clear();
        self.table.resize(len, NONE);
        for number in 0..self.clients.len() {
            let place = self.probe(self.clients[number].key);
            self.table[place] = number as u32;
        }
    }

    /// The place of a key in the table, or the free one where it belongs.
    fn probe(&self, key: ClientKey) -> usize {
        let mask = self.table.len() - 1;
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4).
        let mut place = (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.table[place] != NONE && self.clients[self.table[place] as usize].key != key {
            place = (place + 1) & mask;
        }
        place
    }
}
