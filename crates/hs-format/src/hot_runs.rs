//! What the raw bytes of a hot chunk are: runs of blocks of the disk, and between them stale ones (R60).

use std::collections::BTreeMap;

use hs_units::{BlockRange, Lba, to_u32};

use crate::check;
use crate::error::{FormatError, Part};
use crate::wire::ExtentWire;

/// The first block of an extent that stands for stale blocks.
pub(crate) const STALE_LBA: u32 = u32::MAX;

/// Consecutive blocks of a chunk's raw bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotRun {
    /// These blocks of the disk.
    Disk(BlockRange),
    /// So many that are none of the disk.
    Stale(u64),
}

/// R60: stale blocks are one run, and not all of a chunk.
pub(crate) fn check_runs(part: Part, runs: &[HotRun]) -> Result<(), FormatError> {
    let is_stale = |run: &HotRun| matches!(run, HotRun::Stale(_));
    let pairs = runs.windows(2).filter(|pair| pair.iter().all(is_stale)).count();
    check::equal(part, "stale blocks behind stale ones", 0, pairs as u64)?;
    let of_disk = runs.iter().filter(|run| !is_stale(run)).count() as u64;
    check::within(part, "runs of the disk in a chunk", of_disk, (1, u32::MAX.into()))
}

impl HotRun {
    /// Its blocks.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        match self {
            Self::Disk(run) => run.count,
            Self::Stale(blocks) => *blocks,
        }
    }

    pub(crate) fn wire(&self) -> ExtentWire {
        let (lba, blocks) = match self {
            Self::Disk(run) => (to_u32(run.start.0), run.count),
            Self::Stale(blocks) => (STALE_LBA, *blocks),
        };
        ExtentWire { lba: lba.into(), blocks: to_u32(blocks).into() }
    }

    /// R21, R60.
    pub(crate) fn read(
        part: Part,
        entry: &ExtentWire,
        disk_blocks: u64,
        has_stale: bool,
    ) -> Result<Self, FormatError> {
        let (lba, blocks) = (entry.lba.get(), u64::from(entry.blocks.get()));
        if has_stale && lba == STALE_LBA {
            check::within(part, "stale blocks", blocks, (1, u32::MAX.into()))?;
            return Ok(Self::Stale(blocks));
        }
        let run = BlockRange::new(Lba(lba.into()), blocks);
        check::on_disk(part, run, disk_blocks)?;
        Ok(Self::Disk(run))
    }
}

/// Where chunks have stale blocks: by chunk and by its extents before them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StaleRuns(BTreeMap<(u32, u32), u64>);

impl StaleRuns {
    /// Takes up the runs of a chunk, whose extents are appended to those of the chunks before. Gives how many
    /// extents and how many stale blocks it has.
    pub(crate) fn add(&mut self, chunk: u32, runs: &[HotRun], extents: &mut Vec<BlockRange>) -> (u32, u32) {
        let (first, mut stale) = (extents.len(), 0_u64);
        for run in runs {
            match run {
                HotRun::Disk(run) => extents.push(*run),
                HotRun::Stale(blocks) => {
                    let before = to_u32((extents.len() - first) as u64);
                    *self.0.entry((chunk, before)).or_default() += blocks;
                    stale += blocks;
                }
            }
        }
        // One of more blocks is too large, and refused.
        (to_u32((extents.len() - first) as u64), u32::try_from(stale).unwrap_or(u32::MAX))
    }

    /// All of them.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The runs of a chunk with these extents.
    pub(crate) fn runs(&self, chunk: u32, extents: &[BlockRange]) -> Vec<HotRun> {
        let mut runs: Vec<HotRun> = extents.iter().copied().map(HotRun::Disk).collect();
        let stale = self.0.range((chunk, 0)..=(chunk, u32::MAX));
        for (more, ((_, before), blocks)) in stale.enumerate() {
            runs.insert(*before as usize + more, HotRun::Stale(*blocks));
        }
        runs
    }
}
