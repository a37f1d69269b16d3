//! Images that lie on a web server: nginx.

use std::fs;
use std::path::Path;

use rustix::mount::MountFlags;

use crate::scene::{START, Scene, machine_has, run, wait_until};
use crate::web::{NGINX, Nginx, remote, run_remote};

/// An image of a raw disk at the server, the disk, and the image's name.
fn published(scene: &Scene, name: &str, blocks: usize, seed: u64) -> (Vec<u8>, String) {
    fs::create_dir_all(scene.path("www")).expect("a folder");
    let disk = scene.image("made.hsi", blocks, seed);
    fs::rename(scene.path("made.hsi"), scene.path("www").join(name)).expect("published");
    let ran = run(["verify", &scene.path("www").join(name).display().to_string()]).ok();
    let digest = ran.stdout.lines().last().expect("a name").to_owned();
    assert!(digest.starts_with("hs1-"), "{digest}");
    (disk, digest)
}

const CACHE: &str = "--disk-cache=cache";

#[test]
fn an_image_is_read_from_a_server_and_the_second_time_from_the_cache() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (disk, name) = published(&scene, "a.hsi", 600, 1);
    let nginx = Nginx::start(&scene, "");
    let url = format!("{}#{name}", nginx.url("a.hsi"));
    let export = |extra: &[&str]| {
        let _ = fs::remove_file(scene.path("out.raw"));
        let arguments =
            [&["export", &url, "-o", "out.raw", "--format", "raw", "--force", CACHE], extra].concat();
        run_remote(&scene, &arguments)
    };
    export(&[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    let first = nginx.answered().len();
    assert!(first > 0);

    // Again: one request asks whether it is the same, and it brings nothing.
    export(&[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    let answered = nginx.wait_answered(first + 1);
    assert_eq!(answered.len(), first + 1, "{answered:?}");
    let (status, bytes, _) = &answered[first];
    assert!(*status == 304 && *bytes <= 4096, "{answered:?}");

    // Without a request.
    export(&["--offline"]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    assert_eq!(nginx.answered().len(), first + 1);

    let shown = run_remote(&scene, &["cache", CACHE, "--json"]).ok().json();
    assert!(shown["bytes"].as_u64() > Some(100_000) && shown["addresses"] == 1, "{shown}");
    run_remote(&scene, &["cache", CACHE, "clear"]).ok();
    export(&["--offline"]).fails(1, &["--offline", "the cache does not"]);
}

/// A server without entity tags cannot say that a file is the same. The name can.
#[test]
fn what_opens_a_named_image_comes_from_the_cache_whatever_its_server_says_of_it() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (disk, name) = published(&scene, "a.hsi", 600, 1);
    let nginx = Nginx::start(&scene, "etag off;");
    let url = format!("{}#{name}", nginx.url("a.hsi"));
    let export = || {
        let words = ["export", &url, "-o", "out.raw", "--format", "raw", "--force", CACHE];
        run_remote(&scene, &words).ok();
        assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    };
    export();
    let first = nginx.answered();
    assert!(first[0].1 > 60_000, "{first:?}");
    export();
    let answered = nginx.wait_answered(first.len() + 1);
    assert_eq!(answered.len(), first.len() + 1, "{answered:?}");
    assert!(answered[first.len()].1 < 10_000, "{answered:?}");
}

#[test]
fn what_is_spoiled_in_the_cache_is_fetched_again() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (disk, name) = published(&scene, "a.hsi", 300, 2);
    let nginx = Nginx::start(&scene, "");
    let url = format!("{}#{name}", nginx.url("a.hsi"));
    let export = ["export", &url, "-o", "out.raw", "--format", "raw", "--force", CACHE];
    run_remote(&scene, &export).ok();
    let mut spoiled = 0;
    for folder in fs::read_dir(scene.path("cache/chunks")).expect("listed").flatten() {
        for entry in fs::read_dir(folder.path()).expect("listed").flatten() {
            let mut bytes = fs::read(entry.path()).expect("an entry");
            match spoiled % 3 {
                0 => bytes[0] ^= 1,
                1 => bytes.fill(0),
                _ => bytes.truncate(1),
            }
            fs::write(entry.path(), bytes).expect("spoiled");
            spoiled += 1;
        }
    }
    assert!(spoiled > 5);
    fs::remove_file(scene.path("out.raw")).expect("removed");
    run_remote(&scene, &export).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    // And all is as before.
    let requests = nginx.answered().len();
    run_remote(&scene, &export).ok();
    assert_eq!(nginx.wait_answered(requests + 1).len(), requests + 1);
}

#[test]
fn a_name_is_the_only_thing_that_is_trusted() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (_, first) = published(&scene, "a.hsi", 100, 3);
    let nginx = Nginx::start(&scene, "");
    let named = format!("{}#{first}", nginx.url("a.hsi"));
    run_remote(&scene, &["verify", &named, CACHE]).ok();
    // Another image takes its place: with a name it is refused, though the cache has the wanted one.
    let (_, second) = published(&scene, "a.hsi", 101, 4);
    run_remote(&scene, &["verify", &named, CACHE]).fails(1, &["another image", &first, &second]);
    run_remote(&scene, &["verify", &named, "--disk-cache=none"])
        .fails(1, &["another image", &first, &second]);
    // Without a name any image will do, and a message names the one that is served.
    let ran = run_remote(&scene, &["verify", &nginx.url("a.hsi"), CACHE]).ok();
    assert!(ran.stdout.contains(&second), "{ran:?}");
    // A file is held to its name as well.
    let path = scene.path("www/a.hsi").display().to_string();
    run(["verify", &format!("{path}#{second}")]).ok();
    run(["verify", &format!("{path}#{first}")]).fails(1, &["another image", &first, &second]);
}

#[test]
fn what_is_not_there_is_said_at_once_and_without_secrets() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let nginx = Nginx::start(&scene, "location /refused { return 403; }");
    for (path, words) in
        [("none.hsi", "404 (there is no such file)"), ("refused/a.hsi", "403 (it refuses access)")]
    {
        let url = nginx.url(path).replace("http://", "http://me:secret@") + "?token=secret";
        let ran = run_remote(&scene, &["inspect", &url, CACHE]);
        ran.fails(1, &[words, path]);
        assert!(!ran.stderr.contains("secret"), "{ran:?}");
    }
    run_remote(&scene, &["inspect", "ftp://x/a.hsi"]).fails(2, &["http"]);
    run_remote(&scene, &["inspect", "http://x/a.hsi#hs1-12"]).fails(2, &["no name of an image"]);
    let medium = ["run", "http://x/a.hsi", "--medium", "flat-10ms-25mbs", "--", "true"];
    run_remote(&scene, &medium).fails(1, &["--emulate"]);
}

#[test]
fn redirects_and_proxies_lead_to_it() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (_, name) = published(&scene, "a.hsi", 200, 5);
    let nginx =
        Nginx::start(&scene, "location /old { return 302 /a.hsi; } location /round { return 302 /round; }");
    run_remote(&scene, &["verify", &format!("{}#{name}", nginx.url("old")), "--disk-cache=none"]).ok();
    // Only once: then it is asked for where it is.
    let old = nginx.answered().iter().filter(|(_, _, request)| request.contains("/old")).count();
    assert_eq!(old, 1);
    run_remote(&scene, &["verify", &nginx.url("round"), CACHE]).fails(1, &["redirect"]);

    let proxy =
        Nginx::start(&scene, &format!("location / {{ proxy_pass http://127.0.0.1:{}; }}", nginx.port));
    let through = format!("http://nowhere.invalid/a.hsi#{name}");
    let mut command = remote(&scene, ["verify", &through, CACHE]);
    command.env("http_proxy", format!("http://127.0.0.1:{}", proxy.port));
    let ran: crate::scene::Ran = command.output().expect("the program starts").into();
    ran.ok();
    assert!(proxy.answered().iter().all(|(_, _, request)| request.contains("http://nowhere.invalid/a.hsi")));
}

#[test]
fn a_program_starts_from_a_server_with_few_requests() {
    let needed: Vec<&str> = START.iter().copied().chain([NGINX]).collect();
    if !machine_has(&needed) {
        return;
    }
    let scene = Scene::new();
    let root = scene.root("root.hsi");
    fs::create_dir_all(scene.path("www")).expect("a folder");
    run(["profile", &root, "-o", &scene.arg("p"), "--", "cat", "/etc/motd"]).ok();
    let fast = scene.path("www/fast.hsi").display().to_string();
    let made =
        run(["optimize", &root, "-p", &scene.arg("p"), "-o", &fast, "--codec", "zstd:1", "--json"]).ok();
    let name = made.json()["image_digest"].as_str().expect("a name").to_owned();
    let nginx = Nginx::start(&scene, "");
    let url = format!("{}#{name}", nginx.url("fast.hsi"));
    let start = |extra: &[&str]| {
        let arguments =
            [&["run", &url, "--json=summary", CACHE][..], extra, &["--", "cat", "/etc/motd"]].concat();
        let ran = run_remote(&scene, &arguments).ok();
        assert_eq!(ran.stdout, "hello from the image\n");
        let text = fs::read_to_string(scene.path("summary")).expect("a summary");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let summary = start(&[]);
    let requests =
        |summary: &serde_json::Value| summary["store_requests"].as_u64().expect("counted") as usize;
    let mut before = requests(&summary);
    assert_eq!(before, nginx.wait_answered(before).len(), "{summary}");
    // How many they are depends on how fast this machine is, and bench/http.py looks at that. A kernel that
    // is short of time or memory may read a block that it had no need for before; it is there the next time.
    let asked_once = (0..5).any(|_| {
        let again = start(&[]);
        let moved = nginx.wait_answered(before + requests(&again)).split_off(before);
        before += moved.len();
        moved.len() == 1 && moved[0].1 <= 4096
    });
    assert!(asked_once, "{:?}", nginx.answered());
    run_remote(&scene, &["cache", "fill", &url, CACHE, "--now"]).ok();
    let offline = start(&["--offline"]);
    assert_eq!(offline["store_requests"], 0, "{offline}");
}

#[test]
fn a_server_that_goes_away_is_waited_for_and_the_disk_is_whole() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    // Slow enough that it is killed in the middle.
    let (disk, name) = published(&scene, "a.hsi", 1_000, 6);
    let nginx = Nginx::start(&scene, "limit_rate 400k;");
    let port = nginx.port;
    let url = format!("{}#{name}", nginx.url("a.hsi"));
    let export = ["export", &url, "-o", "out.raw", "--format", "raw", CACHE];
    let child = remote(&scene, export).spawn().expect("the program starts");
    let has_entries = |path: &Path| fs::read_dir(path).is_ok_and(|entries| entries.count() > 2);
    wait_until("something has come", || has_entries(&scene.path("cache/chunks")));
    drop(nginx);
    let again = Nginx::start_at(&scene, port, "");
    let ran: crate::scene::Ran = child.wait_with_output().expect("ended").into();
    assert_eq!(ran.code, Some(0));
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    drop(again);
}

#[test]
fn kill_nine_while_the_cache_is_written_leaves_nothing_that_is_wrong() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (disk, name) = published(&scene, "a.hsi", 1_500, 7);
    let nginx = Nginx::start(&scene, "");
    let url = format!("{}#{name}", nginx.url("a.hsi"));
    let export = ["export", &url, "-o", "out.raw", "--format", "raw", CACHE];
    for entries in [1, 8, 15] {
        let mut child = remote(&scene, export).spawn().expect("the program starts");
        let has = || fs::read_dir(scene.path("cache/chunks")).is_ok_and(|found| found.count() >= entries);
        wait_until("something is written", || has() || child.try_wait().expect("a child").is_some());
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let _ = fs::remove_file(scene.path("out.raw"));
    run_remote(&scene, &export).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
}

#[test]
fn a_full_disk_under_the_cache_leaves_nothing_that_is_wrong() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (disk, name) = published(&scene, "a.hsi", 1_500, 8);
    let nginx = Nginx::start(&scene, "");
    let url = format!("{}#{name}", nginx.url("a.hsi"));
    let export = |extra: &[&str]| {
        let _ = fs::remove_file(scene.path("out.raw"));
        let ran = run_remote(
            &scene,
            &[&["export", &url, "-o", "out.raw", "--format", "raw", CACHE], extra].concat(),
        )
        .ok();
        assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
        ran
    };
    let cache = scene.path("cache");
    fs::create_dir(&cache).expect("a folder");
    rustix::mount::mount("cache", &cache, "tmpfs", MountFlags::empty(), c"size=400k").expect("mounted");
    // The disk is full in the middle of an entry, and from the start the second time. Kept entries are whole,
    // and there is nothing else.
    for _ in 0..2 {
        let ran = export(&[]);
        assert!(ran.stderr.contains("what is fetched is not kept"), "{ran:?}");
        assert!(!ran.stderr.contains("is not what its name says"), "{ran:?}");
    }
    let entries = || -> Vec<std::path::PathBuf> {
        let folders = fs::read_dir(cache.join("chunks")).expect("listed").flatten();
        folders
            .flat_map(|folder| fs::read_dir(folder.path()).expect("listed").flatten())
            .map(|entry| entry.path())
            .collect()
    };
    let kept = entries();
    let is_named = |entry: &Path| entry.file_name().is_some_and(|name| name.len() == 64);
    assert!(!kept.is_empty() && kept.iter().all(|entry| is_named(entry)), "{kept:?}");
    // Once there is room again it is filled.
    rustix::mount::mount_remount(&cache, MountFlags::empty(), c"size=64m").expect("enlarged");
    let ran = export(&[]);
    assert!(!ran.stderr.contains("not kept"), "{ran:?}");
    assert!(entries().len() > kept.len());
    drop(nginx);
    export(&["--offline"]);
    rustix::mount::unmount(&cache, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
}
