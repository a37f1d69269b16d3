//! A command always ends: signals at random moments, while the store misbehaves in every way.
//!
//! A few in `make test`; as many as `ENDINGS` says, in the order of their seeds.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hs_units::Prng;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::misbehaving::{Manners, Misbehaving};
use crate::scene::{PATIENCE, Running, START, Scene, headstart, machine_has, run, wait_until};

/// Endings when no number is set.
const ENDINGS: u64 = 20;
const ENDINGS_VARIABLE: &str = "ENDINGS";
/// Cases that run beside each other: most of the time they wait.
const AT_ONCE: usize = 3;
/// The requirement, for a machine with time to spare.
const LIMIT: Duration = Duration::from_secs(5);
/// Factor of the time limits for a loaded machine.
const SLACK: u32 = 6;

/// The command that is ended.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Run,
    Profile,
    MountInForeground,
    MountUnsupervised,
    Boot,
    Serve,
}

const KINDS: [Kind; 7] = [
    Kind::Run,
    Kind::MountInForeground,
    Kind::MountUnsupervised,
    Kind::Run,
    Kind::Boot,
    Kind::Profile,
    Kind::Serve,
];

/// What it is ended with, and which of them come at once.
const SIGNALS: [&[Signal]; 5] = [
    &[Signal::INT],
    &[Signal::TERM],
    &[Signal::INT, Signal::TERM],
    &[Signal::INT, Signal::INT],
    &[Signal::TERM, Signal::TERM],
];

/// The processes, mounts and devices of one start, as they were just before its end. Other tests run beside
/// this one and may reuse a number, so each is kept with what distinguishes it from a later one.
#[derive(Default)]
struct Traces {
    /// Processes, and when each was started.
    processes: Vec<(u32, String)>,
    /// Numbers of FUSE connections.
    connections: Vec<String>,
    /// Loop devices, and which attachment of each.
    loops: Vec<(String, String)>,
}

impl Traces {
    /// Of this process and all that it has started. `others` are file systems that were mounted before it
    /// started: a mount namespace of its own begins with copies of them.
    fn of(root: u32, others: &HashSet<String>) -> Self {
        let mut traces = Self::default();
        let others: HashSet<_> = others.union(&mounted_here()).cloned().collect();
        let mut numbers = vec![root];
        while let Some(number) = numbers.pop() {
            let Some(started) = started(number) else { continue };
            traces.processes.push((number, started));
            for task in fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                numbers.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
            let table = fs::read(format!("/proc/{number}/mountinfo")).unwrap_or_default();
            traces.note_mounts(&String::from_utf8_lossy(&table), root, &others);
        }
        traces
    }

    /// Only mounts in a namespace of its own belong to the start for certain. Others have the scene's name.
    fn note_mounts(&mut self, table: &str, root: u32, others: &HashSet<String>) {
        let namespace = |process: String| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        if namespace(root.to_string()) == namespace("self".to_owned()) {
            return;
        }
        for line in table.lines() {
            let device = line.split(' ').nth(2).unwrap_or_default();
            if others.contains(device) {
                continue;
            }
            if line.contains(" - fuse.headstart ") && !self.connections.iter().any(|known| known == device) {
                self.connections.push(device.to_owned());
            }
            if let Some(name) = line.split(' ').find_map(|word| word.strip_prefix("/dev/loop"))
                && let Some(sequence) = sequence(&format!("loop{name}"))
            {
                self.loops.push((format!("loop{name}"), sequence));
            }
        }
    }

    /// What of it is still there.
    fn left(&self, scene: &Scene) -> String {
        let mut left = String::new();
        for (number, started_at) in &self.processes {
            if started(*number).as_ref() == Some(started_at) {
                let wait = fs::read_to_string(format!("/proc/{number}/wchan")).unwrap_or_default();
                let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                let _ = writeln!(left, "process {number} (waits in {wait}): {line}");
            }
        }
        for (name, attachment) in &self.loops {
            let is_attached = fs::exists(format!("/sys/block/{name}/loop")).unwrap_or_default();
            if is_attached && sequence(name).as_ref() == Some(attachment) {
                let _ = writeln!(left, "loop device {name}");
            }
        }
        for device in &self.connections {
            if fs::exists(format!("/sys/class/bdi/{device}")).unwrap_or_default() && !is_mounted(device) {
                let _ = writeln!(left, "FUSE connection {device}");
            }
        }
        scene.mounts().iter().for_each(|line| {
            let _ = writeln!(left, "{line}");
        });
        for entry in fs::read_dir("/sys/block").expect("devices").flatten() {
            let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if file.starts_with(&scene.arg("")) {
                let _ = writeln!(left, "loop device of {file}");
            }
        }
        left
    }
}

/// The device numbers of all file systems that this process sees.
fn mounted_here() -> HashSet<String> {
    let table = fs::read("/proc/thread-self/mountinfo").expect("a table of mounts");
    String::from_utf8_lossy(&table)
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .map(str::to_owned)
        .collect()
}

/// When a process was started, unless it has ended.
fn started(number: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A leader that has ended before one of its threads is a zombie too, and stays one.
    let threads = fs::read_dir(format!("/proc/{number}/task")).map_or(0, Iterator::count);
    (state != "X" && (state != "Z" || threads > 1)).then(|| fields.nth(18).map(str::to_owned)).flatten()
}

/// Which of all disks that ever were a block device is now.
fn sequence(name: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/block/{name}/diskseq")).ok()
}

/// Whether some process has a FUSE file system with this device number: another test's, which got the number.
fn is_mounted(device: &str) -> bool {
    fs::read_dir("/proc").expect("processes").flatten().any(|entry| {
        let table = fs::read(entry.path().join("mountinfo")).unwrap_or_default();
        String::from_utf8_lossy(&table).lines().any(|line| line.split(' ').nth(2) == Some(device))
    })
}

struct Case {
    seed: u64,
    kind: Kind,
    manners: Manners,
    signals: &'static [Signal],
    /// Requests after which the signal comes, and a further pause.
    requests: u64,
    pause: Duration,
}

impl Case {
    fn drawn(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ 0xe4d1);
        let well = prng.below(12);
        let manners = match seed % 5 {
            0 => Manners::SilentAfter(well),
            1 => Manners::NoRanges,
            2 => Manners::TrickleAfter(well),
            3 => Manners::CutAfter(well),
            _ => Manners::BusyAfter(well),
        };
        Self {
            seed,
            kind: KINDS[(seed / 5 + seed) as usize % KINDS.len()],
            manners,
            signals: SIGNALS[prng.below(SIGNALS.len() as u64) as usize],
            requests: prng.below(well + 3),
            pause: Duration::from_millis(prng.below(700)),
        }
    }
}

fn start(case: &Case, scene: &Scene, url: &str) -> Child {
    let (dir, fs) = (scene.arg(&format!("dir-{}", case.seed)), scene.arg(&format!("fs-{}", case.seed)));
    for folder in [&dir, &fs] {
        fs::create_dir(folder).expect("a folder");
    }
    let cache = format!("--disk-cache={}", scene.arg(&format!("cache-{}", case.seed)));
    let sums = ["--", "/bin/md5sum", "/hot", "/bin/busybox", "/etc/motd"];
    let arguments: Vec<&str> = match case.kind {
        Kind::Run => [&["run", "--insecure", url, &cache], &sums[..]].concat(),
        Kind::Profile => [&["profile", "--insecure", url, &cache, "-o", "/dev/null"], &sums[..]].concat(),
        Kind::MountInForeground => vec!["mount", "-f", "--insecure", url, &dir, "--fs", &fs, &cache],
        Kind::MountUnsupervised => {
            vec!["mount", "-f", "--insecure", "--unsupervised", url, &dir, "--fs", &fs, &cache]
        }
        Kind::Boot => vec!["boot", "--insecure", url, &cache, "--ready-timeout", "600"],
        Kind::Serve => vec!["serve", url, &cache, "--nbd", "127.0.0.1:0"],
    };
    let mut command: Command = headstart(arguments);
    let said = fs::File::create(scene.path(&format!("said-{}", case.seed))).expect("a file");
    command.stdout(Stdio::null()).stderr(said);
    command.process_group(0).spawn().expect("the program starts")
}

/// A program that waits for a read in the mount when its server is told to end.
fn read_from(case: &Case, scene: &Scene) -> Option<Child> {
    let dir = scene.path(&format!("fs-{}", case.seed));
    let mut command = Command::new("ls");
    command.arg("-lR").arg(dir);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// How long it took until nothing was left.
fn end(case: &Case, scene: &Scene, file: &Arc<Vec<u8>>) -> (Duration, bool) {
    let server = Misbehaving::start(Arc::clone(file), case.manners);
    let others = mounted_here();
    let mut child = start(case, scene, &server.url());
    let begun = Instant::now();
    let ended = |child: &mut Child| child.try_wait().expect("asked").is_some();
    while server.seen() < case.requests && begun.elapsed() < Duration::from_secs(20) && !ended(&mut child) {
        std::thread::sleep(Duration::from_millis(2));
    }
    // The moments differ, which is what they are for.
    std::thread::sleep(case.pause);
    let reader = read_from(case, scene);
    let by_itself = ended(&mut child);
    let traces = Traces::of(child.id(), &others);
    let told = Instant::now();
    for signal in case.signals {
        if !ended(&mut child) {
            kill_process(Pid::from_child(&child), *signal).expect("signalled");
        }
    }
    let limit = LIMIT * SLACK;
    let mut reader = reader;
    let is_clean = |child: &mut Child, reader: &mut Option<Child>| {
        let read = reader.as_mut().is_none_or(ended);
        ended(child) && read && traces.left(scene).is_empty()
    };
    while !is_clean(&mut child, &mut reader) {
        if told.elapsed() > limit {
            let said = fs::read_to_string(scene.path(&format!("said-{}", case.seed)));
            panic!(
                "seed {}: {:?} with {:?} ended with {:?}: left after {limit:?}:\n{}\n{}",
                case.seed,
                case.kind,
                case.manners,
                case.signals,
                traces.left(scene),
                said.unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    (told.elapsed(), by_itself)
}

/// The image of a root, and what in it a start reads first is hot.
fn published(scene: &Scene) -> Arc<Vec<u8>> {
    let root = scene.path("root");
    for name in ["bin", "sbin", "dev", "proc", "sys", "tmp", "etc"] {
        fs::create_dir_all(root.join(name)).expect("a folder");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    std::os::unix::fs::symlink("busybox", root.join("bin/md5sum")).expect("a link");
    std::os::unix::fs::symlink("../bin/busybox", root.join("sbin/init")).expect("a link");
    fs::write(root.join("etc/motd"), "hello\n").expect("written");
    let mut bytes = vec![0; 3_000_000];
    Prng::new(5).fill(&mut bytes);
    fs::write(root.join("hot"), &bytes).expect("written");
    let (plain, fast) = (scene.arg("plain.hsi"), scene.arg("fast.hsi"));
    run(["build", &scene.arg("root"), "-o", &plain, "--free", "16M", "--codec", "zstd:1"]).ok();
    run(["profile", &plain, "-o", &scene.arg("p"), "--", "/bin/md5sum", "/bin/busybox"]).ok();
    run(["optimize", &plain, "-p", &scene.arg("p"), "-o", &fast, "--codec", "zstd:1"]).ok();
    Arc::new(fs::read(scene.path("fast.hsi")).expect("the image"))
}

/// How long the case of this seed took, its name, and whether it had ended before the signal.
fn ended_case(seed: u64, scene: &Scene, file: &Arc<Vec<u8>>) -> (Duration, String, bool) {
    let case = Case::drawn(seed);
    let (time, by_itself) = end(&case, scene, file);
    (time, format!("seed {seed}: {:?}, {:?}, {:?}", case.kind, case.manners, case.signals), by_itself)
}

fn endings() -> u64 {
    std::env::var(ENDINGS_VARIABLE).map_or(ENDINGS, |text| text.parse().expect("a number"))
}

#[test]
fn whatever_the_store_does_a_signal_ends_everything() {
    if !machine_has(START) {
        return;
    }
    let file = published(&Scene::new());
    let mut found = std::thread::scope(|threads| {
        let in_turn = |first| {
            let file = &file;
            threads.spawn(move || {
                let scene = Scene::new();
                (first..endings())
                    .step_by(AT_ONCE)
                    .map(|seed| ended_case(seed, &scene, file))
                    .collect::<Vec<_>>()
            })
        };
        let workers: Vec<_> = (0..AT_ONCE as u64).map(in_turn).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect::<Vec<_>>()
    });
    found.sort();
    let by_themselves = found.iter().filter(|(_, _, by_itself)| *by_itself).count() as u64;
    let took: Vec<_> = found.into_iter().map(|(time, case, _)| (time, case)).collect();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].0.as_secs_f64();
    eprintln!(
        "{} endings, {by_themselves} of them by themselves before the signal: median {:.2} s, 90% {:.2} s, 99% {:.2} s, \
         the slowest: {:?}",
        took.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        &took[took.len().saturating_sub(5)..]
    );
    // Servers without ranges are refused at once; of the others most must have been there to be ended.
    assert!(by_themselves * 2 < endings(), "{by_themselves} of {} ended by themselves", endings());
}

/// A regression: a store that stops answering, then INT, and later TERM. Nothing may stay, also when it is
/// killed.
#[test]
fn a_start_whose_store_falls_silent_ends_by_signals_and_when_it_is_killed() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let file = published(&scene);
    let signals = &[Signal::INT, Signal::TERM][..];
    // The mount of a killed server without a supervisor stays, dead, until it is cleared away.
    let all = [(Kind::Run, signals), (Kind::MountUnsupervised, signals), (Kind::Run, &[Signal::KILL])];
    let cases = all.into_iter().flat_map(|(kind, signals)| [1, 2].map(move |well| (kind, signals, well)));
    for (number, (kind, signals, well)) in cases.enumerate() {
        let seed = 1_000 + number as u64;
        let case = Case {
            seed,
            kind,
            manners: Manners::SilentAfter(well),
            signals,
            requests: well + 1,
            pause: Duration::from_millis(300),
        };
        let (_, by_itself) = end(&case, &scene, &file);
        assert!(!by_itself, "seed {seed}: {kind:?} ended before it was told");
    }
}

/// A program that lives with signals, as interactive ones do, goes on with its disk.
#[test]
fn a_command_that_survives_signals_keeps_its_disk() {
    const SCRIPT: &str = "n=0; trap 'n=$((n+1)); echo told' INT; trap '' HUP QUIT; echo up; \
        while [ $n -lt 2 ]; do /bin/busybox sleep 0.1; done; /bin/busybox sleep 2.5; \
        /bin/busybox md5sum /hot && exit 7";
    if !machine_has(START) || !crate::scene::has_tools(&["mke2fs"]) {
        return;
    }
    let scene = Scene::new();
    published(&scene);
    let foreign = scene.arg("foreign.img");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-b", "4096", "-d", &scene.arg("root"), &foreign, "32M"]);
    assert!(mke2fs.stdout(Stdio::null()).status().expect("mke2fs starts").success());
    for disk in [&["--prefetch=off", &scene.arg("plain.hsi")], &["--foreign", &foreign]] {
        let command = ["--medium=flat-1ms-25mbs", "--", "/bin/busybox", "sh", "-c", SCRIPT];
        let mut running = Running::start([&["run"], &disk[..], &command].concat());
        assert_eq!(running.printed(), "up\n");
        for _ in 0..2 {
            running.signal(Signal::HUP);
            running.signal(Signal::QUIT);
            running.signal(Signal::INT);
            assert_eq!(running.printed(), "told\n");
            // Later than a second, so that the next signal counts by itself.
            std::thread::sleep(Duration::from_secs(2));
        }
        let (status, printed, said) = running.end();
        assert_eq!(status.code(), Some(7), "{printed}{said}");
        assert!(printed.ends_with("  /hot\n"), "{printed}{said}");
    }
    scene.wait_until_clean();
}

/// The server that most users have at hand.
#[test]
fn pythons_web_server_is_refused_at_once() {
    if !machine_has(START) || !crate::scene::has_tools(&["python3"]) {
        return;
    }
    let scene = Scene::new();
    let file = published(&scene);
    fs::create_dir(scene.path("www")).expect("a folder");
    fs::write(scene.path("www/image.hsi"), &*file).expect("published");
    let mut command = Command::new("python3");
    command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", &scene.arg("www"), "0"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("python starts");
    let mut said = String::new();
    let stdout = server.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said).expect("it says where");
    let port = said.split_whitespace().find_map(|word| word.parse::<u16>().ok()).expect("a port");
    let url = format!("http://127.0.0.1:{port}/image.hsi");
    let began = Instant::now();
    let ran = run(["run", "--insecure", &url, "--disk-cache=none", "--", "/bin/md5sum", "/hot"]);
    let took = began.elapsed();
    server.kill().expect("killed");
    server.wait().expect("ended");
    ran.fails(1, &["range requests"]);
    assert!(took < PATIENCE / 4, "{took:?}");
}

/// Reads without an answer fail after the given time. Until then `status` shows that they wait.
#[test]
fn a_silent_store_is_told_of_and_given_up() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    scene.image("big.hsi", 2_000, 77);
    let file = Arc::new(fs::read(scene.path("big.hsi")).expect("the image"));
    for (number, manners) in [Manners::SilentAfter(4), Manners::TrickleAfter(4)].into_iter().enumerate() {
        let server = Misbehaving::start(Arc::clone(&file), manners);
        let dir = scene.folder(&format!("dir-{number}"));
        let status = crate::service::server_of;
        let cache = "--disk-cache=none";
        let arguments =
            ["mount", "-f", &server.url(), &dir, cache, "--prefetch", "off", "--read-timeout", "4"];
        let mut mounted = Running::start(arguments);
        // The first message says that the image has no signature.
        while !mounted.said().contains("mounted") {}
        let path = PathBuf::from(&dir).join("disk.img");
        let (seen, failed) = (AtomicBool::new(false), Mutex::new(None));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = fs::File::open(path).expect("opened");
                let mut at = (0..2_000_u64).rev().map(|block| block * 4096).cycle();
                // On and on, so that however long it takes to ask, a read waits.
                while !seen.load(Relaxed) || failed.lock().is_none() {
                    let began = Instant::now();
                    let offset = at.next().expect("endless");
                    if file.read_exact_at(&mut [0; 4096], offset).is_err() {
                        *failed.lock() = Some(began.elapsed());
                    }
                }
            });
            wait_until("it is seen that a read waits", || {
                let now = status(&dir);
                now["waiting_now"].as_u64() > Some(0) && now["waiting_longest_s"].as_f64() > Some(0.3)
            });
            seen.store(true, Relaxed);
        });
        let failed = failed.lock().expect("an error");
        assert!(failed > Duration::from_secs(2) && failed < PATIENCE, "{failed:?}");
        mounted.signal(Signal::TERM);
        let (code, _, said) = mounted.end();
        assert!(code.success(), "{said}");
        assert!(
            said.contains("no answer from http://") && said.contains("wait") && said.contains("given up"),
            "{said}"
        );
    }
    scene.wait_until_clean();
}
