//! A kubelet without a control plane, which starts a static pod.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, mount, mount_bind};
use serde_json::{Value, json};

use super::{
    CRI, DATA_BYTES, MEMORY_BYTES, PAUSE, PORT, SERVES, can_run_networks, converted, crictl, ctr,
    network_apart, network_of_pods, sum_at,
};
use crate::containerd::{Containers, Daemon, OK, layers_fetched, sum_of_data};
use crate::containerd_deaths::{kill_all, of_image};
use crate::registry::Registry;
use crate::scene::{Scene, has_tools, tool, wait_until};
use crate::supervised::get;

const KILLS: usize = 3;
/// The node, as it calls itself, and where it tells of its pods.
const NODE: &str = "192.0.2.10";
const PODS: &str = "127.0.0.1:10255";
/// What a kubelet writes below `/proc/sys`.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Gives the kubelet folders of its own, and files in the place of this machine's settings.
fn apart() {
    for folder in ["/var/lib/kubelet", "/var/log/containers"] {
        fs::create_dir_all(folder).expect("a folder");
        mount("kubelet", folder, "tmpfs", MountFlags::empty(), None).expect("mounted");
    }
    for (name, value) in SETTINGS {
        let file = Path::new("/var/lib/kubelet").join(name.replace('/', "."));
        fs::write(&file, value).expect("written");
        mount_bind(file, Path::new("/proc/sys").join(name)).expect("mounted");
    }
    tool("ip", &["link", "add", "node0", "type", "bridge"]);
    tool("ip", &["address", "add", &format!("{NODE}/24"), "dev", "node0"]);
    tool("ip", &["link", "set", "node0", "up"]);
}

/// The image of the process that holds a pod. It has no layer of the other images.
fn pull_pause(scene: &Scene, registry: &Registry) -> String {
    let (layout, bundle) = (scene.arg("pause"), scene.path("pause-bundle"));
    let (image, folder) = (format!("{layout}:t"), bundle.display().to_string());
    tool("umoci", &["init", "--layout", &layout]);
    tool("umoci", &["new", "--image", &image]);
    tool("umoci", &["unpack", "--image", &image, &folder]);
    fs::copy("/bin/busybox", bundle.join("rootfs/busybox")).expect("busybox");
    tool("umoci", &["repack", "--image", &image, &folder]);
    let words = ["/busybox", "sleep", "1000000"].map(|word| ["--config.cmd", word]).concat();
    tool("umoci", &[&["config", "--image", &image], &words[..]].concat());
    let reference = format!("127.0.0.1:{}/pause:t", registry.port);
    let (from, to) = (format!("oci:{image}"), format!("docker://{reference}"));
    tool("skopeo", &["copy", "-q", "--dest-tls-verify=false", &from, &to]);
    crictl(scene, &["pull", &reference]);
    ctr(scene, CRI, &["image", "tag", &reference, PAUSE]).ok();
    reference
}

/// Starts a kubelet that is told of its pods by a folder.
fn kubelet(scene: &Scene) -> Daemon {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "staticPodPath": scene.arg("pods"), "podLogsDir": scene.arg("logs"),
        "volumePluginDir": scene.arg("plugins"),
        "containerRuntimeEndpoint": format!("unix://{}", scene.arg("c.sock")),
        "address": "127.0.0.1", "readOnlyPort": 10255,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
        "failCgroupV1": false, "failSwapOn": false,
        "oomScoreAdj": 0, "evictionHard": {}, "fileCheckFrequency": "1s",
    });
    fs::write(scene.path("kubelet.json"), config.to_string()).expect("written");
    let mut command = Command::new("kubelet");
    command.args(["--config", &scene.arg("kubelet.json"), "--hostname-override", "node", "--node-ip", NODE]);
    Daemon::start(&mut command, &scene.path("kubelet.log"))
}

/// What the kubelet says of its pod, once that is ready.
fn ready(scene: &Scene) -> Value {
    let mut found = Value::Null;
    let log = || fs::read_to_string(scene.path("kubelet.log")).unwrap_or_default();
    wait_until("the pod is ready", || {
        if TcpStream::connect(PODS).is_err() {
            return false;
        }
        let answer = get(PODS, "/pods", "");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let pods: Value = serde_json::from_str(body).unwrap_or_default();
        found = pods["items"][0]["status"].clone();
        found["containerStatuses"][0]["ready"] == true
    });
    assert_eq!(found["containerStatuses"][0]["restartCount"], 0, "{found} {}", log());
    found
}

#[test]
fn a_kubelet_starts_a_pod_lazily_that_goes_on_behind_kills() {
    if !can_run_networks() || !has_tools(&["kubelet"]) {
        return;
    }
    network_apart();
    let Some((scene, layout, registry, image)) = converted(DATA_BYTES) else { return };
    network_of_pods(&scene);
    apart();
    let mut containers = Containers::start(&scene, &["--disk-cache", "none", "--prefetch", "off"]);
    let pause = pull_pause(&scene, &registry);
    scene.folder("pods");
    let mut running = kubelet(&scene);
    let probe = json!({"httpGet": {"path": "/etc/motd", "port": 80}, "periodSeconds": 1});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "one", "image": image, "imagePullPolicy": "Always", "command": SERVES,
            "ports": [{"containerPort": 80, "hostPort": PORT}], "readinessProbe": probe,
            "resources": {"limits": {"memory": MEMORY_BYTES.to_string()}},
        }]},
    });
    fs::write(scene.path("pod.json"), pod.to_string()).expect("written");
    fs::rename(scene.path("pod.json"), scene.path("pods/pod.json")).expect("moved");
    let status = ready(&scene);
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    let sum = format!("{}  -\n", sum_of_data(&scene, &layout));
    let address = status["podIP"].as_str().expect("an address");
    assert_eq!(sum_at(address), sum);
    for _ in 0..KILLS {
        wait_until("a server is killed", || kill_all(&of_image(&scene, true)) > 0);
        containers.kill_snapshotter();
        assert_eq!(sum_at(&format!("{NODE}:{PORT}")), sum, "by the node's port");
    }
    running.kill();
    running = kubelet(&scene);
    assert_eq!(ready(&scene)["podIP"], address);
    running.kill();
    crictl(&scene, &["rmp", "--all", "--force"]);
    for image in [PAUSE, &pause] {
        assert_eq!(containers.remove(image).code, OK);
    }
    drop(registry);
    containers.end(&[&image]);
}
