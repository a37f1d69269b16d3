//! Figures of the memory of a machine.

/// What the system reports about its memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemorySample {
    /// Bytes that this process could use up to its nearest limit: those of the machine, or the smallest limit
    /// of a control group that it is in.
    pub total_bytes: u64,
    /// Bytes that are available without loss to other programs: `MemAvailable`, or what the groups' limits
    /// leave, whichever is less.
    pub available_bytes: u64,
    /// How long others had to wait for memory, where the kernel counts that.
    pub pressure: Option<MemoryPressure>,
}

/// Shares of the last ten seconds, in percent, in which tasks stalled for lack of memory (the kernel's
/// Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryPressure {
    /// At least one task stalled.
    pub some_avg10: f64,
    /// All tasks stalled.
    pub full_avg10: f64,
}
