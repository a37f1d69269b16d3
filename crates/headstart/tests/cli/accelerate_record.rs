//! What `headstart accelerate record` keeps: of what was in memory, of damaged lists, when it is ended.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::Signal;

use crate::accelerate::{Mounted, START, UUID, disk, records};
use crate::mounts::umount;
use crate::scene::{Running, Scene, has_tools, run, tool, wait_until};

#[test]
fn what_was_in_memory_stays_in_the_list() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let (list, mounted) = (scene.arg("list"), Mounted::new(&scene, "disk"));
    let start = ["--", "sh", "-c", START, mounted.arg()];
    let first = mounted.accelerate("record", &list, &start);
    if !records(&first) {
        return;
    }
    assert!(!first.stderr.contains("in memory already"), "{first:?}");
    let status = || mounted.accelerate("status", &list, &["--json"]).ok().json();
    let before = status();
    // Other tests empty the memory of the machine now and then: such a recording sees everything once more.
    let (mut from_memory, mut starts) = (0, 1);
    while from_memory < 4 {
        let again = mounted.accelerate("record", &list, &start).ok();
        from_memory += u32::from(again.stderr.contains("in memory already"));
        starts += 1;
        assert!(starts < 40, "{again:?}");
    }
    let after = status();
    assert_eq!((&after["starts"], &after["files"]), (&starts.into(), &before["files"]), "{after}");
    assert!(after["pages"].as_u64() >= before["pages"].as_u64(), "{before} {after}");
    // Also a first recording that sees nothing says why.
    let none = mounted.accelerate("record", &scene.arg("none"), &["--", "true"]).ok();
    assert!(none.stderr.contains("0 B came from the disk"), "{none:?}");
    drop(mounted);
    scene.wait_until_clean();
}

#[test]
fn a_damaged_list_is_made_anew() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let mounted = Mounted::new(&scene, "disk");
    let root = mounted.path.clone();
    let cat = |number: u32| format!("cat {}/a/{number} >/dev/null", root.display());
    let own = root.join(format!("var/lib/headstart/accelerate/{UUID}.pages"));
    if !records(&run(["accelerate", "record", "--root", mounted.arg(), "--", "sh", "-c", &cat(1)])) {
        return;
    }
    let mode = |path: &Path| fs::metadata(path).expect("made").mode() & 0o777;
    assert_eq!([mode(&root.join("var")), mode(&root.join("var/lib"))], [0o755, 0o755]);
    assert_eq!([mode(own.parent().expect("a folder")), mode(&own)], [0o700, 0o600]);

    let whole = fs::read(&own).expect("a list");
    let named = scene.path("list");
    let contents: [(&[u8], &[&str]); 3] =
        [(&whole[..whole.len() / 2], &[]), (b"", &[]), (b"a letter\n", &["--force"])];
    for (number, (content, more)) in (2..).zip(contents) {
        for list in [None, Some(named.to_str().expect("UTF-8"))] {
            fs::write(list.map_or(own.as_path(), Path::new), content).expect("written");
            let mut words = vec!["accelerate", "record", "--root", mounted.arg()];
            words.extend(list.into_iter().flat_map(|list| ["--list", list]));
            words.extend(more);
            let start = cat(2 * number + u32::from(list.is_some()));
            words.extend(["--json", "--", "sh", "-c", &start]);
            let ran = run(words).ok();
            assert!(ran.stderr.contains("a recording makes it anew"), "{ran:?}");
            assert_eq!((&ran.json()["starts"], &ran.json()["files"]), (&1.into(), &1.into()), "{ran:?}");
        }
    }
    // A text is replaced by that flag only.
    fs::write(&named, "a letter\n").expect("written");
    let list = named.to_str().expect("UTF-8");
    mounted.accelerate("record", list, &["--", "true"]).fails(1, &["give --force"]);

    // The list of another file system may be needed there, but not where this one's own lies.
    disk(&scene, "ext4", "other", "11111111-2222-3333-4444-555555555555");
    let other = Mounted::new(&scene, "other");
    other.accelerate("record", list, &["--force", "--", "true"]).ok();
    mounted.accelerate("record", list, &["--", "true"]).fails(1, &["another file system", "remove it"]);
    fs::copy(list, &own).expect("copied");
    let own = run(["accelerate", "record", "--root", mounted.arg(), "--json", "--", "sh", "-c", &cat(20)]);
    assert_eq!(own.ok().json()["files"], 1);
    drop((mounted, other));
    scene.wait_until_clean();
}

#[test]
fn a_signal_ends_the_command_and_keeps_what_was_recorded() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let (mounted, list) = (Mounted::new(&scene, "disk"), scene.arg("list"));
    if !records(&mounted.accelerate("record", &list, &["--", "true"])) {
        return;
    }
    let traces = scene.folder("traces");
    tool("mount", &["-t", "tracefs", "tracefs", &traces]);
    let ready = scene.path("ready");
    let mut files = 0;
    // A command that does not heed it is killed by the second one.
    for (heeds, code) in [("", 143), ("trap '' TERM;", 137)] {
        let _ = fs::remove_file(&ready);
        files += 1;
        let start = format!(
            "{heeds} cat \"$0/a/{files}\" >/dev/null; echo $$ >{0}.part; mv {0}.part {0}
            while :; do read -r line <\"$0/a/{files}\"; done",
            ready.display()
        );
        let words = ["accelerate", "record", "--root", mounted.arg(), "--list", &list, "--"];
        let mut running = Running::start(words.iter().chain(&["sh", "-c", &start, mounted.arg()]));
        wait_until("the command has read", || ready.exists());
        let command = fs::read_to_string(&ready).expect("its number");
        running.signal(Signal::TERM);
        assert!(running.printed().starts_with("recorded: "));
        if code == 137 {
            running.signal(Signal::TERM);
        }
        let trace = format!("headstart-{}-", running.id());
        let (status, _, said) = running.end();
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(!Path::new("/proc").join(command.trim()).exists());
        let left = fs::read_dir(scene.path("traces/instances")).expect("listed").flatten();
        let mut left = left.map(|entry| entry.file_name().to_string_lossy().into_owned());
        assert!(!left.any(|name| name.starts_with(&trace)));
        let status = mounted.accelerate("status", &list, &["--json"]).ok().json();
        assert_eq!(status["files"], files, "{status}");
    }
    mounted.accelerate("record", &list, &["--", "/none"]).fails(127, &["cannot run /none: No such file"]);
    umount(&traces);
    drop(mounted);
    scene.wait_until_clean();
}
