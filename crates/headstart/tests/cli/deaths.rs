//! A root's server that is killed while reads of it are under way: by a kernel that sends them again to the
//! next server, and by one that cannot.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::live::{Live, SERVER, SUM, live, with_newer_kernel};
use crate::machine::{Machine, SHELL_AS_INIT};
use crate::scene::{Scene, made_once, run};

const STICK: &str = "if=none,id=stick,format=raw,readonly=on,file=";
/// Tells QEMU to make the stick so slow that a read is nearly always under way.
const SLOW: &str = "block_set_io_throttle stick 0 2097152 0 0 0 0";
/// Nothing is read before it is asked for.
const NO_PREFETCH: &str = "headstart.prefetch=off";
const DEATHS: usize = 3;

/// A stick with the same Debian and a kernel that can send FUSE's requests again.
fn stick_with_newer_kernel(live: &Live) -> String {
    let root = with_newer_kernel(&live.root);
    let live = live.file("headstart-live");
    let folder = made_once("usb", |folder| {
        fs::create_dir(folder).expect("a folder");
        let file = |name: &str| folder.join(name).display().to_string();
        let (image, iso) = (file("root.hsi"), file("bios.iso"));
        run(["build", &root.display().to_string(), "-o", &image, "--codec", "zstd:1"]).ok();
        let words = ["console=ttyS0", "no_timer_check", NO_PREFETCH, SHELL_AS_INIT];
        let words = words.iter().flat_map(|word| ["--append", word]);
        let flags = ["iso", &image, "-o", &iso, "--live", &live, "--timeout", "0"];
        run(flags.into_iter().chain(words)).ok();
    });
    folder.join("bios.iso").display().to_string()
}

/// What a system said whose server was killed while its programs and libraries were read.
struct Read {
    /// The digests, in any order.
    sums: String,
    /// Requests of its loop device that failed.
    failed: u32,
    can_resend: bool,
}

/// The stick is slow from when it is asked about, and not while the firmware reads.
fn read_through_deaths(live: &Live, machine: &mut Machine, monitor: &str) -> Read {
    machine.in_the_root();
    let mut monitor = UnixStream::connect(monitor).expect("QEMU's monitor");
    writeln!(monitor, "{SLOW}").expect("QEMU listens");
    let both = format!("{{ cat /usr/lib/x86_64-linux-gnu/*.so* | sha256sum & {SUM}; wait; echo ended; }}");
    machine.ran(&format!("echo 3 >/proc/sys/vm/drop_caches; ({both} >/root/sums 2>&1 &)"));
    // Each kills another server than the one before.
    let kill =
        format!("until s={SERVER} && [ \"$s\" != \"$last\" ] && kill -9 $s; do sleep 1; done; last=$s");
    for death in 1..=DEATHS {
        let ended = machine.ran(&format!("sleep 2; {kill}; grep -c ended /root/sums"));
        assert_eq!(ended.trim(), "0", "death {death} comes too late");
    }
    machine.ran("until grep -q ended /root/sums; do sleep 1; done");
    let deaths = machine.ran("cat /run/headstart/*.log | grep -c 'the next one goes on'");
    assert_eq!(deaths.trim(), DEATHS.to_string());
    let warned = machine.ran("cat /run/headstart/*.log | grep -c 'cannot resend'");
    let sums = machine.ran("cat /root/sums");
    let failed = machine.ran("dmesg | grep -c 'I/O error, dev loop'").trim().parse().expect("a number");
    // Whatever failed, nothing stays wrong.
    machine.ran("echo 3 >/proc/sys/vm/drop_caches");
    assert_eq!(machine.ran(SUM).trim(), live.sum());
    Read { sums, failed, can_resend: warned.trim() == "0" }
}

/// A machine's monitor, and the words for it.
fn monitor(scene: &Scene) -> (String, String) {
    let monitor = scene.arg("monitor");
    let listens = format!("unix:{monitor},server=on,wait=off");
    (monitor, listens)
}

/// The stick is at a USB controller. The firmware, a BIOS, starts its boot loader.
#[test]
fn reads_under_way_are_sent_again_by_a_kernel_that_can() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let (monitor, listens) = monitor(&scene);
    let stick = format!("{STICK}{}", stick_with_newer_kernel(&live));
    let usb = ["-device", "qemu-xhci", "-drive", &stick, "-device", "usb-storage,drive=stick"];
    let mut machine = Machine::start("768M", ["-vga", "std", "-monitor", &listens].iter().chain(&usb));
    let Read { sums, failed, can_resend } = read_through_deaths(&live, &mut machine, &monitor);
    assert!(can_resend && sums.contains(&live.sum()) && failed == 0, "{failed} failed: {sums}");
    assert!(machine.ran("ls /sys/block").split_whitespace().any(|disk| disk == "sda"));
    assert!(machine.ran("ls /sys/bus/usb/drivers/usb-storage").contains(":1.0"));
}

/// Those of read-ahead fail, and the kernel reads again what is then missing. One that a program waits for
/// may be an I/O error; it does not hang.
#[test]
fn reads_under_way_end_on_a_kernel_that_cannot_send_them_again() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let (monitor, listens) = monitor(&scene);
    let stick = format!("{STICK}{}", live.file("bios.iso"));
    let root = format!("root=headstart:LABEL=HEADSTART#{} {NO_PREFETCH} {SHELL_AS_INIT}", live.name);
    let drive = ["-drive", &stick, "-device", "virtio-blk-pci,drive=stick"];
    let mut machine = live.start(&root, &[&drive[..], &["-monitor", &listens]].concat());
    let Read { sums, failed, can_resend } = read_through_deaths(&live, &mut machine, &monitor);
    assert!(!can_resend, "Debian's 6.1 cannot");
    let is_right = sums.contains(&live.sum());
    // What a program has mapped is a bus error.
    let says_so = ["Input/output error", "Bus error"].iter().any(|error| sums.contains(error));
    assert!(is_right || (failed > 0 && says_so), "{failed} failed: {sums}");
}
