//! When asking ends by itself: it must not cost a start more than it gives.

/// Why it ended before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// Most of the files are not there any more: the list is of another state of the disk.
    FilesAreOthers,
    /// Most of what came was not used when it should have been.
    NotUsed,
    /// Free memory has become short.
    Memory,
    /// The device fails.
    Errors,
    /// The list was removed meanwhile.
    SwitchedOff,
}

impl StopReason {
    /// In words, for a line of a log.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::FilesAreOthers => "most files of the list are not there any more",
            Self::NotUsed => "most of what was read ahead was not used in time",
            Self::Memory => "memory is short",
            Self::Errors => "the device cannot be read",
            Self::SwitchedOff => "it was switched off meanwhile (headstart accelerate off)",
        }
    }
}

/// Files that are tried before they are judged.
const JUDGED_FILES: u32 = 16;
/// Pages that must have been due before they are judged (4 MiB).
const JUDGED_PAGES: u64 = 1024;
/// Requests that fail until the rest is given up.
const MAX_ERRORS: u32 = 8;

/// Counts what became of requests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Restraint {
    files: u32,
    missing_files: u32,
    errors: u32,
}

impl Restraint {
    /// A file was looked for: was it there?
    pub fn file(&mut self, is_there: bool) -> Option<StopReason> {
        self.files += 1;
        self.missing_files += u32::from(!is_there);
        let judged = self.files >= JUDGED_FILES;
        (judged && self.missing_files * 2 > self.files).then_some(StopReason::FilesAreOthers)
    }

    /// A request failed.
    pub fn error(&mut self) -> Option<StopReason> {
        self.errors += 1;
        (self.errors >= MAX_ERRORS).then_some(StopReason::Errors)
    }

    /// Of `due` pages that came and should have been used by now, `used` were.
    #[must_use]
    pub fn usage(due: u64, used: u64) -> Option<StopReason> {
        (due >= JUDGED_PAGES && used * 3 < due).then_some(StopReason::NotUsed)
    }

    /// `available` of `total` bytes of memory are free or can be freed.
    #[must_use]
    pub fn memory(available: u64, total: u64) -> Option<StopReason> {
        (available < total / 10).then_some(StopReason::Memory)
    }

    /// Pages that may be asked for, with so much memory: a quarter of what is available.
    #[must_use]
    pub const fn budget_pages(available_bytes: u64) -> u64 {
        available_bytes / 4 / 4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_another_state_is_noticed_after_a_few_files() {
        let mut restraint = Restraint::default();
        let judged: Vec<_> = (0..JUDGED_FILES).map(|_| restraint.file(false)).collect();
        assert_eq!(judged.iter().position(Option::is_some), Some(JUDGED_FILES as usize - 1));
        let mut restraint = Restraint::default();
        assert!((0..100).all(|file| restraint.file(file % 2 == 0).is_none()), "half of them are there");
    }

    #[test]
    fn use_memory_and_errors_are_judged() {
        assert_eq!(Restraint::usage(JUDGED_PAGES - 1, 0), None);
        assert_eq!(Restraint::usage(3000, 999), Some(StopReason::NotUsed));
        assert_eq!(Restraint::usage(3000, 1000), None);
        assert_eq!(Restraint::memory(9, 100), Some(StopReason::Memory));
        assert_eq!(Restraint::memory(10, 100), None);
        assert_eq!(Restraint::budget_pages(1 << 30), 1 << 16);
        let mut restraint = Restraint::default();
        assert_eq!((0..8).map(|_| restraint.error()).filter(Option::is_some).count(), 1);
    }
}
