//! Containers of an image whose conversion was replaced in its registry.

use std::path::Path;

use crate::containerd::{Containers, OK, convert, with_registry};
use crate::containerd_registry::unmounted;
use crate::registry::Registry;
use crate::scene::{Scene, run, tool};

/// Room in the cache on disk for a part of the image.
const SMALL: &str = "2M";
const IMAGE_BYTES: usize = 6 << 20;

/// Puts another conversion in the place of the one that there is; gives its address.
fn replace(scene: &Scene, image: &str, codec: &str) -> String {
    let container = format!("oci+http://{image}");
    let state = scene.arg("uploads");
    let words = ["convert", &container, "--codec", codec, "--replace", "--upload-state", &state, "--json"];
    let replaced = run(words).ok().json();
    assert_eq!((replaced["removed"].as_u64(), replaced["kept"].as_u64()), (Some(1), Some(0)), "{replaced}");
    Registry::collect_garbage(scene);
    replaced["address"].as_str().expect("an address").to_owned()
}

/// What `md5sum /data` says in a container.
fn expected(scene: &Scene, layout: &Path) -> String {
    let root = scene.arg("unpacked");
    tool("umoci", &["raw", "unpack", "--image", &format!("{}:t", layout.display()), &root]);
    tool("md5sum", &[&format!("{root}/data")]).stdout.replace(&root, "")
}

/// The machine starts again, and has a part of the image in its cache.
#[test]
fn a_container_starts_from_the_next_conversion_where_that_has_the_same_disk() {
    let Some((scene, layout, registry, image)) = with_registry(IMAGE_BYTES) else { return };
    let registry = registry.again_with_deletion(&scene);
    let (first, expected) = (convert(&scene, &image), expected(&scene, &layout));
    let cache = scene.arg("cache");
    run(["cache", "limit", SMALL, "--disk-cache", &cache]).ok();
    let containers = Containers::start(&scene, &["--disk-cache", &cache]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let before = containers.id("before");
    let create = ["container", "create", "--snapshotter", "headstart", &image, &before, "md5sum", "/data"];
    containers.ctr(&create);
    let greets = containers.run(&image, "one", &["cat", "/etc/motd"]).ok().stdout;
    assert_eq!(greets, "hello from the second layer\n");
    unmounted(&containers);
    let next = replace(&scene, &image, "lz4:1");
    // A container that was made before the change, and a new one.
    let started = containers.tried(&["task", "start", &before]);
    assert_eq!((started.code, &started.stdout), (Some(0), &expected), "{started:?} {}", containers.log());
    assert_eq!(containers.run(&image, "two", &["md5sum", "/data"]).ok().stdout, expected);
    let (log, said) = (containers.log(), format!("{next}, which has the same disk, takes its place"));
    assert!(log.contains(&first) && log.matches(&said).count() == 1, "{log}");
    assert_eq!(containers.mounted().len(), 1, "{log}");
    containers.ctr(&["container", "rm", &before]);
    drop(registry);
    containers.end(&[&image]);
}

/// Nothing here says which disk the earlier conversion had.
#[test]
fn a_container_whose_disk_is_not_known_says_what_to_do() {
    let Some((scene, layout, registry, image)) = with_registry(IMAGE_BYTES) else { return };
    let registry = registry.again_with_deletion(&scene);
    let (first, expected) = (convert(&scene, &image), expected(&scene, &layout));
    let containers = Containers::start(&scene, &["--disk-cache", "none"]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    unmounted(&containers);
    replace(&scene, &image, "lz4:1");
    let ran = containers.run(&image, "one", &["md5sum", "/data"]);
    let words = [first.as_str(), "convert --replace", "pull it again", "without a disk cache"];
    ran.fails(1, &words);
    // What it says.
    assert_eq!(containers.remove(&image).code, OK);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    assert_eq!(containers.mounted().len(), 1, "{}", containers.log());
    assert_eq!(containers.run(&image, "two", &["md5sum", "/data"]).ok().stdout, expected);
    drop(registry);
    containers.end(&[&image]);
}
