use hs_units::Prng;
use proptest::prelude::*;

use super::*;

const COMPRESSING: [Codec; 3] = [Codec::Zstd, Codec::Lz4, Codec::Zlib];

fn compressed(codec: Codec, raw: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    assert_eq!(Compressor::new(codec, 3).compress(raw, &mut stored), codec);
    stored
}

fn zstd(raw: &[u8]) -> Vec<u8> {
    compressed(Codec::Zstd, raw)
}

/// A frame made by the library's own defaults, so with a content size.
fn foreign_frame(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
    CCtx::create().compress(&mut out, raw, 3).expect("enough room");
    out
}

proptest! {
    #[test]
    fn round_trip(seed: u64, blocks in 1_usize..20, repeat in 1_usize..64, level in -5..19_i32, codec in 0_usize..3) {
        let mut raw = vec![0; blocks * 4096];
        for piece in raw.chunks_mut(repeat * 16) {
            Prng::new(seed % 7).fill(piece);
        }
        let (mut compressor, mut stored) = (Compressor::new(COMPRESSING[codec], level), vec![9; 3]);
        let codec = compressor.compress(&raw, &mut stored);
        prop_assert!(stored.len() <= raw.len());
        prop_assert_eq!(codec == Codec::Store, stored.len() == raw.len());
        let mut again = Vec::new();
        compressor.compress(&raw, &mut again);
        prop_assert_eq!(&again, &stored, "a reused context changes nothing");
        let back = Decompressor::new().decompress(codec, &stored, raw.len() as u32);
        prop_assert_eq!(back, Ok(raw));
    }

    /// Damage that got past the digest (it cannot, but the decoder must not rely on it) is an error or other
    /// bytes, never a panic.
    #[test]
    fn damaged_frames_do_not_panic(
        at in 0_usize..4000, value: u8, cut in 0_usize..4000, codec in 0_usize..3,
    ) {
        let mut raw = vec![0; 16_384];
        Prng::new(1).fill(&mut raw[..3000]);
        let mut stored = compressed(COMPRESSING[codec], &raw);
        let at = at % stored.len();
        stored[at] = value;
        stored.truncate(stored.len() - cut % stored.len());
        let _ = Decompressor::new().decompress(COMPRESSING[codec], &stored, raw.len() as u32);
    }
}

#[test]
fn random_bytes_are_stored_as_they_are() {
    let mut raw = vec![0; 8192];
    Prng::new(5).fill(&mut raw);
    let mut stored = Vec::new();
    assert_eq!(Compressor::new(Codec::Zstd, 19).compress(&raw, &mut stored), Codec::Store);
    assert_eq!(stored, raw);
    let short = Decompressor::new().decompress(Codec::Store, &stored[1..], 8192);
    assert_eq!(short, Err(FormatError::RawSize { codec: Codec::Store, expected: 8192, found: 8191 }));
}

#[test]
fn a_bomb_stays_in_the_buffer() {
    let stored = zstd(&vec![0; MAX_CHUNK_RAW_BYTES as usize]);
    assert!(stored.len() < 1000);
    let mut decompressor = Decompressor::new();
    let bomb = decompressor.decompress(Codec::Zstd, &stored, 4096);
    assert!(matches!(bomb, Err(FormatError::Decompress { expected_bytes: 4096, .. })), "{bomb:?}");
    let short = decompressor.decompress(Codec::Zstd, &stored, 2 * MAX_CHUNK_RAW_BYTES);
    let (expected, found) = (u64::from(2 * MAX_CHUNK_RAW_BYTES), u64::from(MAX_CHUNK_RAW_BYTES));
    assert_eq!(short, Err(FormatError::RawSize { codec: Codec::Zstd, expected, found }));
}

#[test]
// R26
fn bombs_of_every_codec_stay_in_the_buffer() {
    let raw = vec![0; MAX_CHUNK_RAW_BYTES as usize];
    for codec in [Codec::Lz4, Codec::Zlib] {
        let stored = compressed(codec, &raw);
        assert!(stored.len() < 40_000, "{codec}: {}", stored.len());
        let mut decompressor = Decompressor::new();
        let bomb = decompressor.decompress(codec, &stored, 4096);
        assert!(matches!(bomb, Err(FormatError::Decompress { expected_bytes: 4096, .. })), "{bomb:?}");
        let short = decompressor.decompress(codec, &stored, 2 * MAX_CHUNK_RAW_BYTES);
        let (expected, found) = (u64::from(2 * MAX_CHUNK_RAW_BYTES), raw.len() as u64);
        assert_eq!(short, Err(FormatError::RawSize { codec, expected, found }));
        let back = decompressor.decompress(codec, &stored, MAX_CHUNK_RAW_BYTES);
        assert!(back == Ok(raw.clone()), "{codec}: after errors the decompressor still works");
    }
}

#[test]
// R28, R29
fn lz4_and_zlib_chunks_of_another_shape_are_refused() {
    let mut raw = vec![0; 8192];
    Prng::new(3).fill(&mut raw[..3000]);
    for codec in [Codec::Lz4, Codec::Zlib] {
        let good = compressed(codec, &raw);
        let refuse = |stored: &[u8]| {
            let refused = Decompressor::new().decompress(codec, stored, raw.len() as u32);
            assert!(refused.is_err(), "{codec}");
        };
        refuse(&[]);
        refuse(&good[..good.len() - 1]);
        refuse(&[&good[..], &[0]].concat());
        refuse(&[&good[..], &good].concat());
    }
    let good = compressed(Codec::Zlib, &raw);
    // The wrapper is checked, and so is the Adler-32 sum at the end.
    for at in [0, 1, good.len() - 4, good.len() - 1] {
        let mut wrong = good.clone();
        wrong[at] ^= 0x20;
        let refused = Decompressor::new().decompress(Codec::Zlib, &wrong, raw.len() as u32);
        assert!(matches!(refused, Err(FormatError::Decompress { .. })), "{at}: {refused:?}");
    }
}

#[test]
fn a_higher_level_is_not_larger() {
    let mut raw = vec![0; 128 << 10];
    for (i, piece) in raw.chunks_mut(64).enumerate() {
        Prng::new((i * i % 97) as u64).fill(piece);
    }
    for (codec, low, high) in [(Codec::Lz4, 0, 12), (Codec::Zlib, 1, 9)] {
        let size = |level| {
            let mut stored = Vec::new();
            assert_eq!(Compressor::new(codec, level).compress(&raw, &mut stored), codec);
            stored.len()
        };
        assert!(size(high) <= size(low), "{codec}: {} and {}", size(high), size(low));
    }
}

#[test]
fn the_largest_chunk_keeps_the_window_within_its_limit() {
    let mut raw = vec![0; MAX_CHUNK_RAW_BYTES as usize];
    Prng::new(2).fill(&mut raw[..50_000]);
    let mut stored = Vec::new();
    // Level 22 would take a window of 128 MiB if the input were larger.
    assert_eq!(Compressor::new(Codec::Zstd, 22).compress(&raw, &mut stored), Codec::Zstd);
    let back = Decompressor::new().decompress(Codec::Zstd, &stored, raw.len() as u32).expect("decoded");
    assert!(back == raw);
}

#[test]
// R27
fn frames_of_another_shape_are_refused() {
    let raw = vec![0; 8192];
    let good = zstd(&raw);
    let refuse = |stored: &[u8]| {
        Decompressor::new().decompress(Codec::Zstd, stored, raw.len() as u32).expect_err("refused")
    };
    assert!(matches!(refuse(&foreign_frame(&raw)), FormatError::FrameHeader { .. }));
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0], good.as_slice()].concat();
    assert!(matches!(refuse(&skippable), FormatError::FrameHeader { .. }));
    let mut wide = good.clone();
    wide[5] = (12 << 3) | 1;
    assert!(matches!(refuse(&wide), FormatError::FrameHeader { found, .. } if found[5] == 97));
    assert!(matches!(refuse(&good[..5]), FormatError::FrameHeader { .. }));
    assert!(matches!(refuse(&[]), FormatError::FrameHeader { .. }));
    let half = zstd(&raw[..4096]);
    let two_frames = [half.as_slice(), &half].concat();
    assert!(matches!(refuse(&two_frames), FormatError::Decompress { reason: "bytes after the frame", .. }));
    assert!(matches!(refuse(&good[..good.len() - 1]), FormatError::Decompress { .. }));
}

#[test]
// R23
fn unknown_codecs_are_named() {
    for number in [0, 6, u16::MAX] {
        let error = Codec::from_u16(number, Part::ColdRoot).expect_err("unknown");
        assert!(error.to_string().contains(&format!("found {number}")), "{error}");
    }
    for codec in [Codec::Store, Codec::Zstd, Codec::Lz4, Codec::Zlib, Codec::Composed] {
        assert_eq!(Codec::from_u16(codec.to_u16(), Part::ColdRoot), Ok(codec));
    }
}

#[test]
fn memory_is_used_again_where_it_fits_and_nothing_of_what_it_held_is_seen() {
    let mut prng = Prng::new(12);
    let mut decompressor = Decompressor::new();
    let mut before = None;
    for len in [40_000_usize, 40_000, 39_000, 4096, 40_000] {
        let mut raw = vec![0; len];
        prng.fill(&mut raw[..len / 3]);
        let stored = zstd(&raw);
        let back = decompressor.decompress(Codec::Zstd, &stored, len as u32).expect("decoded");
        assert!(back == raw);
        assert!(back.capacity() <= len + len / 8, "{} bytes for {len}", back.capacity());
        let fits = before.is_some_and(|(_, room)| (len..=len + len / 8).contains(&room));
        assert_eq!(before.is_some_and(|(place, _)| place == back.as_ptr()) && fits, fits);
        before = Some((back.as_ptr(), back.capacity()));
        decompressor.reuse(back);
    }
}

#[test]
fn a_decompressor_is_shown_by_its_name() {
    assert!(format!("{:?}", Decompressor::new()).contains("Decompressor"));
}

#[test]
fn a_compressor_is_shown_with_its_codec() {
    for (codec, shown) in
        [(Codec::Store, "Store"), (Codec::Zstd, "Zstd"), (Codec::Lz4, "Lz4"), (Codec::Zlib, "Zlib")]
    {
        assert_eq!(format!("{:?}", Compressor::new(codec, 1)), format!("Compressor {{ codec: {shown} }}"));
    }
}

#[test]
fn a_zlib_stream_that_ends_early_is_told_from_one_that_goes_on() {
    let mut raw = vec![0; 8192];
    Prng::new(3).fill(&mut raw[..3000]);
    let stored = compressed(Codec::Zlib, &raw);
    let reason =
        |stored: &[u8], raw_bytes| match Decompressor::new().decompress(Codec::Zlib, stored, raw_bytes) {
            Err(FormatError::Decompress { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
    assert_eq!(reason(&stored[..stored.len() / 2], 8192), "the stream is cut short");
    assert_eq!(reason(&stored, 4096), "a longer or an unfinished stream");
}
