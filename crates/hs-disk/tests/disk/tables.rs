//! The tables of a file system that a folder became come before they are asked for, where no profile says
//! what a start reads.

use std::path::Path;
use std::sync::Arc;

use hs_disk::ServedDisk;
use hs_format::Features;
use hs_image::Image;
use hs_units::BLOCK_BYTES;

use crate::sample::{fast_build, open, source};
use crate::served::{begin, reads, streaming};

/// An image of a folder with so many files.
fn image_of_files(folder: &Path, files: usize) -> Arc<Image> {
    let root = folder.join("root");
    std::fs::create_dir(&root).expect("a folder");
    for file in 0..files {
        std::fs::write(root.join(format!("a-name-that-takes-its-place-{file:05}")), b"x").expect("a file");
    }
    let image = folder.join("tree.hsi");
    hs_build::build(&source(&root), &image, &fast_build(8192, 1), &|_| {}).expect("built");
    open(&image)
}

// R38
#[test]
fn tables_come_first_and_other_blocks_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = image_of_files(folder.path(), 600);
    let table_blocks = image.superblock().features.table_blocks();
    assert!((40..image.superblock().disk_blocks() - 500).contains(&table_blocks), "{table_blocks}");
    let options = streaming(reads(2, 8 << 20), 1 << 20);
    let disk = ServedDisk::of_image(image, &options, None).expect("threads can be started");
    begin(&disk, None);
    let mut block = vec![0; BLOCK_BYTES as usize];
    for number in 0..table_blocks {
        disk.read_at(number * BLOCK_BYTES, &mut block).expect("the read succeeds");
    }
    let figures = disk.stats();
    assert!(figures.background_bytes > 0, "{figures:?}");
    assert_eq!(figures.background_used_bytes, figures.background_bytes, "{figures:?}");
}

#[test]
fn the_number_of_table_blocks_leaves_other_features_as_they_are() {
    let features = Features { incompat: 1, compat: 5 | 1 << 60 };
    let with_tables = features.of_tables(77);
    assert_eq!((with_tables.table_blocks(), with_tables.incompat), (77, 1));
    assert_eq!(with_tables.of_tables(0), features);
    assert_eq!(features.of_tables(u64::MAX).table_blocks(), (1 << 24) - 1);
}
