//! Whether the queue keeps its promises: no class is starved, and no more is under way than may be.

use std::collections::BTreeMap;

use hs_engine::queue::{Class, Event, Queue, QueueConfig};
use hs_units::Nanos;

/// What waits in the queue and what is in service, by what the queue records and what the shell is told.
pub(super) struct Schedule {
    config: QueueConfig,
    /// Events of the queue that were looked at.
    looked_at: u64,
    /// The class of each request that waits, by tag.
    classes: BTreeMap<u64, Class>,
    /// Requests that wait, by class, and since when that class has not been served.
    waiting: [u64; Class::COUNT],
    since: [Nanos; Class::COUNT],
    in_service: [u32; Class::COUNT],
    longest_service: Nanos,
}

impl Schedule {
    pub(super) const fn new(config: QueueConfig) -> Self {
        Self {
            config,
            looked_at: 0,
            classes: BTreeMap::new(),
            waiting: [0; Class::COUNT],
            since: [Nanos::ZERO; Class::COUNT],
            in_service: [0; Class::COUNT],
            longest_service: Nanos::ZERO,
        }
    }

    /// Looks at what the queue has done since the last time.
    pub(super) fn observe(&mut self, queue: &Queue) -> Result<(), String> {
        let recorder = queue.recorder().expect("it records");
        let new = recorder.recorded() - self.looked_at;
        self.looked_at = recorder.recorded();
        for recorded in recorder.last(new as usize) {
            self.look(recorded.at, recorded.event)?;
        }
        Ok(())
    }

    fn look(&mut self, at: Nanos, event: Event) -> Result<(), String> {
        match event {
            Event::Requested { tag, class, .. } => {
                self.classes.insert(tag.0, class);
                self.comes(at, class);
            }
            Event::Promoted { tag, class } => {
                let old = self.classes.insert(tag.0, class).ok_or("what was not asked for is promoted")?;
                self.waiting[old.index()] -= 1;
                self.comes(at, class);
            }
            Event::Withdrawn { tag } => {
                let class = self.classes.remove(&tag.0).ok_or("what was not asked for is withdrawn")?;
                self.waiting[class.index()] -= 1;
            }
            Event::Dispatched { class, requests, .. } => self.dispatched(at, class, requests)?,
            Event::Ended { .. } => {}
        }
        Ok(())
    }

    fn comes(&mut self, at: Nanos, class: Class) {
        if self.waiting[class.index()] == 0 {
            self.since[class.index()] = at;
        }
        self.waiting[class.index()] += 1;
    }

    fn dispatched(&mut self, at: Nanos, class: Class, requests: u32) -> Result<(), String> {
        let bound = Nanos(self.longest_service.0 * Class::COUNT as u64);
        for lower in 0..Class::COUNT {
            let waited = at.saturating_sub(self.since[lower]);
            // Demand has no ageing: it is first, and waits for what is in service, and while an elevator
            // waits for a stream.
            let waits = if lower == 0 { self.config.slice_idle } else { self.config.classes[lower].ageing };
            let limit = waits + bound;
            if self.waiting[lower] > 0 && waited > limit {
                return Err(format!("class {lower} was not served for {waited}, more than {limit}"));
            }
        }
        let class = class.index();
        if self.waiting[class] < u64::from(requests) {
            return Err("more was sent than waits".to_owned());
        }
        self.waiting[class] -= u64::from(requests);
        self.since[class] = at;
        Ok(())
    }

    /// A fetch begins that lasts so long.
    pub(super) fn begins(&mut self, class: Class, lasts: Nanos) -> Result<(), String> {
        self.longest_service = self.longest_service.max(lasts);
        self.in_service[class.index()] += 1;
        let lower_ones: u32 = self.in_service[class.index()..].iter().sum();
        let depth = self.config.classes[class.index()].depth;
        (lower_ones <= depth)
            .then_some(())
            .ok_or_else(|| format!("{lower_ones} requests in service, of {depth}"))
    }

    pub(super) fn ends(&mut self, class: Class) {
        self.in_service[class.index()] -= 1;
    }

    /// Requests that wait in the queue.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.iter().sum()
    }
}
