//! Layers that are committed above a lazily mounted image.

use std::fs;

use crate::containerd::{Containers, OK, add, layers_fetched, pushed, sum_of_data, with_registry};
use crate::scene::tool;

const DATA_BYTES: usize = 100_000;

/// As `docker commit` and its like: what a container has written becomes the root of another.
#[test]
fn what_a_container_has_written_is_committed_above_a_mounted_image() {
    let Some((scene, layout, registry, image)) = with_registry(DATA_BYTES) else { return };
    add(&scene, &image);
    let containers = Containers::start(&scene, &["--prefetch", "off"]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let own = containers.id("own");
    let script = "echo own >/etc/own; busybox rm /etc/motd; echo more >>/data";
    containers.ctr(&["run", "--snapshotter", "headstart", &image, &own, "sh", "-c", script]);
    let snapshots = |words: &[&str]| {
        containers.ctr(&[&["snapshots", "--snapshotter", "headstart"], words].concat()).stdout
    };
    snapshots(&["commit", "committed", &own]);
    containers.ctr(&["container", "rm", &own]);
    snapshots(&["prepare", "next", "committed"]);
    let root = scene.folder("next");
    tool("sh", &["-ec", &snapshots(&["mounts", &root, "next"])]);
    let read = "cat /etc/own; [ -e /etc/motd ] || echo gone; busybox head -c 100000 /data | md5sum; \
        busybox tail -c 5 /data";
    let run =
        ["run", "--rm", "--env", "PATH=/bin", "--rootfs", &root, &containers.id("next"), "sh", "-c", read];
    let ran = containers.ctr(&run);
    let data = sum_of_data(&scene, &layout);
    assert_eq!(ran.stdout, format!("own\ngone\n{data}  -\nmore\n"));
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    tool("umount", &[&root]);
    for name in ["next", "committed"] {
        snapshots(&["rm", name]);
    }
    drop(registry);
    containers.end(&[&image]);
}

/// An image that was built `FROM` the one that is mounted: containerd fetches its own layer alone.
#[test]
fn an_image_above_a_mounted_one_fetches_its_own_layer_alone() {
    let Some((scene, layout, registry, image)) = with_registry(DATA_BYTES) else { return };
    let tagged = format!("{}:t", layout.display());
    let above = format!("{}:above", layout.display());
    let bundle = scene.arg("bundle");
    tool("umoci", &["tag", "--image", &tagged, "above"]);
    tool("umoci", &["unpack", "--image", &above, &bundle]);
    fs::write(scene.path("bundle/rootfs/etc/own"), "own\n").expect("written");
    fs::remove_file(scene.path("bundle/rootfs/etc/motd")).expect("removed");
    tool("umoci", &["repack", "--image", &above, &bundle]);
    let above = pushed(&registry, &layout, "above");
    add(&scene, &image);
    // With a log of requests of its own.
    let registry = registry.again(&scene);
    let containers = Containers::start(&scene, &[]);
    for image in [&image, &above] {
        assert_eq!(containers.pull(image).code, OK, "{}", containers.log());
    }
    let read = "cat /etc/own; [ -e /etc/motd ] || echo gone";
    assert_eq!(containers.run(&above, "above", &["sh", "-c", read]).ok().stdout, "own\ngone\n");
    let ran = containers.run(&image, "below", &["cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the second layer\n");
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    drop(registry);
    // The image below stays as long as what is above it.
    assert_eq!(containers.remove(&image).code, OK);
    assert_eq!(containers.mounted().len(), 1);
    assert_eq!(containers.run(&above, "again", &["cat", "/etc/own"]).ok().stdout, "own\n");
    containers.end(&[&above]);
}
