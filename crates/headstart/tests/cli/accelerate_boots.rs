//! An installed Debian whose boots are recorded and read ahead, as a machine.

use std::fs;
use std::path::Path;

use crate::install;
use crate::live::live;
use crate::machine::Machine;
use crate::scene::{Scene, has_tools, tool};

/// Where the kernel and its initramfs lie.
const BOOT: [&str; 2] = ["vmlinuz", "initrd.img"];

/// The system with the program installed, its initramfs made anew, on a disk of its own.
fn install_system(scene: &Scene, from: &Path) {
    let root = scene.path("root");
    tool("cp", &["-a", &from.display().to_string(), &root.display().to_string()]);
    install::make("install", "/usr", &scene.arg("root"));
    for program in ["usr/bin/headstart", "usr/lib/headstart/headstart-accelerate"] {
        tool("strip", &[&root.join(program).display().to_string()]);
    }
    fs::remove_file(root.join("usr/lib/headstart/headstart-live")).expect("removed");
    fs::remove_file(root.join("usr/share/initramfs-tools/hooks/headstart")).expect("removed");
    // What mounts a root of the machine itself.
    fs::write(root.join("etc/fstab"), "/dev/vda / ext4 errors=remount-ro 0 1\n").expect("written");
    tool("chroot", &[&root.display().to_string(), "update-initramfs", "-u"]);
    for name in BOOT {
        fs::copy(root.join(name), scene.path(name)).expect("copied");
    }
    fs::File::create(scene.path("disk")).and_then(|disk| disk.set_len(1400 << 20)).expect("a file");
    tool("mkfs.ext4", &["-q", "-d", &scene.arg("root"), &scene.arg("disk")]);
}

fn boot(scene: &Scene) -> Machine {
    let drive = format!("if=none,id=d,format=raw,file={}", scene.arg("disk"));
    let words = "root=/dev/vda rw console=ttyS0 panic=1 no_timer_check quiet";
    let (kernel, initrd) = (scene.arg(BOOT[0]), scene.arg(BOOT[1]));
    let boot = ["-kernel", &kernel, "-initrd", &initrd, "-append", words];
    let devices = ["-drive", &drive, "-device", "virtio-blk-pci,drive=d"];
    let mut machine = Machine::start("512M", [&boot[..], &devices].concat());
    machine.log_in();
    machine
}

fn shut_down(mut machine: Machine) {
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
}

#[test]
fn a_debian_records_its_boot_and_reads_ahead_at_the_next() {
    let Some(live) = live() else { return };
    if !has_tools(&["make", "install", "strip", "mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new();
    install_system(&scene, &live.root);

    let mut machine = boot(&scene);
    assert!(machine.ran("headstart accelerate status").contains("accelerate: off"));
    machine.ran("headstart accelerate on --no-initramfs && echo is on");
    shut_down(machine);

    let list = "while ! ls /var/lib/headstart/accelerate/*.pages; do sleep 1; done";
    let mut machine = boot(&scene);
    machine.ran(list);
    let status = machine.ran("headstart accelerate status");
    assert!(status.contains("from 1 starts"), "{status}");
    shut_down(machine);

    // The initramfs has begun, so the service of systemd had nothing to do.
    let mut machine = boot(&scene);
    let asked =
        machine.ran("journalctl -b -o cat -u headstart-accelerate; headstart accelerate status --json");
    assert!(asked.contains("\"running\": true"), "{asked}");
    machine.ran("headstart accelerate off; echo ended");
    let off = machine
        .ran("ls -A /var/lib/headstart; ls /sys/kernel/tracing/instances; headstart accelerate status");
    assert!(off.contains("accelerate: off") && !off.contains("headstart-"), "{off}");
    shut_down(machine);
    scene.wait_until_clean();
}
