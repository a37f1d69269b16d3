//! Disks with an installed system: made, refused, updated and started.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::kept_roots::{machine, roomy};
use crate::live::{Live, live};
use crate::machine::{BEFORE_THE_SWITCH, Machine};
use crate::scene::{
    Ran, Running, Scene, executable, has_tools, machine_has, made_once, run, tool, wait_until,
};
use crate::web::{NGINX, Nginx};

const TOOLS: [&str; 6] = ["sfdisk", "mkfs.vfat", "mkfs.ext4", "grub-mkimage", "losetup", "debugfs"];
/// What a disk begins with that is not complete.
const INCOMPLETE: &[u8] = b"headstart: the installation of this disk was interrupted";
/// Where the boot partition and that with the data begin, for debugfs.
const BOOT: &str = "?offset=67108864";
const DATA: &str = "?offset=536870912";

fn can_install() -> bool {
    machine() && has_tools(&TOOLS)
}

fn is_incomplete(disk: &Path) -> bool {
    let start = fs::read(disk).map(|bytes| bytes[..512.min(bytes.len())].to_vec()).unwrap_or_default();
    hs_testing::place(&start, INCOMPLETE).is_some()
}

/// A small root's image, a kernel and an initramfs that no machine starts, and flags for them.
fn parts(scene: &Scene) -> [String; 4] {
    roomy(scene);
    fs::write(scene.path("vmlinuz"), "a kernel").expect("written");
    fs::write(scene.path("initrd"), "an initramfs").expect("written");
    ["--kernel".to_owned(), scene.arg("vmlinuz"), "--initrd".to_owned(), scene.arg("initrd")]
}

fn install(disk: &str, flags: &[&str], kernel: &[String]) -> Ran {
    let kernel = kernel.iter().map(String::as_str);
    run(["-q", "install", disk].into_iter().chain(flags.iter().copied()).chain(kernel))
}

/// Another image of the small root, and so another disk.
fn changed(scene: &Scene, name: &str) -> String {
    fs::write(scene.path("root/etc/version"), name).expect("written");
    let image = scene.arg(name);
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    image
}

fn look(disk: &str) -> serde_json::Value {
    run(["install", disk, "--json"]).ok().json()
}

#[test]
fn disks_that_cannot_be_installed_are_left_alone() {
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    let (image, disk) = (scene.arg("root.hsi"), scene.arg("disk"));
    let fails = |flags: &[&str], words: &[&str]| install(&disk, flags, &kernel).fails(1, words);
    fails(&["--root", &image], &["no such disk", "--size"]);
    fails(&["--root", &image, "--size", "600M"], &["too small", "it needs"]);
    fails(&["--root", &scene.arg("vmlinuz"), "--size", "2G"], &["vmlinuz"]);
    assert!(!scene.path("disk").exists(), "what was made for nothing is gone");
    // A root without a kernel, and an image without room for what is written.
    let ran = run(["-q", "install", &disk, "--root", &scene.arg("root"), "--size", "2G"]);
    ran.fails(1, &["no kernel", "linux-image-amd64"]);
    let full = scene.arg("full.hsi");
    run(["build", &scene.arg("root"), "-o", &full, "--codec", "zstd:1"]).ok();
    fails(&["--root", &full, "--size", "2G"], &["free", "--free"]);
    fails(&["--root", &image, "--size", "2G", "--append", "a'b"], &["--append"]);
    assert!(!scene.path("disk").exists());
    // What holds something, and what is mounted.
    fs::write(scene.path("disk"), "a letter").expect("written");
    fails(&["--root", &image], &["--force"]);
    assert_eq!(fs::read_to_string(scene.path("disk")).expect("read"), "a letter");
    fs::File::create(scene.path("disk")).and_then(|file| file.set_len(2 << 30)).expect("a disk");
    tool("mkfs.ext4", &["-q", &disk]);
    fails(&["--root", &image], &["ext2/3/4", "--force"]);
    fails(&["--update", &image], &["no partitions", "--root"]);
    let device = tool("losetup", &["--partscan", "--find", "--show", &disk]).stdout.trim().to_owned();
    let place = scene.folder("place");
    tool("mount", &[&device, &place]);
    let ran = install(&device, &["--root", &image, "--force"], &kernel);
    let of_file = install(&disk, &["--root", &image, "--force"], &kernel);
    tool("umount", &[&place]);
    ran.fails(1, &["is mounted at", "unmount it"]);
    of_file.fails(1, &["is mounted at", "unmount it"]);
    // A device itself, by force.
    let made = install(&device, &["--root", &image, "--force", "--json"], &kernel);
    tool("losetup", &["--detach", &device]);
    let made = made.ok().json();
    assert!(made["good"] == "a" && made["slots"][0]["slot"] == "a", "{made}");
    fails(&["--root", &image], &["GPT", "--force"]);
    assert_eq!(look(&disk)["slots"], made["slots"]);
}

/// Waits until a command opens the pipe that it was given as its initramfs.
fn wait_for_pipe(running: &Running) {
    wait_until("the command waits for its initramfs", || {
        let wait = fs::read_to_string(format!("/proc/{}/wchan", running.id())).unwrap_or_default();
        wait.contains("wait_for_partner") || wait.contains("fifo_open")
    });
}

/// Starts a command, and kills it when it opens `pipe`.
fn killed_at(pipe: &Path, words: &[&str]) {
    let running = Running::start(words);
    wait_for_pipe(&running);
    running.signal(Signal::KILL);
    let (status, _, said) = running.end();
    assert!(!status.success(), "{} {said}", pipe.display());
}

/// The programs that make a system's initramfs get none of its signals: it says itself how it ended.
#[test]
fn an_installation_that_is_told_to_end_leaves_no_file() {
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    let (image, disk) = (scene.arg("root.hsi"), scene.arg("disk"));
    // A system whose initramfs is never made.
    let system = |path: &str| scene.path(&format!("root/{path}"));
    for (name, text) in [("boot/vmlinuz-1", ""), ("lib/modules/1/none", ""), ("usr/lib/headstart/none", "")] {
        fs::create_dir_all(system(name).parent().expect("a folder")).expect("made");
        fs::write(system(name), text).expect("written");
    }
    for name in ["mkdir", "sleep"] {
        symlink("busybox", system(&format!("bin/{name}"))).expect("a link");
    }
    fs::create_dir_all(system("usr/sbin")).expect("made");
    let (making, waits) = (scene.arg("making"), "exec sh -c 'while :; do sleep 1; done'");
    executable(&system("usr/sbin/mkinitramfs"), &format!("#!/bin/sh\n{waits} {making}\n"));
    let live = scene.path("headstart-live");
    executable(&live, "#!/bin/sh\n");
    let slow = changed(&scene, "slow.hsi");
    let interrupted = |flags: &[&str], signal: Signal, said: &str| {
        let live = live.display().to_string();
        let running = Running::start([&["-q", "install", &disk, "--live", &live], flags].concat());
        let words = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        wait_until("the initramfs is made", || {
            scene.processes().iter().any(|pid| words(pid).contains(&making))
        });
        running.signal(signal);
        let (status, _, text) = running.end();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{text}");
        assert!(
            text.contains("interrupted") && text.contains(said) && !text.contains("mkinitramfs"),
            "{text}"
        );
    };
    interrupted(&["--root", &slow, "--size", "660M"], Signal::TERM, "a file that was made is removed");
    assert!(!scene.path("disk").exists());
    install(&disk, &["--root", &image, "--size", "660M"], &kernel).ok();
    let before = look(&disk);
    interrupted(&["--update", &slow, "--without-writes"], Signal::INT, "stays as it is");
    let names = tool("debugfs", &["-R", "ls -p /slots/b", &format!("{disk}{DATA}")]).stdout;
    assert!(!names.contains("root.hsi"), "{names}");
    assert_eq!(look(&disk), before);
    scene.wait_until_clean();
}

#[test]
fn an_update_goes_beside_the_system_and_loses_nothing() {
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    let (image, disk, path) = (scene.arg("root.hsi"), scene.arg("disk"), scene.path("disk"));
    let pipe = scene.path("pipe");
    tool("mkfifo", &[&scene.arg("pipe")]);
    let stops = ["--kernel", &scene.arg("vmlinuz"), "--initrd", &scene.arg("pipe")];
    // Interrupted, the disk says so, and is installed again without force.
    killed_at(&pipe, &[&["-q", "install", &disk, "--root", &image, "--size", "660M"], &stops[..]].concat());
    assert!(is_incomplete(&path));
    run(["install", &disk]).fails(1, &["interrupted"]);
    let made = install(&disk, &["--root", &image, "--json"], &kernel).ok().json();
    assert!(!is_incomplete(&path));
    assert_eq!((&made["good"], &made["next"]), (&"a".into(), &serde_json::Value::Null), "{made}");
    let bytes = made["slots"][0]["writes_bytes"].as_u64();
    assert!(bytes > Some(0), "{made}");
    // The same disk, in other chunks: what was written belongs to both.
    let same = scene.arg("same.hsi");
    run(["build", &scene.arg("root"), "-o", &same, "--free", "64M", "--codec", "lz4:0"]).ok();
    let updated = install(&disk, &["--update", &same, "--json"], &kernel).ok().json();
    assert_eq!((&updated["good"], &updated["next"]), (&"a".into(), &"b".into()), "{updated}");
    assert_eq!(updated["slots"][0]["image_digest"], made["slots"][0]["image_digest"]);
    assert_eq!(updated["slots"][1]["writes_bytes"], made["slots"][0]["writes_bytes"]);
    // Another disk has not what was written.
    let newer = changed(&scene, "newer.hsi");
    let update =
        |image: &str, flags: &[&str]| install(&disk, &[&["--update", image], flags].concat(), &kernel);
    update(&newer, &[]).fails(1, &["slot a", "--without-writes"]);
    assert_eq!(look(&disk), updated, "nothing has changed");
    // Interrupted, the old system is started.
    let flags = ["-q", "install", &disk, "--update", &newer, "--without-writes"];
    killed_at(&pipe, &[&flags, &stops[..]].concat());
    let after = look(&disk);
    assert!(after["good"] == "a" && after["next"].is_null() && after["slots"][1].is_null(), "{after}");
    assert_eq!(after["slots"][0], made["slots"][0]);
    // What is no image, a directory, and an image without room change nothing either.
    update(&scene.arg("vmlinuz"), &["--without-writes"]).fails(1, &["vmlinuz"]);
    update(&scene.arg("root"), &["--without-writes"]).fails(1, &["headstart build"]);
    scene.image("large.hsi", 40_000, 3);
    update(&scene.arg("large.hsi"), &["--without-writes"]).fails(1, &["free for it"]);
    assert_eq!(look(&disk), after);
    update(&newer, &["--without-writes"]).ok();
    let after = look(&disk);
    assert_eq!(after["next"], "b");
    assert_ne!(after["slots"][0]["image_digest"], after["slots"][1]["image_digest"]);
    // What was written to a system that is replaced goes only when that is said.
    update(&same, &[]).fails(1, &["slot b holds", "--without-writes"]);
    update(&same, &["--without-writes"]).ok();
    assert_eq!(look(&disk)["slots"][1]["writes_bytes"], made["slots"][0]["writes_bytes"]);
}

/// One program changes a disk at a time, and what only looks changes nothing.
#[test]
fn a_disk_in_use_is_not_changed() {
    if !can_install() || !has_tools(&["qemu-io"]) {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    let (image, disk) = (scene.arg("root.hsi"), scene.arg("disk"));
    install(&disk, &["--root", &image, "--size", "660M"], &kernel).ok();
    let digest = || tool("sha256sum", &[&disk]).ok().stdout;
    let before = digest();
    look(&disk);
    // A file system that is mounted for reading has it, and so has a device that nothing uses yet.
    let device = tool("losetup", &["--read-only", "--find", "--show", &disk]).ok().stdout.trim().to_owned();
    let said = ["is attached to", &device, "losetup --detach"];
    install(&disk, &["--root", &image, "--force"], &kernel).fails(1, &said);
    tool("losetup", &["--detach", &device]).ok();
    let locked = fs::OpenOptions::new().read(true).write(true).open(&disk).expect("opened");
    assert!(hs_linux::lock_bytes(&locked).expect("a file system with locks"));
    install(&disk, &["--update", &image], &kernel).fails(1, &["in use by another program"]);
    let asked = Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 512", &disk]).output();
    assert!(!asked.expect("it starts").status.success(), "it is the lock of QEMU");
    drop(locked);
    assert_eq!(digest(), before);
    // An update that waits for its initramfs keeps out others.
    let pipe = scene.arg("pipe");
    tool("mkfifo", &[&pipe]);
    let running = Running::start([
        "-q",
        "install",
        &disk,
        "--update",
        &image,
        "--kernel",
        &scene.arg("vmlinuz"),
        "--initrd",
        &pipe,
    ]);
    wait_for_pipe(&running);
    install(&disk, &["--update", &image], &kernel).fails(1, &["another program works on this disk"]);
    run(["install", &disk]).fails(1, &["another program works on this disk"]);
    running.signal(Signal::KILL);
    running.end();
    install(&disk, &["--update", &image], &kernel).ok();
    assert_eq!(look(&disk)["next"], "b");
}

#[test]
fn a_file_system_with_errors_is_not_written_to() {
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    let (image, disk) = (scene.arg("root.hsi"), scene.arg("disk"));
    let made = install(&disk, &["--root", &image, "--size", "660M", "--json"], &kernel).ok().json();
    for (partition, name) in [(BOOT, "headstart-boot"), (DATA, "headstart")] {
        let state = |value: &str| {
            let request = format!("set_super_value state {value}");
            tool("debugfs", &["-w", "-R", &request, &format!("{disk}{partition}")]);
        };
        // Valid, and with errors.
        state("3");
        let digest = tool("sha256sum", &[&disk]).stdout;
        let said = [&*format!("the file system {name} has errors"), "e2fsck -f"];
        install(&disk, &["--update", &image], &kernel).fails(1, &said);
        assert_eq!(look(&disk)["slots"], made["slots"]);
        assert_eq!(tool("sha256sum", &[&disk]).stdout, digest);
        state("1");
    }
    install(&disk, &["--update", &image], &kernel).ok();
}

/// What a failed update leaves is no hindrance to the next one, and its source is not what it empties.
#[test]
fn an_update_needs_the_room_of_what_it_replaces_only() {
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    // Most of the data partition is that of two such images.
    fs::write(scene.path("root/filler"), hs_testing::noise(64 << 20, 5)).expect("written");
    let large = changed(&scene, "large.hsi");
    let disk = scene.arg("disk");
    install(&disk, &["--root", &large, "--size", "774M"], &kernel).ok();
    let update =
        |image: &str, kernel: &[String]| install(&disk, &["--update", image, "--without-writes"], kernel);
    let cut = scene.arg("cut.hsi");
    let mut bytes = fs::read(&large).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&cut, bytes).expect("written");
    update(&cut, &kernel).fails(1, &["cut.hsi"]);
    update(&large, &[]).fails(1, &["no kernel"]);
    update(&large, &kernel).ok();
    update(&large, &kernel).ok();
    assert_eq!(look(&disk)["next"], "b");
    // What cannot be started is seen before the slot is emptied.
    update(&large, &[]).fails(1, &["no kernel"]);
    assert_eq!(look(&disk)["next"], "b");
}

#[test]
fn an_update_comes_from_a_channel() {
    if !can_install() || !machine_has(&[NGINX]) || !has_tools(&["xorriso"]) {
        return;
    }
    let scene = Scene::new();
    let kernel = parts(&scene);
    let (disk, state) = (scene.arg("disk"), scene.arg("seen"));
    install(&disk, &["--root", &scene.arg("root.hsi"), "--size", "660M"], &kernel).ok();
    let newer = changed(&scene, "newer.hsi");
    scene.folder("www");
    fs::rename(&newer, scene.path("www/newer.hsi")).expect("published");
    let key = run(["keygen", &scene.arg("k")]).ok().stdout;
    let key = key.trim().strip_prefix("#key=").expect("a key").to_owned();
    run(["sign", &scene.arg("www/newer.hsi"), "--key", &scene.arg("k.key"), "--channel", "stable"]).ok();
    let nginx = Nginx::start(&scene, "");
    let flags = ["--without-writes", "--disk-cache", "none", "--channel-state", &state, "--json"];
    let update = |channel: &str| install(&disk, &[&["--update", channel], &flags[..]].concat(), &kernel);
    let other = run(["keygen", &scene.arg("other")]).ok().stdout;
    let other = other.trim().strip_prefix("#key=").expect("a key");
    update(&format!("{}#key={other}", nginx.url("stable"))).fails(1, &["not signed by the key"]);
    assert!(look(&disk)["next"].is_null());
    let updated = update(&format!("{}#key={key}", nginx.url("stable"))).ok().json();
    let published = run(["inspect", &scene.arg("www/newer.hsi"), "--json"]).ok().json();
    assert_eq!(updated["slots"][1]["image_digest"], published["image_digest"], "{updated}");
    assert_eq!(updated["next"], "b");
    // So does a medium.
    let address = format!("{}#key={key}", nginx.url("stable"));
    let flags = ["-q", "iso", &address, "-o", &scene.arg("x.iso"), "--disk-cache", "none", "--json"];
    let kernel = kernel.each_ref().map(String::as_str);
    let made = run([&flags[..], &["--channel-state", &state], &kernel].concat()).ok().json();
    assert_eq!(made["image_digest"], published["image_digest"], "{made}");
}

/// The Debian of the media with room for what is written, as an image.
fn roomy_debian(live: &Live) -> PathBuf {
    made_once("installed", |image| {
        let (root, image) = (live.root.display().to_string(), image.display().to_string());
        run(["build", &root, "-o", &image, "--free", "512M", "--codec", "zstd:1"]).ok();
    })
}

/// A disk with that Debian.
fn debian_disk(scene: &Scene, live: &Live) -> String {
    let (image, disk) = (roomy_debian(live).display().to_string(), scene.arg("disk"));
    let (kernel, initrd) = (live.file("vmlinuz"), live.file("initrd.img"));
    let quick = ["--timeout", "0", "--append", "no_timer_check", "--append", "console=ttyS0"];
    let flags = ["-q", "install", &disk, "--root", &image, "--size", "3G", "--kernel", &kernel];
    run([&flags[..], &["--initrd", &initrd], &quick].concat()).ok();
    disk
}

fn drive(disk: &str) -> [String; 4] {
    let drive = format!("if=none,id=d,format=raw,file={disk}");
    ["-drive".to_owned(), drive, "-device".to_owned(), "virtio-blk-pci,drive=d".to_owned()]
}

/// The words that GRUB gives the kernel of a slot.
fn words_of(disk: &str, slot: &str) -> String {
    let script =
        tool("debugfs", &["-R", &format!("cat slots/{slot}/boot.cfg"), &format!("{disk}{BOOT}")]).stdout;
    let at = script.find("words='").expect("words") + "words='".len();
    script[at..].split('\'').next().expect("an end").to_owned()
}

fn power_off(mut machine: Machine) {
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
}

#[test]
fn an_installed_debian_keeps_what_is_written() {
    let Some(live) = live() else { return };
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let disk = debian_disk(&scene, &live);
    let mut machine = Machine::start("512M", drive(&disk));
    let said = machine.log_in();
    assert!(said.contains("Booting `headstart, slot a"), "{said}");
    let mounts = machine.ran("cat /proc/mounts");
    let root = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/")).expect("a root");
    assert!(root.starts_with("/dev/loop") && root.contains(" ext4 rw,"), "{mounts}");
    machine.ran("echo for later >/root/kept");
    // Not synced by hand: the shutdown does that.
    power_off(machine);
    let start = format!("{} {BEFORE_THE_SWITCH}", words_of(&disk, "a"));
    let mut machine = live.start(&start, &drive(&disk).each_ref().map(String::as_str));
    machine.in_the_initramfs();
    assert_eq!(machine.ran("cat /root/root/kept").trim(), "for later");
    // Power that is cut takes nothing that was synced.
    machine.ran("echo synced >/root/root/synced; sync");
    drop(machine);
    let mut machine = live.start(&start, &drive(&disk).each_ref().map(String::as_str));
    machine.in_the_initramfs();
    assert_eq!(machine.ran("cat /root/root/synced /root/root/kept").trim(), "synced\nfor later");
}

/// A machine that starts the disk by UEFI.
fn by_uefi(scene: &Scene, disk: &str) -> Machine {
    let variables = scene.arg("variables");
    fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).expect("copied");
    let code = "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd";
    let variables = format!("if=pflash,format=raw,file={variables}");
    let firmware = ["-drive", code, "-drive", &variables, "-vga", "std"].map(str::to_owned);
    Machine::start("768M", [&firmware[..], &drive(disk)].concat())
}

#[test]
fn an_update_is_kept_when_it_comes_up_and_given_up_when_not() {
    let Some(live) = live() else { return };
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    let disk = debian_disk(&scene, &live);
    let (old, newer) = (roomy_debian(&live).display().to_string(), scene.arg("newer.hsi"));
    let changes = scene.arg("changes");
    run(["-q", "run", &old, "--keep", &changes, "--", "sh", "-c", "echo newer >/etc/hostname"]).ok();
    run(["commit", &old, &changes, "-o", &newer, "--codec", "zstd:1"]).ok();
    let kernel = ["--kernel", &live.file("vmlinuz"), "--initrd", &live.file("initrd.img")];
    let update = |image: &str| {
        let flags = ["-q", "install", &disk, "--update", image, "--without-writes"];
        run([&flags[..], &kernel].concat()).ok();
    };
    update(&newer);
    assert_eq!(look(&disk)["next"], "b");
    let mut machine = by_uefi(&scene, &disk);
    let said = machine.log_in();
    assert!(said.contains("Booting `headstart, slot b") && said.contains("newer login"), "{said}");
    assert!(machine.ran("ls /sys/firmware/efi").contains("systab"));
    machine.ran("systemctl is-system-running --wait; until [ -e /run/headstart/up ]; do sleep 1; done");
    // The keeper looks once a second.
    let boot = "mkdir -p /run/boot; mount /dev/vda3 /run/boot; until grep good=b /run/boot/boot/grub/grubenv; \
                do sleep 1; done; umount /run/boot";
    assert!(machine.ran(boot).contains("good=b"));
    power_off(machine);
    let after = look(&disk);
    assert!(after["good"] == "b" && after["next"].is_null(), "{after}");
    // The next update does not start: its image is gone. The one that came up is started instead.
    update(&old);
    assert_eq!(look(&disk)["next"], "a");
    tool("debugfs", &["-w", "-R", "rm slots/a/root.hsi", &format!("{disk}{DATA}")]);
    let mut machine = Machine::start("512M", drive(&disk));
    let said = machine.wait_for_any(&["Rebooting in", "reboot: "]);
    assert!(said.contains("Booting `headstart, slot a"), "{said}");
    machine.wait_for_end();
    let after = look(&disk);
    assert!(after["good"] == "b" && after["next"].is_null(), "{after}");
    let mut machine = Machine::start("512M", drive(&disk));
    let said = machine.wait_for("newer login: ");
    assert!(said.contains("Booting `headstart, slot b"), "{said}");
}

/// The running system takes its own snapshot, commits it and installs it beside itself.
#[test]
fn an_installed_debian_becomes_its_own_next_image() {
    let Some(live) = live() else { return };
    if !can_install() {
        return;
    }
    let scene = Scene::new();
    // With the programs in it; an initramfs with them is made by the running system.
    let (old, image) = (roomy_debian(&live).display().to_string(), scene.arg("with.hsi"));
    let (dir, changes, program) = (scene.folder("dir"), scene.arg("changes"), scene.arg("headstart"));
    fs::copy(env!("CARGO_BIN_EXE_headstart"), &program).expect("copied");
    tool("strip", &["-g", &program]);
    run(["-q", "mount", &old, &dir, "--keep", &changes]).ok();
    let live_program = live.file("headstart-live");
    for request in [
        &format!("write {program} usr/bin/headstart"),
        "mkdir usr/lib/headstart",
        &format!("write {live_program} usr/lib/headstart/headstart-live"),
    ] {
        tool("debugfs", &["-w", "-R", request, &format!("{dir}/disk.img")]);
    }
    crate::mounts::umount(&dir);
    run(["commit", &old, &changes, "-o", &image, "--codec", "zstd:1"]).ok();
    let (disk, kernel, initrd) = (scene.arg("disk"), live.file("vmlinuz"), live.file("initrd.img"));
    let quick = ["--timeout", "0", "--append", "no_timer_check", "--append", "console=ttyS0"];
    let flags = ["-q", "install", &disk, "--root", &image, "--size", "4G", "--kernel", &kernel];
    run([&flags[..], &["--initrd", &initrd], &quick].concat()).ok();

    let mut machine = Machine::start("1G", drive(&disk));
    machine.log_in();
    machine
        .ran("echo newer >/etc/hostname; (while :; do date >/root/x; sync /root/x; rm /root/x; done) & true");
    let script = "cd /run/initramfs/headstart/medium && FILE=$(ls writes/*) && sync -f / && \
                  headstart overlay snapshot $FILE update && echo after >/root/after && \
                  headstart commit slots/a/root.hsi $FILE --snapshot update -o new.hsi --codec zstd:1 && \
                  headstart overlay delete $FILE update; echo code $?";
    let said = machine.ran(script);
    assert!(said.contains("code 0"), "{said}");
    // Longer than a command may take.
    machine.ran(
        "(headstart -q install /dev/vda --update new.hsi --without-writes >/run/said 2>&1; \
         echo code $? >>/run/said) & true",
    );
    let mut looks = 0;
    let said = loop {
        let said = machine.ran("for n in $(seq 200); do ! grep ^code /run/said || break; sleep 1; done");
        if said.contains("code") {
            break said + &machine.ran("cat /run/said");
        }
        looks += 1;
        assert!(looks < 10, "it is not installed: {}", machine.ran("cat /run/said; ps -ef"));
    };
    assert!(said.contains("code 0"), "{said}");
    machine.ran("rm new.hsi; cat /root/after; kill %1");
    power_off(machine);
    assert_eq!(look(&disk)["next"], "b");
    let mut machine = Machine::start("1G", drive(&disk));
    let said = machine.log_in();
    assert!(said.contains("Booting `headstart, slot b") && said.contains("newer login"), "{said}");
    assert!(!machine.ran("ls /root").contains("after"));
}
