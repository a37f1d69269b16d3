//! A contender of a story, as data.

use super::turns::Tally;

/// A disk that takes turns with others.
pub(super) struct Contender {
    /// Its name in files and JSON.
    pub(super) key: &'static str,
    /// Its name for people.
    pub(super) label: &'static str,
    /// Its file in the cache.
    pub(super) file: &'static str,
    /// Further words of its command.
    pub(super) flags: &'static [&'static str],
    /// Whether it is read from the emulated medium.
    pub(super) is_on_medium: bool,
    /// Seconds a repeat after which it is not run again.
    pub(super) patience_s: f64,
}

impl Contender {
    /// A tally of its runs.
    pub(super) fn tally(&self) -> Tally {
        Tally::new(self.key, self.label, self.patience_s)
    }
}
