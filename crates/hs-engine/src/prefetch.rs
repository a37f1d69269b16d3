//! Which run of hot chunks to ask for next, and whether to join the stream or seek.

mod chunks;
mod confidence;
mod config;
mod deadlines;
mod end;
mod in_flight;
mod pacing;
#[cfg(test)]
mod tests;
mod tripwires;

use std::collections::VecDeque;
use std::ops::Range;

use hs_units::Nanos;

use self::chunks::Chunks;
use self::confidence::Confidence;
pub use self::config::{ChunkSize, LateRule, PrefetchConfig};
use self::deadlines::Deadlines;
pub use self::deadlines::PrefetchRate;
pub use self::end::EndReason;
use self::in_flight::InFlight;
use self::pacing::NextRequest;
use self::tripwires::Tripwires;
use crate::MediumEstimate;

/// Names a request that [`Prefetch::poll`] asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read these chunks, which are contiguous in the image, with one request.
    Request(RequestId, Range<u32>),
    /// Nothing until the next `handle_*` call.
    Wait,
    /// Nothing until then, unless a `handle_*` call comes first.
    WaitUntil(Nanos),
    /// Nothing more, ever.
    Done(EndReason),
}

/// What a reader should do when it needs a hot chunk that has not come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Wait: the stream brings it sooner than a separate request would.
    Join,
    /// Ask the medium for it.
    Fetch,
}

/// After this many demand misses that are not beside hot blocks the profile is doubted, and prefetch only
/// fills the medium's pauses.
const TRUSTED_MISSES: u64 = 24;
/// How many answered requests are remembered. A later request may have waited for one of them.
const ANSWERED: usize = 8;
/// What leaving the stream costs, in jumps. The reader waits for one, and all others for two, there and back.
const JUMPS_OF_LEAVING: u64 = 3;
/// The assumed cost of a jump until one was measured, on a medium that does not overlap requests: that of the
/// slowest drives. A wrong decision to join costs this once; a wrong decision to seek costs it each time.
const UNKNOWN_JUMP: Nanos = Nanos::from_millis(100);
/// How long the medium must have been free of demand before a doubted prefetch goes on.
const PAUSE: Nanos = Nanos::from_millis(20);

/// The prefetch of one hot region: one forward pass over its chunks.
#[derive(Debug)]
pub struct Prefetch {
    config: PrefetchConfig,
    /// The part of the configured budget that memory has room for.
    budget_bytes: u64,
    chunks: Chunks,
    deadlines: Deadlines,
    next: u32,
    request_bytes: u64,
    in_flight: VecDeque<InFlight>,
    next_id: u64,
    /// Demand misses that speak against the profile.
    misses: u64,
    has_missed: bool,
    /// What readers that left the stream have cost all others, as far as they had the choice.
    spent_on_leaving: Nanos,
    demand_under_way: u64,
    last_demand: Nanos,
    /// When the medium last worked on something else.
    disturbed: Nanos,
    /// When a reader last waited, for a chunk or for something else.
    heard: Nanos,
    estimate: MediumEstimate,
    last_done: Option<Nanos>,
    /// When the latest request was made.
    last_asked: Nanos,
    /// The latest requests that were answered: when they were made, and when answered.
    answered: VecDeque<(Nanos, Nanos)>,
    overlaps: bool,
    confidence: Confidence,
    tripwires: Tripwires,
    /// Whether the last decision was to throttle, because confidence is low.
    throttled: bool,
    ended: Option<EndReason>,
}

impl Prefetch {
    /// At most this many requests are under way at once: small ones must together last for one latency.
    pub const MOST_UNDER_WAY: usize = 4;

    /// A prefetch of chunks of these sizes, in this order, none of them asked for yet.
    #[must_use]
    pub fn new(config: PrefetchConfig, sizes: Vec<ChunkSize>) -> Self {
        let ended = sizes.is_empty().then_some(EndReason::Nothing);
        Self {
            budget_bytes: config.budget_bytes,
            confidence: Confidence::new(config.sees_use),
            tripwires: Tripwires::default(),
            config,
            next: 0,
            request_bytes: config.first_request_bytes,
            in_flight: VecDeque::new(),
            next_id: 0,
            chunks: Chunks::new(sizes),
            deadlines: Deadlines::default(),
            misses: 0,
            has_missed: false,
            spent_on_leaving: Nanos::ZERO,
            demand_under_way: 0,
            last_demand: Nanos::ZERO,
            disturbed: Nanos::ZERO,
            heard: Nanos::ZERO,
            estimate: MediumEstimate::default(),
            last_done: None,
            last_asked: Nanos::ZERO,
            answered: VecDeque::with_capacity(ANSWERED),
            overlaps: false,
            throttled: false,
            ended,
        }
    }

    /// Sets by when each chunk is needed: the program's own time until it asks for the chunk, without the
    /// time that it waits for storage. The start begins at `began`.
    pub fn set_deadlines(&mut self, began: Nanos, needed: Vec<Nanos>) {
        self.deadlines.set(began, needed);
    }

    /// A reader waits for a hot chunk, and so for the stream up to that chunk.
    pub fn handle_wanted(&mut self, now: Nanos, chunk: u32) {
        self.heard = now;
        self.deadlines.handle_wanted(now, chunk);
        self.confidence.handle_wanted(chunk);
    }

    /// A reader used a part of the hot region that was there.
    pub const fn handle_used(&mut self) {
        self.confidence.handle_used();
    }

    /// A program's read has a hot chunk fetched that has not come, and does not join the stream.
    pub fn handle_stream_left(&mut self, chunk: u32) {
        if self.jumps_are_dear() && self.is_to_come(chunk) {
            self.spent_on_leaving += self.cost_of_leaving();
        }
    }

    /// Whether reporting a use would change anything.
    #[must_use]
    pub const fn lacks_confidence(&self) -> bool {
        self.ended.is_none() && self.confidence.is_low()
    }

    /// The smallest lead of the stream over need, in seconds: negative when a chunk came too late, `None`
    /// when it is not known what is needed when.
    #[must_use]
    pub fn least_slack_s(&self) -> Option<f64> {
        self.deadlines.least_slack_s()
    }

    /// The chunks that came by the stream after the profile says that they were needed, and their
    /// uncompressed bytes.
    pub fn overdue(&self) -> impl Iterator<Item = (u32, u32)> {
        let chunks = (0..self.chunks.len()).filter(|chunk| self.deadlines.is_overdue(*chunk));
        chunks.map(|chunk| (chunk, self.chunks.size(chunk).raw_bytes))
    }

    /// The opening request already asks for the first `chunks` chunks, after `bytes_before` other bytes:
    /// counts it as a request.
    pub fn handle_head(&mut self, asked: Nanos, chunks: u32, bytes_before: u64) -> RequestId {
        assert!(self.next == 0, "the opening request comes first");
        self.start(asked, 0..chunks, bytes_before)
    }

    /// What may be requested now.
    pub fn poll(&mut self, now: Nanos) -> Next {
        if let Some(reason) = self.ended {
            return Next::Done(reason);
        }
        self.next = self.chunks.first_missing(self.next);
        if self.next == self.chunks.len() {
            if self.in_flight.is_empty() {
                self.ended = Some(EndReason::Complete);
                return Next::Done(EndReason::Complete);
            }
            return Next::Wait;
        }
        if let Some(next) = self.wait_for_others(now) {
            return next;
        }
        match self.next_turn(now) {
            NextRequest::Now => {}
            NextRequest::At(then) if then <= now => {}
            NextRequest::At(then) => return Next::WaitUntil(then),
            NextRequest::Unknown => return Next::Wait,
        }
        let most = if self.is_doubted() { self.config.first_request_bytes } else { u64::MAX };
        let limit = self.request_limit(now).min(most);
        let Some(run) = self.choose_run(limit) else { return Next::Wait };
        let bytes = self.chunks.stored(&run);
        let lasts = self.estimate.latency() + self.estimate.transfer(bytes).unwrap_or_default();
        let may_begin = self.deadlines.may_begin(self.config.rate, run.start, lasts);
        if now < may_begin {
            return Next::WaitUntil(may_begin);
        }
        // What is due later is requested later.
        let is_due = |chunk: &u32| self.deadlines.may_begin(self.config.rate, *chunk, lasts) <= now;
        let end = (run.start + 1..run.end).find(|chunk| !is_due(chunk)).unwrap_or(run.end);
        let run = run.start..end;
        self.deadlines.handle_request(now, self.config.rate, self.chunks.stored(&run));
        Next::Request(self.start(now, run.clone(), 0), run)
    }

    /// A prefetch request, which may have waited behind more urgent ones, is sent to the medium now.
    pub fn handle_begun(&mut self, now: Nanos, id: RequestId) {
        if let Some(request) = self.in_flight.iter_mut().find(|request| request.id == id)
            && !request.queued
        {
            request.asked = now;
        }
    }

    /// A prefetch request's first byte came, and with it the first `bytes`: media hand out pieces.
    pub fn handle_first_byte(&mut self, now: Nanos, id: RequestId, bytes: u64) {
        let Some(request) = self.in_flight.iter_mut().find(|request| request.id == id) else { return };
        if request.first_byte.is_none() {
            request.first_byte = Some(now);
            request.first_bytes = bytes;
            let (asked, queued) = (request.asked, request.queued);
            let undisturbed = self.last_done.is_some_and(|done| done > self.disturbed);
            if queued {
                self.observe_overlap(now, asked);
                if let Some(done) =
                    self.last_done.filter(|done| undisturbed && asked <= *done && self.in_flight.len() == 1)
                {
                    self.estimate.observe_gap(now.saturating_sub(done), bytes);
                }
            } else {
                self.estimate.observe_latency(asked, now, bytes);
                if undisturbed || self.last_done.is_none() {
                    self.estimate.observe_latency_in_place(asked, now);
                }
                if undisturbed {
                    self.estimate.observe_gap(now.saturating_sub(asked), bytes);
                }
            }
        }
    }

    /// The stored bytes of a whole chunk of a prefetch request came.
    pub fn handle_progress(&mut self, now: Nanos, id: RequestId, chunk: u32) {
        self.deadlines.handle_came(now, chunk);
        let Some(position) = self.in_flight.iter().position(|request| request.id == id) else { return };
        let request = &self.in_flight[position];
        if request.first_byte.is_some() {
            let bytes = request.bytes_before + self.chunks.stored(&(request.chunks.start..chunk + 1));
            self.in_flight[position].seen = Some((now, bytes));
        }
    }

    /// A whole chunk came and, decompressed, now waits in memory.
    pub fn handle_arrived(&mut self, chunk: u32) {
        self.chunks.arrived(chunk);
        // A trusted profile is late at worst: its readers will come.
        if self.is_doubted() && self.chunks.are_unused() {
            self.end(EndReason::NoHelp);
        }
    }

    /// A chunk that had arrived left memory: its readers have it.
    pub fn handle_released(&mut self, chunk: u32) {
        self.chunks.released(chunk);
    }

    /// A chunk came without the stream, because a reader needed it at once. The stream passes over it, unless
    /// it has already requested it.
    pub fn handle_resident(&mut self, chunk: u32) {
        self.chunks.resident(chunk);
    }

    /// A chunk is requested again, although it was delivered to readers that were to keep it.
    pub fn handle_dropped(&mut self, chunk: u32) {
        self.chunks.dropped(chunk);
        if self.chunks.are_dropped() {
            self.end(EndReason::NoHelp);
        }
    }

    /// Memory has room for this many decompressed bytes of chunks that wait. The configured budget stays the
    /// limit.
    pub fn handle_budget(&mut self, bytes: u64) {
        self.budget_bytes = self.config.budget_bytes.min(bytes);
    }

    /// Memory is so short that prefetch should bring nothing more.
    pub fn handle_short_memory(&mut self) {
        self.end(EndReason::Memory);
    }

    /// Decompressed bytes of chunks that wait for their readers.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.chunks.held_bytes()
    }

    /// A prefetch request ended; `None` when the medium failed, which ends the prefetch.
    pub fn handle_finished(&mut self, now: Nanos, id: RequestId, bytes: Option<u64>) {
        let Some(position) = self.in_flight.iter().position(|request| request.id == id) else { return };
        let request = self.in_flight.remove(position).expect("the position was just found");
        match bytes {
            Some(bytes) => {
                self.last_done = Some(now);
                let first_byte = request.first_byte.unwrap_or(now);
                self.estimate.observe_rate(first_byte, now, bytes.saturating_sub(request.first_bytes));
                self.remember(request.asked, now);
            }
            None => self.end(EndReason::Failed),
        }
    }

    /// A separate request of a reader, made at `asked`, had brought its first `bytes` at `now`. It waited for
    /// the requests made before it, unless the medium overlaps.
    pub fn handle_fetched(&mut self, asked: Nanos, now: Nanos, bytes: u64) {
        let before = |(made, answered): &&(Nanos, Nanos)| *made <= asked && *answered < now;
        let waited_until = self.answered.iter().filter(before).map(|(_, answered)| *answered).max();
        let began = if self.overlaps { asked } else { waited_until.map_or(asked, |then| then.max(asked)) };
        // Other requests that were made before it and have not come may have been served first, or not.
        self.disturbed = self.disturbed.max(now);
        let certain = self.overlaps || self.in_flight.iter().all(|request| request.asked >= asked);
        if certain {
            self.estimate.observe_jump(now.saturating_sub(began), bytes);
        }
        self.remember(asked, now);
    }

    /// A reader waits for the medium for something that the hot region does not hold.
    pub fn handle_miss(&mut self, now: Nanos) {
        self.misses += 1;
        self.handle_miss_beside(now);
    }

    /// As [`Prefetch::handle_miss`], of a read that also waits for something that the hot region holds: the
    /// kernel reads around what a program asks for, and the profile was right about the program.
    pub fn handle_miss_beside(&mut self, now: Nanos) {
        self.has_missed = true;
        self.heard = now;
        self.confidence.handle_miss(now);
        self.demand_under_way += 1;
        self.last_demand = now;
        self.disturbed = now;
    }

    /// The miss of [`Prefetch::handle_miss`] was answered.
    pub fn handle_miss_answered(&mut self, now: Nanos) {
        self.demand_under_way = self.demand_under_way.saturating_sub(1);
        self.confidence.handle_miss_answered(now);
        self.last_demand = now;
        self.disturbed = now;
    }

    /// Whether a miss is under way.
    #[must_use]
    pub const fn has_misses(&self) -> bool {
        self.demand_under_way > 0
    }

    /// The image is no longer used.
    pub fn stop(&mut self) {
        self.end(EndReason::Stopped);
    }

    /// Why the prefetch ended, once it has.
    #[must_use]
    pub const fn ended(&self) -> Option<EndReason> {
        self.ended
    }

    /// Whether the chunk has come.
    #[must_use]
    pub fn has_arrived(&self, chunk: u32) -> bool {
        self.chunks.has_come(chunk)
    }

    /// The first chunk that has not come.
    #[must_use]
    pub fn front(&self) -> u32 {
        self.chunks.first_missing(0)
    }

    /// Whether there were so many misses that prefetch only fills pauses.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.misses > TRUSTED_MISSES
    }

    /// Whether nothing is under way and it is not known when something will be. First chunks must be
    /// released, or there must be a pause, because the profile is doubted or the stream is unused.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let waits_for_pause = self.is_doubted() || self.throttled;
        self.is_blocked() || (waits_for_pause && self.ended.is_none() && self.in_flight.is_empty())
    }

    /// Whether the stream is throttled because it is unused while others wait for the medium.
    #[must_use]
    pub const fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Whether nothing is under way and nothing can be requested until chunks are released.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.ended.is_none()
            && self.in_flight.is_empty()
            && self.next < self.chunks.len()
            && self.choose_run(self.config.first_request_bytes).is_none()
    }

    /// What was measured of the medium.
    #[must_use]
    pub const fn estimate(&self) -> MediumEstimate {
        self.estimate
    }

    /// Bytes that may come with a request for something outside the hot region, besides the bytes that are
    /// waited for. Where requests have a price, this is what can be transferred in the time that one request
    /// costs. On a slow link more would delay the next reader for longer than another request does. While the
    /// profile is trusted, such bytes of all misses that speak against it are together at most an eighth of
    /// the hot region: a start that fits its profile reads the rest of the disk once. `None` where requests
    /// cost others nothing, or while the rate of the medium is not known.
    #[must_use]
    pub fn most_neighbour_bytes(&self) -> Option<u64> {
        let price = self.config.request_price;
        let worth = price.max(self.estimate.jump().unwrap_or_else(|| self.estimate.latency()));
        let bytes = self.estimate.bytes_in(worth).filter(|_| price > Nanos::ZERO)?;
        let hot = self.chunks.all_stored();
        Some(if hot == 0 || self.is_doubted() { bytes } else { bytes.min(hot / (8 * TRUSTED_MISSES)) })
    }

    /// Whether a demand for a hot chunk that has not come should wait for the stream
    /// (docs/decisions/006-late-reads.md). It compares the time until the stream reaches the chunk with the
    /// jumps that a separate request costs.
    #[must_use]
    pub fn late(&self, chunk: u32) -> Late {
        match self.ended {
            _ if self.chunks.has_come(chunk) => return Late::Fetch,
            // Everything has come and only waits to be decompressed.
            Some(EndReason::Complete) => return Late::Join,
            Some(_) => return Late::Fetch,
            None => {}
        }
        let asked_for = self.in_flight.iter().any(|request| request.chunks.contains(&chunk));
        if asked_for {
            // A separate request would come after those that are under way.
            return Late::Join;
        }
        if !self.is_to_come(chunk) {
            return Late::Fetch;
        }
        match self.config.late {
            LateRule::ByCost if self.is_joining_better(chunk) => Late::Join,
            LateRule::Join => Late::Join,
            _ => Late::Fetch,
        }
    }

    /// Whether the stream, as it goes on, brings this chunk.
    fn is_to_come(&self, chunk: u32) -> bool {
        self.ended.is_none() && !self.is_doubted() && chunk >= self.next && !self.is_blocked()
    }

    /// Both wait for the requests under way. Then the stream first brings what lies between. Where leaving
    /// has cost as much as the rest of the stream takes, its order is wrong, and leaving would not end: the
    /// ski-rental rule (Karlin et al., 1988).
    fn is_joining_better(&self, chunk: u32) -> bool {
        let until = |end| self.estimate.transfer(self.chunks.stored(&(self.next..end)));
        until(chunk).is_some_and(|between| between <= self.cost_of_leaving().max(self.config.least_gain))
            || (self.jumps_are_dear()
                && until(self.chunks.len()).is_some_and(|rest| rest <= self.spent_on_leaving))
    }

    /// Whether a request elsewhere is known to cost all others time: not where requests overlap, or have
    /// connections of their own.
    fn jumps_are_dear(&self) -> bool {
        !self.overlaps && self.config.most_under_way > 1 && self.estimate.jump().is_some()
    }

    /// What it costs that a reader leaves the stream: it waits for a jump, and all others for two, there and
    /// back, unless the medium overlaps requests.
    fn cost_of_leaving(&self) -> Nanos {
        if self.overlaps {
            return self.estimate.jump().unwrap_or_else(|| self.estimate.latency());
        }
        Nanos(self.estimate.jump().unwrap_or(UNKNOWN_JUMP).0.saturating_mul(JUMPS_OF_LEAVING))
    }

    fn remember(&mut self, asked: Nanos, now: Nanos) {
        if self.answered.len() == ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back((asked, now));
    }

    /// Whether nothing may be requested yet because others wait for the medium and gain nothing from the
    /// stream.
    fn wait_for_others(&mut self, now: Nanos) -> Option<Next> {
        let ageing = self.config.ageing.filter(|_| self.in_flight.is_empty());
        let due = ageing.map(|ageing| self.last_asked + ageing);
        if due.is_some_and(|due| due <= now) {
            self.throttled = false;
            return None;
        }
        let next = self.leave_pauses(now).or_else(|| self.stand_back(now))?;
        Some(match (next, due) {
            (Next::Wait, Some(due)) => Next::WaitUntil(due),
            (Next::WaitUntil(then), Some(due)) => Next::WaitUntil(then.min(due)),
            (next, _) => next,
        })
    }

    /// Whether a doubted profile has to wait for a pause.
    fn leave_pauses(&self, now: Nanos) -> Option<Next> {
        if !self.is_doubted() {
            return None;
        }
        if self.demand_under_way > 0 || !self.in_flight.is_empty() {
            return Some(Next::Wait);
        }
        let free_again = self.last_demand + PAUSE;
        (now < free_again).then_some(Next::WaitUntil(free_again))
    }

    /// Whether nothing may be requested because the stream is unused.
    fn stand_back(&mut self, now: Nanos) -> Option<Next> {
        let read = self.read_elsewhere(UNKNOWN_JUMP);
        let until = self.confidence.throttled_for(self.next, read).map(|pause| self.last_demand + pause);
        let next = match until {
            Some(_) if self.demand_under_way > 0 => Some(Next::Wait),
            Some(until) if now < until => Some(Next::WaitUntil(until)),
            _ => None,
        };
        self.throttled = next.is_some();
        next
    }

    fn end(&mut self, reason: EndReason) {
        self.ended.get_or_insert(reason);
    }

    /// Whether the latency of a request that was made while another was under way passed during that other
    /// request. Then its first piece comes at once when the other is done, or before.
    fn observe_overlap(&mut self, first_byte: Nanos, asked: Nanos) {
        if self.in_flight.len() > 1 {
            self.overlaps = true;
        } else if let Some(done) = self.last_done.filter(|done| asked < *done) {
            let waited = first_byte.saturating_sub(done);
            let latency = self.estimate.latency_in_place();
            self.overlaps = waited.0 < latency.0 / 2;
        }
    }

    /// The longest run from `next` within `limit` stored bytes and the memory budget. When nothing is
    /// resident the first chunk is always allowed, or a chunk larger than the budget would block the stream.
    fn choose_run(&self, limit: u64) -> Option<Range<u32>> {
        let start = self.chunks.first_missing(self.next);
        let occupied = self.chunks.occupied_bytes();
        let mut stored_bytes = 0;
        let mut raw_bytes = 0;
        let mut end = start;
        while end < self.chunks.len() {
            let size = self.chunks.size(end);
            let first = end == start;
            stored_bytes += u64::from(size.stored_bytes);
            raw_bytes += u64::from(size.raw_bytes);
            let too_much = occupied + raw_bytes > self.budget_bytes;
            let ends_before = (too_much && !(first && occupied == 0)) || (stored_bytes > limit && !first);
            if ends_before || self.is_worth_a_gap(end) {
                break;
            }
            end += 1;
        }
        (end > start).then_some(start..end)
    }

    /// Whether so much from this chunk on has already come that a new request behind it costs less than
    /// reading it again.
    fn is_worth_a_gap(&self, chunk: u32) -> bool {
        if !self.chunks.has_come(chunk) {
            return false;
        }
        let come = chunk..self.chunks.first_missing(chunk);
        let jump = self.estimate.jump().unwrap_or_else(|| self.estimate.latency());
        let worth = self.estimate.bytes_in(jump).unwrap_or(self.config.first_request_bytes);
        come.end == self.chunks.len() || self.chunks.stored(&come) > worth
    }

    fn start(&mut self, asked: Nanos, chunks: Range<u32>, bytes_before: u64) -> RequestId {
        self.confidence.handle_request(asked);
        self.last_asked = asked;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.next = chunks.end;
        let twice = (self.chunks.stored(&chunks) * 2).min(self.config.max_request_bytes);
        self.request_bytes = self.request_bytes.max(twice);
        self.chunks.ask_for(&chunks);
        let queued = !self.in_flight.is_empty();
        self.in_flight.push_back(InFlight {
            id,
            chunks,
            bytes_before,
            asked,
            queued,
            first_byte: None,
            first_bytes: 0,
            seen: None,
        });
        id
    }
}
