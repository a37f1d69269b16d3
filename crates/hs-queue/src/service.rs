//! What the medium is working on.

use hs_units::{ByteRange, Nanos};

use super::arena::{Arena, NONE};
use super::clients::Clients;
use super::lane::Lane;
use super::merge::Merged;
use super::request::{Class, Dispatch, DispatchId, Finished};

/// A request to the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub range: ByteRange,
    pub class: Class,
    /// How many of those that waited it holds.
    pub requests: u32,
    /// Where their chain through the arena begins.
    first: u32,
    generation: u32,
    live: bool,
}

/// All requests to the medium that have not ended.
#[derive(Debug, Default)]
pub(super) struct Services {
    services: Vec<Service>,
    free: Vec<u32>,
}

impl Services {
    /// Begins what was gathered; its members are in no list.
    pub(super) fn start(&mut self, arena: &mut Arena, class: Class, merged: &Merged) -> Dispatch {
        let first = arena.chain(&merged.members);
        let requests = merged.members.len() as u32;
        let index = self.free.pop().unwrap_or_else(|| {
            let empty = Service { range: merged.range, class, requests, first, generation: 0, live: false };
            self.services.push(empty);
            (self.services.len() - 1) as u32
        });
        let service = &mut self.services[index as usize];
        *service = Service { range: merged.range, class, requests, first, live: true, ..*service };
        Dispatch {
            id: DispatchId { index, generation: service.generation },
            range: merged.range,
            direction: arena.get(first).direction,
            class,
            requests,
        }
    }

    /// Ends a request to the medium.
    pub(super) fn finish(&mut self, id: DispatchId) -> Service {
        let service = &mut self.services[id.index as usize];
        assert!(service.live && service.generation == id.generation, "a dispatch ends once");
        let ended = *service;
        service.live = false;
        service.generation = service.generation.wrapping_add(1);
        self.free.push(id.index);
        ended
    }

    /// Places in the arena of what a dispatch holds; of none that has ended.
    pub(super) fn members(&self, arena: &Arena, id: DispatchId) -> impl Iterator<Item = u32> {
        let service = self.services.get(id.index as usize);
        let service = service.filter(|service| service.live && service.generation == id.generation);
        let mut next = service.map_or(NONE, |service| service.first);
        std::iter::from_fn(move || {
            let index = (next != NONE).then_some(next)?;
            next = arena.next(index);
            Some(index)
        })
    }
}

/// The requests that ended with a dispatch, one after another.
#[derive(Debug)]
pub struct Finish<'a> {
    arena: &'a mut Arena,
    clients: &'a mut Clients,
    lane: &'a mut Lane,
    now: Nanos,
    /// The next one, or [`NONE`].
    next: u32,
    end: u64,
}

impl<'a> Finish<'a> {
    pub(super) fn new(
        arena: &'a mut Arena,
        clients: &'a mut Clients,
        lane: &'a mut Lane,
        now: Nanos,
        service: Service,
        bytes: u64,
    ) -> Self {
        let end = service.range.offset.saturating_add(bytes);
        Self { arena, clients, lane, now, next: service.first, end }
    }
}

impl Finish<'_> {
    /// Ends a request; there is one.
    fn end(&mut self, index: u32) -> Finished {
        self.next = self.arena.next(index);
        let entry = self.arena.get(index);
        let (client, finished) =
            (entry.client, Finished { tag: entry.tag, complete: entry.range.end() <= self.end });
        self.clients.get_mut(client).handle_ended(self.now);
        if let Some(shares) = &mut self.lane.shares {
            shares.handle_ended(client);
        }
        self.arena.release(index);
        finished
    }
}

impl Iterator for Finish<'_> {
    type Item = Finished;

    // Nearly every dispatch holds one request, so asking for a second one must not cost a call.
    #[inline]
    fn next(&mut self) -> Option<Finished> {
        (self.next != NONE).then(|| self.end(self.next))
    }
}

impl Drop for Finish<'_> {
    #[inline]
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}
