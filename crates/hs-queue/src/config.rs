//! Configuration of a queue.

use hs_units::Nanos;

use super::request::Class;

/// The order in which requests of one class are served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ElevatorKind {
    /// First come, first served.
    Noop,
    /// Sorted batches, reads before writes, no request much later than a deadline.
    Deadline,
    /// A queue and a slice of time for each client in turn.
    Cfq,
    /// One way across the medium, then back to the lowest.
    CLook,
    /// Class, deadline, direction and contiguity aware.
    #[default]
    Headstart,
}

impl ElevatorKind {
    /// Every elevator.
    pub const ALL: [Self; 5] = [Self::Noop, Self::Deadline, Self::Cfq, Self::CLook, Self::Headstart];

    /// The published name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Deadline => "deadline",
            Self::Cfq => "cfq",
            Self::CLook => "c-look",
            Self::Headstart => "headstart",
        }
    }
}

/// The traits of a medium that decide what is best for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MediumTraits {
    /// Whether the order of requests matters, because something has to move.
    pub rotational: bool,
    /// Whether it serves several requests in the time of one.
    pub overlaps: bool,
    /// Sequential rate, where it is known.
    pub bytes_per_s: Option<f64>,
}

/// Whether requests are served in order of position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ByPosition {
    /// In order of arrival.
    Never,
    /// In order of position, because something moves.
    Always,
    /// As is quicker: both are tried while requests wait.
    Tried,
}

/// What is the same for all requests of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassConfig {
    /// Requests merge up to this many bytes; zero switches merging off. A single larger request stays whole.
    pub merge_bytes: u64,
    /// A class that waits is served once in this time, however busy more urgent ones are.
    pub ageing: Nanos,
    /// How many requests of this class and less urgent ones may be in service at once.
    pub depth: u32,
    /// The class begins nothing until no more urgent request has come or ended for this long: a reader that
    /// thinks for a moment between two reads should not find the medium occupied.
    pub hold_off: Nanos,
}

/// Shares of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairnessConfig {
    /// How far one client may be served ahead of another that waits as well, in bytes of service.
    pub lead_bytes: u64,
    /// While few clients have requests, each may be served further ahead, up to this sum for all together: an
    /// elevator that orders by position needs requests to choose from. A new client may have to wait for this
    /// much.
    pub together_bytes: u64,
    /// What a request costs besides its bytes, in bytes that could have been transferred instead.
    pub request_cost_bytes: u64,
}

/// How a queue behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// The order within a class.
    pub elevator: ElevatorKind,
    /// Limits for each class, the most urgent first.
    pub classes: [ClassConfig; Class::COUNT],
    /// Whether classes are told apart. If not, everything is demand, for experiments.
    pub by_class: bool,
    /// Whether requests are best served in order of position (headstart).
    pub by_position: ByPosition,
    /// Shares of clients; with `None` the client with the most requests gets the most.
    pub fairness: Option<FairnessConfig>,
    /// A read that waited this long goes first (deadline, headstart).
    pub read_deadline: Nanos,
    /// A write that waited this long goes first (deadline, headstart).
    pub write_deadline: Nanos,
    /// How many requests are served in order of position before deadlines are looked at (deadline,
    /// headstart).
    pub batch: u32,
    /// How long a client is served before it is the next one's turn (cfq).
    pub slice: Nanos,
    /// How long a client's slice waits for its next request (cfq), and how long the queue waits for a
    /// sequential reader (headstart); zero for media without seeks.
    pub slice_idle: Nanos,
}

/// The most bytes that demand requests are merged into. Value and reason are the paper's: the time for which
/// one transfer occupies the disk while others wait (Tezuka 1991, section 3).
pub const DEMAND_MERGE_BYTES: u64 = 128 << 10;

/// How long one merged request of a class below demand may occupy the medium.
const BACKGROUND_OCCUPANCY: Nanos = Nanos::from_millis(40);

/// For this long after a demand read, prefetch and fill wait for the next one: the think time of a program
/// that starts (bench/results/experiments.md, `demand-p99`).
const BACKGROUND_HOLD_OFF: Nanos = Nanos::from_millis(5);

/// The rate that limits are derived from where none is known.
const ASSUMED_BYTES_PER_S: f64 = 100e6;

impl QueueConfig {
    /// What measured best on media with these traits (docs/ENGINE.md).
    #[must_use]
    pub fn for_medium(traits: MediumTraits) -> Self {
        let rate = traits.bytes_per_s.unwrap_or(ASSUMED_BYTES_PER_S);
        let occupancy_bytes = (rate * BACKGROUND_OCCUPANCY.as_secs_f64()) as u64;
        let background_bytes = occupancy_bytes.clamp(DEMAND_MERGE_BYTES, 8 << 20);
        let depths = if traits.overlaps { [16, 12, 8, 4] } else { [1; Class::COUNT] };
        // No other request may come right behind a read that does not overlap: its program often wants the
        // next one soon.
        let hold_off = if traits.overlaps { Nanos::ZERO } else { BACKGROUND_HOLD_OFF };
        let class = |merge_bytes, ageing_ms, depth, hold_off| ClassConfig {
            merge_bytes,
            ageing: Nanos::from_millis(ageing_ms),
            depth,
            hold_off,
        };
        Self {
            elevator: ElevatorKind::Headstart,
            classes: [
                class(DEMAND_MERGE_BYTES, 0, depths[0], Nanos::ZERO),
                class(background_bytes, 500, depths[1], Nanos::ZERO),
                class(background_bytes, 1_000, depths[2], hold_off),
                class(background_bytes, 2_000, depths[3], hold_off),
            ],
            by_class: true,
            by_position: if traits.rotational { ByPosition::Always } else { ByPosition::Tried },
            fairness: Some(FairnessConfig {
                lead_bytes: if traits.rotational { 4 << 20 } else { 1 << 20 },
                together_bytes: if traits.rotational { 64 << 20 } else { 1 << 20 },
                request_cost_bytes: if traits.rotational { 64 << 10 } else { 4 << 10 },
            }),
            read_deadline: Nanos::from_millis(500),
            write_deadline: Nanos::from_millis(5_000),
            batch: 16,
            slice: Nanos::from_millis(100),
            slice_idle: if traits.rotational { Nanos::from_millis(8) } else { Nanos::ZERO },
        }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self::for_medium(MediumTraits { rotational: false, overlaps: true, bytes_per_s: None })
    }
}
