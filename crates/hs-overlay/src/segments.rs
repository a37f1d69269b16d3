//! The segments of the file: which are used, how much of each is live, and which can be written again.

use std::collections::{BTreeMap, VecDeque};

use crate::layout::{MAX_SEGMENTS, SEGMENT_BLOCKS, first_block, segment_of};
use crate::map::{Content, ExtentMap};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentState {
    /// No space is taken for it.
    Hole,
    /// It can be written to. Where it was written before, an append changes nothing but data.
    Free { was_written: bool },
    /// Part of the log, or of a checkpoint.
    Used,
}

#[derive(Clone, Debug)]
struct Segment {
    state: SegmentState,
    /// Blocks that the map refers to.
    live: u32,
    /// A snapshot refers to it.
    pinned: bool,
    /// Blocks of data that the map referred to once, and that are not holes yet.
    dead: Option<Box<[u64; 4]>>,
    /// Blocks that became holes since the file was opened.
    punched: u32,
    /// It may have others, too: a write to it may need space.
    may_have_holes: bool,
}

const HOLE: Segment = Segment {
    state: SegmentState::Hole,
    live: 0,
    pinned: false,
    dead: None,
    punched: 0,
    may_have_holes: true,
};

/// All segments of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    /// How many the file has.
    count: u32,
    /// Those that something is known of. The others are holes: the length of a file costs no memory.
    known: BTreeMap<u32, Segment>,
    /// Those that can be written to, in the order of their use.
    free: VecDeque<u32>,
}

/// A run of blocks of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) blocks: u64,
}

impl Segments {
    /// So many, of which none is used.
    pub(crate) fn new(count: u32) -> Self {
        Self { count, ..Self::default() }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn known(&mut self, segment: u32) -> &mut Segment {
        self.known.entry(segment).or_insert(HOLE)
    }

    /// Those that can be written to.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Segments with space of their own.
    pub(crate) fn taken(&self) -> usize {
        self.known.values().filter(|segment| segment.state != SegmentState::Hole).count()
    }

    /// There are at least as many as have this one among them.
    pub(crate) fn extend_to(&mut self, segment: u32) {
        self.count = self.count.max(segment + 1);
    }

    /// Whether this segment is used, or could be: false where it lies beyond the file.
    pub(crate) fn has(&self, segment: u32) -> bool {
        segment < self.count
    }

    pub(crate) fn live(&self, segment: u32) -> u32 {
        self.known.get(&segment).map_or(0, |segment| segment.live)
    }

    pub(crate) fn is_pinned(&self, segment: u32) -> bool {
        self.known.get(&segment).is_some_and(|segment| segment.pinned)
    }

    /// The segment is used from now on.
    pub(crate) fn set_used(&mut self, segment: u32) {
        self.known(segment).state = SegmentState::Used;
    }

    /// The next one to write to.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let segment = self.free.pop_front()?;
        self.set_used(segment);
        Some(segment)
    }

    /// Undoes a [`Self::take`].
    pub(crate) fn put_back(&mut self, segment: u32) {
        self.known(segment).state = SegmentState::Free { was_written: false };
        self.free.push_front(segment);
    }

    /// The segment is not needed any more, and was written.
    pub(crate) fn release(&mut self, segment: u32) {
        let found = self.known(segment);
        if found.may_have_holes || found.punched > 0 {
            // All of it becomes one.
            *found = Segment { dead: Some(Box::new([u64::MAX; 4])), ..HOLE };
            return;
        }
        found.state = SegmentState::Free { was_written: true };
        found.dead = None;
        self.free.push_front(segment);
    }

    /// So many segments for which space is to be taken: holes, then new ones at the end. None when the file
    /// cannot have more.
    pub(crate) fn holes(&self, count: usize) -> Option<Vec<u32>> {
        let others = self.known.iter().filter(|(_, segment)| segment.state != SegmentState::Hole);
        let mut others = others.map(|(number, _)| *number).peekable();
        let is_hole = |number: &u32| others.next_if_eq(number).is_none();
        let found: Vec<u32> = (0..MAX_SEGMENTS).filter(is_hole).take(count).collect();
        (found.len() == count).then_some(found)
    }

    /// Space for these was taken.
    pub(crate) fn allocated(&mut self, segments: &[u32]) {
        for segment in segments {
            self.extend_to(*segment);
            let state = SegmentState::Free { was_written: false };
            *self.known(*segment) = Segment { state, may_have_holes: false, ..HOLE };
            self.free.push_back(*segment);
        }
    }

    /// Space for these was taken, and they were written.
    pub(crate) fn allocated_and_used(&mut self, segments: &[u32]) {
        self.allocated(segments);
        self.free.truncate(self.free.len() - segments.len());
        segments.iter().for_each(|segment| self.set_used(*segment));
    }

    /// The segment that is used next, if it was not written before.
    pub(crate) fn unwritten(&self) -> Option<u32> {
        let next = *self.free.front()?;
        (self.known.get(&next)?.state == SegmentState::Free { was_written: false }).then_some(next)
    }

    pub(crate) fn set_written(&mut self, segment: u32) {
        if let SegmentState::Free { was_written } = &mut self.known(segment).state {
            *was_written = true;
        }
    }

    /// The map refers to these blocks of the file; false where they lie in no segment, or two refer to one.
    pub(crate) fn add_live(&mut self, place: u64, blocks: u64) -> bool {
        let Some(segment) = segment_of(place) else { return false };
        if !self.has(segment) || place - first_block(segment) + blocks > SEGMENT_BLOCKS {
            return false;
        }
        let found = self.known(segment);
        // Two extents of one place would be more than there is.
        if u64::from(found.live) + blocks > SEGMENT_BLOCKS {
            return false;
        }
        found.live += blocks as u32;
        found.state = SegmentState::Used;
        true
    }

    /// The map refers to these no more.
    pub(crate) fn drop_live(&mut self, place: u64, blocks: u64) {
        let Some(segment) = segment_of(place) else { return };
        let first = place - first_block(segment);
        let found = self.known(segment);
        found.live -= blocks as u32;
        let dead = found.dead.get_or_insert_default();
        for block in first..first + blocks {
            dead[block as usize / 64] |= 1 << (block % 64);
        }
    }

    /// Counts anew what this map refers to, and pins what snapshots do; false where that lies outside.
    pub(crate) fn count_again<'a>(
        &mut self,
        map: &ExtentMap,
        snapshots: impl Iterator<Item = &'a ExtentMap>,
    ) -> bool {
        for segment in self.known.values_mut() {
            (segment.live, segment.pinned) = (0, false);
            // No map has anything of a segment that is to become a hole.
            segment.dead = segment.dead.take().filter(|_| segment.state == SegmentState::Hole);
        }
        let mut fits = true;
        for snapshot in snapshots {
            for (_, blocks, content) in snapshot.iter() {
                let Content::Data(place) = content else { continue };
                let segment = segment_of(place).filter(|segment| self.has(*segment));
                fits &=
                    segment.is_some_and(|segment| place - first_block(segment) + blocks <= SEGMENT_BLOCKS);
                if let Some(segment) = segment {
                    self.known(segment).pinned = true;
                    self.set_used(segment);
                }
            }
        }
        for (_, blocks, content) in map.iter() {
            if let Content::Data(place) = content {
                fits &= self.add_live(place, blocks);
            }
        }
        fits
    }

    /// Used segments that nothing refers to become free, but for these.
    pub(crate) fn reclaim(&mut self, needed: &[u32]) {
        let dead: Vec<u32> = self.dead(needed).collect();
        dead.into_iter().for_each(|segment| self.release(segment));
    }

    /// The segments that [`Self::reclaim`] would give back.
    pub(crate) fn dead(&self, needed: &[u32]) -> impl Iterator<Item = u32> {
        let is_dead =
            |segment: &Segment| segment.state == SegmentState::Used && segment.live == 0 && !segment.pinned;
        let dead = self.known.iter().filter(move |(_, segment)| is_dead(segment));
        dead.map(|(number, _)| *number).filter(|number| !needed.contains(number))
    }

    /// Blocks of space of the used segments that no snapshot refers to, and of these the live ones.
    pub(crate) fn space(&self) -> (u64, u64) {
        let used =
            self.known.values().filter(|segment| segment.state == SegmentState::Used && !segment.pinned);
        used.fold((0, 0), |(space, live), segment| {
            (space + SEGMENT_BLOCKS - u64::from(segment.punched), live + u64::from(segment.live))
        })
    }

    /// At most so many used segments with fewer live blocks than this, the sparsest ones.
    pub(crate) fn sparsest(&self, count: usize, live: u64, needed: &[u32]) -> Vec<u32> {
        let is_sparse = |(number, segment): &(&u32, &Segment)| {
            let is_used = segment.state == SegmentState::Used && !segment.pinned;
            is_used && u64::from(segment.live) < live && !needed.contains(number)
        };
        let mut found: Vec<u32> = self.known.iter().filter(is_sparse).map(|(number, _)| *number).collect();
        found.sort_by_key(|number| self.live(*number));
        found.truncate(count);
        found
    }

    /// The segment stays as it is.
    pub(crate) fn pin(&mut self, segment: u32) {
        self.known(segment).pinned = true;
    }

    /// What can become holes: free segments beyond so many, and dead blocks of segments that are mostly dead.
    /// They count as holes from now on. At most `most` runs.
    pub(crate) fn punchable(&mut self, keep_free: usize, needed: &[u32], most: usize) -> Vec<Run> {
        let mut runs = Vec::new();
        while self.free.len() > keep_free && runs.len() < most {
            let Some(segment) = self.free.pop_back() else { break };
            self.known(segment).state = SegmentState::Hole;
            runs.push(Run { first: first_block(segment), blocks: SEGMENT_BLOCKS });
        }
        for (number, segment) in &mut self.known {
            let mostly_dead = u64::from(segment.live) < SEGMENT_BLOCKS / 2;
            let sealed = segment.state == SegmentState::Used && !needed.contains(number);
            let is_hole = segment.state == SegmentState::Hole;
            if runs.len() >= most || !is_hole && (!sealed || !mostly_dead || segment.pinned) {
                continue;
            }
            let Some(dead) = segment.dead.take() else { continue };
            segment.punched += dead.iter().map(|bits| bits.count_ones()).sum::<u32>();
            runs.extend(runs_of(&dead, first_block(*number)));
        }
        runs
    }
}

/// The runs of set bits, for blocks from `first` on.
fn runs_of(bits: &[u64; 4], first: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for block in 0..SEGMENT_BLOCKS {
        if bits[block as usize / 64] >> (block % 64) & 1 == 0 {
            continue;
        }
        match runs.last_mut().filter(|run| run.first + run.blocks == first + block) {
            Some(run) => run.blocks += 1,
            None => runs.push(Run { first: first + block, blocks: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found() {
        let run = |first, blocks| Run { first, blocks };
        assert_eq!(runs_of(&[0b1101, 1 << 63, 1, 0], 1000), [run(1000, 1), run(1002, 2), run(1127, 2)]);
        assert_eq!(runs_of(&[u64::MAX; 4], 0), [run(0, 256)]);
    }

    #[test]
    fn holes_of_a_long_file_are_used_first_and_known_only_then() {
        let mut segments = Segments::new(MAX_SEGMENTS);
        assert!(segments.add_live(first_block(1), 3) && segments.add_live(first_block(MAX_SEGMENTS - 1), 1));
        assert!(!Segments::new(7).add_live(first_block(7), 1), "behind the end of the file");
        assert_eq!(segments.holes(3), Some(vec![0, 2, 3]));
        segments.allocated(&[0, 2]);
        assert_eq!((segments.taken(), segments.known.len()), (4, 4));
        assert_eq!(segments.holes(MAX_SEGMENTS as usize - 3), None);
    }

    #[test]
    fn written_segments_are_used_first_and_holes_before_new_ones() {
        let mut segments = Segments::new(2);
        assert_eq!(segments.holes(3), Some(vec![0, 1, 2]));
        segments.allocated(&[0, 1, 2]);
        assert_eq!(segments.unwritten(), Some(0));
        let first = segments.take().unwrap();
        segments.release(first);
        assert_eq!((segments.take(), segments.unwritten()), (Some(0), Some(1)));
    }
}
