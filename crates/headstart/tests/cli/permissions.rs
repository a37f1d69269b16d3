//! Which users may read the program's output, caches and files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::filling_folder::FillingFolder;
use crate::scene::{START, Scene, headstart, machine_has, mount, run};
use crate::web::{NGINX, Nginx, run_remote};

const NOBODY: u32 = 65534;
const SECRET: &str = "root:$6$not-for-everybody";

/// Whether another user finds the secret in this file.
fn another_user_finds_the_secret(path: &Path) -> bool {
    let mut grep = Command::new("grep");
    grep.args(["-a", "-c", "-F", SECRET]).arg(path).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    let ran = grep.output().expect("grep starts");
    ran.status.success()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display())).mode()
        & 0o777
}

/// Lets other users enter the scene.
fn open_to_others(scene: &Scene) {
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).expect("opened");
}

/// An image of a root with a file that only its owner may read.
fn root_with_a_secret(scene: &Scene) -> String {
    let root = scene.path("root/etc");
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("shadow"), SECRET.repeat(100)).expect("written");
    fs::set_permissions(root.join("shadow"), fs::Permissions::from_mode(0o600)).expect("closed");
    let image = scene.arg("root.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--codec", "zstd:1"]).ok();
    image
}

#[test]
fn who_may_not_read_a_file_in_the_tree_may_not_read_it_in_the_disk() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    open_to_others(&scene);
    let image = root_with_a_secret(&scene);
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    mount(&scene, &[&image, &dir, "--fs", &tree]).ok();
    let (disk, shadow) = (scene.path("dir/disk.img"), scene.path("tree/etc/shadow"));
    assert!(fs::read_to_string(&shadow).expect("root reads").contains(SECRET));
    assert!(!another_user_finds_the_secret(&shadow), "its permissions say so");
    assert!(!another_user_finds_the_secret(&disk), "the raw disk gives what the tree does not");
    rustix::mount::unmount(&tree, rustix::mount::UnmountFlags::empty()).expect("unmounted");
    scene.wait_until_clean();

    // A flag opens it: for all users, or for the user that a guest runs as.
    for (flag, value, owner) in [("--mode", "0444", 0), ("--owner", "65534:65534", NOBODY)] {
        mount(&scene, &[&image, &dir, flag, value]).ok();
        assert!(another_user_finds_the_secret(&disk), "{flag} {value}");
        assert_eq!(fs::metadata(&disk).expect("there").uid(), owner);
        rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).expect("unmounted");
        scene.wait_until_clean();
    }
    mount(&scene, &[&image, &dir, "--mode", "4444"]).fails(2, &["three octal digits"]);
    mount(&scene, &[&image, &dir, "--owner", "no-such-user"]).fails(2, &["no user 'no-such-user'"]);
}

#[test]
fn a_file_that_fills_itself_is_as_closed_as_the_disk() {
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("opened");
    let image = root_with_a_secret(&scene);
    for (number, (flags, opened)) in
        [(&[][..], false), (&["--mode", "0444"][..], true), (&["--owner", "65534:65534"], true)]
            .into_iter()
            .enumerate()
    {
        let file = folder.path().join(format!("{number}.img"));
        let file_word = file.display().to_string();
        let mut attach = headstart(["attach", &image, &file_word]);
        assert!(attach.args(flags).stderr(Stdio::null()).status().expect("started").success());
        assert_eq!(another_user_finds_the_secret(&file), opened, "{flags:?}");
        run(["hydrate", &file_word]).ok();
        assert_eq!(another_user_finds_the_secret(&file), opened, "complete, {flags:?}");
    }
}

#[test]
fn what_was_fetched_is_nobody_elses_to_read() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("made.hsi", 600, 7);
    fs::create_dir_all(scene.path("www")).expect("a folder");
    fs::rename(scene.path("made.hsi"), scene.path("www/a.hsi")).expect("published");
    let nginx = Nginx::start(&scene, "");
    let url = nginx.url("a.hsi");
    run_remote(&scene, &["export", &url, "-o", "out.raw", "--format", "raw", "--disk-cache=deep/cache"]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    let mut pending = vec![scene.path("deep")];
    let mut files = 0;
    while let Some(path) = pending.pop() {
        let found = fs::symlink_metadata(&path).expect("there");
        assert_eq!(found.mode() & 0o077, 0, "{}", path.display());
        if found.is_dir() {
            pending.extend(fs::read_dir(&path).expect("listed").map(|entry| entry.expect("one").path()));
        } else {
            files += 1;
        }
    }
    assert!(files > 2, "chunks and the address are kept");
}

#[test]
fn results_follow_the_umask() {
    let scene = Scene::new();
    scene.raw("disk.raw", 60, 3);
    run(["keygen", &scene.arg("k")]).ok();
    let script = "umask \"$1\"
        \"$0\" build disk.raw -o a.hsi --raw --codec zstd:1 &&
        \"$0\" export a.hsi -o a.cloop --format cloop &&
        \"$0\" sign a.hsi --key k.key --expires 30";
    for (umask, expected) in [("077", 0o600), ("027", 0o640), ("022", 0o644)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_headstart"), umask]).current_dir(scene.path(""));
        let ran = shell.output().expect("started");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        for name in ["a.hsi", "a.cloop", "a.hsi.minisig"] {
            assert_eq!(mode(scene.path(name)), expected, "{name} with {umask}");
            // A file that is replaced keeps its own.
            std::fs::remove_file(scene.path(name)).expect("removed");
        }
    }
    assert_eq!(mode(scene.path("k.key")), 0o600);
}

#[test]
fn an_nbd_socket_is_its_owners() {
    let scene = Scene::new();
    scene.image("a.hsi", 40, 4);
    let script = "umask 0; exec \"$0\" serve a.hsi --nbd \"unix:$PWD/s.sock\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_headstart")]).current_dir(scene.path(""));
    let mut server = crate::scene::Running::start_command(shell);
    let said = server.said();
    assert!(said.contains("s.sock"), "{said}");
    assert_eq!(mode(scene.path("s.sock")), 0o600);
    server.signal(rustix::process::Signal::TERM);
    server.end();
}
