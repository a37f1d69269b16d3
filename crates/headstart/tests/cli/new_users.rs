//! What new users met: help, figures and messages that a person reads.

use std::fs;

use crate::mounts::umount;
use crate::scene::{Running, START, Scene, headstart, machine_has, mount, run};

/// A row of an example stands alone, in the help as in the manual.
#[test]
fn examples_keep_their_lines() {
    let example = "headstart build /srv/root -o root.hsi";
    for flag in ["-h", "--help"] {
        let help = run([flag]).ok().stdout;
        assert!(help.lines().any(|line| line.trim() == example), "{help}");
    }
    let scene = Scene::new();
    run(["docs", &scene.arg("docs")]).ok();
    for page in ["headstart.1", "headstart-build.1"] {
        let page = fs::read_to_string(scene.path("docs").join(page)).expect("read").replace("\\-", "-");
        assert!(page.contains(".SH EXAMPLES\n"), "{page}");
        assert!(page.lines().any(|line| line == example), "{page}");
        for section in ["SYNOPSIS", "EXIT STATUS", "FILES", "ENVIRONMENT"] {
            assert!(
                page.contains(&format!(".SH \"{section}\"")) || page.contains(&format!(".SH {section}\n")),
                "{page}"
            );
        }
    }
}

/// Also those that `-h` hides; and each that `--help` lists is there.
#[test]
fn manual_pages_have_a_text_for_every_option() {
    let scene = Scene::new();
    run(["docs", &scene.arg("docs")]).ok();
    let read = |name: &str| fs::read_to_string(scene.path("docs").join(name)).expect("read");
    let pages: Vec<String> = fs::read_dir(scene.path("docs"))
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".1") || name.ends_with(".8"))
        .collect();
    for name in &pages {
        let page = read(name);
        let options = page.split_once(".SH OPTIONS\n").map_or("", |(_, rest)| rest);
        let options = options.split("\n.SH ").next().unwrap_or_default();
        for option in options.split(".TP\n").skip(1) {
            let (term, text) = option.split_once('\n').unwrap_or((option, ""));
            let has_text = text.lines().next().is_some_and(|line| !line.is_empty() && !line.starts_with('.'));
            assert!(has_text, "{name}: {term} has no text: {text}");
        }
    }
    for command in crate::usage::COMMANDS {
        let page = read(&format!("headstart-{}.1", command.join("-"))).replace("\\-", "-");
        let help = run(command.iter().chain([&"--help"])).ok().stdout;
        for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
            let option = line.split([' ', '=', '[', '.']).find(|word| word.starts_with("--"));
            assert!(
                option.is_none_or(|option| page.contains(option)),
                "{command:?}: not in its page: {line}"
            );
        }
    }
}

#[test]
fn help_helps_with_help() {
    let help = run(["help"]).ok().stdout;
    assert_eq!(run(["help", "-h"]).ok().stdout, help);
    assert_eq!(run(["help", "run", "--help"]).ok().stdout, run(["help", "run"]).ok().stdout);
}

/// `-h` is for a glance: no command's is longer than a screen, and switches for experiments are in none.
#[test]
fn short_help_fits_on_a_screen() {
    let commands = crate::usage::COMMANDS.iter().copied().chain([&[][..]]);
    for command in commands {
        let help = run(command.iter().chain([&"-h"])).ok().stdout;
        let lines = help.lines().count();
        assert!(lines <= 50, "{command:?}: {lines} lines\n{help}");
        let long = run(command.iter().chain([&"--help"])).ok().stdout;
        for experiment in ["--late", "--markers", "--prefetch-rate", "--medium"] {
            assert!(!long.contains(experiment), "{command:?}: {experiment}");
        }
    }
}

#[test]
fn keys_and_signatures_are_told_as_json() {
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 2);
    let json = |command: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(command).ok().stdout).expect("one JSON object")
    };
    let made = json(&["keygen", &scene.arg("me"), "--json"]);
    let public = fs::read_to_string(scene.path("me.pub")).expect("the public key");
    assert!(public.contains(made["key"].as_str().expect("a key")));
    let signed = json(&["sign", &scene.arg("disk.hsi"), "--key", &scene.arg("me.key"), "--json"]);
    assert_eq!(signed["signature"], scene.arg("disk.hsi.minisig"));
    assert!(signed["image"].as_str().is_some_and(|name| name.starts_with("hs1-")));
}

/// Words that were renamed go on working.
#[test]
fn old_words_are_understood() {
    run(["boot", "x", "--medium", "floppy"]).fails(2, &["floppy", "cd-24x-cav"]);
    run(["hydrate", "/nonexistent"]).fails(1, &["/nonexistent"]);
    run(["optimise", "x"]).fails(2, &["--profile"]);
}

#[test]
fn completions_are_printed() {
    for (shell, word) in
        [("bash", "complete -F"), ("zsh", "#compdef headstart"), ("fish", "complete -c headstart")]
    {
        let ran = run(["completions", shell]).ok();
        assert!(ran.stdout.contains(word), "{shell}");
    }
    run(["completions", "cmd"]).fails(2, &["bash", "zsh", "fish"]);
}

#[test]
fn what_nobody_serves_is_a_failure_to_all_who_ask() {
    let scene = Scene::new();
    let nothing = scene.arg("nothing.hsi");
    let said = ["nothing serves", "nothing.hsi"];
    let asked = |command: &[&str]| {
        let mut asking = headstart(command);
        asking.env("XDG_RUNTIME_DIR", scene.path("."));
        crate::scene::Ran::from(asking.output().expect("it starts"))
    };
    asked(&["status", &nothing]).fails(1, &said);
    asked(&["top", "-n", "1", &nothing]).fails(1, &said);
}

/// Files over HTTP are neither prefetched nor kept, and the status mentions neither.
#[test]
fn the_status_of_files_over_http_has_no_blanks() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 1);
    let image = scene.arg("disk.hsi");
    let mut server = Running::start(["serve", &image, "--http", "127.0.0.1:0"]);
    let said = server.said();
    assert!(said.contains("served at http://"), "{said}");
    let ran = run(["status", &image]);
    server.signal(rustix::process::Signal::TERM);
    server.end();
    let status = ran.ok().stdout;
    assert!(status.contains("disk.hsi at http://127.0.0.1:"), "{status}");
    for blank in ["prefetch", ", by ;", "0 B of 0 B", "did not wait"] {
        assert!(!status.contains(blank), "'{blank}' in {status}");
    }
}

#[test]
fn inspect_has_no_json_in_its_table() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (profile, fast) = (scene.arg("start.hsp"), scene.arg("fast.hsi"));
    run(["profile", &image, "-o", &profile, "--grace", "0", "--", "/bin/cat", "/etc/motd"]).ok();
    run(["optimize", &image, "-p", &profile, "-o", &fast]).ok();
    let table = run(["inspect", &fast]).ok().stdout;
    assert!(!table.contains(['{', '[', '"']), "{table}");
    assert!(table.starts_with("kind"), "{table}");
    let segments = run(["inspect", &fast, "--json"]).ok().json()["hot_segments"].clone();
    let bytes = format!("0 hot_bytes            {} (", segments[0]["hot_bytes"]);
    assert!(table.contains("hot_segments             1\n") && table.contains(&bytes), "{table}");
    let table = run(["inspect", &profile]).ok().stdout;
    let cost = table.lines().find_map(|line| line.strip_prefix("read_cost_s")).expect("a cost").trim();
    assert!(cost.split_once('.').is_some_and(|(_, digits)| digits.len() == 3), "{cost}");
}

#[test]
fn a_command_that_failed_leaves_no_profile_unless_asked() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let profile = scene.arg("start.hsp");
    let failing = ["--grace", "0", "--", "/bin/sh", "-c", "exit 3"];
    let begin = ["profile", &image, "-o", &profile];
    run(begin.iter().chain(&failing)).fails(3, &["exit code 3", "start.hsp is not written", "--keep-failed"]);
    assert!(!scene.path("start.hsp").exists());
    let asked = run(begin.iter().chain(&["--keep-failed"]).chain(&failing));
    assert_eq!(asked.code, Some(3), "{asked:?}");
    assert_eq!(run(["inspect", &profile, "--json"]).ok().json()["kind"], "profile");
    scene.wait_until_clean();
}

/// Seconds, bytes and requests, once; at once when a line of the output says that it is ready.
#[test]
fn run_ends_with_a_line_of_figures() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let lines = |flags: &[&str], script: &str| {
        let words = [&["run"], flags, &[&*image, "--", "/bin/sh", "-c", script]].concat();
        let ran = run(words).ok();
        ran.stderr.lines().filter(|line| line.contains("iB read in")).map(str::to_owned).collect::<Vec<_>>()
    };
    let said = lines(&[], "cat /etc/motd");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("headstart: ended after ") && said[0].contains(" request"), "{said:?}");
    assert_eq!(lines(&["-q"], "true"), [""; 0]);
    assert_eq!(lines(&[&format!("--json={}", scene.arg("summary.json"))], "true"), [""; 0]);
    // The command goes on until the test sends a line.
    let script = "echo up; read line; echo over";
    let words = ["run", "--ready", "^up", &image, "--", "/bin/sh", "-c", script];
    let mut command = headstart(words);
    let mut waiting = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stderr = std::io::BufReader::new(waiting.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("iB read in") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut stderr, &mut line).expect("standard error");
        assert!(read > 0, "it ended without a line");
    }
    assert!(line.starts_with("headstart: ready after "), "{line}");
    drop(waiting.stdin.take());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut rest).expect("standard error");
    assert!(waiting.wait().expect("ended").success() && !rest.contains("iB read in"), "{rest}");
    scene.wait_until_clean();
}

#[test]
fn the_end_of_the_prefetch_is_said_once() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (profile, fast) = (scene.arg("start.hsp"), scene.arg("fast.hsi"));
    run(["profile", &image, "-o", &profile, "--grace", "0", "--", "/bin/cat", "/etc/motd"]).ok();
    run(["optimize", &image, "-p", &profile, "-o", &fast]).ok();
    let ran = run(["-v", "run", &fast, "--", "/bin/cat", "/etc/motd"]).ok();
    assert_eq!(ran.stderr.matches("prefetch ended").count(), 1, "{}", ran.stderr);
}

/// The mount point of a disk that was unmounted is empty again, and so can be used again.
#[test]
fn a_folder_can_be_mounted_on_twice_one_after_the_other() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 1);
    let dir = scene.folder("dir");
    for _ in 0..2 {
        mount(&scene, &[&scene.arg("disk.hsi"), &dir]).ok();
        umount(&dir);
        scene.wait_until_clean();
    }
}
