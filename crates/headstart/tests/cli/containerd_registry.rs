//! Containers of containerd whose registry is slow, silent, or far away.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::containerd::{
    Containers, EXISTS, OK, UNAVAILABLE, convert, diff_ids, layers_fetched, with_registry,
};
use crate::grpc_client::call_and_leave;
use crate::registry::{SECRET, USER};
use crate::relay::Relay;
use crate::scene::{Scene, machine_has, run, tool, wait_until};

const REFERENCE: &str = "containerd.io/snapshot.ref";
const ANNOTATION: &str = "containerd.io/snapshot/headstart.image";

/// A registry that takes connections and says nothing is no reason to start nothing, and is told of once.
#[test]
fn a_silent_registry_holds_up_no_pull() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let artifact = format!("127.0.0.1:{port}/x@sha256:{}", "ab".repeat(32));
    let containers = Containers::snapshotter(&scene, &[]);
    for (key, layer) in [("a", "11"), ("b", "22"), ("c", "33")] {
        let layer = format!("sha256:{}", layer.repeat(32));
        let prepared = containers.prepare(key, "", &[(REFERENCE, &layer), (ANNOTATION, &artifact)]);
        assert_eq!(prepared.code, OK, "{prepared:?}");
    }
    let log = containers.log();
    assert_eq!(log.matches("is unpacked as any other").count(), 1, "{log}");
    assert!(log.contains("takes more than"), "{log}");
}

/// Converts the image; what it became, as it is called behind a relay that holds such requests.
fn relayed(scene: &Scene, port: u16, image: &str, holds: fn(&str) -> bool) -> (Relay, String) {
    let converted = convert(scene, image);
    let relay = Relay::start(port, holds);
    let artifact = converted.trim_start_matches("oci+http://");
    let artifact = artifact.replace(&port.to_string(), &relay.port.to_string());
    (relay, artifact)
}

/// The registry has said what is mounted, and is silent when the image itself is asked for: the caller gives
/// up, and the next one need not wait for what that call had begun.
#[test]
fn a_call_that_is_cancelled_ends_the_mount_that_it_had_begun() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let (relay, artifact) = relayed(&scene, registry.port, &image, |line| line.contains("/blobs/"));
    let layer = diff_ids(&layout)[0].clone();
    let containers = Containers::snapshotter(&scene, &["--disk-cache", "none"]);
    let labels = [(REFERENCE, layer.as_str()), (ANNOTATION, artifact.as_str())];
    let (path, message) = Containers::prepare_call("one", "", &labels);
    call_and_leave(&scene.path("s.sock"), &path, &message, || relay.held() > 0);
    relay.hold(|_| false);
    let prepared = containers.prepare("two", "", &labels);
    assert_eq!(prepared.code, EXISTS, "{prepared:?} {}", containers.log());
    let name = format!("headstart/1/{layer}");
    assert_eq!(containers.with_key("Remove", &name).code, OK, "{}", containers.log());
    wait_until("the image is unmounted", || containers.mounted().is_empty());
    drop(registry);
    containers.end(&[]);
}

/// The first and the last byte that a request asks for.
fn range(line: &str) -> (u64, u64) {
    let range = line.rsplit(' ').next().and_then(|range| range.split_once('-'));
    let number = |text: &str| text.parse().expect("a number");
    let (first, last) = range.expect("a range");
    (number(first), number(last))
}

/// Each request is a round trip that a container waits for.
#[test]
fn a_mount_asks_its_registry_for_little() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let (relay, artifact) = relayed(&scene, registry.port, &image, |_| false);
    let layer = diff_ids(&layout)[0].clone();
    let containers = Containers::snapshotter(&scene, &["--disk-cache", "none"]);
    let prepared = containers.prepare("one", "", &[(REFERENCE, &layer), (ANNOTATION, &artifact)]);
    assert_eq!(prepared.code, EXISTS, "{prepared:?} {}", containers.log());
    let lines = relay.take_lines();
    let (manifests, parts): (Vec<&str>, Vec<&str>) =
        lines.iter().map(String::as_str).partition(|line| line.contains("/manifests/"));
    // The snapshotter hands on to the server what it has asked for: the manifest, the image's first mebibyte,
    // and the index behind that. What a mount reads beyond them comes once; on a busy machine in several
    // parts, where the kernel's reads come one by one.
    let mut ranges: Vec<(u64, u64)> = parts.iter().map(|line| range(line)).collect();
    ranges.sort_unstable();
    assert_eq!((manifests.len(), ranges[0]), (1, (0, (1 << 20) - 1)), "{lines:?}");
    assert!(parts.len() <= 8, "{lines:?}");
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "asked twice: {lines:?}");
    assert_eq!(containers.with_key("Remove", &format!("headstart/1/{layer}")).code, OK);
    wait_until("the image is unmounted", || containers.mounted().is_empty());
    drop(registry);
    containers.end(&[]);
}

/// The snapshotter keeps its connections, which the registry closes when it ends.
#[test]
fn a_registry_that_was_started_again_between_two_pulls_is_asked_at_once() {
    let Some((scene, layout, mut registry, image)) = with_registry(100_000) else { return };
    let layer = diff_ids(&layout)[0].clone();
    let container = format!("oci+http://{image}");
    let convert = |codec: &str| {
        let words =
            ["convert", &container, "--codec", codec, "--upload-state", &scene.arg("uploads"), "--json"];
        let address = run(words).ok().json()["address"].as_str().expect("an address").to_owned();
        address.trim_start_matches("oci+http://").to_owned()
    };
    // What is found is remembered for a while, so each pull asks for another image.
    let artifacts = ["store", "zstd:1", "lz4:1"].map(convert);
    let containers = Containers::snapshotter(&scene, &["--disk-cache", "none"]);
    for (number, artifact) in artifacts.iter().enumerate() {
        let labels = [(REFERENCE, layer.as_str()), (ANNOTATION, artifact.as_str())];
        let prepared = containers.prepare(artifact, "", &labels);
        assert_eq!(prepared.code, EXISTS, "{prepared:?} {}", containers.log());
        registry = registry.again(&scene);
        let name = format!("headstart/{}/{layer}", number + 1);
        assert_eq!(containers.with_key("Remove", &name).code, OK, "{}", containers.log());
        wait_until("the image is unmounted", || containers.mounted().is_empty());
    }
    drop(registry);
    containers.end(&[]);
}

/// Takes down what is mounted, as a reboot does.
pub(crate) fn unmounted(containers: &Containers<'_>) {
    for line in containers.mounted() {
        tool("umount", &[line.split(' ').nth(4).expect("a place")]);
    }
    wait_until("no image is mounted", || containers.mounted().is_empty());
}

/// What came once is all that a container needs.
#[test]
fn what_the_disk_cache_has_is_mounted_without_a_registry() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let converted = convert(&scene, &image);
    let (artifact, cache) = (converted.trim_start_matches("oci+http://").to_owned(), scene.arg("cache"));
    let again = run(["convert", &format!("oci+http://{image}"), "--codec", "zstd:1", "--json"]).ok().json();
    let chain = [diff_ids(&layout)[0].clone(), again["chain_id"].as_str().expect("an ID").to_owned()];
    let containers = Containers::snapshotter(&scene, &["--disk-cache", &cache]);
    let mut names = vec![String::new()];
    for (number, id) in chain.iter().enumerate() {
        let prepared = containers.prepare("one", &names[number], &[(REFERENCE, id), (ANNOTATION, &artifact)]);
        assert_eq!(prepared.code, EXISTS, "{prepared:?} {}", containers.log());
        names.push(format!("headstart/{}/{id}", number + 1));
    }
    let name = &names[2];
    run(["cache", "fill", &converted, "--disk-cache", &cache, "--now"]).ok();
    drop(registry);
    unmounted(&containers);
    // Not all of it is there: a container would read errors.
    fs::rename(&cache, scene.path("away")).expect("moved");
    let failed = containers.prepare("two", name, &[]);
    assert!(failed.code == UNAVAILABLE && failed.message.contains("was not mounted"), "{failed:?}");
    fs::remove_dir_all(&cache).expect("removed");
    fs::rename(scene.path("away"), &cache).expect("moved");
    let prepared = containers.prepare("two", name, &[]);
    assert_eq!(prepared.code, OK, "{prepared:?} {}", containers.log());
    assert!(containers.log().contains("the disk cache has all of it"), "{}", containers.log());
    let mounted = containers.mounted().pop().expect("mounted");
    let tree = Path::new(mounted.split(' ').nth(4).expect("a place"));
    assert_eq!(
        fs::read_to_string(tree.join("etc/motd")).expect("read"),
        "hello from the second layer
"
    );
    for key in ["two", name, &names[1]] {
        assert_eq!(containers.with_key("Remove", key).code, OK, "{}", containers.log());
    }
    wait_until("the image is unmounted", || containers.mounted().is_empty());
    containers.end(&[]);
}

/// Whether the cache has the superblock of the image that it remembers.
fn is_kept(cache: &Path) -> bool {
    let record = fs::read_dir(cache.join("addresses")).ok().and_then(|mut records| records.next()?.ok());
    let record = record.and_then(|record| fs::read(record.path()).ok()).unwrap_or_default();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
    let name = record["image"].as_str().and_then(|name| name.strip_prefix("hs1-"));
    name.is_some_and(|name| cache.join("chunks").join(&name[..2]).join(name).exists())
}

/// What opens an image is in the cache on disk, and is asked for once.
#[test]
fn the_second_mount_of_an_image_does_not_bring_its_first_mebibyte() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let (relay, artifact) = relayed(&scene, registry.port, &image, |_| false);
    let layer = diff_ids(&layout)[0].clone();
    let containers = Containers::snapshotter(&scene, &["--disk-cache", &scene.arg("cache")]);
    let mount = |number: u32| -> (u64, u64) {
        relay.take_lines();
        let labels = [(REFERENCE, layer.as_str()), (ANNOTATION, artifact.as_str())];
        let prepared = containers.prepare(&number.to_string(), "", &labels);
        assert_eq!(prepared.code, EXISTS, "{prepared:?} {}", containers.log());
        let lines = relay.take_lines();
        assert_eq!(containers.with_key("Remove", &format!("headstart/{number}/{layer}")).code, OK);
        wait_until("the image is unmounted", || containers.mounted().is_empty());
        // What opens an image is asked for at once: its end may come before its beginning.
        let parts = lines.iter().filter(|line| line.contains("/blobs/"));
        parts.map(|line| range(line)).min().expect("a request")
    };
    assert_eq!(mount(1), (0, (1 << 20) - 1));
    wait_until("the superblock is kept", || is_kept(&scene.path("cache")));
    assert_eq!(mount(2), (0, 8191), "headers");
    drop(registry);
    containers.end(&[]);
}

/// containerd keeps what a client of CRI gives it as a login, and the snapshotter has logins of its own.
#[test]
fn a_registry_with_a_login_is_read_with_that_of_the_snapshotter() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    convert(&scene, &image);
    let registry = registry.again_with_login(&scene);
    let containers = Containers::start(&scene, &["--disk-cache", "none"]);
    assert_ne!(containers.pull(&image).code, OK, "containerd has no login either");
    let pull = || {
        let pulled = containers.pull_with_login(&image, USER, SECRET);
        assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    };
    pull();
    assert_eq!(containers.mounted().len(), 0);
    assert!(containers.log().contains("wants a login"), "{}", containers.log());
    wait_until("the registry has told of both layers", || layers_fetched(&scene, &layout) == 2);
    assert_eq!(containers.remove(&image).code, OK);
    // The next pull finds it. Nothing is started again.
    let host = image.split('/').next().expect("a host");
    let login = format!(r#"{{"auths":{{"{host}":{{"username":"{USER}","password":"{SECRET}"}}}}}}"#);
    fs::write(scene.path("auth.json"), login).expect("written");
    pull();
    assert_eq!(containers.mounted().len(), 1, "{}", containers.log());
    let ran = containers.run(&image, "one", &["cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the second layer\n");
    assert!(!containers.log().contains(SECRET), "{}", containers.log());
    drop(registry);
    containers.end(&[&image]);
}
