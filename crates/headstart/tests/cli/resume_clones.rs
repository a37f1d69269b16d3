//! Guests of one snapshot of a Debian, and the agent that makes them differ (`dist/resume`).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::boots::{assert_nothing_is_in_tmp, boot};
use crate::live::debootstrap;
use crate::qemu_boots::GUEST;
use crate::resumes::resume;
use crate::scene::{Scene, machine_has, run};

const PACKAGES: &str =
    "linux-image-cloud-amd64,systemd-sysv,udev,initramfs-tools,iproute2,openssh-client,zstd";
const SUM: &str = "find /usr/sbin -type f | LC_ALL=C sort | xargs cat | sha256sum";
/// Says what the guest is once the agent is done, and what its files are: as its page cache has them, then as
/// its disk has them.
const TELL: &str = "#!/bin/sh
until [ -e /run/headstart-resumed ]; do sleep 0.2; done
echo; echo \"is $(cat /etc/machine-id) $(cat /sys/class/net/dummy0/address) $(sha256sum </etc/ssh/ssh_host_ed25519_key.pub | cut -c 1-16) $(od -An -N8 -tx8 /dev/urandom) $(date +%s) $(ip -6 -o address show dev dummy0 | grep -o 'fe80[^ ]*') $(wc -l </root/hook)\"
SUM
echo 3 >/proc/sys/vm/drop_caches
SUM
echo told
";
const HOOK: &str = "#!/bin/sh\necho resumed >>/root/hook\n";

/// A file of the agent, and where its place in a guest is.
const AGENT: [(&str, &str, u32); 3] = [
    ("headstart-resumed", "usr/local/lib/headstart", 0o755),
    ("headstart-resumed.service", "etc/systemd/system", 0o644),
    ("60-headstart-resumed.rules", "etc/udev/rules.d", 0o644),
];

/// A Debian with the agent, made once and kept but for what this test puts into it.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("resume-root");
    if !root.join("usr").exists() {
        debootstrap(&root, "bookworm", PACKAGES);
    }
    let put = |place: &str, mode: u32, content: &[u8]| {
        let path = root.join(place);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("allowed");
    };
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/resume");
    for (name, place, mode) in AGENT {
        put(&format!("{place}/{name}"), mode, &fs::read(dist.join(name)).expect("the agent"));
    }
    put("usr/local/bin/tell", 0o755, TELL.replace("SUM", SUM).as_bytes());
    put("etc/headstart/resumed.d/hook", 0o755, HOOK.as_bytes());
    // It is no device, so it has to be named.
    put("etc/headstart/resumed.interfaces", 0o644, b"dummy0\n");
    put("etc/modules-load.d/dummy.conf", 0o644, b"dummy\n");
    // Behind systemd's own, which wants none.
    put("etc/modprobe.d/zz-dummy.conf", 0o644, b"options dummy numdummies=1\n");
    if !root.join("etc/ssh/ssh_host_ed25519_key").exists() {
        in_root(&root, "ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key");
    }
    root
}

/// What a command says in the root.
fn in_root(root: &Path, command: &str) -> String {
    let output =
        Command::new("chroot").arg(root).args(["sh", "-c", command]).output().expect("chroot starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

#[test]
fn clones_differ_in_what_must_and_have_the_right_files() {
    if !machine_has(&[GUEST, &["/usr/bin/mmdebstrap"]].concat()) {
        return;
    }
    let root = root();
    let scene = Scene::new();
    scene.folder("tmp");
    let (image, snapshot, console) = (scene.arg("debian.hsi"), scene.arg("saved.hsi"), scene.arg("console"));
    run(["build", &root.display().to_string(), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    let flags = ["--vmm", "qemu", "--accel", "tcg", "--memory", "512M", "--ready", "login: $"];
    boot(&scene, &image, &[&flags[..], &["--snapshot-out", &snapshot]].concat()).ok();
    let right = in_root(&root, SUM);
    let of_root = [
        fs::read_to_string(root.join("etc/machine-id")).expect("an id").trim().to_owned(),
        in_root(&root, "sha256sum </etc/ssh/ssh_host_ed25519_key.pub | cut -c 1-16"),
    ];

    let told = || {
        let began = now();
        let ask = ["--type", "root", "--type", "tell", "--ready", "^told", "--console", &console];
        resume(&scene, &snapshot, &ask).ok();
        let ended = now();
        let said = fs::read_to_string(&console).expect("the console").replace('\r', "");
        let is = said.lines().find(|line| line.starts_with("is ")).expect("it says what it is");
        let is: Vec<String> = is.split_whitespace().map(str::to_owned).collect();
        assert_eq!(is.len(), 8, "{is:?}");
        // A clock that went on from where it was saved would be earlier.
        let date: u64 = is[5].parse().expect("seconds");
        assert!(date + 1 >= began && date <= ended + 1, "{began} {date} {ended}");
        assert_eq!(is[7], "1", "the hook ran once");
        let sums: Vec<&str> = said.lines().filter(|line| line.ends_with(" -") && line.len() > 60).collect();
        assert_eq!(sums, [&right, &right], "{said}");
        is
    };
    let (one, other) = (told(), told());
    // Machine id, hardware address, host key, random number, address.
    for place in [1, 2, 3, 4, 6] {
        assert_ne!(one[place], other[place], "{one:?} {other:?}");
    }
    assert!(!of_root.contains(&one[1]) && !of_root.contains(&one[3]), "{one:?} {of_root:?}");
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}
