//! Disks as people bring them: small blocks, partitions, journals, lengths that are no multiple of a block.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::mounts::umount;
use crate::nbd;
use crate::scene::{Ran, Scene, has_tools, machine_has, mount, run, tool, wait_until};
use crate::service::server_of;

const MIB: u64 = 1 << 20;

/// An empty file of so many bytes.
pub(crate) fn empty(scene: &Scene, name: &str, bytes: u64) -> String {
    File::create(scene.path(name)).expect("a file").set_len(bytes).expect("room");
    scene.arg(name)
}

/// Builds `disk`, gives the image's path.
fn built(disk: &str, more: &[&str]) -> String {
    let image = format!("{disk}.hsi");
    run([&["build", disk, "-o", &image, "--codec", "zstd:1", "--force"], more].concat()).ok();
    image
}

/// Mounts the file system, calls `look` with its folder, and unmounts it.
fn mounted(scene: &Scene, image: &str, more: &[&str], look: impl FnOnce(&str)) {
    let number = scene.names().len();
    let (dir, fs) = (scene.folder(&format!("dir{number}")), scene.folder(&format!("fs{number}")));
    mount(scene, &[&[image, &dir, "--fs", &fs], more].concat()).ok();
    look(&fs);
    umount(&fs);
    scene.wait_until_clean();
}

fn refused(scene: &Scene, image: &str, more: &[&str], words: &[&str]) -> Ran {
    let number = scene.names().len();
    let (dir, fs) = (scene.folder(&format!("dir{number}")), scene.folder(&format!("fs{number}")));
    let ran = mount(scene, &[&[image, &dir, "--fs", &fs], more].concat());
    ran.fails(1, words);
    scene.wait_until_clean();
    ran
}

fn sfdisk(disk: &str, script: &str) {
    let mut child = Command::new("sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel", disk])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(script.as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success());
}

/// A disk with a GPT that counts in sectors of this size. Its partitions from the second on, `system`, have
/// what is in the files `parts`.
pub(crate) fn in_partitions(scene: &Scene, parts: &[&str], sector_bytes: u32) -> String {
    let contents: Vec<Vec<u8>> = parts.iter().map(|part| fs::read(part).expect("read")).collect();
    let mibs: Vec<u64> = contents.iter().map(|content| (content.len() as u64).div_ceil(MIB)).collect();
    let disk = empty(scene, "parted.raw", (mibs.iter().sum::<u64>() + 4) * MIB);
    let mut table = "label: gpt\nsize=1MiB\n".to_owned();
    for (number, mib) in mibs.iter().enumerate() {
        let name = if number == 0 { ", name=\"system\"" } else { "" };
        table.push_str(&format!("size={mib}MiB{name}\n"));
    }
    if sector_bytes == 512 {
        sfdisk(&disk, &table);
    } else {
        let attach = ["-f", "--show", "--sector-size", &sector_bytes.to_string(), &disk];
        let device = tool("losetup", &attach).ok().stdout.trim().to_owned();
        sfdisk(&device, &table);
        tool("losetup", &["-d", &device]).ok();
    }
    let file = File::options().write(true).open(&disk).expect("opened");
    let mut at = 2 * MIB;
    for (content, mib) in contents.iter().zip(mibs) {
        file.write_all_at(content, at).expect("written");
        at += mib * MIB;
    }
    disk
}

/// A file system in a file, mounted from a loop device for writing until this is dropped.
struct InUse {
    target: String,
    device: String,
}

impl InUse {
    fn mount(scene: &Scene, disk: &str) -> Self {
        let target = scene.folder(&format!("use{}", scene.names().len()));
        let device = tool("losetup", &["-f", "--show", disk]).ok().stdout.trim().to_owned();
        let used = Self { target, device };
        tool("mount", &[&used.device, &used.target]).ok();
        used
    }

    /// Writes a file and lets the file system's journal have it.
    fn write(&self, name: &str) {
        let mut file = File::create(format!("{}/{name}", self.target)).expect("a file");
        file.write_all(b"journalled").expect("written");
        file.sync_all().expect("synced");
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        tool("umount", &[&self.target]);
        tool("losetup", &["-d", &self.device]);
    }
}

/// The kernel refuses a device whose sectors are larger than the blocks of its file system.
#[test]
fn file_systems_of_small_blocks_are_mounted() {
    if !machine_has(&[]) || !has_tools(&["mke2fs", "mkfs.xfs", "debugfs"]) {
        return;
    }
    let scene = Scene::new();
    let kinds: [(&str, &[&str]); 4] = [
        ("e1", &["-t", "ext4", "-b", "1024"]),
        ("e2", &["-t", "ext2", "-b", "2048"]),
        ("e3", &["-t", "ext3", "-b", "1024"]),
        ("big", &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "16384"]),
    ];
    fs::write(scene.path("content"), "small").expect("written");
    for (name, options) in kinds {
        let disk = empty(&scene, name, 48 * MIB);
        tool("mke2fs", &[&["-q", "-F"], options, &[&disk]].concat()).ok();
        tool("debugfs", &["-w", "-R", &format!("write {} content", scene.arg("content")), &disk]).ok();
        let look = |fs: &str| {
            assert_eq!(fs::read_to_string(format!("{fs}/content")).expect("read"), "small", "{name}");
        };
        mounted(&scene, &built(&disk, &[]), &[], look);
    }
    let disk = empty(&scene, "xfs", 320 * MIB);
    tool("mkfs.xfs", &["-q", &disk]).ok();
    mounted(&scene, &built(&disk, &[]), &[], |fs| {
        assert!(
            fs::read_to_string("/proc/thread-self/mountinfo").expect("read").contains(&format!("{fs} ro"))
        );
    });
}

/// Of every kind of FAT, and with sectors of 512 and of 4096 bytes.
#[test]
fn a_fat_is_mounted_or_its_driver_is_named() {
    if !machine_has(&[]) || !has_tools(&["mkfs.vfat", "mcopy"]) {
        return;
    }
    let scene = Scene::new();
    fs::write(scene.path("content"), "of a camera").expect("written");
    for (name, bits, sector, mib) in [
        ("f12", "12", "512", 2),
        ("f16", "16", "512", 20),
        ("f32", "32", "512", 40),
        ("f4k", "32", "4096", 280),
    ] {
        let disk = empty(&scene, name, mib * MIB);
        tool("mkfs.vfat", &["-F", bits, "-S", sector, &disk]).ok();
        tool("mcopy", &["-i", &disk, &scene.arg("content"), "::content.txt"]).ok();
        let image = built(&disk, &[]);
        run(["verify", &image, "--against", &disk]).ok();
        if !kernel_mounts("vfat") {
            refused(&scene, &image, &[], &["cannot mount vfat", "modprobe vfat"]);
            continue;
        }
        mounted(&scene, &image, &[], |fs| {
            let content = fs::read_to_string(format!("{fs}/content.txt")).expect("read");
            assert_eq!(content, "of a camera", "{name}");
        });
    }
}

/// Whether the kernel has a driver for this file system; a module of it is loaded.
pub(crate) fn kernel_mounts(file_system: &str) -> bool {
    let _ = Command::new("modprobe").args(["-q", file_system]).status();
    let known = fs::read_to_string("/proc/filesystems").expect("read");
    known.split_whitespace().any(|word| word == file_system)
}

#[test]
fn why_the_kernel_refuses_a_file_system_is_said() {
    if !machine_has(&[]) || !has_tools(&["mke2fs"]) {
        return;
    }
    let scene = Scene::new();
    let disk = empty(&scene, "cut", 64 * MIB);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096", &disk]).ok();
    File::options().write(true).open(&disk).and_then(|file| file.set_len(16 * MIB)).expect("cut short");
    refused(&scene, &built(&disk, &[]), &[], &["cannot mount ext4", "67108864 bytes", "cut short"]);
    if machine_has(crate::scene::START) {
        let words = ["run", &format!("{disk}.hsi"), "--", "/bin/true"];
        run(words).fails(1, &["cut short", "the kernel says", "EXT4-fs", "bad geometry"]);
    }
    let disk = empty(&scene, "large", 64 * MIB);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "65536", &disk]).ok();
    refused(&scene, &built(&disk, &[]), &[], &["cannot mount ext4", "65536 bytes", "of a page"]);
}

/// A disk with a GPT, whose second partition has a file.
fn parted(scene: &Scene) -> String {
    let disk = empty(scene, "parted", 64 * MIB + 512);
    sfdisk(
        &disk,
        "label: gpt\n\
         size=4MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=\"boot\"\n\
         size=32MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=\"root-a\"\n\
         size=4MiB, type=E6D6D379-F507-44C2-A23C-238F2A3DF928\n\
         size=4MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4\n",
    );
    let part = empty(scene, "part", 32 * MIB);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", "-L", "inner", &part]).ok();
    fs::write(scene.path("content"), "of a partition").expect("written");
    tool("debugfs", &["-w", "-R", &format!("write {} content", scene.arg("content")), &part]).ok();
    let file = File::options().write(true).open(&disk).expect("opened");
    file.write_all_at(&fs::read(&part).expect("read"), 5 * MIB).expect("written");
    file.write_all_at(b"LABELONE", 37 * MIB + 512).expect("written");
    file.write_all_at(b"LUKS\xba\xbe\0\x01", 41 * MIB).expect("written");
    disk
}

#[test]
fn partitions_are_listed_and_can_be_chosen() {
    if !machine_has(&[]) || !has_tools(&["sfdisk", "mke2fs", "debugfs"]) {
        return;
    }
    let scene = Scene::new();
    let disk = parted(&scene);
    let image = built(&disk, &[]);
    let list =
        ["GPT", "4 partitions", "EFI System", "root-a", "ext2/3/4", "5242880", "32 MiB", "LVM", "LUKS"];
    refused(&scene, &image, &[], &[&list[..], &["--partition 2"]].concat());
    let look = |fs: &str| {
        assert_eq!(fs::read_to_string(format!("{fs}/content")).expect("read"), "of a partition");
    };
    for word in ["2", "root-a", "inner", "root", "LABEL=inner"] {
        mounted(&scene, &image, &["--partition", word], look);
    }
    refused(&scene, &image, &["--partition", "5"], &["no partition", "'5'", "root-a"]);
    refused(&scene, &image, &["--partition", "1"], &["partition 1", "no file system"]);
    refused(&scene, &image, &["--partition", "lvm"], &["partition 3", "LVM", "vgchange"]);
    refused(&scene, &image, &["--partition", "4"], &["partition 4", "LUKS", "cryptsetup"]);
    let dir = scene.folder("dir");
    mount(&scene, &[&image, &dir, "--partition", "2"]).fails(1, &["--partition", "--fs"]);
    // An image of the partition alone.
    let alone = scene.arg("alone.hsi");
    run(["build", &disk, "--partition", "root-a", "-o", &alone]).ok();
    mounted(&scene, &alone, &[], look);
    let raw = scene.arg("alone.raw");
    run(["export", &alone, "-o", &raw, "--format", "raw"]).ok();
    assert!(fs::read(&raw).expect("read") == fs::read(scene.path("part")).expect("read"));
    run(["build", &disk, "--partition", "9", "-o", &alone, "--force"]).fails(1, &["'9'", "root-a"]);
    refused(&scene, &alone, &["--partition", "1"], &["no partitions", "ext2/3/4"]);
}

#[test]
fn a_program_starts_from_a_partition() {
    if !machine_has(crate::scene::START) || !has_tools(&["sfdisk"]) {
        return;
    }
    let scene = Scene::new();
    let part = scene.arg("part.raw");
    run(["export", &scene.root("root.hsi"), "-o", &part]).ok();
    let disk = empty(&scene, "disk", 32 * MIB);
    sfdisk(
        &disk,
        "label: dos\n1 : start=2048, size=2MiB, type=83\n2 : size=27MiB, type=5\n5 : size=25MiB, type=83\n",
    );
    let list = tool("sfdisk", &["-l", "-o", "Start", "-q", &disk]).ok().stdout;
    let start: u64 = list.lines().last().expect("a line").trim().parse().expect("a sector");
    let file = File::options().write(true).open(&disk).expect("opened");
    file.write_all_at(&fs::read(&part).expect("read"), start * 512).expect("written");
    let image = built(&disk, &[]);
    run(["run", &image, "--", "/bin/echo", "hello"]).fails(1, &["MBR", "--partition 5"]);
    for disk in [&[image.as_str()][..], &["--raw", &disk]] {
        let ran = run([&["run"], disk, &["--partition", "5", "--", "/bin/echo", "hello"]].concat()).ok();
        assert_eq!(ran.stdout, "hello\n");
    }
    let profile = scene.arg("p.hsp");
    let words = ["profile", &image, "--partition", "5", "-o", &profile, "--", "/bin/echo", "hello"];
    assert!(run(words).ok().stderr.contains("of a partition"), "files are not recorded");
    let hot = scene.arg("hot.hsi");
    run(["optimize", &image, "-p", &profile, "-o", &hot]).ok();
    run(["run", &hot, "--partition", "5", "--", "/bin/echo", "hello"]).ok();
}

/// `mkfs` of a whole disk leaves an old table in place, and the other way round.
#[test]
fn a_file_system_below_an_old_table_is_taken_and_both_are_said() {
    if !machine_has(&[]) || !has_tools(&["sfdisk", "mke2fs"]) {
        return;
    }
    let scene = Scene::new();
    let disk = empty(&scene, "both", 16 * MIB);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", &disk]).ok();
    sfdisk(&disk, "label: dos\n1 : start=2048, size=8MiB, type=83\n");
    let number = scene.names().len();
    let (dir, fs) = (scene.folder(&format!("dir{number}")), scene.folder("fs"));
    let ran = mount(&scene, &[&built(&disk, &[]), &dir, "--fs", &fs]).ok();
    for word in ["ext2/3/4", "MBR partition table", "1048576", "--partition"] {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    umount(&fs);
    scene.wait_until_clean();
}

/// File systems that are copied while they are written to, and of which a file was synced.
fn copies_in_use(look: impl Fn(&Scene, &str)) {
    let makers: [(&str, &[&str], u64); 3] = [
        ("mke2fs", &["-q", "-F", "-t", "ext4"], 64),
        ("mkfs.xfs", &["-q"], 320),
        ("mkfs.btrfs", &["-q"], 128),
    ];
    for (maker, options, mib) in makers {
        let scene = Scene::new();
        let disk = empty(&scene, "disk", mib * MIB);
        tool(maker, &[options, &[&disk]].concat()).ok();
        let copy = scene.arg("copy");
        {
            let used = InUse::mount(&scene, &disk);
            used.write("synced");
            tool("cp", &["--sparse=always", &disk, &copy]).ok();
        }
        let ran = run(["build", &copy, "-o", &scene.arg("copy.hsi")]).ok();
        for words in ["was not unmounted", "for ext3 and ext4"] {
            assert!(ran.stderr.contains(words), "{maker}: {}", ran.stderr);
        }
        look(&scene, maker);
        // The disk itself was unmounted, and is clean when no other test's mount namespace has it any more.
        wait_until("it is unmounted everywhere", || {
            run(["build", &disk, "-o", &scene.arg("clean.hsi")]).ok().stderr.is_empty()
        });
        mounted(&scene, &scene.arg("clean.hsi"), &[], |fs| assert_eq!(synced(fs), "journalled", "{maker}"));
    }
}

fn synced(fs: &str) -> String {
    fs::read_to_string(format!("{fs}/synced")).unwrap_or_default()
}

const JOURNAL_TOOLS: &[&str] = &["mke2fs", "mkfs.xfs", "mkfs.btrfs", "losetup", "cp"];

/// What was synced is seen, and the disk stays what it is.
#[test]
fn a_journal_is_replayed_in_memory() {
    if !machine_has(&[]) || !has_tools(JOURNAL_TOOLS) {
        return;
    }
    copies_in_use(|scene, maker| {
        let image = scene.arg("copy.hsi");
        let (dir, fs) = (scene.folder("dir"), scene.folder("fs"));
        for mode in ["warm", "push"] {
            let ran = mount(scene, &[&image, &dir, "--fs", &fs, "--prefetch", mode]).ok();
            assert!(ran.stderr.contains("replayed in memory"), "{maker}: {}", ran.stderr);
            assert_eq!(synced(&fs), "journalled", "{maker}");
            assert!(File::create(format!("{fs}/new")).is_err(), "{maker} is read-only");
            // No name shows what was written, and disk.img is the disk that was copied.
            let names: Vec<_> =
                fs::read_dir(&dir).expect("listed").map(|name| name.expect("a name")).collect();
            assert_eq!(names.len(), 1, "{names:?}");
            assert!(File::options().write(true).open(scene.path("dir/disk.img")).is_err());
            tool("cmp", &[&scene.arg("dir/disk.img"), &scene.arg("copy")]).ok();
            umount(&fs);
            scene.wait_until_clean();
        }
        mounted(scene, &image, &["--ignore-journal"], |fs| {
            // XFS and btrfs have the file in the journal only.
            assert!(maker == "mke2fs" || synced(fs).is_empty(), "{maker}");
        });
    });
}

/// The memory with the replay outlives its server.
#[test]
fn a_replayed_journal_survives_its_server() {
    if !machine_has(&[]) || !has_tools(JOURNAL_TOOLS) {
        return;
    }
    copies_in_use(|scene, maker| {
        let (dir, fs) = (scene.folder("dir"), scene.folder("fs"));
        mount(scene, &[&scene.arg("copy.hsi"), &dir, "--fs", &fs]).ok();
        let server = server_of(&dir)["pid"].as_i64().expect("a number");
        let server = Pid::from_raw(i32::try_from(server).expect("a pid")).expect("a pid");
        kill_process(server, Signal::KILL).expect("it is there");
        wait_until("there is another server", || server_of(&dir)["restarts"] == 1);
        // Nothing of the file was read before.
        assert_eq!(synced(&fs), "journalled", "{maker}");
        tool("umount", &[&fs]).ok();
        scene.wait_until_clean();
    });
}

#[test]
fn a_disk_keeps_its_length_to_the_byte() {
    let scene = Scene::new();
    let mut disk = scene.raw("disk.raw", 40, 5);
    // The last sector is the copy of a partition table, say.
    disk.truncate(39 * 4096 + 512);
    disk[39 * 4096..].fill(0xee);
    fs::write(scene.path("disk.raw"), &disk).expect("written");
    let image = scene.arg("disk.hsi");
    let ran = run(["build", "--raw", &scene.arg("disk.raw"), "-o", &image, "--json"]).ok();
    assert_eq!(ran.json()["disk_bytes"], disk.len());
    run(["verify", &image, "--against", &scene.arg("disk.raw")]).ok();
    let raw = scene.arg("out.raw");
    run(["export", &image, "-o", &raw]).ok();
    assert!(fs::read(&raw).expect("read") == disk);
    if has_tools(&["qemu-img"]) {
        let qcow2 = scene.arg("out.qcow2");
        run(["export", &image, "-o", &qcow2]).ok();
        tool("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &scene.arg("disk.raw"), &qcow2]).ok();
        let info: serde_json::Value =
            serde_json::from_str(&tool("qemu-img", &["info", "--output=json", &qcow2]).ok().stdout)
                .expect("JSON");
        assert_eq!(info["virtual-size"], disk.len());
    }
    if has_tools(&["nbdinfo", "nbdcopy"]) {
        let serving = nbd::serve(&scene, &[&image]);
        let size = tool("nbdinfo", &["--size", &nbd::uri(&scene, "disk")]).ok().stdout;
        assert_eq!(size.trim(), disk.len().to_string());
        tool("nbdcopy", &[&nbd::uri(&scene, "disk"), &scene.arg("copied")]).ok();
        assert!(fs::read(scene.path("copied")).expect("read") == disk);
        nbd::end(serving);
    }
    if !machine_has(&[]) {
        return;
    }
    let dir = scene.folder("dir");
    for mode in ["push", "hold"] {
        mount(&scene, &[&image, &dir, "--prefetch", mode]).ok();
        assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk, "{mode}");
        umount(&dir);
        scene.wait_until_clean();
    }
}

/// What is copied while it is written to is a state that never was.
#[test]
fn a_disk_that_is_mounted_for_writing_is_no_source() {
    if !machine_has(&[]) || !has_tools(&["mke2fs", "losetup"]) {
        return;
    }
    let scene = Scene::new();
    let disk = empty(&scene, "disk", 16 * MIB);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", &disk]).ok();
    let image = scene.arg("image.hsi");
    let used = InUse::mount(&scene, &disk);
    // By another name, and as the backing file of another disk.
    let (linked, top) = (scene.arg("linked"), scene.arg("top.qcow2"));
    fs::hard_link(&disk, &linked).expect("linked");
    let mut sources = vec![&used.device, &disk, &linked];
    if has_tools(&["qemu-img"]) {
        tool("qemu-img", &["create", "-q", "-f", "qcow2", "-b", "disk", "-F", "raw", &top]).ok();
        sources.push(&top);
    }
    for source in sources {
        run(["build", source, "-o", &image]).fails(1, &["mounted for writing", &used.target, "--mounted"]);
        assert!(!scene.path("image.hsi").exists());
    }
    run(["build", &used.device, "-o", &image, "--mounted"]).ok();
    tool("mount", &["-o", "remount,ro", &used.target]).ok();
    run(["build", &used.device, "-o", &image]).ok();
}

/// What is at the start of a disk is none of the file system in its partition: zeros, or one that was there
/// before the disk was partitioned.
#[test]
fn a_partition_that_is_written_to_gets_its_journal_and_no_other() {
    if !machine_has(&["/usr/sbin/tune2fs", "/usr/sbin/e2fsck"])
        || !has_tools(&["sfdisk", "mke2fs", "debugfs", "dumpe2fs"])
    {
        return;
    }
    let scene = Scene::new();
    fs::write(scene.path("content"), vec![b'c'; 20 << 20]).expect("written");
    let part = empty(&scene, "part", 63 * MIB);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^has_journal", &part]).ok();
    tool("debugfs", &["-w", "-R", &format!("write {} content", scene.arg("content")), &part]).ok();
    for was_file_system in [false, true] {
        let disk = empty(&scene, &format!("disk{was_file_system}"), 64 * MIB);
        if was_file_system {
            tool("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "^has_journal", &disk]).ok();
        }
        sfdisk(&disk, "label: dos\nstart=2048, type=83\n");
        let file = File::options().read(true).write(true).open(&disk).expect("opened");
        file.write_all_at(&fs::read(&part).expect("read"), MIB).expect("written");
        let (image, keep) = (built(&disk, &["--raw"]), format!("{disk}.hsk"));
        let keeping = ["--partition", "1", "--keep", &keep];
        // The second time it has one.
        for _ in 0..2 {
            mounted(&scene, &image, &keeping, |fs| {
                let content = fs::read(format!("{fs}/content")).expect("read");
                assert!(content == fs::read(scene.path("content")).expect("read"));
                fs::write(format!("{fs}/new"), "kept").expect("written");
            });
        }
        let (new, raw) = (format!("{disk}.new.hsi"), format!("{disk}.new"));
        run(["commit", &image, &keep, "-o", &new]).ok();
        run(["export", &new, "-o", &raw, "--format", "raw"]).ok();
        let (mut before, mut after) = (vec![0; MIB as usize], vec![0; MIB as usize]);
        file.read_exact_at(&mut before, 0).expect("read");
        File::open(&raw).and_then(|file| file.read_exact_at(&mut after, 0)).expect("read");
        assert!(before == after, "nothing before the partition changes");
        fs::write(&raw, &fs::read(&raw).expect("read")[MIB as usize..]).expect("written");
        let about = tool("dumpe2fs", &["-h", &raw]).stdout;
        assert!(about.contains("has_journal"), "{about}");
        tool("e2fsck", &["-fn", &raw]);
    }
}
