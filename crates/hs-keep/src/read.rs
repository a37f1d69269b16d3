//! Reads: from memory, from the file, and from the disk below, put together.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crossbeam_channel::Receiver;
use hs_disk::Requester;
use hs_overlay::{Piece, Source};
use hs_units::BLOCK_BYTES;
use parking_lot::Mutex;

use crate::below::ReadAnswer;
use crate::disk::Shared;

const BLOCK: usize = BLOCK_BYTES as usize;

/// What the reading threads do.
pub(crate) enum FileRead {
    /// Read a block of the file.
    Block { offset: u64, generation: usize, done: Box<dyn FnOnce(Result<Vec<u8>, i32>) + Send> },
    /// Read pieces of the file into a read.
    Pieces { pieces: Vec<Piece>, generation: usize, read: Arc<Gathering> },
    /// Something that must not be done where it was found.
    Call(Box<dyn FnOnce() + Send>),
    /// The disk ends.
    End,
}

/// A reading thread.
pub(crate) fn run(shared: &Weak<Shared>, reads: &Receiver<FileRead>) {
    hs_linux::flush_for_kernel();
    for read in reads {
        let Some(shared) = shared.upgrade() else { return };
        match read {
            FileRead::Block { offset, generation, done } => {
                let mut bytes = vec![0; BLOCK];
                let read = shared.read_file(offset, &mut bytes).map(|()| bytes);
                shared.has_read(generation);
                done(read);
            }
            FileRead::Pieces { pieces, generation, read } => {
                for piece in pieces {
                    let Source::File(offset) = piece.source else { continue };
                    let mut bytes = vec![0; (piece.end - piece.start) as usize * BLOCK];
                    match shared.read_file(offset, &mut bytes) {
                        Ok(()) => read.put(piece.start, &Ok(&[&bytes])),
                        Err(errno) => read.put(piece.start, &Err(errno)),
                    }
                }
                shared.has_read(generation);
                read.ended();
            }
            FileRead::Call(call) => call(),
            FileRead::End => return,
        }
    }
}

impl Shared {
    fn read_file(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        self.file.read(offset, buffer).map_err(|error| {
            log::error!("read {} bytes at {offset} of {}: {error}", buffer.len(), self.file.path().display());
            libc::EIO
        })
    }
}

/// A read whose pieces come from several places.
pub(crate) struct Gathering {
    /// The blocks that it touches, from this one on.
    start: u64,
    buffer: Mutex<Vec<u8>>,
    /// What of the buffer is answered.
    from: usize,
    len: usize,
    left: AtomicUsize,
    errno: AtomicI32,
    answer: Mutex<Option<ReadAnswer>>,
}

impl Gathering {
    fn put(&self, block: u64, result: &Result<&[&[u8]], i32>) {
        match result {
            Ok(pieces) => {
                let mut at = (block - self.start) as usize * BLOCK;
                let mut buffer = self.buffer.lock();
                for piece in *pieces {
                    buffer[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
            }
            Err(errno) => self.errno.store(*errno, Relaxed),
        }
    }

    fn ended(&self) {
        if self.left.fetch_sub(1, AcqRel) != 1 {
            return;
        }
        let Some(answer) = self.answer.lock().take() else { return };
        match self.errno.load(Acquire) {
            0 => answer(Ok(&[&self.buffer.lock()[self.from..self.from + self.len]])),
            errno => answer(Err(errno)),
        }
    }
}

/// Reads; see [`crate::KeptDisk::submit`].
pub(crate) fn submit(shared: &Arc<Shared>, requester: Requester, offset: u64, len: u32, answer: ReadAnswer) {
    let (start, end) = (offset / BLOCK_BYTES, (offset + u64::from(len)).div_ceil(BLOCK_BYTES));
    let mut state = shared.state.lock();
    if !state.overlay.touches(start, end) {
        drop(state);
        return shared.below.submit(requester, offset, len, answer);
    }
    let mut buffer = vec![0; (end - start) as usize * BLOCK];
    let (mut in_file, mut below) = (Vec::new(), Vec::new());
    let overlay = &state.overlay;
    overlay.lookup(start, end, &mut |piece| {
        let blocks = piece.end - piece.start;
        let into = &mut buffer[(piece.start - start) as usize * BLOCK..(piece.end - start) as usize * BLOCK];
        match piece.source {
            Source::Gathered(number) => into.copy_from_slice(overlay.gathered(number, blocks)),
            Source::OnItsWay(number) => into.copy_from_slice(overlay.on_its_way(number, blocks)),
            Source::File(_) => in_file.push(piece),
            Source::Zero | Source::Discarded => {}
            Source::Below => below.push(piece),
        }
    });
    let generation = state.generation;
    if !in_file.is_empty() {
        state.readers[generation] += 1;
    }
    drop(state);
    let had_files = !in_file.is_empty();
    in_file.retain(|piece| {
        let Source::File(offset) = piece.source else { return false };
        let into = &mut buffer[(piece.start - start) as usize * BLOCK..(piece.end - start) as usize * BLOCK];
        !shared.file.read_cached(offset, into)
    });
    if had_files && in_file.is_empty() {
        shared.has_read(generation);
    }
    let (from, len) = ((offset - start * BLOCK_BYTES) as usize, len as usize);
    if in_file.is_empty() && below.is_empty() {
        return answer(Ok(&[&buffer[from..from + len]]));
    }
    let left = AtomicUsize::new(below.len() + usize::from(!in_file.is_empty()));
    let (buffer, answer) = (Mutex::new(buffer), Mutex::new(Some(answer)));
    let read = Arc::new(Gathering { start, buffer, from, len, left, errno: AtomicI32::new(0), answer });
    if !in_file.is_empty() {
        let read = Arc::clone(&read);
        let _ = shared.file_reads.send(FileRead::Pieces { pieces: in_file, generation, read });
    }
    for piece in below {
        let read = Arc::clone(&read);
        let len = ((piece.end - piece.start) * BLOCK_BYTES) as u32;
        shared.below.submit(
            requester,
            piece.start * BLOCK_BYTES,
            len,
            Box::new(move |result| {
                read.put(piece.start, &result);
                read.ended();
            }),
        );
    }
}
