//! Building the cold index: windows in, leaves and root out.

use hs_units::ByteRange;
use zerocopy::IntoBytes;

use crate::cold::{ColdRegion, ColdRoot, LeafRef};
use crate::error::FormatError;
use crate::geometry::ColdGeometry;
use crate::leaf::WindowRef;
use crate::wire::WindowWire;

/// Collects what is stored of each window, in the order of the disk. A leaf of zero windows costs
/// nothing; any other costs 48 bytes of memory a window until [`Self::finish`].
#[derive(Debug)]
pub struct ColdTables {
    geometry: ColdGeometry,
    pushed: u64,
    /// Encoded leaves, one after another.
    leaves: Vec<u8>,
    /// For each leaf, whether it is stored.
    stored: Vec<bool>,
    /// The leaf being filled.
    open: Vec<u8>,
    /// Windows of it.
    open_windows: u32,
    /// Whether one of them is not zero.
    open_stored: bool,
}

/// The encoded index, to be written right after the cold chunks.
#[derive(Clone, Debug)]
pub struct EncodedColdTables {
    /// Leaves, then root.
    pub bytes: Vec<u8>,
    /// The region; its `range.offset` is zero, see [`Self::placed_at`].
    pub region: ColdRegion,
}

impl EncodedColdTables {
    /// The region when its chunks start at `offset` of the file.
    #[must_use]
    pub fn placed_at(&self, offset: u64) -> ColdRegion {
        ColdRegion { range: ByteRange::new(offset, self.region.range.len), ..self.region }
    }
}

impl ColdTables {
    /// Tables for a disk cut like `geometry`.
    ///
    /// # Errors
    /// When the geometry exceeds a limit of the format.
    pub fn new(geometry: ColdGeometry) -> Result<Self, FormatError> {
        geometry.check()?;
        Ok(Self {
            geometry,
            pushed: 0,
            leaves: Vec::new(),
            stored: Vec::new(),
            open: Vec::new(),
            open_windows: 0,
            open_stored: false,
        })
    }

    /// Takes what is stored of the next window.
    ///
    /// # Panics
    /// When every window has been given, or the chunk's raw length is not the window's.
    pub fn push(&mut self, window: WindowRef) {
        assert!(self.pushed < self.geometry.windows(), "more windows than {}", self.geometry.windows());
        if let WindowRef::Chunk(chunk) = &window {
            let raw_bytes = self.geometry.window_raw_bytes(self.pushed);
            assert_eq!(chunk.raw_bytes, raw_bytes, "raw bytes of window {}", self.pushed);
            self.open_stored = true;
        }
        self.open.extend_from_slice(WindowWire::of(&window).as_bytes());
        self.pushed += 1;
        self.open_windows += 1;
        if self.open_windows == self.geometry.windows_per_leaf || self.pushed == self.geometry.windows() {
            self.close_leaf();
        }
    }

    fn close_leaf(&mut self) {
        if self.open_stored {
            self.leaves.extend_from_slice(&self.open);
        }
        self.stored.push(self.open_stored);
        self.open.clear();
        self.open_windows = 0;
        self.open_stored = false;
    }

    /// Encodes the index, given what the cold chunks came to: `chunks_bytes` in all, and how many
    /// distinct chunks.
    ///
    /// # Errors
    /// When the result breaks a rule of the format, as when the counts are wrong.
    ///
    /// # Panics
    /// When windows are missing.
    pub fn finish(self, chunks_bytes: u64, distinct_chunks: u64) -> Result<EncodedColdTables, FormatError> {
        let geometry = self.geometry;
        assert_eq!(self.pushed, geometry.windows(), "windows given");
        let mut root = ColdRoot { leaves: Vec::with_capacity(self.stored.len()) };
        let mut at = 0;
        for (leaf, &stored) in self.stored.iter().enumerate() {
            if !stored {
                root.leaves.push(LeafRef::ZERO);
                continue;
            }
            let end = at + geometry.leaf_bytes(leaf as u64) as usize;
            root.leaves.push(LeafRef::of_encoded(chunks_bytes + at as u64, &self.leaves[at..end]));
            at = end;
        }
        let root_bytes = root.encode();
        let root_range = ByteRange::new(chunks_bytes + self.leaves.len() as u64, root_bytes.len() as u64);
        let region = ColdRegion {
            range: ByteRange::new(0, root_range.end()),
            window_blocks: geometry.window_blocks,
            windows_per_leaf: geometry.windows_per_leaf,
            leaves_offset: chunks_bytes,
            root: root_range,
            root_digest: ColdRoot::digest_of(&root_bytes),
            distinct_chunks,
        };
        region.check(&geometry)?;
        let mut bytes = self.leaves;
        bytes.extend_from_slice(&root_bytes);
        Ok(EncodedColdTables { bytes, region })
    }
}
