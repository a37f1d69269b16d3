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
    /// The user of the image went away first.
    Stopped,
    /// Memory was short: what it would have brought would have pushed out what is needed.
    Memory,
    /// What it brought was dropped again before anybody used it, or nobody wanted it.
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

    /// Whether everything that was asked for still comes; else those who wait for the stream wait in vain.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Complete)
    }
}
