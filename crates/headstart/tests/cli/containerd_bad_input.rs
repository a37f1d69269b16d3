//! What may be wrong below and beside the snapshotter: full disks, a registry that dies, artifacts that are
//! none, garbage collection while containers start. Each ends with one clear error, and nothing is left.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::{Signal, kill_process};

use crate::containerd::{
    Containers, EXISTS, OK, add, convert, diff_ids, layers_fetched, pushed, with_registry,
};
use crate::containerd_deaths::of_image;
use crate::relay::Relay;
use crate::scene::{Scene, tool, wait_until};

const REFERENCE: &str = "containerd.io/snapshot.ref";
const ANNOTATION: &str = "containerd.io/snapshot/headstart.image";
const MOTD: &str = "hello from the second layer\n";
/// Where an image is no image, or not there, its layers are unpacked, and this is said once.
const UNPACKED: &str = "is unpacked as any other";
/// Sends a copy of a manifest whose index is said to lie elsewhere, and whose blob is this file if there is
/// one; prints its digest.
const FORGE: &str = r#"
import hashlib, json, sys, urllib.request as requests
base, digest, index, blob = sys.argv[1:]
kind = "application/vnd.oci.image.manifest.v1+json"
named = lambda content: "sha256:" + hashlib.sha256(content).hexdigest()
ask = lambda method, url, **more: requests.urlopen(requests.Request(url, method=method, **more))
manifest = json.load(ask("GET", f"{base}/manifests/{digest}", headers={"Accept": kind}))
if blob:
    content = open(blob, "rb").read()
    place = ask("POST", f"{base}/blobs/uploads/", data=b"").headers["Location"]
    place += ("&" if "?" in place else "?") + "digest=" + named(content)
    ask("PUT", place, data=content, headers={"Content-Type": "application/octet-stream"})
    manifest["layers"][0].update(digest=named(content), size=len(content))
manifest["annotations"]["io.headstart.index"] = index
text = json.dumps(manifest).encode()
ask("PUT", f"{base}/manifests/{named(text)}", data=text, headers={"Content-Type": kind})
print(named(text))
"#;

/// A file system in memory at a folder of the scene.
struct SmallDisk(String);

impl SmallDisk {
    fn at(scene: &Scene, name: &str, size: &str) -> Self {
        let folder = scene.folder(name);
        tool("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "none", &folder]);
        Self(folder)
    }

    /// Leaves no room; gives the file that takes it.
    fn fill(&self) -> String {
        let filler = format!("{}/filler", self.0);
        assert!(fs::write(&filler, vec![1; 64 << 20]).is_err(), "the disk is full");
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

fn count(scene: &Scene, folder: &str) -> usize {
    fs::read_dir(scene.path(folder)).expect("a folder").count()
}

/// Layers that do not fit into the folder of the snapshotter.
#[test]
fn a_full_disk_fails_a_pull_and_leaves_nothing() {
    let Some((scene, _, registry, image)) = with_registry(16 << 20) else { return };
    let disk = SmallDisk::at(&scene, "root", "8m");
    let containers = Containers::start(&scene, &[]);
    let pulled = containers.pull(&image);
    assert!(pulled.code != OK && pulled.message.contains("no space left on device"), "{pulled:?}");
    // containerd may remove at this moment what is to be removed.
    let prune = || containers.tried(&["content", "prune", "references"]);
    wait_until("what came is removed", || prune().code == Some(0));
    wait_until("no snapshot is left", || count(&scene, "root/snapshots") == 0);
    tool("mount", &["-o", "remount,size=64m", &disk.0]);
    let pulled = containers.pull(&image);
    assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    assert_eq!(containers.run(&image, "one", &["cat", "/etc/motd"]).ok().stdout, MOTD);
    drop(registry);
    containers.stop(&[&image]);
    drop(disk);
    scene.wait_until_clean();
}

/// A layer that another image shares has to be built, for which there is no room.
#[test]
fn a_layer_that_there_is_no_room_for_fails_one_pull() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let other = format!("{}:other", layout.display());
    let bundle = scene.arg("bundle");
    tool("umoci", &["unpack", "--image", &other, &bundle]);
    fs::write(scene.path("bundle/rootfs/etc/other"), "another second layer\n").expect("written");
    tool("umoci", &["repack", "--image", &other, &bundle]);
    let other = pushed(&registry, &layout, "other");
    let disk = SmallDisk::at(&scene, "root", "16m");
    add(&scene, &image);
    let containers = Containers::start(&scene, &[]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let filler = disk.fill();
    let pulled = containers.pull(&other);
    assert!(pulled.code != OK && pulled.message.contains("No space left on device"), "{pulled:?}");
    assert_eq!((count(&scene, "root/built"), containers.mounted().len()), (0, 1));
    // The image that was there is as it was.
    fs::remove_file(filler).expect("removed");
    assert_eq!(containers.run(&image, "one", &["cat", "/etc/motd"]).ok().stdout, MOTD);
    let pulled = containers.pull(&other);
    assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    let ran = containers.run(&other, "two", &["cat", "/etc/other"]).ok();
    assert_eq!(ran.stdout, "another second layer\n");
    drop(registry);
    containers.stop(&[&other, &image]);
    drop(disk);
    scene.wait_until_clean();
}

/// What is fetched cannot be kept, and is fetched again when it is needed.
#[test]
fn a_full_disk_cache_is_no_cache() {
    let Some((scene, layout, registry, image)) = with_registry(4 << 20) else { return };
    convert(&scene, &image);
    let registry = registry.again(&scene);
    let disk = SmallDisk::at(&scene, "cache", "256k");
    let filler = disk.fill();
    let containers = Containers::start(&scene, &["--disk-cache", &disk.0]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    let root = scene.arg("unpacked");
    tool("umoci", &["raw", "unpack", "--image", &format!("{}:t", layout.display()), &root]);
    let expected = tool("md5sum", &[&format!("{root}/data")]).stdout.replace(&root, "");
    for name in ["one", "two"] {
        assert_eq!(containers.run(&image, name, &["md5sum", "/data"]).ok().stdout, expected);
    }
    assert_eq!(fs::metadata(&filler).expect("it is there").len() >> 10, 256, "nothing has replaced it");
    drop(registry);
    containers.stop(&[&image]);
    drop(disk);
    scene.wait_until_clean();
}

/// The registry says what is mounted, and dies when the image itself is asked for.
#[test]
fn a_registry_that_dies_in_the_middle_leaves_no_mount() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let converted = convert(&scene, &image);
    let pid = registry.pid();
    let relay = Relay::start(registry.port, move |line| {
        if line.contains("/blobs/") {
            let _ = kill_process(pid, Signal::KILL);
        }
        false
    });
    let artifact = converted.trim_start_matches("oci+http://");
    let artifact = artifact.replace(&registry.port.to_string(), &relay.port.to_string());
    let containers = Containers::snapshotter(&scene, &["--disk-cache", "none"]);
    let layer = diff_ids(&layout)[0].clone();
    for key in ["one", "two"] {
        let prepared = containers.prepare(key, "", &[(REFERENCE, &layer), (ANNOTATION, &artifact)]);
        assert_eq!(prepared.code, OK, "{prepared:?}");
    }
    // The second call does not try once more what has failed for the first.
    let log = containers.log();
    assert!(log.matches(UNPACKED).count() == 1 && log.contains("was not mounted"), "{log}");
    wait_until("its processes are gone", || {
        [false, true].iter().all(|are_servers| of_image(&scene, *are_servers).is_empty())
    });
    assert_eq!((containers.mounted().len(), count(&scene, "root/images")), (0, 0));
    for key in ["one", "two"] {
        assert_eq!(containers.with_key("Remove", key).code, OK);
    }
    drop(registry);
    containers.end(&[]);
}

/// Manifests of which all is right but what they lead to; and hints that lie, which only cost a request.
#[test]
fn what_an_artifact_says_of_itself_is_not_believed() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let converted = convert(&scene, &image);
    let (name, digest) = converted.trim_start_matches("oci+http://").split_once('@').expect("a digest");
    let base = format!("http://127.0.0.1:{}/v2/tiny", registry.port);
    let forge = |index: &str, blob: &str| {
        let forged = tool("python3", &["-c", FORGE, &base, digest, index, blob]).stdout;
        format!("{name}@{}", forged.trim())
    };
    let layer = diff_ids(&layout)[0].clone();
    let containers = Containers::snapshotter(&scene, &["--disk-cache", "none"]);
    let prepare = |key: &str, artifact: &str| {
        containers.prepare(key, "", &[(REFERENCE, &layer), (ANNOTATION, artifact)])
    };
    // Another image, and none at all.
    let wrong = fs::read("/bin/busybox").expect("a program");
    fs::write(scene.path("wrong"), wrong).expect("written");
    let other = scene.image("other.hsi", 20, 7);
    assert!(!other.is_empty());
    for (number, blob) in ["wrong", "other.hsi"].into_iter().enumerate() {
        let artifact = forge("0+4096", &scene.arg(blob));
        let prepared = prepare(blob, &artifact);
        assert_eq!(prepared.code, OK, "{prepared:?}");
        assert_eq!(containers.log().matches(UNPACKED).count(), number + 1, "{}", containers.log());
        assert_eq!((containers.mounted().len(), count(&scene, "root/images")), (0, 0));
        assert_eq!(containers.with_key("Remove", blob).code, OK);
    }
    for (number, index) in
        ["x", "1+", "0+0", "4096+99999999999999999999", "18446744073709551615+1", "1+524288", "7+9"]
            .into_iter()
            .enumerate()
    {
        let prepared = prepare(index, &forge(index, ""));
        assert_eq!(prepared.code, EXISTS, "{index}: {prepared:?} {}", containers.log());
        let snapshot = format!("headstart/{}/{layer}", number + 3);
        assert_eq!(containers.with_key("Remove", &snapshot).code, OK, "{}", containers.log());
        wait_until("the image is unmounted", || containers.mounted().is_empty());
    }
    drop(registry);
    containers.end(&[]);
}

/// containerd's own collection, of all of its garbage, again and again while containers of one image start.
#[test]
fn garbage_is_collected_while_containers_start() {
    let Some((scene, _, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    let containers = Containers::start(&scene, &[]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let ends = AtomicBool::new(false);
    let collections = std::thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            let mut collections = 0;
            while !ends.load(Relaxed) {
                containers.ctr(&["content", "prune", "references"]);
                collections += 1;
            }
            collections
        });
        let ran = ["one", "two", "three"].map(|id| containers.run(&image, id, &["cat", "/etc/motd"]));
        ends.store(true, Relaxed);
        for ran in ran {
            assert_eq!(ran.ok().stdout, MOTD, "{}", containers.log());
        }
        collecting.join().expect("it ends")
    });
    assert!(collections > 0);
    assert_eq!(containers.mounted().len(), 1);
    drop(registry);
    containers.end(&[&image]);
}
