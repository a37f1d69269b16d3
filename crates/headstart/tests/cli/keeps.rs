//! `--keep`: what is written lasts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use hs_units::Prng;
use rustix::process::Signal;

use crate::boots::{self, boot, little_guest};
use crate::mounts::umount;
use crate::nbd::{end, holed, serve};
use crate::nbd_writer::{FUA, NbdWriter};
use crate::qemu_boots::{QEMU, linux_guest};
use crate::recorded_ext4::{self, Medium};
use crate::scene::{Running, START, Scene, has_tools, machine_has, run, tool, wait_until};

/// So many times a server is killed while it writes; or as often as this variable says.
const KILLS: u64 = 20;
const KILLS_VARIABLE: &str = "KILLS";
const WRITERS: u64 = 3;
const BLOCK: usize = 4096;

fn keeping(scene: &Scene) -> Running {
    serve(scene, &["--unsupervised", "--keep", &scene.arg("changes"), &scene.arg("disk.hsi")])
}

fn connect(scene: &Scene) -> NbdWriter {
    NbdWriter::connect(&scene.path("socket")).expect("the server listens")
}

#[test]
fn what_clients_write_is_there_at_the_next_start() {
    let scene = Scene::new();
    let mut disk = holed(&scene, "disk.hsi");
    let image = fs::read(scene.path("disk.hsi")).expect("the image");
    let server = keeping(&scene);
    let mut client = connect(&scene);
    assert_eq!(client.bytes, disk.len() as u64);
    // Flags, flush, FUA, trim, write-zeroes, several connections, cache, fast zero; not read-only.
    assert_eq!(client.flags, 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11);
    let mut prng = Prng::new(3);
    for round in 0..200 {
        let offset = prng.below(client.bytes - 1);
        let len = 1 + prng.below((client.bytes - offset).min(70_000));
        let range = offset as usize..(offset + len) as usize;
        let errno = match prng.below(6) {
            0 => {
                let (flags, zeros) = (prng.below(2) as u16 * FUA, &mut disk[range]);
                zeros.fill(0);
                let no_hole = prng.below(2) as u16 * 2;
                client.zero(flags | no_hole, offset, len as u32)
            }
            1 => {
                let (start, end) = (range.start.next_multiple_of(BLOCK), range.end / BLOCK * BLOCK);
                if start < end {
                    disk[start..end].fill(0);
                }
                client.trim(offset, len as u32)
            }
            _ => {
                prng.fill(&mut disk[range.clone()]);
                client.write(prng.below(2) as u16 * FUA, offset, &disk[range])
            }
        };
        assert_eq!(errno.expect("answered"), 0, "round {round}");
    }
    assert_eq!(client.write(0, client.bytes - 1, b"ab").expect("answered"), 28, "ENOSPC");
    assert_eq!(client.flush().expect("answered"), 0);
    assert!(client.read(0, client.bytes as u32).expect("read") == disk);
    let other =
        run(["serve", "--nbd", "localhost:0", "--keep", &scene.arg("changes"), &scene.arg("disk.hsi")]);
    other.fails(1, &["changes", "in use by another process"]);
    end(server);

    let server = keeping(&scene);
    assert!(connect(&scene).read(0, disk.len() as u32).expect("read") == disk);
    end(server);
    assert!(fs::read(scene.path("disk.hsi")).expect("the image") == image, "the image is what it was");
    // Another disk.
    scene.image("other.hsi", 320, 51);
    let other =
        run(["serve", "--nbd", "localhost:0", "--keep", &scene.arg("changes"), &scene.arg("other.hsi")]);
    other.fails(1, &["changes", "belongs to another disk"]);
}

#[test]
fn tools_write_to_it() {
    if !has_tools(&["nbdinfo", "nbdcopy", "qemu-io"]) {
        return;
    }
    let scene = Scene::new();
    let mut disk = holed(&scene, "disk.hsi");
    let server = keeping(&scene);
    let uri = format!("nbd+unix:///disk?socket={}", scene.arg("socket"));
    let about = tool("nbdinfo", &["--json", &uri]).json();
    assert_eq!(about["exports"][0]["is_read_only"], false);
    assert_eq!(about["exports"][0]["can_fast_zero"], true);
    // Another disk over it, in parallel, with its holes.
    Prng::new(9).fill(&mut disk[..300 * BLOCK]);
    disk[600 * BLOCK..].fill(0);
    fs::write(scene.path("new.raw"), &disk).expect("written");
    tool("nbdcopy", &["--flush", &scene.arg("new.raw"), &uri]).ok();
    tool(
        "qemu-io",
        &["-f", "raw", &uri, "-c", "write -P 5 1000 5000", "-c", "discard 64k 64k", "-c", "flush"],
    )
    .ok();
    disk[1000..6000].fill(5);
    disk[64 << 10..128 << 10].fill(0);
    tool("nbdcopy", &[&uri, &scene.arg("back.raw")]).ok();
    assert!(fs::read(scene.path("back.raw")).expect("read") == disk);
    end(server);
}

/// A disk that ends within a block is as long with changes as without.
#[test]
fn the_length_of_the_disk_stays_exact() {
    let scene = Scene::new();
    let mut disk = scene.raw("disk.raw", 257, 52);
    disk.truncate(256 * BLOCK + 1536);
    fs::write(scene.path("disk.raw"), &disk).expect("written");
    run(["build", "--raw", &scene.arg("disk.raw"), "-o", &scene.arg("disk.hsi")]).ok();
    let server = keeping(&scene);
    let mut client = connect(&scene);
    let end_of = disk.len() as u64;
    assert_eq!(client.bytes, end_of);
    assert_eq!(client.write(0, end_of - 4, b"abcdefgh").expect("answered"), 28, "ENOSPC");
    assert_eq!(client.zero(0, end_of - 1000, 1001).expect("answered"), 28);
    assert_eq!(client.write(FUA, end_of - 4, b"abcd").expect("answered"), 0);
    disk[256 * BLOCK + 1532..].copy_from_slice(b"abcd");
    assert_eq!(client.trim(end_of - 2000, 1000).expect("answered"), 0);
    assert!(client.read(0, client.bytes as u32).expect("read") == disk);
    end(server);
    if machine_has(&[]) {
        let dir = scene.folder("dir");
        run(["-q", "mount", &scene.arg("disk.hsi"), &dir, "--keep", &scene.arg("changes")]).ok();
        assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
        umount(&dir);
        scene.wait_until_clean();
    }
    let (new, raw) = (scene.arg("new.hsi"), scene.arg("new.raw"));
    run(["commit", &scene.arg("disk.hsi"), &scene.arg("changes"), "-o", &new]).ok();
    run(["export", &new, "-o", &raw]).ok();
    assert!(fs::read(&raw).expect("read") == disk);
}

/// What a server says until it serves.
fn said_until_ready(server: &mut Running) -> String {
    let mut said = String::new();
    while !said.contains("Ctrl-C") {
        let line = server.said();
        assert!(!line.is_empty(), "the server ended: {said}");
        said += &line;
    }
    said
}

/// Of the file, as `ulimit -f` and `LimitFSIZE=` set it.
#[test]
fn a_limit_of_the_size_is_told_as_a_full_medium() {
    let scene = Scene::new();
    holed(&scene, "disk.hsi");
    let mut command = std::process::Command::new("sh");
    // In units of 512 bytes.
    command.args(["-c", "ulimit -f 14000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headstart")]);
    command.args(["serve", "--nbd", &format!("unix:{}", scene.arg("socket")), "--unsupervised"]);
    command.args(["--keep", &scene.arg("changes"), &scene.arg("disk.hsi")]);
    let mut server = Running::start_command(command);
    said_until_ready(&mut server);
    let mut client = connect(&scene);
    let mut refused = 0;
    for number in 0..100 {
        match client.write(FUA, (number % 20) << 17, &[number as u8 + 1; 1 << 17]).expect("answered") {
            0 => {}
            errno => {
                assert_eq!(errno, 28, "ENOSPC");
                refused += 1;
            }
        }
    }
    assert!((11..90).contains(&refused), "{refused}");
    assert_eq!(client.read(0, 1 << 17).expect("read")[0] % 20, 1);
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert!(status.success(), "{said}");
    // Not for each write.
    assert_eq!(said.matches("File too large").count(), 1, "{said}");
    run(["overlay", "check", &scene.arg("changes")]).ok();
}

/// By a supervisor and its server, or by one process.
#[test]
fn where_changes_may_not_last_is_told_once() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    holed(&scene, "disk.hsi");
    for name in ["lower", "upper", "work", "merged"] {
        scene.folder(name);
    }
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| scene.arg(name));
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    tool("mount", &["-t", "overlay", "headstart-test", "-o", &layers, &scene.arg("merged")]);
    let changes = scene.arg("merged/changes");
    for more in [&["--unsupervised"][..], &[]] {
        let mut words = vec!["serve", "--keep", &changes, "--nbd"];
        let (socket, image) = (format!("unix:{}", scene.arg("socket")), scene.arg("disk.hsi"));
        words.extend([&*socket, &*image].iter().chain(more));
        let mut server = Running::start(words);
        let mut said = said_until_ready(&mut server);
        let mut client = connect(&scene);
        assert_eq!(client.write(FUA, 0, &[7; BLOCK]).expect("answered"), 0);
        server.signal(Signal::TERM);
        let (status, _, rest) = server.end();
        assert!(status.success(), "{rest}");
        said += &rest;
        let told: Vec<_> = said.lines().filter(|line| line.contains("lies on an overlayfs")).collect();
        assert!(told.len() == 1 && told[0].contains(&changes), "{more:?}: {said}");
    }
    tool("umount", &[&scene.arg("merged")]);
    scene.wait_until_clean();
}

/// Of each block that is synced alone a header of the log lies beside it; they are moved together when the
/// server has nothing else to do.
#[test]
fn a_file_becomes_smaller_while_nothing_is_written() {
    let scene = Scene::new();
    let mut disk = holed(&scene, "disk.hsi");
    let server = keeping(&scene);
    let mut client = connect(&scene);
    let mut prng = Prng::new(13);
    let blocks = 0..disk.len() / BLOCK;
    for block in blocks.clone().chain(blocks.step_by(2)) {
        let range = block * BLOCK..(block + 1) * BLOCK;
        prng.fill(&mut disk[range.clone()]);
        assert_eq!(client.write(FUA, range.start as u64, &disk[range]).expect("answered"), 0);
    }
    // The log has 8.6 MB; the data 2.9 MB, beside which are a tenth, 2 MiB, and a few segments.
    let space = || fs::metadata(scene.path("changes")).expect("the file").blocks() * 512;
    assert!(space() > 8_600_000, "{}", space());
    wait_until("the file is small", || space() < 9 << 20);
    assert!(client.read(0, disk.len() as u32).expect("read") == disk);
    end(server);
    run(["overlay", "check", &scene.arg("changes")]).ok();
    let server = keeping(&scene);
    assert!(connect(&scene).read(0, disk.len() as u32).expect("read") == disk);
    end(server);
}

/// The kernel tells of a failed write once, and drops what was not written.
#[test]
fn a_medium_that_fails_is_an_error_and_all_before_stays() {
    if !machine_has(START) || !has_tools(recorded_ext4::TOOLS) {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "disk.hsi");
    let (raw, place) = (scene.arg("medium.raw"), scene.folder("place"));
    fs::File::create(&raw).expect("made").set_len(32 << 20).expect("made");
    tool("mkfs.ext4", &["-q", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0", &raw]);
    let medium = Medium::show(&scene, fs::read(&raw).expect("read"));
    medium.mount(&place);
    let changes = scene.arg("place/changes");
    let keeping = || serve(&scene, &["--unsupervised", "--keep", &changes, &scene.arg("disk.hsi")]);
    let server = keeping();
    let mut client = connect(&scene);
    let offset = |block: usize| (block * BLOCK) as u64;
    for block in 0..20 {
        assert_eq!(client.write(0, offset(block), &[block as u8 + 1; BLOCK]).expect("answered"), 0);
    }
    assert_eq!(client.flush().expect("answered"), 0);
    medium.is_failing.store(true, SeqCst);
    assert_eq!(client.write(0, offset(3), &[200; BLOCK]).expect("answered"), 0);
    let eio = libc::EIO.cast_unsigned();
    assert_eq!(client.flush().expect("answered"), eio);
    // Once and for all, also where the medium would take it again.
    medium.is_failing.store(false, SeqCst);
    assert_eq!(client.flush().expect("answered"), eio);
    assert_eq!(client.write(0, offset(30), &[9; BLOCK]).expect("answered"), eio);
    assert_eq!(client.trim(0, BLOCK as u32).expect("answered"), eio);
    for block in (0..20).filter(|block| *block != 3) {
        assert!(client.read(offset(block), BLOCK as u32).expect("read") == [block as u8 + 1; BLOCK]);
    }
    assert!(client.read(offset(600), 100 * BLOCK as u32).expect("read") == disk[600 * BLOCK..]);
    server.signal(Signal::TERM);
    let (status, _, said) = server.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(said.matches("nothing is written any more").count(), 1, "{said}");
    assert!(said.contains("Input/output error") && said.contains(&changes), "{said}");

    // The file system went read-only as well; what it has is what was flushed.
    tool("umount", &[&place]);
    medium.mount(&place);
    run(["overlay", "check", &changes]).ok();
    let server = keeping();
    let mut client = connect(&scene);
    for block in 0..20 {
        let found = client.read(offset(block), BLOCK as u32).expect("read");
        let is_lost = block == 3 && found == [200; BLOCK];
        assert!(found == [block as u8 + 1; BLOCK] || is_lost, "block {block}");
    }
    assert_eq!(client.write(FUA, 0, &[7; BLOCK]).expect("answered"), 0);
    end(server);
    tool("umount", &[&place]);
    medium.end();
    scene.wait_until_clean();
}

/// What is known of a block of which one client writes one version after the other.
#[derive(Clone, Default)]
struct Known {
    /// The last version that was flushed, and the last that was sent.
    lasting: u64,
    sent: u64,
}

fn content(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Prng::new(block << 32 ^ version).fill(&mut bytes);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Writes blocks that no other client writes until the server is gone.
fn write_until_killed(
    scene: &Scene,
    writer: u64,
    seed: u64,
    known: &Mutex<Vec<Known>>,
    flushed: &AtomicU64,
) -> Option<()> {
    let mut client = connect(scene);
    let mut prng = Prng::new(seed << 8 | writer);
    let blocks = client.bytes / BLOCK as u64;
    loop {
        let mut written = Vec::new();
        for _ in 0..=prng.below(6) {
            let block = prng.below(blocks / WRITERS) * WRITERS + writer;
            let version = {
                let known = &mut known.lock().expect("no panic")[block as usize];
                known.sent += 1;
                known.sent
            };
            let lasts = prng.below(4) == 0;
            let flags = if lasts { FUA } else { 0 };
            assert_eq!(client.write(flags, block * BLOCK as u64, &content(block, version)).ok()?, 0);
            if lasts {
                known.lock().expect("no panic")[block as usize].lasting = version;
            } else {
                written.push((block, version));
            }
        }
        assert_eq!(client.flush().ok()?, 0);
        flushed.fetch_add(1, SeqCst);
        let mut known = known.lock().expect("no panic");
        for (block, version) in written {
            let known = &mut known[block as usize];
            known.lasting = known.lasting.max(version);
        }
    }
}

#[test]
fn what_was_flushed_survives_servers_that_are_killed() {
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |said| said.parse().expect("a number"));
    let scene = Arc::new(Scene::new());
    let disk = holed(&scene, "disk.hsi");
    let known = Arc::new(Mutex::new(vec![Known::default(); disk.len() / BLOCK]));
    let mut prng = Prng::new(11);
    for kill in 0..kills {
        let server = keeping(&scene);
        let flushed = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (scene, known, flushed) = (Arc::clone(&scene), Arc::clone(&known), Arc::clone(&flushed));
                std::thread::spawn(move || write_until_killed(&scene, writer, kill, &known, &flushed))
            })
            .collect();
        let most = 10 + prng.below(200);
        wait_until("some flushes", || flushed.load(SeqCst) >= most);
        server.signal(Signal::KILL);
        for writer in writers {
            writer.join().expect("no panic");
        }
        drop(server.end());

        let server = keeping(&scene);
        let mut client = connect(&scene);
        for (block, known) in known.lock().expect("no panic").iter_mut().enumerate() {
            let found = client.read((block * BLOCK) as u64, BLOCK as u32).expect("read");
            let as_disk = &disk[block * BLOCK..(block + 1) * BLOCK];
            let version = (known.lasting..=known.sent).find(|version| match version {
                0 => found == as_disk,
                version => found == content(block as u64, *version),
            });
            let version = version.unwrap_or_else(|| {
                panic!(
                    "kill {kill}: block {block} is none of its versions {} to {}",
                    known.lasting, known.sent
                )
            });
            // Versions that were lost may be written again.
            *known = Known { lasting: version, sent: known.sent };
        }
        end(server);
    }
}

/// Boots a guest that writes a file and syncs it, which the next boot finds.
fn boots_twice(scene: &Scene, flags: &[&str]) {
    let (image, changes, console) = (scene.arg("guest.hsi"), scene.arg("changes"), scene.arg("console"));
    let flags = [flags, &["--ready", "^up$", "--keep", &changes, "--console", &console]].concat();
    for is_there in [false, true] {
        boot(scene, &image, &flags).ok();
        let said = fs::read_to_string(&console).expect("the console");
        assert_eq!(said.contains("was here"), is_there, "{said}");
    }
    run(["overlay", "check", &changes]).ok();
    scene.wait_until_clean();
}

#[test]
fn what_a_guest_of_user_mode_linux_writes_is_there_at_the_next_boot() {
    if machine_has(boots::GUEST) {
        let (scene, image) = little_guest();
        let before = fs::read(&image).expect("the image");
        boots_twice(&scene, &["--vmm", "uml", "--memory", "64M"]);
        assert!(fs::read(&image).expect("the image") == before);
    }
}

#[test]
fn what_a_guest_of_qemu_writes_is_there_at_the_next_boot() {
    let Some((scene, _, kernel)) = linux_guest() else { return };
    boots_twice(&scene, &[&QEMU[..], &["--kernel", &kernel, "--bus", "nvme"]].concat());
}
