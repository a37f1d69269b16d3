//! Why a prefetch is over.

/// Why the prefetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Every hot chunk was asked for and came.
    Complete,
    /// The image has no hot region, or prefetch was switched off.
    Nothing,
    /// The medium failed.
    Failed,
    /// The image was no longer used.
    Stopped,
    /// Memory was short: prefetched chunks would have displaced what is needed.
    Memory,
    /// What it brought was dropped before it was used, or was not wanted.
    NoHelp,
}

impl EndReason {
    /// The word for run summaries.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Nothing => "nothing",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Memory => "memory",
            Self::NoHelp => "no help",
        }
    }

    /// Whether everything that was requested still comes. If not, readers must not wait for the stream.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Complete)
    }
}
