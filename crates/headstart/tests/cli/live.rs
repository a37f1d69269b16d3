//! Machines whose root is an image: media that firmware starts, and an image on a web server. Each is a real
//! Debian with its own kernel, in QEMU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::machine::Machine;
use crate::scene::{Scene, has_tools, machine_has, run};
use crate::web::{NGINX, Nginx};

/// What making and starting media needs.
const NEEDED: [&str; 9] = [
    "/usr/bin/qemu-system-x86_64",
    "/usr/bin/mmdebstrap",
    "/usr/bin/xorriso",
    "/usr/bin/grub-mkimage",
    "/usr/bin/mcopy",
    "/usr/lib/grub/i386-pc/cdboot.img",
    "/usr/lib/grub/x86_64-efi/normal.mod",
    "/usr/share/OVMF/OVMF_CODE_4M.fd",
    "/usr/share/OVMF/OVMF_VARS_4M.fd",
];
/// In the system: a kernel with drivers for virtual machines, and both makers of an initramfs.
const PACKAGES: &str =
    "linux-image-cloud-amd64,systemd-sysv,udev,initramfs-tools,dracut-core,busybox,zstd,iproute2";
/// The files that are compared: some of them were read while it started, most were not.
const SUM: &str = "find /usr/bin /usr/sbin -type f | LC_ALL=C sort | xargs cat | sha256sum";
const CONSOLE: &str = "console=ttyS0 panic=1 no_timer_check";

/// A Debian, and what starts it.
struct Live {
    folder: PathBuf,
    /// The name of its image.
    name: String,
}

impl Live {
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn image(&self) -> Vec<u8> {
        fs::read(self.file("root.hsi")).expect("read")
    }

    /// Where the image lies in these bytes of a medium.
    fn image_in(&self, medium: &[u8]) -> usize {
        let image = self.image();
        medium.windows(64).position(|window| window == &image[..64]).expect("the image is on it")
    }

    /// A machine whose kernel and initramfs QEMU loads, which is quicker than a boot loader.
    fn start(&self, words: &str, devices: &[&str]) -> Machine {
        let (kernel, initrd) = (self.file("vmlinuz"), self.file("initrd.img"));
        let words = format!("{CONSOLE} {words}");
        let arguments = [&["-kernel", &kernel, "-initrd", &initrd, "-append", &words], devices].concat();
        Machine::start("512M", arguments)
    }
}

/// The Debian, made once and kept; its media are made by this program each time the tests run. Nothing, which
/// is said, where something for it is missing.
fn live() -> Option<&'static Live> {
    static MADE: OnceLock<Live> = OnceLock::new();
    if !machine_has(&NEEDED) || !has_tools(&["mkfs.vfat"]) {
        return None;
    }
    Some(MADE.get_or_init(make))
}

fn make() -> Live {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = kept.join("live-root");
    if !root.join("usr").exists() {
        debootstrap(&root, PACKAGES);
    }
    let folder = kept.join("live");
    fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str| folder.join(name).display().to_string();
    // Debug information would be a hundred megabytes of initramfs.
    let live = file("headstart-live");
    let program = Path::new(env!("CARGO_BIN_EXE_headstart")).with_file_name("headstart-live");
    assert!(program.exists(), "cargo build -p hs-live makes {}", program.display());
    command("strip", &["-o", &live, &program.display().to_string()]);
    let image = file("root.hsi");
    run(["build", &root.display().to_string(), "-o", &image, "--codec", "zstd:1"]).ok();
    let iso = |name: &str, more: &[&str]| {
        let flags =
            ["iso", &image, "-o", &file(name), "--live", &live, "--json", "--append", "console=ttyS0"];
        run([&flags[..], more].concat()).ok().json()
    };
    let made = iso("bios.iso", &["--timeout", "0", "--append", "no_timer_check"]);
    assert!(made["bios"] == true && made["uefi"] == true, "{made}");
    let extract = ["-osirrox", "on", "-indev", &file("bios.iso")];
    let files =
        ["-extract", "/boot/vmlinuz", &file("vmlinuz"), "-extract", "/boot/initrd.img", &file("initrd.img")];
    for name in ["vmlinuz", "initrd.img"] {
        let _ = fs::remove_file(file(name));
    }
    command("xorriso", &[&extract[..], &files].concat());
    iso("dracut.iso", &["--timeout", "0", "--append", "no_timer_check", "--initramfs", "dracut"]);
    let name = made["image_digest"].as_str().expect("a name").to_owned();
    Live { folder, name }
}

/// The archive may not answer at once.
pub(crate) fn debootstrap(root: &Path, packages: &str) {
    let draft = root.with_extension("draft");
    let include = format!("--include={packages}");
    let hook = "--customize-hook=chroot \"$1\" passwd -d root; echo live >\"$1/etc/hostname\"";
    let mut said = String::new();
    for _ in 0..3 {
        let _ = fs::remove_dir_all(&draft);
        let made = Command::new("mmdebstrap")
            .args(["--variant=minbase", &include, hook, "bookworm"])
            .arg(&draft)
            .output()
            .expect("mmdebstrap starts");
        if made.status.success() {
            return fs::rename(&draft, root).expect("renamed");
        }
        said = String::from_utf8_lossy(&made.stderr).into_owned();
    }
    panic!("mmdebstrap made no system: {said}");
}

fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A drive of QEMU's with this file; several have several numbers.
fn drive(number: u32, file: &str, more: &str) -> [String; 4] {
    let drive = format!("if=none,id=d{number},format=raw,{more}file={file}");
    ["-drive".to_owned(), drive, "-device".to_owned(), format!("virtio-blk-pci,drive=d{number}")]
}

fn words(drives: &[[String; 4]]) -> Vec<&str> {
    drives.iter().flatten().map(String::as_str).collect()
}

#[test]
fn a_disc_starts_a_debian_that_survives_the_death_of_its_server() {
    let Some(live) = live() else { return };
    let drive = format!("if=none,id=disc,format=raw,media=cdrom,readonly=on,file={}", live.file("bios.iso"));
    let devices = ["-vga", "std", "-drive", &drive, "-device", "ide-cd,drive=disc"];
    let mut machine = Machine::start("512M", devices);
    let said = machine.log_in();
    assert!(said.contains("Booting `HEADSTART'") && said.contains("Linux version"), "{said}");
    let mounts = machine.ran("cat /proc/mounts");
    assert!(mounts.contains("headstart / overlay") && mounts.contains("fuse.headstart"), "{mounts}");
    assert_eq!(machine.ran("systemctl is-system-running --wait").trim(), "running");
    machine.ran("echo kept in memory >/root/written");
    // Its name tells systemd to leave it alone at shutdown.
    let server = "$(ls /run/headstart | sed -n 's/.sock$//p' | tail -n 1)";
    let name = machine.ran(&format!("tr '\\0' ' ' </proc/{server}/cmdline"));
    assert!(name.starts_with("@headstart mount"), "{name}");
    // The next server reads what the first one never had.
    machine.ran(&format!("kill -9 {server}; echo 3 >/proc/sys/vm/drop_caches"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-root");
    let right = Command::new("chroot").arg(root).args(["sh", "-c", SUM]).output().expect("chroot starts");
    assert_eq!(machine.ran(SUM).trim(), String::from_utf8_lossy(&right.stdout).trim());
    let log = machine.ran("cat /run/headstart/*.log; cat /root/written");
    assert!(log.contains("ended by signal 9") && log.contains("kept in memory"), "{log}");
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
}

#[test]
fn a_server_that_dies_before_the_switch_of_roots_is_replaced() {
    let Some(live) = live() else { return };
    let root = format!("root=headstart:LABEL=HEADSTART#{} break=bottom panic=", live.name);
    let drives = [drive(1, &live.file("bios.iso"), "readonly=on,")];
    let mut machine = live.start(&root, &words(&drives));
    machine.wait_for("(initramfs) ");
    machine.type_line("kill -9 $(ls /run/headstart | sed -n 's/.sock$//p' | tail -n 1); exit");
    machine.log_in();
    assert!(machine.ran("cat /run/headstart/*.log").contains("ended by signal 9"));
    assert_eq!(machine.ran("systemctl is-system-running --wait").trim(), "running");
}

#[test]
fn a_stick_starts_a_debian_by_uefi_with_dracut() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let variables = scene.arg("variables");
    fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).expect("copied");
    let code = "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd";
    let variables = format!("if=pflash,format=raw,file={variables}");
    let drives = [drive(1, &live.file("dracut.iso"), "readonly=on,")];
    let devices = ["-drive", code, "-drive", &variables, "-vga", "std"];
    let mut machine = Machine::start("768M", [&devices[..], &words(&drives)].concat());
    machine.log_in();
    assert_eq!(machine.ran("systemctl is-system-running --wait").trim(), "running");
    assert!(machine.ran("ls /sys/firmware/efi").contains("systab"));
    assert!(machine.ran("cat /proc/mounts").contains("headstart / overlay"));
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
}

#[test]
fn an_image_on_a_web_server_is_a_root() {
    let Some(live) = live() else { return };
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    scene.folder("www");
    std::os::unix::fs::symlink(live.folder.join("root.hsi"), scene.path("www/root.hsi")).expect("a link");
    let nginx = Nginx::start(&scene, "");
    let net = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"];
    // QEMU's own network has this machine at this address.
    let address = format!("http://10.0.2.2:{}/root.hsi", nginx.port);
    let named = format!("ip=dhcp root=headstart:{address}#{}", live.name);
    let mut machine = live.start(&named, &net);
    machine.log_in();
    assert!(machine.ran("cat /proc/mounts").contains("headstart / overlay"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-root");
    let right = Command::new("chroot").arg(root).args(["sh", "-c", SUM]).output().expect("chroot starts");
    assert_eq!(machine.ran(SUM).trim(), String::from_utf8_lossy(&right.stdout).trim());
    drop(machine);
    // A server that is down: the machine says so, and ends its wait.
    let down = address.replace(&format!(":{}", nginx.port), ":1");
    let mut machine = live.start(&format!("ip=dhcp root=headstart:{down}#{}", live.name), &net);
    let said = machine.wait_for("cannot be mounted from a headstart image");
    assert!(said.contains("10.0.2.2:1"), "{said}");
    drop(machine);
    // An address alone proves nothing.
    let mut machine = live.start(&format!("ip=dhcp root=headstart:{address}"), &net);
    machine.wait_for_any(&["#hs1-", "--insecure"]);
    machine.wait_for("cannot be mounted from a headstart image");
}

#[test]
fn what_is_wrong_with_a_medium_is_said() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let given_up = "cannot be mounted from a headstart image";
    // No medium, in the time that was given for it.
    let mut machine = live.start("root=headstart:LABEL=HEADSTART headstart.wait=1", &[]);
    let said = machine.wait_for(given_up);
    assert!(said.contains("no device LABEL=HEADSTART after 1 s"), "{said}");
    // A command line that names nothing.
    let mut machine = live.start("root=headstart:HEADSTART", &[]);
    let said = machine.wait_for(given_up);
    assert!(said.contains("names no image"), "{said}");
    // A kernel without FUSE.
    let right = format!("root=headstart:LABEL=HEADSTART#{}", live.name);
    let drives = [drive(1, &live.file("bios.iso"), "readonly=on,")];
    let mut machine = live.start(&format!("{right} module_blacklist=fuse"), &words(&drives));
    let said = machine.wait_for(given_up);
    assert!(said.contains("/dev/fuse is missing") && said.contains("headstart:"), "{said}");
    // Two media of one label with different images; the same two with a name.
    fs::create_dir_all(scene.path("root/etc")).expect("a folder");
    fs::write(scene.path("root/etc/other"), "another system").expect("written");
    let (other, other_iso) = (scene.arg("other.hsi"), scene.arg("other.iso"));
    run(["build", &scene.arg("root"), "-o", &other]).ok();
    let kernel = ["--kernel", &live.file("vmlinuz"), "--initrd", &live.file("initrd.img")];
    run([&["iso", &other, "-o", &other_iso], &kernel[..]].concat()).ok();
    let both = [drive(1, &other_iso, "readonly=on,"), drive(2, &live.file("bios.iso"), "readonly=on,")];
    let mut machine = live.start("root=headstart:LABEL=HEADSTART", &words(&both));
    let said = machine.wait_for_any(&[given_up, "login: "]);
    assert!(said.contains("hold different images"), "{said}");
    let mut machine = live.start(&right, &words(&both));
    machine.wait_for("login: ");
    // A medium that is cut short, before the image and in it.
    let (cut, mut bytes) = (scene.path("cut.iso"), fs::read(live.file("bios.iso")).expect("read"));
    let at = live.image_in(&bytes);
    for (len, why) in
        [(at + live.image().len() / 2, "cannot read "), (at, "LABEL=HEADSTART has not the image: /dev/vda: ")]
    {
        bytes.truncate(len / 4096 * 4096);
        fs::write(&cut, &bytes).expect("written");
        let drives = [drive(1, &cut.display().to_string(), "readonly=on,")];
        let mut machine = live.start(&format!("{right} headstart.wait=3"), &words(&drives));
        let said = machine.wait_for_any(&[given_up, "login: "]);
        assert!(said.contains(&format!("headstart-live: {why}")), "{said}");
        assert!(said.contains("root.hsi") && said.contains(given_up), "{said}");
    }
}

#[test]
fn a_medium_checks_itself() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let check = format!("root=headstart:LABEL=HEADSTART#{} headstart.verify", live.name);
    let drives = [drive(1, &live.file("bios.iso"), "readonly=on,")];
    let mut machine = live.start(&check, &words(&drives));
    let said = machine.wait_for("The medium is right");
    assert!(said.contains("agree with every digest"), "{said}");
    // One byte of the image is another.
    let damaged = scene.path("damaged.iso");
    let mut bytes = fs::read(live.file("bios.iso")).expect("read");
    let middle = live.image_in(&bytes) + live.image().len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).expect("written");
    let drives = [drive(1, &damaged.display().to_string(), "readonly=on,")];
    let mut machine = live.start(&check, &words(&drives));
    let said = machine.wait_for("cannot be mounted from a headstart image");
    assert!(said.contains("/medium/headstart/root.hsi"), "{said}");
}

#[test]
fn a_machine_records_its_start_and_the_next_one_is_prefetched() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let keep = scene.arg("keep");
    fs::File::create(&keep).and_then(|file| file.set_len(64 << 20)).expect("a disk");
    command("mkfs.ext4", &["-q", "-L", "KEEP", &keep]);
    let record = "headstart.record=LABEL=KEEP headstart.record-for=30";
    let drives = [drive(1, &live.file("bios.iso"), "readonly=on,"), drive(2, &keep, "")];
    let root = format!("root=headstart:LABEL=HEADSTART#{} {record}", live.name);
    let mut machine = live.start(&root, &words(&drives));
    machine.log_in();
    machine.ran("until ls /run/initramfs/headstart/record/*.hsp; do sleep 1; done; sync");
    drop(machine);
    let (profile, fast) = (scene.arg("boot.hsp"), scene.arg("fast.hsi"));
    command("debugfs", &["-R", &format!("dump headstart-boot.hsp {profile}"), &keep]);
    let recorded = run(["inspect", &profile, "--json"]).ok().json();
    assert!(recorded["reads"].as_u64() > Some(500) && recorded["files"].as_u64() > Some(50), "{recorded}");
    run(["optimize", &live.file("root.hsi"), "-p", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    let made = run(["inspect", &fast, "--json"]).ok().json();
    let iso = scene.arg("fast.iso");
    let kernel = ["--kernel", &live.file("vmlinuz"), "--initrd", &live.file("initrd.img")];
    run([&["iso", &fast, "-o", &iso], &kernel[..]].concat()).ok();
    let drives = [drive(1, &iso, "readonly=on,")];
    let root = format!("root=headstart:/dev/vda#{}", made["image_digest"].as_str().expect("a name"));
    let mut machine = live.start(&root, &words(&drives));
    machine.log_in();
    let ask = "perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0);connect(S,sockaddr_un($ARGV[0]));print <S>'";
    let status = machine.ran(&format!("{ask} $(ls /run/headstart/*.sock | tail -n 1)"));
    let at = status.find('{').unwrap_or_else(|| panic!("no object: {status}"));
    let status: serde_json::Value = serde_json::from_str(&status[at..]).expect("JSON");
    let hot_bytes = made["hot_segments"][0]["hot_bytes"].as_u64();
    let prefetched = status["prefetch"]["bytes"].as_u64();
    assert!(hot_bytes > Some(1 << 20) && prefetched >= hot_bytes, "{hot_bytes:?} {status}");
    assert!(made["hints"].as_u64() > Some(0), "{made}");
}

#[test]
fn writes_are_kept_with_their_own_image() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let keep = scene.arg("keep");
    fs::File::create(&keep).and_then(|file| file.set_len(64 << 20)).expect("a disk");
    command("mkfs.ext4", &["-q", "-L", "KEEP", &keep]);
    let root = format!("root=headstart:LABEL=HEADSTART#{} headstart.overlay=LABEL=KEEP", live.name);
    let drives = [drive(1, &live.file("bios.iso"), "readonly=on,"), drive(2, &keep, "")];
    let mut machine = live.start(&root, &words(&drives));
    machine.log_in();
    machine.ran("echo for later >/root/kept; sync");
    // It is not told to end: what was synced stays.
    drop(machine);
    let mut machine = live.start(&root, &words(&drives));
    machine.log_in();
    assert_eq!(machine.ran("cat /root/kept").trim(), "for later");
    machine.ran("sed -i s/./x/ /run/initramfs/headstart/overlay/headstart-overlay; sync");
    drop(machine);
    // Now they are of another disk: they are left alone, and the machine starts all the same.
    let mut machine = live.start(&root, &words(&drives));
    let said = machine.log_in();
    assert!(said.contains("its writes belong to the disk x"), "{said}");
    assert_eq!(
        machine.ran("cat /root/kept 2>&1; echo more >/root/more; cat /root/more").lines().last(),
        Some("more")
    );
}
