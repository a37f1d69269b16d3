//! A record: one append of the log. A header of whole blocks, then blocks of data.

use crate::batch::Batch;
use crate::layout::{BLOCK, Identity, SEGMENT_BLOCKS, field, first_block};
use crate::map::{Content, MAX_EXTENT_BLOCKS};
use crate::slot::LogEnd;

const MAGIC: &[u8; 8] = b"HSKEEPRC";
const EXTENTS_AT: usize = 128;
const EXTENT_BYTES: usize = 12;
pub(crate) const SUM_BYTES: usize = 8;
const DIGEST_AT: usize = 96;
/// Blocks of a header at most.
pub(crate) const MAX_HEADER_BLOCKS: u64 = 16;
const DIGEST_CONTEXT: &str = "headstart 2026-11-28 draft 1 overlay record";

/// What a record is bound to.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) epoch: u64,
}

/// A change that a record makes: blocks `start` up to `end` of the disk. Data lies at a block of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) content: Content,
}

/// A record with its place.
pub(crate) struct Record {
    pub(crate) changes: Vec<Change>,
    /// The log behind it.
    pub(crate) end: LogEnd,
}

const fn header_blocks(extents: u64, data: u64) -> u64 {
    (EXTENTS_AT as u64 + EXTENT_BYTES as u64 * extents + SUM_BYTES as u64 * data).div_ceil(BLOCK as u64)
}

/// Whether one record with so much fits into so many blocks.
pub(crate) const fn fits(extents: u64, data: u64, room: u64) -> bool {
    let header = header_blocks(extents, data);
    header <= MAX_HEADER_BLOCKS && header + data <= room
}

/// Segments that the records of a batch with so much need at most, whatever of the last one is used.
pub(crate) const fn segments_for(extents: u64, data: u64) -> u64 {
    let blocks = data + extents * EXTENT_BYTES as u64 / BLOCK as u64 + 2;
    // Of a segment a header takes 16 blocks at most, and one may be left over.
    blocks.div_ceil(SEGMENT_BLOCKS - MAX_HEADER_BLOCKS - 1) + 1
}

/// A part of an extent of a batch: its content is a place in the batch.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    blocks: u64,
    content: Content,
}

/// Cuts a batch into records, one behind the other.
pub(crate) struct Writer<'a> {
    binding: Binding<'a>,
    batch: &'a Batch,
    log: LogEnd,
    pieces: Vec<Piece>,
    data: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(binding: Binding<'a>, batch: &'a Batch, log: LogEnd) -> Self {
        Self { binding, batch, log, pieces: Vec::new(), data: 0 }
    }

    /// All records of the batch. `take` gives the segment behind the next one; `put` takes each record with
    /// the first block that it is written to, and its bytes.
    pub(crate) fn write(
        mut self,
        mut take: impl FnMut() -> u32,
        mut put: impl FnMut(u64, Vec<u8>, Record),
    ) -> LogEnd {
        for (start, blocks, content) in self.batch.map.iter() {
            let mut at = 0;
            while at < blocks {
                let room = SEGMENT_BLOCKS - self.log.block;
                let most = blocks - at;
                let taken = self.fitting(content, most, room);
                if taken == 0 {
                    self.finish(&mut put);
                    if !fits(1, 1, SEGMENT_BLOCKS - self.log.block) {
                        let segment = self.log.next;
                        self.log = LogEnd { segment, block: 0, next: take(), ..self.log };
                    }
                    continue;
                }
                self.pieces.push(Piece { start: start + at, blocks: taken, content: content.after(at) });
                self.data += if matches!(content, Content::Data(_)) { taken } else { 0 };
                at += taken;
            }
        }
        self.finish(&mut put);
        self.log
    }

    /// How many of so many blocks the record that is gathered can have as a further extent.
    fn fitting(&self, content: Content, most: u64, room: u64) -> u64 {
        let extents = self.pieces.len() as u64 + 1;
        if !matches!(content, Content::Data(_)) {
            return if fits(extents, self.data, room) { most.min(MAX_EXTENT_BLOCKS) } else { 0 };
        }
        let mut taken = most.min(room.saturating_sub(self.data));
        while taken > 0 && !fits(extents, self.data + taken, room) {
            taken -= 1;
        }
        taken
    }

    fn finish(&mut self, put: &mut impl FnMut(u64, Vec<u8>, Record)) {
        if self.pieces.is_empty() {
            return;
        }
        let place = first_block(self.log.segment) + self.log.block;
        let header = header_blocks(self.pieces.len() as u64, self.data);
        let mut bytes = Vec::with_capacity((header + self.data) as usize * BLOCK);
        bytes.resize(header as usize * BLOCK, 0);
        let mut changes = Vec::with_capacity(self.pieces.len());
        let mut sum_at = EXTENTS_AT + EXTENT_BYTES * self.pieces.len();
        let mut data_at = header;
        for (number, piece) in self.pieces.iter().enumerate() {
            let at = EXTENTS_AT + EXTENT_BYTES * number;
            let kind: u32 = match piece.content {
                Content::Data(_) => 1,
                Content::Zero => 2,
                Content::Discarded => 3,
            };
            for (offset, value) in [(0, piece.start as u32), (4, piece.blocks as u32), (8, kind)] {
                field::put(&mut bytes, at + offset, &value.to_le_bytes());
            }
            let mut content = piece.content;
            if let Content::Data(number) = piece.content {
                content = Content::Data(place + data_at);
                let sums = self.batch.sums(number, piece.blocks).as_flattened();
                field::put(&mut bytes, sum_at, sums);
                bytes.extend_from_slice(self.batch.blocks(number, piece.blocks));
                sum_at += sums.len();
                data_at += piece.blocks;
            }
            changes.push(Change { start: piece.start, end: piece.start + piece.blocks, content });
        }
        let sequence = self.log.sequence + 1;
        let mut put_field = |at, value: &[u8]| field::put(&mut bytes, at, value);
        put_field(0, MAGIC);
        put_field(8, &self.binding.identity.id);
        put_field(24, &self.binding.epoch.to_le_bytes());
        put_field(32, &sequence.to_le_bytes());
        put_field(40, &place.to_le_bytes());
        put_field(48, &self.log.next.to_le_bytes());
        put_field(52, &(header as u16).to_le_bytes());
        put_field(54, &(self.data as u16).to_le_bytes());
        put_field(56, &(self.pieces.len() as u32).to_le_bytes());
        put_field(64, &self.log.chain);
        let chain = digest(&bytes[..header as usize * BLOCK]);
        field::put(&mut bytes, DIGEST_AT, &chain);
        self.log = LogEnd { block: self.log.block + header + self.data, sequence, chain, ..self.log };
        self.pieces.clear();
        self.data = 0;
        put(place, bytes, Record { changes, end: self.log });
    }
}

/// The header of a record, as it was found at a place.
pub(crate) struct Header<'a> {
    bytes: &'a [u8],
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) blocks: u64,
    pub(crate) data_blocks: u64,
    extents: usize,
    next: u32,
    previous: [u8; 32],
    digest: [u8; 32],
}

impl<'a> Header<'a> {
    /// The header at the beginning of `bytes`, which were found at `place`. None where no whole one is there:
    /// its magic, its overlay, its place, its lengths or its digest are not right (R43).
    pub(crate) fn decode(bytes: &'a [u8], place: u64, identity: &Identity) -> Option<Self> {
        if bytes.len() < BLOCK || !bytes.starts_with(MAGIC) || field::bytes::<16>(bytes, 8) != identity.id {
            return None;
        }
        let [blocks, data_blocks] = [52, 54].map(|at| u64::from(field::u16(bytes, at)));
        let extents = field::u32(bytes, 56) as usize;
        // Compared before anything is added up or allocated.
        if field::u64(bytes, 40) != place
            || field::u32(bytes, 60) != 0
            || blocks == 0
            || blocks > MAX_HEADER_BLOCKS
            || extents == 0
            || extents > MAX_HEADER_BLOCKS as usize * BLOCK / EXTENT_BYTES
            || header_blocks(extents as u64, data_blocks) != blocks
        {
            return None;
        }
        let bytes = bytes.get(..blocks as usize * BLOCK)?;
        let found = field::bytes(bytes, DIGEST_AT);
        let used = EXTENTS_AT + EXTENT_BYTES * extents + SUM_BYTES * data_blocks as usize;
        if digest(bytes) != found || bytes[used..].iter().any(|byte| *byte != 0) {
            return None;
        }
        let header = Self {
            bytes,
            epoch: field::u64(bytes, 24),
            sequence: field::u64(bytes, 32),
            blocks,
            data_blocks,
            extents,
            next: field::u32(bytes, 48),
            previous: field::bytes(bytes, 64),
            digest: found,
        };
        header.extents_agree(identity).then_some(header)
    }

    /// R44: extents are in order, of a known kind, on the disk, and have as much data as the header says.
    fn extents_agree(&self, identity: &Identity) -> bool {
        let (mut end, mut data) = (0, 0);
        for number in 0..self.extents {
            let (start, blocks, kind) = self.extent(number);
            if start < end || blocks == 0 || blocks > MAX_EXTENT_BLOCKS || !(1..=3).contains(&kind) {
                return false;
            }
            end = start + blocks;
            data += if kind == 1 { blocks } else { 0 };
        }
        end <= identity.disk_blocks() && data == self.data_blocks
    }

    fn extent(&self, number: usize) -> (u64, u64, u32) {
        let at = EXTENTS_AT + EXTENT_BYTES * number;
        let [start, blocks, kind] = [0, 4, 8].map(|offset| field::u32(self.bytes, at + offset));
        (start.into(), blocks.into(), kind)
    }

    /// Whether it is the next record of this log (R45).
    pub(crate) fn continues(&self, log: &LogEnd, epoch: u64) -> bool {
        self.epoch == epoch
            && log.sequence.checked_add(1) == Some(self.sequence)
            && self.previous == log.chain
    }

    /// The sum of a block of the record's data, where the block is what was written (R46).
    pub(crate) fn whole_sum(&self, number: u64, block: &[u8]) -> Option<[u8; SUM_BYTES]> {
        let at = EXTENTS_AT + EXTENT_BYTES * self.extents + SUM_BYTES * number as usize;
        let found = sum(block);
        (block.len() == BLOCK && field::bytes(self.bytes, at) == found).then_some(found)
    }

    /// Whether all blocks of data behind the header are.
    pub(crate) fn has_whole_data(&self, data: &[u8]) -> bool {
        let blocks = data.chunks_exact(BLOCK).enumerate();
        data.len() == self.data_blocks as usize * BLOCK
            && blocks.into_iter().all(|(number, block)| self.whole_sum(number as u64, block).is_some())
    }

    /// What it changes, and the log behind it, which went on in `segment` at `block`.
    pub(crate) fn record(&self, segment: u32, block: u64) -> Record {
        let mut data_at = first_block(segment) + block + self.blocks;
        let mut changes = Vec::with_capacity(self.extents);
        for number in 0..self.extents {
            let (start, blocks, kind) = self.extent(number);
            let content = match kind {
                1 => Content::Data(data_at),
                2 => Content::Zero,
                _ => Content::Discarded,
            };
            data_at += if kind == 1 { blocks } else { 0 };
            changes.push(Change { start, end: start + blocks, content });
        }
        let block = block + self.blocks + self.data_blocks;
        let end = LogEnd { segment, block, next: self.next, sequence: self.sequence, chain: self.digest };
        Record { changes, end }
    }
}

/// Makes the digest of the header at the beginning of these bytes right, if one is there.
pub(crate) fn seal(bytes: &mut [u8]) {
    let blocks = usize::from(field::u16(bytes, 52)).min(MAX_HEADER_BLOCKS as usize);
    if bytes.starts_with(MAGIC)
        && let Some(header) = bytes.get_mut(..blocks.max(1) * BLOCK)
    {
        let digest = digest(header);
        field::put(header, DIGEST_AT, &digest);
    }
}

/// The sum of a block: the first bytes of its digest. The header's digest covers it.
pub(crate) fn sum(block: &[u8]) -> [u8; SUM_BYTES] {
    field::bytes(blake3::hash(block).as_bytes(), 0)
}

/// The digest of a header, in which the bytes of the digest are zero.
fn digest(header: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
    hasher.update(&header[..DIGEST_AT]).update(&[0; 32]).update(&header[DIGEST_AT + 32..]);
    hasher.finalize().into()
}
