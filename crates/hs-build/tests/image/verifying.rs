//! What `verify` says about good images, and about disks that are not theirs.

use hs_image::{ImageError, verify, verify_all};
use hs_units::{BlockRange, Lba, Prng};

use crate::sample::{BLOCK, Bench, disk, fast_build, open, random_profile, source};

#[test]
fn the_first_block_that_differs_is_named() {
    let mut prng = Prng::new(41);
    let bench = Bench::new(disk(&mut prng, 200, 16_384));
    let report = bench.build("cold", &fast_build(16_384, 1));
    let image = open(&bench.path("cold"));
    let verified = verify(&image, Some((&bench.source(), "disk.raw")), &|_| {}).expect("equal");
    assert_eq!((verified.cold_chunks, verified.compared_bytes), (report.chunks, bench.disk.len() as u64));
    for (first, count) in [(0, 1), (5, 1), (77, 3), (199, 1)] {
        let mut other = bench.disk.clone();
        for block in first..first + count {
            other[block * BLOCK + 17] ^= 0x10;
        }
        std::fs::write(bench.path("other"), &other).expect("written");
        let error =
            verify(&image, Some((&source(&bench.path("other")), "other")), &|_| {}).expect_err("different");
        // A run is cut where its window ends.
        let count = count.min(4 - first % 4);
        let expected = BlockRange::new(Lba(first as u64), count as u64);
        assert!(matches!(&error, ImageError::Differs { blocks, .. } if *blocks == expected), "{error}");
        assert!(error.to_string().contains("other"), "{error}");
    }
    for bytes in [bench.disk.len() - BLOCK, bench.disk.len() + 3 * BLOCK] {
        let mut other = bench.disk.clone();
        other.resize(bytes, 0);
        std::fs::write(bench.path("other"), &other).expect("written");
        let error = verify(&image, Some((&source(&bench.path("other")), "other")), &|_| {})
            .expect_err("another size");
        let expected = bytes as u64;
        assert!(matches!(&error, ImageError::OtherLength { found, .. } if *found == expected), "{error}");
    }
}

#[test]
fn images_of_every_window_size_verify() {
    for log in 12..=22 {
        let mut prng = Prng::new(log);
        let blocks = 1 + prng.below(2500);
        let bench = Bench::new(disk(&mut prng, blocks, 1 << log));
        bench.build("cold", &fast_build(1 << log, 2));
        let profile = random_profile(&mut prng, &open(&bench.path("cold")), &bench.disk);
        bench.optimize("cold", "hot", &[profile]);
        for name in ["cold", "hot"] {
            verify(&open(&bench.path(name)), Some((&bench.source(), "disk.raw")), &|_| {}).expect("verified");
            verify(&open(&bench.path(name)), None, &|_| {}).expect("verified alone");
        }
    }
}

/// One damaged part hides no other.
#[test]
fn all_damaged_parts_are_found() {
    let mut prng = Prng::new(43);
    let bench = Bench::new((0..300 * BLOCK).map(|_| prng.below(256) as u8).collect());
    bench.build("cold", &fast_build(16_384, 1));
    let profile = random_profile(&mut prng, &open(&bench.path("cold")), &bench.disk);
    bench.optimize("cold", "hot", &[profile]);
    let image = open(&bench.path("hot"));
    let cold = image.superblock().cold.range.offset as usize;
    let mut bytes = bench.bytes("hot");
    // Windows of noise are stored as they are, one after another.
    let in_window = |window: usize| cold + window * 16_384 + 100;
    let hot = image.hot_chunk(0).1.offset as usize;
    let mirror = bytes.len() - 50;
    for at in [in_window(3), in_window(4), in_window(60), hot, mirror] {
        bytes[at] ^= 1;
    }
    std::fs::write(bench.path("damaged"), bytes).expect("written");
    let mut found = Vec::new();
    let mut take = |fault: ImageError| {
        found.push(fault.to_string());
        Ok(())
    };
    let against = (&bench.source() as &dyn hs_image::ComparedDisk, "disk.raw");
    verify_all(&open(&bench.path("damaged")), Some(against), &mut take, &|_| {}).expect("gone through");
    let parts = ["superblock", "cold window 3 ", "cold window 4 ", "cold window 60 ", "hot chunk 0 "];
    assert_eq!(found.len(), parts.len(), "{found:#?}");
    for (fault, part) in found.iter().zip(parts) {
        assert!(fault.contains(part) && fault.contains("damaged: "), "{part}: {fault}");
    }
}
