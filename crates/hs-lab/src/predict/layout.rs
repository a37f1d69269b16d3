//! Where the bytes of a disk lie on its medium.

use hs_units::{BlockRange, ByteRange};

/// A hot chunk of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotChunk {
    /// Where it lies in the file.
    pub at: ByteRange,
    /// Bytes of the disk that it holds.
    pub raw_bytes: u32,
    /// Which blocks.
    pub extents: Vec<BlockRange>,
}

/// What a prediction has to know of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageLayout {
    /// Bytes of a cold window.
    pub window_bytes: u64,
    /// Where each window lies in the file; `None` where the disk is zero.
    pub windows: Vec<Option<ByteRange>>,
    /// Where the index of the windows lies: read when it is first needed, with one request where it is small,
    /// and page by page where it is not.
    pub index: ByteRange,
    /// Tables of the hot region: they end where its chunks begin.
    pub tables: ByteRange,
    /// The hot chunks, in order.
    pub hot: Vec<HotChunk>,
}

/// What lies on the medium.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disk {
    /// The disk as it is.
    Raw,
    /// An image.
    Image(ImageLayout),
}
