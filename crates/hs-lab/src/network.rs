//! Clients on a link that they share, with a cache between them and the origin if there is one.
//!
//! ```text
//! origin ── origin's link ── edge cache ── the clients' link ── clients        with an edge cache
//! origin ───────────────────────────────── the clients' link ── clients        without
//! ```
//!
//! Both links share their rate between all answers under way ([`SharedLink`]). The cache keeps slices of the
//! image, is large enough for all of it, and fetches a slice once, however many clients ask for it meanwhile
//! (`proxy_cache_lock` of nginx, whose module `ngx_http_slice_module` cuts as well). It sends on what it has
//! of an answer while it fetches the rest. The processor time of servers and caches is not modelled.
//!
//! A client's prefetch is modelled after `hs-remote`'s HTTP reader: it is one answer, of which each request
//! takes the next part, so that only the first of them is a request to the server. Short gaps in it are read
//! and dropped.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use hs_device::{Flow, FlowKey, LinkEvent, LinkSpec, SharedLink};
use hs_engine::queue::{Class, ClientKey};
use hs_units::{ByteRange, Nanos};

/// Bytes of a slice that a cache fetches and keeps as a whole.
const SLICE_BYTES: u64 = 256 << 10;
/// A gap in what is prefetched up to which the answer goes on through it (docs/NETWORK.md, "What goes over
/// the wire").
const GAP_BYTES: u64 = 256 << 10;

/// What a cache knows of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slice {
    Coming,
    There,
}

/// A cache near the clients.
struct Edge {
    origin: SharedLink,
    file_bytes: u64,
    slices: BTreeMap<u64, Slice>,
    next_fetch: u64,
    /// Answers that wait for a slice.
    waiting: BTreeMap<FlowKey, ByteRange>,
}

/// Links, caches, and how much of them was used.
pub(crate) struct Network {
    clients_link: SharedLink,
    edge: Option<Edge>,
    /// How many clients stand behind each key.
    clients: Vec<NonZeroU32>,
    /// Where the answer to each client's prefetch has got to.
    streams: BTreeMap<ClientKey, u64>,
    /// Bytes of a gap that come before what a request is for.
    gaps: BTreeMap<FlowKey, u64>,
    /// Requests that the origin was asked, and bytes that it sent.
    pub(crate) origin_requests: u64,
    pub(crate) origin_bytes: u64,
}

impl Network {
    /// One link between `clients` and the origin.
    pub(crate) fn direct(link: LinkSpec, clients: Vec<NonZeroU32>) -> Self {
        let clients_link = SharedLink::new(link);
        Self {
            clients_link,
            edge: None,
            clients,
            streams: BTreeMap::new(),
            gaps: BTreeMap::new(),
            origin_requests: 0,
            origin_bytes: 0,
        }
    }

    /// An empty cache between them, for a file of `file_bytes`.
    pub(crate) fn with_edge(
        origin: LinkSpec,
        clients_link: LinkSpec,
        file_bytes: u64,
        clients: Vec<NonZeroU32>,
    ) -> Self {
        let edge = Edge {
            origin: SharedLink::new(origin),
            file_bytes,
            slices: BTreeMap::new(),
            next_fetch: 0,
            waiting: BTreeMap::new(),
        };
        Self { edge: Some(edge), ..Self::direct(clients_link, clients) }
    }

    /// A client asks for `range`.
    pub(crate) fn open(
        &mut self,
        now: Nanos,
        key: FlowKey,
        client: ClientKey,
        class: Class,
        range: ByteRange,
    ) {
        let clients = self.clients[client.0 as usize];
        let gap = if class == Class::Prefetch { self.goes_on(client, range) } else { None };
        let skipped = gap.unwrap_or_default();
        let range = ByteRange::new(range.offset - skipped, range.len + skipped);
        if skipped > 0 {
            self.gaps.insert(key, skipped);
        }
        let mut flow = Flow { clients, follows: gap.is_some(), ..Flow::of(range.len) };
        if let Some(edge) = &mut self.edge {
            for fetched in edge.fetch_missing(now, range) {
                self.origin_requests += 1;
                self.origin_bytes += fetched;
            }
            flow.granted = edge.granted(range);
            if flow.granted < range.len {
                edge.waiting.insert(key, range);
            }
        } else {
            self.origin_requests += u64::from(gap.is_none()) * u64::from(clients.get());
            self.origin_bytes += u64::from(clients.get()) * range.len;
        }
        self.clients_link.open(now, key, flow);
    }

    /// Bytes between the end of what the answer to a client's prefetch has brought and `range`, when that
    /// answer goes on to it.
    fn goes_on(&mut self, client: ClientKey, range: ByteRange) -> Option<u64> {
        let before = self.streams.insert(client, range.end())?;
        range.offset.checked_sub(before).filter(|gap| *gap <= GAP_BYTES)
    }

    /// A wake-up, by `token`, when the first `bytes` of an answer have come.
    pub(crate) fn mark(&mut self, now: Nanos, key: FlowKey, bytes: u64, token: u64) {
        let gap = self.gaps.get(&key).copied().unwrap_or_default();
        self.clients_link.mark(now, key, gap + bytes, token);
    }

    /// When something happens next.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let origin = self.edge.as_ref().and_then(|edge| edge.origin.next_event());
        [self.clients_link.next_event(), origin].into_iter().flatten().min()
    }

    /// What has happened to the clients until `now`, which is not after [`next_event`](Self::next_event).
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<LinkEvent> {
        if let Some(edge) = &mut self.edge {
            let mut came = false;
            while let Some(event) = edge.origin.poll(now) {
                if let LinkEvent::Passed(_, slice) = event {
                    edge.slices.insert(slice, Slice::There);
                    came = true;
                }
            }
            if came {
                let waiting = std::mem::take(&mut edge.waiting);
                for (key, range) in waiting {
                    let granted = edge.granted(range);
                    self.clients_link.grant(now, key, granted);
                    if granted < range.len {
                        edge.waiting.insert(key, range);
                    }
                }
            }
        }
        self.clients_link.poll(now)
    }
}

impl Edge {
    /// Asks the origin for the slices of `range` that were not requested yet; returns the bytes of each
    /// request.
    fn fetch_missing(&mut self, now: Nanos, range: ByteRange) -> Vec<u64> {
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        for slice in range.offset / SLICE_BYTES..range.end().div_ceil(SLICE_BYTES) {
            if self.slices.contains_key(&slice) {
                continue;
            }
            self.slices.insert(slice, Slice::Coming);
            match runs.last_mut() {
                Some(run) if run.end == slice => run.end += 1,
                _ => runs.push(slice..slice + 1),
            }
        }
        runs.into_iter()
            .map(|run| {
                let begins = run.start * SLICE_BYTES;
                let bytes = (run.end * SLICE_BYTES).min(self.file_bytes.max(begins)) - begins;
                let key = FlowKey(self.next_fetch);
                self.next_fetch += 1;
                self.origin.open(now, key, Flow::of(bytes));
                for slice in run {
                    self.origin.mark(now, key, (slice + 1) * SLICE_BYTES - begins, slice);
                }
                bytes
            })
            .collect()
    }

    /// Bytes from the beginning of `range` on that are here.
    fn granted(&self, range: ByteRange) -> u64 {
        let slices = range.offset / SLICE_BYTES..range.end().div_ceil(SLICE_BYTES);
        let missing = slices.into_iter().find(|slice| self.slices.get(slice) != Some(&Slice::There));
        missing.map_or(range.len, |slice| (slice * SLICE_BYTES).max(range.offset) - range.offset)
    }
}
