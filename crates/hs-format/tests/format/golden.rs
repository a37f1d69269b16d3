//! The golden files of version 1, which every later version reads (docs/FORMAT.md, "What version 1
//! promises"). They are never made anew: `vectors/make.py` says where they come from. What the program makes
//! of them is in `crates/headstart/tests/cli/golden.rs`.

use hs_format::limits::{PACK_HEADER_BYTES, SUPERBLOCK_BYTES};
use hs_format::*;
use hs_units::{ByteRange, Digest};

use crate::reader::read_image;
use crate::sample::{build, small_recipe};

/// A golden file, its name as an image, and the content of its disk.
struct Golden {
    file: &'static str,
    bytes: &'static [u8],
    image: &'static str,
    disk: &'static str,
}

macro_rules! golden {
    ($file:literal, $image:literal, $disk:expr) => {
        Golden {
            file: $file,
            bytes: include_bytes!(concat!("../vectors/", $file)),
            image: concat!("hs1-", $image),
            disk: $disk,
        }
    };
}

/// The disk of most of them: a root of four files.
const ROOT: &str = "3cf46a053dc271b0762ee1e5764c82761c48399cc57e3512fe9995d1eaecf615";

/// Whole images: of each codec, without and with hot segments and hints, and one whose disk does not end with
/// a block. Of `small.hsi` the disk is that of [`small_recipe`]. The last one is laid out like an image of an
/// earlier state of its root, and stores a hot chunk of that with stale blocks.
const IMAGES: [Golden; 7] = [
    golden!(
        "small.hsi",
        "894d5c6e82062d7d98258ae2c599c70a3d4c9a6730e7123ae9685600cb720cf3",
        "165417a48f6575581c643e2db1f78d48a948dfaa17f3a604088205dc76c5f065"
    ),
    golden!(
        "store.hsi",
        "26fe1005855f884b6b32ba598ea46f7db4820bc671c7c29a71316ef95af5678c",
        "a5c3fdc4e6dfcfe63f72a9843e664018f87cc931361b771ad2c0435f60c2c28d"
    ),
    golden!("zstd.hsi", "9e562a80e0ab49f9a5c46f1d63ae495ce93e362f4a30288b7795f0e447e0618c", ROOT),
    golden!("lz4.hsi", "3e64d0e7c9bde3a94aa20519e3cb0e25f692047f25919fa97fa9f38199c5ff71", ROOT),
    golden!("zlib.hsi", "e92b974f868a5f0071e063d780860c0346578867f0db8550d43008b4992b6af1", ROOT),
    golden!("hot.hsi", "257ab097c5b98b9be96283396bb4b2835de7195721c8f1a6d68fb2fdc843e9af", ROOT),
    golden!(
        "like.hsi",
        "1110e0ae0238497f441b2dda518a9d4e8c0ce69498c8529e472c7f8f2e6db714",
        "b4f3d6b6b1ffd55aef18262994427dd7052c65518a520e32d65512a26c2ca2a3"
    ),
];

/// Changes of that root, with `hot.hsi` as the base.
const DELTA: Golden = golden!(
    "delta.hsi",
    "20463809a48fc57f3be23b86f6553bd7a1327d4ba924f2b0b0a5456259c71ed4",
    "78f68cfffc20cd299393f3820cb29b60dbd6d7778960d98d84a980cf3bc03fb3"
);

/// One block of that root changed: it borrows six of its seven hot chunks from `hot.hsi`.
const BORROWED: Golden = golden!(
    "borrowed.hsi",
    "d3069d9301e5e2f2de42243f222fb7714530fad765d4ec4d1172dca82c23757b",
    "84183ccef2c9b711fb100fa0d2fc1fe718906e8cd37bdc332c22546408f58d44"
);

/// Another block of that root changed: it borrows all seven hot chunks, of which one has a stale block.
const STALE: Golden = golden!(
    "stale.hsi",
    "2514f5e2e6ad171fb5f3f9b4dbf9cc92d42e84f63049e3574b0e2d932515656d",
    "71a6cd2dead50bb0e5b0f1d5ae97b7e1a7ceebe4f50616531181ac909149acec"
);

/// The superblock of the disk of `small.hsi`, stored: it does not depend on a version of zstd.
const SUPERBLOCK: &[u8] = include_bytes!("../vectors/small-store.superblock");

fn digest(text: &str) -> Digest {
    text.parse().expect("a digest")
}

#[test]
fn a_stored_image_is_built_byte_for_byte() {
    let sample = build(&small_recipe(Codec::Store));
    let superblock = sample.superblock.encode();
    let differs = superblock.iter().zip(SUPERBLOCK).position(|(a, b)| a != b);
    assert_eq!(differs, None, "first byte that differs");
    assert_eq!(superblock.len(), SUPERBLOCK.len());
    let plain = Digest(*blake3::hash(&sample.image).as_bytes());
    assert_eq!(plain, digest("fb628ff2f8e711284f475f6506f12251fd883b1094978f5440e7549255d2dd86"));
    let name = sample.superblock.image_digest();
    assert_eq!(name.to_string(), "hs1-7aeb2bcdfbae547ef4d47c04ee138a1f6ab38293402b80d3f19b9dea62cb88d8");
}

#[test]
fn each_is_read_and_holds_its_disk() {
    for golden in &IMAGES {
        // The reader compares hot blocks with cold ones, and the disk with its digest.
        let disk = read_image(golden.bytes).unwrap_or_else(|error| panic!("{}: {error}", golden.file));
        let superblock = superblock(golden.bytes);
        assert_eq!(superblock.disk_digest, digest(golden.disk), "{}", golden.file);
        assert_eq!(disk.len() as u64, superblock.disk_bytes, "{}", golden.file);
    }
    assert!(read_image(IMAGES[0].bytes) == Ok(small_recipe(Codec::Zstd).disk));
}

#[test]
fn they_have_what_they_are_kept_for() {
    let of = |number: usize| superblock(IMAGES[number].bytes);
    assert_eq!((of(0).hot.len(), of(0).hot[0].hints.len), (2, 40));
    assert_eq!(of(1).disk_bytes - of(1).exact_bytes(), 2592, "a disk that ends within a block");
    assert!(of(5).hot[0].hints.len > 0 && of(5).hot[0].own_ms > 0);
    assert!(of(5).features.table_blocks() > 0);
    let codecs = [Codec::Store, Codec::Zstd, Codec::Lz4, Codec::Zlib];
    for (golden, codec) in IMAGES[1..].iter().zip(codecs) {
        assert!(chunks(golden.bytes).iter().any(|chunk| chunk.codec == codec), "{}", golden.file);
    }
    let delta = superblock(DELTA.bytes);
    let base = delta.base.expect("a base");
    assert_eq!((base.disk_digest, base.disk_bytes), (of(5).disk_digest, of(5).disk_bytes));
    assert_eq!(delta.disk_digest, digest(DELTA.disk));
    let codecs: Vec<Codec> = chunks(DELTA.bytes).iter().map(|chunk| chunk.codec).collect();
    assert!(codecs.contains(&Codec::Composed) && codecs.contains(&Codec::Zstd), "{codecs:?}");
    let borrowed = hot_index(&BORROWED);
    assert_eq!((borrowed.chunks.len(), borrowed_chunks(&borrowed), stale_blocks(&borrowed)), (7, 6, 0));
    assert_eq!(superblock(BORROWED.bytes).disk_digest, digest(BORROWED.disk));
    // R60: a stale block is in a chunk that is borrowed, and in one that is stored.
    let stale = hot_index(&STALE);
    assert_eq!((stale.chunks.len(), borrowed_chunks(&stale), stale_blocks(&stale)), (8, 7, 1));
    assert_eq!(superblock(STALE.bytes).disk_digest, digest(STALE.disk));
    let like = hot_index(&IMAGES[6]);
    assert_eq!((borrowed_chunks(&like), stale_blocks(&like)), (0, 1));
    assert!(superblock(STALE.bytes).features.has_stale() && superblock(IMAGES[6].bytes).features.has_stale());
}

fn hot_index(golden: &Golden) -> HotIndex {
    let superblock = superblock(golden.bytes);
    let index = Unverified::new(slice(golden.bytes, superblock.hot[0].index));
    HotIndex::decode(index, &superblock.hot[0], &superblock).expect("an index")
}

fn borrowed_chunks(index: &HotIndex) -> usize {
    index.chunks.iter().filter(|hot| hot.is_borrowed).count()
}

fn stale_blocks(index: &HotIndex) -> u32 {
    index.chunks.iter().map(|hot| hot.stale_blocks).sum()
}

/// A table has one encoding; chunks have not, so these are not made again.
#[test]
fn tables_are_written_again_byte_for_byte() {
    for golden in IMAGES.iter().chain([&DELTA, &BORROWED, &STALE]) {
        check_tables(golden.file, golden.bytes);
        let superblock = superblock(golden.bytes);
        assert_eq!(superblock.image_digest().to_string(), golden.image, "{}", golden.file);
        let mirror = slice(golden.bytes, superblock.mirror());
        assert!(superblock.encode() == mirror && mirror == &golden.bytes[..SUPERBLOCK_BYTES]);
        check_cold(golden.file, golden.bytes);
    }
}

#[test]
fn packs_are_read_and_written_again() {
    let whole = include_bytes!("../vectors/whole.hspk").as_slice();
    let sampled = include_bytes!("../vectors/sampled.hspk").as_slice();
    for (pack, trust) in [(whole, PackTrust::Whole), (sampled, PackTrust::Sampled)] {
        let header = PackHeader::decode(Unverified::new(&pack[..PACK_HEADER_BYTES])).expect("a header");
        assert_eq!((header.trust, header.kind, header.name.as_str()), (trust, BaseKind::Raw, "disk.raw"));
        assert_eq!((header.samples.len(), header.modified_ns), (32, 1_795_824_000_000_000_000));
        header.check_file(pack.len() as u64).expect("whole");
        assert!(header.encode() == pack[..PACK_HEADER_BYTES]);
        let table = slice(pack, header.runs_range());
        let runs = PackRuns::decode(&header, Unverified::new(table)).expect("runs");
        assert_eq!(runs.encode(), (table.to_vec(), header.runs_digest));
        assert_eq!(runs.chunk_bytes(), header.disk_bytes, "both windows have data");
        let image = &pack[PACK_HEADER_BYTES..];
        header.check_image(&superblock(image)).expect("its image");
        check_tables("pack", image);
    }
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(Unverified::new(&image[..SUPERBLOCK_BYTES])).expect("version 1")
}

fn slice(image: &[u8], range: ByteRange) -> &[u8] {
    &image[range.offset as usize..range.end() as usize]
}

/// The superblock, and the tables of hot segments, are those that are made of what they hold.
fn check_tables(file: &str, image: &[u8]) {
    let superblock = superblock(image);
    assert!(superblock.encode() == image[..SUPERBLOCK_BYTES], "{file}");
    for segment in &superblock.hot {
        let (index, hints) = (slice(image, segment.index), slice(image, segment.hints));
        let decoded = HotIndex::decode(Unverified::new(index), segment, &superblock).expect("an index");
        assert!(decoded.encode() == index, "{file}");
        let decoded = Hints::decode(Unverified::new(hints), segment, &superblock).expect("hints");
        assert!(decoded.encode() == hints, "{file}");
    }
}

/// What is stored of each window.
fn windows(image: &[u8]) -> Vec<WindowRef> {
    let superblock = superblock(image);
    let cold = &superblock.cold;
    let root = ColdRoot::decode(Unverified::new(slice(image, cold.in_file(cold.root))), &superblock);
    let mut windows = Vec::new();
    for (number, leaf) in root.expect("a root").leaves.iter().enumerate() {
        let number = number as u64;
        if leaf.is_zero() {
            let count = superblock.geometry().leaf_windows(number);
            windows.extend((0..count).map(|_| WindowRef::Zero));
            continue;
        }
        let bytes = Unverified::new(slice(image, cold.in_file(leaf.range)));
        windows.extend(ColdLeaf::decode(bytes, number, leaf, &superblock).expect("a leaf").windows());
    }
    windows
}

fn chunks(image: &[u8]) -> Vec<ChunkRef> {
    let of_window = |window| if let WindowRef::Chunk(chunk) = window { Some(chunk) } else { None };
    windows(image).into_iter().filter_map(of_window).collect()
}

/// Leaves and root are those that are made of their windows.
fn check_cold(file: &str, image: &[u8]) {
    let superblock = superblock(image);
    let cold = &superblock.cold;
    let mut tables = ColdTables::new(superblock.geometry()).expect("a good geometry");
    windows(image).into_iter().for_each(|window| tables.push(window));
    let tables = tables.finish(cold.leaves_offset, cold.distinct_chunks).expect("good counts");
    assert_eq!(tables.placed_at(cold.range.offset), *cold, "{file}");
    let range = ByteRange::new(cold.leaves_offset, cold.range.len - cold.leaves_offset);
    assert!(tables.bytes == slice(image, cold.in_file(range)), "{file}");
}

#[test]
fn digests() {
    let table = [7; 48];
    assert_eq!(
        chunk_digest(b"chunk"),
        digest("6b1d440ada61d0f4e4416c73bcbab3694f96875a3e5df3253075163ffe93cd4d")
    );
    assert_eq!(
        LeafRef::digest_of(&table),
        digest("be0018cdae91ce8a92158a4a3deeb4ffc4a782895da612fd8a6a7e1cfdc0cf56")
    );
    assert_eq!(
        ColdRoot::digest_of(&table),
        digest("4d6f100e71034e19939553cdd5dfdb8b424d45b96faf633041926ca1b7faf2e6")
    );
    assert_eq!(
        HotIndex::digest_of(&table),
        digest("8a5dbefa1ae2d09b251a09c22ddfcb425c1b5368a00ac1465a98c041b358e171")
    );
    assert_eq!(
        Hints::digest_of(&[]),
        digest("c372f4d5f93204424b1a343b38b99fcfd7560172ee04c794c13c75690e826db3")
    );
    let mut hasher = DiskHasher::new((1 << 30) + 4096);
    hasher.update_window(&[5; limits::DISK_DIGEST_WINDOW_BYTES]);
    hasher.zero_windows(8192);
    assert_eq!(hasher.finish(), digest("27e8b0f68a49deea45d27f1d7df36cc95df8a1cce1384bd2687eac66f2503792"));
    assert_eq!(
        superblock_disk_digest(),
        digest("165417a48f6575581c643e2db1f78d48a948dfaa17f3a604088205dc76c5f065")
    );
}

fn superblock_disk_digest() -> Digest {
    build(&small_recipe(Codec::Zstd)).superblock.disk_digest
}
