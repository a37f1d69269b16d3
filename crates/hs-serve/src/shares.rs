//! How much of a pool of bytes each client may hold: dynamic thresholds.
//!
//! A client may hold as much as is free: one that takes all it can leaves half, two leave a third. So clients
//! that take and give nothing back leave room for others, without a fixed share for each (Choudhury and
//! Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). The HTTP and the NBD
//! server share this rule.

use std::collections::HashMap;

use hs_engine::queue::ClientKey;

/// A pool, and what clients hold of it.
pub struct Shares {
    all: i64,
    /// Below zero when clients were given what is not to be refused.
    free: i64,
    clients: HashMap<ClientKey, i64>,
}

impl Shares {
    /// So many bytes are free.
    pub fn new(bytes: u64) -> Self {
        Self { all: bytes as i64, free: bytes as i64, clients: HashMap::new() }
    }

    /// What a client holds.
    pub fn held(&self, client: ClientKey) -> i64 {
        self.clients.get(&client).copied().unwrap_or(0)
    }

    /// What all clients hold.
    pub fn all_held(&self) -> i64 {
        self.all - self.free
    }

    /// What a client may still take; below zero when it holds more than is free by now.
    pub fn left(&self, client: ClientKey) -> i64 {
        self.free - self.held(client)
    }

    /// A client holds so many bytes more, or fewer.
    pub fn change(&mut self, client: ClientKey, bytes: i64) {
        self.free -= bytes;
        let held = self.clients.entry(client).or_default();
        *held += bytes;
        if *held == 0 {
            self.clients.remove(&client);
        }
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn are_unused(&self) -> bool {
        self.clients.is_empty()
    }
}
