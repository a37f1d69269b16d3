//! The memory of a server, as its status reports it.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Running, Scene, has_tools, machine_has, run, wait_until};

/// The status of the only server of this image or directory.
fn status(of: &str) -> Value {
    run(["status", of, "--json"]).ok().json()["mounts"][0].clone()
}

#[test]
fn what_the_kernel_has_is_not_kept_again() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 320, 60);
    let dir = scene.folder("dir");
    let flags = ["--cache", "8M"];
    let mut serving = Running::start(["mount", "-f", &scene.arg("cold.hsi"), &dir].iter().chain(&flags));
    assert!(serving.said().contains("mounted"));
    let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
    let mut block = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut block, 0).expect("read");
    assert!(block == disk[..4096]);
    let cache = status(&dir)["cache"].clone();
    assert_eq!(cache["budget_bytes"].as_u64(), Some(8 << 20));
    assert!(cache["misses"].as_u64() > Some(0), "{cache}");
    drop(file);
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
    // A kernel may drop pages at any time and ask for them again, of which some windows would be left; not
    // most.
    let few = disk.len() as u64 / 2;
    wait_until("most windows are gone", || status(&dir)["cache"]["bytes"].as_u64() < Some(few));
    assert!(status(&dir)["cache"]["handed_over_bytes"].as_u64() < Some(few));
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    scene.wait_until_clean();
}

#[test]
fn what_nbd_clients_read_stays_within_the_budget() {
    if !has_tools(&["nbdcopy"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 320, 61);
    let socket = format!("unix:{}", scene.arg("socket"));
    let image = scene.arg("cold.hsi");
    let uri = format!("nbd+unix:///?socket={}", scene.arg("socket"));
    for (size, stays) in [("8M", true), ("1M", false)] {
        let flags = ["--cache", size];
        let mut serving = Running::start(["serve", "--nbd", &socket, &image].iter().chain(&flags));
        while !serving.said().contains("Ctrl-C") {}
        let copy = || {
            let done = Command::new("nbdcopy").args([&uri, "null:"]).output().expect("nbdcopy starts");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            status(&image)
        };
        let (first, second) = (copy(), copy());
        let bytes = |status: &Value, key: &str| status["cache"][key].as_u64().expect("a number");
        assert!(bytes(&second, "bytes") <= bytes(&second, "budget_bytes"), "{second}");
        // The page of the index is there as well.
        let has_all = bytes(&second, "bytes") >= disk.len() as u64;
        assert_eq!(has_all, stays, "{second}");
        assert_eq!(first["store_bytes"] == second["store_bytes"], stays, "the medium was asked again");
        serving.signal(Signal::TERM);
        assert!(serving.end().0.success());
    }
}
