//! Guests that are killed with their server while they boot and write, and guests whose server is killed
//! alone: what they have synced is there, and the next boot goes on.

use std::collections::BTreeMap;
use std::fs;

use hs_units::Prng;
use rustix::process::Signal;

use crate::boots::{self, assert_nothing_is_in_tmp, boot, little_guest};
use crate::machine::{CONSOLE, Machine};
use crate::nbd;
use crate::qemu_boots;
use crate::qemu_kernels::linux;
use crate::recorded_ext4::examine;
use crate::scene::{Running, Scene, headstart, machine_has, run, tool, wait_until};
use crate::supervised::{kill, served_again};
use crate::vhost::{self, install_first_init};

/// So often a boot is killed, and so often a server; or as often as this variable says.
const KILLS: u64 = 3;
const KILLS_VARIABLE: &str = "KILLS";
/// Records after which a boot is killed at last, and a server is killed again.
const RECORDS_OF_A_BOOT: u64 = 40;
const RECORDS_BETWEEN: u64 = 8;
const TOOLS: &[&str] = &["/usr/sbin/mkfs.ext4", "/usr/sbin/e2fsck", "/usr/sbin/debugfs"];

/// Appends records of one length, so that none lies in two blocks, and says each when it is synced. Beside
/// them it writes what is not synced.
const RECORDING: &str = "#!/bin/sh
cat /noise >/dev/null
echo up
number=0
while number=$((number + 1)); do
    dd if=/noise of=/area bs=4096 count=20 seek=$((number % 20 * 20)) conv=notrunc 2>/dev/null
    record=$(printf %03d.%03d $session $number)
    if echo $record >>/records && sync /records; then echo record $record; else echo record lost; fi
done
";

/// The init of the initial RAM disk of a guest with a virtio disk.
const FIRST_INIT: &str = "#!/bin/busybox sh
for module in MODULES; do /bin/busybox insmod /$module; done
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t ext4 /dev/vda /new
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /sbin/init
";

fn kills() -> u64 {
    std::env::var(KILLS_VARIABLE).map_or(KILLS, |said| said.parse().expect("a number"))
}

/// A scene with `guest.hsi`, whose ext4 has a journal and a root that records; also its disk.
fn recording_guest() -> (Scene, Vec<u8>) {
    let (scene, image) = little_guest();
    fs::write(scene.path("root/sbin/init"), RECORDING).expect("written");
    scene.raw("root/noise", 400, 99);
    let (raw, root) = (scene.arg("guest.raw"), scene.arg("root"));
    fs::File::create(&raw).expect("made").set_len(32 << 20).expect("made");
    tool("mkfs.ext4", &["-q", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0", "-d", &root, &raw]);
    fs::remove_file(&image).expect("removed");
    run(["build", "--raw", &raw, "-o", &image, "--codec", "zstd:1"]).ok();
    let disk = fs::read(&raw).expect("read");
    (scene, disk)
}

/// Session and number of each record in whole lines of this text that begin with `prefix`.
fn records<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = (u64, u64)> + 'a {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let records = whole.lines().filter_map(move |line| line.trim_end().strip_prefix(prefix)?.split_once('.'));
    records.filter_map(|(session, number)| Some((session.parse().ok()?, number.parse().ok()?)))
}

/// The last record of each session that the guest has said.
type Synced = BTreeMap<u64, u64>;

fn note(synced: &mut Synced, console: &str) {
    synced.extend(records(console, "record "));
}

/// The disk is whole, and has the records of each session without a gap, up to the last that was synced.
fn assert_has(scene: &Scene, disk: &[u8], synced: &Synced, when: &str) {
    let found = examine(scene, disk, "/records", when);
    assert_eq!(records(&found, "").count() * 8, found.len(), "{when}: {found}");
    let mut last = Synced::new();
    for (session, number) in records(&found, "") {
        let before = last.insert(session, number).unwrap_or(0);
        assert!(before + 1 == number && last.range(session + 1..).count() == 0, "{when}: {session}.{number}");
    }
    for (session, number) in synced {
        let found = last.get(session).copied().unwrap_or(0);
        assert!(found >= *number, "{when}: {number} records of session {session} are synced, {found} there");
    }
}

#[test]
fn what_a_guest_synced_survives_boots_that_are_killed() {
    if !machine_has(&[boots::GUEST, TOOLS].concat()) {
        return;
    }
    let (scene, disk) = recording_guest();
    let (image, changes, console) = (scene.arg("guest.hsi"), scene.arg("changes"), scene.arg("console"));
    let flags = ["--vmm", "uml", "--memory", "64M", "--keep", &changes, "--console", &console];
    let said = || fs::read_to_string(&console).unwrap_or_default();
    let whole = |session: u64| {
        let (session, ready) = (format!("session={session}"), format!("^record {session:03}.005"));
        boot(&scene, &image, &[&flags[..], &["--ready", &ready, "--append", &session]].concat()).ok();
    };
    whole(0);
    let usual = said().find("\nup").expect("it was up") as u64;
    let (mut prng, mut synced) = (Prng::new(14), Synced::new());
    note(&mut synced, &said());
    for session in 1..=kills() {
        fs::remove_file(&console).expect("removed");
        // Each other boot is killed before it is up.
        let line = "record 000.000\n".len() as u64;
        let moment =
            if session % 2 == 0 { prng.below(usual) } else { usual + prng.below(RECORDS_OF_A_BOOT * line) };
        let session = format!("session={session}");
        let words = ["boot", &image, "--ready", "never", "--append", &session];
        let mut command = headstart(words.iter().chain(&flags));
        command.env("TMPDIR", scene.path("tmp"));
        let booting = Running::start_command(command);
        wait_until("the moment comes", || said().len() as u64 >= moment);
        booting.signal(Signal::KILL);
        drop(booting.end());
        scene.wait_until_clean();
        let said = said();
        assert!(
            !["I/O error", "record lost", "Kernel panic"].iter().any(|word| said.contains(word)),
            "{said}"
        );
        note(&mut synced, &said);
        assert_has(&scene, &disk, &synced, &session);
    }
    whole(kills() + 1);
    note(&mut synced, &said());
    assert_has(&scene, &disk, &synced, "the end");
    run(["overlay", "check", &changes]).ok();
    eprintln!("{} kills; synced records: {synced:?}", kills());
    assert_nothing_is_in_tmp(&scene);
}

/// A guest of QEMU with its disk over NBD, as docs/KEEP.md has it.
fn machine_over_nbd(scene: &Scene, words: &str) -> Machine {
    let kernel = linux().expect("it was there").join("vmlinuz").display().to_string();
    let disk = format!(
        "if=virtio,format=raw,discard=unmap,werror=report,file.driver=nbd,file.reconnect-delay=120,\
         file.server.type=unix,file.server.path={},file.export=guest",
        scene.arg("socket")
    );
    let words = format!("{CONSOLE} {words}");
    let initrd = scene.arg("initrd");
    let devices = ["-drive", &disk, "-kernel", &kernel, "-initrd", &initrd, "-append", &words];
    Machine::start("160M", devices)
}

#[test]
fn what_a_guest_synced_survives_servers_over_nbd_that_are_killed() {
    servers_are_killed(nbd::serve, machine_over_nbd);
}

#[test]
fn what_a_guest_synced_survives_servers_over_vhost_user_that_are_killed() {
    servers_are_killed(vhost::serve, vhost::machine);
}

/// The guest goes on where nothing that was answered is lost. Else it is told so, and boots again.
fn servers_are_killed(serve: fn(&Scene, &[&str]) -> Running, machine: fn(&Scene, &str) -> Machine) {
    if !machine_has(&[qemu_boots::GUEST, TOOLS].concat()) || linux().is_none() {
        return;
    }
    let (scene, disk) = recording_guest();
    install_first_init(&scene, FIRST_INIT);
    let (image, changes) = (scene.arg("guest.hsi"), scene.arg("changes"));
    let (mut prng, mut synced, mut killed, mut unnoticed, mut session) =
        (Prng::new(15), Synced::new(), 0, 0, 0);
    while killed < kills() {
        session += 1;
        let serving = serve(&scene, &[&image, "--keep", &changes]);
        let mut machine = machine(&scene, &format!("session={session}"));
        let first = ["Linux version", "EXT4-fs (vda)", "\nup\n"][prng.below(3) as usize];
        let (mut said, mut restarts) = (machine.wait_for(first), 0);
        let was_lost = loop {
            kill(&served_again(&image, restarts));
            restarts += 1;
            served_again(&image, restarts);
            // A guest that is told before its root is mounted gives up.
            let told = ["record lost", "Kernel panic"];
            let is_told = |said: &str| told.iter().any(|words| said.contains(words));
            for _ in 0..=prng.below(RECORDS_BETWEEN) {
                if !is_told(&said) {
                    said += &machine.wait_for_any(&["record ", told[1]]);
                }
                if !said.ends_with('\n') && !said.contains(told[1]) {
                    said += &machine.wait_for("\n");
                }
            }
            let is_lost = is_told(&said);
            if is_lost || killed + restarts >= kills() {
                break is_lost;
            }
        };
        killed += restarts;
        unnoticed += restarts - u64::from(was_lost);
        drop(machine);
        serving.signal(Signal::TERM);
        let (_, _, of_server) = serving.end();
        assert_eq!(was_lost, of_server.contains("had not been flushed are gone"), "{said}\n{of_server}");
        assert!(was_lost || !said.contains("I/O error"), "{said}");
        note(&mut synced, &said);
        assert_has(&scene, &disk, &synced, &format!("session {session}"));
        scene.wait_until_clean();
    }
    run(["overlay", "check", &changes]).ok();
    eprintln!("{killed} kills in {session} boots, {unnoticed} not noticed; synced records: {synced:?}");
}
