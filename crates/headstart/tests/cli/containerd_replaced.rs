//! Containers of an image whose conversion was replaced in its registry.

use std::fs;
use std::path::PathBuf;

use crate::containerd::{Containers, OK, convert, has_sum, sum_of_data, with_registry};
use crate::containerd_registry::unmounted;
use crate::registry::{Registry, SECRET, USER};
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

/// A container's image in a registry that removes what is to be removed.
fn with_deletion() -> Option<(Scene, PathBuf, Registry, String)> {
    let (scene, layout, registry, image) = with_registry(IMAGE_BYTES)?;
    let registry = registry.again_with_deletion(&scene);
    Some((scene, layout, registry, image))
}

/// Pulls the image, and starts a container of it. The machine has a part of it in its cache then.
fn begin<'a>(scene: &'a Scene, image: &str) -> Containers<'a> {
    let cache = scene.arg("cache");
    run(["cache", "limit", SMALL, "--disk-cache", &cache]).ok();
    let containers = Containers::start(scene, &["--disk-cache", &cache]);
    assert_eq!(containers.pull(image).code, OK, "{}", containers.log());
    containers.run(image, "one", &["busybox", "grep", "-q", "second layer", "/etc/motd"]).ok();
    containers
}

/// The machine starts again, and has a part of the image in its cache.
#[test]
fn a_container_starts_from_the_next_conversion_where_that_has_the_same_disk() {
    let Some((scene, layout, registry, image)) = with_deletion() else { return };
    let (first, sum) = (convert(&scene, &image), sum_of_data(&scene, &layout));
    let containers = begin(&scene, &image);
    let (before, check) = (containers.id("before"), has_sum(&sum));
    let command = [&image, &before, "sh", "-c", &check];
    let create = [&["container", "create", "--snapshotter", "headstart", "--"], &command[..]].concat();
    containers.ctr(&create);
    unmounted(&containers);
    let next = replace(&scene, &image, "lz4:1");
    // A container that was made before the change, and a new one.
    let started = containers.tried(&["task", "start", &before]);
    assert_eq!(started.code, Some(0), "{started:?} {}", containers.log());
    containers.run(&image, "two", &["sh", "-c", &check]).ok();
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
    let Some((scene, layout, registry, image)) = with_deletion() else { return };
    let (first, sum) = (convert(&scene, &image), sum_of_data(&scene, &layout));
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
    containers.run(&image, "two", &["sh", "-c", &has_sum(&sum)]).ok();
    drop(registry);
    containers.end(&[&image]);
}

/// Puts the image of another tag in the place of a conversion, as the last one of its container's image: in a
/// registry as another version of this program would leave it, whose disk differs.
const ANOTHER: &str = r#"
import hashlib, json, sys, urllib.request as u
base, conversion, tag = sys.argv[1:4]
kinds = ["application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"]
def get(reference):
    return json.load(u.urlopen(u.Request(f"{base}/manifests/{reference}", headers={"Accept": ", ".join(kinds)})))
def put(reference, text, kind):
    u.urlopen(u.Request(f"{base}/manifests/{reference}", text, {"Content-Type": kind}, method="PUT"))
manifest, other = get(conversion), get(tag)
says = manifest["annotations"]
says |= {"io.headstart.name": other["annotations"]["io.headstart.name"], "org.opencontainers.image.created": "2099-01-01T00:00:00Z"}
says.pop("io.headstart.index", None)
manifest["layers"] = other["layers"]
text = json.dumps(manifest).encode()
digest = "sha256:" + hashlib.sha256(text).hexdigest()
put(digest, text, kinds[0])
list_tag = manifest["subject"]["digest"].replace(":", "-")
listed = get(list_tag)
# This registry refuses a list with what it has removed.
listed["manifests"] = [{"mediaType": kinds[0], "digest": digest, "size": len(text),
    "artifactType": manifest["artifactType"], "annotations": says}]
put(list_tag, json.dumps(listed).encode(), kinds[1])
print(digest)
"#;

#[test]
fn a_container_does_not_start_from_a_conversion_with_another_disk() {
    let Some((scene, layout, registry, image)) = with_deletion() else { return };
    let first = convert(&scene, &image);
    let containers = begin(&scene, &image);
    unmounted(&containers);
    let next = replace(&scene, &image, "lz4:1");
    let (other, state) = (scene.arg("other.hsi"), scene.arg("uploads"));
    run(["build", &format!("oci:{}:other", layout.display()), "-o", &other, "--codec", "zstd:1"]).ok();
    run(["push", &other, &registry.url("tiny:disk"), "--upload-state", &state]).ok();
    let base = format!("http://127.0.0.1:{}/v2/tiny", registry.port);
    let next = next.split('@').nth(1).expect("a digest");
    let last = tool("python3", &["-c", ANOTHER, &base, next, "disk"]).stdout;
    let ran = containers.run(&image, "two", &["cat", "/etc/motd"]);
    let words = [first.as_str(), "pull it again", "has another disk", last.trim()];
    ran.fails(1, &words);
    assert_eq!(containers.mounted().len(), 0, "{}", containers.log());
    // What it says.
    assert_eq!(containers.remove(&image).code, OK);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    assert!(containers.mounted()[0].contains("/tree "), "{}", containers.log());
    containers.run(&image, "three", &["echo"]).ok();
    drop(registry);
    containers.end(&[&image]);
}

/// The registry wants a login by the time that the machine starts again, as where one has expired.
#[test]
fn a_container_whose_login_has_expired_says_so_and_starts_after_the_next_login() {
    let Some((scene, layout, registry, image)) = with_deletion() else { return };
    let sum = sum_of_data(&scene, &layout);
    convert(&scene, &image);
    let containers = begin(&scene, &image);
    unmounted(&containers);
    let next = replace(&scene, &image, "lz4:1");
    let registry = registry.again_with_login(&scene);
    let host = image.split('/').next().expect("a host");
    let advice = format!("podman login {host}");
    containers.run(&image, "two", &["echo"]).fails(1, &[host, "wants a login", &advice]);
    let log_in = |password: &str| {
        let login = format!(r#"{{"auths":{{"{host}":{{"username":"{USER}","password":"{password}"}}}}}}"#);
        fs::write(scene.path("auth.json"), login).expect("written");
    };
    log_in("0utdated");
    let ran = containers.run(&image, "three", &["echo"]);
    ran.fails(1, &[host, "refuses this login", &advice]);
    assert!(!ran.stderr.contains("0utdated") && !containers.log().contains("0utdated"), "{ran:?}");
    // Nothing is started again.
    log_in(SECRET);
    containers.run(&image, "four", &["sh", "-c", &has_sum(&sum)]).ok();
    assert!(containers.log().contains(&format!("{next}, which has the same disk")), "{}", containers.log());
    drop(registry);
    containers.end(&[&image]);
}
