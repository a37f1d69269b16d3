use super::*;
use crate::cold::LeafRef;
use crate::cold_tables::ColdTables;
use crate::geometry::ColdGeometry;
use crate::leaf::ColdLeaf;
use crate::superblock::{BaseRef, Features, Superblock};

const WINDOW: u32 = 8192;

fn runs() -> PackRuns {
    let mut runs = PackRuns::new(10 * u64::from(WINDOW) - BLOCK_BYTES, WINDOW);
    for window in [0, 1, 4, 5, 6, 9] {
        runs.push(window, 1);
    }
    runs
}

fn header() -> PackHeader {
    let (runs, name) = (runs(), "disk.qcow2".to_owned());
    let (_, runs_digest) = runs.encode();
    let samples = vec![Sample { range: ByteRange::new(4, 96), digest: plain(b"sample") }];
    PackHeader {
        kind: BaseKind::Qcow2,
        trust: PackTrust::Whole,
        name,
        file_bytes: 100,
        modified_ns: 7,
        samples,
        disk_bytes: runs.disk_bytes,
        window_bytes: WINDOW,
        head_bytes: 5000,
        chunk_bytes: runs.chunk_bytes(),
        tail_bytes: 6000,
        run_count: to_u32(runs.len() as u64),
        runs_digest,
        backing_count: 0,
        backing_digest: Digest::default(),
    }
}

fn decode(bytes: &[u8]) -> Result<PackHeader, FormatError> {
    PackHeader::decode(Unverified::new(bytes))
}

// R49
#[test]
fn headers_come_back_and_no_byte_of_one_may_change() {
    let header = header();
    let bytes = header.encode();
    assert_eq!(decode(&bytes), Ok(header.clone()));
    for at in 0..bytes.len() {
        let mut changed = bytes;
        changed[at] ^= 1;
        assert!(decode(&changed).is_err(), "byte {at}");
    }
    assert_eq!(header.image_bytes(), 5000 + 5 * 8192 + 4096 + 6000);
    assert_eq!(header.pack_bytes(), 4096 + 5000 + 6000 + 3 * 16);
    assert!(header.check_file(header.pack_bytes()).is_ok() && header.check_file(1).is_err());
}

// R50, R51, R52, R53
/// With right checksums: what only the rules refuse.
#[test]
fn hostile_headers_are_refused() {
    type Change = fn(&mut HeaderWire);
    let changes: [(&str, Change); 18] = [
        ("kind", |wire| wire.disk_kind = 3.into()),
        ("trust", |wire| wire.trust = 0.into()),
        ("name bytes", |wire| wire.name_bytes = 300.into()),
        ("name", |wire| wire.name[0] = b'/'),
        ("name", |wire| wire.name[1] = 0),
        ("name", |wire| wire.name[0] = 0xff),
        ("reserved", |wire| wire.name[200] = 1),
        ("samples", |wire| wire.sample_count = 65.into()),
        ("sample", |wire| wire.samples[0].offset = u64::MAX.into()),
        ("disk bytes", |wire| wire.disk_bytes = (MAX_DISK_BYTES + BLOCK_BYTES).into()),
        ("window", |wire| wire.window_bytes = 4097.into()),
        ("head bytes", |wire| wire.head_bytes = 10.into()),
        ("tail bytes", |wire| wire.tail_bytes = u64::MAX.into()),
        ("cold chunk bytes", |wire| wire.chunk_bytes = MAX_IMAGE_BYTES.into()),
        ("runs", |wire| wire.run_count = u32::MAX.into()),
        ("backing files", |wire| wire.backing_count = 65.into()),
        ("reserved", |wire| wire.backing_digest[0] = 1),
        ("reserved", |wire| wire.backing_reserved = 1.into()),
    ];
    for (word, change) in changes {
        let mut wire = HeaderWire::read_from_bytes(&header().encode()).expect("a header");
        change(&mut wire);
        wire.checksum = plain(&wire.as_bytes()[..CHECKSUM_AT]).0;
        let refused = decode(wire.as_bytes()).expect_err(word).to_string();
        assert!(refused.contains(word), "{word}: {refused}");
    }
}

#[test]
fn a_byte_behind_the_samples_is_found_where_it_lies() {
    let mut wire = HeaderWire::read_from_bytes(&header().encode()).expect("a header");
    wire.samples[3].bytes = 1.into();
    wire.checksum = plain(&wire.as_bytes()[..CHECKSUM_AT]).0;
    let at = offset_of!(HeaderWire, samples) + 3 * size_of_val(&wire.samples[0]) + 8;
    let refused = decode(wire.as_bytes()).expect_err("not zero").to_string();
    assert!(refused.contains(&format!("offset {at},")), "{at}: {refused}");
}

#[test]
fn a_part_of_the_table_of_windows_is_cut_from_the_whole() {
    let (header, entry) = (header(), WINDOW_ENTRY_BYTES as u64);
    let whole = header.leaf_part(ByteRange::new(0, 10 * entry));
    for (number, bytes) in [(0, WINDOW), (5, WINDOW), (9, WINDOW - 4096)] {
        let range = ByteRange::new(number * u64::from(WINDOW), bytes.into());
        let (codec, digest) = (Codec::Store, Digest::default());
        let chunk = ChunkRef { range, raw_bytes: bytes, codec, digest };
        let at = to_usize(number * entry);
        let expected = WindowWire::of(&WindowRef::Chunk(chunk));
        assert_eq!(&whole[at..at + WINDOW_ENTRY_BYTES], expected.as_bytes(), "window {number}");
    }
    for (offset, len) in [(0, 1), (3, 2 * entry), (entry + 3, 2 * entry), (9 * entry - 1, 5)] {
        let part = header.leaf_part(ByteRange::new(offset, len));
        assert_eq!(part, whole[to_usize(offset)..to_usize(offset + len)], "{offset}+{len}");
    }
}

#[test]
fn runs_come_back_and_say_where_windows_lie() {
    let (runs, header) = (runs(), header());
    let (bytes, _) = runs.encode();
    assert_eq!(PackRuns::decode(&header, Unverified::new(&bytes)).as_ref(), Ok(&runs));
    assert!(PackRuns::decode(&header, Unverified::new(&bytes[1..])).is_err());
    let on_disk = |offset, len| runs.on_disk(ByteRange::new(offset, len));
    assert_eq!(on_disk(0, 100), [ByteRange::new(0, 100)]);
    let window = u64::from(WINDOW);
    let parts = [(window + 1, window - 1), (4 * window, 3 * window), (9 * window, 5)];
    assert_eq!(on_disk(window + 1, 4 * window + 4), parts.map(|(at, len)| ByteRange::new(at, len)));
    assert_eq!(on_disk(5 * window, window / 2), [ByteRange::new(9 * window, window / 2)]);
}

// R54
#[test]
fn hostile_runs_are_refused() {
    for changed in [vec![(4, 2), (0, 2)], vec![(0, 0)], vec![(0, 11)], vec![(u64::MAX, 1)], vec![(0, 1)]] {
        let wire = |(first, count): (u64, u64)| RunWire { first: first.into(), count: count.into() };
        let table: Vec<RunWire> = changed.iter().copied().map(wire).collect();
        let bytes = table.as_bytes();
        let header = PackHeader {
            run_count: to_u32(table.len() as u64),
            runs_digest: PackRuns::digest_of(bytes),
            ..header()
        };
        assert!(PackRuns::decode(&header, Unverified::new(bytes)).is_err(), "{changed:?}");
    }
}

// R58, R59
#[test]
fn backing_files_come_back_and_hostile_ones_are_refused() {
    let sample = Sample { range: ByteRange::new(0, 4096), digest: plain(b"sample") };
    let file = |name: &str| BackingFile {
        kind: BaseKind::Raw,
        name: name.to_owned(),
        file_bytes: 8192,
        modified_ns: 9,
        samples: vec![sample],
    };
    let of = |files: &[BackingFile]| {
        let (bytes, backing_digest) = BackingFile::encode_all(files);
        (bytes, PackHeader { backing_count: to_u32(files.len() as u64), backing_digest, ..header() })
    };
    let files = [file("middle.qcow2"), file("base.raw")];
    let (bytes, named) = of(&files);
    assert_eq!(decode(&named.encode()), Ok(named.clone()));
    assert_eq!(named.runs_range().end(), named.backing_range().offset);
    assert_ne!(named.unread_digest(), header().unread_digest());
    assert_eq!(BackingFile::decode_all(&named, Unverified::new(&bytes)).as_deref(), Ok(&files[..]));
    let mut changed = bytes;
    changed[30] ^= 1;
    assert!(BackingFile::decode_all(&named, Unverified::new(&changed)).is_err());
    assert_eq!(of(&[]).1, header());
    assert!(PackHeader { kind: BaseKind::Raw, ..named }.check().is_err(), "behind a raw disk lies nothing");

    let far = Sample { range: ByteRange::new(8192, 1), ..sample };
    for (word, wrong) in [
        ("name", file("../base.raw")),
        ("name", file("..")),
        ("bytes of a backing file", BackingFile { file_bytes: 0, samples: Vec::new(), ..file("x") }),
        ("sample", BackingFile { samples: vec![far], ..file("x") }),
    ] {
        let (bytes, header) = of(&[wrong]);
        let refused = BackingFile::decode_all(&header, Unverified::new(&bytes)).expect_err(word).to_string();
        assert!(refused.contains(word), "{word}: {refused}");
    }
}

/// The superblock of an image with one window, and that window in a leaf.
fn image_of(window: WindowRef, features: Features) -> (Superblock, Vec<u8>) {
    let geometry = ColdGeometry { disk_bytes: 8192, window_blocks: 2, windows_per_leaf: 4 };
    let mut tables = ColdTables::new(geometry).expect("a geometry");
    tables.push(window);
    let tables = tables.finish(8192, 1).expect("tables");
    let superblock = Superblock {
        features,
        disk_bytes: geometry.disk_bytes,
        image_bytes: 8192 + 8192 + tables.bytes.len() as u64,
        disk_digest: Digest::default(),
        cold: tables.placed_at(4096),
        hot: Vec::new(),
        base: None,
        signature: None,
    };
    (superblock, ColdLeaf::new(&[window]).encode())
}

/// A window with this digest.
fn window(digest: Digest) -> WindowRef {
    let range = ByteRange::new(0, 8192);
    WindowRef::Chunk(ChunkRef { range, raw_bytes: 8192, codec: Codec::Store, digest })
}

fn decode_leaf(digest: Digest, features: Features) -> Result<ColdLeaf, FormatError> {
    let (superblock, leaf) = image_of(window(digest), features);
    ColdLeaf::decode(Unverified::new(&leaf), 0, &LeafRef::of_encoded(8192, &leaf), &superblock)
}

// R55
#[test]
fn the_image_is_of_the_disk_that_the_header_names() {
    let (superblock, _) = image_of(window(plain(b"window")), Features::default());
    let right = PackHeader {
        disk_bytes: 8192,
        window_bytes: 8192,
        head_bytes: superblock.cold.range.offset,
        chunk_bytes: 8192,
        ..header()
    };
    assert_eq!(right.check_image(&superblock), Ok(()));
    let wrong = [
        PackHeader { disk_bytes: 1 << 30, ..right.clone() },
        PackHeader { window_bytes: 4096, ..right.clone() },
        PackHeader { head_bytes: right.head_bytes + 4096, ..right.clone() },
        PackHeader { chunk_bytes: 1 << 20, ..right },
    ];
    assert!(wrong.iter().all(|header| header.check_image(&superblock).is_err()));
}

// R48
#[test]
fn chunks_have_no_digest_where_the_image_says_so_and_nowhere_else() {
    let (none, some) = (Digest::default(), plain(b"window"));
    let (read, unread) = (Features::default(), Features::default().of_unread());
    let leaf = decode_leaf(none, unread).expect("it says so");
    let WindowRef::Chunk(chunk) = leaf.window(0) else { panic!("it is stored") };
    assert!(!chunk.has_digest() && Unverified::new([7; 8192]).verify(&chunk.expected()).is_ok());
    assert!(Unverified::new([7; 8191]).verify(&chunk.expected()).is_err());
    let refused = |digest, features, expected| {
        let refused = decode_leaf(digest, features);
        assert!(
            matches!(refused, Err(FormatError::ChunkDigest { expected: found, .. }) if found == expected)
        );
    };
    refused(none, read, true);
    refused(some, unread, false);
    assert!(decode_leaf(some, read).is_ok());

    let base = Some(BaseRef { disk_digest: some, disk_bytes: 4096 });
    let features = Features::of_base(base.as_ref()).of_unread();
    assert_eq!(features.incompat, 3);
}
