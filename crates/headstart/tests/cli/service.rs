//! Servers as services: what they report to the service manager, and what they answer to `status`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::mounts::umount;
use crate::scene::{PATIENCE, Ran, Running, START, Scene, headstart, machine_has, mount, run, wait_until};

/// The output of `status` for a directory or an image.
pub(crate) fn status_of(of: &str) -> Vec<Value> {
    let all = run(["status", "--json"]).ok().json();
    let mounts = all["mounts"].as_array().expect("a list").clone();
    mounts.into_iter().filter(|mount| mount["dir"] == of || mount["image"] == of).collect()
}

/// The status of the server of a directory or an image. Waits for a server that a busy machine delays.
pub(crate) fn server_of(of: &str) -> Value {
    let mut found = None;
    wait_until("a server says how it is", || {
        found = status_of(of).into_iter().next();
        found.is_some()
    });
    found.expect("waited for")
}

/// Damages the first of the windows of 128 KiB.
fn damage(scene: &Scene, name: &str) {
    let mut damaged = fs::read(scene.path(name)).expect("read");
    damaged[4096 + 2000] ^= 1;
    fs::write(scene.path(name), damaged).expect("written");
}

#[test]
fn status_tells_of_a_command_that_runs() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let running =
        ["run", &image, "--prefetch", "off", "--", "/bin/sh", "-c", "echo up; cat /etc/motd; sleep 600"];
    let mut running = Running::start(running);
    assert_eq!(running.printed(), "up\n");
    let status = server_of(&image);
    let command = "/bin/sh -c echo up; cat /etc/motd; sleep 600";
    assert_eq!((&status["pid"], &status["command"]), (&running.id().into(), &command.into()), "{status}");
    let shown = run(["status", &image]).ok().stdout;
    assert!(shown.contains(&format!("{image} runs `{command}`")), "{shown}");
    assert!(shown.contains("messages to standard error"), "{shown}");
    assert!(!shown.contains("fifo"), "{shown}");
    running.signal(Signal::TERM);
    running.end();
    assert_eq!(status_of(&image), [Value::Null; 0]);
    scene.wait_until_clean();
}

/// A user who is not root, without the folder that a session of systemd has.
#[test]
fn servers_of_users_are_found_without_a_runtime_folder() {
    const USER: u32 = 1_999_999_999;
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("a.hsi", 30, 1);
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).expect("opened");
    fs::copy(env!("CARGO_BIN_EXE_headstart"), scene.path("headstart")).expect("copied");
    let by_user = |words: &[&str]| {
        let mut command = Command::new(scene.path("headstart"));
        command.args(words).stdin(Stdio::null()).env_remove("XDG_RUNTIME_DIR");
        command.uid(USER).gid(USER).current_dir("/");
        command
    };
    let image = scene.arg("a.hsi");
    let mut serving = Running::start_command(by_user(&["serve", &image, "--nbd", "127.0.0.1:0"]));
    let said = serving.said();
    assert!(said.contains("served at nbd://"), "{said}");
    let asked = Ran::from(by_user(&["status", &image]).output().expect("the program starts"));
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    assert!(asked.ok().stdout.contains(&format!("{image} at nbd://127.0.0.1:")));
    fs::remove_dir(format!("/tmp/headstart-{USER}")).expect("nothing else is in its folder");
}

#[test]
fn status_tells_of_every_mount() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 320, 32);
    damage(&scene, "cold.hsi");
    let root = scene.root("root.hsi");
    let (first, second, tree) = (scene.folder("first"), scene.folder("second"), scene.folder("tree"));
    let mut foreground = Running::start(["mount", "-f", &scene.arg("cold.hsi"), &first]);
    assert!(foreground.said().contains("mounted"));
    mount(&scene, &[&root, &second, "--fs", &tree, "--medium", "flat-10ms-25mbs"]).ok();

    let file = fs::File::open(scene.path("first/disk.img")).expect("opened");
    let mut found = vec![0; 131_072];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).expect_err("damaged");
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 131_072).expect("whole");
    assert!(found == disk[131_072..][..131_072]);

    // A read is counted when it has been answered, which is a moment before.
    wait_until("the read is counted", || server_of(&first)["demand_bytes"].as_u64() >= Some(131_072));
    let of_first = &server_of(&first);
    assert_eq!(of_first["supervisor"], foreground.id());
    assert_eq!(of_first["restarts"], 0);
    assert_eq!(of_first["image"], scene.arg("cold.hsi").as_str());
    assert_eq!(of_first["fs"], Value::Null);
    assert_eq!(of_first["prefetch"]["mode"], "push");
    assert_eq!(of_first["prefetch"]["end_reason"], "nothing");
    assert_eq!(of_first["log"], "standard error");
    assert!(of_first["errors"].as_u64() > Some(0), "{of_first}");
    assert!(of_first["rss_bytes"].as_u64() > Some(0) && of_first["since"].as_f64() > Some(0.0));
    let of_second = &server_of(&second);
    assert_eq!(of_second["medium"], "flat-10ms-25mbs");
    // The queue gets the traits of the medium.
    assert_eq!(of_second["queue"]["elevator"], "headstart");
    assert_eq!(of_second["queue"]["by_position"], false);
    assert_eq!(of_second["queue"]["classes"][0]["class"], "demand");
    assert_eq!(of_second["queue"]["jain_index"], 1.0);
    assert_eq!(of_second["fs"], tree.as_str());
    assert_ne!(of_second["log"], "standard error");

    let seen = run(["top", "--interval", "0.1", "-n", "2", &tree]).ok().stdout;
    assert_eq!(seen.matches(&second).count(), 2, "{seen}");
    assert!(!seen.contains(&first), "{seen}");
    let shown = run(["status", &tree]).ok().stdout;
    assert!(shown.contains(&root) && !shown.contains("cold.hsi"), "{shown}");
    run(["status", &scene.arg("disk.raw")]).fails(1, &["disk.raw", "nothing serves"]);

    // The memory killer spares root's servers, and their code stays in memory.
    let process = of_second["pid"].as_u64().expect("a process");
    let score = fs::read_to_string(format!("/proc/{process}/oom_score_adj")).expect("read");
    // Root of a container may not lower it (CAP_SYS_RESOURCE); then it is as it was.
    let try_it = "echo -900 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj";
    let tried = Command::new("sh").args(["-c", try_it]).stderr(Stdio::null()).output().expect("sh starts");
    assert_eq!(score, String::from_utf8_lossy(&tried.stdout));
    assert!(of_second["locked_bytes"].as_u64() > Some(1 << 20), "{of_second}");
    assert!(of_second["locked_bytes"].as_u64() <= of_second["rss_bytes"].as_u64(), "{of_second}");

    drop(file);
    foreground.signal(Signal::TERM);
    assert!(foreground.end().0.success());
    assert_eq!(status_of(&first), [] as [Value; 0]);
    assert_eq!(server_of(&second)["dir"], second.as_str());
    umount(&tree);
    scene.wait_until_clean();
    assert_eq!(status_of(&second), [] as [Value; 0]);
    assert!(!fs::exists(format!("/run/headstart/{process}.log")).expect("asked"));
}

#[test]
fn a_command_keeps_its_own_score_of_the_memory_killer() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let own = fs::read_to_string("/proc/self/oom_score_adj").expect("read");
    let image = scene.root("root.hsi");
    assert_eq!(run(["run", &image, "--", "cat", "/proc/self/oom_score_adj"]).ok().stdout, own);
}

#[test]
fn a_service_manager_is_told() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 33);
    let dir = scene.folder("dir");
    let manager = UnixDatagram::bind(scene.path("notify")).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let told = || {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).expect("told");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = headstart(["mount", "-f", &scene.arg("cold.hsi"), &dir]);
    command.env("NOTIFY_SOCKET", scene.path("notify"));
    let serving = Running::start_command(command);
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=") && ready.contains(&dir), "{ready}");
    assert!(fs::exists(scene.path("dir/disk.img")).expect("asked"), "ready means mounted");
    serving.signal(Signal::TERM);
    assert!(told().starts_with("STOPPING=1\n"));
    assert!(serving.end().0.success());
    scene.wait_until_clean();
}

#[test]
fn the_journal_gets_levels() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 320, 34);
    damage(&scene, "cold.hsi");
    let dir = scene.folder("dir");
    let journal = fs::File::create(scene.path("journal")).expect("a file");
    let about = journal.metadata().expect("known");
    let mut command = headstart(["mount", &scene.arg("cold.hsi"), &dir]);
    command.env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()));
    // In the background too: the journal does not wait for the end of standard error.
    assert!(command.stdout(Stdio::null()).stderr(journal).status().expect("the program starts").success());
    fs::read(scene.path("dir/disk.img")).expect_err("damaged");
    assert_eq!(server_of(&dir)["log"], "journal");
    let said = fs::read_to_string(scene.path("journal")).expect("read");
    assert!(said.lines().any(|line| line.starts_with("<3>") && line.contains("cold window 0")), "{said}");
    umount(&dir);
    scene.wait_until_clean();
}

/// The log is a socket of the test's, in a /dev that only the server sees.
#[test]
fn background_servers_speak_to_the_system_log() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 320, 35);
    damage(&scene, "cold.hsi");
    let (dir, nodes) = (scene.folder("dir"), scene.folder("nodes"));
    let log = UnixDatagram::bind(scene.path("log")).expect("bound");
    log.set_read_timeout(Some(PATIENCE)).expect("set");
    let script = "set -e
        mount -t tmpfs none \"$1\"
        mknod \"$1/fuse\" c 10 229
        mknod \"$1/null\" c 1 3
        ln -s \"$2\" \"$1/log\"
        mount --bind \"$1\" /dev
        exec \"$0\" mount \"$3\" \"$4\"";
    let program = env!("CARGO_BIN_EXE_headstart");
    let status = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            program,
            &nodes,
            &scene.arg("log"),
            &scene.arg("cold.hsi"),
            &dir,
        ])
        .env_remove("JOURNAL_STREAM")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("unshare starts");
    assert!(status.success());
    let server = server_of(&dir);
    assert_eq!(server["log"], "syslog");
    let process = server["pid"].as_u64().expect("a process");
    fs::read(format!("/proc/{process}/root{dir}/disk.img")).expect_err("damaged");
    let mut bytes = [0; 4096];
    let length = log.recv(&mut bytes).expect("a message");
    let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
    assert!(message.starts_with(&format!("<27>headstart[{process}]: ")), "{message}");
    assert!(message.contains("cold window 0"), "{message}");
    let server = Pid::from_raw(process as i32).expect("a process");
    kill_process(server, Signal::TERM).expect("signalled");
    scene.wait_until_clean();
}

#[test]
fn what_a_killed_server_has_left_can_be_cleared() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    let words = ["mount", "-f", &image, &dir, "--fs", &tree, "--trusted", "--unsupervised"];
    let mut serving = Running::start(words);
    assert!(serving.said().contains("mounted"));
    let socket = format!("/run/headstart/{}.sock", serving.id());
    assert!(fs::exists(&socket).expect("asked"));
    serving.signal(Signal::KILL);
    assert!(!serving.end().0.success());
    assert_eq!(status_of(&dir), [] as [Value; 0]);
    assert!(!fs::exists(&socket).expect("asked"), "the program that finds a dead server's socket removes it");
    assert_eq!(scene.mounts().len(), 2);

    mount(&scene, &[&image, &dir, "--fs", &tree]).fails(1, &[&dir, "died"]);
    mount(&scene, &[&image, &dir, "--fs", &tree, "--clear-dead"]).ok();
    assert_eq!(fs::read_to_string(scene.path("tree/etc/motd")).expect("read"), "hello from the image\n");
    assert_eq!(scene.mounts().len(), 2);
    // A mount with a living server is not cleared away.
    mount(&scene, &[&image, &dir, "--fs", &tree, "--clear-dead"]).fails(1, &["already a mount point"]);
    umount(&tree);
    wait_until("the old loop device is gone", || {
        let devices = fs::read_dir("/sys/block").expect("devices").flatten();
        let mut files =
            devices.filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
        !files.any(|file| file.contains(&dir))
    });
    scene.wait_until_clean();
}

#[test]
fn a_server_covers_nothing_of_its_own() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let dir = scene.folder("dir");
    scene.image("dir/own.hsi", 50, 36);
    let image = scene.arg("dir/own.hsi");
    let words = ["own.hsi", "would cover", &dir];
    run(["mount", "-f", &image, &dir]).fails(1, &words);
    let other = scene.folder("other");
    run(["mount", "-f", &image, &other, "--fs", &dir]).fails(1, &words);
    scene.wait_until_clean();
}
