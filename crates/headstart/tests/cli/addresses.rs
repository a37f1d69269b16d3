//! Remote images, by every command that takes an image, and with a full disk.

use std::fs;
use std::process::{Command, Stdio};

use crate::boots::{GUEST, boot, little_guest};
use crate::filling_folder::FillingFolder;
use crate::scene::{Ran, Running, START, Scene, machine_has, run, wait_until};
use crate::web::{NGINX, Nginx, remote, run_remote};

const CACHE: &str = "--disk-cache=cache";

/// Puts an image to where nginx serves it; gives its address with its name.
fn publish(scene: &Scene, nginx: &Nginx, image: &str) -> String {
    fs::copy(image, scene.path("www/a.hsi")).expect("published");
    let ran = run(["verify", image]).ok();
    format!("{}#{}", nginx.url("a.hsi"), ran.stdout.lines().last().expect("a name"))
}

#[test]
fn a_file_fills_itself_from_a_server() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 1500, 101);
    let nginx = Nginx::start(&scene, "");
    let url = publish(&scene, &nginx, &scene.arg("disk.hsi"));
    let name = scene.path("").file_name().expect("a name").to_string_lossy().into_owned();
    let file = folder.path().join(format!("{name}.img")).display().to_string();
    let command = remote(&scene, ["attach", "--foreground", &url, &file, CACHE]);
    let mut guard = Running::start_command(command);
    let said = guard.said();
    assert!(said.contains("fills itself"), "{said}");
    assert!(fs::read(&file).expect("read") == disk);
    // It ends when the file is complete.
    assert!(guard.end().0.success());
    drop(nginx);
    scene.wait_until_clean();
    assert!(fs::read(&file).expect("read") == disk);
}

#[test]
fn mount_takes_addresses() {
    let needed: Vec<&str> = START.iter().copied().chain([NGINX]).collect();
    if !machine_has(&needed) {
        return;
    }
    let scene = Scene::new();
    let (root, dir, tree) = (scene.root("root.hsi"), scene.folder("dir"), scene.folder("tree"));
    let nginx = Nginx::start(&scene, "");
    let url = publish(&scene, &nginx, &root);
    let script = "set -e
        mount -t tmpfs none /sbin
        if [ -d /run/mount ]; then mount -t tmpfs none /run/mount; fi
        ln -s \"$0\" /sbin/mount.headstart
        mount -t headstart \"$1\" \"$2\" -o fs=\"$3\",_netdev
        cat \"$3/etc/motd\"
        umount \"$3\"
        echo \"$1 $2 headstart fs=$3,noauto,_netdev 0 0\" >\"$4\"
        mount -T \"$4\" \"$2\"
        cat \"$3/etc/motd\"
        umount \"$3\"";
    let open = |name: &str| fs::File::create(scene.path(name)).expect("a file");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_headstart"), &url, &dir, &tree]);
    for name in ["http_proxy", "https_proxy", "all_proxy", "XDG_RUNTIME_DIR"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let status = command
        .arg(scene.arg("fstab"))
        .stdin(Stdio::null())
        .stdout(open("printed"))
        .stderr(open("said"))
        .status()
        .expect("unshare starts");
    let read = |name: &str| fs::read_to_string(scene.path(name)).expect("read");
    assert!(status.success(), "{}", read("said"));
    assert_eq!(read("printed"), "hello from the image\nhello from the image\n");
    drop(nginx);
    scene.wait_until_clean();
}

#[test]
fn a_guest_opens_its_disk_once() {
    let needed: Vec<&str> = GUEST.iter().copied().chain([NGINX]).collect();
    if !machine_has(&needed) {
        return;
    }
    let (scene, image) = little_guest();
    let nginx = Nginx::start(&scene, "");
    let url = publish(&scene, &nginx, &image);
    let flags = ["--memory", "64M", "--ready", "^up$", CACHE];
    let mut command = remote(&scene, ["boot", &url].iter().chain(&flags));
    Ran::from(command.env("TMPDIR", scene.path("tmp")).output().expect("it starts")).ok();
    let opened = |from: usize| {
        nginx.answered()[from..].iter().filter(|(_, _, request)| request.contains("bytes=0-")).count()
    };
    assert_eq!(opened(0), 1, "{:?}", nginx.answered());
    // An image from which no guest can boot is reported all the same.
    scene.image("www/b.hsi", 40, 102);
    let ran = boot(&scene, &nginx.url("b.hsi"), &["--memory", "64M", "--disk-cache=none", "--insecure"]);
    ran.fails(1, &["b.hsi", "file system"]);
    drop(nginx);
    scene.wait_until_clean();
}

#[test]
fn the_cache_is_filled_on_request_and_is_enough_then() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 2600, 103);
    let nginx = Nginx::start(&scene, "");
    let url = publish(&scene, &nginx, &scene.arg("a.hsi"));
    let filled = run_remote(&scene, &["cache", "fill", &url, CACHE, "--json", "--now"]).ok().json();
    assert_eq!(filled["is_complete"], true);
    let fetched = filled["fetched_bytes"].as_u64().expect("a number");
    assert!(fetched > 5_000_000, "{filled}");
    // A few large requests.
    assert!(nginx.answered().len() <= 6, "{:?}", nginx.answered());
    let again = run_remote(&scene, &["cache", "fill", &url, CACHE, "--json"]).ok().json();
    assert_eq!((again["fetched_bytes"].as_u64(), again["kept_bytes"].as_u64()), (Some(0), Some(fetched)));
    // What a crash has left of entries is fetched again.
    let folders = fs::read_dir(scene.path("cache/chunks")).expect("listed").flatten();
    let entries = folders.flat_map(|folder| fs::read_dir(folder.path()).expect("listed").flatten());
    for (number, entry) in entries.enumerate().filter(|(number, _)| number % 8 < 2) {
        let mut bytes = fs::read(entry.path()).expect("an entry");
        match number % 8 {
            0 => bytes.fill(0),
            _ => bytes.clear(),
        }
        fs::write(entry.path(), bytes).expect("damaged");
    }
    let mended = run_remote(&scene, &["cache", "fill", &url, CACHE, "--json", "--now"]).ok().json();
    let bytes = |key: &str| mended[key].as_u64().expect("a number");
    assert!(bytes("fetched_bytes") > 0 && bytes("kept_bytes") > 0, "{mended}");
    assert_eq!(bytes("fetched_bytes") + bytes("kept_bytes"), fetched, "{mended}");
    drop(nginx);
    let export = ["export", &url, "-o", "out.raw", "--format", "raw", "--force", CACHE, "--offline"];
    run_remote(&scene, &export).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    run_remote(&scene, &["verify", &url, CACHE, "--offline"]).ok();
    run_remote(&scene, &["cache", "fill", &scene.arg("a.hsi"), CACHE]).fails(1, &["a file"]);
    // Where there is no room it is not said that all is there.
    let nginx = Nginx::start(&scene, "");
    let url = publish(&scene, &nginx, &scene.arg("a.hsi"));
    run_remote(&scene, &["cache", "limit", "1M", "--disk-cache=small"]).ok();
    run_remote(&scene, &["cache", "fill", &url, "--disk-cache=small", "--now"]).fails(1, &["limit"]);
}

#[test]
fn a_cache_in_the_wrong_folder_replaces_and_removes_nothing_there() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("home/addresses/friends")).expect("folders");
    let [mum, limit] = ["home/addresses/mum.json", "home/limit"].map(|name| scene.path(name));
    for file in [&mum, &limit] {
        fs::write(file, "precious").expect("written");
    }
    run_remote(&scene, &["cache", "clear", "--disk-cache=home"]).ok();
    let refused = run_remote(&scene, &["cache", "limit", "1M", "--disk-cache=home"]);
    refused.fails(1, &["home/limit", "no limit of a cache"]);
    for file in [&mum, &limit] {
        assert_eq!(fs::read_to_string(file).expect("still there"), "precious");
    }
    assert!(scene.path("home/addresses/friends").is_dir());
    for action in [&["show"][..], &["clear"], &["limit", "1M"]] {
        let words = [&["cache"], action, &["--disk-cache=none"]].concat();
        run_remote(&scene, &words).fails(1, &["none", "name a folder"]);
    }
}

#[test]
fn a_full_disk_below_the_cache_is_no_error() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 2000, 104);
    let nginx = Nginx::start(&scene, "");
    let url = publish(&scene, &nginx, &scene.arg("a.hsi"));
    // 1 MiB, of which a part is taken: far less than the image, and too little for the last twentieth to be
    // left.
    let small = scene.folder("small");
    let script = "mount -t tmpfs -o size=1m none \"$1\" && head -c 300000 /dev/zero >\"$1/taken\" && shift && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_headstart"), &small]);
    command.args(["export", &url, "-o", "out.raw", "--format", "raw", "--force", "--disk-cache", &small]);
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let ran = Ran::from(command.current_dir(scene.path("")).output().expect("unshare starts"));
    let ran = ran.ok();
    assert!(ran.stderr.matches("is not kept").count() <= 1, "{}", ran.stderr);
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    wait_until("nothing is left", || scene.mounts().is_empty());
}
