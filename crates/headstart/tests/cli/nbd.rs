//! `headstart serve` and the programs that people read NBD with.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::images::write_profile;
use crate::mounts::unmount_by;
use crate::scene::{PATIENCE, Running, Scene, has_tools, headstart, machine_has, run, tool, wait_until};
use crate::supervised::{kill, served_again};

/// A server on a socket of the scene, once it listens.
pub(crate) fn serve(scene: &Scene, arguments: &[&str]) -> Running {
    let socket = format!("unix:{}", scene.arg("socket"));
    let mut serving = Running::start(["serve", "--nbd", &socket].iter().chain(arguments));
    loop {
        let line = serving.said();
        assert!(!line.is_empty(), "the server ended");
        if line.contains("Ctrl-C") {
            break;
        }
    }
    serving
}

pub(crate) fn uri(scene: &Scene, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", scene.arg("socket"))
}

pub(crate) fn end(serving: Running) -> String {
    serving.signal(Signal::TERM);
    let (status, printed, said) = serving.end();
    assert!(status.success(), "{said}");
    printed
}

/// An image of a disk with data, a hole and data.
pub(crate) fn holed(scene: &Scene, name: &str) -> Vec<u8> {
    let mut disk = scene.raw("holed.raw", 700, 50);
    disk[256 * 4096..512 * 4096].fill(0);
    fs::write(scene.path("holed.raw"), &disk).expect("written");
    run(["build", "--raw", &scene.arg("holed.raw"), "-o", &scene.arg(name), "--codec", "zstd:1"]).ok();
    disk
}

#[test]
fn libnbd_reads_exports_whole_and_in_parallel() {
    if !has_tools(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "holed.hsi");
    let other = scene.image("other.hsi", 320, 51);
    let second = format!("two words={}", scene.arg("other.hsi"));
    let serving = serve(&scene, &["--json", &scene.arg("holed.hsi"), &second]);

    let list: Value = serde_json::from_str(&tool("nbdinfo", &["--list", "--json", &uri(&scene, "")]).stdout)
        .expect("an object");
    assert_eq!(list["exports"][0]["export-name"], "holed");
    assert_eq!(list["exports"][1]["export-name"], "two words");
    for (export, disk) in list["exports"].as_array().expect("a list").iter().zip([&disk, &other]) {
        assert_eq!(export["export-size"], disk.len());
        assert_eq!(export["is_read_only"], true);
        assert_eq!(export["can_multi_conn"], true);
        assert_eq!(export["can_cache"], true);
        assert_eq!(export["contexts"][0], "base:allocation");
        assert_eq!(export["block_size_minimum"], 1);
        assert_eq!(export["block_size_preferred"], 4096);
        assert_eq!(export["block_size_maximum"], 32 << 20);
    }
    let map = tool("nbdinfo", &["--map", "--json", &uri(&scene, "holed")]).stdout;
    let map: Value = serde_json::from_str(&map).expect("a list");
    let extents: Vec<(u64, u64)> = map
        .as_array()
        .expect("a list")
        .iter()
        .map(|extent| (extent["length"].as_u64().expect("bytes"), extent["type"].as_u64().expect("a type")))
        .collect();
    assert_eq!(extents, [(1 << 20, 0), (1 << 20, 3), (188 * 4096, 0)]);

    for (export, disk) in [("holed", &disk), ("two%20words", &other), ("", &disk)] {
        let copy = scene.arg("copy");
        tool("nbdcopy", &["--connections=4", "--requests=64", &uri(&scene, export), &copy]);
        assert!(fs::read(&copy).expect("read") == *disk, "{export}");
        fs::remove_file(&copy).expect("removed");
    }
    let unknown = Command::new("nbdinfo").arg(uri(&scene, "three")).output().expect("nbdinfo starts");
    assert!(!unknown.status.success());

    let summary: Value = serde_json::from_str(&end(serving)).expect("an object");
    assert_eq!(summary["exports"][1]["name"], "two words");
    assert!(summary["connections"].as_u64() >= Some(5), "{summary}");
    assert!(summary["reads"].as_u64() > Some(0), "{summary}");
    let sent = 2 * (disk.len() - (1 << 20)) + other.len();
    assert!(summary["sent_bytes"].as_u64() >= Some(sent as u64), "{summary}");
    assert_eq!(summary["exports"][0]["logical_bytes"], disk.len());
    assert!(!scene.names().contains(&"socket".to_owned()));
    scene.wait_until_clean();
}

#[test]
fn qemu_reads_compares_and_maps() {
    if !has_tools(&["qemu-img", "qemu-io", "qemu-nbd"]) {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "holed.hsi");
    let serving = serve(&scene, &[&scene.arg("holed.hsi")]);
    let (uri, raw, copy) = (uri(&scene, "holed"), scene.arg("holed.raw"), scene.arg("copy.qcow2"));
    let same = tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &uri, &raw]);
    assert!(same.stdout.contains("identical"), "{same:?}");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &copy]);
    tool("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &copy, &raw]);
    let map = tool("qemu-img", &["map", "--output=json", "-f", "raw", &uri]).stdout;
    let map: Value = serde_json::from_str(&map).expect("a list");
    let zero: Vec<bool> =
        map.as_array().expect("a list").iter().map(|extent| extent["zero"] == true).collect();
    assert_eq!(zero, [false, true, false], "{map}");
    let byte = disk[4095];
    let pattern = format!("read -P {byte} 4095 1");
    let read = tool("qemu-io", &["-r", "-f", "raw", "-c", &pattern, "-c", "read -P 0 1M 1M", &uri]);
    assert!(!read.stdout.contains("verification failed"), "{read:?}");
    let listed = tool("qemu-nbd", &["--list", "--socket", &scene.arg("socket")]).stdout;
    assert!(listed.contains("export: 'holed'") && listed.contains("base:allocation"), "{listed}");
    end(serving);
    scene.wait_until_clean();
}

/// QEMU with `reconnect-delay` goes on with the server that the supervisor starts, and its reader only waits.
#[test]
fn qemu_goes_on_after_the_server_was_killed() {
    if !has_tools(&["qemu-io"]) {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "holed.hsi");
    let image = scene.arg("holed.hsi");
    let serving = serve(&scene, &[&image]);
    let path = scene.arg("socket");
    let options = format!("driver=nbd,server.type=unix,server.path={path},export=holed,reconnect-delay=120");
    let mut qemu = Command::new("qemu-io")
        .args(["-r", "--image-opts", &options])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("qemu-io starts");
    let mut ask = qemu.stdin.take().expect("piped");
    let mut said = BufReader::new(qemu.stdout.take().expect("piped"));
    let mut answer = || {
        let mut text = String::new();
        while !text.contains(" ops") {
            assert!(said.read_line(&mut text).expect("read") > 0, "qemu-io ended: {text}");
        }
        assert!(!text.contains("failed"), "{text}");
    };
    writeln!(ask, "read -P {} 0 1", disk[0]).expect("asked");
    answer();
    for (restarts, place) in [(0, 409_600), (1, 819_200)] {
        kill(&served_again(&image, restarts));
        // A place that QEMU has not read yet.
        writeln!(ask, "read -P {} {place} 1", disk[place]).expect("asked");
        answer();
    }
    drop(ask);
    assert!(qemu.wait().expect("ended").success());
    end(serving);
    scene.wait_until_clean();
}

#[test]
fn fio_reads_at_random() {
    if !has_tools(&["fio"]) {
        return;
    }
    let scene = Scene::new();
    scene.image("disk.hsi", 640, 52);
    let serving = serve(&scene, &[&scene.arg("disk.hsi")]);
    let fio = [
        "--name=reads",
        "--ioengine=nbd",
        &format!("--uri={}", uri(&scene, "disk")),
        "--rw=randread",
        "--bs=4k",
        "--iodepth=16",
        "--size=2560k",
        "--readonly",
        "--output-format=json",
    ];
    let report = tool("fio", &fio).stdout;
    let report: Value = serde_json::from_str(&report[report.find('{').expect("an object")..]).expect("JSON");
    assert_eq!(report["jobs"][0]["error"], 0);
    assert_eq!(report["jobs"][0]["read"]["total_ios"], 640);
    end(serving);
    scene.wait_until_clean();
}

#[test]
fn nbdfuse_shows_the_disk_as_a_file() {
    if !machine_has(&[]) || !has_tools(&["nbdfuse", "fusermount3"]) {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "holed.hsi");
    let serving = serve(&scene, &[&scene.arg("holed.hsi")]);
    let dir = scene.folder("dir");
    let mut showing =
        Command::new("nbdfuse").args(["-r", &dir, &uri(&scene, "")]).spawn().expect("nbdfuse starts");
    wait_until("the disk is shown", || scene.path("dir/nbd").exists());
    assert!(fs::read(scene.path("dir/nbd")).expect("read") == disk);
    unmount_by("fusermount3", &["-u", &dir]);
    assert!(showing.wait().expect("ended").success());
    end(serving);
    scene.wait_until_clean();
}

#[test]
fn an_optimized_image_is_prefetched_over_nbd() {
    if !has_tools(&["nbdcopy"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 640, 53);
    write_profile(&scene, "start.hsp", "cold.hsi", &disk, (0..300).map(|i| i * 7 % 640));
    let hot = scene.arg("hot.hsi");
    run(["optimize", &scene.arg("cold.hsi"), "-p", &scene.arg("start.hsp"), "-o", &hot]).ok();
    for (flags, end_reason) in
        [(&["--medium", "flat-1ms-50mbs"][..], "complete"), (&["--no-prefetch"], "nothing")]
    {
        let mut arguments = vec!["--json", hot.as_str()];
        arguments.extend(flags);
        let serving = serve(&scene, &arguments);
        let status = || run(["status", "--json", &hot]).ok().json()["mounts"][0].clone();
        wait_until("the prefetch has ended", || status()["prefetch"]["end_reason"] == end_reason);
        let of_server = status();
        assert_eq!(of_server["nbd"], uri(&scene, "hot").as_str());
        assert_eq!(of_server["supervisor"], serving.id());
        let shown = run(["status", &hot]).ok().stdout;
        assert!(shown.contains("nbd+unix:///hot?socket="), "{shown}");
        let copy = scene.arg("copy");
        tool("nbdcopy", &[&uri(&scene, "hot"), &copy]);
        assert!(fs::read(&copy).expect("read") == disk);
        let summary: Value = serde_json::from_str(&end(serving)).expect("an object");
        let export = &summary["exports"][0];
        let prefetched = if end_reason == "complete" { 300 * 4096 } else { 0 };
        assert_eq!(export["prefetch_bytes"], prefetched, "{summary}");
        assert_eq!(export["end_reason"], end_reason);
    }
    scene.wait_until_clean();
}

#[test]
fn a_service_manager_is_told_of_exports() {
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 54);
    let manager = UnixDatagram::bind(scene.path("notify")).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let told = || {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).expect("told");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let socket = format!("unix:{}", scene.arg("socket"));
    let mut command = headstart(["serve", &scene.arg("cold.hsi"), "--nbd", &socket]);
    command.env("NOTIFY_SOCKET", scene.path("notify"));
    let serving = Running::start_command(command);
    assert!(told().starts_with("READY=1\nSTATUS="));
    assert!(scene.path("socket").exists(), "ready means listening");
    serving.signal(Signal::INT);
    assert!(told().starts_with("STOPPING=1\n"));
    assert!(serving.end().0.success());
    assert!(!scene.path("socket").exists());
    scene.wait_until_clean();
}

#[test]
fn sockets_of_the_dead_are_taken_over_and_those_of_the_living_are_not() {
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 55);
    let image = scene.arg("cold.hsi");
    let killed = serve(&scene, &["--unsupervised", &image]);
    killed.signal(Signal::KILL);
    assert!(!killed.end().0.success());
    assert!(scene.path("socket").exists());
    let serving = serve(&scene, &[&image]);
    let socket = format!("unix:{}", scene.arg("socket"));
    run(["serve", &image, "--nbd", &socket]).fails(1, &[&scene.arg("socket"), "a server listens"]);
    end(serving);
    drop(UnixListener::bind(scene.path("socket")).expect("the name is free"));
    fs::remove_file(scene.path("socket")).expect("removed");
    fs::write(scene.path("socket"), "mine").expect("written");
    run(["serve", &image, "--nbd", &socket]).fails(1, &["no socket"]);
    assert_eq!(fs::read_to_string(scene.path("socket")).expect("read"), "mine");
    scene.wait_until_clean();
}

#[test]
fn what_cannot_be_served_is_said() {
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 56);
    let (image, raw) = (scene.arg("cold.hsi"), scene.arg("disk.raw"));
    let socket = format!("unix:{}", scene.arg("socket"));
    run(["serve", &image]).fails(2, &["--nbd"]);
    run(["serve", "--nbd", &socket]).fails(2, &["IMAGE"]);
    run(["serve", &image, "--nbd", "localhost:http"]).fails(2, &["localhost:http", "HOST:PORT", "unix:PATH"]);
    run(["serve", &raw, "--nbd", &socket]).fails(1, &[&raw]);
    run(["serve", &image, &image, "--nbd", &socket]).fails(1, &["cold", "NAME=IMAGE"]);
    run(["serve", &scene.arg("none.hsi"), "--nbd", &socket]).fails(1, &["none.hsi"]);
    let nowhere = format!("unix:{}", scene.arg("none/socket"));
    run(["serve", &image, "--nbd", &nowhere]).fails(1, &["none/socket"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("known").to_string();
    run(["serve", &image, "--nbd", &address]).fails(1, &["cannot listen", &address]);
    assert!(!scene.names().contains(&"socket".to_owned()));
}

/// `lab disk --nbd`: the file as it is, read-only, at the pace of its medium.
#[test]
fn a_file_on_a_medium_is_an_export() {
    if !has_tools(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.raw("foreign.raw", 600, 52);
    let socket = format!("unix:{}", scene.arg("socket"));
    let arguments =
        ["lab", "disk", &scene.arg("foreign.raw"), "--nbd", &socket, "--medium", "nvme", "--json"];
    let mut serving = Running::start(arguments);
    while !serving.said().contains("Ctrl-C") {}
    let said: Value =
        serde_json::from_str(&tool("nbdinfo", &["--json", &uri(&scene, "foreign.raw")]).stdout).unwrap();
    assert_eq!(said["exports"][0]["is_read_only"], true);
    tool("nbdcopy", &[&uri(&scene, ""), &scene.arg("copy")]);
    assert!(fs::read(scene.path("copy")).unwrap() == disk);
    let counted: Value = serde_json::from_str(&end(serving)).unwrap();
    assert_eq!(counted["medium"], "nvme");
    assert!(counted["store_bytes"].as_u64().unwrap() >= disk.len() as u64, "{counted}");
    scene.wait_until_clean();
}
