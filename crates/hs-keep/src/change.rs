//! Changes of the disk: cut into whole blocks and parts of blocks, which are completed first.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use bytes::Bytes;
use hs_disk::Requester;
use hs_overlay::{ChangeKind, Failed, FailedStep, Refusal, Source};
use hs_units::{BLOCK_BYTES, ByteRange};
use parking_lot::Mutex;

use crate::disk::{Answer, KeptState, Shared, ZeroKind};
use crate::read::FileRead;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes that are handed to the overlay as one: what it gathers on the slowest medium.
const PART_BYTES: usize = 256 << 10;

/// A change that the overlay takes as a whole.
pub(crate) enum Change {
    /// Whole blocks.
    Blocks { requester: Requester, start: u64, bytes: Bytes },
    /// Whole blocks of zeros.
    Zero { requester: Requester, start: u64, blocks: u64, discard: bool },
    /// Bytes in one block. What the block holds beside them is looked up when they are taken, so that of two
    /// writers of one block none undoes what the other has written.
    Part { requester: Requester, block: u64, at: usize, bytes: Vec<u8>, found: Option<FetchedBlock> },
}

impl Change {
    /// Where it waits for room.
    fn kind(&self) -> ChangeKind {
        let (requester, bytes) = match self {
            Self::Blocks { requester, bytes, .. } => (requester, bytes.len()),
            Self::Part { requester, bytes, .. } => (requester, bytes.len()),
            Self::Zero { requester, .. } => (requester, 0),
        };
        ChangeKind::of(requester.client.0, bytes as u64)
    }
}

/// What a block was found to hold, and where.
pub(crate) struct FetchedBlock {
    source: Source,
    bytes: Vec<u8>,
}

/// What became of a change.
pub(crate) enum Taken {
    Done(Result<(), i32>),
    /// There is no room now.
    Later,
    /// The block's content has to be fetched first.
    Needs(Source),
}

/// The changes that one request makes; it is answered when all are made.
pub(crate) struct Changes {
    shared: Arc<Shared>,
    requester: Requester,
    changes: Vec<Change>,
    answer: Answer,
}

impl Changes {
    pub(crate) fn new(shared: Arc<Shared>, requester: Requester, answer: Answer) -> Self {
        Self { shared, requester, changes: Vec::new(), answer }
    }

    pub(crate) fn write(&mut self, offset: u64, mut bytes: Vec<u8>) {
        let into = (offset % BLOCK_BYTES) as usize;
        let mut block = offset / BLOCK_BYTES;
        if into > 0 {
            let rest = bytes.split_off(bytes.len().min(BLOCK - into));
            self.part(block, into, bytes);
            block += 1;
            bytes = rest;
        }
        let tail = bytes.split_off(bytes.len() / BLOCK * BLOCK);
        let whole = (bytes.len() / BLOCK) as u64;
        let (requester, mut rest, mut start) = (self.requester, Bytes::from(bytes), block);
        while !rest.is_empty() {
            let bytes = rest.split_to(rest.len().min(PART_BYTES));
            let blocks = (bytes.len() / BLOCK) as u64;
            self.changes.push(Change::Blocks { requester, start, bytes });
            start += blocks;
        }
        if !tail.is_empty() {
            self.part(block + whole, 0, tail);
        }
    }

    fn part(&mut self, block: u64, at: usize, bytes: Vec<u8>) {
        let requester = self.requester;
        self.changes.push(Change::Part { requester, block, at, bytes, found: None });
    }

    pub(crate) fn zero(&mut self, range: ByteRange, kind: ZeroKind) {
        let (start, end) = (range.offset.div_ceil(BLOCK_BYTES), range.end() / BLOCK_BYTES);
        let discard = kind != ZeroKind::Zeros;
        if start < end {
            let requester = self.requester;
            self.changes.push(Change::Zero { requester, start, blocks: end - start, discard });
        }
        if kind == ZeroKind::Discard {
            return;
        }
        if start > end {
            // Within one block.
            let at = (range.offset % BLOCK_BYTES) as usize;
            return self.part(end, at, vec![0; range.len as usize]);
        }
        let into = (range.offset % BLOCK_BYTES) as usize;
        if into > 0 {
            self.part(start - 1, into, vec![0; BLOCK - into]);
        }
        let tail = (range.end() % BLOCK_BYTES) as usize;
        if tail > 0 {
            self.part(end, 0, vec![0; tail]);
        }
    }

    /// Makes the changes, as far as there is room.
    pub(crate) fn begin(self) {
        let Self { shared, mut changes, answer, .. } = self;
        match (changes.pop(), changes.len()) {
            (None, _) => answer(Ok(())),
            (Some(only), 0) => begin(&shared, only, answer),
            (Some(last), more) => {
                changes.push(last);
                let (left, answer) = (AtomicUsize::new(more + 1), Mutex::new(Some(answer)));
                let all = Arc::new(All { left, errno: AtomicI32::new(0), answer });
                for change in changes {
                    let all = Arc::clone(&all);
                    begin(&shared, change, Box::new(move |result| all.ended(result)));
                }
            }
        }
    }
}

/// Counts the changes of a request.
struct All {
    left: AtomicUsize,
    errno: AtomicI32,
    answer: Mutex<Option<Answer>>,
}

impl All {
    fn ended(&self, result: Result<(), i32>) {
        if let Err(errno) = result {
            self.errno.store(errno, Relaxed);
        }
        if self.left.fetch_sub(1, AcqRel) == 1
            && let Some(answer) = self.answer.lock().take()
        {
            let errno = self.errno.load(Acquire);
            answer(if errno == 0 { Ok(()) } else { Err(errno) });
        }
    }
}

/// Makes a change, or puts it behind others that wait for room.
pub(crate) fn begin(shared: &Arc<Shared>, mut change: Change, answer: Answer) {
    let mut state = shared.state.lock();
    if state.ends {
        drop(state);
        return answer(Err(libc::ESHUTDOWN));
    }
    let must_wait = state.delayed.must_wait(change.kind());
    let taken = if must_wait { Taken::Later } else { take(shared, &mut state, &mut change) };
    match taken {
        Taken::Done(result) => {
            // It may be time to write back.
            let wakes = state.overlay.is_due();
            drop(state);
            if wakes {
                shared.work.notify_one();
            }
            answer(result);
        }
        Taken::Later => {
            state.delayed.push(change.kind(), (change, answer));
            shared.work.notify_one();
        }
        Taken::Needs(source) => fetch(shared, &mut state, change, source, answer),
    }
}

/// Gives a change to the overlay.
pub(crate) fn take(shared: &Shared, state: &mut KeptState, change: &mut Change) -> Taken {
    if let Change::Part { block, at, bytes, found, .. } = change {
        let whole = match whole_block(state, *block, found.as_ref()) {
            Ok(mut whole) => {
                whole[*at..*at + bytes.len()].copy_from_slice(bytes);
                whole
            }
            Err(source) => return Taken::Needs(source),
        };
        return offer(shared, state, *block, 1, &Offered::Bytes(&whole));
    }
    match change {
        Change::Blocks { start, bytes, .. } => {
            offer(shared, state, *start, (bytes.len() / BLOCK) as u64, &Offered::Bytes(bytes))
        }
        Change::Zero { start, blocks, discard, .. } => {
            offer(shared, state, *start, *blocks, &Offered::Zero { discard: *discard })
        }
        Change::Part { .. } => Taken::Later,
    }
}

enum Offered<'a> {
    Bytes(&'a [u8]),
    Zero { discard: bool },
}

fn offer(shared: &Shared, state: &mut KeptState, start: u64, blocks: u64, offered: &Offered<'_>) -> Taken {
    let data = if matches!(offered, Offered::Bytes(_)) { blocks } else { 0 };
    loop {
        let overlay = &mut state.overlay;
        let refusal = match offered {
            Offered::Bytes(bytes) => overlay.handle_write(start, bytes),
            Offered::Zero { discard } => overlay.handle_zero(start, blocks, *discard),
        };
        match refusal {
            Ok(()) => {
                shared.tell(state);
                return Taken::Done(Ok(()));
            }
            Err(Refusal::OutsideDisk) => return Taken::Done(Err(libc::ENOSPC)),
            Err(Refusal::NeedsSpace) => {
                let Some(job) = overlay.space_needed(data) else {
                    return Taken::Later;
                };
                match shared.file.run(&job, || {}) {
                    Ok(()) => overlay.handle_done(),
                    Err(failed) => {
                        let failed = Failed { step: FailedStep::Write, ..failed };
                        overlay.handle_failed(failed);
                        state.refused += u64::from(failed.no_space);
                        return Taken::Done(Err(if failed.no_space { libc::ENOSPC } else { libc::EIO }));
                    }
                }
            }
            Err(Refusal::Full) => return Taken::Later,
            Err(_) => return Taken::Done(Err(libc::EIO)),
        }
    }
}

/// The content of a block, or where it has to be fetched from.
fn whole_block(state: &KeptState, block: u64, found: Option<&FetchedBlock>) -> Result<Vec<u8>, Source> {
    let mut source = Source::Below;
    state.overlay.lookup(block, block + 1, &mut |piece| source = piece.source);
    match source {
        Source::Gathered(number) => Ok(state.overlay.gathered(number, 1).to_vec()),
        Source::OnItsWay(number) => Ok(state.overlay.on_its_way(number, 1).to_vec()),
        Source::Zero | Source::Discarded => Ok(vec![0; BLOCK]),
        // A place of the file holds the same as long as the map refers to it; the disk below never changes.
        Source::File(_) | Source::Below => match found {
            Some(found) if found.source == source => Ok(found.bytes.clone()),
            _ => Err(source),
        },
    }
}

/// Fetches what a block holds; then its change is made.
pub(crate) fn fetch(
    shared: &Arc<Shared>,
    state: &mut KeptState,
    change: Change,
    source: Source,
    answer: Answer,
) {
    let Change::Part { requester, block, .. } = &change else { return };
    let (requester, block) = (*requester, *block);
    match source {
        Source::File(offset) => {
            // Whatever is written there later is not read: this one counts until it has ended.
            let generation = state.generation;
            state.readers[generation] += 1;
            let own = Arc::clone(shared);
            let done =
                Box::new(move |bytes: Result<Vec<u8>, i32>| found(&own, change, source, bytes, answer));
            let _ = shared.file_reads.send(FileRead::Block { offset, generation, done });
        }
        _ => {
            let own = Arc::clone(shared);
            // The disk may answer at once, in this thread, which has the lock: another one asks.
            let done = Box::new(move || {
                let below = Arc::clone(&own.below);
                let offset = block * BLOCK_BYTES;
                below.submit(
                    requester,
                    offset,
                    BLOCK as u32,
                    Box::new(move |result| {
                        found(&own, change, source, result.map(<[&[u8]]>::concat), answer);
                    }),
                );
            });
            let _ = shared.file_reads.send(FileRead::Call(done));
        }
    }
}

fn found(
    shared: &Arc<Shared>,
    mut change: Change,
    source: Source,
    bytes: Result<Vec<u8>, i32>,
    answer: Answer,
) {
    match bytes {
        Ok(bytes) => {
            if let Change::Part { found, .. } = &mut change {
                *found = Some(FetchedBlock { source, bytes });
            }
            begin(shared, change, answer);
        }
        Err(errno) => answer(Err(errno)),
    }
}
