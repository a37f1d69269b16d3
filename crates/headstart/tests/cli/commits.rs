//! `headstart commit`: a disk and what was written to it become an image.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hs_format::WindowRef;
use hs_image::Image;
use hs_store::FileStore;
use hs_units::Prng;

use crate::images::write_profile;
use crate::kept_roots::{check, machine, roomy, run_in};
use crate::mounts::umount;
use crate::nbd::{end, holed, serve};
use crate::nbd_writer::NbdWriter;
use crate::scene::{Ran, Scene, mount, run, tool};

const BLOCK: usize = 4096;
const WINDOW: usize = 131_072;

fn open(scene: &Scene, name: &str) -> Image {
    let store = FileStore::open(scene.path(name)).expect("the file");
    Image::open(Arc::new(store)).expect("an image")
}

fn commit(scene: &Scene, image: &str, output: &str, more: &[&str]) -> Ran {
    let words = ["-q", "commit", &scene.arg(image), &scene.arg("changes"), "-o", &scene.arg(output)];
    run(words.iter().chain(more))
}

/// Serves a disk with changes, and has a client write to it.
fn write(scene: &Scene, image: &str, what: impl FnOnce(&mut NbdWriter)) {
    let server = serve(scene, &["--unsupervised", "--keep", &scene.arg("changes"), &scene.arg(image)]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    what(&mut client);
    assert_eq!(client.flush().expect("answered"), 0);
    end(server);
}

/// A scene with `fast.hsi`, whose hot region has three chunks, and its disk.
fn scene_of_changes() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let disk = holed(&scene, "disk.hsi");
    let order = (10..18).chain(90..98).chain((200..216).rev());
    write_profile(&scene, "start.hsp", "disk.hsi", &disk, order);
    let (image, profile, fast) = (scene.arg("disk.hsi"), scene.arg("start.hsp"), scene.arg("fast.hsi"));
    let chunks = ["--first-chunk", "32K", "--max-chunk", "32K"];
    run(["optimize", &image, "-p", &profile, "-o", &fast].iter().copied().chain(chunks)).ok();
    (scene, disk)
}

/// What `new` has of the chunks of `old`: of cold windows, and of hot chunks.
fn kept_chunks(old: &Image, new: &Image) -> (Vec<u64>, Vec<u32>) {
    let digest = |image: &Image, window| match image.window(window).expect("the index") {
        WindowRef::Chunk(chunk) => Some(chunk.digest),
        WindowRef::Zero => None,
    };
    let windows = 0..old.superblock().windows();
    let cold = windows.filter(|window| digest(old, *window) == digest(new, *window)).collect();
    assert_eq!(old.hot_chunk_count(), new.hot_chunk_count());
    let hot = (0..old.hot_chunk_count()).filter(|chunk| {
        assert_eq!(old.hot_extents(*chunk), new.hot_extents(*chunk));
        old.hot_chunk(*chunk).0.digest == new.hot_chunk(*chunk).0.digest
    });
    (cold, hot.collect())
}

#[test]
fn what_did_not_change_is_copied() {
    let (scene, mut disk) = scene_of_changes();
    let raw = scene.arg("new.raw");
    write(&scene, "fast.hsi", |client| {
        assert_eq!(client.write(0, 0, &vec![7; 9 * BLOCK + 5]).expect("answered"), 0);
        disk[..9 * BLOCK + 5].fill(7);
    });
    run(["overlay", "snapshot", &scene.arg("changes"), "early"]).ok();
    let early = disk.clone();
    write(&scene, "fast.hsi", |client| {
        let (hole, middle) = (300 * BLOCK, 92 * BLOCK);
        assert_eq!(client.write(0, hole as u64, b"in the hole").expect("answered"), 0);
        disk[hole..hole + 11].copy_from_slice(b"in the hole");
        assert_eq!(client.trim(middle as u64, 3 * BLOCK as u32).expect("answered"), 0);
        disk[middle..middle + 3 * BLOCK].fill(0);
        assert_eq!(client.zero(0, 512 * BLOCK as u64, WINDOW as u32).expect("answered"), 0);
        disk[512 * BLOCK..512 * BLOCK + WINDOW].fill(0);
    });
    let before = fs::read(scene.path("changes")).expect("the changes");
    let built = commit(&scene, "fast.hsi", "new.hsi", &["--json"]).ok().json();
    fs::write(&raw, &disk).expect("written");
    run(["verify", &scene.arg("new.hsi"), "--against", &raw]).ok();
    // Windows 0, 2, 9 and 16 of 22 were written to, and the second of four hot chunks.
    let (cold, hot) = kept_chunks(&open(&scene, "fast.hsi"), &open(&scene, "new.hsi"));
    assert_eq!(cold, (0..22).filter(|window| ![0, 2, 9, 16].contains(window)).collect::<Vec<_>>());
    assert_eq!(hot, [0, 2, 3]);
    assert_eq!(built["hot_bytes"], 32 * BLOCK);
    // The same again is the same bytes; without changes it is the image itself.
    commit(&scene, "fast.hsi", "again.hsi", &[]).ok();
    assert!(
        fs::read(scene.path("again.hsi")).expect("read") == fs::read(scene.path("new.hsi")).expect("read")
    );
    assert!(fs::read(scene.path("changes")).expect("read") == before, "the changes are what they were");

    // As it was when the snapshot was taken.
    commit(&scene, "fast.hsi", "early.hsi", &["--snapshot", "early"]).ok();
    fs::write(&raw, &early).expect("written");
    run(["verify", &scene.arg("early.hsi"), "--against", &raw]).ok();
    commit(&scene, "fast.hsi", "none.hsi", &["--snapshot", "late"])
        .fails(1, &["changes", "no snapshot 'late'"]);

    // The new image with no changes is the old one with its own.
    fs::rename(scene.path("changes"), scene.path("old-changes")).expect("renamed");
    write(&scene, "new.hsi", |client| assert!(client.read(0, disk.len() as u32).expect("read") == disk));
    commit(&scene, "new.hsi", "same.hsi", &[]).ok();
    assert!(
        fs::read(scene.path("same.hsi")).expect("read") == fs::read(scene.path("new.hsi")).expect("read")
    );
}

#[test]
fn a_delta_is_its_changes() {
    let (scene, mut disk) = scene_of_changes();
    Prng::new(5).fill(&mut disk[600 * BLOCK..604 * BLOCK]);
    write(&scene, "fast.hsi", |client| {
        let bytes = &disk[600 * BLOCK..604 * BLOCK];
        assert_eq!(client.write(0, 600 * BLOCK as u64, bytes).expect("answered"), 0);
    });
    let built = commit(&scene, "disk.hsi", "new.hsi", &["--delta", "--json"]).ok().json();
    assert_eq!(built["composed_windows"], 14, "each window with data");
    let size = fs::metadata(scene.path("new.hsi")).expect("there").len();
    assert!((4 * BLOCK as u64..16 * BLOCK as u64).contains(&size), "{size}");
    let (raw, new, base) = (scene.arg("new.raw"), scene.arg("new.hsi"), scene.arg("disk.hsi"));
    fs::write(&raw, &disk).expect("written");
    run(["verify", &new, "--against", &raw, "--base", &base]).ok();
    // Hot chunks are whole, and the base may be another image of the disk.
    commit(&scene, "fast.hsi", "hot.hsi", &["--delta"]).ok();
    run(["verify", &scene.arg("hot.hsi"), "--against", &raw, "--base", &base]).ok();

    // Of a delta: its base stays, and no second level is made.
    fs::remove_file(scene.path("changes")).expect("removed");
    let more = ["--unsupervised", "--base", &base, "--keep", &scene.arg("changes"), &scene.arg("hot.hsi")];
    let server = serve(&scene, &more);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    assert_eq!(client.write(1, 11 * BLOCK as u64, &[9; BLOCK]).expect("answered"), 0);
    end(server);
    disk[11 * BLOCK..12 * BLOCK].fill(9);
    fs::write(&raw, &disk).expect("written");
    commit(&scene, "hot.hsi", "next.hsi", &["--base", &base]).ok();
    run(["verify", &scene.arg("next.hsi"), "--against", &raw, "--base", &base]).ok();
    let twice = commit(&scene, "hot.hsi", "twice.hsi", &["--base", &base, "--delta"]);
    twice.fails(1, &["hot.hsi", "cannot be a base"]);
}

#[test]
fn the_hot_region_of_a_delta_is_that_of_its_base() {
    let (scene, mut disk) = scene_of_changes();
    // A block of the second hot chunk.
    Prng::new(5).fill(&mut disk[92 * BLOCK..93 * BLOCK]);
    write(&scene, "fast.hsi", |client| {
        let bytes = &disk[92 * BLOCK..93 * BLOCK];
        assert_eq!(client.write(0, 92 * BLOCK as u64, bytes).expect("answered"), 0);
    });
    let built = commit(&scene, "fast.hsi", "delta.hsi", &["--delta", "--json"]).ok().json();
    assert_eq!(built["hot_bytes"], 32 * BLOCK);
    // Of the second chunk the block alone is stored, though the rest of the chunk is hot too.
    assert!(built["hot_compressed_bytes"].as_u64() < Some(2 * BLOCK as u64), "{built}");
    let (raw, delta, fast) = (scene.arg("new.raw"), scene.arg("delta.hsi"), scene.arg("fast.hsi"));
    fs::write(&raw, &disk).expect("written");
    assert_eq!(run(["inspect", "--json", &delta]).ok().json()["borrowed_chunks"], 4);
    let verify = |base: &str| run(["verify", &delta, "--against", &raw, "--base", base, "--json"]).ok();
    assert_eq!(verify(&fast).json()["hot_chunks"], 5);
    assert_eq!(open(&scene, "delta.hsi").hot_bytes(2), 7 * BLOCK as u32);
    // Another image of the base's disk has the disk, and not the chunks.
    let cold = verify(&scene.arg("disk.hsi"));
    assert_eq!(cold.json()["hot_chunks"], 1);
    assert!(cold.stderr.contains("disk.hsi has not 4 of the hot chunks"), "{}", cold.stderr);
    // A server reads both, whatever the base has in place of a borrowed chunk.
    let read = |base: &str| {
        let server = serve(&scene, &["--unsupervised", "--base", base, &delta]);
        let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
        let found = client.read(0, disk.len() as u32).expect("read");
        end(server);
        assert!(found == disk, "{base}");
    };
    read(&fast);
    read(&scene.arg("disk.hsi"));
    let lent = open(&scene, "fast.hsi").hot_chunk(0).1;
    let file = File::options().write(true).open(&fast).expect("opened");
    file.write_all_at(&[0xff; 40], lent.offset + 9).expect("written");
    run(["verify", &delta, "--base", &fast]).fails(1, &["delta.hsi", "hot chunk 0", "digest"]);
    read(&fast);
}

#[test]
fn what_is_not_the_disks_changes_is_refused() {
    let (scene, _) = scene_of_changes();
    let changes = scene.arg("changes");
    commit(&scene, "fast.hsi", "new.hsi", &[]).fails(1, &["changes", "No such file"]);
    let server = serve(&scene, &["--unsupervised", "--keep", &changes, &scene.arg("fast.hsi")]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    assert_eq!(client.write(1, 0, &vec![4; 256 * BLOCK]).expect("answered"), 0);
    commit(&scene, "fast.hsi", "new.hsi", &[]).fails(1, &["changes", "in use by another process"]);
    end(server);
    scene.image("other.hsi", 320, 51);
    commit(&scene, "other.hsi", "new.hsi", &[]).fails(1, &["changes", "belongs to another disk"]);
    commit(&scene, "fast.hsi", "changes", &["--force"]).fails(1, &["changes", "which is read"]);
    commit(&scene, "fast.hsi", "fast.hsi", &["--force"]).fails(1, &["fast.hsi", "which is read"]);
    // A block that the medium has changed, and a map that it has.
    let whole = fs::read(&changes).expect("read");
    let blocks = 16..whole.len() / BLOCK;
    let place = blocks.clone().find(|block| whole[block * BLOCK..(block + 1) * BLOCK] == [4; BLOCK]);
    let file = File::options().write(true).open(&changes).expect("opened");
    file.write_all_at(&[9; 100], (place.expect("it is there") * BLOCK) as u64).expect("written");
    commit(&scene, "fast.hsi", "new.hsi", &[]).fails(1, &["1 of 256 blocks are not what was written"]);
    file.write_all_at(&vec![0xff; 16 * BLOCK], 0).expect("written");
    commit(&scene, "fast.hsi", "new.hsi", &[]).fails(1, &["changes", "it is no overlay"]);
    assert!(!scene.path("new.hsi").exists());
}

#[test]
fn a_root_that_was_changed_is_an_image() {
    if !machine() {
        return;
    }
    let scene = Scene::new();
    let image = roomy(&scene);
    let script = "mkdir /var/lib; i=0; while [ $i -lt 40 ]; do cp /bin/busybox /var/lib/$i.new; \
                  busybox mv /var/lib/$i.new /var/lib/$((i % 7)); i=$((i + 1)); done; echo kept >/etc/new";
    run_in(&scene, &[], &format!("export PATH=/bin; busybox --install -s /bin; {script}")).ok();
    check(&scene);
    let (new, dir) = (scene.arg("new.hsi"), scene.arg("dir"));
    commit(&scene, "root.hsi", "new.hsi", &[]).ok();
    run(["-q", "mount", &image, &dir, "--keep", &scene.arg("changes")]).ok();
    run(["verify", &new, "--against", &scene.arg("dir/disk.img")]).ok();
    umount(&dir);
    mount(&scene, &[&new, &dir]).ok();
    tool("e2fsck", &["-fn", &scene.arg("dir/disk.img")]).ok();
    umount(&dir);
    let ran = run(["-q", "run", &new, "--", "/bin/cat", "/etc/new"]).ok();
    assert_eq!(ran.stdout, "kept\n");
    scene.wait_until_clean();
}
