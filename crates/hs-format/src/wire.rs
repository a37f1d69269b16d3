//! The structures of the image file as they lie on disk, byte for byte; docs/FORMAT.md draws them.
//! Every field has alignment 1 and little-endian order, so that a slice of bytes can be viewed as them.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{LEAF_ENTRY_BYTES, MAX_HOT_SEGMENTS, SUPERBLOCK_BYTES, WINDOW_ENTRY_BYTES};

pub(crate) const SUPERBLOCK_MAGIC: [u8; 8] = *b"HSIMAGE\0";
pub(crate) const PACK_MAGIC: [u8; 8] = *b"HSPACK\0\0";
pub(crate) const HOT_INDEX_MAGIC: [u8; 8] = *b"HSHOTIDX";

/// The superblock.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SuperblockWire {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) superblock_bytes: U32,
    pub(crate) incompat: U64,
    pub(crate) compat: U64,
    pub(crate) disk_bytes: U64,
    pub(crate) image_bytes: U64,
    pub(crate) disk_digest: [u8; 32],
    pub(crate) cold: ColdWire,
    pub(crate) hot_count: U16,
    pub(crate) reserved_hot: [u8; 6],
    pub(crate) hot: [HotSlotWire; MAX_HOT_SEGMENTS],
    pub(crate) base: BaseWire,
    pub(crate) reserved: [u8; 2104],
    pub(crate) signature: SignatureWire,
    pub(crate) checksum: [u8; 32],
}

/// The disk of another image that composed chunks refer to.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BaseWire {
    pub(crate) disk_digest: [u8; 32],
    pub(crate) disk_bytes: U64,
}

/// Where the cold region lies and how it is cut.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ColdWire {
    pub(crate) offset: U64,
    pub(crate) bytes: U64,
    pub(crate) window_blocks: U32,
    pub(crate) windows_per_leaf: U32,
    pub(crate) leaves_offset: U64,
    pub(crate) root_offset: U64,
    pub(crate) root_bytes: U32,
    pub(crate) reserved: U32,
    pub(crate) distinct_chunks: U64,
    pub(crate) root_digest: [u8; 32],
}

/// One hot segment, as the superblock describes it.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HotSlotWire {
    pub(crate) index_offset: U64,
    pub(crate) index_bytes: U32,
    pub(crate) hints_bytes: U32,
    pub(crate) chunks_bytes: U64,
    pub(crate) blocks: U64,
    pub(crate) chunk_count: U32,
    pub(crate) own_ms: U32,
    pub(crate) index_digest: [u8; 32],
    pub(crate) hints_digest: [u8; 32],
}

/// The place of a signature.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SignatureWire {
    pub(crate) kind: U16,
    pub(crate) reserved: [u8; 6],
    pub(crate) key_id: [u8; 8],
    pub(crate) signature: [u8; 64],
}

/// One leaf, as the cold root describes it.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LeafWire {
    pub(crate) offset: U64,
    pub(crate) bytes: U32,
    pub(crate) reserved: U32,
    pub(crate) digest: [u8; 32],
}

/// One window, as a cold leaf describes it.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct WindowWire {
    pub(crate) offset: U64,
    pub(crate) stored_bytes: U32,
    pub(crate) codec: U16,
    pub(crate) flags: U16,
    pub(crate) digest: [u8; 32],
}

/// The head of a hot index.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HotHeaderWire {
    pub(crate) magic: [u8; 8],
    pub(crate) chunk_count: U32,
    pub(crate) extent_count: U32,
    pub(crate) blocks: U64,
    pub(crate) chunks_bytes: U64,
}

/// One chunk of a hot index.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HotChunkWire {
    pub(crate) offset: U64,
    pub(crate) stored_bytes: U32,
    pub(crate) raw_bytes: U32,
    pub(crate) codec: U16,
    pub(crate) flags: U16,
    pub(crate) first_extent: U32,
    pub(crate) extent_count: U32,
    pub(crate) needed_ms: U32,
    pub(crate) digest: [u8; 32],
}

/// One extent of a hot index.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtentWire {
    pub(crate) lba: U32,
    pub(crate) blocks: U32,
}

/// One hint.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HintWire {
    pub(crate) inode: U64,
    pub(crate) lba: U32,
    pub(crate) page: U32,
    pub(crate) blocks: U32,
}

pub(crate) const HOT_HEADER_BYTES: usize = size_of::<HotHeaderWire>();
pub(crate) const HOT_CHUNK_BYTES: usize = size_of::<HotChunkWire>();
pub(crate) const EXTENT_BYTES: usize = size_of::<ExtentWire>();
pub(crate) const HINT_BYTES: usize = size_of::<HintWire>();

// The tables of docs/FORMAT.md, checked by the compiler.
const _: () = {
    assert!(size_of::<SuperblockWire>() == SUPERBLOCK_BYTES);
    assert!(offset_of!(SuperblockWire, magic) == 0);
    assert!(offset_of!(SuperblockWire, version) == 8);
    assert!(offset_of!(SuperblockWire, superblock_bytes) == 12);
    assert!(offset_of!(SuperblockWire, incompat) == 16);
    assert!(offset_of!(SuperblockWire, compat) == 24);
    assert!(offset_of!(SuperblockWire, disk_bytes) == 32);
    assert!(offset_of!(SuperblockWire, image_bytes) == 40);
    assert!(offset_of!(SuperblockWire, disk_digest) == 48);
    assert!(offset_of!(SuperblockWire, cold) == 80);
    assert!(offset_of!(SuperblockWire, hot_count) == 168);
    assert!(offset_of!(SuperblockWire, reserved_hot) == 170);
    assert!(offset_of!(SuperblockWire, hot) == 176);
    assert!(offset_of!(SuperblockWire, base) == 1840);
    assert!(offset_of!(SuperblockWire, reserved) == 1880);
    assert!(offset_of!(SuperblockWire, signature) == 3984);
    assert!(offset_of!(SuperblockWire, checksum) == 4064);

    assert!(size_of::<ColdWire>() == 88);
    assert!(offset_of!(ColdWire, offset) == 0);
    assert!(offset_of!(ColdWire, bytes) == 8);
    assert!(offset_of!(ColdWire, window_blocks) == 16);
    assert!(offset_of!(ColdWire, windows_per_leaf) == 20);
    assert!(offset_of!(ColdWire, leaves_offset) == 24);
    assert!(offset_of!(ColdWire, root_offset) == 32);
    assert!(offset_of!(ColdWire, root_bytes) == 40);
    assert!(offset_of!(ColdWire, reserved) == 44);
    assert!(offset_of!(ColdWire, distinct_chunks) == 48);
    assert!(offset_of!(ColdWire, root_digest) == 56);

    assert!(size_of::<HotSlotWire>() == 104);
    assert!(offset_of!(HotSlotWire, index_offset) == 0);
    assert!(offset_of!(HotSlotWire, index_bytes) == 8);
    assert!(offset_of!(HotSlotWire, hints_bytes) == 12);
    assert!(offset_of!(HotSlotWire, chunks_bytes) == 16);
    assert!(offset_of!(HotSlotWire, blocks) == 24);
    assert!(offset_of!(HotSlotWire, chunk_count) == 32);
    assert!(offset_of!(HotSlotWire, own_ms) == 36);
    assert!(offset_of!(HotSlotWire, index_digest) == 40);
    assert!(offset_of!(HotSlotWire, hints_digest) == 72);

    assert!(size_of::<SignatureWire>() == 80);
    assert!(offset_of!(SignatureWire, kind) == 0);
    assert!(offset_of!(SignatureWire, reserved) == 2);
    assert!(offset_of!(SignatureWire, key_id) == 8);
    assert!(offset_of!(SignatureWire, signature) == 16);

    assert!(size_of::<LeafWire>() == LEAF_ENTRY_BYTES);
    assert!(offset_of!(LeafWire, offset) == 0);
    assert!(offset_of!(LeafWire, bytes) == 8);
    assert!(offset_of!(LeafWire, reserved) == 12);
    assert!(offset_of!(LeafWire, digest) == 16);

    assert!(size_of::<WindowWire>() == WINDOW_ENTRY_BYTES);
    assert!(offset_of!(WindowWire, offset) == 0);
    assert!(offset_of!(WindowWire, stored_bytes) == 8);
    assert!(offset_of!(WindowWire, codec) == 12);
    assert!(offset_of!(WindowWire, flags) == 14);
    assert!(offset_of!(WindowWire, digest) == 16);

    assert!(size_of::<HotHeaderWire>() == 32);
    assert!(offset_of!(HotHeaderWire, magic) == 0);
    assert!(offset_of!(HotHeaderWire, chunk_count) == 8);
    assert!(offset_of!(HotHeaderWire, extent_count) == 12);
    assert!(offset_of!(HotHeaderWire, blocks) == 16);
    assert!(offset_of!(HotHeaderWire, chunks_bytes) == 24);

    assert!(size_of::<HotChunkWire>() == 64);
    assert!(offset_of!(HotChunkWire, offset) == 0);
    assert!(offset_of!(HotChunkWire, stored_bytes) == 8);
    assert!(offset_of!(HotChunkWire, raw_bytes) == 12);
    assert!(offset_of!(HotChunkWire, codec) == 16);
    assert!(offset_of!(HotChunkWire, flags) == 18);
    assert!(offset_of!(HotChunkWire, first_extent) == 20);
    assert!(offset_of!(HotChunkWire, extent_count) == 24);
    assert!(offset_of!(HotChunkWire, needed_ms) == 28);
    assert!(offset_of!(HotChunkWire, digest) == 32);

    assert!(size_of::<ExtentWire>() == 8);
    assert!(offset_of!(ExtentWire, lba) == 0);
    assert!(offset_of!(ExtentWire, blocks) == 4);

    assert!(size_of::<HintWire>() == 20);
    assert!(offset_of!(HintWire, inode) == 0);
    assert!(offset_of!(HintWire, lba) == 8);
    assert!(offset_of!(HintWire, page) == 12);
    assert!(offset_of!(HintWire, blocks) == 16);
};
