//! Why chunks could not be had, and what was said of it.

use std::collections::{HashMap, HashSet};

use hs_engine::disk::{ChunkKey, Why};
use hs_image::{Image, ImageError};
use hs_units::BlockRange;

/// Chunks whose errors are remembered, and logged, at most; a longer list has no use.
const MOST: usize = 4096;

/// The errors of chunks.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    chunks: HashMap<ChunkKey, ImageError>,
    /// Chunks of which the log has a line: a program that needs a bad place asks for it again and again.
    logged: HashSet<ChunkKey>,
}

impl Errors {
    /// A chunk could not be had.
    pub(crate) fn note(&mut self, key: ChunkKey, error: &ImageError) {
        if self.chunks.len() < MOST || self.chunks.contains_key(&key) {
            self.chunks.insert(key, error.clone());
        }
    }

    /// Why a read fails.
    pub(crate) fn of(&self, why: Why, image: &Image) -> ImageError {
        let panicked = || ImageError::Panicked { path: image.name().to_owned() };
        match why {
            Why::Store(key) | Why::Damaged(key) | Why::Unreadable(key) | Why::WorkerLost(key) => {
                self.chunks.get(&key).cloned().unwrap_or_else(panicked)
            }
            Why::OutsideDisk | Why::TimedOut | Why::Shutdown => ImageError::Closed,
        }
    }

    /// The line that says that a chunk cannot be had, and how important it is.
    pub(crate) fn line(&mut self, key: ChunkKey, error: &ImageError, image: &Image) -> (log::Level, String) {
        let is_news = self.logged.len() < MOST && self.logged.insert(key);
        let level = match key {
            _ if !is_news || error.is_closed() => log::Level::Debug,
            // No program gets an error.
            ChunkKey::Hot(_) => log::Level::Warn,
            ChunkKey::Cold(_) | ChunkKey::Page(_) => log::Level::Error,
        };
        let line = match key {
            ChunkKey::Hot(chunk) => format!("{error}; the blocks of hot chunk {chunk} are read elsewhere"),
            ChunkKey::Cold(window) => {
                let bytes = image.window_bytes();
                let blocks = BlockRange::covering(window * bytes, bytes);
                format!("{error}; blocks {blocks} of the disk cannot be read, but for hot ones")
            }
            ChunkKey::Page(_) => format!("{error}; what this page of the index names cannot be read"),
        };
        (level, line)
    }
}
