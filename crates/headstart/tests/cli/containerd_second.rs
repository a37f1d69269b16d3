//! Clients of containerd 2: ctr, nerdctl, CRI's crictl with a pod, a kubelet, and Docker.
//! `scripts/containerd-2.sh` builds what Debian 12 does not have.

mod docker;
mod kubelet;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};

use crate::containerd::{
    CRI, Containers, OK, can_run, convert, is_second, layers_fetched, pushed, sum_of_data, with_registry,
};
use crate::containerd_deaths::{kill_all, of_image};
use crate::registry::Registry;
use crate::scene::{Ran, Scene, has_tools, machine_has, tool, wait_until};

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
    let [address, data, networks] = ["c.sock", "nerdctl", "networks"].map(|name| scene.arg(name));
    command.args(["--address", &address, "--data-root", &data, "--namespace", NAMESPACE]);
    command.args(["--cni-path", "/usr/lib/cni", "--cni-netconfpath", &networks]);
    command.args(["--snapshotter", "headstart", "--insecure-registry"]).args(words);
    ran(command)
}

fn crictl(scene: &Scene, words: &[&str]) -> String {
    let endpoint = format!("unix://{}", scene.arg("c.sock"));
    let mut command = Command::new("crictl");
    // By itself it waits for two seconds.
    command.args(["-t", "60s", "-r", &endpoint, "-i", &endpoint]).args(words);
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
    let ran = nerdctl(&scene, &["run", "--rm", "--net", "host", &image, "cat", "/etc/motd"]).ok();
    assert!(ran.stdout.ends_with(MOTD), "{ran:?}");
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    nerdctl(&scene, &["rmi", &image]).ok();
    gone(&scene, &containers);
    drop(registry);
    containers.end(&[]);
}

/// Pulls the image, and the one of the process that holds a pod, which has the same layers.
fn pull_with_pause(scene: &Scene, layout: &Path, registry: &Registry, image: &str) -> String {
    let tagged = format!("{}:t", layout.display());
    let sleeps = ["--config.cmd", "/bin/sleep", "--config.cmd", "1000000"];
    tool("umoci", &[&["config", "--image", &tagged, "--tag", "pause"], &sleeps[..]].concat());
    let pause = pushed(registry, layout, "pause");
    for image in [image, &pause] {
        crictl(scene, &["pull", image]);
    }
    ctr(scene, CRI, &["image", "tag", &pause, PAUSE]).ok();
    pause
}

/// A pod, with what is said of it besides, and its container as crictl begins them; gives both names.
fn begin_pod(
    scene: &Scene,
    containers: &Containers<'_>,
    image: &str,
    of_pod: Value,
    command: &[&str],
) -> (String, String) {
    let (name, logs) = (containers.id("pod"), scene.folder("logs"));
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "attempt": 0});
    let mut pod = json!({"metadata": metadata, "log_directory": logs});
    pod.as_object_mut().expect("an object").extend(of_pod.as_object().expect("an object").clone());
    let container = json!({
        "metadata": {"name": "one"}, "image": {"image": image}, "log_path": "one.log", "command": command,
        "linux": {"resources": {"memory_limit_in_bytes": MEMORY_BYTES}},
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

/// Ends a pod, and removes its image.
fn end_pod(scene: &Scene, containers: &Containers<'_>, pod: &str, pause: &str) {
    crictl(scene, &["stopp", pod]);
    crictl(scene, &["rmp", pod]);
    for image in [PAUSE, pause] {
        assert_eq!(containers.remove(image).code, OK);
    }
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
    let mut containers = Containers::start(&scene, &["--disk-cache", "none", "--prefetch", "off"]);
    let pause = pull_with_pause(&scene, &layout, &registry, &image);
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    let read = "cat /etc/motd; while md5sum /data; do sleep 0; done";
    // The machine's network.
    let of_pod = json!({"linux": {"security_context": {"namespace_options": {"network": 2}}}});
    let (pod, container) = begin_pod(&scene, &containers, &image, of_pod, &["sh", "-c", read]);
    for _ in 0..KILLS {
        let before = written(&scene).len();
        wait_until("the container has read on", || written(&scene).len() > before);
        wait_until("a server is killed", || kill_all(&of_image(&scene, true)) > 0);
        containers.kill_snapshotter();
    }
    let before = written(&scene).len();
    wait_until("the container has read it after the last", || written(&scene).len() > before + 1);
    assert_eq!(crictl(&scene, &["exec", &container, "cat", "/etc/motd"]), MOTD.trim());
    end_pod(&scene, &containers, &pod, &pause);
    let lines = written(&scene);
    let sum = format!("{}  /data\n", sum_of_data(&scene, &layout));
    assert!(
        lines[0] == MOTD && lines.len() > KILLS && lines[1..].iter().all(|line| *line == sum),
        "{lines:?}"
    );
    drop(registry);
    containers.end(&[&image]);
}

/// Where Debian has the plugins for networks.
const PLUGINS: [&str; 3] = ["/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"];
/// A network as nodes have it: a bridge, addresses, the world behind it, and ports of the node.
const NETWORK: &str = r#"{"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam":
        {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
/// A port of the node, and the node as its pods see it.
const PORT: u16 = 8080;
const NODE: &str = "10.99.0.1";
/// A container's command that serves its files at port 80.
const SERVES: [&str; 7] = ["busybox", "httpd", "-f", "-p", "80", "-h", "/"];

fn can_run_networks() -> bool {
    can_run_second() && machine_has(&PLUGINS) && has_tools(&["ip", "iptables"])
}

/// Gives this thread a network of its own.
fn network_apart() {
    // SAFETY: CLONE_NEWNET changes this thread's view of networks only; no descriptor or memory is affected.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "a network of its own");
    tool("ip", &["link", "set", "lo", "up"]);
}

/// The configuration of pods' networks, and a place of the test's own for what plugins remember.
fn network_of_pods(scene: &Scene) {
    scene.folder("net.d");
    fs::write(scene.path("net.d/10-pods.conflist"), NETWORK).expect("written");
    let place = Path::new("/var/lib/cni");
    fs::create_dir_all(place).expect("a folder");
    mount("cni", place, "tmpfs", MountFlags::empty(), None).expect("mounted");
}

/// The sum of what a pod serves.
fn sum_at(address: &str) -> String {
    let script = "busybox wget -q -O - http://$0/data | md5sum";
    tool("sh", &["-c", script, address]).stdout
}

#[test]
fn a_pod_with_a_network_of_its_own_starts_lazily_and_is_reached() {
    if !can_run_networks() {
        return;
    }
    network_apart();
    let Some((scene, layout, registry, image)) = converted(DATA_BYTES) else { return };
    network_of_pods(&scene);
    let mut containers = Containers::start(&scene, &["--disk-cache", "none", "--prefetch", "off"]);
    let pause = pull_with_pause(&scene, &layout, &registry, &image);
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    let of_pod = json!({"port_mappings": [{"container_port": 80, "host_port": PORT}], "linux": {}});
    let (pod, container) = begin_pod(&scene, &containers, &image, of_pod, &SERVES);
    let described: Value =
        serde_json::from_str(&crictl(&scene, &["inspectp", &pod])).expect("what crictl has of it");
    let address = described["status"]["network"]["ip"].as_str().expect("an address");
    wait_until("the pod serves", || TcpStream::connect((address, 80)).is_ok());
    let sum = format!("{}  -\n", sum_of_data(&scene, &layout));
    assert_eq!(sum_at(address), sum);
    wait_until("a server is killed", || kill_all(&of_image(&scene, true)) > 0);
    containers.kill_snapshotter();
    assert_eq!(sum_at(&format!("127.0.0.1:{PORT}")), sum, "by the node's port");
    let from_pod = format!("busybox wget -q -O - http://{NODE}:{PORT}/etc/motd");
    assert_eq!(crictl(&scene, &["exec", &container, "sh", "-c", &from_pod]), MOTD.trim());
    end_pod(&scene, &containers, &pod, &pause);
    drop(registry);
    containers.end(&[&image]);
}

#[test]
fn nerdctl_gives_a_container_a_network_of_its_own() {
    if !can_run_networks() || !has_tools(&["nerdctl"]) {
        return;
    }
    network_apart();
    let Some((scene, layout, registry, image)) = converted(DATA_BYTES) else { return };
    network_of_pods(&scene);
    let containers = Containers::start(&scene, &["--disk-cache", "none", "--prefetch", "off"]);
    let port = format!("127.0.0.1:{PORT}");
    let name = containers.id("one");
    let run = ["run", "--detach", "--name", &name, "--publish", &format!("{port}:80"), &image];
    nerdctl(&scene, &[&run[..], &SERVES].concat()).ok();
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    wait_until("the container serves", || TcpStream::connect(&port).is_ok());
    assert_eq!(sum_at(&port), format!("{}  -\n", sum_of_data(&scene, &layout)));
    nerdctl(&scene, &["rm", "--force", &name]).ok();
    nerdctl(&scene, &["rmi", &image]).ok();
    gone(&scene, &containers);
    drop(registry);
    containers.end(&[]);
}
