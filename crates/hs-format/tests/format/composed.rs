//! Composed chunks: what is written is read, and what breaks a rule is refused although its digest is right.

use hs_format::*;
use hs_units::{BLOCK_BYTES, BlockRange, Digest, Lba};
use proptest::prelude::*;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of the base.
const BASE_BLOCKS: u32 = 9;
const BASE: BaseRef = BaseRef { disk_digest: Digest([7; 32]), disk_bytes: BASE_BLOCKS as u64 * BLOCK_BYTES };

/// Decodes stored bytes of a window of so many blocks, whose digest is right.
fn decode(stored: &[u8], blocks: u32) -> Result<Composed<'_>, FormatError> {
    let chunk = ChunkRef::of_stored(0, stored, Codec::Composed, blocks * BLOCK_BYTES as u32);
    let stored = Unverified::new(stored).verify(&chunk.expected())?;
    Composed::decode(&chunk, stored, &BASE)
}

fn header(numbers: &[u32], codec: u16) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes.extend(codec.to_le_bytes());
    bytes.extend([9; 32]);
    bytes
}

fn with_own(numbers: &[u32], codec: u16, own: &[u8]) -> Vec<u8> {
    [header(numbers, codec), own.to_vec()].concat()
}

const OWN: u32 = u32::MAX;

macro_rules! refuses {
    ($stored:expr, $variant:ident $(, $field:literal)?) => {
        match decode(&$stored, 2) {
            Err(FormatError::$variant { $(field: $field,)? .. }) => {}
            other => panic!("expected {} {:?}, found {other:?}", stringify!($variant), [$($field)?] as [&str; _]),
        }
    };
}

#[test]
// R32
fn numbers_of_blocks() {
    let block = [1; BLOCK];
    assert!(decode(&with_own(&[8, OWN], 1, &block), 2).is_ok());
    assert!(decode(&header(&[8, 0], 1), 2).is_ok());
    for cut in 0..42 {
        refuses!(header(&[8, 0], 1)[..cut], Size);
    }
    for number in [BASE_BLOCKS, OWN - 1] {
        refuses!(header(&[0, number], 1), OutsideDisk);
    }
    // All are its own: a plain chunk.
    refuses!(with_own(&[OWN, OWN], 1, &[block, block].concat()), Limit, "bytes of own blocks");
}

#[test]
// R33
fn own_blocks() {
    let block = [1; BLOCK];
    for codec in [0, 6, u16::MAX] {
        refuses!(with_own(&[3, OWN], codec, &block), UnknownCodec);
    }
    refuses!(with_own(&[3, OWN], 5, &block), MisplacedComposed);
    refuses!(with_own(&[3, OWN], 2, &[]), Limit, "stored bytes of own blocks");
    refuses!(with_own(&[3, OWN], 2, &[1; BLOCK + 1]), Limit, "stored bytes of own blocks");
    refuses!(with_own(&[3, OWN], 1, &block[1..]), Inconsistent, "stored bytes of own blocks");
    refuses!(with_own(&[3, 4], 1, &[1]), Limit, "stored bytes of own blocks");
    refuses!(with_own(&[3, 4], 2, &[]), Inconsistent, "codec of own blocks");
    // What the codec gives is another size.
    let mut two = Vec::new();
    let codec = Compressor::new(Codec::Zstd, 1).compress(&[1; 2 * BLOCK], &mut two);
    assert_eq!(codec, Codec::Zstd);
    let stored = with_own(&[3, OWN], 2, &two);
    let decoded = decode(&stored, 2).expect("the header is right");
    let mut window = vec![0; 2 * BLOCK];
    assert!(decoded.own_into(&mut Decompressor::new(), &mut window).is_err());
    assert!(window.iter().all(|byte| *byte == 0));
}

#[test]
fn no_decoder_takes_a_composed_chunk_for_anything_else() {
    let stored = header(&[3, 4], 1);
    let refused = Decompressor::new().decompress(Codec::Composed, &stored, 2 * BLOCK_BYTES as u32);
    assert!(matches!(refused, Err(FormatError::MisplacedComposed { .. })));
}

/// Whether a block is the base's, and which; else the seed of its content.
fn blocks() -> impl Strategy<Value = Vec<Result<u32, u8>>> {
    prop::collection::vec(prop_oneof![(0..BASE_BLOCKS).prop_map(Ok), any::<u8>().prop_map(Err)], 1..20)
}

proptest! {
    #[test]
    fn what_is_composed_is_taken_apart(blocks in blocks(), codec in 1_u16..5) {
        prop_assume!(blocks.iter().any(Result::is_ok));
        let codec = Codec::from_u16(codec, Part::File).expect("known");
        let (mut own, mut expected) = (Vec::new(), Vec::new());
        for block in &blocks {
            let content = [block.unwrap_or_else(|seed| u32::from(seed) + 100) as u8; BLOCK];
            expected.extend(content);
            if block.is_err() {
                own.extend(content);
            }
        }
        let mut stored = Vec::new();
        let inner =
            if own.is_empty() { Codec::Store } else { Compressor::new(codec, 1).compress(&own, &mut stored) };
        let places: Vec<Option<Lba>> = blocks.iter().map(|block| block.ok().map(|lba| Lba(lba.into()))).collect();
        let stored = Composed::encode(&expected, &places, inner, &stored);
        let composed = decode(&stored, blocks.len() as u32).expect("what is written is read");
        let mut window = vec![0; expected.len()];
        composed.own_into(&mut Decompressor::new(), &mut window).expect("own blocks");
        let mut from_base = 0;
        for run in composed.base_runs() {
            for (number, lba) in (run.block_in_window as usize..).zip(run.blocks.blocks()) {
                prop_assert_eq!(places[number], Some(lba));
                window[number * BLOCK..][..BLOCK].fill(lba.0 as u8);
                from_base += 1;
            }
        }
        prop_assert_eq!(from_base, blocks.iter().filter(|block| block.is_ok()).count());
        prop_assert!(window == expected);
        prop_assert!(composed.check(&window).is_ok());
        // R35
        *window.last_mut().expect("a byte") ^= 1;
        let is_refused = matches!(composed.check(&window), Err(FormatError::DigestMismatch { .. }));
        prop_assert!(is_refused);
    }
}

#[test]
fn neighbours_on_the_base_are_one_run() {
    let stored = with_own(&[4, 5, OWN, 6, 3], 1, &[1; BLOCK]);
    let runs: Vec<BaseRun> = decode(&stored, 5).expect("right").base_runs().collect();
    let run =
        |block_in_window, lba, count| BaseRun { block_in_window, blocks: BlockRange::new(Lba(lba), count) };
    assert_eq!(runs, [run(0, 4, 2), run(3, 6, 1), run(4, 3, 1)]);
}
