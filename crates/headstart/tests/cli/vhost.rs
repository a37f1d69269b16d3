//! `headstart serve --vhost-user-blk` and the VMM that people use it with.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::boots::little_guest;
use crate::machine::Machine;
use crate::nbd::end;
use crate::qemu_boots::GUEST;
use crate::qemu_kernels::{VIRTIO_MODULES, initrd, linux};
use crate::scene::{Running, Scene, machine_has, run, tool};
use crate::service::status_of;
use crate::supervised::{kill, served_again};

/// A server of guests on a socket of the scene, once it listens.
pub(crate) fn serve(scene: &Scene, arguments: &[&str]) -> Running {
    let socket = scene.arg("vhost");
    let mut serving = Running::start(["serve", "--vhost-user-blk", &socket].iter().chain(arguments));
    loop {
        let line = serving.said();
        assert!(!line.is_empty(), "the server ended");
        if line.contains("Ctrl-C") {
            return serving;
        }
    }
}

/// The init of the guest's initial RAM disk: reads all of the disk, tries to write, and starts its init.
pub(crate) const FIRST_INIT: &str = "#!/bin/busybox sh
for module in MODULES; do /bin/busybox insmod /$module; done
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox echo reading
/bin/busybox md5sum /dev/vda
/bin/busybox dd if=/dev/zero of=/dev/vda bs=4096 count=1 || /bin/busybox echo nothing is written
/bin/busybox mount -t ext4 -o ro /dev/vda /new
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /sbin/init
";

/// Another: writes, and again when a line is typed. Without a journal, sync(2) flushes the disk before it
/// writes the metadata.
const WRITING_INIT: &str = "#!/bin/busybox sh
for module in MODULES; do /bin/busybox insmod /$module; done
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t ext4 -o rw,discard /dev/vda /new
/bin/busybox dd if=/dev/zero of=/new/large bs=1M count=2
/bin/busybox cp /new/fine /new/one
/bin/busybox sync
/bin/busybox sync -d /dev/vda
/bin/busybox echo the first lasts
read line
/bin/busybox cp /new/one /new/two
/bin/busybox rm /new/large
/bin/busybox umount /new
/bin/busybox echo the second lasts
read line
/bin/busybox poweroff -f
";

pub(crate) fn install_first_init(scene: &Scene, init: &str) {
    let modules = linux().expect("it was there");
    let first_init = init.replace("MODULES", &VIRTIO_MODULES.join(" "));
    let read = |name: &str| fs::read(modules.join(name)).expect("a module");
    let mut files: Vec<(&str, Vec<u8>)> = VIRTIO_MODULES.iter().map(|name| (*name, read(name))).collect();
    files.push(("init", first_init.into_bytes()));
    files.push(("bin/busybox", fs::read("/bin/busybox").expect("busybox")));
    initrd(&scene.path("initrd"), &files);
}

/// A machine with that disk, and with these words on its kernel's command line.
pub(crate) fn machine(scene: &Scene, words: &str) -> Machine {
    let kernel = linux().expect("it was there").join("vmlinuz").display().to_string();
    let chardev = format!("socket,id=disk,path={},reconnect=1", scene.arg("vhost"));
    let devices = [
        "-machine",
        "pc,memory-backend=memory",
        "-object",
        "memory-backend-memfd,id=memory,size=160M,share=on",
        "-chardev",
        &chardev,
        "-smp",
        "2",
        "-device",
        "vhost-user-blk-pci,chardev=disk",
        "-kernel",
        &kernel,
        "-initrd",
        &scene.arg("initrd"),
        "-append",
        // On a machine that has no time for it, its timer does not tick when it looks, and it would give up.
        &format!("console=ttyS0 panic=-1 no_timer_check {words}"),
    ];
    Machine::start("160M", devices)
}

#[test]
fn a_guest_of_qemu_boots_and_goes_on_when_its_server_is_killed() {
    if !machine_has(GUEST) || linux().is_none() {
        return;
    }
    let (scene, _) = little_guest();
    install_first_init(&scene, FIRST_INIT);
    fs::write(scene.path("root/fine"), "all is well\n".repeat(100_000)).expect("written");
    fs::write(scene.path("root/lost"), "not really\n".repeat(100_000)).expect("written");
    // Slow enough for the guest to wait for a read when its server dies.
    scene.raw("root/noise", 700, 98);
    let (image, raw) = (scene.arg("guest.hsi"), scene.arg("guest.raw"));
    run(["build", &scene.arg("root"), "-o", &image, "--free", "1M", "--codec", "zstd:1"]).ok();
    run(["export", &image, "-o", &raw, "--format", "raw"]).ok();
    let digest = tool("md5sum", &[&raw]).stdout;
    let digest = digest.split_whitespace().next().expect("a digest");
    let serving = serve(&scene, &[&image, "--medium", "flat-5ms-1mbs-serial", "--json"]);
    let mut machine = machine(&scene, "then=read");
    machine.wait_for("reading");
    kill(&served_again(&image, 0));
    kill(&served_again(&image, 1));
    let said = machine.wait_for("nothing is written");
    assert!(said.contains(digest), "{said}");
    let said = machine.wait_for("has read");
    assert!(said.contains("fine is fine") && !said.contains("lost is lost"), "{said}");
    let status = served_again(&image, 2);
    assert_eq!(status["nbd"], format!("vhost-user-blk:{}", scene.arg("vhost")));
    drop(machine);
    let totals: Value = serde_json::from_str(&end(serving)).expect("an object");
    assert!(totals["connections"].as_u64() >= Some(1) && totals["reads"].as_u64() > Some(0), "{totals}");
    scene.wait_until_clean();
}

#[test]
fn what_a_guest_writes_lasts_when_its_server_is_killed() {
    if !machine_has(GUEST) || linux().is_none() {
        return;
    }
    let (scene, _) = little_guest();
    install_first_init(&scene, WRITING_INIT);
    fs::write(scene.path("root/fine"), "all is well\n".repeat(100_000)).expect("written");
    let (image, kept) = (scene.arg("guest.hsi"), scene.arg("changes"));
    run(["build", &scene.arg("root"), "-o", &image, "--free", "8M", "--codec", "zstd:1"]).ok();
    let before = fs::read(&image).expect("the image");
    let serving = serve(&scene, &[&image, "--keep", &kept, "--json"]);
    let mut machine = machine(&scene, "then=read");
    machine.wait_for("the first lasts");
    // All that was answered is flushed: nothing is lost, and the guest goes on.
    kill(&served_again(&image, 0));
    served_again(&image, 1);
    machine.type_line("go");
    machine.wait_for("the second lasts");
    drop(machine);
    let totals: Value = serde_json::from_str(&end(serving)).expect("an object");
    assert!(
        totals["kept_flushes"].as_u64() > Some(0) && totals["kept_bytes"].as_u64() > Some(1 << 20),
        "{totals}"
    );
    assert!(fs::read(&image).expect("the image") == before, "the image is what it was");
    let raw = scene.arg("guest.raw");
    let new = scene.arg("new.hsi");
    run(["commit", &image, &kept, "-o", &new]).ok();
    run(["export", &new, "-o", &raw, "--format", "raw"]).ok();
    tool("e2fsck", &["-fn", &raw]);
    for file in ["one", "two"] {
        let found = tool("debugfs", &["-R", &format!("cat /{file}"), &raw]).stdout;
        assert!(found == "all is well\n".repeat(100_000), "{file}: {} bytes", found.len());
    }
    scene.wait_until_clean();
}

#[test]
fn what_cannot_be_served_to_guests_is_refused() {
    let scene = Scene::new();
    scene.image("disk.hsi", 64, 97);
    let (image, socket) = (scene.arg("disk.hsi"), scene.arg("vhost"));
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        run([&["serve", "--vhost-user-blk", &socket][..], arguments].concat()).fails(code, words);
    };
    let another = format!("other={image}");
    refused(&[&image, &another], 1, &["--vhost-user-blk serves one image"]);
    refused(&[&image, "--vhost-queues", "0"], 2, &["--vhost-queues"]);
    refused(&[&image, "--vhost-queues", "65"], 2, &["--vhost-queues"]);
    run(["serve", &image, "--nbd", "localhost:0", "--vhost-queues", "1"]).fails(2, &["--vhost-user-blk"]);
    fs::write(&socket, "mine").expect("written");
    refused(&[&image], 1, &["vhost", "no socket"]);
    fs::remove_file(&socket).expect("removed");

    // Beside NBD, which is another door to the same disk.
    let nbd = format!("unix:{}", scene.arg("nbd"));
    let serving = serve(&scene, &[&image, "--nbd", &nbd]);
    assert_eq!(fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);
    refused(&[&image], 1, &["vhost", "a server listens"]);
    let places = status_of(&image)[0]["nbd"].as_str().expect("places").to_owned();
    assert!(places.contains("nbd+unix:///disk?") && places.contains("vhost-user-blk:/"), "{places}");
    end(serving);
    assert!(!scene.names().contains(&"vhost".to_owned()));
    scene.wait_until_clean();
}
