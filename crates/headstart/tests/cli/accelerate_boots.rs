//! An installed Debian whose boots are recorded and read ahead, as a machine.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::process::Command;

use crate::install;
use crate::live::{debian_root, debootstrap};
use crate::machine::{CONSOLE, Machine};
use crate::scene::{Scene, has_tools, tool, wait_until};

/// The machine's disk.
const DISK: &str = "/dev/vda";
/// Where the kernel and its initramfs lie.
const BOOT: [&str; 2] = ["vmlinuz", "initrd.img"];
/// What `headstart accelerate on` keeps in the system, for those that make an initramfs of it.
const SWITCH: &str = "var/lib/headstart/accelerate";

/// The Debian of the other kernel.
const NEWER: &str = "trixie";

/// Runs a script in a system, with what the makers of an initramfs look at.
const IN_SYSTEM: &str = "for folder in dev proc sys; do mount --rbind /$folder $0/$folder; done
    exec chroot $0 sh -ec \"$1\"";

fn in_system(scene: &Scene, script: &str) {
    tool("unshare", &["--mount", "sh", "-ec", IN_SYSTEM, &scene.arg("root"), script]);
}

fn copy_system(scene: &Scene, from: &Path) {
    tool("cp", &["-a", &from.display().to_string(), &scene.arg("root")]);
}

/// The system with the program installed, its initramfs made by these words in it, on a disk of its own that
/// its kernel knows as this device.
fn install_system(scene: &Scene, device: &str, is_on: bool, make_initramfs: &str) {
    let root = scene.path("root");
    install::make("install", "/usr", &scene.arg("root"));
    for program in ["usr/bin/headstart", "usr/lib/headstart/headstart-accelerate"] {
        tool("strip", &[&root.join(program).display().to_string()]);
    }
    fs::remove_file(root.join("usr/lib/headstart/headstart-live")).expect("removed");
    fs::remove_file(root.join("usr/share/initramfs-tools/hooks/headstart")).expect("removed");
    // What mounts a root of the machine itself.
    fs::write(root.join("etc/fstab"), format!("{device} / ext4 errors=remount-ro 0 1\n")).expect("written");
    if is_on {
        let folder = root.join(SWITCH);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).expect("a folder");
        fs::write(folder.join("on"), "").expect("written");
        tool("chroot", &[&scene.arg("root"), "systemctl", "enable", "headstart-accelerate.service"]);
    }
    in_system(scene, make_initramfs);
    for name in BOOT {
        fs::copy(root.join(name), scene.path(name)).expect("copied");
    }
    fs::File::create(scene.path("disk")).and_then(|disk| disk.set_len(1400 << 20)).expect("a file");
    tool("mkfs.ext4", &["-q", "-d", &scene.arg("root"), &scene.arg("disk")]);
}

fn boot(scene: &Scene) -> Machine {
    boot_with(scene, BOOT[0], BOOT[1], &format!("root={DISK} rw quiet"))
}

fn boot_with(scene: &Scene, kernel: &str, initrd: &str, words: &str) -> Machine {
    let drive = format!("if=none,id=d,format=raw,file={}", scene.arg("disk"));
    let (kernel, initrd) = (scene.arg(kernel), scene.arg(initrd));
    let words = format!("{CONSOLE} {words}");
    let boot = ["-kernel", &kernel, "-initrd", &initrd, "-append", &words];
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

/// Its own initramfs, and one of another kernel: packed otherwise, with no drivers but those of this machine.
const TWO_INITRAMFS: &str = "update-initramfs -u
    cp -a /etc/initramfs-tools /tmp/other
    sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' /tmp/other/initramfs.conf
    printf '%s\\n' virtio_pci virtio_blk ext4 >>/tmp/other/modules
    kernel=$(cd /other/usr/lib/modules; echo *)
    mv /other/usr/lib/modules/$kernel /lib/modules
    mv /other/boot/* /boot
    depmod $kernel
    mkinitramfs -d /tmp/other -o /other.img $kernel
    cp /boot/vmlinuz-$kernel /other.vmlinuz
    rm -r /other";
/// In the machine: the boot is over and recorded.
const IS_RECORDED: &str = "while pgrep headstart-accel >/dev/null; do sleep 5; done";

#[test]
fn a_debian_records_its_boot_and_another_kernel_reads_ahead_at_the_next() {
    let Some(root) = debian_root() else { return };
    if !has_tools(&["make", "install", "strip", "mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new();
    copy_system(&scene, &root);
    let other = ["--variant=extract", "--include=linux-image-cloud-amd64", NEWER];
    tool("mmdebstrap", &[&other[..], &[&scene.arg("root/other")]].concat());
    install_system(&scene, DISK, false, TWO_INITRAMFS);

    let mut machine = boot(&scene);
    assert!(machine.ran("headstart accelerate status").contains("accelerate: off"));
    machine.ran("headstart accelerate on --no-initramfs && echo is on");
    shut_down(machine);

    let list = "while ! ls /var/lib/headstart/accelerate/*.pages; do sleep 1; done";
    let mut machine = boot(&scene);
    machine.ran(list);
    let status = machine.ran("headstart accelerate status");
    assert!(status.contains("from 1 starts"), "{status}");
    let recorded_by = machine.ran("uname -r").trim().to_owned();
    shut_down(machine);

    // Another kernel, initramfs and command line: the list is that of the root.
    let (kernel, words) = ("root/other.vmlinuz", format!("root={DISK} ro mitigations=off fsck.mode=skip"));
    let mut machine = boot_with(&scene, kernel, "root/other.img", &words);
    let line = machine.ran("cat /proc/cmdline; uname -r");
    assert!(line.contains("fsck.mode=skip") && !line.contains("quiet"), "{line}");
    assert!(!line.contains(&recorded_by) && line.contains("-cloud-amd64"), "{line}");
    // The initramfs has begun, so the service of systemd had nothing to do.
    let asked =
        machine.ran("headstart accelerate status --json; cat /proc/$(pgrep -o headstart-accel)/cgroup");
    assert!(asked.contains("\"running\": true") && asked.contains("0::/"), "{asked}");
    assert!(!asked.contains("headstart-accelerate.service"), "{asked}");
    // The lock was taken in the initramfs, and is the system's.
    let refused =
        machine.ran("headstart accelerate now --force; stat -c %a:%U /run/headstart-accelerate.lock");
    assert!(refused.contains("this boot is recorded just now by process "), "{refused}");
    assert!(refused.contains("600:root"), "{refused}");
    let said = machine.ran(&format!("{IS_RECORDED}; headstart accelerate status --json"));
    assert!(said.contains("\"starts\": 2") && said.contains("\"asked\": {"), "{said}");
    assert!(!said.contains("\"requests\": 0") && !said.contains("\"used_pages\": 0"), "{said}");
    let on = machine.ran("headstart accelerate off && headstart accelerate on --no-initramfs && echo is on");
    assert!(on.contains("is on"), "{on}");
    shut_down(machine);

    // Nothing is known of earlier boots, and this one is recorded until it is switched off.
    let mut machine = boot(&scene);
    let asked = machine.ran("headstart accelerate status --json");
    assert!(asked.contains("\"running\": true") && !asked.contains("\"requests\""), "{asked}");
    machine.ran("headstart accelerate off; echo ended");
    let off = machine
        .ran("ls -A /var/lib/headstart; ls /sys/kernel/tracing/instances; headstart accelerate status");
    assert!(off.contains("accelerate: off") && !off.contains("headstart-"), "{off}");
    shut_down(machine);
    scene.wait_until_clean();
}

/// Dracut takes its module for the program by itself in a system that has it on.
const DRACUT: &str = "kernel=$(readlink -f /vmlinuz)
    dracut --force --no-hostonly --kver ${kernel#*vmlinuz-} --zstd \
        --omit 'network network-legacy network-manager ifcfg nfs iscsi fcoe nbd cifs' \
        --omit-drivers 'btrfs ceph cifs f2fs nfs nfsv4 sunrpc xfs' $more $(readlink -f /initrd.img)";
/// The program as its hook starts it, with the mark that lets it outlive the initramfs.
const OF_THE_INITRAMFS: &str = "@/usr/lib/headstart/headstart-accelerate initramfs";

#[test]
fn dracut_reads_the_list_in_its_initramfs() {
    let Some(root) = debian_root() else { return };
    if !has_tools(&["make", "install", "strip", "mkfs.ext4"]) {
        return;
    }
    let scene = Scene::new();
    copy_system(&scene, &root);
    install_system(&scene, DISK, true, DRACUT);
    is_read_in_the_initramfs(|| boot(&scene), |_| {});
    scene.wait_until_clean();
}

/// Boots a system twice that has it on; what `then` does in the second boot comes behind all else.
fn is_read_in_the_initramfs(boot: impl Fn() -> Machine, then: impl Fn(&mut Machine)) {
    let ask = "ps -o args= -C headstart-accel; headstart accelerate status --json";
    // The boot is recorded from the initramfs on, and the one after it is read ahead there.
    for (is_recorded, asked) in [("\"starts\": 1", "\"asked\": null"), ("\"starts\": 2", "\"asked\": {")] {
        let mut machine = boot();
        let said = machine.ran(ask);
        assert!(said.contains(OF_THE_INITRAMFS) && said.contains("\"running\": true"), "{said}");
        let said = machine.ran(&format!(
            "{IS_RECORDED}; headstart accelerate status --json; \
             journalctl -b -o cat -u headstart-accelerate"
        ));
        assert!(said.contains(is_recorded) && said.contains(asked), "{said}");
        assert!(!said.contains("\"requests\": 0"), "{said}");
        if is_recorded.contains('2') {
            then(&mut machine);
        }
        shut_down(machine);
    }
}

/// What a system has whose root is stacked.
const STACKED: &str = "linux-image-cloud-amd64,systemd-sysv,udev,dracut,procps,zstd,lvm2,cryptsetup-bin";
const STACKING: &[&str] =
    &["mmdebstrap", "make", "install", "strip", "mkfs.ext4", "losetup", "qemu-img", "qemu-system-x86_64"];
/// What opens the LUKS, in the system and in its initramfs.
const SECRET: &str = "secret";
/// Makes the volume `vg/root` on `$1`, where no device mapper is: 1400 MiB behind the first MiB.
const MAKE_VOLUME: &str = r#"only="devices { use_devicesfile=0 filter=[\"a|^$1\$|\", \"r|.*|\"] }"
    of_lvm() { "$@" -y --driverloaded n --config "$only"; }
    of_lvm pvcreate $1
    of_lvm vgcreate vg $1
    of_lvm lvcreate -an -Zn -Wn -L 1400M -n root vg"#;
/// In the machine: what moves blocks is bad for a snapshot, and for what it is of.
const SNAPSHOT: &str = "lvcreate -s -L 64M -n snap vg/root && mount /dev/vg/snap /mnt
    headstart accelerate now; headstart accelerate now --root /mnt; umount /mnt";

/// Puts the system's file system on LVM on LUKS. Gives the words that have it mounted.
fn stack(scene: &Scene) -> String {
    let [file_system, volume, disk] = ["disk", "volume", "luks"].map(|name| scene.arg(name));
    fs::File::create(&volume).and_then(|file| file.set_len(1600 << 20)).expect("a file");
    let device = tool("losetup", &["--find", "--show", &volume]).stdout.trim().to_owned();
    in_system(scene, &format!("set -- {device}; {MAKE_VOLUME}"));
    tool("losetup", &["--detach", &device]);
    let behind = ["bs=1M", "seek=1", "conv=notrunc,sparse"];
    tool("dd", &[&[&*format!("if={file_system}"), &format!("of={volume}")], &behind[..]].concat());
    let secret = format!("secret,id=s,data={SECRET}");
    let luks = "key-secret=s,cipher-alg=aes-128,iter-time=10";
    let words = ["convert", "-O", "luks", "--object", &secret, "-o", luks, &volume, &disk];
    // QEMU 7.2 measures by ticks how long the key's rounds take, and fails where it has seen none.
    wait_until("the volume is encrypted", || {
        Command::new("qemu-img").args(words).status().expect("it starts").success()
    });
    fs::remove_file(volume).expect("removed");
    fs::rename(&disk, &file_system).expect("renamed");
    // "LUKS1 On-Disk Format Specification", table 1.
    let mut uuid = [0; 36];
    fs::File::open(file_system).and_then(|file| file.read_exact_at(&mut uuid, 168)).expect("read");
    let uuid = String::from_utf8(uuid.to_vec()).expect("text");
    format!("root=/dev/vg/root rw rd.lvm.vg=vg rd.luks.name={uuid}=luks rd.luks.key={uuid}=/key")
}

#[test]
fn dracut_reads_the_list_of_a_root_on_lvm_on_luks() {
    if !has_tools(STACKING) {
        return;
    }
    let scene = Scene::new();
    debootstrap(&scene.path("root"), "bookworm", STACKED);
    let with_key = format!("printf {SECRET} >/root/key; more='--include /root/key /key'\n{DRACUT}");
    install_system(&scene, "/dev/vg/root", true, &with_key);
    let words = stack(&scene);
    is_read_in_the_initramfs(
        || boot_with(&scene, BOOT[0], BOOT[1], &words),
        |machine| {
            let said = machine.ran(SNAPSHOT);
            assert_eq!(said.matches("has a snapshot, is one").count(), 2, "{said}");
        },
    );
    scene.wait_until_clean();
}
