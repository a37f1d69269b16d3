//! Docker, whose images are in containerd and whose storage driver is the snapshotter.

use std::fs;
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};
use serde_json::json;

use super::{DATA_BYTES, KILLS, MEMORY_BYTES, MOTD, converted, gone, ran};
use crate::containerd::{Containers, Daemon, layers_fetched, pushed, sum_of_data};
use crate::containerd_deaths::{kill_all, of_image};
use crate::scene::{Ran, Scene, has_tools, wait_until};

/// A daemon of the scene, which changes nothing of the machine's networks.
fn dockerd(scene: &Scene) -> Daemon {
    let config = json!({
        "containerd": scene.arg("c.sock"), "storage-driver": "headstart",
        // Debian's runc has no time namespaces.
        "features": {"containerd-snapshotter": true, "time-namespaces": false},
        "hosts": [format!("unix://{}", scene.arg("d.sock"))], "pidfile": scene.arg("docker.pid"),
        "data-root": scene.arg("docker"), "exec-root": scene.arg("docker.run"), "live-restore": true,
        "bridge": "none", "iptables": false, "ip6tables": false, "userland-proxy": false,
    });
    fs::write(scene.path("docker.json"), config.to_string()).expect("written");
    let mut command = Command::new("dockerd");
    command.args(["--config-file", &scene.arg("docker.json")]);
    let daemon = Daemon::start(&mut command, &scene.path("docker.log"));
    wait_until("Docker answers", || tried(scene, &["version"]).code == Some(0));
    daemon
}

fn tried(scene: &Scene, words: &[&str]) -> Ran {
    let mut command = Command::new("docker");
    command.env("DOCKER_HOST", format!("unix://{}", scene.arg("d.sock")));
    // The builder that is in the daemon; the other one is a program beside the client.
    command.env("DOCKER_CONFIG", scene.arg("docker.own")).env("DOCKER_BUILDKIT", "0");
    command.args(words);
    ran(command)
}

fn docker(scene: &Scene, words: &[&str]) -> String {
    tried(scene, words).ok().stdout
}

/// What a new container of the image writes.
fn said(scene: &Scene, image: &str, command: &[&str]) -> String {
    docker(scene, &[&["run", "--rm", "--network", "none", image], command].concat())
}

/// Makes an image on top of another one, with a layer of its own.
fn build(scene: &Scene, image: &str, tag: &str) {
    let folder = scene.folder("build");
    let lines = format!("FROM {image}\nRUN [\"sh\", \"-c\", \"cat /etc/motd >/copied\"]\n");
    fs::write(scene.path("build/Dockerfile"), lines).expect("written");
    docker(scene, &["build", "--network", "none", "-t", tag, &folder]);
}

/// Ends the daemon, and what it leaves mounted of its own.
fn end(scene: &Scene, mut daemon: Daemon) {
    let log = || fs::read_to_string(scene.path("docker.log")).unwrap_or_default();
    assert!(daemon.end(), "{}", log());
    for left in ["docker", "docker.run/netns/default"].map(|name| scene.path(name)) {
        if scene.mounts().iter().any(|line| line.contains(&format!(" {} ", left.display()))) {
            unmount(left, UnmountFlags::empty()).expect("unmounted");
        }
    }
}

#[test]
fn docker_pulls_lazily_and_its_container_goes_on_behind_kills() {
    if !has_tools(&["dockerd", "docker"]) {
        return;
    }
    let Some((scene, layout, registry, image)) = converted(DATA_BYTES) else { return };
    let mut containers = Containers::start(&scene, &["--disk-cache", "none", "--prefetch", "off"]);
    let mut daemon = dockerd(&scene);
    docker(&scene, &["pull", &image]);
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    assert_eq!(said(&scene, &image, &["cat", "/etc/motd"]), MOTD);

    let memory = MEMORY_BYTES.to_string();
    let run = ["run", "--detach", "--name", "one", "--network", "none", "--memory", &memory, &image];
    docker(&scene, &[&run[..], &["sh", "-c", "echo x >/new; while md5sum /data; do sleep 0; done"]].concat());
    let lines = || docker(&scene, &["logs", "one"]).lines().map(str::to_owned).collect::<Vec<_>>();
    let reads_on = || {
        let before = lines().len();
        wait_until("the container has read all once more", || lines().len() > before + 1);
    };
    for _ in 0..KILLS {
        reads_on();
        wait_until("a server is killed", || kill_all(&of_image(&scene, true)) > 0);
        containers.kill_snapshotter();
    }
    daemon.kill();
    daemon = dockerd(&scene);
    reads_on();
    let sum = format!("{}  /data", sum_of_data(&scene, &layout));
    assert!(lines().iter().all(|line| *line == sum), "{:?}", lines());
    assert_eq!(docker(&scene, &["diff", "one"]), "A /new\n");

    docker(&scene, &["commit", "one", "committed"]);
    assert_eq!(said(&scene, "committed", &["cat", "/new", "/etc/motd"]), format!("x\n{MOTD}"));
    build(&scene, &image, "built");
    assert_eq!(said(&scene, "built", &["cat", "/copied"]), MOTD);
    assert_eq!((layers_fetched(&scene, &layout), containers.mounted().len()), (0, 1), "{}", containers.log());
    docker(&scene, &["rm", "--force", "one"]);
    docker(&scene, &["rmi", "committed", "built", &image]);
    gone(&scene, &containers);

    // The lower of its layers alone, which nothing was made of.
    let other = pushed(&registry, &layout, "other");
    docker(&scene, &["pull", &other]);
    wait_until("the registry has told of the layer", || layers_fetched(&scene, &layout) == 1);
    assert_eq!(containers.mounted().len(), 0);
    assert_eq!(said(&scene, &other, &["echo", "unpacked"]), "unpacked\n");
    docker(&scene, &["image", "prune", "--all", "--force"]);
    gone(&scene, &containers);
    end(&scene, daemon);
    drop(registry);
    containers.end(&[]);
}
