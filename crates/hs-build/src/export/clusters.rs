//! The clusters of a disk, decoded and encoded by all cores, handed over in order.

use std::num::NonZeroUsize;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use hs_format::{Codec, Compressor, Decompressor};
use hs_image::Image;
use hs_units::to_usize;

use super::CLUSTER_BYTES;
use crate::BuildError;
use crate::build::is_zero;
use crate::cloop::Deflater;

/// Bytes that a core takes at a time, unless a window is larger.
const UNIT_BYTES: u64 = 1 << 20;

/// zstd's level for clusters: above it, so small inputs gain 1% and take twice the time.
const ZSTD_LEVEL: i32 = 12;

/// How clusters that are not zero come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Encoding {
    /// As they are; the last one may be shorter.
    Plain,
    /// Whole, the last one too, filled up with zeros.
    Whole,
    /// Whole, as zlib streams.
    Zlib,
    /// Whole, as zstd frames where that is smaller.
    Zstd,
}

/// A cluster.
#[derive(Debug)]
pub(super) enum Piece {
    /// All its bytes are zero.
    Zero,
    /// Its bytes.
    Plain(Vec<u8>),
    /// Its bytes, compressed as was asked for.
    Packed(Vec<u8>),
}

/// Hands the clusters of the disk to `sink`, from first to last. Each of the threads is at most three units
/// ahead of it.
pub(super) fn for_each(
    image: &Image,
    encoding: Encoding,
    threads: NonZeroUsize,
    sink: &mut dyn FnMut(Piece) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let unit_bytes = image.window_bytes().max(UNIT_BYTES).next_multiple_of(CLUSTER_BYTES as u64);
    let units = image.disk_bytes().div_ceil(unit_bytes);
    let threads = threads.get();
    thread::scope(|scope| {
        // Each thread takes every so-manieth unit, so asking them in turn gives the units in order.
        let workers: Vec<Receiver<Result<Vec<Piece>, BuildError>>> = (0..threads)
            .map(|first| {
                let (out, pieces) = bounded(2);
                scope.spawn(move || {
                    let mut worker = Worker::new(image, encoding);
                    for unit in (first as u64..units).step_by(threads) {
                        let result = worker.unit(unit * unit_bytes, unit_bytes);
                        let failed = result.is_err();
                        if out.send(result).is_err() || failed {
                            break;
                        }
                    }
                });
                pieces
            })
            .collect();
        for unit in 0..units {
            // A thread that ends without an answer has panicked, which the scope passes on.
            let Ok(pieces) = workers[to_usize(unit % threads as u64)].recv() else { break };
            pieces?.into_iter().try_for_each(&mut *sink)?;
        }
        Ok(())
    })
}

struct Worker<'a> {
    image: &'a Image,
    tools: Decompressor,
    encoder: Encoder,
    /// The window that was decoded last, and its bytes unless they are zero.
    last: Option<(u64, Option<Vec<u8>>)>,
}

enum Encoder {
    Plain,
    Whole,
    Zlib(Deflater),
    Zstd(Compressor),
}

impl<'a> Worker<'a> {
    fn new(image: &'a Image, encoding: Encoding) -> Self {
        let encoder = match encoding {
            Encoding::Plain => Encoder::Plain,
            Encoding::Whole => Encoder::Whole,
            Encoding::Zlib => Encoder::Zlib(Deflater::new()),
            Encoding::Zstd => Encoder::Zstd(Compressor::new(Codec::Zstd, ZSTD_LEVEL)),
        };
        Self { image, tools: Decompressor::new(), encoder, last: None }
    }

    fn unit(&mut self, offset: u64, unit_bytes: u64) -> Result<Vec<Piece>, BuildError> {
        let end = self.image.disk_bytes().min(offset + unit_bytes);
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let len = (end - at).min(CLUSTER_BYTES as u64);
            let raw = self.read(at, to_usize(len))?;
            pieces.push(self.encoder.encode(raw));
            at += len;
        }
        Ok(pieces)
    }

    /// Bytes of the disk; empty when all of them are zero because nothing is stored for them.
    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, BuildError> {
        let window_bytes = self.image.window_bytes();
        let mut raw = Vec::new();
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let window = at / window_bytes;
            let within = to_usize(at % window_bytes);
            let take = (to_usize(window_bytes) - within).min(len - done);
            if let Some(bytes) = self.window(window)? {
                raw.resize(len, 0);
                raw[done..done + take].copy_from_slice(&bytes[within..within + take]);
            }
            done += take;
        }
        Ok(raw)
    }

    fn window(&mut self, window: u64) -> Result<Option<&[u8]>, BuildError> {
        if self.last.as_ref().is_none_or(|(number, _)| *number != window) {
            self.last = Some((window, self.image.load_window(window, &mut self.tools)?));
        }
        Ok(self.last.as_ref().and_then(|(_, bytes)| bytes.as_deref()))
    }
}

impl Encoder {
    fn encode(&mut self, mut raw: Vec<u8>) -> Piece {
        if is_zero(&raw) {
            return Piece::Zero;
        }
        if !matches!(self, Self::Plain) {
            raw.resize(CLUSTER_BYTES, 0);
        }
        match self {
            Self::Plain | Self::Whole => Piece::Plain(raw),
            Self::Zlib(deflater) => Piece::Packed(deflater.deflate(&raw)),
            Self::Zstd(compressor) => {
                let mut stored = Vec::new();
                match compressor.compress(&raw, &mut stored) {
                    Codec::Store => Piece::Plain(raw),
                    _ => Piece::Packed(stored),
                }
            }
        }
    }
}
