//! Commands in a root of their own.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use hs_linux::LinuxError;
use hs_linux::rootenv::{Child, Exit, RootEnv, RootOptions, SpawnOptions, Stream};
use hs_testing::Test;
use tempfile::TempDir;

pub(crate) const TESTS: &[Test] = &[
    ("exit_codes_and_signals_pass_through", exit_codes_and_signals_pass_through),
    ("the_root_has_what_a_root_has", the_root_has_what_a_root_has),
    ("writes_stay_in_the_root", writes_stay_in_the_root),
    ("nothing_outlives_the_command", nothing_outlives_the_command),
    ("signals_are_passed_on", signals_are_passed_on),
    ("a_dropped_child_is_killed", a_dropped_child_is_killed),
    ("what_cannot_run_is_an_error", what_cannot_run_is_an_error),
    ("an_image_cannot_point_mounts_at_the_host", an_image_cannot_point_mounts_at_the_host),
];

/// The machine's own root below an overlay. It is at hand everywhere and has a shell.
///
/// To be taken as `(_workdir, env)`: what is declared last is dropped first, and a directory can only be
/// removed when nothing is mounted in it any more.
fn host_root() -> (TempDir, RootEnv) {
    let workdir = tempfile::tempdir().unwrap();
    let env = RootEnv::prepare(Path::new("/"), &workdir.path().join("work, : \\dir"), RootOptions::default())
        .unwrap();
    (workdir, env)
}

fn arguments(argv: &[&str]) -> Vec<OsString> {
    argv.iter().map(OsString::from).collect()
}

fn start(env: &RootEnv, script: &str, options: SpawnOptions) -> Child {
    env.spawn(&arguments(&["sh", "-c", script]), options).unwrap()
}

/// Runs a script and returns how it ended and what it printed.
fn run(env: &RootEnv, script: &str) -> (Exit, String) {
    let options = SpawnOptions { stdin: Stream::Null, stdout: Stream::Pipe, ..Default::default() };
    let mut child = start(env, script, options);
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    (child.wait().unwrap(), printed)
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap()
}

fn exit_codes_and_signals_pass_through() {
    let before = mounts();
    let (_workdir, env) = host_root();
    assert_eq!(run(&env, "exit 0").0, Exit::Code(0));
    assert_eq!(run(&env, "exit 42").0, Exit::Code(42));
    let (killed, _) = run(&env, "kill -KILL $$");
    assert_eq!((killed, killed.code()), (Exit::Signal(9), 137));
    assert_eq!(run(&env, "kill -TERM $$").0.code(), 143);
    drop(env);
    assert_eq!(mounts(), before, "no mount is left");
}

fn the_root_has_what_a_root_has() {
    let (_workdir, env) = host_root();
    let script = "set -e; echo $$; cd /proc; for p in [0-9]*; do echo $p; done | sort -n | head -1;
        echo x >/dev/null; head -c 3 /dev/zero | wc -c; test -c /dev/urandom; test -e /dev/ptmx;
        touch /tmp/t /dev/shm/t; test -d /sys/class; ! touch /sys/x 2>/dev/null; pwd; echo $ONLY; echo ${HOME-none}";
    let options = SpawnOptions {
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        cwd: Some("/usr".into()),
        env: Some(vec![("PATH".into(), "/usr/bin:/bin".into()), ("ONLY".into(), "this".into())]),
        ..Default::default()
    };
    let mut child = start(&env, script, options);
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Code(0), "{printed}");
    let lines: Vec<_> = printed.lines().map(str::trim).collect();
    assert_eq!(lines, ["2", "1", "3", "/proc", "this", "none"], "pid 2 below init, alone in /proc");
    let (_, printed) = run(&env, "cat /proc/self/status");
    let mask =
        |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(mask("SigBlk:"), "0000000000000000", "no signal is blocked");
    let (_, printed) = run(&env, "ls -l /proc/self/fd | grep -c -e memfd -e loop -e fuse");
    assert_eq!(printed.trim(), "0", "no descriptor leaks in");
    let options = SpawnOptions { stdin: Stream::Pipe, stdout: Stream::Pipe, ..Default::default() };
    let mut child = start(&env, "tr a-z A-Z", options);
    child.stdin.take().unwrap().write_all(b"through pipes").unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!((printed.as_str(), child.wait().unwrap()), ("THROUGH PIPES", Exit::Code(0)));
}

fn writes_stay_in_the_root() {
    let (_workdir, env) = host_root();
    let name = format!("/etc/headstart-test-{}", std::process::id());
    assert_eq!(run(&env, &format!("echo a >{name}; rm /etc/passwd")).0, Exit::Code(0));
    assert_eq!(run(&env, &format!("cat {name}; test ! -e /etc/passwd")), (Exit::Code(0), "a\n".into()));
    assert!(!Path::new(&name).exists());
    assert!(Path::new("/etc/passwd").exists());
}

fn nothing_outlives_the_command() {
    let (_workdir, env) = host_root();
    // The sleeper holds the pipe; reading to its end would not end if it lived on.
    let (exit, printed) = run(&env, "setsid sleep 100000 & echo started");
    assert_eq!((exit, printed.as_str()), (Exit::Code(0), "started\n"));
    // Orphans are buried while the command runs.
    let script =
        "(sh -c 'sleep 0 &' &) ; while grep -l Z /proc/[0-9]*/stat 2>/dev/null | grep -q .; do :; done";
    assert_eq!(run(&env, script).0, Exit::Code(0));
}

fn signals_are_passed_on() {
    let (_workdir, env) = host_root();
    for (signal, name) in [(libc::SIGTERM, "TERM"), (libc::SIGINT, "INT"), (libc::SIGHUP, "HUP")] {
        let script =
            format!("trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.01; done");
        let options = SpawnOptions { stdin: Stream::Null, stdout: Stream::Pipe, ..Default::default() };
        let mut child = start(&env, &script, options);
        let mut output = child.stdout.take().unwrap();
        let mut ready = [0; 6];
        output.read_exact(&mut ready).unwrap();
        // To this very process, as a service manager does.
        // SAFETY: a signal for which a handler is installed while the child lives.
        unsafe { libc::kill(libc::getpid(), signal) };
        let mut printed = String::new();
        output.read_to_string(&mut printed).unwrap();
        assert_eq!(printed.trim(), format!("got {name}"));
        assert_eq!(child.wait().unwrap(), Exit::Code(5));
    }
}

fn a_dropped_child_is_killed() {
    let (_workdir, env) = host_root();
    let options = SpawnOptions { stdin: Stream::Null, stdout: Stream::Pipe, ..Default::default() };
    let mut child = start(&env, "echo up; sleep 100000", options);
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut [0; 3]).unwrap();
    drop(child);
    assert_eq!(output.read(&mut [0]).unwrap(), 0, "no process holds the pipe any more");
    let child = start(&env, "sleep 100000", SpawnOptions::default());
    child.signal(libc::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Signal(libc::SIGKILL));
}

fn what_cannot_run_is_an_error() {
    let before = mounts();
    let (_workdir, env) = host_root();
    let missing = env.spawn(&arguments(&["no-such-program"]), SpawnOptions::default()).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "cannot run no-such-program in the image: No such file or directory (os error 2)"
    );
    let refused = env.spawn(&arguments(&["/etc/passwd"]), SpawnOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("Permission denied"), "{refused}");
    let options = SpawnOptions { cwd: Some(PathBuf::from("/no/such/place")), ..Default::default() };
    let lost = env.spawn(&arguments(&["true"]), options).unwrap_err();
    assert!(lost.to_string().contains("enter the working directory /no/such/place in the image"), "{lost}");
    let nul = env.spawn(&arguments(&["a\0b"]), SpawnOptions::default()).unwrap_err();
    assert!(matches!(nul, LinuxError::Command { .. }));
    drop(env);
    assert_eq!(mounts(), before);
}

fn an_image_cannot_point_mounts_at_the_host() {
    let before = mounts();
    let (lower, workdir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["proc", "sys", "tmp"] {
        fs::create_dir(lower.path().join(name)).unwrap();
    }
    symlink("/etc", lower.path().join("dev")).unwrap();
    let refused = RootEnv::prepare(lower.path(), workdir.path(), RootOptions::default()).unwrap_err();
    assert!(matches!(refused, LinuxError::RootDirectory { name: "dev", .. }), "{refused}");
    assert_eq!(mounts(), before, "what was mounted before the error is gone as well");
    // A link that leads somewhere inside the root is fine.
    fs::create_dir(lower.path().join("etc")).unwrap();
    let env = RootEnv::prepare(lower.path(), workdir.path(), RootOptions::default()).unwrap();
    assert!(env.root().join("etc/null").exists());
    assert!(!Path::new("/etc/null").exists());
}
