//! `headstart pack`: a hot region for a disk that is not converted.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::boots::boot;
use crate::images::write_profile;
use crate::mounts::umount;
use crate::nbd::{self, serve, uri};
use crate::nbd_writer::NbdWriter;
use crate::qemu_boots::{QEMU, linux_guest};
use crate::scene::{Running, START, Scene, has_tools, machine_has, mount, run, tool};
use crate::vhost;
use crate::web::{NGINX, Nginx, remote, run_remote};

const BLOCK: usize = 4096;
const WINDOW: usize = 131_072;
/// Of the disk; the last window is shorter.
const BLOCKS: usize = 700;
/// What the recorded start reads, in its order.
const HOT: std::ops::Range<u64> = 330..410;

/// A scene with a disk that has a hole, its qcow2 file, and a profile of a start of it.
fn packed() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let mut disk = scene.raw("disk.raw", BLOCKS, 71);
    disk[64 * BLOCK..192 * BLOCK].fill(0);
    fs::write(scene.path("disk.raw"), &disk).expect("written");
    pack(&scene, "disk.raw", "plain.hspk", &[]);
    write_profile(&scene, "start.hsp", "plain.hspk", &disk, HOT);
    (scene, disk)
}

fn pack(scene: &Scene, of: &str, name: &str, flags: &[&str]) -> Value {
    let (disk, pack) = (scene.arg(of), scene.arg(name));
    run([&["pack", &disk, "-o", &pack, "--json"], flags].concat()).ok().json()
}

/// A pack with a hot region.
fn hot(scene: &Scene, of: &str, name: &str, flags: &[&str]) -> Value {
    pack(scene, of, name, &[&["-p", &scene.arg("start.hsp")], flags].concat())
}

fn change(scene: &Scene, name: &str, at: usize) {
    let file = fs::File::options().read(true).write(true).open(scene.path(name)).expect("the disk");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at as u64).expect("read");
    file.write_all_at(&[byte[0] ^ 1], at as u64).expect("written");
}

#[test]
fn a_pack_with_its_disk_is_an_image() {
    let (scene, disk) = packed();
    let made = hot(&scene, "disk.raw", "hot.hspk", &[]);
    assert_eq!((&made["trust"], &made["hot_bytes"]), (&"whole".into(), &(80 * BLOCK).into()));
    let size = fs::metadata(scene.path("hot.hspk")).expect("there").len();
    assert_eq!(made["pack_bytes"], size);
    assert!(size < 80 * BLOCK as u64, "{size} bytes, where the disk has {}", disk.len());
    let (hot_pack, raw, out) = (scene.arg("hot.hspk"), scene.arg("disk.raw"), scene.arg("out"));

    // The same disk in another place, and in another file.
    run(["build", "--raw", &raw, "-o", &scene.arg("whole.hsi"), "--codec", "zstd:1"]).ok();
    let of = |name: &str| run(["inspect", "--json", &scene.arg(name)]).ok().json();
    assert_eq!(of("hot.hspk")["disk_digest"], of("whole.hsi")["disk_digest"]);
    assert_eq!(
        (&of("hot.hspk")["kind"], &of("hot.hspk")["packed_disk"]),
        (&"pack".into(), &"disk.raw".into())
    );
    run(["verify", &hot_pack, "--against", &raw]).ok();
    run(["export", &hot_pack, "-o", &out, "--format", "raw"]).ok();
    assert!(fs::read(&out).expect("read") == disk);
    scene.folder("elsewhere");
    fs::rename(scene.path("disk.raw"), scene.path("elsewhere/moved.raw")).expect("moved");
    run(["verify", &hot_pack]).fails(1, &["hot.hspk", "disk.raw", "beside the pack, or name it by --base"]);
    run(["verify", &hot_pack, "--base", &scene.arg("elsewhere/moved.raw")]).ok();

    // What `optimize` adds to a pack, and `pack` makes at once, is the same.
    fs::rename(scene.path("elsewhere/moved.raw"), scene.path("disk.raw")).expect("moved");
    let (plain, profile, again) = (scene.arg("plain.hspk"), scene.arg("start.hsp"), scene.arg("again.hspk"));
    run(["optimize", &plain, "-p", &profile, "-o", &again]).ok();
    assert!(fs::read(&again).expect("read") == fs::read(&hot_pack).expect("read"));
}

/// The disk beside a pack is read as well as the pack.
#[test]
fn an_output_replaces_no_disk_beside_a_pack_and_no_other_kind() {
    let (scene, disk) = packed();
    let [plain, profile, raw, old] =
        ["plain.hspk", "start.hsp", "disk.raw", "old.hspk"].map(|name| scene.arg(name));
    let is_read = |words: &[&str]| {
        run(words).fails(1, &["disk.raw", "which is read"]);
        assert!(fs::read(&raw).expect("read") == disk);
    };
    is_read(&["export", &plain, "-o", &raw, "--format", "raw", "--force"]);
    is_read(&["optimize", &plain, "-p", &profile, "-o", &raw, "--force"]);
    // A pack is replaced by a pack, and by nothing else.
    hot(&scene, "disk.raw", "old.hspk", &[]);
    run(["optimize", &plain, "-p", &profile, "-o", &old]).ok();
    let image = scene.arg("whole.hsi");
    run(["build", "--raw", &raw, "-o", &image, "--codec", "zstd:1"]).ok();
    run(["optimize", &plain, "-p", &profile, "-o", &image]).fails(1, &["writes a pack", "--force"]);
    run(["optimize", &image, "-p", &profile, "-o", &old]).fails(1, &["writes an image", "--force"]);
    // Where its disk is somewhere else, the file beside it is not read.
    fs::copy(&raw, scene.path("elsewhere.raw")).expect("copied");
    fs::write(&raw, "").expect("written");
    let elsewhere = scene.arg("elsewhere.raw");
    run(["export", &plain, "--base", &elsewhere, "-o", &raw, "--format", "raw"]).ok();
    assert!(fs::read(&raw).expect("read") == disk);
}

#[test]
fn a_qcow2_file_is_served_as_it_is_and_what_is_written_lasts() {
    if !has_tools(&["qemu-img", "nbdcopy"]) {
        return;
    }
    let (scene, mut disk) = packed();
    for (name, flags) in [("a.qcow2", &["-c"][..]), ("b.qcow2", &["-o", "cluster_size=4k,extended_l2=off"])] {
        let (raw, qcow2) = (scene.arg("disk.raw"), scene.arg(name));
        tool("qemu-img", &[&["convert", "-f", "raw", "-O", "qcow2"], flags, &[&raw, &qcow2]].concat());
        hot(&scene, name, "hot.hspk", &[]);
        let serving = serve(&scene, &[&scene.arg("hot.hspk")]);
        tool("nbdcopy", &[&uri(&scene, "hot.hspk"), &scene.arg("copy")]);
        nbd::end(serving);
        assert!(fs::read(scene.path("copy")).expect("read") == disk, "{name}");
    }
    let before = fs::read(scene.path("b.qcow2")).expect("read");
    let keep = ["--keep", &scene.arg("changes"), &scene.arg("hot.hspk")].map(str::to_owned);
    let keep: Vec<&str> = keep.iter().map(String::as_str).collect();
    let serving = serve(&scene, &keep);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("the server listens");
    // A packed block, and one that is not.
    for lba in [HOT.start as usize + 3, 20] {
        disk[lba * BLOCK..][..BLOCK].fill(0xa5);
        assert_eq!(
            client.write(0, (lba * BLOCK) as u64, &disk[lba * BLOCK..][..BLOCK]).expect("answered"),
            0
        );
    }
    assert_eq!(client.flush().expect("answered"), 0);
    assert!(client.read(0, disk.len() as u32).expect("read") == disk);
    nbd::end(serving);
    let serving = serve(&scene, &keep);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("the server listens");
    assert!(client.read(0, disk.len() as u32).expect("read") == disk);
    nbd::end(serving);
    assert!(fs::read(scene.path("b.qcow2")).expect("read") == before, "the disk stays as it is");
}

/// A qcow2 file on another one, which is larger than the raw disk behind it, and the disk that they make.
fn chain(scene: &Scene, mut disk: Vec<u8>) -> Vec<u8> {
    let larger = (BLOCKS + 20) * BLOCK;
    let create = |name: &str, kind: &str, below: &str| {
        let (name, size) = (scene.arg(name), larger.to_string());
        tool("qemu-img", &["create", "-q", "-f", "qcow2", "-F", kind, "-b", below, &name, &size]);
        name
    };
    let middle = create("middle.qcow2", "raw", "disk.raw");
    let top = create("top.qcow2", "qcow2", "middle.qcow2");
    disk.resize(larger, 0);
    for (file, lba, count, byte) in [(&middle, 100, 40, 0x11), (&middle, 350, 2, 0x22), (&top, 120, 5, 0x33)]
    {
        let write = format!("write -q -P {byte} {} {}", lba * BLOCK, count * BLOCK);
        tool("qemu-io", &["-f", "qcow2", "-c", &write, file]);
        disk[lba * BLOCK..][..count * BLOCK].fill(byte);
    }
    disk
}

#[test]
fn a_qcow2_file_and_all_that_lies_behind_it_are_one_disk() {
    if !has_tools(&["qemu-img", "qemu-io"]) {
        return;
    }
    let (scene, below) = packed();
    let disk = chain(&scene, below);
    let exported = |pack: &str, more: &[&str]| {
        let words = ["export", &scene.arg(pack), "-o", &scene.arg("out"), "--format", "raw", "--force"];
        run([&words[..], more].concat()).ok();
        fs::read(scene.path("out")).expect("read")
    };
    pack(&scene, "top.qcow2", "top.hspk", &[]);
    assert!(exported("top.hspk", &[]) == disk);
    let known = run(["inspect", "--json", &scene.arg("top.hspk")]).ok().json();
    let names: Vec<_> = known["packed_backing"].as_array().expect("a list").iter().collect();
    assert_eq!((&known["packed_disk"], names.len()), (&"top.qcow2".into(), 2));
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"middle.qcow2".into(), &"disk.raw".into()));
    assert_eq!(names[1]["bytes"], BLOCKS * BLOCK);

    // With a hot region, whose writer reads the table of the files behind the disk.
    write_profile(&scene, "top.hsp", "top.hspk", &disk, HOT);
    pack(&scene, "top.qcow2", "hot.hspk", &["-p", &scene.arg("top.hsp")]);
    assert!(exported("hot.hspk", &[]) == disk);
    let of = |name: &str| run(["inspect", "--json", &scene.arg(name)]).ok().json();
    assert_eq!(of("hot.hspk")["packed_backing"], known["packed_backing"]);

    // The file farthest behind changes, where the others show it.
    pack(&scene, "top.qcow2", "sampled.hspk", &["--sampled"]);
    assert!(exported("sampled.hspk", &[]) == disk);
    tool("cp", &["-p", &scene.arg("disk.raw"), &scene.arg("kept.raw")]);
    change(&scene, "disk.raw", 250 * BLOCK);
    run(["verify", &scene.arg("hot.hspk")])
        .fails(1, &["is not what", "top.qcow2", "get back the disk that was packed"]);
    run(["verify", &scene.arg("sampled.hspk")]).fails(1, &["disk.raw", "it was modified since"]);
    // And where they do not: these are other files, and still the disk that was packed.
    tool("cp", &["-p", &scene.arg("kept.raw"), &scene.arg("disk.raw")]);
    change(&scene, "disk.raw", 350 * BLOCK);
    run(["verify", &scene.arg("hot.hspk")]).ok();
    run(["verify", &scene.arg("sampled.hspk")]).fails(1, &["disk.raw", "it was modified since"]);
    tool("touch", &["-r", &scene.arg("kept.raw"), &scene.arg("disk.raw")]);
    fs::write(scene.path("disk.raw"), &disk[..BLOCK]).expect("written");
    run(["verify", &scene.arg("sampled.hspk")]).fails(1, &["disk.raw", "bytes, not a raw disk of"]);

    // One file has the content of all: a disk that was read is known by that.
    fs::rename(scene.path("kept.raw"), scene.path("disk.raw")).expect("renamed");
    let (top, one) = (scene.arg("top.qcow2"), scene.arg("one.qcow2"));
    tool("qemu-img", &["convert", "-O", "qcow2", &top, &one]);
    assert!(exported("hot.hspk", &["--base", &one]) == disk);
    run(["verify", &scene.arg("sampled.hspk"), "--base", &one]).fails(1, &["files lie behind it"]);
}

#[test]
fn files_behind_a_qcow2_file_on_a_server_lie_beside_it_there() {
    if !machine_has(&[NGINX]) || !has_tools(&["qemu-img", "qemu-io"]) {
        return;
    }
    let (scene, below) = packed();
    let disk = chain(&scene, below);
    scene.folder("www");
    for name in ["top.qcow2", "middle.qcow2", "disk.raw"] {
        fs::rename(scene.path(name), scene.path(&format!("www/{name}"))).expect("moved");
    }
    let nginx = Nginx::start(&scene, "");
    let (url, pack, out) = (nginx.url("top.qcow2"), scene.arg("www/top.hspk"), scene.arg("out"));
    run_remote(&scene, &["pack", &url, "-o", &pack]).ok();
    let shown = ["export", &nginx.url("top.hspk"), "-o", &out, "--format", "raw"];
    run_remote(&scene, &shown).ok();
    assert!(fs::read(&out).expect("read") == disk);
    change(&scene, "www/disk.raw", 250 * BLOCK);
    run_remote(&scene, &["verify", &pack, "--base", &url]).fails(1, &["had when it was packed"]);
}

/// Serves a pack until it has compared what is packed, and says what it found.
fn compared(scene: &Scene, arguments: &[&str]) -> (Running, String) {
    let socket = format!("unix:{}", scene.arg("socket"));
    let mut serving =
        Running::start([&["serve", "-v", "--unsupervised", "--nbd", &socket], arguments].concat());
    loop {
        let line = serving.said();
        assert!(!line.is_empty(), "the server ended");
        if line.contains(" packed blocks ") {
            return (serving, line);
        }
    }
}

/// What a server says of itself.
fn status_of(serving: &Running) -> Value {
    let all = run(["status", "--json"]).ok().json();
    let of_server = |status: &&Value| status["pid"] == serving.id();
    all["mounts"].as_array().expect("a list").iter().find(of_server).expect("it answers").clone()
}

#[test]
fn a_disk_that_changed_by_one_byte_is_found_and_never_mixed() {
    let (scene, disk) = packed();
    hot(&scene, "disk.raw", "hot.hspk", &[]);
    let pack = scene.arg("hot.hspk");
    let (serving, said) = compared(&scene, &[&pack]);
    assert!(said.contains("80 packed blocks are those of"), "{said}");
    let counts = |serving: &Running| {
        let status = status_of(serving);
        assert!(status["pack"]["disk_requests"].as_u64() > Some(0), "{status}");
        let of = |key: &str| status["pack"][key].as_u64().expect("counted");
        assert_eq!(status["pack"]["comparison"], "compared");
        ["packed_blocks", "compared_blocks", "differing_blocks"].map(of)
    };
    assert_eq!(counts(&serving), [80, 80, 0]);
    let text = run(["status", &pack]).ok().stdout;
    assert!(text.contains("80 of 80 packed blocks compared, all are the same"), "{text}");
    nbd::end(serving);

    // In a packed block: it is served as it was packed; what lies beside it is not.
    let hot_byte = HOT.start as usize * BLOCK + 5;
    change(&scene, "disk.raw", hot_byte);
    let (serving, said) = compared(&scene, &[&pack]);
    assert!(said.contains("has changed since it was packed: 1 of 80 packed blocks differ"), "{said}");
    assert_eq!(counts(&serving), [80, 80, 1]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("the server listens");
    let packed = client.read(hot_byte as u64 - 5, BLOCK as u32).expect("read");
    assert!(packed == disk[hot_byte - 5..][..BLOCK]);
    assert!(client.read(0, WINDOW as u32).expect("read") == disk[..WINDOW]);
    // The window begins before what is packed.
    assert!(client.cannot_read((HOT.start as usize * BLOCK - BLOCK) as u64, BLOCK as u32));
    nbd::end(serving);
    run(["verify", &pack]).fails(1, &["is not what", "disk.raw", "had when it was packed", "headstart pack"]);

    // Elsewhere: reads there fail, and no others.
    change(&scene, "disk.raw", hot_byte);
    change(&scene, "disk.raw", 250 * BLOCK);
    let serving = serve(&scene, &[&pack]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("the server listens");
    assert!(client.cannot_read(250 * BLOCK as u64, BLOCK as u32), "it is not what was packed");
    assert!(client.read(340 * BLOCK as u64, BLOCK as u32).expect("read") == disk[340 * BLOCK..][..BLOCK]);
    nbd::end(serving);

    // Another disk, of the same size and not.
    scene.raw("other.raw", BLOCKS, 72);
    scene.raw("longer.raw", BLOCKS + 1, 71);
    let socket = format!("unix:{}", scene.arg("socket"));
    for (other, word) in [("other.raw", "window"), ("longer.raw", "bytes")] {
        let other = scene.arg(other);
        for words in
            [&["serve", "--nbd", &socket][..], &["verify"], &["optimize", "-p", "start.hsp", "-o", "x"]]
        {
            let words = [&words[..1], &[&pack, "--base", &other], &words[1..]].concat();
            let ran = remote(&scene, words).output().expect("it starts");
            crate::scene::Ran::from(ran)
                .fails(1, &["is not the disk that", "hot.hspk", word, "`headstart pack`"]);
        }
    }
}

#[test]
fn a_disk_that_was_not_read_is_known_by_samples_and_fails_as_a_whole() {
    let (scene, disk) = packed();
    let made = hot(&scene, "disk.raw", "hot.hspk", &["--sampled"]);
    assert_eq!(made["trust"], "sampled");
    let (pack, raw) = (scene.arg("hot.hspk"), scene.arg("disk.raw"));
    assert_eq!(run(["inspect", "--json", &pack]).ok().json()["packed_trust"], "sampled");
    run(["export", &pack, "-o", &scene.arg("out"), "--format", "raw"]).ok();
    assert!(fs::read(scene.path("out")).expect("read") == disk);

    let time = |reference: &str| tool("touch", &["-r", &scene.arg(reference), &raw]);
    tool("cp", &["-p", &raw, &scene.arg("kept.raw")]);
    // A packed block, which no sample shows.
    change(&scene, "disk.raw", HOT.start as usize * BLOCK + 5);
    run(["verify", &pack]).fails(1, &["it was modified since"]);
    time("kept.raw");
    let (serving, said) = compared(&scene, &[&pack]);
    assert!(said.contains("its reads fail from now on"), "{said}");
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("the server listens");
    assert!(client.cannot_read(0, BLOCK as u32), "all reads fail");
    nbd::end(serving);

    // The first bytes are a sample.
    tool("cp", &["-p", &scene.arg("kept.raw"), &raw]);
    change(&scene, "disk.raw", 0);
    time("kept.raw");
    run(["verify", &pack]).fails(1, &["bytes 0+4096 of the file are others"]);
    fs::write(&raw, &disk[..BLOCK]).expect("written");
    run(["verify", &pack]).fails(1, &["is not the disk that"]);
}

/// No read of a zero window asks the disk.
#[test]
fn what_was_zero_and_is_not_any_more_is_found_by_verify() {
    let (scene, _) = packed();
    hot(&scene, "disk.raw", "hot.hspk", &[]);
    run(["verify", &scene.arg("hot.hspk")]).ok();
    change(&scene, "disk.raw", 130 * BLOCK + 7);
    let disk = scene.arg("disk.raw");
    run(["verify", &scene.arg("hot.hspk")]).fails(1, &["window 4 of", &disk, "was zero when it was packed"]);
}

/// Its server tells the time in seconds.
#[test]
fn a_disk_that_was_not_read_may_lie_on_a_server_with_its_time() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let (scene, disk) = packed();
    hot(&scene, "disk.raw", "hot.hspk", &["--sampled"]);
    scene.folder("www");
    tool("cp", &["-p", &scene.arg("disk.raw"), &scene.arg("www/disk.raw")]);
    let nginx = Nginx::start(&scene, "");
    let (pack, out, url) = (scene.arg("hot.hspk"), scene.arg("out"), nginx.url("disk.raw"));
    let words = ["export", &pack, "--base", &url, "-o", &out, "--format", "raw"];
    run_remote(&scene, &words).ok();
    assert!(fs::read(&out).expect("read") == disk);
    tool("touch", &["-d", "2001-02-03", &scene.arg("www/disk.raw")]);
    run_remote(&scene, &[&words[..], &["--force"]].concat()).fails(1, &["it was modified since"]);
}

#[test]
fn damaged_and_hostile_packs_and_what_is_no_disk_are_refused() {
    let (scene, _) = packed();
    hot(&scene, "disk.raw", "hot.hspk", &[]);
    let (pack, bytes) = (scene.arg("hot.hspk"), fs::read(scene.path("hot.hspk")).expect("read"));
    for (at, words) in [
        (8, "format version"),
        (300, "pack: expected digest"),
        (4000, "pack: expected digest"),
        (BLOCK + 40, "superblock"),
        (bytes.len() - 1, "pack: expected digest"),
    ] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(&pack, &damaged).expect("written");
        let ran = run(["verify", &pack]);
        ran.fails(1, &["hot.hspk"]);
        assert!(ran.stderr.contains(words), "byte {at}: {}", ran.stderr);
    }
    for len in [4095, 5000, bytes.len() - 1] {
        fs::write(&pack, &bytes[..len]).expect("written");
        run(["verify", &pack]).fails(1, &["hot.hspk"]);
    }
    fs::write(&pack, &bytes).expect("written");
    fs::remove_file(scene.path("disk.raw")).expect("removed");
    run(["verify", &pack]).fails(1, &["its disk cannot be opened", "disk.raw"]);

    fs::write(scene.path("notes"), "some words\n").expect("written");
    let out = scene.arg("out.hspk");
    run(["pack", &scene.arg("notes"), "-o", &out])
        .fails(1, &["a pack is for a raw disk or a qcow2 file", "text"]);
    run(["pack", &pack, "-o", &out]).fails(1, &["this is a pack"]);
    run(["pack", &scene.arg(""), "-o", &out]).fails(1, &[]);
    if has_tools(&["qemu-img"]) {
        let top = scene.arg("top.qcow2");
        let on = |below: &str| {
            tool("qemu-img", &["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", below, &top, "1M"]);
            run(["pack", &top, "-o", &out])
        };
        scene.raw("below.raw", BLOCKS, 71);
        on(&scene.arg("below.raw")).fails(1, &["its backing file is", "lie in one folder"]);
        on("not-there.raw").fails(1, &["not-there.raw", "cannot be opened"]);
        std::os::unix::fs::symlink("/etc/hostname", scene.path("out-of-it.raw")).expect("a link");
        on("out-of-it.raw").fails(1, &["out-of-it.raw", "cannot be opened"]);
        on("top.qcow2").fails(1, &["leads back"]);
    }
    assert!(!scene.path("out.hspk").exists());
}

#[test]
fn a_mount_shows_the_disk_of_a_pack() {
    if !machine_has(START) {
        return;
    }
    let (scene, disk) = packed();
    hot(&scene, "disk.raw", "hot.hspk", &[]);
    let dir = scene.folder("dir");
    mount(&scene, &[&scene.arg("hot.hspk"), &dir]).ok();
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
    umount(&dir);
    scene.wait_until_clean();
}

/// A guest's disk as a qcow2 file behind nginx, its kernel, and the MD5 sum of the disk.
fn guest_on_a_server() -> Option<(Scene, Nginx, String, String)> {
    if !machine_has(&[NGINX]) || !has_tools(&["qemu-img"]) {
        return None;
    }
    let (scene, image, kernel) = linux_guest()?;
    scene.folder("www");
    let (raw, qcow2) = (scene.arg("disk.raw"), scene.arg("www/disk.qcow2"));
    run(["export", &image, "-o", &raw, "--format", "raw"]).ok();
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2]);
    let sum = tool("md5sum", &[&raw]).stdout;
    fs::remove_file(&raw).expect("removed");
    let nginx = Nginx::start(&scene, "");
    Some((scene, nginx, kernel, sum.split_whitespace().next().expect("a sum").to_owned()))
}

#[test]
fn qemu_boots_a_pack_over_a_qcow2_file_on_a_web_server() {
    let Some((scene, nginx, kernel, _)) = guest_on_a_server() else { return };
    let (url, plain, profile) = (nginx.url("disk.qcow2"), scene.arg("plain.hspk"), scene.arg("boot.hsp"));
    let (cache, hot) = (scene.arg("cache"), scene.arg("www/hot.hspk"));
    run_remote(&scene, &["pack", &url, "-o", &plain]).ok();
    let booted = |pack: &str, more: &[&str]| {
        let fixed =
            ["--kernel", &kernel, "--bus", "nvme", "--ready", "^up$", "--json", "--disk-cache", &cache];
        boot(&scene, pack, &[&QEMU[..], &fixed, more].concat()).ok().json()
    };
    let recorded = booted(&plain, &["--base", &url, "--record", &profile]);
    assert!(recorded["ready_s"].as_f64().is_some_and(|ready| ready > 0.0), "{recorded}");
    run_remote(&scene, &["pack", &url, "-o", &hot, "-p", &profile]).ok();

    let asked = || nginx.answered().iter().filter(|(.., path)| path.contains("disk.qcow2")).count() as u64;
    let before = asked();
    // All that the start needs is in the pack, which lies beside the disk.
    let prefetched = booted(&nginx.url("hot.hspk"), &["--insecure"]);
    assert!(prefetched["prefetch_bytes"].as_u64() > Some(1 << 20), "{prefetched}");
    assert_eq!(prefetched["end_reason"], "complete");
    assert!(prefetched["store_requests"].as_u64() < recorded["demand_requests"].as_u64(), "{prefetched}");
    let counted = |summary: &Value| summary["packed_disk_requests"].as_u64().expect("counted");
    assert!(counted(&prefetched) > 0 && counted(&prefetched) <= asked() - before, "{prefetched}");
    assert!(counted(&prefetched) < counted(&recorded), "{recorded}");
}

#[test]
fn qemu_reads_all_of_a_packs_disk_over_vhost_user_blk() {
    let Some((scene, nginx, _, sum)) = guest_on_a_server() else { return };
    let (url, plain) = (nginx.url("disk.qcow2"), scene.arg("plain.hspk"));
    run_remote(&scene, &["pack", &url, "-o", &plain]).ok();
    vhost::install_first_init(&scene, vhost::FIRST_INIT);
    let serving = vhost::serve(&scene, &["--base", &url, &plain]);
    let mut guest = vhost::machine(&scene, "then=read");
    let said = guest.wait_for("nothing is written");
    assert!(said.contains(&sum), "{said}");
    drop(guest);
    nbd::end(serving);
}
