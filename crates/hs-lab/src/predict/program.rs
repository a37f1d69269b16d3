//! What a program does between its reads, and what it reads.

use hs_trace::Profile;
use hs_units::{BLOCK_BYTES, Nanos};

use super::files::Files;

/// One call: consecutive blocks, when the program has computed for so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramRead {
    /// The program's own time since it was started, without waiting for storage.
    pub after: Nanos,
    /// The first block.
    pub block: u64,
    /// How many.
    pub blocks: u64,
}

/// A program from its start until it is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// In the order in which they are made.
    pub reads: Vec<ProgramRead>,
    /// Its own time until it is ready.
    pub own_time: Nanos,
}

/// Consecutive blocks of the recording that were requested within this time are one call: with read-ahead off
/// the kernel asks for a call's pages one by one, some 15 µs apart.
const ONE_CALL: Nanos = Nanos(60_000);
/// The same of files that are read and not mapped, where consecutive pages are one call on slower machines
/// too: no program computes for so short a time between two consecutive reads.
const ONE_CALL_OF_A_FILE: Nanos = Nanos(300_000);

/// How long the reads of two blocks, one after another, may lie apart and be one call.
fn longest_pause(files: Option<&Files>, before: u64, block: u64) -> Nanos {
    let Some(files) = files else { return ONE_CALL };
    let file = |block: u64| files.locate(block, block + 1).file;
    match (file(before), file(block)) {
        (Some(one), Some(other)) if one == other && !files.all()[one].mapped => ONE_CALL_OF_A_FILE,
        _ => ONE_CALL,
    }
}

/// Blocks of the longest call: what a guest, or a file system above, asks for at once.
const LONGEST_CALL: u64 = 64;

impl Program {
    /// What `profile` recorded until it was ready. Its think times are scaled so that all of them take
    /// `own_time`, when that is known better: a recording is one run, on a machine that did other things as
    /// well. `files` are those that it reads, where they are known.
    #[must_use]
    pub fn recorded(profile: &Profile, files: Option<&Files>, own_time: Option<Nanos>) -> Self {
        let end = profile.ready.unwrap_or(profile.ended);
        let mut reads: Vec<ProgramRead> = Vec::new();
        let mut last = Nanos::ZERO;
        for (read, think) in profile.reads.iter().zip(profile.think_times()) {
            if read.at >= end {
                break;
            }
            let (block, blocks) = (read.blocks.start.0, read.blocks.count);
            match reads.last_mut() {
                Some(call)
                    if call.block + call.blocks == block
                        && call.blocks + blocks <= LONGEST_CALL
                        && think.saturating_sub(last) <= longest_pause(files, call.block, block) =>
                {
                    call.blocks += blocks;
                }
                _ => reads.push(ProgramRead { after: think, block, blocks }),
            }
            last = think;
        }
        let recorded = profile.own_time();
        let own_time = own_time.unwrap_or(recorded);
        let scale = own_time.0 as f64 / recorded.0.max(1) as f64;
        for read in &mut reads {
            read.after = Nanos((read.after.0 as f64 * scale) as u64);
        }
        Self { reads, own_time }
    }

    /// Bytes of the disk that it reads, those that it reads twice counted twice.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.blocks * BLOCK_BYTES).sum()
    }
}
