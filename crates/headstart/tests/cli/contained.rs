//! The access of an image's program to the machine that runs it: no more than in a container.

use std::fs;
use std::process::{Command, Stdio};

use crate::scene::{Ran, START, Scene, has_tools, headstart, machine_has};

/// The capabilities that are left: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
/// NET_BIND_SERVICE, SYS_CHROOT, SETFCAP.
const CAPABILITIES: &str = "00000000800405fb";

/// A file of this machine on a loop device, which goes with it.
struct Disk(String);

impl Disk {
    fn new(scene: &Scene, content: &[u8]) -> Self {
        fs::write(scene.path("disk"), [content, &vec![0; 1 << 20]].concat()).expect("written");
        let made = Command::new("losetup").args(["-f", "--show", &scene.arg("disk")]).output();
        let made = made.expect("losetup starts");
        assert!(made.status.success(), "{made:?}");
        Self(String::from_utf8(made.stdout).expect("a name").trim().to_owned())
    }

    fn minor(&self) -> &str {
        self.0.trim_start_matches("/dev/loop")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// The program on a script in the tiny root, in a UTS namespace that stands for the machine's.
fn start(scene: &Scene, command: &[&str], flags: &[&str], script: &str) -> Ran {
    let host = "hostname inner; \"$@\"; code=$?; hostname; exit $code";
    let mut start = Command::new("unshare");
    start.args(["--uts", "sh", "-c", host, "sh", env!("CARGO_BIN_EXE_headstart")]);
    start.args(command).args(flags).args(["--", "/bin/sh", "-c", script]);
    start.env("AWS_SECRET_ACCESS_KEY", "topsecret").env("LC_TIME", "C.UTF-8").env("TERM", "dumb");
    start.current_dir(scene.path("")).stdin(Stdio::null()).output().expect("unshare starts").into()
}

/// `headstart run`, and `headstart profile`, which must not differ.
fn both(scene: &Scene, image: &str, flags: &[&str], script: &str) -> [Ran; 2] {
    let profile = ["profile", image, "-o", "start.hsp", "--grace", "0"];
    [start(scene, &["run", image], flags, script), start(scene, &profile, flags, script)]
}

fn can_run() -> bool {
    machine_has(START) && has_tools(&["unshare", "losetup"])
}

#[test]
fn a_program_has_a_containers_capabilities_and_namespaces() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let script = "cat /proc/self/status
        for n in uts ipc cgroup pid mnt net; do busybox readlink /proc/self/ns/$n; done
        busybox hostname hacked; busybox hostname";
    let here = ["uts", "ipc", "cgroup", "pid", "mnt", "net"].map(|name| {
        fs::read_link(format!("/proc/self/ns/{name}")).expect("a namespace").display().to_string()
    });
    for ran in both(&scene, &image, &[], script) {
        for (set, is) in [
            ("CapEff", CAPABILITIES),
            ("CapPrm", CAPABILITIES),
            ("CapBnd", CAPABILITIES),
            ("CapInh", "0000000000000000"),
            ("CapAmb", "0000000000000000"),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            assert!(ran.stdout.contains(&format!("{set}:\t{is}\n")), "{set}: {ran:?}");
        }
        for namespace in &here[..5] {
            assert!(!ran.stdout.contains(namespace), "{namespace} is the host's: {ran:?}");
        }
        assert!(ran.stdout.contains(&here[5]), "the network is the host's: {ran:?}");
        // What the machine is called afterwards, and what the program was told.
        assert!(ran.stdout.ends_with("inner\ninner\n"), "{ran:?}");
    }
    for ran in both(&scene, &image, &["--privileged"], script) {
        assert!(ran.stdout.contains("NoNewPrivs:\t0\n") && ran.stdout.contains("Seccomp:\t0\n"), "{ran:?}");
        assert!(!ran.stdout.contains(&format!("CapEff:\t{CAPABILITIES}")), "{ran:?}");
        assert!(ran.stdout.ends_with("hacked\nhacked\n"), "{ran:?}");
    }
    scene.wait_until_clean();
}

#[test]
fn a_program_cannot_reach_the_hosts_disks() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let disk = Disk::new(&scene, b"secret of the host\n");
    let script = format!(
        "for d in /dev /tmp / /dev/shm; do busybox mknod $d/l b 7 {minor} && busybox head -n 1 $d/l; done
        busybox mkdir /m; busybox mount -t devtmpfs d /m && busybox head -n 1 /m/loop{minor}
        busybox ls /dev",
        minor = disk.minor()
    );
    for ran in both(&scene, &image, &[], &script) {
        assert!(!ran.stdout.contains("secret"), "{ran:?}");
        let devices: Vec<&str> = ran.stdout.lines().filter(|line| *line != "inner").collect();
        let expected = ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout"];
        assert_eq!(devices, [&expected[..], &["tty", "urandom", "zero"]].concat(), "{ran:?}");
        assert_eq!(ran.stderr.matches("Operation not permitted").count(), 4, "{ran:?}");
    }
    for ran in both(&scene, &image, &["--privileged"], &script) {
        assert!(ran.stdout.matches("secret of the host").count() >= 2, "{ran:?}");
    }
    scene.wait_until_clean();
}

#[test]
fn a_program_is_told_a_short_list_of_the_environment() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    for ran in both(&scene, &image, &[], "busybox env") {
        assert!(!ran.stdout.contains("AWS") && ran.stdout.contains("LC_TIME=C.UTF-8\n"), "{ran:?}");
        assert!(ran.stdout.contains("TERM=dumb\n") && ran.stdout.contains("PATH="), "{ran:?}");
    }
    let flags =
        ["--env", "AWS_SECRET_ACCESS_KEY", "--env", "ONE=1=one", "--env", "TERM=vt100", "--env", "NOT_SET"];
    for ran in both(&scene, &image, &flags, "busybox env") {
        for line in ["AWS_SECRET_ACCESS_KEY=topsecret\n", "ONE=1=one\n", "TERM=vt100\n"] {
            assert!(ran.stdout.contains(line), "{line} {ran:?}");
        }
        assert!(!ran.stdout.contains("NOT_SET") && !ran.stdout.contains("dumb"), "{ran:?}");
    }
    for ran in both(&scene, &image, &["--privileged", "--env", "ONE=1"], "busybox env") {
        assert!(ran.stdout.contains("AWS_SECRET_ACCESS_KEY=topsecret\n"), "{ran:?}");
        assert!(ran.stdout.contains("ONE=1\n"), "{ran:?}");
    }
    start(&scene, &["run", &image], &["--env", "=x"], "exit 0").fails(2, &["--env", "=x"]);
    scene.wait_until_clean();
}

/// Files of the kernel that belong to root, whatever root may; nothing that is written here changes anything.
const KERNEL_FILES: &str = "f=/proc/sys/kernel/printk_ratelimit; v=$(cat $f); (echo $v >$f) && echo wrote $f
    (: >>/proc/sysrq-trigger) && echo opened sysrq-trigger
    test -n \"$(busybox head -c 4 /proc/kcore)\" && echo read kcore
    busybox mount -o remount,rw /proc/sys && echo remounted /proc/sys
    busybox umount /proc/sys && echo unmounted /proc/sys
    (: >/sys/power/state) && echo opened /sys
    busybox unshare -U true && echo made a user namespace; true";

#[test]
fn a_program_cannot_write_the_kernels_files() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    for ran in both(&scene, &image, &[], KERNEL_FILES) {
        assert_eq!(ran.stdout, "inner\n", "{ran:?}");
    }
    for ran in both(&scene, &image, &["--privileged"], KERNEL_FILES) {
        assert!(ran.stdout.starts_with("wrote /proc/sys/kernel/printk_ratelimit\n"), "{ran:?}");
    }
    scene.wait_until_clean();
}

#[test]
fn a_program_reaches_neither_processes_nor_open_files_of_the_host() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    fs::write(scene.path("open"), "an open file of the host\n").expect("written");
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
    let script = format!(
        "kill -9 {} 2>/dev/null && echo killed; cat /proc/self/fd/7 2>/dev/null
        for f in exe root cwd environ; do busybox readlink /proc/1/$f; cat /proc/1/$f 2>/dev/null; done
        true",
        sleeper.id()
    );
    let command = "exec 7<open; exec \"$@\"";
    for flags in [&[][..], &["--trusted"]] {
        let mut start = Command::new("sh");
        start.args(["-c", command, "sh", env!("CARGO_BIN_EXE_headstart"), "run", &image]).args(flags);
        start.args(["--", "/bin/sh", "-c", &script]).current_dir(scene.path("")).stdin(Stdio::null());
        let ran = Ran::from(start.output().expect("sh starts")).ok();
        assert_eq!(ran.stdout, "", "{ran:?}");
    }
    assert!(sleeper.try_wait().expect("asked").is_none(), "the host's process lives");
    sleeper.kill().expect("killed");
    sleeper.wait().expect("ended");
    scene.wait_until_clean();
}

/// Set-user-id programs and device nodes are honoured where the image is trusted, and only there; what a
/// program may do at most is the same.
#[test]
fn a_trusted_image_keeps_its_set_user_id_programs() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let script =
        "while read -r _ _ _ _ at flags _; do test $at = / && echo $flags; done </proc/self/mountinfo
        busybox grep -e NoNewPrivs -e CapBnd /proc/self/status; true";
    for ran in both(&scene, &image, &[], script) {
        assert!(ran.stdout.contains("nosuid,nodev") && ran.stdout.contains("NoNewPrivs:\t1\n"), "{ran:?}");
    }
    for ran in both(&scene, &image, &["--trusted"], script) {
        assert!(!ran.stdout.contains("nosuid") && !ran.stdout.contains("nodev"), "{ran:?}");
        assert!(ran.stdout.contains("NoNewPrivs:\t0\n") && ran.stdout.contains(CAPABILITIES), "{ran:?}");
    }
    scene.wait_until_clean();
}

/// In a shell's own words; the flag is said by its help.
#[test]
fn the_help_says_what_is_withheld() {
    let output = headstart(["run", "--help"]).output().expect("the program starts");
    let ran = Ran::from(output).ok();
    for words in ["--privileged", "--env", "--insecure", "capabilities"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
}
