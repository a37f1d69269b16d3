//! The writes and flushes of an ext4 that the kernel writes to as dpkg does, recorded, and replayed to a kept
//! disk: at each flush what its file holds is an ext4 that is whole, with all that was synced.

use std::fs::{self, File};
use std::io::{Error, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hs_keep::{KeepFile, OpenedAs};
use hs_overlay::Content;
use hs_units::Prng;

use crate::mounts::unmount_by;
use crate::nbd::{end, serve};
use crate::nbd_writer::NbdWriter;
use crate::scene::{START, Scene, has_tools, machine_has, run, tool, wait_until};

/// So many states are examined, or as many as this variable says.
const FLUSHES: usize = 20;
const FLUSHES_VARIABLE: &str = "FLUSHES";
pub(crate) const TOOLS: &[&str] = &["nbdfuse", "fusermount3", "mkfs.ext4", "e2fsck", "debugfs"];
const PACKAGES: u64 = 16;

pub(crate) enum Event {
    Write(u64, Vec<u8>),
    Flush,
    /// The package database has this version since before the flush that follows.
    Synced(u64),
}

type Log = Arc<Mutex<Vec<Event>>>;

/// Serves a disk over NBD to one client, by the old handshake, and notes what it writes. Writes and flushes
/// fail while `is_failing`.
fn record(
    listener: &UnixListener,
    mut disk: Vec<u8>,
    log: &Log,
    is_failing: &AtomicBool,
) -> Result<(), Error> {
    let (mut stream, _) = listener.accept()?;
    let mut hello = b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53".to_vec();
    hello.extend((disk.len() as u64).to_be_bytes());
    // Flags, and flush.
    hello.extend(5_u32.to_be_bytes());
    hello.extend([0; 124]);
    stream.write_all(&hello)?;
    loop {
        let mut head = [0; 28];
        if stream.read_exact(&mut head).is_err() {
            return Ok(());
        }
        let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight"));
        let (offset, len) = (number(16), (number(20) & 0xffff_ffff) as usize);
        let range = offset as usize..offset as usize + len;
        let mut reply = b"\x67\x44\x66\x98\0\0\0\0".to_vec();
        reply.extend(&head[8..16]);
        match head[7] {
            0 => reply.extend(&disk[range]),
            1 | 3 if is_failing.load(SeqCst) => {
                std::io::copy(
                    &mut (&stream).take(if head[7] == 1 { len as u64 } else { 0 }),
                    &mut std::io::sink(),
                )?;
                reply[7] = libc::EIO as u8;
            }
            1 => {
                stream.read_exact(&mut disk[range.clone()])?;
                log.lock().expect("no panic").push(Event::Write(offset, disk[range].to_vec()));
            }
            3 => log.lock().expect("no panic").push(Event::Flush),
            _ => return Ok(()),
        }
        stream.write_all(&reply)?;
    }
}

/// Replaces a file as dpkg does: a new one is synced, and gets its name.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("dpkg-new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// Unpacks packages, some over earlier versions of theirs.
fn install(root: &Path, log: &Log) -> Result<(), Error> {
    let mut prng = Prng::new(21);
    for version in 1..=PACKAGES {
        let folder = root.join(format!("package{}", version % 5));
        let _ = fs::create_dir(&folder);
        for file in 0..=prng.below(5) {
            let mut bytes = vec![0; prng.below(60_000) as usize];
            prng.fill(&mut bytes);
            replace(&folder.join(format!("file{file}")), &bytes)?;
        }
        if version % 4 == 0 {
            fs::remove_dir_all(root.join(format!("package{}", (version + 2) % 5)))?;
        }
        replace(&root.join("status"), format!("{version}\n").repeat(500).as_bytes())?;
        File::open(root)?.sync_all()?;
        log.lock().expect("no panic").push(Event::Synced(version));
    }
    Ok(())
}

/// A disk in memory that the kernel writes to.
pub(crate) struct Medium {
    recorder: JoinHandle<Result<(), Error>>,
    showing: Child,
    folder: String,
    log: Log,
    /// Its writes and flushes fail.
    pub(crate) is_failing: Arc<AtomicBool>,
}

impl Medium {
    pub(crate) fn show(scene: &Scene, disk: Vec<u8>) -> Self {
        let (log, is_failing) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let listener = UnixListener::bind(scene.path("recorder")).expect("bound");
        let recorder = {
            let (log, is_failing) = (Arc::clone(&log), Arc::clone(&is_failing));
            std::thread::spawn(move || record(&listener, disk, &log, &is_failing))
        };
        let (folder, socket) = (scene.folder("recorded"), scene.arg("recorder"));
        let showing =
            Command::new("nbdfuse").args([&folder, "--unix", &socket]).spawn().expect("nbdfuse starts");
        wait_until("the disk is shown", || scene.path("recorded/nbd").exists());
        Self { recorder, showing, folder, log, is_failing }
    }

    /// Mounts its file system.
    pub(crate) fn mount(&self, place: &str) {
        tool("mount", &["-o", "loop", &format!("{}/nbd", self.folder), place]);
    }

    /// Gives what was written to it.
    pub(crate) fn end(mut self) -> Vec<Event> {
        unmount_by("fusermount3", &["-u", &self.folder]);
        assert!(self.showing.wait().expect("ended").success());
        self.recorder.join().expect("no panic").expect("its client reads and writes");
        Arc::into_inner(self.log).expect("the only one").into_inner().expect("no panic")
    }
}

/// What a kernel wrote to the file system in this file.
fn recorded(scene: &Scene, disk: &[u8]) -> Vec<Event> {
    let medium = Medium::show(scene, disk.to_vec());
    let root = scene.folder("mounted");
    medium.mount(&root);
    let installed = install(&scene.path("mounted"), &medium.log);
    tool("umount", &[&root]);
    installed.expect("all was written");
    medium.end()
}

/// The disk that a copy of the file holds, as a file that e2fsck finds whole once its journal is replayed;
/// gives what `path` in it has, at a moment that is called `when`.
pub(crate) fn examine(scene: &Scene, disk: &[u8], path: &str, when: &str) -> String {
    fs::copy(scene.path("changes"), scene.path("copy")).expect("copied");
    let mut disk = disk.to_vec();
    let file = KeepFile::open(&scene.path("copy"), OpenedAs::ReadOnly, Duration::ZERO).expect("opened");
    for (start, blocks, content) in file.overlay(None, false).expect("an overlay").extents() {
        let bytes = &mut disk[start as usize * 4096..(start + blocks) as usize * 4096];
        match content {
            Content::Data(place) => file.read(place * 4096, bytes).expect("read"),
            _ => bytes.fill(0),
        }
    }
    let raw = scene.arg("replayed.raw");
    fs::write(&raw, disk).expect("written");
    for words in [["-p", &raw], ["-fn", &raw]] {
        let ran = Command::new("e2fsck").args(words).output().expect("e2fsck starts");
        let said = String::from_utf8_lossy(&ran.stdout);
        let is_well = ran.status.code() == Some(0) || words[0] == "-p" && ran.status.code() == Some(1);
        assert!(is_well, "{when}: e2fsck {words:?}: {:?}: {said}", ran.status);
    }
    tool("debugfs", &["-R", &format!("cat {path}"), &raw]).stdout
}

#[test]
fn what_a_kernel_flushed_is_whole_at_each_flush() {
    if !machine_has(START) || !has_tools(TOOLS) {
        return;
    }
    let states = std::env::var(FLUSHES_VARIABLE).map_or(FLUSHES, |said| said.parse().expect("a number"));
    let scene = Scene::new();
    let raw = scene.arg("base.raw");
    File::create(&raw).expect("made").set_len(24 << 20).expect("made");
    tool("mkfs.ext4", &["-q", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0", &raw]);
    run(["build", "--raw", &raw, "-o", &scene.arg("base.hsi"), "--codec", "zstd:1"]).ok();
    let disk = fs::read(&raw).expect("read");
    let events = recorded(&scene, &disk);
    let flushes = events.iter().filter(|event| matches!(event, Event::Flush)).count();
    assert!(flushes > PACKAGES as usize * 3, "{flushes} flushes");

    let server = serve(&scene, &["--unsupervised", "--keep", &scene.arg("changes"), &scene.arg("base.hsi")]);
    let mut client = NbdWriter::connect(&scene.path("socket")).expect("connected");
    let (mut flush, mut synced, mut seen) = (0, 0, 0);
    for event in &events {
        match event {
            Event::Write(offset, bytes) => assert_eq!(client.write(0, *offset, bytes).expect("answered"), 0),
            Event::Synced(version) => synced = *version,
            Event::Flush => {
                assert_eq!(client.flush().expect("answered"), 0);
                flush += 1;
                if flush * states / flushes == (flush - 1) * states / flushes {
                    continue;
                }
                let status = examine(&scene, &disk, "/status", &format!("flush {flush}"));
                // Before the first one is there nothing is said.
                let version = status.lines().next().map_or(0, |line| line.parse().expect("a version"));
                assert!(version >= synced, "flush {flush}: version {version}, and {synced} was synced");
                assert!(status.lines().all(|line| line == version.to_string()), "flush {flush}: {status}");
                seen += 1;
            }
        }
    }
    end(server);
    assert!(seen >= states.min(flushes) && synced == PACKAGES, "{seen} states, {synced} versions");
    scene.wait_until_clean();
}
