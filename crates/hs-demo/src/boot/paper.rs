//! Published figures to compare with ours: neither the same system nor the same machine.

use serde::Serialize;

/// The figures of a published measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Paper {
    /// Who, what, where.
    pub(super) source: &'static str,
    /// On what.
    pub(super) machine: &'static str,
    /// What was booted, and how long it took.
    pub(super) boots: [PaperBoot; 3],
    /// What stands behind a ratio that is quoted from it.
    pub(super) note: &'static str,
}

/// One of its boots.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PaperBoot {
    pub(super) system: &'static str,
    /// Until the desktop could be used.
    pub(super) seconds: u32,
    /// Mean rate at which the CD was read, where it is given.
    pub(super) kb_per_second: Option<u32>,
}

/// The paper that this project began with.
pub(super) const KITAGAWA_2005: Paper = Paper {
    source: "Kitagawa and others, \"CD/DVD から起動する Linux の起動高速化\", 2005, figure 4 and table 2",
    machine: "a real 24× CD drive, Pentium III 933 MHz, 256 MiB, a whole desktop",
    boots: [
        PaperBoot { system: "KNOPPIX 3.7, stock", seconds: 207, kb_per_second: None },
        PaperBoot { system: "KNOPPIX Edu 4.1, stock", seconds: 311, kb_per_second: Some(773) },
        PaperBoot { system: "Accelerated KNOPPIX (Edu 4.1)", seconds: 83, kb_per_second: Some(3_650) },
    ],
    note: "Its 27 % is 83 of 311: Edu copies home files while it boots; the stock KNOPPIX that it was made of took 207 s.",
};
