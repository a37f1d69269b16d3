//! Files that are not whole images.

use std::path::Path;
use std::sync::Arc;

use hs_format::FormatError;
use hs_image::{Image, ImageError};
use hs_store::{FileStore, MemoryStore, StoreError};
use hs_units::Prng;

use crate::sample::{Bench, disk, fast_build, open, random_profile};

fn image_bytes() -> Vec<u8> {
    let mut prng = Prng::new(21);
    let bench = Bench::new(disk(&mut prng, 120, 16_384));
    bench.build("cold", &fast_build(16_384, 1));
    let profile = random_profile(&mut prng, &open(&bench.path("cold")), &bench.disk);
    bench.optimize("cold", "hot", &[profile]);
    bench.bytes("hot")
}

/// Opens these bytes both ways, which must agree on whether they are an image, and gives the error.
fn refused(bytes: &[u8]) -> ImageError {
    let store = || Arc::new(MemoryStore::new(bytes.to_vec()).named("cut.hsi"));
    let streamed = Image::open_streaming(store(), 1 << 20, &hs_image::OpenOptions::default()).map(drop);
    assert!(streamed.is_err(), "streamed: {} bytes", bytes.len());
    Image::open(store()).map(drop).expect_err("not an image")
}

#[test]
fn an_image_cut_anywhere_is_refused() {
    let whole = image_bytes();
    let mut prng = Prng::new(22);
    let blocks = (0..whole.len()).step_by(4096);
    let random: Vec<usize> = (0..300).map(|_| prng.below(whole.len() as u64) as usize).collect();
    let ends = [1, 4095, 4097, 8191, 8192, whole.len() - 4096, whole.len() - 1];
    for len in blocks.chain(random).chain(ends) {
        let error = refused(&whole[..len]).to_string();
        assert!(error.contains("cut.hsi"), "{error}");
        if len >= 4096 {
            // The superblock is whole and says how long the file should be.
            assert!(error.contains(&format!("truncated: {len} of its {} bytes", whole.len())), "{error}");
        }
    }
    let longer = [&whole[..], &[0; 17]].concat();
    assert!(refused(&longer).to_string().contains("expected"));
}

#[test]
fn what_is_no_image_is_named() {
    let whole = image_bytes();
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        let end = bytes.len() - 4096;
        (bytes[at], bytes[end + at]) = (byte, byte);
        bytes
    };
    let fault = |bytes: &[u8]| match refused(bytes) {
        ImageError::Format { fault, .. } => fault,
        other => panic!("{other:?}"),
    };
    assert!(matches!(*fault(&changed(0, b'X')), FormatError::BadMagic { .. }));
    assert!(matches!(*fault(&vec![0x02; 100_000]), FormatError::BadMagic { .. }));
    assert!(matches!(refused(&vec![b'B'; 100_000]), ImageError::NotAnImage { .. }));
    assert!(matches!(*fault(&changed(8, 2)), FormatError::UnsupportedVersion { expected: 1, found: 2, .. }));
    assert!(matches!(*fault(&changed(100, 0xee)), FormatError::DigestMismatch { .. }));
    // A newer image is called newer although its mirror would do.
    let mut newer = whole.clone();
    newer[8] = 9;
    assert!(refused(&newer).to_string().contains('9'), "{}", refused(&newer));
    assert!(matches!(refused(&[]), ImageError::NotAnImage { .. }));
    // A superblock's first bytes, or less than tells.
    for len in [8, 100, 4095] {
        assert!(matches!(*fault(&whole[..len]), FormatError::Size { .. }), "{len}");
    }
}

#[test]
fn folders_and_devices_are_no_images() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in [folder.path(), Path::new("/dev/null")] {
        let refused = FileStore::open(path);
        assert!(matches!(refused, Err(StoreError::NotAFile { .. })), "{path:?}");
    }
}
