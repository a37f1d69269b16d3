//! `--prefetch-rate`, in a server that runs.

use hs_units::Nanos;
use serde_json::Value;

use crate::images::write_timed_profile;
use crate::nbd::{end, serve};
use crate::scene::{Running, Scene, has_tools, run, tool, wait_until};

/// Blocks that the recorded start needed at once, and an hour later.
const AT_ONCE: u64 = 600;
const LATER: u64 = 1_400;

fn prefetch(image: &str) -> Value {
    run(["status", image, "--json"]).ok().json()["mounts"][0]["prefetch"].clone()
}

fn bytes(of: &Value) -> u64 {
    of["bytes"].as_u64().expect("a number")
}

fn started(scene: &Scene, rate: &str) -> Running {
    serve(scene, &[&scene.arg("hot.hsi"), "--prefetch-rate", rate])
}

#[test]
fn by_deadline_nothing_comes_an_hour_early_unless_the_start_is_there_already() {
    if !has_tools(&["qemu-io"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 3_000, 77);
    let hour = Nanos::from_millis(3_600_000);
    let needed = |lba| (if lba < AT_ONCE { Nanos(lba) } else { hour + Nanos(lba) }, lba);
    write_timed_profile(&scene, "start.hsp", "cold.hsi", &disk, (0..AT_ONCE + LATER).map(needed));
    let hot = scene.arg("hot.hsi");
    run(["optimize", &scene.arg("cold.hsi"), "-p", &scene.arg("start.hsp"), "-o", &hot]).ok();

    let serving = started(&scene, "full");
    wait_until("everything has come", || prefetch(&hot)["end_reason"] == "complete");
    // However fast it came: what was needed at once was late, and what was needed an hour later was not.
    let overdue = prefetch(&hot)["overdue_bytes"].as_u64().expect("the image has deadlines");
    assert!((AT_ONCE * 4096..(AT_ONCE + LATER / 2) * 4096).contains(&overdue), "{overdue} bytes");
    let queue = run(["status", &hot, "--json"]).ok().json()["mounts"][0]["queue"].clone();
    let events = queue["events"].as_array().expect("a list");
    let of = |event: &str| events.iter().filter(|told| told["event"] == event).count();
    assert!(of("dispatched") > 0 && of("ended") > 0, "{queue}");
    end(serving);

    let serving = started(&scene, "auto");
    wait_until("what is needed at once has come", || bytes(&prefetch(&hot)) >= AT_ONCE * 4096);
    let uri = format!("nbd+unix:///?socket={}", scene.arg("socket"));
    let read = |lba: u64| {
        let command = format!("read {} 4096", lba * 4096);
        tool("qemu-io", &["-r", "-f", "raw", "-c", &command, &uri]);
    };
    read(AT_ONCE / 2);
    // The rest is due in an hour, however slow this machine is.
    let waits = prefetch(&hot);
    assert!(waits["end_reason"].is_null(), "{waits}");
    assert!(bytes(&waits) < (AT_ONCE + LATER / 2) * 4096, "{waits}");
    // An early read of such a block shows that the start is further than the profile says.
    read(AT_ONCE + LATER - 1);
    wait_until("the rest has come", || prefetch(&hot)["end_reason"] == "complete");
    end(serving);
}
