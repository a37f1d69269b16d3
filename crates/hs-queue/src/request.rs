//! What goes into the queue and what comes out of it.

use hs_units::{ByteRange, Nanos};

/// How urgent a request is. A lower class never delays a higher one by more than what is in service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// A reader waits for it.
    Demand,
    /// A sequential reader will want it next.
    ReadAhead,
    /// A profile says that it will be wanted.
    Prefetch,
    /// No read has asked for it: filling a cache or a file in the background.
    Fill,
}

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 4;

    /// Every class, the most urgent first.
    pub const ALL: [Self; Self::COUNT] = [Self::Demand, Self::ReadAhead, Self::Prefetch, Self::Fill];

    /// The word for it in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::ReadAhead => "read-ahead",
            Self::Prefetch => "prefetch",
            Self::Fill => "fill",
        }
    }

    /// Where the class stands in [`Class::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The client that asks and that has a share of the medium: a peer address, a Unix uid or a key. The shell
/// makes a number of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClientKey(pub u64);

impl ClientKey {
    /// Work for no client, such as prefetch. It has a share of its class, and no part in Jain's index.
    pub const NONE: Self = Self(u64::MAX);
}

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Direction {
    /// From the medium.
    Read,
    /// To the medium.
    Write,
}

impl Direction {
    /// Number of directions.
    pub const COUNT: usize = 2;

    /// Where the direction stands in an array of one value a direction: reads first.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The caller's own name for a request. The queue only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestTag(pub u64);

/// A request for the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The caller's name for it.
    pub tag: RequestTag,
    /// How urgent it is.
    pub class: Class,
    /// Who asks.
    pub client: ClientKey,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Which bytes of the medium.
    pub range: ByteRange,
}

/// The queue's name for a request that waits in it, by which it can be withdrawn or made more urgent. A
/// ticket of a request that was dispatched is void, and stays void when its place is used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The queue's name for something in service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DispatchId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// One request to the medium, made of one or several that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// By which the end of it is reported, and [`Queue::tags`](super::Queue::tags) tells what it holds.
    pub id: DispatchId,
    /// The bytes of all that it holds; there is no gap in between.
    pub range: ByteRange,
    /// Which way the bytes go.
    pub direction: Direction,
    /// The most urgent class that it serves.
    pub class: Class,
    /// How many requests it holds.
    pub requests: u32,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// Send this to the medium, and ask again.
    Dispatch(Dispatch),
    /// Nothing yet; ask again then, or when something was handed in or has ended.
    WaitUntil(Nanos),
    /// Nothing until something is handed in or has ended.
    Idle,
}

/// A request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// The caller's name for it.
    pub tag: RequestTag,
    /// Whether all of its bytes came; false when the medium failed before.
    pub complete: bool,
}
