//! Snapshots and commits of a disk that is written to meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use hs_units::Prng;
use rustix::process::Signal;

use crate::kept_roots::{machine, roomy};
use crate::mounts::umount;
use crate::nbd::{end, holed, serve};
use crate::nbd_writer::{FUA, NbdWriter};
use crate::scene::{Ran, Running, Scene, has_tools, headstart, mount, run, tool, wait_until};

const BLOCK: usize = 4096;
const WRITERS: usize = 2;
const KILLS: usize = 12;

/// What one client has sent, in its order: each is flushed before the next.
#[derive(Clone)]
enum Sent {
    Blocks { start: usize, count: usize, version: u64 },
    Gone { start: usize, count: usize },
}

fn content(block: usize, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Prng::new((block as u64) << 32 ^ version).fill(&mut bytes);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// A disk that clients write to and delete from without a pause, each its own half.
struct Busy {
    scene: Scene,
    disk: Vec<u8>,
    sent: [Mutex<Vec<Sent>>; WRITERS],
    flushed: AtomicU64,
    ends: AtomicBool,
}

impl Busy {
    fn new() -> Self {
        let scene = Scene::new();
        let disk = holed(&scene, "disk.hsi");
        let sent = [(); WRITERS].map(|()| Mutex::default());
        Self { scene, disk, sent, flushed: AtomicU64::new(0), ends: AtomicBool::new(false) }
    }

    fn server(&self) -> Running {
        let (changes, image) = (self.scene.arg("changes"), self.scene.arg("disk.hsi"));
        serve(&self.scene, &["--unsupervised", "--keep", &changes, &image])
    }

    /// Writes until it is told to end, or the server is gone.
    fn write(&self, writer: usize) -> Option<()> {
        let mut client = NbdWriter::connect(&self.scene.path("socket")).ok()?;
        let half = self.disk.len() / BLOCK / WRITERS;
        let first = writer * half;
        // In place of what a dead server has lost the same is written again.
        let sent = self.sent[writer].lock().expect("no panic").clone();
        for sent in sent.iter().rev().take(2).rev() {
            send(&mut client, sent)?;
        }
        let mut prng = Prng::new(sent.len() as u64 + writer as u64);
        while !self.ends.load(SeqCst) {
            let start = first + prng.below(half as u64 - 16) as usize;
            let most = if prng.below(8) == 0 { 16 } else { 2 };
            let count = 1 + prng.below(most) as usize;
            let next = {
                let mut all = self.sent[writer].lock().expect("no panic");
                let is_gone = matches!(all.last(), Some(Sent::Blocks { .. })) && prng.below(3) == 0;
                let next = match is_gone {
                    true => Sent::Gone { start, count },
                    false => Sent::Blocks { start, count, version: all.len() as u64 + 1 },
                };
                all.push(next.clone());
                next
            };
            send(&mut client, &next)?;
            self.flushed.fetch_add(1, SeqCst);
        }
        Some(())
    }

    /// The half of a writer after so many of its changes.
    fn half(&self, writer: usize, changes: usize) -> Vec<u8> {
        let mut disk = self.disk.clone();
        for sent in &self.sent[writer].lock().expect("no panic")[..changes] {
            match *sent {
                Sent::Blocks { start, count, version } => {
                    for block in start..start + count {
                        disk[block * BLOCK..(block + 1) * BLOCK].copy_from_slice(&content(block, version));
                    }
                }
                Sent::Gone { start, count } => disk[start * BLOCK..(start + count) * BLOCK].fill(0),
            }
        }
        let half = disk.len() / WRITERS;
        disk[writer * half..(writer + 1) * half].to_vec()
    }

    /// An image has what both had sent at some moment after the first and before the second numbers.
    fn is_of_a_moment(&self, image: &str, after: [usize; WRITERS], before: [usize; WRITERS]) {
        let raw = self.scene.arg("found.raw");
        run(["-q", "export", &self.scene.arg(image), "-o", &raw, "--format", "raw", "--force"]).ok();
        let found = fs::read(&raw).expect("exported");
        let half = found.len() / WRITERS;
        for writer in 0..WRITERS {
            let own = &found[writer * half..(writer + 1) * half];
            let fits =
                (after[writer]..=before[writer]).rev().any(|changes| self.half(writer, changes) == own);
            assert!(fits, "{image}, writer {writer}: no moment of {} to {}", after[writer], before[writer]);
        }
    }

    fn numbers(&self) -> [usize; WRITERS] {
        self.sent.each_ref().map(|sent| sent.lock().expect("no panic").len())
    }

    fn wait_for(&self, more: u64) {
        let until = self.flushed.load(SeqCst) + more;
        wait_until("clients write on", || self.flushed.load(SeqCst) >= until);
    }

    fn snapshot(&self, name: &str) -> Ran {
        run(["overlay", "snapshot", &self.scene.arg("changes"), name])
    }

    /// What commits a snapshot.
    fn commit(&self, output: &str, name: &str) -> Vec<String> {
        let [image, changes, output] = ["disk.hsi", "changes", output].map(|name| self.scene.arg(name));
        let words =
            ["-q", "commit", &image, &changes, "-o", &output, "--snapshot", name, "--codec", "zstd:1"];
        words.map(str::to_owned).to_vec()
    }

    fn names(&self) -> Vec<String> {
        let listed = run(["overlay", "list", "--json", &self.scene.arg("changes")]).ok().json();
        let names = listed[0]["snapshots"].as_array().expect("a list").clone();
        names.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
    }
}

fn send(client: &mut NbdWriter, sent: &Sent) -> Option<()> {
    match *sent {
        Sent::Blocks { start, count, version } => {
            let bytes: Vec<u8> = (start..start + count).flat_map(|block| content(block, version)).collect();
            assert_eq!(client.write(FUA, (start * BLOCK) as u64, &bytes).ok()?, 0);
        }
        Sent::Gone { start, count } => {
            assert_eq!(client.trim((start * BLOCK) as u64, (count * BLOCK) as u32).ok()?, 0);
            assert_eq!(client.flush().ok()?, 0);
        }
    }
    Some(())
}

#[test]
fn a_commit_has_the_disk_of_its_snapshot_while_clients_write_and_delete() {
    let busy = Busy::new();
    let server = busy.server();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let busy = &busy;
            scope.spawn(move || busy.write(writer).expect("the server lasts"));
        }
        let ends = Ends(&busy.ends);
        busy.wait_for(500);
        let mut taken: Vec<(String, [usize; WRITERS], [usize; WRITERS])> = Vec::new();
        for round in 0..4 {
            let after = busy.numbers().map(|sent| sent.saturating_sub(1));
            busy.snapshot(&format!("s{round}")).ok();
            taken.push((format!("s{round}"), after, busy.numbers()));
            busy.wait_for(2000);
            // The newest, and the one that has waited longest, by now behind others.
            for (name, after, before) in [&taken[0], &taken[taken.len() - 1]] {
                let output = format!("{name}.hsi");
                run(busy.commit(&output, name)).ok();
                busy.is_of_a_moment(&output, *after, *before);
            }
            if round > 0 {
                run(["overlay", "delete", &busy.scene.arg("changes"), &format!("s{round}")]).ok();
                taken.pop();
            }
        }
        let mut delta = busy.commit("delta.hsi", "s0");
        delta.push("--delta".to_owned());
        run(delta).ok();
        let (raw, image) = (busy.scene.arg("whole.raw"), busy.scene.arg("s0.hsi"));
        run(["-q", "export", &image, "-o", &raw, "--format", "raw"]).ok();
        let base = busy.scene.arg("disk.hsi");
        run(["verify", &busy.scene.arg("delta.hsi"), "--against", &raw, "--base", &base]).ok();
        assert_eq!(busy.names(), ["s0"]);
        drop(ends);
    });
    // What could not be made leaves nothing.
    let changes = busy.scene.arg("changes");
    busy.snapshot("s0").fails(1, &["changes", "'s0'", "there is one of this name"]);
    run(["overlay", "delete", &changes, "s9"]).fails(1, &["changes", "no snapshot 's9'"]);
    run(["overlay", "revert", &changes, "s0"]).fails(1, &["changes", "in use by another process"]);
    run(["overlay", "compact", &changes]).fails(1, &["changes", "in use by another process"]);
    run(busy.commit("no.hsi", "s9")).fails(1, &["changes", "no snapshot 's9'"]);
    end(server);
    run(["overlay", "check", &changes]).ok();
    assert_eq!(busy.names(), ["s0"]);
    // Without a server the same is done here.
    busy.snapshot("s1").ok();
    run(busy.commit("last.hsi", "s1")).ok();
    busy.is_of_a_moment("last.hsi", busy.numbers(), busy.numbers());
    assert!(!busy.scene.path("no.hsi").exists());
}

/// Ends the clients, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_server_that_is_killed_leaves_a_snapshot_whole_or_not_at_all() {
    let busy = Busy::new();
    let mut prng = Prng::new(17);
    let (mut there, mut lasting) = (0, Vec::new());
    for round in 0..KILLS {
        let server = busy.server();
        let name = format!("s{round}");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let busy = &busy;
                scope.spawn(move || busy.write(writer));
            }
            busy.wait_for(20 + prng.below(200));
            let after = busy.numbers().map(|sent| sent.saturating_sub(1));
            // An old snapshot is committed meanwhile, and is what it was.
            let committing = (!lasting.is_empty()).then(|| {
                let mut command = headstart(busy.commit("old.hsi", "s0"));
                command.spawn().expect("started")
            });
            let asked = scope.spawn(|| busy.snapshot(&name));
            std::thread::sleep(std::time::Duration::from_millis(prng.below(25)));
            server.signal(Signal::KILL);
            let asked = asked.join().expect("no panic");
            let before = busy.numbers();
            drop(server.end());
            let names = busy.names();
            assert!(asked.code != Some(0) || names.contains(&name), "round {round}: {asked:?}");
            if let Some(mut committing) = committing {
                assert!(committing.wait().expect("waited for").success());
                let (after, before) = lasting[0];
                busy.is_of_a_moment("old.hsi", after, before);
            }
            if names.contains(&name) {
                run(busy.commit("new.hsi", &name)).ok();
                busy.is_of_a_moment("new.hsi", after, before);
                there += 1;
                if round > 0 {
                    run(["overlay", "delete", &busy.scene.arg("changes"), &name]).ok();
                } else {
                    lasting.push((after, before));
                }
            } else if round == 0 {
                busy.snapshot("s0").ok();
                lasting.push((after, before));
            }
        });
        assert_eq!(busy.names(), ["s0"], "round {round}");
    }
    assert!(there > 0, "no snapshot was taken");
}

/// A commit that is killed leaves no image, or the one before; the server goes on.
#[test]
fn a_commit_that_is_killed_leaves_the_image_before() {
    let busy = Busy::new();
    let server = busy.server();
    let mut client = NbdWriter::connect(&busy.scene.path("socket")).expect("connected");
    assert_eq!(client.write(FUA, 0, &vec![7; 100 * BLOCK]).expect("answered"), 0);
    busy.snapshot("s0").ok();
    let (words, output) = (busy.commit("new.hsi", "s0"), busy.scene.path("new.hsi"));
    let mut prng = Prng::new(3);
    let mut before = None;
    for _ in 0..10 {
        let mut committing = headstart(&words).spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_millis(prng.below(60)));
        committing.kill().expect("killed");
        committing.wait().expect("waited for");
        let now = fs::read(&output).ok();
        assert!(now == before || run(["verify", &busy.scene.arg("new.hsi")]).code == Some(0));
        before = now;
    }
    run(&words).ok();
    assert_eq!(client.write(FUA, 0, &[8; BLOCK]).expect("answered"), 0);
    end(server);
}

/// A server that is not found, as one of an older version: what is said is what was said.
#[test]
fn without_a_socket_the_file_is_in_use() {
    let busy = Busy::new();
    let server = busy.server();
    let folder = if rustix::process::geteuid().is_root() {
        "/run/headstart".to_owned()
    } else {
        std::env::var("XDG_RUNTIME_DIR").map_or_else(|_| String::new(), |folder| folder + "/headstart")
    };
    let about = fs::metadata(busy.scene.path("changes")).expect("there");
    let socket = Path::new(&folder).join(format!("keep-{:x}-{:x}.sock", about.dev(), about.ino()));
    if socket.exists() {
        fs::remove_file(&socket).expect("removed");
        busy.snapshot("s0").fails(1, &["changes", "in use by another process"]);
        assert!(busy.names().is_empty(), "it can be looked at all the same");
    }
    end(server);
}

/// The kernel's own file system, with a program that writes to it and deletes; the server has a supervisor.
#[test]
fn a_mounted_file_system_becomes_an_image_while_programs_write() {
    if !machine() || !has_tools(&["fsfreeze"]) {
        return;
    }
    let scene = Scene::new();
    let image = roomy(&scene);
    let (dir, place, changes) = (scene.folder("dir"), scene.folder("fs"), scene.arg("changes"));
    mount(&scene, &[&image, &dir, "--fs", &place, "--keep", &changes]).ok();
    // Files are replaced as dpkg does, each synced.
    let script = "cd $0; i=0; while :; do i=$((i + 1)); seq $i $((i + 2000)) >new; sync new; \
                  mv new var/$((i % 20)); rm -f var/$(((i + 7) % 20)); echo $i; done";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, &place]);
    let mut writing = Running::start_command(command);
    let mut last = 0_u64;
    for name in ["crash", "frozen"] {
        for _ in 0..30 {
            last = writing.printed().trim().parse().expect("a number");
        }
        if name == "frozen" {
            tool("fsfreeze", &["-f", &place]);
        }
        let taken = run(["overlay", "snapshot", &changes, name]);
        if name == "frozen" {
            tool("fsfreeze", &["-u", &place]);
        }
        taken.ok();
        let new = scene.arg(&format!("{name}.hsi"));
        run(["-q", "commit", &image, &changes, "-o", &new, "--snapshot", name]).ok();
        let raw = scene.arg("new.raw");
        run(["-q", "export", &new, "-o", &raw, "--format", "raw", "--force"]).ok();
        if name == "crash" {
            // The journal is replayed, and nothing else has to be done.
            tool("e2fsck", &["-p", "-E", "journal_only", &raw]);
        }
        tool("e2fsck", &["-fn", &raw]);
        let listed = tool("debugfs", &["-R", "ls -p /var", &raw]).stdout;
        let files = listed.lines().filter_map(|line| line.split('/').nth(5)?.parse::<u64>().ok());
        let mut newest = 0;
        for file in files {
            let text = tool("debugfs", &["-R", &format!("cat /var/{file}"), &raw]).stdout;
            let first: u64 = text.lines().next().expect("a line").parse().expect("a number");
            let expected: String = (first..=first + 2000).map(|number| format!("{number}\n")).collect();
            assert!(text == expected && first % 20 == file, "{name}: file {file}");
            newest = newest.max(first);
        }
        assert!(newest + 1 >= last, "{name}: what was synced is there: {newest}, {last}");
    }
    writing.signal(Signal::TERM);
    drop(writing.end());
    umount(&place);
    scene.wait_until_clean();
    run(["overlay", "check", &changes]).ok();
}
