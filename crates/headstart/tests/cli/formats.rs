//! Disks in the formats of other programs, and what these programs say of them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use hs_units::Prng;

use crate::scene::{Scene, machine_has, run, tool};

const QEMU_IMG: &str = "/usr/bin/qemu-img";
const CREATE: &str = "/usr/bin/create_compressed_fs";
const EXTRACT: &str = "/usr/bin/extract_compressed_fs";

/// `extract_compressed_fs` divides by zero on a file of eight blocks; so disks have 20 and more.
const BLOCKS: usize = 20 * 16;

/// An image `disk.hsi` of a disk with text, noise and a zero middle, which is also in `disk.raw`.
fn image(scene: &Scene, blocks: usize) -> Vec<u8> {
    let mut disk = scene.raw("disk.raw", blocks, 5);
    let len = disk.len();
    disk[len / 4..len / 2].fill(0);
    Prng::new(9).fill(&mut disk[len / 2..len / 2 + 200_000]);
    fs::write(scene.path("disk.raw"), &disk).expect("written");
    run(["build", "--raw", &scene.arg("disk.raw"), "-o", &scene.arg("disk.hsi"), "--codec", "zstd:1"]).ok();
    disk
}

fn export(scene: &Scene, format: &str, more: &[&str]) -> serde_json::Value {
    let (from, to) = (scene.arg("disk.hsi"), scene.arg(format));
    let arguments = ["export", &from, "-o", &to, "--format", format, "--json"];
    run(arguments.iter().chain(more)).ok().json()
}

fn read(scene: &Scene, name: &str) -> Vec<u8> {
    fs::read(scene.path(name)).expect("read")
}

#[test]
fn a_raw_export_is_the_disk_with_holes() {
    let scene = Scene::new();
    // Not a whole number of clusters.
    let disk = image(&scene, BLOCKS + 5);
    let exported = export(&scene, "raw", &[]);
    assert_eq!((&exported["disk_bytes"], &exported["file_bytes"]), (&disk.len().into(), &disk.len().into()));
    assert!(read(&scene, "raw") == disk);
    let allocated = fs::metadata(scene.path("raw")).expect("metadata").blocks() * 512;
    assert!(allocated < disk.len() as u64 * 9 / 10, "{allocated} of {}", disk.len());
    // A file that was there is replaced where that is asked for, by as many threads as are asked for.
    fs::write(scene.path("raw"), "old").expect("written");
    export(&scene, "raw", &["--threads", "5", "--force"]);
    assert!(read(&scene, "raw") == disk);
    assert_eq!(scene.names(), ["disk.hsi", "disk.raw", "raw"]);
}

#[test]
fn a_cloop_export_comes_back_by_import() {
    let scene = Scene::new();
    let mut disk = image(&scene, BLOCKS + 5);
    let exported = export(&scene, "cloop", &[]);
    disk.resize(disk.len().next_multiple_of(65_536), 0);
    assert_eq!(exported["shown_bytes"], disk.len());
    fs::write(scene.path("padded.raw"), &disk).expect("written");
    let arguments =
        ["import", &scene.arg("cloop"), "-o", &scene.arg("back.hsi"), "--codec", "lz4:0", "--json"];
    let imported = run(arguments).ok().json();
    assert_eq!(imported["disk_bytes"], disk.len());
    run(["verify", &scene.arg("back.hsi"), "--against", &scene.arg("padded.raw")]).ok();
}

#[test]
fn foreign_programs_read_our_cloop_and_qcow2() {
    if !machine_has(&[QEMU_IMG, EXTRACT]) {
        return;
    }
    for blocks in [BLOCKS, BLOCKS + 5] {
        let scene = Scene::new();
        let disk = image(&scene, blocks);
        let mut padded = disk.clone();
        padded.resize(disk.len().next_multiple_of(65_536), 0);
        export(&scene, "cloop", &[]);
        tool(EXTRACT, &[&scene.arg("cloop"), &scene.arg("extracted")]);
        assert!(read(&scene, "extracted") == padded, "extract_compressed_fs, {blocks} blocks");
        let convert = |format: &str| {
            let (from, to) = (scene.arg(format), scene.arg("converted"));
            tool(QEMU_IMG, &["convert", "-f", format, "-O", "raw", &from, &to]);
            read(&scene, "converted")
        };
        assert!(convert("cloop") == padded, "qemu-img on cloop, {blocks} blocks");
        for more in [&[][..], &["--compress"]] {
            let exported = export(&scene, "qcow2", more);
            let file_bytes = fs::metadata(scene.path("qcow2")).expect("metadata").len();
            assert_eq!(exported["file_bytes"], file_bytes);
            tool(QEMU_IMG, &["check", "-f", "qcow2", &scene.arg("qcow2")]);
            assert!(convert("qcow2") == disk, "qemu-img on qcow2, {blocks} blocks, {more:?}");
        }
    }
}

/// More than one table of clusters (512 MiB each), with nothing in the first.
#[test]
fn a_large_sparse_disk_becomes_a_small_qcow2() {
    if !machine_has(&[QEMU_IMG]) {
        return;
    }
    let scene = Scene::new();
    let raw = fs::File::create(scene.path("disk.raw")).expect("a file");
    raw.set_len(3 << 30).expect("a length");
    let mut bytes = vec![0; 300_000];
    Prng::new(1).fill(&mut bytes);
    for offset in [600 << 20, (3_u64 << 30) - 300_000] {
        std::os::unix::fs::FileExt::write_all_at(&raw, &bytes, offset).expect("written");
    }
    run(["build", "--raw", &scene.arg("disk.raw"), "-o", &scene.arg("disk.hsi"), "--codec", "zlib:9"]).ok();
    for more in [&[][..], &["--compress"]] {
        let exported = export(&scene, "qcow2", more);
        assert!(exported["file_bytes"].as_u64().is_some_and(|bytes| bytes < 2 << 20), "{exported}");
        tool(QEMU_IMG, &["check", "-f", "qcow2", &scene.arg("qcow2")]);
        tool(QEMU_IMG, &["compare", "-f", "raw", "-F", "qcow2", &scene.arg("disk.raw"), &scene.arg("qcow2")]);
    }
}

#[test]
fn a_cloop_by_foreign_hands_is_imported() {
    if !machine_has(&[CREATE]) {
        return;
    }
    let scene = Scene::new();
    image(&scene, BLOCKS);
    for block_bytes in ["65536", "131072", "1024"] {
        let (raw, cloop, hsi) = (scene.arg("disk.raw"), scene.arg("theirs.cloop"), scene.arg("imported.hsi"));
        tool(CREATE, &["-q", "-B", block_bytes, &raw, &cloop]);
        let ran = run(["import", &cloop, "-o", &hsi, "--codec", "zlib:9", "--window", "64K"]).ok();
        assert!(ran.stdout.contains("imported.hsi"), "{ran:?}");
        run(["verify", &hsi, "--against", &raw]).ok();
        run(["build", &cloop, "-o", &scene.arg("as-is.hsi")]).fails(1, &["a cloop file", "headstart import"]);
    }
}

#[test]
fn damaged_cloop_files_are_refused_and_leave_nothing() {
    let scene = Scene::new();
    image(&scene, BLOCKS);
    export(&scene, "cloop", &[]);
    let good = read(&scene, "cloop");
    let import = |bytes: &[u8], words: &[&str]| {
        fs::write(scene.path("bad.cloop"), bytes).expect("written");
        run(["import", &scene.arg("bad.cloop"), "-o", &scene.arg("bad.hsi")]).fails(1, words);
        assert!(!scene.path("bad.hsi").exists());
    };
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    import(&[], &["bad.cloop", "not a cloop file"]);
    import(&good[..100], &["bad.cloop", "expected at least 136", "found 100"]);
    import(&good[..good.len() - 1], &["bad.cloop", "block 19", "expected it in bytes"]);
    import(&patched(12, b"4"), &["bad.cloop", "version 4", "expected version 2 or 3"]);
    import(&patched(128, &[0xff]), &["bad.cloop", "bytes of a block", "found 4278255616"]);
    import(&patched(133, &[0x7f]), &["bad.cloop", "expected at least", "found"]);
    import(&patched(144, &[0xff; 8]), &["bad.cloop", "block 0", "expected it in bytes"]);
    import(&patched(good.len() - 2, &[1, 2]), &["bad.cloop", "block 19", "expected", "65536", "found"]);
    assert_eq!(scene.names(), ["bad.cloop", "cloop", "disk.hsi", "disk.raw"]);
    fs::write(scene.path("disk.qcow2"), b"QFI\xfb\0\0\0\x03").expect("written");
    run(["import", &scene.arg("disk.qcow2"), "-o", &scene.arg("bad.hsi")])
        .fails(1, &["disk.qcow2", "qcow2", "headstart build"]);
}

#[test]
fn exporting_a_damaged_image_leaves_nothing() {
    let scene = Scene::new();
    image(&scene, BLOCKS);
    let mut damaged = read(&scene, "disk.hsi");
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(scene.path("damaged.hsi"), damaged).expect("written");
    for format in ["raw", "cloop", "qcow2"] {
        let arguments = [
            "export",
            &scene.arg("damaged.hsi"),
            "-o",
            &scene.arg("out"),
            "--format",
            format,
            "--threads",
            "3",
        ];
        run(arguments).fails(1, &["damaged.hsi", "cold window", "expected digest"]);
    }
    run(["export", &scene.arg("disk.hsi"), "-o", &scene.arg("out"), "--format", "raw", "--compress"])
        .fails(1, &["--compress", "qcow2"]);
    run(["export", &scene.arg("disk.hsi"), "-o", "/dev/null", "--format", "raw"])
        .fails(1, &["/dev/null", "device"]);
    assert_eq!(scene.names(), ["damaged.hsi", "disk.hsi", "disk.raw"]);
}
