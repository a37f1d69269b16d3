//! How the requests to the medium wait for each other, as a server reports it.

use hs_engine::queue::{ByPosition, Class, Event, Recorded};
use hs_serve::ServedDisk;
use serde::{Deserialize, Serialize};

/// So many events are told: what a person reads, and one message holds.
const SHOWN_EVENTS: usize = 64;

/// The queue before the medium. Bytes are bytes, times are seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// The order within a class.
    pub elevator: String,
    /// Whether moving costs something on this medium, so that those who wait are served by position.
    pub by_position: bool,
    /// Requests of those who wait that may be in service at once.
    pub depth: u32,
    /// Clients that are remembered.
    pub clients: u32,
    /// Jain's index of the rates at which clients were served while they wanted something: 1 when all got the
    /// same.
    pub jain_index: f64,
    /// What was done for each class, the most urgent first.
    pub classes: Vec<ClassStatus>,
    /// What it did last, the oldest first.
    pub events: Vec<EventStatus>,
}

/// Something that the queue was told or decided.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventStatus {
    /// When, since the disk was opened.
    pub at_s: f64,
    /// What: requested, promoted, withdrawn, dispatched or ended.
    pub event: String,
    /// How urgent the request was; of none that was withdrawn.
    pub class: Option<String>,
    /// Where on the medium, about: the place of a chunk is known when it is read.
    pub offset: Option<u64>,
    /// Bytes that were asked for or, of what ended, that came.
    pub bytes: Option<u64>,
}

impl EventStatus {
    fn of(recorded: Recorded) -> Self {
        let (event, class, range, came) = match recorded.event {
            Event::Requested { class, range, .. } => ("requested", Some(class), Some(range), None),
            Event::Promoted { class, .. } => ("promoted", Some(class), None, None),
            Event::Withdrawn { .. } => ("withdrawn", None, None, None),
            Event::Dispatched { class, range, .. } => ("dispatched", Some(class), Some(range), None),
            Event::Ended { class, bytes, range } => ("ended", Some(class), Some(range), Some(bytes)),
        };
        Self {
            at_s: recorded.at.as_secs_f64(),
            event: event.to_owned(),
            class: class.map(|class| class.name().to_owned()),
            offset: range.map(|range| range.offset),
            bytes: came.or_else(|| range.map(|range| range.len)),
        }
    }
}

/// One class of requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassStatus {
    /// Which one.
    pub class: String,
    /// Requests that were sent to the medium.
    pub requests: u64,
    /// Bytes that these asked for.
    pub bytes: u64,
    /// Of these, requests that went along with another one.
    pub merged: u64,
    /// Requests that went before more urgent ones because the class had waited too long.
    pub aged: u64,
    /// How long they waited for their turn, all together.
    pub waited_s: f64,
    /// The longest of these times.
    pub longest_wait_s: f64,
}

impl Default for QueueStatus {
    fn default() -> Self {
        Self {
            elevator: String::new(),
            by_position: false,
            depth: 0,
            clients: 0,
            jain_index: 1.0,
            classes: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl QueueStatus {
    /// How the queue of a reader is.
    pub(super) fn of(reader: &ServedDisk) -> Self {
        let (config, metrics) = (reader.queue_config(), reader.queue_metrics());
        let class = |(class, metrics): (Class, &hs_engine::queue::ClassMetrics)| ClassStatus {
            class: class.name().to_owned(),
            requests: metrics.requests,
            bytes: metrics.bytes,
            merged: metrics.merged(),
            aged: metrics.aged,
            waited_s: metrics.waited.as_secs_f64(),
            longest_wait_s: metrics.longest_wait.as_secs_f64(),
        };
        Self {
            elevator: config.elevator.name().to_owned(),
            by_position: config.by_position == ByPosition::Always,
            depth: config.classes[Class::Demand.index()].depth,
            clients: metrics.clients,
            jain_index: metrics.jain_index,
            events: reader.queue_events(SHOWN_EVENTS).into_iter().map(EventStatus::of).collect(),
            classes: Class::ALL.into_iter().zip(&metrics.classes).map(class).collect(),
        }
    }

    /// Requests that went along with another one.
    pub(super) fn merged(&self) -> u64 {
        self.classes.iter().map(|class| class.merged).sum()
    }

    /// How long those who wait for an answer waited for their turn.
    pub(super) fn demand_waited_s(&self) -> f64 {
        self.classes.first().map_or(0.0, |demand| demand.waited_s)
    }
}
