//! Images whose author meant harm: every digest is right, up to the superblock, and the content is not.

#[path = "../../../hs-build/tests/image/sample.rs"]
mod sample;
#[path = "../served/mod.rs"]
mod served;

mod ext4;
mod forge;
mod heap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forge::Forge;
use hs_format::{Codec, FormatError, WindowRef};
use hs_image::{Image, ImageError, verify};
use hs_store::MemoryStore;
use hs_units::{BlockRange, ByteRange, Lba};
use sample::BLOCK;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Memory that opening, reading and verifying an image of a few KiB may take at any moment: what is
/// constant (the caches' tables, the codecs' contexts of a few threads) and a few of the largest chunks.
const MOST_HEAP_BYTES: usize = 32 << 20;

/// How far a forged image gets.
#[derive(Debug)]
struct Reception {
    opened: Result<(), ImageError>,
    /// One for each window.
    reads: Vec<Result<Vec<u8>, ImageError>>,
    verified: Result<(), ImageError>,
}

impl Reception {
    fn failed_reads(&self) -> usize {
        self.reads.iter().filter(|read| read.is_err()).count()
    }

    fn first_error(&self) -> &ImageError {
        let reads = self.reads.iter().filter_map(|read| read.as_ref().err());
        let mut errors =
            self.opened.as_ref().err().into_iter().chain(reads).chain(self.verified.as_ref().err());
        errors.next().expect("an error somewhere")
    }

    fn fault(&self) -> &FormatError {
        match self.first_error() {
            ImageError::Format { fault, .. } | ImageError::Chunk { fault, .. } => fault,
            other => panic!("{other:?}"),
        }
    }
}

/// One at a time: all tests share the heap.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens an image in both ways, reads all of its disk with both, and verifies it, with an eye on memory.
fn receive(bytes: Vec<u8>) -> Reception {
    let _turn = turn();
    let store = Arc::new(MemoryStore::new(bytes).named("forged.hsi"));
    let before = heap::reset_peak();
    let streamed = read_streaming(&store);
    let reception = read_plainly(&store);
    let took = heap::peak().saturating_sub(before);
    assert!(took < MOST_HEAP_BYTES, "{took} bytes of memory");
    assert_eq!(streamed.is_err(), reception.opened.is_err(), "the ways of opening agree");
    if let Err(error) = &reception.opened {
        assert!(error.to_string().contains("forged.hsi"), "{error}");
    }
    reception
}

/// Windows that are read: all of a small disk, some of an absurd one.
fn windows(image: &Image) -> impl Iterator<Item = ByteRange> + use<> {
    let (disk_bytes, window_bytes) = (image.disk_bytes(), image.window_bytes());
    let count = disk_bytes.div_ceil(window_bytes);
    let step = count.div_ceil(64).max(1);
    let range = move |window: u64| {
        let at = window * window_bytes;
        ByteRange::new(at, window_bytes.min(disk_bytes - at).min(64 << 10))
    };
    (0..count).step_by(step as usize).chain([count - 1]).map(range)
}

fn read_plainly(store: &Arc<MemoryStore>) -> Reception {
    let image = match Image::open(store.clone()) {
        Ok(image) => Arc::new(image),
        Err(error) => {
            return Reception { opened: Err(error.clone()), reads: Vec::new(), verified: Err(error) };
        }
    };
    let disk = served::disk(&image, 2, 1 << 20);
    let read = |range: ByteRange| {
        let mut found = vec![0; range.len as usize];
        disk.read_at(range.offset, &mut found).map(|()| found)
    };
    let reads = windows(&image).map(read).collect();
    let verified =
        if image.disk_bytes() <= 64 << 20 { verify(&image, None, &|_| {}).map(drop) } else { Ok(()) };
    Reception { opened: Ok(()), reads, verified }
}

fn read_streaming(store: &Arc<MemoryStore>) -> Result<(), ImageError> {
    let disk = served::open_streaming(store.clone())?;
    served::begin(&disk, None);
    disk.wait_prefetch();
    for range in windows(disk.image()) {
        let _ = disk.read_at(range.offset, &mut vec![0; range.len as usize]);
    }
    Ok(())
}

/// Refused when it is opened.
fn refused(forge: &Forge) -> FormatError {
    let reception = receive(forge.seal());
    assert!(reception.opened.is_err(), "opened: {reception:?}");
    reception.fault().clone()
}

#[test]
fn an_honest_image_passes() {
    let forge = Forge::new();
    let reception = receive(forge.seal());
    reception.verified.expect("verified");
    let found: Vec<u8> = reception.reads.into_iter().flat_map(|read| read.expect("read")).collect();
    // The last window is read twice.
    assert!(found[..forge.disk.len()] == forge.disk);
}

#[test]
// R21
fn hot_extents_that_overlap_or_leave_the_disk_are_refused() {
    for (extent, run) in [
        (0, BlockRange::new(Lba(5), 1)),
        (0, BlockRange::new(Lba(u64::from(u32::MAX)), 1)),
        (0, BlockRange::new(Lba(24), 1)),
        (0, BlockRange::new(Lba(2), 0)),
        (1, BlockRange::new(Lba(23), 2)),
        (1, BlockRange::new(Lba(4), u64::from(u32::MAX))),
    ] {
        let mut forge = Forge::new();
        forge.set_extent(extent, run);
        let fault = refused(&forge);
        let expected = matches!(
            fault,
            FormatError::ExtentsOverlap { .. }
                | FormatError::OutsideDisk { .. }
                | FormatError::Inconsistent { .. }
        );
        assert!(expected, "{run}: {fault}");
    }
}

#[test]
// R17, R18, R19, R20, R23, R24
fn hot_tables_with_absurd_numbers_are_refused() {
    // Offsets in the index's header and in the first chunk's entry, docs/FORMAT.md.
    let header = [8, 12, 16, 24];
    // By when a chunk is needed, at 60, may be any number.
    let chunk = [32, 40, 44, 48, 50, 52, 56];
    for at in header.into_iter().chain(chunk) {
        for value in [u32::MAX, 1 << 31, 0, 7] {
            let mut forge = Forge::new();
            if forge.hot_index[at..at + 4] == value.to_le_bytes() {
                continue;
            }
            // The codec and the flags are 16 bits each.
            let bytes = if matches!(at, 48 | 50) { 2 } else { 4 };
            forge.hot_index[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
            if forge.hot_index == Forge::new().hot_index {
                continue;
            }
            refused(&forge);
        }
    }
}

#[test]
// R3, R7, R8, R9, R10, R11
fn superblocks_with_absurd_numbers_are_refused() {
    let changes: [fn(&mut hs_format::Superblock); 14] = [
        |s| s.disk_bytes = u64::MAX - 4095,
        |s| s.disk_bytes = (4096 << 32) + 4096,
        |s| s.disk_bytes = 0,
        |s| s.disk_bytes += 1,
        |s| s.image_bytes += 4096,
        |s| s.cold.range.offset = u64::MAX - 10,
        |s| s.cold.range.len = u64::MAX,
        |s| s.cold.window_blocks = u32::MAX,
        |s| s.cold.window_blocks = 0,
        |s| s.cold.windows_per_leaf = 1 << 20,
        |s| s.cold.root = ByteRange::new(0, 48),
        |s| s.cold.distinct_chunks = 1 << 40,
        |s| s.hot[0].index = ByteRange::new(0, s.hot[0].index.len),
        |s| s.hot[0].chunks.len = 1 << 60,
    ];
    for change in changes {
        let mut forge = Forge::new();
        forge.change_superblock = Some(change);
        refused(&forge);
    }
    let mut forge = Forge::new();
    forge.change_superblock = Some(|s| s.features.incompat = 1 << 40);
    assert!(matches!(refused(&forge), FormatError::UnknownFeatures { known: 15, found } if found == 1 << 40));
    let mut forge = Forge::new();
    forge.change_superblock = Some(|s| s.features.compat = u64::MAX << 12);
    receive(forge.seal()).verified.expect("unknown compatible features are ignored");
    // Segments that alias each other, or the cold region.
    let mut forge = Forge::new();
    forge.change_superblock = Some(|s| s.hot.push(s.hot[0]));
    assert!(matches!(refused(&forge), FormatError::Overlap { .. }));
    let mut forge = Forge::new();
    forge.change_superblock = Some(|s| s.hot[0].chunks.offset = s.cold.range.offset);
    // The chunks follow the hints, so this is not even written.
    receive(forge.seal()).verified.expect("the field does not exist");
}

#[test]
// R15
fn cold_chunks_outside_their_space_are_refused() {
    let space = Forge::new().cold_chunks.len() as u64;
    for range in [
        ByteRange::new(space, 100),
        ByteRange::new(space - 10, 11),
        ByteRange::new(u64::MAX - 50, 100),
        ByteRange::new(0, u64::from(u32::MAX)),
        // Behind the region, as in: the superblock's bytes.
        ByteRange::new(u64::MAX - 4095, 4096),
    ] {
        let mut forge = Forge::new();
        forge.change_window(0, |chunk| chunk.range = range);
        let reception = receive(forge.seal());
        assert!(reception.opened.is_ok());
        // All windows of that leaf are refused with it.
        assert!(reception.failed_reads() >= 3, "{range}: {reception:?}");
        assert!(reception.verified.is_err());
    }
}

#[test]
// R16
fn cold_chunks_that_overlap_are_refused() {
    // In one leaf the reader sees it, between leaves the verifier.
    for (window, seen_by_reader) in [(1, true), (5, false)] {
        let mut forge = Forge::new();
        let WindowRef::Chunk(first) = forge.windows[0] else { panic!("stored") };
        let inside = ByteRange::new(first.range.offset + 1, first.range.len - 1);
        forge.change_window(window, |chunk| {
            chunk.range = inside;
            chunk.codec = Codec::Zstd;
        });
        forge.fix_digest(window);
        let reception = receive(forge.seal());
        assert!(reception.opened.is_ok());
        assert!(reception.failed_reads() > 0, "what does not decode is not served");
        let overlap = matches!(reception.fault(), FormatError::Overlap { .. });
        assert_eq!(overlap, seen_by_reader, "{:?}", reception.first_error());
        let error = reception.verified.expect_err("overlap");
        assert!(
            matches!(&error, ImageError::Format { fault, .. } if matches!(**fault, FormatError::Overlap { .. })),
            "{error}"
        );
    }
}

#[test]
// R12, R13
fn leaves_in_circles_are_refused() {
    // Each entry of the root has 48 bytes: offset, bytes, reserved, digest.
    let changes: [fn(&mut Vec<u8>); 5] = [
        // The second leaf is the first.
        |root| root.copy_within(0..48, 48),
        // The first leaf is the root.
        |root| {
            let root_at = u64::from_le_bytes(root[48..56].try_into().expect("eight bytes")) + 144;
            root[0..8].copy_from_slice(&root_at.to_le_bytes());
        },
        // A leaf of nothing, and one of everything.
        |root| root[8..12].copy_from_slice(&0_u32.to_le_bytes()),
        |root| root[8..12].copy_from_slice(&u32::MAX.to_le_bytes()),
        // A leaf among the chunks.
        |root| root[0..8].copy_from_slice(&0_u64.to_le_bytes()),
    ];
    for change in changes {
        let mut forge = Forge::new();
        forge.change_root = Some(change);
        let reception = receive(forge.seal());
        assert!(reception.opened.is_ok(), "the root is read when it is needed");
        assert!(reception.reads.iter().all(Result::is_err) && reception.verified.is_err(), "{reception:?}");
    }
}

#[test]
// R26
fn bombs_stay_in_their_window() {
    let zeros = vec![0_u8; 4 << 20];
    for raw_blocks in [1, 3, 1024] {
        let mut forge = Forge::new();
        forge.replace_chunk(0, &zeros[..raw_blocks * BLOCK]);
        let reception = receive(forge.seal());
        assert!(reception.opened.is_ok());
        let error = reception.reads[0].as_ref().expect_err("another size than its window's");
        assert!(matches!(error, ImageError::Chunk { .. }), "{error}");
        assert!(reception.verified.is_err());
        // The other windows are served.
        assert_eq!(reception.failed_reads(), 1, "{reception:?}");
    }
    // In a hot chunk: its readers get the cold copies.
    for raw_blocks in [1, 3, 1024] {
        let mut forge = Forge::new();
        forge.replace_hot_chunk(&zeros[..raw_blocks * BLOCK]);
        let reception = receive(forge.seal());
        assert_eq!(reception.failed_reads(), 0);
        assert!(reception.reads[0].as_ref().is_ok_and(|found| *found == forge.disk[..found.len()]));
        assert!(matches!(reception.verified, Err(ImageError::Chunk { .. })), "{:?}", reception.verified);
    }
}

#[test]
fn a_hot_copy_that_contradicts_its_cold_block_is_found_by_verify() {
    let mut forge = Forge::new();
    forge.replace_hot_chunk(&vec![0x5a; 2 * BLOCK]);
    let reception = receive(forge.seal());
    assert_eq!(reception.failed_reads(), 0, "either copy is what the author published");
    let error = reception.verified.expect_err("they differ");
    assert!(matches!(error, ImageError::Differs { blocks, .. } if blocks.start == Lba(2)), "{error}");
}

#[test]
fn another_content_than_the_disk_digest_says_is_found_by_verify() {
    let mut forge = Forge::new();
    forge.change_superblock = Some(|s| s.disk_digest.0[0] ^= 1);
    let reception = receive(forge.seal());
    assert_eq!(reception.failed_reads(), 0);
    assert!(matches!(reception.verified, Err(ImageError::WrongDisk { .. })));
    // A zero entry where data should be, with the tables consistent but for the content and the counts.
    let mut forge = Forge::new();
    forge.windows[0] = WindowRef::Zero;
    assert!(receive(forge.seal()).verified.is_err());
}

#[test]
// R37
fn bytes_behind_the_end_of_the_disk_are_found_by_verify() {
    let mut forge = Forge::new();
    forge.change_superblock = Some(|s| s.features = s.features.of_disk(s.disk_bytes - 512));
    let error = receive(forge.seal()).verified.expect_err("the last sector is not zero");
    assert!(error.to_string().contains("its last block is not zero"), "{error}");
}

#[test]
// R4, R16
fn chunks_that_no_table_names_are_found_by_verify() {
    let mut forge = Forge::new();
    forge.cold_chunks.extend([7; 100]);
    let error = receive(forge.seal()).verified.expect_err("hidden bytes");
    assert!(
        matches!(&error, ImageError::Format { fault, .. } if matches!(**fault, FormatError::Gap { .. })),
        "{error}"
    );
    let mut forge = Forge::new();
    forge.padding = vec![0, 0, 3];
    let error = receive(forge.seal()).verified.expect_err("hidden bytes");
    assert!(
        matches!(&error, ImageError::Format { fault, .. } if matches!(**fault, FormatError::ReservedNotZero { .. })),
        "{error}"
    );
    let mut forge = Forge::new();
    forge.padding = vec![0; 4095];
    receive(forge.seal()).verified.expect("zeros are padding");
}

#[test]
// R22
fn absurd_hints_are_refused() {
    // A hint has 20 bytes: inode, lba, page, blocks.
    for (lba, page, blocks) in
        [(23, 0, 2), (24, 0, 1), (u32::MAX, 0, 1), (0, u32::MAX, 2), (0, 0, u32::MAX), (0, 0, 0)]
    {
        let mut forge = Forge::new();
        forge.hints =
            [&u64::MAX.to_le_bytes()[..], &lba.to_le_bytes(), &page.to_le_bytes(), &blocks.to_le_bytes()]
                .concat();
        refused(&forge);
    }
    // An inode that does not exist cannot be told from one that does.
    let mut forge = Forge::new();
    forge.hints = [
        &u64::MAX.to_le_bytes()[..],
        &2_u32.to_le_bytes(),
        &(u32::MAX - 1).to_le_bytes(),
        &1_u32.to_le_bytes(),
    ]
    .concat();
    receive(forge.seal()).verified.expect("a hint that is only wrong");
    let mut forge = Forge::new();
    forge.hints.pop();
    refused(&forge);
}

/// 16 TiB of zeros in a few KiB: reading it must cost what is read, not what is claimed.
#[test]
fn an_enormous_disk_of_zeros_costs_nothing() {
    let bytes = forge::zeros(4096 << 32, 1024, 16_384);
    let reception = receive(bytes);
    assert!(reception.opened.is_ok());
    assert!(reception.reads.len() > 60);
    for read in reception.reads {
        assert!(read.expect("zeros").iter().all(|&byte| byte == 0));
    }
}

/// A reader decodes the hot tables of all segments: what it takes for them is what docs/FORMAT.md promises.
#[test]
// R36
fn many_extents_cost_a_few_times_their_tables() {
    let _turn = turn();
    let store = Arc::new(MemoryStore::new(forge::many_extents(4, 1 << 14)).named("forged.hsi"));
    let mut tables_bytes = 0;
    let ways: [&dyn Fn() -> Result<Image, ImageError>; 2] = [&|| Image::open(store.clone()), &|| {
        Ok(Image::open_streaming(store.clone(), 1 << 20, &hs_image::OpenOptions::default())?.0)
    }];
    for open in ways {
        let before = heap::reset_peak();
        let image = open().expect("an honest image");
        let took = heap::peak().saturating_sub(before) as u64;
        tables_bytes = image.superblock().hot.iter().map(|hot| hot.index.len + hot.hints.len).sum();
        assert!(took < 5 * tables_bytes, "{took} bytes for {tables_bytes}");
    }
    assert!(tables_bytes > 1 << 20);
    // One segment, which comes with the superblock.
    let store = Arc::new(MemoryStore::new(forge::many_extents(1, 1 << 16)).named("forged.hsi"));
    let before = heap::reset_peak();
    let opened = Image::open_streaming(store, u64::MAX, &hs_image::OpenOptions::default()).expect("opened");
    let took = heap::peak().saturating_sub(before) as u64;
    let hot = opened.0.superblock().hot[0];
    assert!(took < 5 * (hot.index.len + hot.hints.len), "{took} bytes");
}
