//! Servers of disks that fill the cache on disk while no read waits.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Running, Scene, has_tools, machine_has, run, wait_until};
use crate::service::{server_of, status_of};
use crate::supervised::kill;
use crate::web::{NGINX, Nginx, remote, run_remote};

const CACHE: &str = "--disk-cache=cache";

/// An image at a server, its disk, and its address with its name.
fn published(scene: &Scene, nginx: &Nginx, blocks: usize, seed: u64) -> (Vec<u8>, String) {
    let disk = scene.image("www/a.hsi", blocks, seed);
    let name = run(["verify", &scene.arg("www/a.hsi")]).ok().stdout;
    let name = name.lines().last().expect("a name").to_owned();
    (disk, format!("{}#{name}", nginx.url("a.hsi")))
}

/// The fill's status of the only server of `of`.
fn filled(of: &str) -> Value {
    status_of(of).first().map_or(Value::Null, |status| status["cache_fill"].clone())
}

/// A mount that fills the cache, and where it is.
fn mounted(scene: &Scene, address: &str) -> (String, Running) {
    let dir = scene.folder("dir");
    let mut serving = Running::start_command(remote(scene, ["mount", "-f", address, &dir, CACHE, "--fill"]));
    assert!(serving.said().contains("mounted"));
    (dir, serving)
}

/// The disk, out of the cache alone.
fn offline(scene: &Scene, address: &str) -> Vec<u8> {
    run_remote(
        scene,
        &["export", address, "-o", "out.raw", "--format", "raw", "--force", CACHE, "--offline"],
    )
    .ok();
    fs::read(scene.path("out.raw")).expect("exported")
}

#[test]
fn a_mount_brings_all_of_its_image_into_the_cache() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let nginx = Nginx::start(&scene, "");
    let (disk, address) = published(&scene, &nginx, 600, 121);
    let (dir, serving) = mounted(&scene, &address);
    wait_until("all of it is there", || filled(&dir)["is_complete"] == true);
    let shown = run(["status", &dir]).ok().stdout;
    assert!(shown.contains("all of it is there"), "{shown}");
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    // Entries are on disk when the server has ended.
    drop(nginx);
    assert!(offline(&scene, &address) == disk);
    scene.wait_until_clean();
}

#[test]
fn the_next_server_goes_on_with_the_filling() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let nginx = Nginx::start(&scene, "");
    let (disk, address) = published(&scene, &nginx, 2400, 122);
    let (dir, serving) = mounted(&scene, &address);
    wait_until("something is there", || filled(&dir)["done_bytes"].as_u64() > Some(0));
    // It may have been quicker than this; then the next one finds that all is there.
    kill(&server_of(&dir));
    wait_until("all of it is there", || {
        status_of(&dir)
            .first()
            .is_some_and(|status| status["restarts"] == 1 && status["cache_fill"]["is_complete"] == true)
    });
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    drop(nginx);
    assert!(offline(&scene, &address) == disk);
    scene.wait_until_clean();
}

#[test]
fn a_server_of_nbd_clients_fills_as_well() {
    if !machine_has(&[NGINX]) || !has_tools(&["nbdcopy"]) {
        return;
    }
    let scene = Scene::new();
    let nginx = Nginx::start(&scene, "");
    let (disk, address) = published(&scene, &nginx, 300, 123);
    let socket = format!("unix:{}", scene.arg("socket"));
    let named = format!("a={address}");
    let mut serving =
        Running::start_command(remote(&scene, ["serve", "--nbd", &socket, &named, CACHE, "--fill"]));
    while !serving.said().contains("Ctrl-C") {}
    let shown = address.split('#').next().expect("an address");
    let uri = format!("nbd+unix:///a?socket={}", scene.arg("socket"));
    let copied =
        Command::new("nbdcopy").args([&uri, &scene.arg("copy.raw")]).output().expect("nbdcopy starts");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert!(fs::read(scene.path("copy.raw")).expect("copied") == disk);
    wait_until("all of it is there", || filled(shown)["is_complete"] == true);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    assert!(offline(&scene, &address) == disk);
}

#[test]
fn what_cannot_be_filled_is_refused() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let nginx = Nginx::start(&scene, "");
    let (_, address) = published(&scene, &nginx, 300, 124);
    let dir = scene.folder("dir");
    let file = scene.arg("www/a.hsi");
    let mount = |image: &str, cache: &str| run_remote(&scene, &["mount", "-f", image, &dir, cache, "--fill"]);
    mount(&file, CACHE).fails(1, &["--fill", "is a file"]);
    mount(&address, "--disk-cache=none").fails(1, &["--fill needs the cache"]);
    run_remote(&scene, &["cache", CACHE, "limit", "100K"]).ok();
    mount(&address, CACHE).fails(1, &["--fill", "headstart cache limit"]);
    for (image, cache) in [(&file, CACHE), (&address, "--disk-cache=none"), (&address, CACHE)] {
        let words = ["mount", "-f", image, &dir, cache, "--fill", "--fill=where-possible"];
        let mut serving = Running::start_command(remote(&scene, words));
        assert!(serving.said().contains("mounted"), "{image} {cache}");
        assert_eq!(filled(&dir), Value::Null, "{image} {cache}");
        serving.signal(Signal::TERM);
        assert!(serving.end().0.success());
    }
    run_remote(&scene, &["serve", &address, "--http", "127.0.0.1:0", CACHE, "--fill"])
        .fails(1, &["--fill", "--nbd"]);
    drop(nginx);
    scene.wait_until_clean();
}
