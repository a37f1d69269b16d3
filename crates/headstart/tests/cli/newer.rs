//! What this program says of files that a later version could make. It is the older program then, and these
//! are its words: docs/FORMAT.md, "What version 1 promises", has them.

use std::fs;

use hs_format::{ColdRoot, HotIndex, LeafRef, Superblock, Unverified, chunk_digest};
use hs_units::ByteRange;

use crate::golden::{kept, unpack_disk};
use crate::nbd::{end, serve};
use crate::nbd_writer::NbdWriter;
use crate::scene::{Scene, run};

const PROMISES: &str = include_str!("../../../../docs/FORMAT.md");
const SUPERBLOCK: usize = 4096;
const CHECKSUM: usize = 4064;
const ROOT_DIGEST: usize = 80 + 56;
const FIRST_SLOT: usize = 176;

/// Makes the checksum of a superblock, or of a pack's header, right.
fn seal(block: &mut [u8]) {
    let checksum = chunk_digest(&block[..CHECKSUM]);
    block[CHECKSUM..SUPERBLOCK].copy_from_slice(&checksum.0);
}

/// The same of both superblocks of an image, the second of which becomes the first.
fn seal_image(image: &mut [u8]) {
    seal(&mut image[..SUPERBLOCK]);
    let mirror = image.len() - SUPERBLOCK;
    image.copy_within(..SUPERBLOCK, mirror);
}

/// Changes a file, and says its name for arguments.
fn changed(scene: &Scene, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = fs::read(scene.path(name)).expect("read");
    change(&mut bytes);
    fs::write(scene.path(name), bytes).expect("written");
    scene.arg(name)
}

/// The words that FORMAT.md promises.
fn promised(words: &str) -> &str {
    assert!(PROMISES.contains(words), "docs/FORMAT.md has no '{words}'");
    words
}

/// No command takes the image, and none makes or serves anything of it.
fn nothing_is_served(scene: &Scene, image: &str, words: &str) {
    let (out, profile, socket) = (scene.arg("out"), scene.arg("start.hsp"), scene.arg("socket"));
    let before = scene.names();
    for command in [
        &["verify", image][..],
        &["inspect", image],
        &["export", image, "-o", &out, "--format", "raw"],
        &["optimize", image, "-p", &profile, "-o", &out],
        &["serve", image, "--nbd", &format!("unix:{socket}")],
        &["serve", image, "--http", "localhost:0"],
    ] {
        run(command).fails(1, &[promised(words)]);
    }
    assert_eq!(scene.names(), before);
}

#[test]
fn a_newer_image_is_refused() {
    let words = "superblock: expected format version 1, found 2: use a newer headstart";
    let scene = kept(&["hot.hsi", "start.hsp"]);
    // All else may be other as well: the version is looked at first, and the mirror does not count.
    let newer = changed(&scene, "hot.hsi", |image| {
        image[8] = 2;
        image[16..SUPERBLOCK].fill(0xff);
    });
    nothing_is_served(&scene, &newer, words);
}

#[test]
fn an_unknown_incompatible_feature_is_refused() {
    let words = "superblock: expected only the incompatible features 0x000000000000000f, found \
                 0x0000000000000010: use a newer headstart";
    let scene = kept(&["hot.hsi", "start.hsp"]);
    let newer = changed(&scene, "hot.hsi", |image| {
        image[16] |= 16;
        // The feature gives this a meaning.
        image[1900] = 7;
        seal(&mut image[..SUPERBLOCK]);
    });
    nothing_is_served(&scene, &newer, words);
}

#[test]
fn unknown_compatible_features_and_signatures_are_passed_over() {
    let scene = kept(&["hot.hsi", "zstd.hsi"]);
    let newer = changed(&scene, "hot.hsi", |image| {
        let flags = u64::from_le_bytes(image[24..32].try_into().expect("eight")) | 0xffff_ff00_0000_f000;
        image[24..32].copy_from_slice(&flags.to_le_bytes());
        image[3984] = 9;
        image[3992..4064].fill(0xab);
        seal_image(image);
    });
    run(["verify", &newer]).ok();
    let disk = |name: &str| {
        let words = ["-q", "export", &scene.arg(name), "-o", &scene.arg("raw"), "--format", "raw", "--force"];
        let ran = run(words).ok();
        assert_eq!(ran.stderr, "", "it says nothing");
        fs::read(scene.path("raw")).expect("exported")
    };
    assert!(disk("hot.hsi") == disk("zstd.hsi"));
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(Unverified::new(&image[..SUPERBLOCK])).expect("version 1")
}

fn part(image: &mut [u8], range: ByteRange) -> &mut [u8] {
    &mut image[range.offset as usize..range.end() as usize]
}

const NEW_CODEC: &str =
    "expected codec 1 (store), 2 (zstd), 3 (lz4), 4 (zlib) or 5 (composed), found 6: use a newer headstart";

#[test]
fn windows_of_an_unknown_codec_are_not_read() {
    let scene = kept(&["zstd.hsi"]);
    let newer = changed(&scene, "zstd.hsi", |image| {
        let cold = superblock(image).cold;
        let leaves = ByteRange::new(cold.leaves_offset, cold.root.offset - cold.leaves_offset);
        let leaf = part(image, cold.in_file(leaves));
        leaf[12] = 6;
        let digest = LeafRef::digest_of(leaf);
        let root = part(image, cold.in_file(cold.root));
        assert_eq!(root.len(), 48, "one leaf");
        root[16..48].copy_from_slice(&digest.0);
        let digest = ColdRoot::digest_of(root);
        image[ROOT_DIGEST..ROOT_DIGEST + 32].copy_from_slice(&digest.0);
        seal_image(image);
    });
    let words = format!("cold index leaf 0: {NEW_CODEC}");
    let out = scene.arg("out");
    run(["verify", &newer]).fails(1, &[promised(&words)]);
    run(["export", &newer, "-o", &out, "--format", "raw"]).fails(1, &[&words]);
    assert_eq!(scene.names(), ["zstd.hsi"]);
    // A server gives errors, and never bytes.
    let server = serve(&scene, &["--unsupervised", &newer]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    for block in 0..client.bytes / 4096 {
        assert!(client.cannot_read(block * 4096, 4096), "block {block}");
    }
    end(server);
}

#[test]
fn a_hot_region_of_an_unknown_codec_is_refused() {
    let scene = kept(&["hot.hsi", "start.hsp"]);
    let newer = changed(&scene, "hot.hsi", |image| {
        let at = superblock(image).hot[0].index;
        let index = part(image, at);
        index[32 + 16] = 6;
        let digest = HotIndex::digest_of(index);
        image[FIRST_SLOT + 40..FIRST_SLOT + 72].copy_from_slice(&digest.0);
        seal_image(image);
    });
    promised("hot index at byte 4096");
    nothing_is_served(&scene, &newer, NEW_CODEC);
}

#[test]
fn a_newer_pack_is_refused() {
    let newer = [
        (8, "pack: expected format version 1, found 3: use a newer headstart"),
        (16, "pack: expected kind of the disk in 1..=2, found 3"),
        (18, "pack: expected trust in 1..=2, found 3"),
    ];
    for (at, words) in newer {
        let scene = kept(&["hot.hsi", "whole.hspk", "start.hsp"]);
        unpack_disk(&scene);
        let pack = changed(&scene, "whole.hspk", |pack| {
            pack[at] = 3;
            seal(&mut pack[..SUPERBLOCK]);
        });
        nothing_is_served(&scene, &pack, words);
    }
}

#[test]
fn a_newer_overlay_is_refused() {
    let words =
        promised("it is an overlay of version 2, and this program knows version 1: use a newer headstart");
    // A writer of a later version may have been cut off between its two superblocks.
    for slots in [&[0][..], &[SUPERBLOCK], &[0, SUPERBLOCK]] {
        let scene = kept(&["hot.hsi", "changes.hsk.zst"]);
        let changes = changed(&scene, "changes.hsk", |file| {
            slots.iter().for_each(|slot| file[slot + 8] = 2);
            hs_overlay::forge::seal(file);
        });
        let before = fs::read(&changes).expect("read");
        let (image, out, socket) = (scene.arg("hot.hsi"), scene.arg("out"), scene.arg("socket"));
        for command in [
            &["commit", &image, &changes, "-o", &out][..],
            &["serve", "--keep", &changes, &image, "--nbd", &format!("unix:{socket}")],
            &["overlay", "list", &changes],
            &["overlay", "check", &changes],
            &["overlay", "snapshot", &changes, "late"],
            &["overlay", "revert", &changes, "early"],
            &["overlay", "compact", &changes],
        ] {
            run(command).fails(1, &[words]);
        }
        assert_eq!(scene.names(), ["changes.hsk", "hot.hsi"]);
        assert!(fs::read(&changes).expect("read") == before, "it stays as it is");
    }
}

#[test]
fn a_newer_profile_is_refused() {
    let newer = [
        (8, 2, "profile version 2 is not known here (known: 1); use a newer headstart"),
        (12, 4, "the profile's header has unknown flags 0x4"),
    ];
    for (at, bits, words) in newer {
        let scene = kept(&["zstd.hsi", "start.hsp"]);
        let profile = changed(&scene, "start.hsp", |profile| {
            profile[at] = if at == 8 { bits } else { profile[at] | bits };
            let digest = chunk_digest(&profile[..224]);
            profile[224..256].copy_from_slice(&digest.0);
        });
        let (image, out) = (scene.arg("zstd.hsi"), scene.arg("out"));
        run(["inspect", &profile]).fails(1, &[promised(words)]);
        run(["optimize", &image, "-p", &profile, "-o", &out]).fails(1, &[words]);
        assert_eq!(scene.names(), ["start.hsp", "zstd.hsi"]);
    }
}

#[test]
fn a_newer_pointer_is_refused() {
    let scene = kept(&["hot.hsi", "stable.minisig", "publisher.pub"]);
    let pointer = changed(&scene, "stable.minisig", |pointer| {
        let text = String::from_utf8_lossy(pointer).replace("headstart-pointer-1", "headstart-pointer-2");
        *pointer = text.into_bytes();
    });
    let words = promised("it is of another form than headstart-pointer-1: use a newer headstart");
    let public = scene.arg("publisher.pub");
    let text = fs::read_to_string(&public).expect("a key");
    let address = format!("{pointer}#key={}", text.lines().nth(1).expect("a key"));
    let (image, out) = (scene.arg("hot.hsi"), scene.arg("out"));
    run(["verify", &image, "--key", &public, "--signature", &pointer]).fails(1, &[words]);
    run(["export", &address, "-o", &out, "--format", "raw", "--channel-state", "none"]).fails(1, &[words]);
    assert!(!scene.path("out").exists());
}
