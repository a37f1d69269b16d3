//! QEMU with `reconnect-delay` while its server is killed, and its supervisor starts the next: QEMU's reads
//! wait, and get the right bytes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::boots::little_guest;
use crate::machine::Machine;
use crate::nbd::{end, serve};
use crate::qemu_kernels::linux;
use crate::scene::{Scene, has_tools, machine_has, wait_until};
use crate::supervised::{kill, served_again};

#[test]
fn a_copy_by_qemu_img_survives_servers_that_are_killed() {
    if !has_tools(&["qemu-img"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 4096, 57);
    let (image, copy) = (scene.arg("disk.hsi"), scene.arg("copy"));
    // Slow enough for the copy to be half done for a while.
    let serving = serve(&scene, &[&image, "--medium", "flat-5ms-2mbs-serial"]);
    let socket = scene.arg("socket");
    let from = format!("driver=nbd,server.type=unix,server.path={socket},export=disk,reconnect-delay=120");
    let mut copying = Command::new("qemu-img")
        .args(["convert", "--image-opts", "-O", "raw", "-m", "1", &from, &copy])
        .stdin(Stdio::null())
        .spawn()
        .expect("qemu-img starts");
    let copied = || fs::metadata(&copy).map_or(0, |file| 512 * file.blocks());
    wait_until("the copy has begun", || copied() > 0);
    kill(&served_again(&image, 0));
    let before = copied();
    // Or has ended, on a machine that was slow to kill.
    wait_until("the copy goes on", || copied() > before || matches!(copying.try_wait(), Ok(Some(_))));
    kill(&served_again(&image, 1));
    assert!(copying.wait().expect("ended").success());
    assert!(fs::read(&copy).expect("read") == disk);
    end(serving);
    scene.wait_until_clean();
}

/// A machine with the guest's disk over NBD.
fn machine(socket: &str, kernel: &str) -> Machine {
    let disk = format!(
        "if=none,id=disk,format=raw,snapshot=on,file.driver=nbd,file.reconnect-delay=120,\
         file.server.type=unix,file.server.path={socket},file.export=guest"
    );
    // On a machine that has no time for it, its timer does not tick when it looks, and it would give up.
    let words = "root=/dev/nvme0n1 rw console=ttyS0 panic=-1 no_timer_check then=read";
    let devices =
        ["-kernel", kernel, "-append", words, "-drive", &disk, "-device", "nvme,drive=disk,serial=x"];
    Machine::start("160M", devices)
}

#[test]
fn a_guest_of_qemu_goes_on_when_its_server_was_killed() {
    if !machine_has(&["/usr/bin/qemu-system-x86_64", "/bin/busybox", "/usr/sbin/mkfs.ext4"]) {
        return;
    }
    let Some(kernel) = linux() else { return };
    let (scene, _) = little_guest();
    fs::write(scene.path("root/fine"), "all is well\n".repeat(100_000)).expect("written");
    fs::write(scene.path("root/lost"), "not really\n".repeat(100_000)).expect("written");
    let image = scene.arg("guest.hsi");
    crate::scene::run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    let serving = serve(&scene, &[&image]);
    let mut machine = machine(&scene.arg("socket"), &kernel.join("vmlinuz").display().to_string());
    // Before the guest has read anything of its disk, and when it reads its files.
    machine.wait_for("Linux version");
    kill(&served_again(&image, 0));
    machine.wait_for("up");
    kill(&served_again(&image, 1));
    let said = machine.wait_for("has read");
    assert!(said.contains("fine is fine") && !said.contains("lost is lost"), "{said}");
    drop(machine);
    end(serving);
    scene.wait_until_clean();
}
