//! Shares: a client that was served more than others waits until they have had as much.
//!
//! The elevator chooses from what is admitted, so that it can order requests of many clients by position; a
//! client is admitted only as far as a *lead* beyond the one that was served least of those that want
//! something. So the difference between two clients that always want something stays below the lead and one
//! request, whatever the elevator does and however many connections each has: the requests of all connections
//! of a client are one account. This is the paper's inheritance of usage between the processes of a job
//! (Tezuka 1991, section 7), taken to its limit: a connection inherits all of the usage, and leaves all of it
//! behind. The virtual time by which accounts are compared is that of start-time fair queueing (Goyal, Vin
//! and Cheng, SIGCOMM 1996), with several requests in service as in SFQ(D) (Jin, Chase and Kaur, SIGMETRICS
//! 2004).

use super::arena::{Arena, Entry, EntryState, List};
use super::config::FairnessConfig;
use super::heap::Heap;

/// What one client has had, and what of it waits to be admitted.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Service that was begun, in bytes.
    served: u64,
    /// Service that was admitted, in bytes: never below `served`.
    admitted: u64,
    backlog: List,
    /// Requests that have not ended.
    requests: u32,
}

/// Accounts of all clients in one class.
#[derive(Debug)]
pub(super) struct Shares {
    config: FairnessConfig,
    accounts: Vec<Account>,
    /// Clients with requests that have not ended, by the service that they had when they were looked at last.
    /// That is exact for the first client and may be too little for the others. Service only grows, so the
    /// first client is the one that was served least.
    active: Heap,
    /// How far each of these may be served ahead of the client that was served least.
    allowance: u64,
    /// For how many clients that was divided out.
    allowed: u64,
    /// Clients with requests that are not admitted, by their admitted service.
    held_back: Heap,
    /// What the least served active client has had; never goes back.
    virtual_time: u64,
}

impl Shares {
    pub(super) fn new(config: FairnessConfig) -> Self {
        let mut shares = Self {
            config,
            accounts: Vec::new(),
            active: Heap::default(),
            allowance: 0,
            allowed: 0,
            held_back: Heap::default(),
            virtual_time: 0,
        };
        shares.allow();
        shares
    }

    /// Whether forgetting a client would give it nothing.
    pub(super) fn may_forget(&self, client: u32) -> bool {
        self.accounts.get(client as usize).is_none_or(|account| account.served <= self.virtual_time)
    }

    /// The number belongs to another client from now on.
    pub(super) fn forget(&mut self, client: u32) {
        if let Some(account) = self.accounts.get_mut(client as usize) {
            *account =
                Account { served: self.virtual_time, admitted: self.virtual_time, ..Account::default() };
        }
    }

    /// Takes a request in; true when it is admitted at once, else it is in the backlog.
    pub(super) fn handle_request(&mut self, arena: &mut Arena, index: u32) -> bool {
        let entry = arena.get_mut(index);
        let client = entry.client;
        self.begin(client);
        let limit = self.limit();
        let cost = self.cost(entry);
        let account = &mut self.accounts[client as usize];
        let is_first = account.backlog.is_empty();
        if is_first && account.admitted <= limit {
            account.admitted += cost;
            return true;
        }
        entry.place = EntryState::Backlog;
        arena.push(&mut account.backlog, index);
        if is_first {
            self.held_back.set(client, account.admitted);
        }
        false
    }

    /// The next request to be admitted, if any may be. With no client admitted at all (`or_idle`), the client
    /// that is the least ahead may go on: the medium does not wait for clients without requests.
    pub(super) fn admit(&mut self, arena: &mut Arena, or_idle: bool) -> Option<u32> {
        let (admitted, client) = self.held_back.first()?;
        if admitted > self.limit() && !or_idle {
            return None;
        }
        let account = &mut self.accounts[client as usize];
        let index = account.backlog.first;
        arena.unlink(&mut account.backlog, index);
        let cost = self.config.request_cost_bytes + arena.get(index).range.len;
        account.admitted += cost;
        self.update_held_back(client);
        Some(index)
    }

    /// An admitted request is sent to the medium.
    pub(super) fn handle_dispatched(&mut self, entry: &Entry) {
        let cost = self.cost(entry);
        self.accounts[entry.client as usize].served += cost;
        self.advance();
    }

    /// A request has ended that was sent to the medium.
    pub(super) fn handle_ended(&mut self, client: u32) {
        let account = &mut self.accounts[client as usize];
        account.requests -= 1;
        if account.requests == 0 {
            self.active.remove(client);
            self.allow();
            self.advance();
        }
    }

    /// A request leaves that was not sent to the medium; its place says whether it was admitted.
    pub(super) fn handle_removed(&mut self, arena: &mut Arena, index: u32) {
        let entry = *arena.get(index);
        let cost = self.cost(&entry);
        let account = &mut self.accounts[entry.client as usize];
        if entry.place == EntryState::Backlog {
            arena.unlink(&mut account.backlog, index);
        } else {
            account.admitted -= cost;
        }
        self.update_held_back(entry.client);
        self.handle_ended(entry.client);
    }

    /// A client with this many requests gets one more. A client that returns keeps its deficit up to a lead:
    /// its pause was short, or it makes one request after another and has none waiting in between.
    fn begin(&mut self, client: u32) {
        let number = client as usize;
        if number >= self.accounts.len() {
            let fresh =
                Account { served: self.virtual_time, admitted: self.virtual_time, ..Account::default() };
            self.accounts.resize(number + 1, fresh);
        }
        let floor = self.virtual_time.saturating_sub(self.config.lead_bytes);
        let account = &mut self.accounts[number];
        if account.requests == 0 {
            account.served = account.served.max(floor);
            account.admitted = account.served;
            self.active.set(client, account.served);
            self.allow();
        }
        self.accounts[number].requests += 1;
    }

    /// Up to where clients are admitted.
    fn limit(&self) -> u64 {
        self.active.first().map_or(self.virtual_time, |(least, _)| least) + self.allowance
    }

    /// Divides the allowance again when clients have become active or inactive, so that a request needs no
    /// division.
    fn allow(&mut self) {
        let clients = self.active.len().max(1) as u64;
        if clients != self.allowed {
            self.allowed = clients;
            self.allowance = (self.config.together_bytes / clients).max(self.config.lead_bytes);
        }
    }

    fn cost(&self, entry: &Entry) -> u64 {
        self.config.request_cost_bytes + entry.range.len
    }

    fn update_held_back(&mut self, client: u32) {
        let account = &self.accounts[client as usize];
        if account.backlog.is_empty() {
            self.held_back.remove(client);
        } else {
            self.held_back.set(client, account.admitted);
        }
    }

    /// Finds the client that was served least, and advances the virtual time to its service.
    fn advance(&mut self) {
        while let Some((seen, client)) = self.active.first() {
            let served = self.accounts[client as usize].served;
            if served == seen {
                self.virtual_time = self.virtual_time.max(served);
                break;
            }
            self.active.set(client, served);
        }
    }
}
