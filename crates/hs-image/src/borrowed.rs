//! Hot chunks of which some lie in the image of the base, as one run of bytes.
//!
//! An image with a base need not store hot chunks that the base's image has in its own hot region (R57). What
//! reads hot chunks sees one run of bytes all the same, behind the end of the file: own chunks come with one
//! request, and those of the base with as few as there are gaps in its file that are too long to be read.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use hs_store::{Sink, Store, StoreError};
use hs_units::{ByteRange, Digest, to_usize};

use crate::Image;

/// Gaps of the base's file up to this are read and dropped: at 25 MB/s they take what a request does.
const MOST_GAP_BYTES: u64 = 256 << 10;
/// Own chunks in a row of so many bytes are streamed; fewer are read before those of the base around them.
const OWN_RUN_BYTES: u64 = 256 << 10;

/// An image whose hot chunks are borrowed.
pub(crate) struct Lender {
    store: Arc<dyn Store>,
    chunks: HashMap<Digest, ByteRange>,
}

impl Lender {
    /// A base's image.
    pub(crate) fn of(image: &Image) -> Self {
        let chunks = (0..image.hot_chunk_count()).map(|number| image.hot_chunk(number));
        Self {
            store: Arc::clone(image.store()),
            chunks: chunks.map(|(chunk, at)| (chunk.digest, at)).collect(),
        }
    }

    /// Where it has a hot chunk with this digest and length.
    pub(crate) fn place(&self, digest: &Digest, bytes: u64) -> Option<ByteRange> {
        self.chunks.get(digest).copied().filter(|at| at.len == bytes)
    }
}

/// Where the stored bytes of a hot chunk lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HotSource {
    /// In the image, from this byte on.
    Own(u64),
    /// In the hot region of the base's image: the chunk with this digest.
    Base(Digest),
}

/// The stored bytes of all hot chunks one after another.
pub(crate) struct BorrowedHot {
    store: Arc<dyn Store>,
    start: u64,
    /// Ends and sources of the chunks.
    chunks: Vec<(u64, HotSource)>,
    /// The base's image, once it is known.
    lender: OnceLock<Lender>,
}

/// A part of what is read, where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    is_own: bool,
    at: ByteRange,
}

impl BorrowedHot {
    /// Of chunks with these lengths, from `start` on.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        start: u64,
        chunks: impl Iterator<Item = (u64, HotSource)>,
    ) -> Self {
        let mut end = start;
        let ends = chunks.map(|(bytes, source)| {
            end += bytes;
            (end, source)
        });
        let chunks = ends.collect();
        Self { store, start, chunks, lender: OnceLock::new() }
    }

    /// Where its bytes begin.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Takes the image that its chunks are borrowed from.
    pub(crate) fn lend(&self, lender: Lender) {
        self.lender.get_or_init(|| lender);
    }

    /// Whether the base's image is known, and has this chunk.
    pub(crate) fn is_lent(&self, digest: &Digest, bytes: u64) -> bool {
        self.lender.get().is_some_and(|lender| lender.place(digest, bytes).is_some())
    }

    /// The parts of a range, in its order; an error in place of the first that the base's image has not.
    fn parts(&self, range: ByteRange) -> (Vec<Part>, Result<(), StoreError>) {
        let mut parts = Vec::new();
        let first = self.chunks.partition_point(|(end, _)| *end <= range.offset);
        for (number, (end, source)) in self.chunks.iter().enumerate().skip(first) {
            let chunk_start = if number == 0 { self.start } else { self.chunks[number - 1].0 };
            let (from, until) = (range.offset.max(chunk_start), range.end().min(*end));
            if from >= until {
                break;
            }
            let is_own = matches!(source, HotSource::Own(_));
            let place = match source {
                HotSource::Own(offset) => Some(*offset),
                HotSource::Base(digest) => {
                    let lender = self.lender.get();
                    lender.and_then(|lender| lender.place(digest, end - chunk_start)).map(|at| at.offset)
                }
            };
            let Some(place) = place else { return (parts, Err(self.is_missing(range))) };
            parts.push(Part { is_own, at: ByteRange::new(place + (from - chunk_start), until - from) });
        }
        (parts, Ok(()))
    }

    fn is_missing(&self, range: ByteRange) -> StoreError {
        let why = match self.lender.get() {
            Some(lender) => format!("{} has not all hot chunks that it borrows", lender.store.name()),
            None => "it borrows hot chunks of its base: give that by --base".to_owned(),
        };
        StoreError::read(self.store.name(), range, io::Error::other(why))
    }

    /// Hands over parts among which those of the base lie close to each other, and own ones are few.
    fn stream_close(&self, parts: &[Part], sink: &mut Sink<'_>) -> Result<ControlFlow<()>, StoreError> {
        let own = self.read_own(parts)?;
        let mut sink = InOrder { parts, own: &own, done: 0, sink, flow: ControlFlow::Continue(()) };
        sink.hand_own();
        let Some(span) = span(parts, false) else { return Ok(sink.flow) };
        if sink.flow.is_continue() {
            let mut at = span.offset;
            let lender = self.lender.get().ok_or_else(|| self.is_missing(span))?;
            lender.store.stream(span, &mut |piece| {
                sink.hand(at, piece);
                at += piece.len() as u64;
                sink.flow
            })?;
        }
        Ok(sink.flow)
    }

    /// Own chunks lie one after another in the file.
    fn read_own(&self, parts: &[Part]) -> Result<Vec<u8>, StoreError> {
        let Some(span) = span(parts, true) else { return Ok(Vec::new()) };
        let mut bytes = vec![0; to_usize(span.len)];
        self.store.read_at(span.offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// From the first to the last of the parts of one kind.
fn span(parts: &[Part], is_own: bool) -> Option<ByteRange> {
    let mut of_kind = parts.iter().filter(|part| part.is_own == is_own);
    let first = of_kind.next()?;
    let last = of_kind.next_back().unwrap_or(first);
    Some(ByteRange::new(first.at.offset, last.at.end() - first.at.offset))
}

/// Takes what comes of the base, and hands it over with own parts between.
struct InOrder<'a, 'b> {
    /// Those that are not handed over yet.
    parts: &'a [Part],
    own: &'a [u8],
    /// Bytes of the first one that are.
    done: u64,
    sink: &'a mut Sink<'b>,
    flow: ControlFlow<()>,
}

impl InOrder<'_, '_> {
    /// Hands over own parts up to the next one of the base.
    fn hand_own(&mut self) {
        while let Some((part, rest)) = self.parts.split_first().filter(|(part, _)| part.is_own) {
            let (bytes, later) = self.own.split_at(to_usize(part.at.len));
            (self.parts, self.own) = (rest, later);
            if self.flow.is_continue() {
                self.flow = (self.sink)(bytes);
            }
        }
    }

    /// Takes the bytes of the base's file from `at` on.
    fn hand(&mut self, mut at: u64, mut piece: &[u8]) {
        while let Some(part) = self.parts.first().filter(|_| self.flow.is_continue()) {
            let wanted = part.at.offset + self.done;
            let skipped = to_usize(wanted.saturating_sub(at).min(piece.len() as u64));
            let taken = to_usize((part.at.len - self.done).min((piece.len() - skipped) as u64));
            let bytes = &piece[skipped..skipped + taken];
            if bytes.is_empty() {
                break;
            }
            (piece, at) = (&piece[skipped + taken..], at + (skipped + taken) as u64);
            self.done += taken as u64;
            let is_whole = self.done == part.at.len;
            self.flow = (self.sink)(bytes);
            if is_whole {
                (self.parts, self.done) = (&self.parts[1..], 0);
                self.hand_own();
            }
        }
    }
}

/// How many parts, from the first on, come together: own ones in a long row alone, else with those of the
/// base whose places ascend without long gaps.
fn together(parts: &[Part]) -> usize {
    let own = own_row(parts);
    if own == parts.len() || is_long(&parts[..own]) {
        return own;
    }
    let (mut next, mut ends) = (0, [None; 2]);
    while let Some(part) = parts.get(next) {
        let gap = match ends[usize::from(part.is_own)] {
            Some(end) => part.at.offset.checked_sub(end),
            None => Some(0),
        };
        let most = if part.is_own { 0 } else { MOST_GAP_BYTES };
        let begins_row = part.is_own && (next == 0 || !parts[next - 1].is_own);
        let is_alone = begins_row && is_long(&parts[next..next + own_row(&parts[next..])]);
        if gap.is_none_or(|gap| gap > most) || is_alone {
            break;
        }
        ends[usize::from(part.is_own)] = Some(part.at.end());
        next += 1;
    }
    next
}

/// How many parts, from the first on, are own ones that lie one after another.
fn own_row(parts: &[Part]) -> usize {
    let mut end = None;
    let follows = |part: &&Part| {
        let is_next = end.is_none_or(|end| end == part.at.offset);
        end = Some(part.at.end());
        part.is_own && is_next
    };
    parts.iter().take_while(follows).count()
}

fn is_long(own: &[Part]) -> bool {
    own.iter().map(|part| part.at.len).sum::<u64>() >= OWN_RUN_BYTES
}

impl Store for BorrowedHot {
    fn len(&self) -> u64 {
        self.chunks.last().map_or(self.start, |(end, _)| *end)
    }

    fn name(&self) -> &str {
        self.store.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let mut rest = buf;
        let range = ByteRange::new(offset, rest.len() as u64);
        self.stream(range, &mut |piece| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(piece.len());
            now.copy_from_slice(piece);
            rest = later;
            ControlFlow::Continue(())
        })
    }

    fn stream(&self, range: ByteRange, sink: &mut Sink<'_>) -> Result<(), StoreError> {
        StoreError::check_range(self, range)?;
        if range.offset < self.start {
            return Err(StoreError::short(self.name(), range, self.start));
        }
        let (parts, has_all) = self.parts(range);
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(together(rest));
            let is_own = now.iter().all(|part| part.is_own);
            let flow = match span(now, true).filter(|_| is_own) {
                Some(span) => {
                    let mut flow = ControlFlow::Continue(());
                    self.store.stream(span, &mut |piece| {
                        flow = sink(piece);
                        flow
                    })?;
                    flow
                }
                None => self.stream_close(now, sink)?,
            };
            if flow.is_break() {
                return Ok(());
            }
            rest = later;
        }
        has_all
    }
}

#[cfg(test)]
#[path = "borrowed_tests.rs"]
mod tests;
