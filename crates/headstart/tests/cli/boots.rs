//! Guests that boot, and guests that do not.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::disks::in_partitions;
use crate::scene::{Ran, Running, Scene, has_tools, headstart, machine_has, run, wait_until};
use crate::starts::with_empty_mnt;

/// What a guest needs.
pub(crate) const GUEST: &[&str] = &["/usr/bin/linux.uml", "/bin/busybox", "/usr/sbin/mkfs.ext4"];

/// The Debian that boots, in the demo's cache, where it is made once for this machine: by one process at a
/// time, and from an archive that may be away for a moment.
pub(crate) fn debian() -> &'static str {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut ran = run(["demo", "--boot-root"]);
        for _ in 0..2 {
            if ran.code != Some(0) {
                ran = run(["demo", "--boot-root"]);
            }
        }
        ran.ok().stdout.trim().to_owned()
    })
}

/// The first program of the little guest; words of the kernel's command line are in its environment.
const INIT: &str = "#!/bin/sh
cat /written 2>/dev/null
echo was here >/written
sync
sleep ${linger:-0}
echo up
case \"$then\" in
exit) exit 3 ;;
halt) poweroff -f ;;
read) cat /fine >/dev/null && echo fine is fine; cat /lost >/dev/null || echo lost is lost; echo has read ;;
need) cat /lost >/dev/null || exit 4 ;;
fill) dd if=/dev/urandom of=/filled bs=65536; sync; echo not full ;;
esac
while :; do sleep 1000; done
";

/// A scene with an image of a guest that comes up in a moment, and a folder for temporary files.
pub(crate) fn little_guest() -> (Scene, String) {
    let scene = Scene::new();
    scene.folder("tmp");
    scene.folder("root");
    for name in ["bin", "sbin", "dev", "proc", "sys"] {
        scene.folder(&format!("root/{name}"));
    }
    fs::copy("/bin/busybox", scene.path("root/bin/busybox")).expect("busybox");
    for name in ["sh", "cat", "dd", "echo", "poweroff", "sleep", "sync"] {
        symlink("busybox", scene.path("root/bin").join(name)).expect("a link");
    }
    fs::write(scene.path("root/sbin/init"), INIT).expect("written");
    fs::set_permissions(scene.path("root/sbin/init"), fs::Permissions::from_mode(0o755)).expect("executable");
    let image = scene.arg("guest.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    (scene, image)
}

/// Processes are looked at a few times a second, and a guest ends when it is ready: with this one, the little
/// guest is looked at before.
pub(crate) const LINGER: [&str; 2] = ["--append", "linger=2"];

/// Processes of the little guest are in a trace of its boot with [`LINGER`]: its init, and programs that were
/// soon over.
pub(crate) fn assert_has_guests_processes(trace: &str) {
    let trace = fs::read_to_string(trace).expect("a trace");
    let lives: Vec<&str> = trace.lines().filter(|line| line.contains(",process,")).collect();
    let is_there = |name: &str| lives.iter().any(|line| line.contains(&format!("\"{name}\",")));
    let are_there = ["init", "sync", "headstart-watch"].map(is_there);
    assert!(are_there == [true; 3] && lives.iter().any(|line| line.contains("\"init\",1,")), "{lives:?}");
}

const SMALL: [&str; 4] = ["--memory", "64M", "--ready", "^up$"];

/// `headstart boot`, with its temporary files in the scene.
pub(crate) fn boot(scene: &Scene, disk: &str, flags: &[&str]) -> Ran {
    let arguments = ["boot", disk].into_iter().chain(flags.iter().copied());
    let output = headstart(arguments).env("TMPDIR", scene.path("tmp")).output();
    let ran = Ran::from(output.expect("the program starts"));
    // Should the test fail for this, its last lines do not say why.
    for kept in fs::read_dir(scene.path("tmp")).expect("listed").flatten() {
        eprintln!("{}", fs::read_to_string(kept.path()).unwrap_or_default());
    }
    ran
}

/// The console of a failed boot was kept in a file in `tmp`; it goes.
pub(crate) fn kept_console(scene: &Scene, ran: &Ran) -> String {
    let entries: Vec<_> = fs::read_dir(scene.path("tmp")).expect("listed").flatten().collect();
    let [kept] = &entries[..] else { panic!("one file expected, not {entries:?}: {ran:?}") };
    assert!(ran.stderr.contains(&kept.path().display().to_string()), "{ran:?}");
    let text = fs::read_to_string(kept.path()).expect("the console");
    fs::remove_file(kept.path()).expect("removed");
    text
}

/// A guest that is up and never ready is given up after the time that was given. Where it is so slow that it
/// has said nothing by then, it is given more.
pub(crate) fn assert_is_given_up(scene: &Scene, boot: impl Fn(&[&str]) -> Ran) {
    for seconds in ["2", "8", "30", "110"] {
        let ran = boot(&["--ready", "never", "--ready-timeout", seconds]);
        ran.fails(1, &[&format!("not ready after {seconds} s"), "never", "--ready-timeout"]);
        if !ran.stderr.contains("its console said nothing") {
            kept_console(scene, &ran);
            return;
        }
    }
    panic!("the guest says nothing at all");
}

pub(crate) fn assert_nothing_is_in_tmp(scene: &Scene) {
    assert_eq!(fs::read_dir(scene.path("tmp")).expect("listed").count(), 0);
}

#[test]
fn a_guest_that_is_ready_is_ended_and_its_writes_are_gone() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let before = fs::read(&image).expect("the image");
    let console = scene.arg("console");
    for _ in 0..2 {
        let ran = boot(&scene, &image, &[&SMALL[..], &["--json", "--console", &console]].concat()).ok();
        let summary = ran.json();
        let [wall, cpu] = ["wall_s", "guest_cpu_s"].map(|key| summary[key].as_f64().expect("measured"));
        // Starting a kernel takes a while, and not more than there is.
        let cores = std::thread::available_parallelism().expect("known").get();
        assert!(cpu > 0.0 && cpu < (wall + 0.1) * cores as f64, "{summary}");
        assert!(summary["ready_s"].as_f64().is_some_and(|ready| ready > 0.0 && ready <= wall), "{summary}");
        let said = fs::read_to_string(scene.path("console")).expect("the console");
        assert!(said.contains("up") && !said.contains("was here"), "{said}");
        // All of its memory is its own: none is for the gap that randomised addresses leave.
        let may = Command::new("setarch").args(["-R", "true"]).stderr(Stdio::null()).status();
        let is_allowed = may.is_ok_and(|status| status.success());
        assert!(!is_allowed || !said.contains("exec-shield gap"), "{said}");
    }
    assert_eq!(fs::read(&image).expect("the image"), before);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);

    // From memory alone, and from an unoptimized disk of another kind.
    let raw = scene.arg("guest.raw");
    fs::File::create(&raw).and_then(|file| file.set_len(32 << 20)).expect("a file");
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-d", &scene.arg("root"), &raw])
        .stdin(Stdio::null())
        .status()
        .expect("mkfs.ext4 starts");
    assert!(made.success());
    let before = fs::read(&raw).expect("the disk");
    boot(&scene, &raw, &[&SMALL[..], &["--warm"]].concat()).ok();
    let ran = boot(&scene, &raw, &[&SMALL[..], &["--medium", "flat-10ms-25mbs", "--json"]].concat()).ok();
    assert!(ran.json()["store_requests"].as_u64().is_some_and(|requests| requests > 0), "{ran:?}");
    assert_eq!(fs::read(&raw).expect("the disk"), before);
    boot(&scene, &raw, &[&SMALL[..], &["--record", &scene.arg("x.hsp")]].concat())
        .fails(1, &["raw disk", "build"]);
    scene.wait_until_clean();
}

/// A kernel would start a shell, and the boot would wait for it until its timeout.
#[test]
fn a_root_without_an_init_is_refused_before_a_guest_starts() {
    if !machine_has(&["/bin/busybox"]) {
        return;
    }
    let scene = Scene::new();
    let (image, raw) = (scene.root("root.hsi"), scene.arg("root.raw"));
    run(["export", &image, "-o", &raw, "--format", "raw"]).ok();
    let absent = scene.arg("no-kernel");
    for disk in [&image, &raw] {
        let flags = ["boot", disk, "--vmm", "uml", "--kernel", &absent];
        run(flags).fails(1, &[disk, "has no init", "/sbin/init", "--init", "headstart run"]);
        for named in [["--init", "/bin/sh"], ["--append", "init=/bin/sh"]] {
            run(flags.iter().chain(&named)).fails(1, &["there is no kernel"]);
        }
    }
}

#[test]
fn a_guest_that_fails_says_why() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let with = |flags: &[&str]| boot(&scene, &image, &[&["--memory", "64M"], flags].concat());

    let ran = with(&["--ready", "never", "--append", "then=exit"]);
    ran.fails(1, &["kernel gave up", "Attempted to kill init", "last lines of its console", "up"]);
    assert!(kept_console(&scene, &ran).contains("Kernel panic"));

    let ran = with(&["--init", "/bin/no-such-program"]);
    ran.fails(1, &["kernel gave up", "no-such-program"]);
    kept_console(&scene, &ran);

    let ran = with(&["--ready", "never", "--append", "then=halt"]);
    ran.fails(1, &["ended before it was ready"]);
    kept_console(&scene, &ran);

    assert_is_given_up(&scene, with);

    let ran = with(&["--ready", "not full", "--append", "then=fill", "--scratch", "8M"]);
    ran.fails(1, &["filled its 8 MiB of scratch", "--scratch"]);
    kept_console(&scene, &ran);
    let fills = ["--ready", "^up", "--append", "then=fill", "--scratch", "8M", "--run-after-ready", "600"];
    let ran = with(&fills);
    ran.fails(1, &["filled its 8 MiB of scratch", "--scratch"]);
    kept_console(&scene, &ran);

    let ran = with(&["--kernel", "/bin/true"]);
    ran.fails(1, &["ended before it was ready", "said nothing"]);

    // A recorded boot that is never ready leaves no profile. A console that the user names is kept there.
    let (profile, console) = (scene.arg("never.hsp"), scene.arg("console"));
    let flags = ["--record", &profile, "--console", &console, "--append", "then=exit", "--ready", "never"];
    with(&flags).fails(1, &["kernel gave up", &console]);
    assert!(!scene.path("never.hsp").exists() && scene.path("console").exists());
    assert_nothing_is_in_tmp(&scene);
    scene.wait_until_clean();
}

/// The guest has the whole disk, and what is recorded of it and prefetched counts from its beginning.
#[test]
fn a_guests_root_may_be_a_partition() {
    if !machine_has(GUEST) || !has_tools(&["sfdisk"]) {
        return;
    }
    let (scene, image) = little_guest();
    let part = scene.arg("part.raw");
    run(["export", &image, "-o", &part, "--format", "raw"]).ok();
    let disk = in_partitions(&scene, &[&part], 512);
    let (image, profile, fast) = (scene.arg("parted.hsi"), scene.arg("boot.hsp"), scene.arg("fast.hsi"));
    run(["build", &disk, "-o", &image, "--codec", "zstd:1"]).ok();
    let console = scene.arg("console");
    let with = |disk: &str, flags: &[&str]| {
        boot(&scene, disk, &[&SMALL[..], &["--json", "--console", &console], flags].concat())
    };
    let is_mounted = || {
        let said = fs::read_to_string(scene.path("console")).expect("the console");
        assert!(said.contains("(ubda2)"), "{said}");
    };
    with(&image, &[]).fails(1, &["GPT partition table", "system", "`boot`", "--partition"]);
    with(&image, &["--partition", "1"]).fails(1, &["partition 1", "no file system"]);
    with(&disk, &["--partition", "2"]).ok();
    is_mounted();
    // With a program of ours before the guest's own, which mounts the root.
    with(&image, &["--partition", "system", "--record", &profile]).ok();
    is_mounted();
    run(["optimize", &image, "-p", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    let medium = ["--partition", "2", "--medium", "flat-10ms-25mbs-serial"];
    let [plain, prefetched] = [&image, &fast].map(|image| with(image, &medium).ok().json());
    assert!(prefetched["prefetch_bytes"].as_u64() > Some(0), "{prefetched}");
    assert!(prefetched["demand_requests"].as_u64() < plain["demand_requests"].as_u64(), "{prefetched}");
    scene.wait_until_clean();
}

#[test]
fn a_kernel_may_lie_wherever_one_mounts() {
    if !machine_has(&[GUEST, &["/usr/bin/unshare"]].concat()) {
        return;
    }
    let (scene, image) = little_guest();
    let script = "cp /usr/bin/linux.uml /mnt; mkdir /mnt/tmp; export TMPDIR=/mnt/tmp
        $0 boot $1 --kernel /mnt/linux.uml --memory 64M --ready '^up$'
        $0 boot $1 --memory 64M --ready never --append then=halt || ls $TMPDIR/headstart-console-*.log";
    let ran = with_empty_mnt(script, &[&image]).ok();
    assert!(ran.stdout.starts_with("/mnt/tmp/headstart-console-"), "{ran:?}");
    scene.wait_until_clean();
}

#[test]
fn what_cannot_boot_is_refused_at_once() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let refused = |disk: &str, flags: &[&str], words: &[&str]| boot(&scene, disk, flags).fails(1, words);
    refused(&scene.arg("gone"), &[], &["gone", "No such file"]);
    scene.raw("noise", 30, 1);
    refused(&scene.arg("noise"), &[], &["noise", "no file system"]);
    fs::write(scene.path("squash"), b"hsqs".repeat(40_000)).expect("written");
    refused(&scene.arg("squash"), &[], &["squash", "squashfs", "ext4", "--kernel"]);
    let mut table = vec![0; 70_000];
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    // One partition of Linux, from sector 8.
    (table[450], table[454], table[458]) = (0x83, 8, 64);
    fs::write(scene.path("parted"), table).expect("written");
    refused(&scene.arg("parted"), &[], &["parted", "MBR partition table", "build DISK --partition 1"]);
    refused(&scene.arg("parted"), &["--partition", "1"], &["partition 1", "no file system"]);
    refused(&image, &["--scratch", "64K"], &["64 KiB of scratch is not enough", "--scratch"]);
    refused(&image, &["--memory", "1000T"], &["memory", "--memory"]);
    refused(&image, &["--kernel", &scene.arg("vmlinux")], &["vmlinux", "--kernel"]);
    let ran =
        headstart(["boot", &image]).env("PATH", scene.path("tmp")).output().expect("the program starts");
    Ran::from(ran).fails(1, &["linux.uml was not found", "user-mode-linux"]);
    assert_nothing_is_in_tmp(&scene);
    scene.wait_until_clean();
}

/// The little guest with two more files, and the flags that make the middle of one of them unreadable in
/// `disk`.
fn with_lost_file(make: impl FnOnce(&Scene) -> String) -> (Scene, String, String) {
    let (scene, _) = little_guest();
    let mut content = vec![0; 2 << 20];
    hs_units::Prng::new(61).fill(&mut content);
    fs::write(scene.path("root/lost"), &content).expect("written");
    fs::write(scene.path("root/fine"), "all is well\n".repeat(10_000)).expect("written");
    let disk = make(&scene);
    // What does not compress is stored as it is.
    let stored = fs::read(&disk).expect("the disk");
    let needle = &content[1 << 20..][..64];
    let at = hs_testing::place(&stored, needle).expect("the file is in the disk");
    (scene, disk, format!("--bad-sectors={at}+4096"))
}

fn image_of_root(scene: &Scene) -> String {
    let image = scene.arg("lost.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    image
}

#[test]
fn a_guest_sees_unreadable_sectors_as_its_own_errors() {
    if !machine_has(GUEST) {
        return;
    }
    let raw_of_root = |scene: &Scene| {
        run(["export", &image_of_root(scene), "-o", &scene.arg("lost.raw"), "--format", "raw"]).ok();
        scene.arg("lost.raw")
    };
    let makers: [&dyn Fn(&Scene) -> String; 2] = [&image_of_root, &raw_of_root];
    for make in makers {
        let (scene, disk, bad) = with_lost_file(make);
        let console = scene.arg("console");
        let flags = [
            "--memory",
            "64M",
            "--append",
            "then=read",
            "--ready",
            "^has read$",
            "--json",
            "--console",
            &console,
        ];
        let ran = boot(&scene, &disk, &[&flags[..], &[&bad]].concat()).ok();
        let summary = ran.json();
        assert!(summary["store_errors"].as_u64().is_some_and(|errors| errors > 0), "{summary}");
        assert!(summary["store_retries"].as_u64().is_some_and(|retries| retries >= 3), "{summary}");
        assert!(summary["failed_requests"].as_u64().is_none_or(|failed| failed > 0), "{summary}");
        let said = fs::read_to_string(scene.path("console")).expect("the console");
        for words in ["fine is fine", "lost is lost", "I/O error, dev ubd", "Input/output error"] {
            assert!(said.contains(words), "no {words} in: {said}");
        }
        assert!(ran.stderr.contains(&disk) && ran.stderr.contains("Input/output error"), "{ran:?}");

        // Readable at the third try, it is as if nothing had been.
        let ran = boot(&scene, &disk, &[&flags[..], &[&format!("{bad}x2")]].concat()).ok();
        let summary = ran.json();
        assert_eq!(
            (&summary["store_errors"], &summary["store_retries"]),
            (&0.into(), &2.into()),
            "{summary}"
        );
        let said = fs::read_to_string(scene.path("console")).expect("the console");
        assert!(said.contains("fine is fine") && !said.contains("lost is lost"), "{said}");
        assert!(!said.contains("I/O error"), "{said}");

        // A file without which the guest does not run.
        let ran =
            boot(&scene, &disk, &["--memory", "64M", "--append", "then=need", "--ready", "never", &bad]);
        ran.fails(1, &["kernel gave up", "reads of the medium failed", &disk, "Input/output error"]);
        assert!(kept_console(&scene, &ran).contains("I/O error, dev ubd"));
        scene.wait_until_clean();
    }
}

#[test]
fn a_guest_boots_from_a_real_medium_whose_first_sectors_cannot_be_read() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let medium = scene.folder("medium");
    let arguments = ["lab", "disk", &image, &medium, "--medium", "none", "--bad-sectors", "0+4K"];
    let mut lab = Running::start(arguments);
    assert!(lab.said().contains("umount"));
    let ran = boot(&scene, &scene.arg("medium/guest.hsi"), &[&SMALL[..], &["--json"]].concat()).ok();
    assert!(ran.stderr.contains("mirror"), "{ran:?}");
    assert!(ran.json()["store_errors"].as_u64().is_some_and(|errors| errors > 0), "{ran:?}");
    lab.signal(Signal::TERM);
    assert!(lab.end().0.success());
    scene.wait_until_clean();
}

/// A process, and when it started: numbers are used again.
type Process = (u32, String);

fn processes() -> Vec<(Process, u32)> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|number| {
            let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
            // The name, in parentheses, may hold anything.
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            Some(((number, (*fields.get(19)?).to_owned()), fields.get(1)?.parse().ok()?))
        })
        .collect()
}

/// Everything that `parent` has started, and what that has.
fn descendants(parent: u32) -> BTreeSet<Process> {
    let all = processes();
    let (mut found, mut parents) = (BTreeSet::new(), vec![parent]);
    while let Some(parent) = parents.pop() {
        for (process, _) in all.iter().filter(|(_, its_parent)| *its_parent == parent) {
            parents.push(process.0);
            found.insert(process.clone());
        }
    }
    found
}

/// Of a boot with a file `console` that is ended by `signal` when it is up, and has started `least` processes
/// by then.
pub(crate) fn assert_nothing_is_left_after(
    scene: &Scene,
    mut command: Command,
    signal: Signal,
    least: usize,
) {
    command.env("TMPDIR", scene.path("tmp"));
    let running = Running::start_command(command);
    wait_until("the guest is up", || {
        fs::read_to_string(scene.path("console"))
            .is_ok_and(|said| said.lines().any(|line| line.trim() == "up"))
    });
    let started = descendants(running.id());
    assert!(started.len() >= least, "{started:?}");
    running.signal(signal);
    let (status, _, said) = running.end();
    assert!(!status.success(), "{said}");
    wait_until("all of its processes are gone", || {
        let left: BTreeSet<Process> = processes().into_iter().map(|(process, _)| process).collect();
        started.is_disjoint(&left)
    });
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(scene);
    fs::remove_file(scene.path("console")).expect("removed");
}

#[test]
fn however_a_boot_ends_nothing_of_it_is_left() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let console = scene.arg("console");
        let command =
            headstart(["boot", &image, "--memory", "64M", "--ready", "never", "--console", &console]);
        // Init, User-mode Linux, its helpers, and a process for each of the guest's.
        assert_nothing_is_left_after(&scene, command, signal, 4);
    }
    assert_eq!(scene.names(), ["guest.hsi", "root", "tmp"]);
}

#[test]
fn a_debian_boots_is_recorded_optimized_and_asks_for_less() {
    if !machine_has(&[GUEST, &["/usr/bin/mmdebstrap"]].concat()) {
        return;
    }
    let scene = Scene::new();
    scene.folder("tmp");
    let (image, profile, fast) = (scene.arg("debian.hsi"), scene.arg("boot.hsp"), scene.arg("fast.hsi"));
    // On a full disk, systemd's services cannot make their folders.
    run(["build", debian(), "-o", &image, "--codec", "zstd:1", "--free", "64M"]).ok();
    let recorded = boot(&scene, &image, &["--record", &profile, "--json"]).ok();
    assert_eq!(recorded.json()["profile"], profile.as_str());
    run(["optimize", &image, "-p", &profile, "-o", &fast, "--codec", "zstd:3"]).ok();
    // The requests that readers waited for, and all requests to the medium. On a slow host the stream makes
    // more requests.
    let asked = |image: &str| {
        let ran = boot(&scene, image, &["--medium", "flat-10ms-25mbs-serial", "--json"]).ok();
        let summary = ran.json();
        assert!(summary["ready_s"].as_f64().is_some_and(|ready| ready > 0.0), "{summary}");
        ["demand_requests", "store_requests"].map(|key| summary[key].as_u64().expect("counted"))
    };
    let plain = asked(&image);
    // A kernel that drops pushed pages, for another program of the machine, reads them again page by page;
    // but most boots read less.
    let (mut optimized, mut few) = (Vec::new(), 0);
    while few < 2 && optimized.len() < 3 {
        let [demand, all] = asked(&fast);
        few += usize::from(demand * 2 < plain[0] && all < plain[1]);
        optimized.push([demand, all]);
    }
    assert!(few == 2, "demand and store requests: {plain:?}, optimized {optimized:?}");
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}
