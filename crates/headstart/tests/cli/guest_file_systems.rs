//! Disks whose file systems and partition tables not every kernel knows: guests have one that does.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::boots::{GUEST, assert_nothing_is_in_tmp, boot, little_guest};
use crate::disks::{empty, in_partitions};
use crate::qemu_boots::{QEMU, linux_guest};
use crate::scene::{Scene, has_tools, machine_has, run, tool};

/// Where the package user-mode-linux has its modules, in a folder for its version.
const MODULES: &str = "/usr/lib/uml/modules";
/// Those for FAT and ISO 9660, in the order in which they are to be loaded.
const NEEDED: [&str; 8] = [
    "drivers/cdrom/cdrom.ko",
    "fs/isofs/isofs.ko",
    "fs/nls/nls_cp437.ko",
    "fs/nls/nls_ascii.ko",
    "fs/nls/nls_iso8859-1.ko",
    "fs/nls/nls_utf8.ko",
    "fs/fat/fat.ko",
    "fs/fat/vfat.ko",
];

/// Says what each partition behind that of the root holds.
const MOUNTING: &str = "#!/bin/sh
export PATH=/bin
busybox mount -t devtmpfs dev /dev
for module in MODULES; do busybox insmod /$module; done
number=2
for kind in vfat vfat vfat vfat iso9660; do
    number=$((number + 1))
    echo partition $number
    busybox mount -r -t $kind /dev/ubda$number /mnt || continue
    cd /mnt
    busybox find . -type f -exec busybox md5sum {} \\;
    busybox find . -type l -exec busybox stat -c 'link %N' {} \\;
    busybox find . -perm -4000 -exec busybox stat -c 'mode %a of %n' {} \\;
    cd /
    busybox umount /mnt
done
echo up
while :; do sleep 1000; done
";

/// The modules, or nothing: other distributions have them elsewhere.
fn modules() -> Option<Vec<PathBuf>> {
    let version = fs::read_dir(MODULES).ok()?.flatten().next()?.path();
    Some(NEEDED.iter().map(|name| version.join("kernel").join(name)).collect())
}

/// Files in folders, of no byte, of one block and of many, with names of either kind.
fn content(scene: &Scene) -> String {
    let folder = scene.folder("content");
    let files =
        [("empty", 0), ("DCIM/100/image with a long name.jpeg", 75), ("DCIM/SHORT.TXT", 1), ("most", 100)];
    for (name, blocks) in files {
        let path = scene.path("content").join(name);
        fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder");
        if blocks == 0 {
            fs::write(path, "").expect("written");
        } else {
            scene.raw(&format!("content/{name}"), blocks, blocks as u64);
        }
    }
    folder
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a name")
}

/// One disk has them all as partitions. An image of it is served to a guest of User-mode Linux.
#[test]
fn a_guest_mounts_partitions_of_fat_and_iso_9660() {
    let tools = ["mkfs.vfat", "mcopy", "xorriso", "sfdisk", "md5sum"];
    if !machine_has(&[GUEST, &[MODULES]].concat()) || !has_tools(&tools) {
        return;
    }
    let Some(modules) = modules() else { return hs_testing::skip(MODULES) };
    let (scene, _) = little_guest();
    let content = content(&scene);
    let sums = format!("cd {content}; find . -type f -exec md5sum {{}} + | sort");
    let expected = tool("sh", &["-ec", &sums]).stdout;
    let mut parts = vec![scene.arg("part.raw")];
    for (bits, sector, mib) in [("12", "512", 2), ("16", "512", 20), ("32", "512", 40), ("16", "4096", 32)] {
        let disk = empty(&scene, &format!("fat{}", parts.len()), mib << 20);
        let cluster: &[&str] = if sector == "4096" { &["-s", "1"] } else { &[] };
        tool("mkfs.vfat", &[&["-F", bits, "-S", sector], cluster, &[&disk]].concat()).ok();
        tool("sh", &["-ec", &format!("mcopy -s -i {disk} {content}/* ::")]).ok();
        parts.push(disk);
    }
    // Rock Ridge has links and modes.
    symlink("DCIM/SHORT.TXT", scene.path("content/link")).expect("a link");
    fs::set_permissions(scene.path("content/most"), fs::Permissions::from_mode(0o4755)).expect("allowed");
    let iso = scene.arg("files.iso");
    tool("xorriso", &["-as", "mkisofs", "-quiet", "-R", "-o", &iso, &content]).ok();
    parts.push(iso);

    let names: Vec<&str> = modules.iter().map(|module| file_name(module)).collect();
    for module in &modules {
        fs::copy(module, scene.path("root").join(file_name(module))).expect("a module");
    }
    scene.folder("root/mnt");
    fs::write(scene.path("root/sbin/init"), MOUNTING.replace("MODULES", &names.join(" "))).expect("written");
    let root = scene.arg("root.hsi");
    run(["build", &scene.arg("root"), "-o", &root, "--free", "4M", "--codec", "zstd:1"]).ok();
    run(["export", &root, "-o", &parts[0], "--format", "raw"]).ok();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (disk, image) = (in_partitions(&scene, &parts, 512), scene.arg("parted.hsi"));
    run(["build", &disk, "-o", &image, "--codec", "zstd:1"]).ok();

    let console = scene.arg("console");
    let flags = ["--vmm", "uml", "--memory", "64M", "--ready", "^up$", "--partition", "system"];
    boot(&scene, &image, &[&flags[..], &["--console", &console]].concat()).ok();
    let said = fs::read_to_string(scene.path("console")).expect("the console").replace('\r', "");
    let mut found = said.split("\npartition ").skip(1);
    for number in 3..=7 {
        let (said_number, lines) = found.next().and_then(|part| part.split_once('\n')).expect(&said);
        assert_eq!(said_number, number.to_string(), "{said}");
        let mut sums: Vec<&str> = lines.lines().filter(|line| line.contains("  ./")).collect();
        sums.sort_unstable();
        assert_eq!(sums, expected.lines().collect::<Vec<_>>(), "partition {number}: {said}");
        let has = |line: &str| lines.lines().any(|said| said == line);
        let has_rock_ridge = has("link './link' -> 'DCIM/SHORT.TXT'") && has("mode 4755 of ./most");
        assert_eq!(has_rock_ridge, number == 7, "partition {number}: {said}");
    }
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// Of a disk whose table counts in sectors of 4096 bytes a guest finds the partitions only on a device with
/// such sectors, which User-mode Linux does not have.
#[test]
fn a_partition_of_a_disk_with_large_sectors_boots() {
    let Some((scene, image, kernel)) = linux_guest() else { return };
    if !has_tools(&["sfdisk", "losetup"]) {
        return;
    }
    let part = scene.arg("part.raw");
    run(["export", &image, "-o", &part, "--format", "raw"]).ok();
    let (disk, image) = (in_partitions(&scene, &[&part], 4096), scene.arg("parted.hsi"));
    run(["build", &disk, "-o", &image, "--codec", "zstd:1"]).ok();
    let (console, changes) = (scene.arg("console"), scene.arg("changes"));
    let flags = ["--ready", "^up$", "--console", &console, "--partition", "system"];
    // QEMU is chosen, and finds no kernel.
    boot(&scene, &image, &flags).fails(1, &["/vmlinuz"]);
    boot(&scene, &image, &[&flags[..], &["--vmm", "uml"]].concat())
        .fails(1, &["sectors of 4096 bytes", "--vmm qemu"]);
    let saved = ["--snapshot-out", &scene.arg("saved"), "--kernel", &kernel];
    boot(&scene, &image, &[&flags[..], &QEMU, &saved].concat()).fails(1, &["--snapshot-out", "4096"]);
    // What the guest writes goes to its partition too.
    let keep = ["--bus", "nvme", "--kernel", &kernel, "--keep", &changes];
    for was_here in [false, true] {
        boot(&scene, &image, &[&flags[..], &QEMU, &keep].concat()).ok();
        let said = fs::read_to_string(scene.path("console")).expect("the console");
        assert!(said.contains("(nvme0n1p2)"), "{said}");
        assert_eq!(said.contains("was here"), was_here, "{said}");
    }
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}
