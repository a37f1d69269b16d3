//! A link whose rate all answers under way share equally, as TCP connections over one bottleneck do.
//!
//! *Processor sharing*: while `W` answers are under way, each gets `rate / W`. How far each has come follows
//! from one number, the *virtual time* of generalised processor sharing (Parekh and Gallager, "A generalized
//! processor sharing approach to flow control in integrated services networks", IEEE/ACM Transactions on
//! Networking 1(3), 1993, section IV): the bytes that an answer would have that had been under way since the
//! beginning. It grows by `rate / W`, and an answer of `n` bytes that began when it was `v` ends when it is
//! `v + n`, whatever begins and ends meanwhile. So an arrival or an end costs a look-up among those under
//! way, not a change to each of them.
//!
//! Its first byte comes a round trip after a request, on a link as busy as may be. Not modelled: slow start,
//! loss, connections with different round trips, which TCP does not serve alike.
//!
//! Unlike a [`Device`](crate::Device), it cannot promise at the request when the last byte will come: that
//! depends on the requests after it. So it is asked what has happened ([`poll`](SharedLink::poll)), and when
//! to ask again.

use core::num::NonZeroU32;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hs_units::Nanos;

use crate::link::LinkSpec;

/// An answer on its way, by a number that the caller chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey(pub u64);

/// What is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// So many clients have one like it at the same moment; each gets a share, and `bytes`.
    pub clients: NonZeroU32,
    /// Bytes of one answer.
    pub bytes: u64,
    /// So many of them may be sent for now: the sender has no more.
    pub granted: u64,
    /// It is the next part of an answer that the sender is sending anyway: no round trip comes before it.
    pub follows: bool,
}

impl Flow {
    /// One client's, all of which can be sent.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self { clients: NonZeroU32::MIN, bytes, granted: bytes, follows: false }
    }
}

/// What has happened on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The round trip is over.
    FirstByte(FlowKey),
    /// As many bytes have come as [`SharedLink::mark`] said, with this token.
    Passed(FlowKey, u64),
    /// All bytes have come; the flow is forgotten.
    Done(FlowKey),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum SendingState {
    /// Its first byte is on its way.
    RoundTrip,
    /// It gets its share; the tag at which it next stops, as it stands in `stops`.
    UnderWay { stop: u64 },
    /// All that was granted has been sent.
    Stalled,
}

#[derive(Clone, Debug)]
struct Sending {
    flow: Flow,
    state: SendingState,
    /// Bytes that it had when it was last put under way, and the virtual time of that.
    had: f64,
    since: f64,
    /// Bytes at which a caller wants an event, each with the tokens.
    marks: BTreeMap<u64, Vec<u64>>,
}

impl Sending {
    fn had_at(&self, virtual_time: f64) -> f64 {
        match self.state {
            SendingState::RoundTrip | SendingState::Stalled => self.had,
            SendingState::UnderWay { .. } => {
                (self.had + virtual_time - self.since).min(self.flow.granted as f64)
            }
        }
    }

    /// Bytes at which something happens next.
    fn next_stop(&self) -> u64 {
        let mark = self.marks.first_key_value().map_or(u64::MAX, |(bytes, _)| *bytes);
        mark.min(self.flow.granted)
    }
}

/// Such a link at work.
#[derive(Clone, Debug)]
pub struct SharedLink {
    round_trip: Nanos,
    bytes_per_ns: f64,
    now: Nanos,
    virtual_time: f64,
    /// Shares under way.
    shares: u64,
    sending: BTreeMap<FlowKey, Sending>,
    /// Flows whose first byte comes then.
    joins: BTreeSet<(Nanos, FlowKey)>,
    /// Flows under way, by the virtual time of their next stop: a number that is not negative, whose bits
    /// sort as it does.
    stops: BTreeSet<(u64, FlowKey)>,
    events: VecDeque<LinkEvent>,
}

impl SharedLink {
    /// An idle link.
    #[must_use]
    pub fn new(spec: LinkSpec) -> Self {
        Self {
            round_trip: spec.round_trip,
            bytes_per_ns: spec.rate_bytes_per_second().get() as f64 / 1e9,
            now: Nanos::ZERO,
            virtual_time: 0.0,
            shares: 0,
            sending: BTreeMap::new(),
            joins: BTreeSet::new(),
            stops: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// An answer is asked for at `now`.
    ///
    /// # Panics
    /// When one called `key` is under way.
    pub fn open(&mut self, now: Nanos, key: FlowKey, flow: Flow) {
        self.run(now);
        let flow = Flow { granted: flow.granted.min(flow.bytes), ..flow };
        let sending =
            Sending { flow, state: SendingState::RoundTrip, had: 0.0, since: 0.0, marks: BTreeMap::new() };
        assert!(self.sending.insert(key, sending).is_none(), "{key:?} is under way");
        let round_trip = if flow.follows { Nanos::ZERO } else { self.round_trip };
        self.joins.insert((now + round_trip, key));
    }

    /// Asks for an event, with `token`, when the first `bytes` of a flow have come; all of them where it has
    /// fewer. For a flow that has ended that is nothing that would still happen.
    pub fn mark(&mut self, now: Nanos, key: FlowKey, bytes: u64, token: u64) {
        self.run(now);
        let Some(sending) = self.sending.get_mut(&key) else { return };
        let bytes = bytes.min(sending.flow.bytes);
        if !matches!(sending.state, SendingState::RoundTrip)
            && bytes as f64 <= sending.had_at(self.virtual_time)
        {
            return self.events.push_back(LinkEvent::Passed(key, token));
        }
        sending.marks.entry(bytes).or_default().push(token);
        if matches!(sending.state, SendingState::UnderWay { .. }) {
            self.pause(key);
            self.go_on(key);
        }
    }

    /// The sender has `bytes` of a flow from now on, all of them where that is more.
    pub fn grant(&mut self, now: Nanos, key: FlowKey, bytes: u64) {
        self.run(now);
        let Some(sending) = self.sending.get_mut(&key) else { return };
        let bytes = bytes.min(sending.flow.bytes);
        if bytes <= sending.flow.granted {
            return;
        }
        if matches!(sending.state, SendingState::RoundTrip) {
            sending.flow.granted = bytes;
            return;
        }
        self.pause(key);
        self.sending.get_mut(&key).expect("it was found").flow.granted = bytes;
        self.go_on(key);
    }

    /// The rest of a flow is not wanted any more.
    pub fn close(&mut self, now: Nanos, key: FlowKey) {
        self.run(now);
        if self.sending.contains_key(&key) {
            self.pause(key);
            self.sending.remove(&key);
            self.joins.retain(|(_, other)| *other != key);
        }
    }

    /// When something happens next, if no flow is opened before; [`poll`](Self::poll) then says what.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        if !self.events.is_empty() {
            return Some(self.now);
        }
        let join = self.joins.first().map(|(then, _)| *then);
        [join, self.next_stop()].into_iter().flatten().min()
    }

    /// What has happened until `now` and was not yet told.
    pub fn poll(&mut self, now: Nanos) -> Option<LinkEvent> {
        self.run(now);
        self.events.pop_front()
    }

    /// Bytes of a flow that have come by `now`; nothing when it has ended.
    pub fn delivered(&mut self, now: Nanos, key: FlowKey) -> Option<u64> {
        self.run(now);
        // Virtual time is rounded: a flow that was stopped at a byte has that byte.
        self.sending.get(&key).map(|sending| (sending.had_at(self.virtual_time) + 1e-3) as u64)
    }

    /// The earliest time at which the first `bytes` of a flow can have come: when all others leave now.
    #[must_use]
    pub fn earliest(&self, key: FlowKey, bytes: u64) -> Nanos {
        let Some(sending) = self.sending.get(&key) else { return self.now };
        let joins = match sending.state {
            SendingState::RoundTrip => {
                self.joins.iter().find(|(_, other)| *other == key).map_or(self.now, |(then, _)| *then)
            }
            _ => self.now,
        };
        let left = (bytes.min(sending.flow.bytes) as f64 - sending.had_at(self.virtual_time)).max(0.0);
        joins + Nanos((left * f64::from(sending.flow.clients.get()) / self.bytes_per_ns).ceil() as u64)
    }

    /// When the next of those under way stops.
    fn next_stop(&self) -> Option<Nanos> {
        let (tag, _) = self.stops.first()?;
        let left = (f64::from_bits(*tag) - self.virtual_time).max(0.0);
        Some(self.now + Nanos((left * self.shares as f64 / self.bytes_per_ns).ceil() as u64))
    }

    /// Everything that happens until `now`, in its order.
    fn run(&mut self, now: Nanos) {
        loop {
            let join = self.joins.first().copied().filter(|(then, _)| *then <= now);
            let stop = self.next_stop().filter(|then| *then <= now);
            match (join, stop) {
                (Some((then, key)), stop) if stop.is_none_or(|stop| then <= stop) => {
                    self.advance(then);
                    self.joins.pop_first();
                    self.events.push_back(LinkEvent::FirstByte(key));
                    self.go_on(key);
                }
                (_, Some(then)) => {
                    let (tag, key) = self.stops.first().copied().expect("something stops");
                    self.advance(then);
                    self.virtual_time = self.virtual_time.max(f64::from_bits(tag));
                    self.reached(key);
                }
                _ => return self.advance(now),
            }
        }
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.now).0 as f64;
        if self.shares > 0 {
            self.virtual_time += passed * self.bytes_per_ns / self.shares as f64;
        }
        self.now = self.now.max(now);
    }

    /// A flow under way has come to its stop.
    fn reached(&mut self, key: FlowKey) {
        let stop = self.sending[&key].next_stop();
        self.pause(key);
        self.sending.get_mut(&key).expect("it is under way").had = stop as f64;
        self.go_on(key);
    }

    /// Takes a flow from those under way, if it is one.
    fn pause(&mut self, key: FlowKey) {
        let virtual_time = self.virtual_time;
        let sending = self.sending.get_mut(&key).expect("it is known");
        if let SendingState::UnderWay { stop } = sending.state {
            sending.had = sending.had_at(virtual_time);
            sending.state = SendingState::Stalled;
            self.stops.remove(&(stop, key));
            self.shares -= u64::from(sending.flow.clients.get());
        }
    }

    /// Tells what a flow has passed, and puts it under way if there is more to be sent.
    fn go_on(&mut self, key: FlowKey) {
        let sending = self.sending.get_mut(&key).expect("it is known");
        while let Some(mark) = sending.marks.first_entry().filter(|mark| *mark.key() as f64 <= sending.had) {
            let tokens = mark.remove();
            self.events.extend(tokens.into_iter().map(|token| LinkEvent::Passed(key, token)));
        }
        if sending.had >= sending.flow.bytes as f64 {
            self.sending.remove(&key);
            return self.events.push_back(LinkEvent::Done(key));
        }
        if sending.had >= sending.flow.granted as f64 {
            sending.state = SendingState::Stalled;
            return;
        }
        sending.since = self.virtual_time;
        let stop = (self.virtual_time + sending.next_stop() as f64 - sending.had).to_bits();
        sending.state = SendingState::UnderWay { stop };
        self.shares += u64::from(sending.flow.clients.get());
        self.stops.insert((stop, key));
    }
}

#[cfg(test)]
mod tests;
