//! Clients of containerd 2, whose transfer service unpacks: ctr, nerdctl, and CRI's crictl with a pod.
//! `scripts/containerd-2.sh` builds what Debian 12 does not have.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::containerd::{
    CRI, Containers, OK, can_run, convert, is_second, layers_fetched, pushed, with_registry,
};
use crate::containerd_deaths::{kill_all, of_image};
use crate::registry::Registry;
use crate::scene::{Ran, Scene, has_tools, tool, wait_until};

/// A namespace in which CRI gives images no further names.
const NAMESPACE: &str = "second";
/// As the configuration names the image of the process that holds a pod.
const PAUSE: &str = "localhost/pause:1";
const MOTD: &str = "hello from the second layer\n";
const KILLS: usize = 5;
/// The pod reads so much, and has memory for half of it: most comes from the server each time.
const DATA_BYTES: usize = 24 << 20;
const MEMORY_BYTES: usize = DATA_BYTES / 2;

fn can_run_second() -> bool {
    if !can_run() || !has_tools(&["crictl"]) {
        return false;
    }
    if !is_second() {
        hs_testing::skip("containerd 2 is missing");
    }
    is_second()
}

/// A registry with an image, and its conversion; with a log of requests of its own.
fn converted(data_bytes: usize) -> Option<(Scene, std::path::PathBuf, Registry, String)> {
    if !can_run_second() {
        return None;
    }
    let (scene, layout, registry, image) = with_registry(data_bytes)?;
    convert(&scene, &image);
    let registry = registry.again(&scene);
    Some((scene, layout, registry, image))
}

fn ran(mut command: Command) -> Ran {
    command.stdin(Stdio::null()).output().expect("it starts").into()
}

fn ctr(scene: &Scene, namespace: &str, words: &[&str]) -> Ran {
    let mut command = Command::new("ctr");
    command.args(["-a", &scene.arg("c.sock"), "-n", namespace]).args(words);
    ran(command)
}

fn nerdctl(scene: &Scene, words: &[&str]) -> Ran {
    let mut command = Command::new("nerdctl");
    let [address, data] = ["c.sock", "nerdctl"].map(|name| scene.arg(name));
    command.args(["--address", &address, "--data-root", &data, "--namespace", NAMESPACE]);
    command.args(["--cni-path", "/none", "--snapshotter", "headstart", "--insecure-registry"]).args(words);
    ran(command)
}

fn crictl(scene: &Scene, words: &[&str]) -> String {
    let endpoint = format!("unix://{}", scene.arg("c.sock"));
    let mut command = Command::new("crictl");
    command.args(["-r", &endpoint, "-i", &endpoint]).args(words);
    ran(command).ok().stdout.trim().to_owned()
}

/// Waits until all has gone that the image's removal takes away.
fn gone(scene: &Scene, containers: &Containers<'_>) {
    wait_until("no image is mounted", || containers.mounted().is_empty());
    wait_until("no snapshot is left", || {
        fs::read_dir(scene.path("root/snapshots")).expect("a folder").count() == 0
    });
}

/// Without CRI. The snapshotter is told of the container's image by its proxy plugin's `exports`.
#[test]
fn a_transfer_fetches_no_layer_of_a_converted_image_and_each_of_another() {
    let Some((scene, layout, registry, image)) = converted(100_000) else { return };
    let containers = Containers::start(&scene, &["--disk-cache", "none"]);
    let ctr = |words: &[&str]| ctr(&scene, NAMESPACE, words).ok();
    ctr(&["image", "pull", "--plain-http", "--snapshotter", "headstart", &image]);
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    let id = containers.id("one");
    let run = ["run", "--rm", "--snapshotter", "headstart", &image, &id, "cat", "/etc/motd"];
    assert_eq!(ctr(&run).stdout, MOTD);
    ctr(&["image", "rm", "--sync", &image]);
    gone(&scene, &containers);
    // The lower of its layers alone, which nothing was made of.
    let other = pushed(&registry, &layout, "other");
    ctr(&["image", "pull", "--plain-http", "--snapshotter", "headstart", &other]);
    wait_until("the registry has told of the layer", || layers_fetched(&scene, &layout) == 1);
    assert_eq!(containers.mounted().len(), 0);
    let run = ["run", "--rm", "--snapshotter", "headstart", &other, &id, "echo", "unpacked"];
    assert_eq!(ctr(&run).stdout, "unpacked\n");
    ctr(&["image", "rm", "--sync", &other]);
    drop(registry);
    containers.end(&[]);
}

#[test]
fn nerdctl_runs_a_converted_image_that_it_pulls() {
    let Some((scene, layout, registry, image)) = converted(100_000) else { return };
    if !has_tools(&["nerdctl"]) {
        return;
    }
    let containers = Containers::start(&scene, &["--disk-cache", "none"]);
    // Networks of containers need plugins that Debian does not install.
    let ran = nerdctl(&scene, &["run", "--rm", "--net", "host", &image, "cat", "/etc/motd"]).ok();
    assert!(ran.stdout.ends_with(MOTD), "{ran:?}");
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    nerdctl(&scene, &["rmi", &image]).ok();
    gone(&scene, &containers);
    drop(registry);
    containers.end(&[]);
}

/// A pod and its container as crictl begins them; gives both names.
fn begin_pod(scene: &Scene, containers: &Containers<'_>, image: &str) -> (String, String) {
    let name = containers.id("pod");
    let logs = scene.folder("logs");
    // Its network is the machine's: another needs plugins.
    let pod = serde_json::json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "attempt": 0}, "log_directory": logs,
        "linux": {"security_context": {"namespace_options": {"network": 2}}},
    });
    let container = serde_json::json!({
        "metadata": {"name": "one"}, "image": {"image": image}, "log_path": "one.log",
        "linux": {"resources": {"memory_limit_in_bytes": MEMORY_BYTES}},
        "command": ["sh", "-c", "cat /etc/motd; while md5sum /data; do sleep 0; done"],
    });
    let [pod_file, container_file] =
        [("pod.json", pod), ("container.json", container)].map(|(name, value)| {
            fs::write(scene.path(name), value.to_string()).expect("written");
            scene.arg(name)
        });
    let pod = crictl(scene, &["runp", &pod_file]);
    let container = crictl(scene, &["create", &pod, &container_file, &pod_file]);
    crictl(scene, &["start", &container]);
    (pod, container)
}

/// What the container has written, without the times that CRI writes before it.
fn written(scene: &Scene) -> Vec<String> {
    let log = fs::read_to_string(scene.path("logs/one.log")).unwrap_or_default();
    let complete = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    complete.filter_map(|line| Some(line.split_once(" F ")?.1.to_owned())).collect()
}

/// As Kubernetes starts them: CRI pulls by the transfer service. Server and snapshotter are killed together.
#[test]
fn a_pod_does_not_notice_that_snapshotter_and_servers_are_killed() {
    let Some((scene, layout, registry, image)) = converted(DATA_BYTES) else { return };
    let tagged = format!("{}:t", layout.display());
    tool(
        "umoci",
        &[
            "config",
            "--image",
            &tagged,
            "--tag",
            "pause",
            "--config.cmd",
            "/bin/sleep",
            "--config.cmd",
            "1000000",
        ],
    );
    let pause = pushed(&registry, &layout, "pause");
    let mut containers = Containers::start(&scene, &["--disk-cache", "none", "--prefetch", "off"]);
    for image in [&image, &pause] {
        crictl(&scene, &["pull", image]);
    }
    ctr(&scene, CRI, &["image", "tag", &pause, PAUSE]).ok();
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    let (pod, container) = begin_pod(&scene, &containers, &image);
    for _ in 0..KILLS {
        let before = written(&scene).len();
        wait_until("the container has read on", || written(&scene).len() > before);
        wait_until("a server is killed", || kill_all(&of_image(&scene, true)) > 0);
        containers.kill_snapshotter();
    }
    let before = written(&scene).len();
    wait_until("the container has read it after the last", || written(&scene).len() > before + 1);
    assert_eq!(crictl(&scene, &["exec", &container, "cat", "/etc/motd"]), MOTD.trim());
    crictl(&scene, &["stopp", &pod]);
    crictl(&scene, &["rmp", &pod]);
    let lines = written(&scene);
    let sum = sum_of_data(&scene, &layout);
    assert!(
        lines[0] == MOTD && lines.len() > KILLS && lines[1..].iter().all(|line| *line == sum),
        "{lines:?}"
    );
    drop(registry);
    for image in [PAUSE, &pause] {
        assert_eq!(containers.remove(image).code, OK);
    }
    containers.end(&[&image]);
}

/// The line that md5sum has for the layout's data.
fn sum_of_data(scene: &Scene, layout: &Path) -> String {
    let root = scene.arg("unpacked");
    tool("umoci", &["raw", "unpack", "--image", &format!("{}:t", layout.display()), &root]);
    let said = tool("md5sum", &[&format!("{root}/data")]).stdout;
    format!("{}  /data\n", said.split(' ').next().expect("a sum"))
}
