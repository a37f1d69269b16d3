//! `headstart serve --ublk`: a block device of a kernel that has them, which is a guest's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::live::{debian_root, with_newer_kernel};
use crate::machine::{CONSOLE, Machine};
use crate::qemu_kernels::initrd;
use crate::scene::{Scene, has_tools, machine_has, made_once, run, tool};

const PROGRAM: &str = env!("CARGO_BIN_EXE_headstart");
/// In the order in which they are to be loaded; without the last there are no such devices.
const MODULES: [&str; 6] = ["crc32c_generic", "crc16", "mbcache", "jbd2", "ext4", "ublk_drv"];
const INIT: &str = "#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir /proc /sys /run /tmp /mnt
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run
for module in crc32c_generic crc16 mbcache jbd2 ext4; do insmod /$module.ko; done
echo '(initramfs) '
exec sh
";
/// Waits until the server that was started last says where the disk is.
const IS_SERVED: &str = "until grep -q Ctrl-C /log; do sleep 0.1; done";
/// Has the device read in the background, from no cache.
const READING: &str = "echo 3 >/proc/sys/vm/drop_caches
    (md5sum /dev/ublkb3 >/sum 2>&1; echo over >>/sum) & sleep 1";
const HAS_READ: &str = "until grep -q over /sum; do sleep 0.1; done; cat /sum";
/// Kills the server of a supervisor.
const KILL: &str = "kill -9 $(cat /proc/$server/task/$server/children)";
const IS_GONE: &str = "while ls /dev | grep ublk[bc] || pidof headstart headstart-ublk-keeper; do sleep 0.1; done; echo all gone";

/// A kernel, and an initial RAM disk with the program, its libraries and modules.
fn guest_files(system: &Path) -> PathBuf {
    made_once("ublk-guest", |folder| {
        fs::create_dir(folder).expect("a folder");
        let modules = fs::read_dir(system.join("lib/modules")).expect("modules").flatten();
        let is_newer = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"6.12"))
        };
        let modules = modules.map(|entry| entry.path()).find(is_newer).expect("Linux 6.12");
        let version = modules.file_name().and_then(|name| name.to_str()).expect("a version");
        fs::copy(system.join(format!("boot/vmlinuz-{version}")), folder.join("vmlinuz")).expect("copied");

        let stripped = folder.join("headstart");
        tool("strip", &["-o", &stripped.display().to_string(), PROGRAM]);
        let libraries = tool("ldd", &[PROGRAM]).stdout;
        let libraries: Vec<&str> =
            libraries.split_whitespace().filter_map(|word| word.strip_prefix('/')).collect();
        let read = |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut files: Vec<(String, Vec<u8>)> = vec![
            ("bin/busybox".to_owned(), read(Path::new("/bin/busybox"))),
            ("bin/headstart".to_owned(), read(&stripped)),
        ];
        files.extend(libraries.iter().map(|name| ((*name).to_owned(), read(&Path::new("/").join(name)))));
        for module in MODULES {
            let found = tool("find", &[&modules.display().to_string(), "-name", &format!("{module}.ko.xz")]);
            let unpacked = Command::new("xz").args(["-dc", found.stdout.trim()]).output().expect("xz starts");
            files.push((format!("{module}.ko"), unpacked.stdout));
        }
        let files: Vec<(&str, Vec<u8>)> =
            files.iter().map(|(name, file)| (name.as_str(), file.clone())).collect();
        initrd(&folder.join("initrd"), &files);
    })
}

/// An image of an ext4 with noise, and the sum of its disk.
fn image(scene: &Scene, name: &str, seed: u64) -> (String, String) {
    let root = scene.folder(&format!("{name}-root"));
    scene.raw(&format!("{name}-root/noise"), 700, seed);
    fs::write(scene.path(&format!("{name}-root/name")), name).expect("written");
    let (image, raw) = (scene.arg(&format!("{name}.hsi")), scene.arg("raw"));
    run(["build", &root, "-o", &image, "--codec", "zstd:1"]).ok();
    run(["export", &image, "-o", &raw, "--format", "raw", "--force"]).ok();
    let sum = tool("md5sum", &[&raw]).stdout;
    (image, sum.split_whitespace().next().expect("a sum").to_owned())
}

/// The guest, with these images on disks of its own: the files are of no file system that it has to know.
fn guest(scene: &Scene, files: &Path, images: &[&str]) -> Machine {
    let archive = scene.arg("images.cpio");
    let list = images
        .iter()
        .map(|image| {
            let path = Path::new(image);
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            (name, fs::read(path).expect("the image"))
        })
        .chain([("init", INIT.into())]);
    initrd(Path::new(&archive), &list.collect::<Vec<(&str, Vec<u8>)>>());
    // Archives one behind the other are one.
    let both = scene.arg("initrd");
    tool(
        "sh",
        &["-ec", "cat \"$0\" \"$1\" >\"$2\"", &files.join("initrd").display().to_string(), &archive, &both],
    );
    let words = format!("{CONSOLE} quiet");
    let kernel = files.join("vmlinuz").display().to_string();
    let mut machine = Machine::start("768M", ["-kernel", &kernel, "-initrd", &both, "-append", &words]);
    machine.in_the_initramfs();
    machine
}

fn serve(machine: &mut Machine, words: &str) {
    machine.ran(&format!("rm -f /log; headstart serve {words} >/out 2>/log & server=$!; {IS_SERVED}"));
}

#[test]
fn a_block_device_goes_on_when_its_server_is_killed_and_goes_with_its_supervisor() {
    if !machine_has(&["/bin/busybox"]) || !has_tools(&["strip", "ldd", "xz", "qemu-system-x86_64"]) {
        return;
    }
    let Some(root) = debian_root() else { return };
    let files = guest_files(&with_newer_kernel(&root));
    let scene = Scene::new();
    let ((first, first_sum), (second, second_sum)) = (image(&scene, "first", 1), image(&scene, "second", 2));
    let mut machine = guest(&scene, &files, &[&first, &second]);

    let lacks = machine.ran("headstart serve /first.hsi --ublk any; echo code $?");
    assert!(lacks.contains("modprobe ublk_drv") && lacks.contains("code 1"), "{lacks}");
    machine.ran("insmod /ublk_drv.ko");

    // Slow enough for a read to wait when its server dies.
    serve(&mut machine, "/first.hsi --ublk 3 --json --emulate flat-5ms-1mbs-serial --no-prefetch --cache 1M");
    let said = machine.ran("cat /log; blockdev --getro /dev/ublkb3; headstart status");
    assert!(said.contains("/first.hsi served at /dev/ublkb3") && said.contains("\n1\n"), "{said}");
    let refused = machine.ran("dd if=/dev/zero of=/dev/ublkb3 bs=4096 count=1 || echo nothing is written");
    assert!(refused.contains("nothing is written"), "{refused}");
    let taken = machine.ran("headstart serve /second.hsi --ublk 3; echo code $?");
    assert!(taken.contains("/dev/ublkb3 is there already") && taken.contains("code 1"), "{taken}");
    machine.ran(READING);
    assert_eq!(machine.ran(&format!("{KILL}; grep -c over /sum")).trim(), "0", "a read is under way");
    for death in 1..=2 {
        let goes_on =
            format!("until [ $(grep -c 'the next one goes on' /log) = {death} ]; do sleep 0.1; done");
        machine.ran(&format!("{goes_on}; sleep 1; {KILL}"));
    }
    let read = machine.ran(HAS_READ);
    assert!(read.contains(&first_sum), "{read}");
    // Some of these die while they take it over.
    machine.ran(READING);
    machine.ran(&format!("for death in 1 2 3 4; do {KILL}; sleep 0.4; done"));
    let read = machine.ran(HAS_READ);
    assert!(read.contains(&first_sum), "{read}");
    assert!(!machine.ran("dmesg").contains("I/O error"), "no read has failed");

    // Nothing is left that could answer.
    machine.ran(READING);
    machine.ran("kill -9 $server $(cat /proc/$server/task/$server/children)");
    let read = machine.ran(HAS_READ);
    // As of a disk that was pulled out: an error, or an early end.
    assert!(!read.contains(&first_sum), "{read}");
    machine.ran(IS_GONE);

    // The same number, another disk: no page of the first is seen.
    serve(&mut machine, "/second.hsi --ublk 3 --json");
    assert!(machine.ran("md5sum /dev/ublkb3").contains(&second_sum));
    let file = machine.ran("mount -t ext4 -o ro /dev/ublkb3 /mnt && cat /mnt/name && umount /mnt");
    assert!(file.contains("second"), "{file}");
    let ended = machine.ran("kill $server; wait $server; echo code $?; cat /out");
    assert!(ended.contains("code 0") && ended.contains("\"reads\":"), "{ended}");
    assert!(!ended.contains("\"sent_bytes\": 0,"), "{ended}");
    machine.ran(IS_GONE);

    // Without a supervisor reads fail at once, and the device goes too.
    serve(&mut machine, "/first.hsi --ublk any --unsupervised --emulate flat-5ms-1mbs-serial");
    let read = machine.ran("(sleep 1; kill -9 $server) & md5sum /dev/ublkb0; echo over");
    assert!(!read.contains(&first_sum), "{read}");
    machine.ran(IS_GONE);
}

#[test]
fn a_block_device_takes_one_image_and_no_changes() {
    let scene = Scene::new();
    scene.image("one.hsi", 10, 1);
    let (image, changes) = (scene.arg("one.hsi"), scene.arg("changes"));
    for number in ["first", "1048576", ""] {
        run(["serve", &image, "--ublk", number]).fails(2, &["`any` or a number below 1048576"]);
    }
    run(["serve", "--unsupervised", &image, "--ublk", "any", "--keep", &changes])
        .fails(1, &["--keep is not for --ublk"]);
    run(["serve", "--unsupervised", &image, &format!("b={image}"), "--ublk", "any"])
        .fails(1, &["--ublk shows one image"]);
    assert!(!scene.path("changes").exists());
}
