//! Hot blocks of a program that was built anew: what a start read of it stands further back, by other numbers
//! of bytes in each part.

use std::collections::BTreeSet;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use hs_build::{OptimizeOptions, find_files, list_files, optimize};
use hs_image::{Blocks, Image};
use hs_trace::{BlockDigest, FileRun, FileUse, Profile, Read};
use hs_units::{BlockRange, Lba, Nanos, Prng};

use crate::like::{image_of, open};

const BLOCK: usize = 4096;
const PROGRAM: &str = "/program";
/// What a start reads, in its order.
const HOT_PAGES: [std::ops::Range<usize>; 4] = [30..34, 0..2, 8..12, 50..52];

/// The pages of the program that are stored, each with its block; pages of zeros are not.
fn places(image: &Image, content: &[u8]) -> Vec<(u64, Lba)> {
    let files = list_files(image, 100).unwrap();
    let runs = &files.iter().find(|file| file.path == PROGRAM).unwrap().runs;
    let blocks = runs.iter().copied().flat_map(BlockRange::blocks);
    let pages = content.chunks(BLOCK).zip(0..).filter(|(page, _)| page.iter().any(|byte| *byte != 0));
    pages.map(|(_, page)| page).zip(blocks).collect()
}

/// A start that reads the hot pages.
fn profile(image: &Image, places: &[(u64, Lba)]) -> Profile {
    let inode = find_files(image, [PROGRAM])[PROGRAM].inode;
    let block_of = |page: usize| places.iter().find(|(at, _)| *at == page as u64).unwrap().1;
    let pages: Vec<usize> = HOT_PAGES.into_iter().flatten().collect();
    let mut blocks = Blocks::new(image);
    let runs = pages.iter().map(|page| BlockRange::new(block_of(*page), 1)).zip(&pages);
    let run = |(blocks, page): (BlockRange, &usize)| FileRun { page: *page as u64, blocks };
    let mut runs: Vec<FileRun> = runs.map(run).collect();
    let read = |(run, at): (&FileRun, u64)| Read { at: Nanos(at), blocks: run.blocks, cost: Nanos::ZERO };
    let reads: Vec<Read> = runs.iter().zip(1..).map(read).collect();
    let digests = runs.iter().map(|run| BlockDigest::of(blocks.block(run.blocks.start).unwrap())).collect();
    runs.sort_by_key(|run| run.page);
    Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        ended: Nanos(1000),
        reads,
        digests,
        files: vec![FileUse { path: PROGRAM.to_owned(), inode, runs }],
        ..Profile::default()
    }
}

/// Builds the tree in `root`, and gives it the hot pages of a start.
fn hot_image(scratch: &Path, root: &Path, content: &[u8]) -> Arc<Image> {
    let (cold_path, hot_path) = (scratch.join("cold.hsi"), scratch.join("hot.hsi"));
    let cold = image_of(root, None, &cold_path);
    let profile = profile(&cold, &places(&cold, content));
    profile.validate().unwrap();
    let options = OptimizeOptions { level: 1, threads: NonZeroUsize::MIN, ..OptimizeOptions::default() };
    optimize(&cold, Some(&cold_path), &[profile], &hot_path, &options, &|_| ()).unwrap();
    open(&hot_path)
}

#[test]
fn hot_blocks_follow_what_has_moved_within_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut random = Prng::new(76);
    let mut noise = |bytes: usize| {
        let mut noise = vec![0; bytes];
        random.fill(&mut noise);
        noise
    };
    let mut content = noise(60 * BLOCK);
    content[3 * BLOCK..4 * BLOCK].fill(0);
    fs::write(root.join("program"), &content).unwrap();
    let old = hot_image(scratch.path(), &root, &content);

    // Some bytes more in three places, of which two pages become zeros, and others in a page that is hot.
    let parts = [(0, 5), (5, 20), (20, 40), (40, 60)].map(|(from, to)| &content[from * BLOCK..to * BLOCK]);
    let mut new =
        [parts[0], &noise(700), parts[1], &vec![0; 3 * BLOCK], parts[2], &noise(9000), parts[3]].concat();
    let shift = |page: usize| match page {
        0..5 => 0,
        5..20 => 700,
        20..40 => 700 + 3 * BLOCK,
        _ => 700 + 3 * BLOCK + 9000,
    };
    new[9 * BLOCK + 700..][..100].copy_from_slice(&noise(100));
    fs::write(root.join("program"), &new).unwrap();
    let image = image_of(&root, Some(Arc::clone(&old)), &scratch.path().join("new.hsi"));
    let again = image_of(&root, Some(old), &scratch.path().join("again.hsi"));
    assert_eq!(again.superblock().image_digest(), image.superblock().image_digest());

    let mut expected = BTreeSet::new();
    for page in HOT_PAGES.into_iter().flatten() {
        let from = page * BLOCK + shift(page);
        expected.extend([(from / BLOCK) as u64, ((from + BLOCK).div_ceil(BLOCK) - 1) as u64]);
    }
    let places = places(&image, &new);
    let hot: BTreeSet<Lba> = (0..image.hot_chunk_count())
        .flat_map(|chunk| image.hot_extents(chunk).iter().copied().flat_map(BlockRange::blocks))
        .collect();
    let is_hot = |(page, block): &(u64, Lba)| hot.contains(block).then_some(*page);
    assert_eq!(places.iter().filter_map(is_hot).collect::<BTreeSet<_>>(), expected);
    // The warmer asks for pages of the file, which have these blocks.
    let mut warmed = BTreeSet::new();
    for hint in image.hints().filter(|hint| hint.inode != 0) {
        for (page, block) in
            (u64::from(hint.page)..).zip(BlockRange::new(hint.lba, hint.blocks.into()).blocks())
        {
            assert!(places.contains(&(page, block)), "page {page} is not block {}", block.0);
            warmed.insert(page);
        }
    }
    assert_eq!(warmed, expected);
}
