//! Starts by a user who is not root. Root plays that user: `nobody`, with a `/dev/fuse` that users may open,
//! which exists in a mount namespace of the test only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::scene::{Ran, Running, Scene, wait_until};

/// Everything that belongs to a test has this in its environment.
const MARK: &str = "HEADSTART_TEST_MARK";

/// `$1` is the mode of `/dev/fuse`, what follows the command.
const AS_NOBODY: &str = "set -e
    mount -t tmpfs test /mnt
    mknod -m \"$1\" /mnt/fuse c 10 229
    mount --bind /mnt/fuse /dev/fuse
    umount -l /mnt
    shift
    exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";

/// In a namespace of its own, where no others may be made; the limit counts only there.
const WITHOUT_NAMESPACES: &str = "set -e
    echo 0 >/proc/sys/user/max_user_namespaces
    exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\"";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A scene that a user may enter, with the program in it.
struct User {
    scene: Scene,
    program: String,
}

impl User {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.arg("headstart");
        fs::copy(env!("CARGO_BIN_EXE_headstart"), &program).expect("copied");
        let user = Self { scene, program };
        user.permit(".", 0o755);
        user
    }

    fn permit(&self, name: &str, mode: u32) {
        fs::set_permissions(self.scene.path(name), fs::Permissions::from_mode(mode)).expect("permitted");
    }

    /// An image of the tiny root that the user may read.
    fn root(&self) -> String {
        let image = self.scene.root("root.hsi");
        self.permit("root.hsi", 0o644);
        image
    }

    /// A folder that the user may write in.
    fn folder(&self) {
        self.scene.folder("out");
        self.permit("out", 0o777);
    }

    /// The command as the user, where `/dev/fuse` has this mode.
    fn command(&self, fuse_mode: &str, words: &[&str]) -> Command {
        let mut command = if is_root() {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", AS_NOBODY, "sh", fuse_mode]).args(words);
            command
        } else {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        };
        command.env(MARK, self.scene.path(".")).stdin(Stdio::null()).current_dir("/");
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let words = [&[self.program.as_str()], arguments].concat();
        self.command("666", &words).output().expect("the program starts").into()
    }

    /// Processes that this test has started and that are still there.
    fn processes(&self) -> usize {
        self.command_lines().len()
    }

    /// Their command lines.
    fn command_lines(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.scene.arg("."));
        let read = |process: &fs::DirEntry, name| {
            let read = fs::read(process.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&read).replace('\0', " ")
        };
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let ours = processes.filter(|process| read(process, "environ").contains(&mark));
        ours.map(|process| read(&process, "cmdline")).collect()
    }

    /// Records `command` and optimizes the image by that, both into `out`: gives the new image.
    fn optimized(&self, image: &str, command: &[&str]) -> String {
        let (profile, fast) = (self.scene.arg("out/p.hsp"), self.scene.arg("out/fast.hsi"));
        self.run(&[&["profile", image, "-o", &profile, "--grace", "0", "--"], command].concat()).ok();
        self.run(&["optimize", image, "-p", &profile, "-o", &fast]).ok();
        fast
    }

    fn wait_until_clean(&self) {
        wait_until("every process of the test is gone", || self.processes() == 0);
        self.scene.wait_until_clean();
    }
}

/// True when a user who is not root can start something here. Otherwise the test is skipped and says so;
/// where CI runs it, it fails.
fn machine_serves_users() -> bool {
    let user = User::new();
    let works = |words: &[&str]| {
        let status = user.command("666", words).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let shell = |script| works(&["sh", "-c", script]);
    let lack = if !["unshare", "setpriv", "fuse2fs"].iter().all(|tool| path_has(tool)) {
        "unshare, setpriv or fuse2fs is missing (scripts/setup.sh installs what the tests need)"
    } else if !Path::new("/bin/busybox").exists() {
        "/bin/busybox is missing (scripts/setup.sh installs what the tests need)"
    } else if !shell("exec 3<>/dev/fuse") {
        "a user cannot open /dev/fuse, not even one made for the test"
    } else if !works(&[&user.program, "--version"]) {
        "the temporary folder is closed to users"
    } else if !works(&[
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "test",
        "/mnt",
    ]) {
        "the kernel refuses users a user namespace ('headstart doctor' says why)"
    } else {
        return true;
    };
    hs_testing::skip(lack);
    false
}

fn path_has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

#[test]
fn a_user_runs_commands_and_their_writes_go_nowhere() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let ran = user.run(&["-q", "run", &image, "--", "/bin/sh", "-c", script]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{script}");
    }
    let script = "cat /etc/motd && echo more >>/etc/motd && cat /etc/motd && echo x >/etc/new && cat /etc/new \
        && echo y >/tmp/t && echo null >/dev/null && test -c /dev/ptmx && cat /proc/self/uid_map";
    let ran = user.run(&["run", &image, "--", "/bin/sh", "-c", script]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let hello = "hello from the image\n";
    assert!(ran.stdout.starts_with(&format!("{hello}{hello}more\nx\n")), "{ran:?}");
    // The same again finds the image as it was.
    assert_eq!(user.run(&["run", &image, "--", "/bin/cat", "/etc/motd"]).ok().stdout, hello);
    assert_eq!(user.run(&["run", &image, "--", "/bin/cat", "/etc/new"]).code, Some(1));
    let ran = user.run(&["run", &image, "--", "/bin/no-such-program"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("no-such-program"), "{ran:?}");
    user.run(&["verify", &image]).ok();
    user.wait_until_clean();
    assert_eq!(user.scene.names(), ["headstart", "root.hsi"]);
}

/// In the namespace of a start the user is called root, whose folders are not the user's.
#[test]
fn what_a_users_start_keeps_is_in_the_users_folders() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    user.folder();
    let (home, summary) = (user.scene.arg("out"), user.scene.arg("out/s.json"));
    for round in 0..2 {
        let json = format!("--json={summary}");
        let words = [&user.program, "run", &image, "--learn", &json, "--", "/bin/cat", "/etc/motd"];
        let mut command = user.command("666", &words);
        command.env("HOME", &home).env_remove("XDG_CACHE_HOME");
        let ran = Ran::from(command.output().expect("the program starts")).ok();
        assert_eq!(ran.stderr, "", "{round}");
        let text = fs::read(user.scene.path("out/s.json")).expect("written");
        let summary: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(summary["learned_windows"].as_u64() > Some(0), round == 1, "{summary}");
    }
    let learned = user.scene.path("out/.cache/headstart/learned");
    assert_eq!(fs::read_dir(learned).expect("a folder").count(), 1);
    let words = [&user.program, "snapshotter", "--root", &user.scene.arg("out/root"), "serve"];
    let ran = Ran::from(user.command("666", &words).output().expect("the program starts"));
    ran.fails(1, &["needs root"]);
    user.wait_until_clean();
}

#[test]
fn a_users_command_is_contained_as_well() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    let script =
        "cat /proc/self/status; busybox hostname hacked; busybox mount -t tmpfs none /tmp && echo mounted
        busybox unshare -U true && echo unshared; busybox env; echo x >/proc/sys/kernel/domainname; true";
    let ran = user.run(&["run", &image, "--", "/bin/sh", "-c", script]).ok();
    for line in ["CapEff:\t00000000800405fb\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"] {
        assert!(ran.stdout.contains(line), "{line} {ran:?}");
    }
    for word in ["mounted", "unshared", MARK] {
        assert!(!ran.stdout.contains(word), "{word} {ran:?}");
    }
    assert!(ran.stderr.contains("domainname: Read-only file system"), "{ran:?}");
    user.wait_until_clean();
}

#[test]
fn a_users_start_that_is_killed_takes_everything_along() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    let script = "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done";
    for (signal, code) in [(Signal::TERM, Some(5)), (Signal::KILL, None)] {
        let words = [&user.program, "run", "--env", MARK, &image, "--", "/bin/sh", "-c", script];
        let mut running = Running::start_command(user.command("666", &words));
        assert_eq!(running.printed(), "up\n");
        assert!(user.processes() >= 3, "the server, fuse2fs and the command");
        running.signal(signal);
        let (status, _, said) = running.end();
        assert_eq!(status.code(), code, "{said}");
        user.wait_until_clean();
    }
}

#[test]
fn a_user_records_optimizes_and_repeats_a_start() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    user.folder();
    let scene = &user.scene;
    let (profile, fast, summary) =
        (scene.arg("out/p.hsp"), scene.arg("out/fast.hsi"), scene.arg("out/s.json"));
    let command = ["--", "/bin/md5sum", "/bin/busybox"];
    let record = ["profile", &image, "-o", &profile, "--grace", "0"];
    let recorded = user.run(&[&record[..], &command].concat()).ok();
    let reads = user.run(&["inspect", "--csv", &profile]).ok().stdout;
    let lengths: Vec<_> = reads.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    assert!(
        !lengths.is_empty() && lengths.iter().all(|length| *length == "4096"),
        "exactly what is used: {lengths:?}"
    );
    user.run(&["optimize", &image, "-p", &profile, "-o", &fast]).ok();
    // So fast that all of it has come before the fastest machine has mounted and started anything.
    let again = ["run", &fast, "--medium", "flat-1ms-400mbs", &format!("--json={summary}")];
    let ran = user.run(&[&again[..], &command].concat()).ok();
    assert_eq!(ran.stdout, recorded.stdout);
    let summary = fs::read(scene.path("out/s.json")).expect("written");
    let summary: serde_json::Value = serde_json::from_slice(&summary).expect("JSON");
    let busybox = fs::metadata("/bin/busybox").expect("busybox").len();
    let bytes = |key: &str| summary[key].as_u64().unwrap_or_else(|| panic!("{key}: {summary}"));
    assert!(bytes("prefetch_bytes") >= busybox, "{summary}");
    // How many depends on whether the stream or the program is faster.
    assert!(bytes("demand_bytes") < busybox, "some of the pushed pages were used: {summary}");
    user.wait_until_clean();
}

/// Pushed blocks come without neighbours; a first touch would read the neighbours, and wait.
#[test]
fn nothing_is_read_ahead_of_a_users_start_that_is_prefetched() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    user.folder();
    let fast = user.optimized(&image, &["/bin/cat", "/etc/motd"]);
    let script = "echo up; while :; do sleep 0.1; done";
    let medium = ["--medium", "flat-1ms-400mbs"];
    let cases: [(&str, &[&str], u32); 4] = [
        (&image, &[], 128),
        (&fast, &[], 0),
        (&fast, &["--read-ahead", "16"], 16),
        (&fast, &["--prefetch", "off"], 128),
    ];
    for (image, flags, expected_kib) in cases {
        let words = [
            &[&user.program, "run", "--env", MARK, image],
            &medium[..],
            flags,
            &["--", "/bin/sh", "-c", script],
        ]
        .concat();
        let mut running = Running::start_command(user.command("666", &words));
        assert_eq!(running.printed(), "up\n");
        let lines = user.command_lines();
        let line = lines.iter().find(|line| line.contains("subtype=ext4")).expect("fuse2fs");
        // What is built with libfuse 3 is not told.
        let is_told = line.contains("max_readahead=");
        let expected = format!("max_readahead={}", expected_kib << 10);
        assert!(
            !is_told || line.split([',', ' ']).any(|word| word == expected),
            "{expected} for {flags:?}: {line}"
        );
        running.signal(Signal::KILL);
        running.end();
        user.wait_until_clean();
    }
}

#[test]
fn what_a_user_lacks_is_named() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    let image = user.root();
    fs::write(user.scene.path("squashfs"), [&b"hsqs"[..], &[0; 0x1_fffc]].concat()).expect("written");
    user.permit("squashfs", 0o644);
    let squashfs = user.scene.arg("squashfs");
    let ran = user.run(&["run", "--foreign", &squashfs, "--", "/bin/true"]);
    ran.fails(1, &["only an ext4", "squashfs", "run as root"]);

    let elsewhere = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
    if !elsewhere.iter().any(|folder| Path::new(folder).join("fuse2fs").exists()) {
        let words = ["/usr/bin/env", "PATH=/nonexistent", &user.program, "run", &image, "--", "/bin/true"];
        let ran: Ran = user.command("666", &words).output().expect("started").into();
        ran.fails(1, &["fuse2fs", "install the package fuse2fs", "run as root"]);
    }
    if is_root() {
        let words = [user.program.as_str(), "run", &image, "--", "/bin/true"];
        let ran: Ran = user.command("600", &words).output().expect("started").into();
        ran.fails(1, &["/dev/fuse", "Permission denied", "fuse3", "run as root"]);
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=65534", "--map-group=65534", "--keep-caps"]);
    command.args(["sh", "-c", WITHOUT_NAMESPACES, "sh", &user.program, "run", &image, "--", "/bin/true"]);
    let ran: Ran = command.output().expect("started").into();
    ran.fails(1, &["user namespace", "run as root", "max_user_namespaces"]);
    user.wait_until_clean();
}

#[test]
fn what_only_root_can_show_is_skipped_aloud() {
    if !machine_serves_users() {
        return;
    }
    let user = User::new();
    for name in ["flash-elevators-2012", "memory-2005"] {
        let ran = user.run(&["lab", "run", name, "--real", "--json"]).ok();
        assert!(
            ran.stderr.contains("skipped, for real: ") && ran.stderr.contains("only root"),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.json()["real"], serde_json::json!([]));
    }
    user.wait_until_clean();
}
