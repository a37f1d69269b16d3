//! Commands in the root of an image.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::scene::{Ran, Running, START, Scene, headstart, machine_has, run, wait_until};

fn run_in(image: &str, flags: &[&str], script: &str) -> Ran {
    let arguments = ["run", image].into_iter().chain(flags.iter().copied());
    run(arguments.chain(["--", "/bin/sh", "-c", script]))
}

#[test]
fn exit_codes_and_output_pass_through() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        assert_eq!(run_in(&image, &[], script).code, Some(code), "{script}");
    }
    let ran = run_in(&image, &[], "cat /etc/motd; echo to stderr >&2; echo x > /tmp/new && cat /tmp/new");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "hello from the image\nx\n"), "{ran:?}");
    assert!(ran.stderr.contains("to stderr"));
    // What it wrote is gone, and the image was not touched.
    assert_eq!(run_in(&image, &[], "cat /tmp/new 2>/dev/null").code, Some(1));
    run(["verify", &image]).ok();
    for mode in ["off", "warm", "hold", "push"] {
        let ran = run_in(&image, &["--prefetch", mode, "--medium", "flat-10ms-25mbs"], "cat /etc/motd");
        assert_eq!(ran.ok().stdout, "hello from the image\n", "{mode}");
    }
    run(["run", &image, "--", "/bin/no-such-program"])
        .fails(127, &["no-such-program", "No such file or directory"]);
    scene.wait_until_clean();
    assert_eq!(scene.names(), ["root.hsi"]);
}

/// Temporary files and shared memory count as well.
#[test]
fn what_a_command_writes_has_a_bound() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let busybox = fs::metadata("/bin/busybox").expect("there").len();
    let writes = |file: &str, scratch: u64| {
        let scratch = scratch.to_string();
        run_in(&image, &["--scratch", &scratch], &format!("cat /bin/busybox >{file}"))
    };
    for file in ["/new", "/tmp/new", "/dev/shm/new"] {
        writes(file, busybox / 2).fails(1, &["No space left on device", "of scratch", "--scratch"]);
        let ran = writes(file, busybox * 2).ok();
        assert!(!ran.stderr.contains("scratch"), "{ran:?}");
    }
    // The kernel's size=0 is no bound.
    writes("/new", 0).fails(2, &["--scratch", "4K"]);
    let many = "i=0; while echo >/tmp/$i; do i=$((i + 1)); done";
    assert!(run_in(&image, &["--scratch", "64K"], many).stderr.contains("of scratch"));
}

#[test]
fn signals_reach_the_command() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let script = "trap 'exit 5' TERM; echo up; while :; do sleep 0.1; done";
    let mut running = Running::start(["run", &image, "--", "/bin/sh", "-c", script]);
    assert_eq!(running.printed(), "up\n");
    running.signal(Signal::TERM);
    let (status, _, said) = running.end();
    assert_eq!(status.code(), Some(5), "{said}");
    scene.wait_until_clean();
}

/// The limit is known where the image knows the program's time, and the medium is modelled.
#[test]
fn the_limit_of_a_start_is_in_its_summary() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (image, fast, profile) = (scene.root("root.hsi"), scene.arg("fast.hsi"), scene.arg("start.hsp"));
    let command = ["--", "/bin/sh", "-c", "cat /etc/motd; sleep 0.7"];
    run(["profile", &image, "-o", &profile, "--grace", "0"].into_iter().chain(command)).ok();
    run(["optimize", &image, "-p", &profile, "-o", &fast]).ok();
    let limit = |image: &str, medium: &str| {
        let json = scene.arg("run.json");
        let flags = ["run", image, "--emulate", medium, &format!("--json={json}")];
        run(flags.into_iter().chain(command)).ok();
        let summary: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(json).expect("a summary")).expect("JSON");
        summary["limit_s"].as_f64()
    };
    let on_flat = limit(&fast, "flat-10ms-25mbs").expect("a limit");
    assert!(on_flat > 0.71, "computing and an access: {on_flat}");
    let on_slow = limit(&fast, "flat-300ms-25mbs").expect("a limit");
    assert!(on_slow > on_flat, "{on_slow}, {on_flat}");
    assert_eq!(limit(&fast, "none"), None, "a medium that is not modelled");
    assert_eq!(limit(&image, "flat-10ms-25mbs"), None, "without a profile");
}

/// The loop device of a start, as the start's own table of mounts shows it.
fn loop_device(process: u32) -> Option<String> {
    let table = fs::read(format!("/proc/{process}/mountinfo")).ok()?;
    let table = String::from_utf8_lossy(&table);
    let at = table.find("/dev/loop")?;
    table[at..].split_whitespace().next().map(str::to_owned)
}

fn is_attached(device: &str) -> bool {
    let name = device.trim_start_matches("/dev/");
    fs::exists(format!("/sys/block/{name}/loop/backing_file")).unwrap_or(false)
}

/// `script` as of a shell whose /mnt is an empty folder of its own; `$0` is the program, `$@` the arguments.
pub(crate) fn with_empty_mnt(script: &str, arguments: &[&str]) -> Ran {
    let script = format!("set -e; mount -t tmpfs none /mnt; {script}");
    let words = ["--mount", "/bin/sh", "-c", &script, env!("CARGO_BIN_EXE_headstart")];
    let mut command = Command::new("/usr/bin/unshare");
    command.args(words).args(arguments).stdin(Stdio::null()).output().expect("unshare starts").into()
}

/// A start needs a folder to mount on, and does not take one in which something is that it needs.
#[test]
fn an_image_may_lie_wherever_one_mounts() {
    if !machine_has(&[START, &["/usr/bin/unshare"]].concat()) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let script = "cp $1 /mnt/root.hsi; $0 profile /mnt/root.hsi -o $2 --grace 0 -- /bin/cat /etc/motd
        $0 run /mnt/root.hsi -- /bin/cat /etc/motd; ls -A /mnt";
    let ran = with_empty_mnt(script, &[&image, &scene.arg("start.hsp")]).ok();
    assert_eq!(ran.stdout, "hello from the image\nhello from the image\nroot.hsi\n", "{ran:?}");
    // Found out from the image, once more opened.
    let profile = run(["inspect", &scene.arg("start.hsp"), "--json"]).ok().json();
    assert!(profile["files"].as_u64() >= Some(2), "{profile}");
    scene.wait_until_clean();
}

/// The output of the command reaches its reader as it comes, also before a line ends. When the reader is
/// gone, the command gets the same error as if it had printed there itself.
#[test]
fn output_is_passed_on_as_it_comes_and_to_nobody_else() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let script = "echo -n 'your name? '; read name; echo bye";
    let mut command = headstart(["run", &image, "--ready", "never", "--", "/bin/sh", "-c", script]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut prompt = [0; 11];
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut prompt).expect("a prompt");
    assert_eq!(&prompt, b"your name? ");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("ended").code(), Some(1), "it was never ready");

    let endless = ["run", &image, "--ready", "never", "--", "/bin/sh", "-c", "while :; do echo x; done"];
    assert!(!Running::start(endless).hang_up().success());
    scene.wait_until_clean();
}

#[test]
fn a_command_that_never_gets_ready_is_ended_and_leaves_nothing() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    // The argument is how its process is found again.
    let mark = scene.arg("mark");
    let script = "echo up; sleep 1000";
    // Its time includes that of the mounts, and it must be looked at before it is over: a slow machine needs
    // more.
    let device = ["1", "10", "100"].into_iter().find_map(|seconds| {
        let flags =
            ["--ready", "never", "--ready-timeout", seconds, "--", "/bin/sh", "-c", script, "sh", &mark];
        let mut running = Running::start(["run", &image].into_iter().chain(flags));
        let was_up = running.printed() == "up\n";
        let device = loop_device(running.id()).filter(|_| was_up);
        let (status, _, said) = running.end();
        assert_eq!(status.code(), Some(1));
        for words in [&format!("not ready after {seconds} s"), "never", "--ready-timeout"] {
            assert!(said.contains(words), "{said}");
        }
        scene.wait_until_clean();
        device
    });
    let device = device.expect("a loop device");
    wait_until("the loop device is free", || !is_attached(&device));

    // One that ends without ever being ready failed, too.
    let ran = run_in(&image, &["--ready", "never"], "echo not yet");
    ran.fails(1, &["without being ready"]);
    let ran = run_in(&image, &["--ready", "^up$"], "echo up; exit 3");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "up\n"));
    scene.wait_until_clean();
    assert_eq!(scene.names(), ["root.hsi"]);
}

#[test]
fn a_start_that_is_killed_takes_its_command_along() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let mark = scene.arg("mark");
    let arguments = ["run", &image, "--", "/bin/sh", "-c", "echo up; while :; do sleep 1; done", "sh", &mark];
    let mut running = Running::start(arguments);
    assert_eq!(running.printed(), "up\n");
    let device = loop_device(running.id()).expect("a loop device");
    running.signal(Signal::KILL);
    running.end();
    scene.wait_until_clean();
    wait_until("the loop device is free", || !is_attached(&device));
}

#[test]
fn a_start_is_recorded_optimized_and_repeated() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (profile, fast) = (scene.arg("start.hsp"), scene.arg("fast.hsi"));
    let script = ["--", "/bin/sh", "-c", "cat /etc/motd; md5sum /bin/busybox"];
    let record = ["profile", &image, "-o", &profile, "--grace", "0"];
    let recorded = run(record.into_iter().chain(script)).ok();
    assert!(recorded.stdout.starts_with("hello from the image\n"), "{recorded:?}");
    let as_json = run(record.into_iter().chain(["--json"]).chain(script)).ok();
    assert!(as_json.stderr.contains("hello from the image\n"), "{as_json:?}");
    assert_eq!(as_json.json()["profile"], profile.as_str());
    let inspected = run(["inspect", "--json", &profile]).ok().json();
    let busybox = fs::metadata("/bin/busybox").expect("busybox").len();
    assert!(inspected["hot_bytes"].as_u64().is_some_and(|bytes| bytes >= busybox), "{inspected}");
    let layers = run(["inspect", &profile, "--layers", &image, "--json"]).ok().json();
    let number = |layer: &str, what: &str| layers[layer][what].as_u64().expect("a number");
    // Blocks of windows that are zero come from no layer.
    assert!(Some(number("blocks", "unique_bytes")) <= inspected["hot_bytes"].as_u64(), "{layers}");
    assert!(number("blocks", "unique_bytes") >= busybox, "{layers}");
    assert!(number("chunks", "unique_bytes") >= busybox, "{layers}");
    assert!(number("medium", "unique_bytes") < number("chunks", "unique_bytes"), "{layers}");
    assert!(number("medium", "references") >= number("medium", "unique"), "{layers}");
    run(["inspect", &image, "--layers", &image]).fails(1, &["--layers", "a profile"]);
    run(["optimize", &image, "-p", &profile, "-o", &fast]).ok();
    let layers = run(["inspect", &profile, "--layers", &fast, "--json"]).ok().json();
    assert!(layers["used_share"].as_f64() > Some(0.9), "the hot region has what is used: {layers}");
    run(["verify", &fast]).ok();
    let summary = scene.arg("summary.json");
    // So fast that all of it has come before the fastest machine has mounted and started anything.
    let again = ["run", &fast, "--medium", "flat-1ms-400mbs", &format!("--json={summary}")];
    let ran = run(again.into_iter().chain(script)).ok();
    assert_eq!(ran.stdout, recorded.stdout);
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(scene.path("summary.json")).expect("written")).expect("JSON");
    assert!(summary["prefetch_bytes"].as_u64().is_some_and(|bytes| bytes >= busybox), "{summary}");
    scene.wait_until_clean();

    // A start that is never ready is no record.
    let never = ["profile", &image, "-o", &scene.arg("never.hsp"), "--ready", "never", "--", "/bin/true"];
    run(never).fails(1, &["without being ready", "nothing was recorded"]);
    assert_eq!(scene.names(), ["fast.hsi", "root.hsi", "start.hsp", "summary.json"]);
}

#[test]
fn a_summary_for_a_device_goes_into_it_and_does_not_replace_it() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    std::os::unix::fs::symlink("/dev/null", scene.path("sink")).expect("a link");
    run(["run", &image, &format!("--json={}", scene.arg("sink")), "--", "/bin/true"]).ok();
    assert!(fs::symlink_metadata(scene.path("sink")).expect("still there").is_symlink());
}
