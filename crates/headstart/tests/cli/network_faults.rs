//! Programs and guests that start over a network which fails in every way: they start as if nothing had been,
//! once the server behaves, or end with an error that says why; no byte is wrong.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

use hs_units::Prng;
use rustix::process::Signal;

use crate::boots::{GUEST, kept_console, little_guest};
use crate::faulty_server::{FaultyServer, Identity};
use crate::scene::{Ran, Running, START, Scene, machine_has, run, wait_until};
use crate::web::run_remote;

/// So many schedules are tried of starts and of boots; or as many as this variable says: `100`, or a portion
/// of them, `40..60`.
const STARTS: u64 = 20;
const BOOTS: u64 = 20;
const SEEDS_VARIABLE: &str = "NETWORK_FAULT_SEEDS";

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let said = std::env::var(SEEDS_VARIABLE).ok();
    let (first, last) = said.as_deref().map_or((None, None), |said| match said.split_once("..") {
        Some((first, last)) => (Some(first), Some(last)),
        None => (None, Some(said)),
    });
    let number = |text: &str| text.parse().expect("a number");
    first.map_or(0, number)..last.map_or(usual, number)
}

/// The bytes of a file that compresses to half.
pub(crate) fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    content.chunks_mut(64).enumerate().for_each(|(at, piece)| {
        let half = piece.len() / 2;
        Prng::new(seed ^ (at as u64) << 8).fill(&mut piece[..half]);
    });
    content
}

/// The little guest's image with two files of the folder: `hot`, which a recorded boot reads, and `cold`.
/// `then` is what it does when it is up; the image is as its server has it.
pub(crate) fn published(scene: &Scene, cold: &[u8], init: &str) -> Vec<u8> {
    fs::write(scene.path("root/hot"), content(1, 1_500_000)).expect("written");
    fs::write(scene.path("root/cold"), cold).expect("written");
    fs::write(scene.path("root/sbin/init"), init).expect("written");
    fs::set_permissions(scene.path("root/sbin/init"), fs::Permissions::from_mode(0o755)).expect("executable");
    let (image, fast) = (scene.arg("plain.hsi"), scene.arg("fast.hsi"));
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    run(["profile", &image, "-o", &scene.arg("p"), "--", "/bin/md5sum", "/hot", "/bin/busybox"]).ok();
    run(["optimize", &image, "-p", &scene.arg("p"), "-o", &fast, "--codec", "zstd:1"]).ok();
    fs::read(scene.path("fast.hsi")).expect("the image")
}

pub(crate) fn guest_with(name: &str) -> Scene {
    let (scene, _) = little_guest();
    symlink("busybox", scene.path("root/bin").join(name)).expect("a link");
    scene
}

/// The image's name.
pub(crate) fn name(scene: &Scene) -> String {
    run(["verify", &scene.arg("fast.hsi")]).ok().stdout.lines().last().expect("a name").to_owned()
}

pub(crate) const SUMS: [&str; 5] = ["--", "/bin/md5sum", "/hot", "/cold", "/bin/busybox"];

/// `headstart run`, with its temporary files and cache in the scene.
fn start(scene: &Scene, url: &str, cache: &str) -> Ran {
    let cache = format!("--disk-cache={}", scene.arg(cache));
    run_remote(scene, &[&["run", url, &cache], &SUMS[..]].concat())
}

/// Reasons that a last message may give.
const REASONS: [&str; 6] = [
    "the server answered",
    "the answer ended after",
    "the server's answer makes no sense",
    "the server ignores that only a range was asked for",
    "the file was replaced on the server",
    "what came was not what the image says",
];

/// It must have failed, and headstart itself must have said at last which image could not be read, and why.
fn assert_clear(ran: &Ran, url: &str, seed: u64) {
    assert!(ran.code.is_some_and(|code| code != 0), "seed {seed}: {ran:?}");
    assert_says_why(ran, url, &REASONS, seed);
}

fn assert_says_why(ran: &Ran, url: &str, reasons: &[&str], seed: u64) {
    let own = |line: &&str| line.starts_with("headstart: ");
    let last = ran.stderr.lines().rfind(own).unwrap_or_else(|| panic!("seed {seed}: {ran:?}"));
    let address = url.split('#').next().expect("an address");
    assert!(last.contains(address), "seed {seed}: {ran:?}");
    assert!(reasons.iter().any(|reason| last.contains(reason)), "seed {seed}: {ran:?}");
    assert!(!ran.stderr.contains("panicked"), "seed {seed}: {ran:?}");
    // For a user who runs many seeds.
    eprintln!("seed {seed}: {}", ran.stderr.trim());
}

#[test]
fn a_start_under_faults_reads_what_is_right_or_fails() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let scene = guest_with("md5sum");
    let file = published(&scene, &content(2, 1_000_000), "");
    let expected = run([&["run", &scene.arg("fast.hsi")], &SUMS[..]].concat()).ok().stdout;
    let server = FaultyServer::start(file, Identity::Tag);
    let url = format!("{}#{}", server.url(), name(&scene));
    let (mut whole, mut failed) = (0, 0);
    for seed in seeds(STARTS) {
        server.misbehave(Some(seed));
        let cache = format!("cache-{seed}");
        let ran = start(&scene, &url, &cache);
        if ran.code == Some(0) {
            assert_eq!(ran.stdout, expected, "seed {seed}");
            whole += 1;
        } else {
            assert_clear(&ran, &url, seed);
            // What could be read was right all the same.
            assert!(ran.stdout.lines().all(|line| expected.contains(line)), "seed {seed}: {ran:?}");
            failed += 1;
        }
        server.misbehave(None);
        assert_eq!(start(&scene, &url, &cache).ok().stdout, expected, "seed {seed}");
        fs::remove_dir_all(scene.path(&cache)).expect("removed");
    }
    let (seen, mishaps) = server.counts();
    eprintln!("{whole} starts were whole, {failed} failed; {mishaps} of {seen} requests went wrong");
    assert_came_through(whole, failed, mishaps);
    scene.wait_until_clean();
}

/// What failed after seconds is no place of a drive, which is left alone for many more.
#[test]
fn a_server_that_failed_slowly_is_asked_again_by_the_next_read() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    scene.image("big.hsi", 2_000, 77);
    let server = FaultyServer::start(fs::read(scene.path("big.hsi")).expect("the image"), Identity::Tag);
    let dir = scene.folder("dir");
    let words = ["mount", "-f", &server.url(), &dir, "--disk-cache=none", "--prefetch", "off"];
    let mut mounted = Running::start(words);
    while !mounted.said().contains("mounted") {}
    let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
    let read = || file.read_exact_at(&mut [0; 4096], 1_000 * 4096);
    let (everything, before) = (0..usize::MAX, server.counts().1);
    server.refuse(everything.clone(), 503, Some(2));
    std::thread::scope(|scope| {
        let reading = scope.spawn(read);
        wait_until("the server has asked for a pause", || server.counts().1 > before);
        server.refuse(everything, 404, None);
        reading.join().expect("no panic").expect_err("it is refused in the end");
    });
    server.refuse(0..0, 404, None);
    read().expect("the server is back");
    mounted.signal(Signal::TERM);
    let (code, _, said) = mounted.end();
    assert!(code.success(), "{said}");
    scene.wait_until_clean();
}

/// Enough requests must have failed, and most starts must have succeeded all the same: three of four
/// schedules have no fault that a client cannot outlast.
fn assert_came_through(whole: u64, failed: u64, mishaps: u64) {
    let all = whole + failed;
    assert!(mishaps >= all, "{mishaps} mishaps in {all} starts");
    assert!(whole * 2 >= all, "only {whole} of {all} starts were whole");
}

/// Tells the sums, or which file could not be read.
pub(crate) const SUMMING: &str = "#!/bin/sh
for file in hot cold bin/busybox; do md5sum /$file || echo lost $file; done
echo summed
while :; do sleep 1000; done
";

/// `headstart boot` of the image there.
fn boot_from(scene: &Scene, url: &str, flags: &[&str]) -> Ran {
    let command = ["boot", url, "--disk-cache=none", "--memory", "64M"];
    let mut command = crate::web::remote(scene, command.iter().chain(flags));
    command.env("TMPDIR", scene.path("tmp")).output().expect("the program starts").into()
}

/// The checksums on the console, in whole lines: a guest may be ended in the middle of one.
pub(crate) fn sums(said: &str) -> Vec<String> {
    let said = said.replace('\r', "");
    let said = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let of_files = |line: &&str| line.contains("  /") || line.starts_with("lost ");
    said.lines().filter(of_files).map(str::to_owned).collect()
}

#[test]
fn a_guest_boots_under_faults_and_what_it_reads_is_right() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let scene = guest_with("md5sum");
    let file = published(&scene, &content(2, 1_000_000), SUMMING);
    let server = FaultyServer::start(file, Identity::Tag);
    let url = format!("{}#{}", server.url(), name(&scene));
    let console = scene.arg("console");
    let boot = || boot_from(&scene, &url, &["--ready", "^summed$", "--console", &console]);
    boot().ok();
    let expected = sums(&fs::read_to_string(&console).expect("the console"));
    assert_eq!(expected.len(), 3);
    let (mut whole, mut failed) = (0, 0);
    for seed in seeds(BOOTS) {
        server.misbehave(Some(seed));
        let ran = boot();
        server.misbehave(None);
        let read = fs::read_to_string(&console).map(|said| sums(&said)).unwrap_or_default();
        for line in &read {
            let is_lost = line.starts_with("lost ") && ran.stderr.contains("Input/output");
            assert!(expected.contains(line) || is_lost, "seed {seed}: {line}\n{ran:?}");
        }
        if ran.code == Some(0) && read == expected {
            whole += 1;
        } else {
            failed += 1;
        }
        if ran.code != Some(0) {
            assert_clear(&ran, &url, seed);
        }
        fs::remove_file(&console).expect("removed");
    }
    let (seen, mishaps) = server.counts();
    eprintln!("{whole} boots were whole, {failed} were not; {mishaps} of {seen} requests went wrong");
    assert_came_through(whole, failed, mishaps);
    scene.wait_until_clean();
}

/// Where the middle of `needle`, which does not compress and is stored as it is, lies in an image.
fn place_of(needle: &[u8], image: &[u8]) -> usize {
    let needle = &needle[needle.len() / 2..][..64];
    hs_testing::place(image, needle).expect("the file is in the image")
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Prng::new(seed).fill(&mut noise);
    noise
}

/// A server that never recovers: the last message says what a program or a guest lost by it, with the reason.
#[test]
fn a_server_says_what_it_cannot_read_for_good() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let scene = guest_with("md5sum");
    let cold = noise(7, 950_000);
    let file = published(&scene, &cold, SUMMING);
    let at = place_of(&cold, &file);
    let name = name(&scene);
    let served = || {
        let server = FaultyServer::start(file.clone(), Identity::Tag);
        let url = format!("{}#{name}", server.url());
        (server, url)
    };
    // What it answers for the place; nothing where it answers with other bytes.
    let ways = [
        (Some((404, None)), "the server answered 404 (there is no such file)"),
        (Some((403, None)), "the server answered 403 (it refuses access)"),
        (Some((503, Some(3_600))), "the server answered 503 (it is overloaded)"),
        (None, "what came was not what the image says"),
    ];
    for (number, (answer, why)) in (0..).zip(ways) {
        let (server, url) = served();
        match answer {
            Some((status, again)) => server.refuse(at..at + 64, status, again),
            None => server.spoil(at),
        }
        let ran = start(&scene, &url, "cache");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(!ran.stdout.contains("/cold") && ran.stdout.contains("/hot"), "{ran:?}");
        assert_says_why(&ran, &url, &[why], number);
        // The guest's own init goes on, so it boots; what it lacked is reported all the same.
        let ran = boot_from(&scene, &url, &["--ready", "^summed$", "--console", &scene.arg("console")]).ok();
        let said = sums(&fs::read_to_string(scene.path("console")).expect("the console"));
        assert!(said.contains(&"lost cold".to_owned()), "{said:?}");
        assert_says_why(&ran, &url, &[why], number);
    }
    // Nothing can be read: nothing is started.
    let (server, url) = served();
    server.refuse(0..usize::MAX, 404, None);
    for ran in [start(&scene, &url, "cache"), boot_from(&scene, &url, &["--ready", "^summed$"])] {
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_says_why(&ran, &url, &["404 (there is no such file)"], 0);
    }
    scene.wait_until_clean();
}

/// Reads a file that is in no hot region, tells how often what could be read holds the other image's line,
/// and ends when that was not all.
const NEEDING: &str = "#!/bin/sh
cat /cold >/copy
lost=$?
echo \"lines: $(grep -c 'of the other image' /copy)\"
[ $lost = 0 ] || exit 4
echo has read
while :; do sleep 1000; done
";

#[test]
fn a_guest_never_reads_bytes_of_two_images() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let scene = guest_with("md5sum");
    symlink("busybox", scene.path("root/bin/grep")).expect("a link");
    let other = "of the other image\n".repeat(50_000).into_bytes();
    let second = published(&scene, &other, NEEDING);
    let noise = noise(7, other.len());
    let first = published(&scene, &noise, NEEDING);
    let at = place_of(&noise, &first);
    let digest = name(&scene);
    for (identity, name) in [
        (Identity::Tag, String::new()),
        (Identity::TagOnly, String::new()),
        (Identity::Date, String::new()),
        (Identity::Tag, format!("#{digest}")),
    ] {
        let server = FaultyServer::start(first.clone(), identity);
        server.replace_when_asked(at..at + 64, second.clone());
        // What comes ahead of the guest decides how much of the first image it has when that is replaced.
        let flags = ["--ready", "^has read$", "--insecure", "--background", "off"];
        let ran = boot_from(&scene, &format!("{}{name}", server.url()), &flags);
        ran.fails(1, &["kernel gave up", "the file was replaced on the server"]);
        let said = kept_console(&scene, &ran);
        assert!(said.contains("Input/output error") && said.contains("lines: 0"), "{identity:?}: {said}");
    }
    scene.wait_until_clean();
}
