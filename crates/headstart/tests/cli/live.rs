//! Machines whose root is an image: media that firmware starts, and an image on a web server. Each is a real
//! Debian with its own kernel, in QEMU.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{BEFORE_THE_SWITCH, CONSOLE, Machine, SHELL_AS_INIT, SHELL_ON_FAILURE};
use crate::scene::{Scene, has_tools, machine_has, run, tool};
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
    "linux-image-cloud-amd64,systemd-sysv,udev,initramfs-tools,dracut-network,procps,busybox,zstd,iproute2";
/// The files that are compared: some of them were read while it started, most were not.
pub(crate) const SUM: &str = "find /usr/sbin -type f | LC_ALL=C sort | xargs cat | sha256sum";
/// What the initramfs says where it gives up.
const GIVEN_UP: &str = "cannot be mounted from a headstart image";
/// The process that serves the root, for the shell: it has the newest socket.
pub(crate) const SERVER: &str = "$(ls /run/headstart | sed -n 's/.sock$//p' | sort -n | tail -n 1)";
/// In the system: where initramfs-tools and dracut find authorities, and a server's certificate with its key.
const AUTHORITY: &str = "etc/ssl/certs/ca-certificates.crt";
const CERTIFICATE: &str = "opt/certificate.pem";
const KEY: &str = "opt/key.pem";
/// In the system: the network of dracut.
const DRACUT_NETWORK: &str = "usr/lib/dracut/modules.d/40network";
/// A network card, on QEMU's own network.
pub(crate) const NET: [&str; 4] = ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"];

/// A Debian, and what starts it.
pub(crate) struct Live {
    pub(crate) folder: PathBuf,
    /// The system as a folder.
    pub(crate) root: PathBuf,
    /// The name of its image.
    pub(crate) name: String,
}

impl Live {
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn image(&self) -> Vec<u8> {
        fs::read(self.file("root.hsi")).expect("read")
    }

    /// The digest of what [`SUM`] reads, as it is right.
    pub(crate) fn sum(&self) -> String {
        let sum =
            Command::new("chroot").arg(&self.root).args(["sh", "-c", SUM]).output().expect("chroot starts");
        String::from_utf8_lossy(&sum.stdout).trim().to_owned()
    }

    /// Where the image lies in these bytes of a medium.
    fn image_in(&self, medium: &[u8]) -> usize {
        let image = self.image();
        place(medium, &image[..64])
    }

    /// A machine whose kernel and initramfs QEMU loads, which is quicker than a boot loader.
    pub(crate) fn start(&self, words: &str, devices: &[&str]) -> Machine {
        self.start_with("initrd.img", words, devices)
    }

    /// A scene whose web server, if this machine has one, gives the image.
    fn on_the_web(&self) -> Option<Scene> {
        if !machine_has(&[NGINX]) {
            return None;
        }
        let scene = Scene::new();
        scene.folder("www");
        let link = std::os::unix::fs::symlink(self.folder.join("root.hsi"), scene.path("www/root.hsi"));
        link.expect("a link");
        Some(scene)
    }

    /// An initramfs of dracut with its network.
    pub(crate) fn network_initrd_of_dracut(&self, scene: &Scene) -> String {
        let (iso, live) = (scene.arg("dracut.iso"), self.file("headstart-live"));
        let flags = ["iso", &self.file("root.hsi"), "-o", &iso, "--live", &live];
        run([&flags[..], &["--initramfs", "dracut", "--network"]].concat()).ok();
        extract(&iso, "/boot/initrd.img", &scene.arg("dracut.img"));
        scene.arg("dracut.img")
    }

    /// The same with this initramfs.
    pub(crate) fn start_with(&self, initrd: &str, words: &str, devices: &[&str]) -> Machine {
        let (kernel, initrd) = (self.file("vmlinuz"), self.file(initrd));
        let words = format!("{CONSOLE} {words}");
        let arguments = [&["-kernel", &kernel, "-initrd", &initrd, "-append", &words], devices].concat();
        Machine::start("512M", arguments)
    }
}

/// The Debian, made once and kept; its media are made once by each build of this program. Nothing, which is
/// said, where something for it is missing.
pub(crate) fn live() -> Option<Live> {
    let root = debian_root().filter(|_| has_tools(&["mkfs.vfat"]))?;
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = Path::new(env!("CARGO_BIN_EXE_headstart")).with_file_name("headstart-live");
    assert!(program.exists(), "cargo build -p hs-live makes {}", program.display());
    let makers = [Path::new(env!("CARGO_BIN_EXE_headstart")), &program];
    let folder = hs_testing::made_once(kept, "live", &makers, |folder| make(&root, &program, folder));
    let name = fs::read_to_string(folder.join("name")).expect("a name");
    Some(Live { folder, root, name })
}

/// The Debian as a folder, which no test may change. Nothing, which is said, where something is missing.
pub(crate) fn debian_root() -> Option<PathBuf> {
    machine_has(&NEEDED).then(debian)
}

/// The Debian with a newer kernel beside its own, which is made once and kept.
pub(crate) fn with_newer_kernel(root: &Path) -> PathBuf {
    let made = root.with_file_name("usb-root");
    let lock = fs::File::create(made.with_extension("lock")).expect("a file");
    lock.lock().expect("locked");
    if !made.exists() {
        add_kernel(root, &made);
    }
    made
}

/// Debian 12 has Linux 6.12 beside its 6.1. The files of both systems are the same ones.
fn add_kernel(from: &Path, to: &Path) {
    let script = r#"
        cp -al "$FROM" root
        package() { apt-cache depends linux-image-6.12-amd64 | sed -n 's/^ *Depends: //p' | head -n 1; }
        apt-get download -qq -o APT::Sandbox::User=root "$(package)" ||
            { apt-get update -qq; apt-get download -qq -o APT::Sandbox::User=root "$(package)"; }
        dpkg-deb --fsys-tarfile ./*.deb | tar -x --keep-directory-symlink -C root
        chroot root depmod "$(basename root/lib/modules/6.12.*)"
        mv root "$TO"
    "#;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]).env("LC_ALL", "C").env("FROM", from).env("TO", to);
    let output = shell.current_dir(folder.path()).output().expect("sh starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// It is made by the first test that needs it, and kept.
fn debian() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-root");
    let lock = fs::File::create(root.with_extension("lock")).expect("a file");
    lock.lock().expect("locked");
    let is_whole = [CERTIFICATE, DRACUT_NETWORK].iter().all(|file| root.join(file).exists());
    if !is_whole {
        // What is made of it goes with it.
        for name in ["live-root", "usb-root"] {
            let _ = fs::remove_dir_all(root.with_file_name(name));
        }
        debootstrap(&root, "bookworm", PACKAGES);
        compress_quickly(&root);
    }
    root
}

/// Takes a file out of a medium.
fn extract(medium: &str, from: &str, to: &str) {
    let _ = fs::remove_file(to);
    tool("xorriso", &["-osirrox", "on", "-indev", medium, "-extract", from, to]);
}

/// Where these bytes lie in a medium.
fn place(medium: &[u8], bytes: &[u8]) -> usize {
    hs_testing::place(medium, bytes).expect("they are on it")
}

fn make(root: &Path, program: &Path, folder: &Path) {
    fs::create_dir(folder).expect("a folder");
    let file = |name: &str| folder.join(name).display().to_string();
    // Debug information would be a hundred megabytes of initramfs.
    let live = file("headstart-live");
    tool("strip", &["-o", &live, &program.display().to_string()]);
    let image = file("root.hsi");
    run(["build", &root.display().to_string(), "-o", &image, "--codec", "zstd:1"]).ok();
    let iso = |name: &str, more: &[&str]| {
        let flags =
            ["iso", &image, "-o", &file(name), "--live", &live, "--json", "--append", "console=ttyS0"];
        run([&flags[..], more].concat()).ok().json()
    };
    let quick = ["--timeout", "0", "--append", "no_timer_check"];
    let made = iso("bios.iso", &quick);
    assert!(made["bios"] == true && made["uefi"] == true, "{made}");
    iso("dracut.iso", &[&quick[..], &["--initramfs", "dracut"]].concat());
    let large = iso("network.iso", &[&quick[..], &["--network"]].concat());
    assert!(large["initrd_bytes"].as_u64() > made["initrd_bytes"].as_u64(), "{large} {made}");
    let extract = |medium: &str, from: &str, to: &str| extract(&file(medium), from, &file(to));
    extract("bios.iso", "/boot/vmlinuz", "vmlinuz");
    extract("bios.iso", "/boot/initrd.img", "initrd.img");
    extract("network.iso", "/boot/initrd.img", "network.img");
    fs::remove_file(file("network.iso")).expect("removed");
    fs::write(file("name"), made["image_digest"].as_str().expect("a name")).expect("written");
}

/// In this system zstd has a low level, whatever it is told: an initramfs of these tests is made in seconds
/// instead of a minute, and a tenth larger.
fn compress_quickly(root: &Path) {
    let (zstd, real) = (root.join("usr/bin/zstd"), root.join("usr/bin/zstd.real"));
    if !real.exists() {
        fs::rename(&zstd, real).expect("renamed");
        let script = "#!/bin/sh\nfor word; do shift; case $word in -1[0-9]) word=-3 ;; esac; \
                      set -- \"$@\" \"$word\"; done\nexec /usr/bin/zstd.real \"$@\"\n";
        fs::write(&zstd, script).expect("written");
        fs::set_permissions(&zstd, fs::Permissions::from_mode(0o755)).expect("executable");
    }
}

/// The archive may not answer at once.
pub(crate) fn debootstrap(root: &Path, suite: &str, packages: &str) {
    let draft = root.with_extension("draft");
    let include = format!("--include={packages}");
    let hook = "--customize-hook=chroot \"$1\" passwd -d root; echo live >\"$1/etc/hostname\"; \
                head -c 262144 /dev/urandom >\"$1/opt/noise\"";
    let mut said = String::new();
    for _ in 0..3 {
        let _ = fs::remove_dir_all(&draft);
        let made = Command::new("mmdebstrap")
            .args(["--variant=minbase", &include, hook, suite])
            .arg(&draft)
            .output()
            .expect("mmdebstrap starts");
        if made.status.success() {
            authority(&draft);
            return fs::rename(&draft, root).expect("renamed");
        }
        said = String::from_utf8_lossy(&made.stderr).into_owned();
    }
    panic!("mmdebstrap made no system: {said}");
}

/// An authority that this system trusts, and its certificate for this machine, as a guest sees it.
fn authority(root: &Path) {
    let file = |name: &str| root.join(name).display().to_string();
    let (authority, signs) = (file(AUTHORITY), file("opt/authority.pem"));
    fs::create_dir_all(root.join("etc/ssl/certs")).expect("a folder");
    let new = ["req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "3650"];
    let its = ["-subj", "/CN=authority", "-keyout", &signs, "-out", &authority];
    tool("openssl", &[&new[..], &its].concat());
    let (key, certificate) = (file(KEY), file(CERTIFICATE));
    let whose = ["-subj", "/CN=boot", "-addext", "subjectAltName=IP:10.0.2.2", "-keyout", &key];
    let by = ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", &authority, "-CAkey", &signs];
    tool("openssl", &[&new[..], &whose, &by, &["-out", &certificate]].concat());
}

/// A drive of QEMU's with this file; several have several numbers.
fn drive(number: u32, file: &str, more: &str) -> [String; 4] {
    let drive = format!("if=none,id=d{number},format=raw,{more}file={file}");
    ["-drive".to_owned(), drive, "-device".to_owned(), format!("virtio-blk-pci,drive=d{number}")]
}

fn words(drives: &[[String; 4]]) -> Vec<&str> {
    drives.iter().flatten().map(String::as_str).collect()
}

/// udev was told what the medium holds, and did not read it to find out.
fn assert_medium_is_named(machine: &mut Machine, device: &str) {
    let medium = machine.ran("readlink -f /dev/disk/by-label/HEADSTART");
    assert!(medium.starts_with(device), "{medium}");
    let noted = machine.ran("udevadm info $(readlink -f /dev/disk/by-label/HEADSTART)");
    assert!(noted.contains("ID_FS_TYPE=iso9660") && noted.contains("RULES_FLAG=1"), "{noted}");
    assert!(!noted.contains("ID_PART_TABLE_TYPE="), "{noted}");
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
    assert_medium_is_named(&mut machine, "/dev/sr0");
    machine.ran("echo kept in memory >/root/written");
    // Its name tells systemd to leave it alone at shutdown.
    let name = machine.ran(&format!("tr '\\0' ' ' </proc/{SERVER}/cmdline"));
    assert!(name.starts_with("@headstart mount"), "{name}");
    // The next server reads what the first one never had.
    machine.ran(&format!("kill -9 {SERVER}; echo 3 >/proc/sys/vm/drop_caches"));
    assert_eq!(machine.ran(SUM).trim(), live.sum());
    let log = machine.ran("cat /run/headstart/*.log; cat /root/written");
    assert!(log.contains("the next one goes on") && log.contains("kept in memory"), "{log}");
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
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
    assert_medium_is_named(&mut machine, "/dev/vd");
    assert!(machine.ran("cat /proc/mounts").contains("headstart / overlay"));
    machine.type_line("systemctl poweroff");
    machine.wait_for("Power down");
    machine.wait_for_end();
}

/// The start, and what runs in the root, wait for their server.
#[test]
fn an_image_on_a_web_server_is_a_root() {
    let Some(live) = live() else { return };
    let Some(scene) = live.on_the_web() else { return };
    // A port that is free; nothing listens there.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    // QEMU's own network has this machine at this address.
    let address = format!("http://10.0.2.2:{port}/root.hsi");
    let words = format!("ip=dhcp root=headstart:{address}#{} headstart.wait=400", live.name);
    let mut machine = live.start_with("network.img", &format!("{words} {BEFORE_THE_SWITCH}"), &NET);
    machine.wait_for("it is asked again for 400 s in all");
    let nginx = Nginx::start_at(&scene, port, "");
    machine.in_the_initramfs();
    assert!(machine.ran("cat /proc/mounts").contains("headstart /root overlay"));
    drop(nginx);
    machine.ran(&format!("(chroot /root sh -c '{SUM}' >/run/sum 2>&1 &)"));
    machine.ran("until grep -qs 'no answer from' /run/headstart/*.log; do :; done");
    let _nginx = Nginx::start_at(&scene, port, "");
    machine.ran("until [ -s /run/sum ]; do :; done");
    assert_eq!(machine.ran("cat /run/sum").trim(), live.sum());
}

#[test]
fn what_is_wrong_with_an_address_is_said() {
    let Some(live) = live() else { return };
    let Some(scene) = live.on_the_web() else { return };
    let nginx = Nginx::start(&scene, "");
    let address = |port: u16| format!("ip=dhcp root=headstart:http://10.0.2.2:{port}/root.hsi");
    // A server that is down.
    let down = format!("{}#{} headstart.wait=1 {SHELL_ON_FAILURE}", address(1), live.name);
    let mut machine = live.start_with("network.img", &down, &NET);
    let said = machine.in_the_initramfs();
    // Not the command line, which has the address too.
    assert!(said.contains("http://10.0.2.2:1/root.hsi: ") && said.contains(GIVEN_UP), "{said}");
    // An address alone proves nothing.
    let said = machine.mounted_by(&address(nginx.port));
    assert!(["#hs1-", "--insecure"].iter().any(|words| said.contains(words)), "{said}");
    assert!(said.contains("exit code 1"), "{said}");
}

#[test]
fn what_is_wrong_with_a_medium_is_said() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    // No medium, in the time that was given for it.
    let mut machine = live.start("root=headstart:LABEL=HEADSTART headstart.wait=1", &[]);
    let said = machine.wait_for(GIVEN_UP);
    assert!(said.contains("no device LABEL=HEADSTART after 1 s"), "{said}");
    assert!(said.contains("\nheadstart-live: ") && said.contains("] headstart: "), "{said}");
    // `panic=1`: it restarts.
    machine.wait_for_end();
    // Another medium with the same label, and two that are cut short: before the image, and in it.
    fs::create_dir_all(scene.path("root/etc")).expect("a folder");
    fs::write(scene.path("root/etc/other"), "another system").expect("written");
    let (other, other_iso) = (scene.arg("other.hsi"), scene.arg("other.iso"));
    run(["build", &scene.arg("root"), "-o", &other]).ok();
    let kernel = ["--kernel", &live.file("vmlinuz"), "--initrd", &live.file("initrd.img")];
    run([&["iso", &other, "-o", &other_iso], &kernel[..]].concat()).ok();
    fills_a_disc_where_that_helps(&scene, &[&["iso", &other], &kernel[..]].concat());
    let bytes = fs::read(live.file("bios.iso")).expect("read");
    let at = live.image_in(&bytes);
    let cut = |name: &str, len: usize| {
        fs::write(scene.path(name), &bytes[..len / 4096 * 4096]).expect("written");
        scene.arg(name)
    };
    let (empty, half) = (cut("empty.iso", at), cut("half.iso", at + live.image().len() / 2));
    let media = [&empty, &half, &other_iso, &live.file("bios.iso")];
    let drives: Vec<_> = (1..).zip(media).map(|(number, file)| drive(number, file, "readonly=on,")).collect();
    // A command line that names nothing: there is a shell, in which the rest is tried.
    let nothing = format!("root=headstart:HEADSTART {SHELL_ON_FAILURE}");
    let mut machine = live.start(&nothing, &words(&drives));
    let said = machine.in_the_initramfs();
    assert!(said.contains("names no image") && said.contains(GIVEN_UP), "{said}");
    // Who ends the shell has it tried again.
    machine.type_line("exit");
    let said = machine.in_the_initramfs();
    assert!(said.contains("names no image") && said.contains(GIVEN_UP), "{said}");
    let named = format!("root=headstart:LABEL=HEADSTART#{} headstart.wait=2", live.name);
    ["vdb", "vdc", "vdd"].iter().for_each(|disk| machine.take_out(disk));
    let said = machine.mounted_by(&named);
    assert!(said.contains("headstart-live: LABEL=HEADSTART has not the image: /dev/vda: "), "{said}");
    assert!(said.contains("root.hsi") && said.contains("exit code 1"), "{said}");
    machine.take_out("vda");
    machine.put_back("vdb");
    let said = machine.mounted_by(&named);
    assert!(said.contains("headstart-live: cannot read ") && said.contains("root.hsi"), "{said}");
    assert!(said.contains("exit code 1"), "{said}");
    // Two media with different images.
    machine.take_out("vda");
    ["vdc", "vdd"].iter().for_each(|disk| machine.put_back(disk));
    let said = machine.mounted_by("root=headstart:LABEL=HEADSTART headstart.wait=2");
    assert!(said.contains("hold different images") && said.contains("exit code 1"), "{said}");
    // A kernel without FUSE.
    machine.ran("modprobe -r fuse; mv /lib/modules /lib/away");
    let said = machine.mounted_by(&named);
    assert!(said.contains("/dev/fuse is missing") && said.contains("exit code 1"), "{said}");
    // The same two with a name, and all that they need.
    machine.ran("mv /lib/away /lib/modules; modprobe fuse");
    let said = machine.mounted_by(&named);
    assert!(said.contains("exit code 0"), "{said}");
    assert!(machine.ran("cat /proc/mounts").contains("headstart /root overlay"));
    assert_eq!(machine.ran("cat /root/etc/hostname").trim(), "live");
}

/// What a start reads lies at the outer edge of a disc that turns at one speed.
fn fills_a_disc_where_that_helps(scene: &Scene, make: &[&str]) {
    let (output, disc) = (scene.arg("disc.iso"), 300_u64 << 20);
    let made = |drive: &str| {
        let flags = ["-o", &output, "--json", "--disc", "300M", "--for", drive];
        let made = run([make, &flags[..]].concat()).ok().json();
        fs::remove_file(&output).expect("removed");
        made
    };
    let turning = made("cd-24x-cav");
    assert_eq!(turning["disc"]["is_outer"], true, "{turning}");
    let bytes = turning["iso_bytes"].as_u64().expect("counted");
    assert!((disc - (4 << 20)..=disc).contains(&bytes), "{turning}");
    let even = made("cd-8x-clv");
    assert_eq!(even["disc"]["is_outer"], false, "{even}");
    assert!(even["iso_bytes"].as_u64().expect("counted") < disc / 2, "{even}");
    run([make, &["-o", &output, "--disc", "1M"][..]].concat()).fails(1, &["--disc", "the medium has"]);
    run([make, &["-o", &output, "--for", "cd-8x-clv"][..]].concat()).fails(2, &["--disc"]);
}

/// When it is put back for the last time, one of its sectors cannot be read.
#[test]
fn a_medium_that_is_pulled_out_and_put_back_is_read_again() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let monitor = scene.arg("monitor");
    let stops = format!("{BEFORE_THE_SWITCH} {SHELL_AS_INIT}");
    let root = format!("root=headstart:LABEL=HEADSTART#{} {stops}", live.name);
    let (stick, listens) = (live.file("bios.iso"), format!("unix:{monitor},server=on,wait=off"));
    let drive = format!("if=none,id=d1,format=raw,readonly=on,file={stick}");
    let devices = ["-drive", &drive, "-device", "virtio-blk-pci,drive=d1,id=stick", "-monitor", &listens];
    let bad = with_a_bad_sector(&live, &stick);
    let mut machine = live.start(&root, &[&devices[..], &["-blockdev", &bad]].concat());
    machine.wait_for("(initramfs) ");
    let mut monitor = UnixStream::connect(&monitor).expect("QEMU's monitor");
    let mut say = |line: &str| writeln!(monitor, "{line}").expect("QEMU listens");
    // Before the switch of roots.
    say("device_del stick");
    machine.wait_for("LABEL=HEADSTART is gone");
    machine.type_line("exit");
    say(&format!("drive_add 0 if=none,id=d2,format=raw,readonly=on,file={stick}"));
    say("device_add virtio-blk-pci,drive=d2,id=again");
    let said = machine.in_the_root();
    assert!(said.contains("LABEL=HEADSTART is back"), "{said}");
    // This program is in memory then.
    assert!(!machine.ran("cat /run/headstart/*.log; grep -c . /run/headstart/*.log").is_empty());
    say("device_del again");
    machine.wait_for("LABEL=HEADSTART is gone");
    // Programs that read meanwhile wait; the server notes it in its log.
    machine.type_line(&format!(
        "({SUM}; echo =E''ND) & until grep -qs 'is gone' /run/headstart/*.log; do :; done; echo =GO''NE"
    ));
    machine.wait_for("=GONE");
    say("device_add virtio-blk-pci,drive=bad,id=last");
    let said = machine.wait_for("=END\n");
    if !said.contains("LABEL=HEADSTART is back") {
        let log = machine.ran("cat /run/headstart/*.log");
        panic!("it is not back: {said} {log}");
    }
    let right = live.sum();
    assert!(said.contains(&right), "{right} {said}");
    assert!(machine.ran("cat /run/headstart/*.log").contains("its device is back"));
    // The error is that of one file alone.
    let said = machine.ran("cat /opt/noise | wc -c");
    assert!(said.contains("Input/output error"), "{said}");
    let said = machine.ran("cat /opt/noise >/dev/null; cat /opt/key.pem");
    assert!(said.contains("Input/output error") && said.contains("PRIVATE KEY"), "{said}");
}

/// For QEMU: this medium, with a sector of /opt/noise that cannot be read.
fn with_a_bad_sector(live: &Live, medium: &str) -> String {
    let noise = fs::read(live.root.join("opt/noise")).expect("read");
    let from = noise.len() / 2;
    let at = place(&fs::read(medium).expect("read"), &noise[from..from + 64]);
    format!(
        "driver=blkdebug,node-name=bad,read-only=on,image.driver=file,image.filename={medium},\
         inject-error.0.event=none,inject-error.0.iotype=read,inject-error.0.errno=5,inject-error.0.once=off,\
         inject-error.0.sector={}",
        at / 512
    )
}

#[test]
fn a_root_is_signed_and_comes_over_tls() {
    let Some(live) = live() else { return };
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    scene.folder("www");
    let image = scene.arg("www/root.hsi");
    fs::copy(live.file("root.hsi"), &image).expect("copied");
    let key = run(["keygen", &scene.arg("boot")]).ok();
    let key = key.stdout.trim().strip_prefix("#key=").expect("a key").to_owned();
    run(["sign", &image, "--key", &scene.arg("boot.key"), "--date", "2026-01-01", "--expires", "30"]).ok();
    let (www, certificates) = (scene.arg("www"), live.root.clone());
    let [certificate, secret] = [CERTIFICATE, KEY].map(|file| certificates.join(file).display().to_string());
    let nginx = Nginx::start_with(&scene, |port| {
        let tls = format!("ssl_certificate {certificate}; ssl_certificate_key {secret};");
        format!("server {{ listen 127.0.0.1:{port} ssl; root {www}; {tls} }}")
    });
    let root = format!("ip=dhcp root=headstart:https://10.0.2.2:{}/root.hsi#key={key}", nginx.port);
    // A signature that is older than the command line allows.
    let older = format!("{root} headstart.min-date=2026-02-01 {SHELL_ON_FAILURE}");
    let mut machine = live.start_with("network.img", &older, &NET);
    let said = machine.in_the_initramfs();
    assert!(said.contains("2026-01-01") && said.contains(GIVEN_UP), "{said}");
    // Another key, and a signature that has expired by the clock.
    let other = run(["keygen", &scene.arg("other")]).ok();
    let other = other.stdout.trim().strip_prefix("#key=").expect("a key").to_owned();
    let said = machine.mounted_by(&root.replace(&key, &other));
    assert!(said.contains("not signed by the key") && said.contains("exit code 1"), "{said}");
    machine.ran("now=$(date +%s); date -s '2030-01-01 00:00:00'");
    let said = machine.mounted_by(&root);
    assert!(said.contains("it was good until") && said.contains("exit code 1"), "{said}");
    machine.ran("date -s @$now");
    let said = machine.mounted_by(&root);
    assert!(said.contains("exit code 0"), "{said}");
    assert_eq!(machine.ran(&format!("chroot /root sh -c '{SUM}'")).trim(), live.sum());
}

#[test]
fn a_medium_checks_itself() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let check = format!("LABEL=HEADSTART#{} headstart.verify", live.name);
    // One byte of the image is another.
    let damaged = scene.path("damaged.iso");
    let mut bytes = fs::read(live.file("bios.iso")).expect("read");
    let middle = live.image_in(&bytes) + live.image().len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).expect("written");
    let media = [damaged.display().to_string(), live.file("bios.iso")];
    let drives = [1, 2].map(|number| drive(number, &media[number as usize - 1], "readonly=on,"));
    let of_first = check.replace("LABEL=HEADSTART", "/dev/vda");
    let mut machine = live.start(&format!("root=headstart:{of_first} {SHELL_ON_FAILURE}"), &words(&drives));
    let said = machine.in_the_initramfs();
    assert!(said.contains("/medium/headstart/root.hsi") && said.contains(GIVEN_UP), "{said}");
    // The right one, as the initramfs does it.
    machine.take_out("vda");
    machine.change_command_line(&format!("root=headstart:{check}"));
    machine.type_line(". /scripts/functions; . /scripts/headstart; headstart_network() { :; }; mountroot");
    let said = machine.wait_for("The medium is right. Press Enter to restart");
    assert!(said.contains("agree with every digest"), "{said}");
    machine.type_line("");
    machine.wait_for_end();
}

#[test]
fn a_machine_records_its_start_and_the_next_one_is_prefetched() {
    let Some(live) = live() else { return };
    let scene = Scene::new();
    let keep = scene.arg("keep");
    fs::File::create(&keep).and_then(|file| file.set_len(64 << 20)).expect("a disk");
    tool("mkfs.ext4", &["-q", "-L", "KEEP", &keep]);
    let record = "headstart.record=LABEL=KEEP headstart.record-for=30";
    let drives = [drive(1, &live.file("bios.iso"), "readonly=on,"), drive(2, &keep, "")];
    let root = format!("root=headstart:LABEL=HEADSTART#{} {record}", live.name);
    let mut machine = live.start(&root, &words(&drives));
    machine.log_in();
    machine.ran("until ls /run/initramfs/headstart/record/*.hsp; do sleep 1; done; sync");
    drop(machine);
    let (profile, fast) = (scene.arg("boot.hsp"), scene.arg("fast.hsi"));
    tool("debugfs", &["-R", &format!("dump headstart-boot.hsp {profile}"), &keep]);
    let recorded = run(["inspect", &profile, "--json"]).ok().json();
    assert!(recorded["reads"].as_u64() > Some(500) && recorded["files"].as_u64() > Some(50), "{recorded}");
    run(["optimize", &live.file("root.hsi"), "-p", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    let made = run(["inspect", &fast, "--json"]).ok().json();
    let iso = scene.arg("fast.iso");
    let kernel = ["--kernel", &live.file("vmlinuz"), "--initrd", &live.file("initrd.img")];
    run([&["iso", &fast, "-o", &iso], &kernel[..]].concat()).ok();
    // So slow that its prefetch takes longer than the initramfs.
    let drives = [drive(1, &iso, "readonly=on,throttling.bps-read=1048576,")];
    let named = made["image_digest"].as_str().expect("a name");
    // The budget is more than the machine has.
    let root = format!("root=headstart:/dev/vda#{named} headstart.budget=4G {BEFORE_THE_SWITCH}");
    let mut machine = live.start(&root, &[&words(&drives)[..], &["-m", "256M"]].concat());
    machine.wait_for("(initramfs) ");
    // Linux 6.1 does not send to the next server what this one has taken. Its warmer waits for some of that,
    // unless it has ended.
    let waits = "t=$(grep -l hs-page-caches /proc/$s/task/*/comm); t=${t%comm}status; w=; until [ $w ]; do \
                 [ -e $t ] || w=no; while read -r k v r; do [ $k$v != State:D ] || w=yes; done <$t; done";
    machine.type_line(&format!("s={SERVER}; {waits}; kill -9 $s; echo warmer-waits-$w; exit"));
    machine.wait_for_any(&["warmer-waits-yes", "warmer-waits-no"]);
    machine.log_in();
    assert_eq!(machine.ran("systemctl is-system-running --wait").trim(), "running");
    let log = machine.ran("cat /run/headstart/*.log");
    assert!(log.contains("the next one goes on"), "{log}");
    let ask = "perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0);connect(S,sockaddr_un($ARGV[0]));print <S>'";
    let status = machine.ran(&format!("{ask} $(ls /run/headstart/*.sock | tail -n 1)"));
    let at = status.find('{').unwrap_or_else(|| panic!("no object: {status}"));
    let status: serde_json::Value = serde_json::from_str(&status[at..]).expect("JSON");
    let hot_bytes = made["hot_segments"][0]["hot_bytes"].as_u64();
    let prefetched = status["prefetch"]["bytes"].as_u64();
    assert!(hot_bytes > Some(1 << 20) && prefetched >= hot_bytes, "{hot_bytes:?} {status}");
    // The budget, of which a cache has 192 MiB at most, has shrunk.
    let is_below =
        |bytes: &serde_json::Value, mib: u64| bytes.as_u64().is_some_and(|bytes| bytes < mib << 20);
    assert!(
        is_below(&status["cache"]["budget_bytes"], 128) && is_below(&status["rss_bytes"], 128),
        "{status}"
    );
    assert!(made["hints"].as_u64() > Some(0), "{made}");
}

/// A stick of this medium with a partition behind it, for what is written.
fn stick_that_keeps(scene: &Scene, live: &Live) -> String {
    let stick = scene.arg("stick");
    fs::copy(live.file("bios.iso"), &stick).expect("copied");
    let file = fs::File::options().write(true).open(&stick).expect("opened");
    file.set_len(file.metadata().expect("looked at").len() + (66 << 20)).expect("a larger stick");
    tool("sh", &["-c", &format!("echo type=L | sfdisk --quiet --append {stick}")]);
    let table: serde_json::Value =
        serde_json::from_str(&tool("sfdisk", &["--json", &stick]).stdout).expect("JSON");
    let partitions = table["partitiontable"]["partitions"].as_array().expect("a list");
    assert_eq!(partitions.len(), 3, "{table}");
    let offset = format!("offset={}", partitions[2]["start"].as_u64().expect("a sector") * 512);
    tool("mkfs.ext4", &["-q", "-F", "-L", "KEEP", "-N", "2000", "-E", &offset, &stick, "64M"]);
    stick
}

#[test]
fn writes_are_kept_with_their_own_image() {
    let Some(live) = live() else { return };
    if !has_tools(&["sfdisk"]) {
        return;
    }
    let scene = Scene::new();
    let root = format!("root=headstart:LABEL=HEADSTART#{} headstart.overlay=LABEL=KEEP", live.name);
    let drives = [drive(1, &stick_that_keeps(&scene, &live), "")];
    let mut machine = live.start(&format!("{root} {SHELL_AS_INIT}"), &words(&drives));
    machine.in_the_root();
    machine.ran("echo for later >/root/kept");
    let said = machine.ran("cat /dev/zero >/root/all; sync; ls -s /root/all");
    assert!(said.contains("No space left on device"), "{said}");
    // It is not told to end: what was synced stays.
    drop(machine);
    let root = format!("{root} {BEFORE_THE_SWITCH}");
    let mut machine = live.start(&root, &words(&drives));
    let said = machine.in_the_initramfs();
    assert!(said.contains("keeps writes is nearly full"), "{said}");
    assert_eq!(machine.ran("rm /root/root/all; cat /root/root/kept").trim(), "for later");
    // So full that no overlay can be mounted above them.
    machine.ran("(cd /root/root; touch $(seq 5000) 2>/dev/null); umount /root");
    let said = machine.mounted_by(&root);
    assert!(said.contains("No space left on device") && said.contains("is lost"), "{said}");
    assert!(said.contains("exit code 0"), "{said}");
    machine.ran(
        "umount /root; mkdir /run/keep; mount -t ext4 /dev/vda3 /run/keep; rm /run/keep/upper/root/[0-9]*; \
         sed -i s/./x/ /run/keep/headstart-overlay; umount /run/keep",
    );
    // Now they are of another disk: they are left alone, and the root is mounted all the same.
    let said = machine.mounted_by(&root);
    assert!(said.contains("its writes belong to the disk x") && said.contains("exit code 0"), "{said}");
    assert_eq!(
        machine.ran("cd /root/root; cat kept 2>&1; echo more >more; cat more").lines().last(),
        Some("more")
    );
}
