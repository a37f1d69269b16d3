//! A medium of a newer Debian. Its systemd unmounts all of an initramfs, and removes it, before the real root
//! takes over; that of Debian 12 moves what lies below `/run`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::live::{SERVER, SUM, debootstrap, live};
use crate::machine::Machine;
use crate::scene::run;

const SUITE: &str = "trixie";
const PACKAGES: &str = "linux-image-cloud-amd64,systemd-sysv,udev,dracut-core,procps,busybox,zstd,iproute2";

#[test]
fn a_newer_debian_starts_by_dracut() {
    let Some(live) = live() else { return };
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (root, folder) = (kept.join("newer-root"), kept.join("newer"));
    if !root.exists() {
        debootstrap(&root, SUITE, PACKAGES);
    }
    fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str| folder.join(name).display().to_string();
    let (image, iso) = (file("root.hsi"), file("dracut.iso"));
    run(["build", &root.display().to_string(), "-o", &image, "--codec", "zstd:1"]).ok();
    let flags = ["iso", &image, "-o", &iso, "--live", &live.file("headstart-live"), "--timeout", "0"];
    let words = ["--initramfs", "dracut", "--append", "console=ttyS0", "--append", "no_timer_check"];
    run([&flags[..], &words].concat()).ok();
    let drive = format!("if=none,id=disc,format=raw,media=cdrom,readonly=on,file={iso}");
    let devices = ["-vga", "std", "-drive", &drive, "-device", "ide-cd,drive=disc"];
    let mut machine = Machine::start("768M", devices);
    machine.log_in();
    assert!(machine.ran("cat /proc/mounts").contains("headstart / overlay"));
    // The next server takes over in what is left of the initramfs.
    machine.ran(&format!("kill -9 {SERVER}; echo 3 >/proc/sys/vm/drop_caches"));
    let sum = Command::new("chroot").arg(&root).args(["sh", "-c", SUM]).output().expect("chroot starts");
    assert_eq!(machine.ran(SUM).trim(), String::from_utf8_lossy(&sum.stdout).trim());
    assert!(machine.ran("cat /run/headstart/*.log").contains("the next one goes on"));
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
}
