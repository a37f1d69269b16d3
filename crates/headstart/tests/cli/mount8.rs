//! The program as mount(8) and umount(8) call it, in a mount namespace in which /sbin holds nothing else.

use std::fs;
use std::process::{Command, Stdio};

use crate::scene::{START, Scene, machine_has};

/// `$0` is this program; helpers stand where `make install` puts them. mount's own notes stay in here.
const PREPARE: &str = "set -e
    mount -t tmpfs none /sbin
    if [ -d /run/mount ]; then mount -t tmpfs none /run/mount; fi
    ln -s \"$0\" /sbin/mount.headstart
    ln -s \"$0\" /sbin/umount.fuse.headstart
";

struct Ended {
    code: Option<i32>,
    printed: String,
    said: String,
}

/// Runs a script; `$1`, `$2`... are the arguments. What a server inherits must not be a pipe.
fn script(scene: &Scene, text: &str, arguments: &[&str]) -> Ended {
    let open = |name: &str| fs::File::create(scene.path(name)).expect("a file");
    let status = Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("{PREPARE}{text}"), env!("CARGO_BIN_EXE_headstart")])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(open("printed"))
        .stderr(open("said"))
        .env_remove("XDG_RUNTIME_DIR")
        .status()
        .expect("unshare starts");
    let read = |name: &str| fs::read_to_string(scene.path(name)).expect("read");
    Ended { code: status.code(), printed: read("printed"), said: read("said") }
}

#[test]
fn mount_and_umount_know_the_type() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (image, dir, tree) = (scene.root("root.hsi"), scene.folder("dir"), scene.folder("tree"));
    let text =
        "mount -t headstart \"$1\" \"$2\" -o fs=\"$3\",ro,nofail,_netdev,x-systemd.requires=a,budget=32M
        cat \"$3/etc/motd\"
        mount | grep headstart
        grep headstart /etc/mtab
        (cd \"$3\" && ! umount \"$2\")
        cat \"$3/etc/motd\"
        umount \"$2\"
        echo unmounted";
    let ended = script(&scene, text, &[&image, &dir, &tree]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.printed, ended.said);
    assert_eq!(ended.printed.matches("hello from the image\n").count(), 2, "{}", ended.printed);
    let shown = format!("{image} on {dir} type fuse.headstart (ro,");
    assert!(ended.printed.contains(&shown), "{}", ended.printed);
    assert!(ended.printed.contains(&format!("{image} {dir} fuse.headstart ro,")), "{}", ended.printed);
    assert!(ended.printed.ends_with("unmounted\n"));
    assert!(ended.said.contains("busy"), "{}", ended.said);
    // Everything was gone when umount came back, also the server in its namespace.
    scene.wait_until_clean();
}

#[test]
fn a_line_of_fstab_is_enough() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (image, dir, tree) = (scene.root("root.hsi"), scene.folder("dir"), scene.folder("tree"));
    let line = format!("{image} {dir} headstart fs={tree},noauto,nofail,medium=flat-10ms-25mbs 0 0\n");
    fs::write(scene.path("fstab"), line).expect("written");
    let text = "mount -T \"$1\" \"$2\"
        \"$0\" status \"$2\" --json
        umount \"$3\"";
    let ended = script(&scene, text, &[&scene.arg("fstab"), &dir, &tree]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.printed, ended.said);
    let status: serde_json::Value = serde_json::from_str(&ended.printed).expect("JSON");
    assert_eq!(status["mounts"][0]["medium"], "flat-10ms-25mbs");
    assert_eq!(status["mounts"][0]["fs"], tree.as_str());
    scene.wait_until_clean();
}

/// Both the server and a user take down what is left.
#[test]
fn the_disk_may_be_unmounted_right_behind_its_file_system() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (image, dir, tree) = (scene.root("root.hsi"), scene.folder("dir"), scene.folder("tree"));
    let text = "for round in $(seq 15); do
            mount -t headstart \"$1\" \"$2\" -o fs=\"$3\"
            umount \"$3\"
            umount \"$2\" || true
            while grep -q \"$2\" /proc/self/mountinfo; do :; done
        done";
    let ended = script(&scene, text, &[&image, &dir, &tree]);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    // What umount(8) says itself where it finds no mount any more.
    let others: Vec<&str> = ended.said.lines().filter(|line| !line.ends_with(": not mounted.")).collect();
    assert!(others.is_empty(), "{others:?}");
    scene.wait_until_clean();
}

#[test]
fn what_mount_cannot_have_is_named() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 31);
    let (image, dir, tree) = (scene.arg("cold.hsi"), scene.folder("dir"), scene.folder("tree"));
    let mounting = |options: &str| {
        script(&scene, "mount -t headstart \"$1\" \"$2\" -o \"$3\"", &[&image, &dir, options])
    };
    for (options, code, said) in [
        ("ro,journal=no", 1, "'journal=no'"),
        ("medium=floppy", 1, "floppy"),
        // There is no file system in it.
        (&format!("fs={tree}"), 32, "file system"),
        (&format!("fs={dir}"), 32, "disk.img comes into this folder"),
    ] {
        let ended = mounting(options);
        assert_eq!(ended.code, Some(code), "{options}: {}", ended.said);
        assert!(ended.said.contains(said), "{options}: {}", ended.said);
    }
    let ended = script(&scene, "mount -f -t headstart \"$1\" \"$2\"", &[&image, &dir]);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    scene.wait_until_clean();
}

#[test]
fn another_mount_namespace_can_be_meant() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (image, dir, tree) = (scene.root("root.hsi"), scene.folder("dir"), scene.folder("tree"));
    // A process in a namespace of its own, which ends when its standard input does.
    let text = "mkfifo \"$4\"
        unshare --mount sh -c 'echo $$ >\"$0.id\"; read end' \"$4\" <\"$4\" &
        exec 3>\"$4\"
        while ! [ -s \"$4.id\" ]; do :; done
        other=$(cat \"$4.id\")
        mount -N \"$other\" -t headstart \"$1\" \"$2\" -o fs=\"$3\"
        ! grep \"$2\" /proc/self/mountinfo
        cat \"/proc/$other/root$3/etc/motd\"
        umount -N \"$other\" \"$2\"
        ! grep \"$2\" \"/proc/$other/mountinfo\"
        echo unmounted";
    let ended = script(&scene, text, &[&image, &dir, &tree, &scene.arg("other")]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.printed, ended.said);
    assert_eq!(ended.printed, "hello from the image\nunmounted\n", "{}", ended.said);
    scene.wait_until_clean();
}
