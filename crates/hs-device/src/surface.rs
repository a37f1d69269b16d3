//! Where bytes lie on what turns.

/// A surface that turns at a constant speed under one head.
///
/// Places are told in *turns*: how often it has turned since the first byte, when it is read from the
/// first byte on without a pause. Then reading from one place to another takes as many turns as they
/// lie apart, the fraction of a turn is the angle, and the whole number the track, whatever the
/// density.
pub(crate) trait Surface: Send {
    /// Bytes that it holds.
    fn capacity(&self) -> u64;
    /// Turns before byte `place`; rises strictly.
    fn turns(&self, place: u64) -> f64;
    /// The byte that comes after `turns`, rounded down: the inverse of [`turns`](Self::turns).
    fn place(&self, turns: f64) -> u64;
    /// Tracks, counted across the surface, that the head crosses before it is over byte `place`.
    fn track(&self, place: u64) -> f64;
    /// Bytes a turn at byte `place`.
    fn bytes_per_turn(&self, place: u64) -> f64;
}
