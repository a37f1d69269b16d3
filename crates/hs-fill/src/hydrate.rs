//! Fills the rest in the background, while no read waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hs_disk::ServedDisk;
use hs_units::BlockRange;

use super::demand::Waiting;
use super::fill_file::FillFile;

/// Blocks of one request, 512 KiB: four windows, so that a read that comes meanwhile waits for little.
const PIECE_BLOCKS: u64 = 128;
/// How long no read must have waited: a sequential reader then has none of these requests between its own.
const QUIET: Duration = Duration::from_millis(20);
/// While a guest reads without a pause, the rest is filled too, one piece in so much time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Fills a file from its beginning to its end.
pub(super) struct Hydrator {
    pub(super) file: Arc<FillFile>,
    pub(super) disk: Arc<ServedDisk>,
    pub(super) waiting: Arc<Waiting>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Hydrator {
    /// Fills until every block that can be read is filled.
    pub(super) fn run(&self) {
        let goes_on = || !self.stop.load(Relaxed);
        // The prefetch comes first.
        self.disk.wait_until(|_| !goes_on());
        let blocks = self.file.disk_blocks();
        let (mut next, mut unreadable) = (0, 0);
        while let Some(piece) = self.file.missing(next..blocks, PIECE_BLOCKS) {
            self.waiting.stand_back(QUIET, PATIENCE, goes_on);
            if !goes_on() || !self.file.wait_for_the_disk() {
                return;
            }
            if !self.fill(piece) {
                unreadable += self.fill_singly(piece);
            }
            next = piece.end().0;
        }
        if unreadable > 0 {
            log::warn!(
                "{}: {unreadable} blocks cannot be had from the image; reads of them fail",
                self.file.path().display()
            );
        }
    }

    fn fill(&self, piece: BlockRange) -> bool {
        let (offset, len) = self.file.bytes_of(piece);
        let mut bytes = vec![0; len as usize];
        self.disk.read_at(offset, &mut bytes).is_ok() && self.file.put(piece, &[&bytes]).is_ok()
    }

    /// Fills block by block, so that one bad place does not cost the blocks around it. Returns how many
    /// blocks cannot be read.
    fn fill_singly(&self, piece: BlockRange) -> u64 {
        let blocks = piece.blocks().take_while(|_| !self.stop.load(Relaxed));
        blocks.filter(|block| !self.fill(BlockRange::new(*block, 1))).count() as u64
    }
}
