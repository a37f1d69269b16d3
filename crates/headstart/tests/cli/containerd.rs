//! Containers of a real containerd that start from lazily mounted images: Debian's containerd, runc, ctr.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hs_units::Prng;
use rustix::process::{Pid, Signal, kill_process};

use crate::containerd_registry::unmounted;
use crate::filling::with_kept;
use crate::grpc_client::{Called, call, field};
use crate::registry::{REGISTRY, Registry};
use crate::scene::{Ran, START, Scene, executable, has_tools, headstart, machine_has, run, tool, wait_until};
use crate::service::server_of;

const TOOLS: &[&str] = &["containerd", "runc", "ctr", "umoci", "skopeo", REGISTRY];
/// The namespace of what CRI pulls.
pub(crate) const CRI: &str = "k8s.io";
const SERVICE: &str = "/containerd.services.snapshots.v1.Snapshots";
/// Codes of gRPC.
pub(crate) const OK: u32 = 0;
const INVALID: u32 = 3;
const NOT_FOUND: u32 = 5;
pub(crate) const EXISTS: u32 = 6;
const PRECONDITION: u32 = 9;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
pub(crate) const UNAVAILABLE: u32 = 14;

pub(crate) fn can_run() -> bool {
    machine_has(START) && has_tools(TOOLS)
}

/// Whether the containerd on PATH is of the second series, which Debian 12 does not have.
pub(crate) fn is_second() -> bool {
    !tool("containerd", &["--version"]).stdout.contains(" 1.")
}

/// The configuration of a containerd that has its files in a folder.
fn configuration(folder: &str) -> String {
    let same = format!(
        r#"root = "{folder}data"
state = "{folder}state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{folder}c.sock"
[proxy_plugins.headstart]
  type = "snapshot"
  address = "{folder}s.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}opt"
"#
    );
    let (version, own) = if is_second() { (3, SECOND) } else { (2, FIRST) };
    format!("version = {version}\n{same}{}", own.replace("FOLDER/", folder))
}

/// What containerd 1 is told besides.
const FIRST: &str = r#"[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "headstart"
  disable_snapshot_annotations = false
"#;

/// What containerd 2 is told besides: its transfer service unpacks for these two. Tests run on machines that
/// let no process be spared when memory is short.
const SECOND: &str = r#"[proxy_plugins.headstart.exports]
  enable_remote_snapshot_annotations = "true"
  root = "FOLDER/root"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "headstart"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "FOLDER/net.d"
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "headstart"
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "overlayfs"
"#;

/// A process that is killed when its test ends.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let log = fs::File::options().create(true).append(true).open(log).expect("a file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("one more")).stderr(log);
        Self(command.spawn().expect("it starts"))
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks it to end; whether it did so well.
    pub(crate) fn end(&mut self) -> bool {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("signalled");
        self.0.wait().expect("ended").success()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A snapshotter, and a containerd that uses it.
pub(crate) struct Containers<'a> {
    scene: &'a Scene,
    flags: Vec<String>,
    /// Where a service manager listens.
    manager: Option<PathBuf>,
    pub(crate) snapshotter: Daemon,
    containerd: Option<Daemon>,
}

impl<'a> Containers<'a> {
    /// The snapshotter alone. `flags` are for each mount.
    pub(crate) fn snapshotter(scene: &'a Scene, flags: &[&str]) -> Self {
        Self::managed(scene, flags, None)
    }

    /// The same below a service manager.
    pub(crate) fn managed(scene: &'a Scene, flags: &[&str], manager: Option<PathBuf>) -> Self {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let snapshotter = Self::serve(scene, &Self::words(scene, &flags), manager.as_deref());
        Self { scene, flags, manager, snapshotter, containerd: None }
    }

    /// The arguments of the snapshotter.
    fn words(scene: &Scene, flags: &[String]) -> Vec<String> {
        let [root, socket, containerd] = ["root", "s.sock", "c.sock"].map(|name| scene.arg(name));
        let words =
            ["snapshotter", "--root", &root, "serve", "--socket", &socket, "--containerd", &containerd, "--"];
        words.into_iter().map(str::to_owned).chain(flags.iter().cloned()).collect()
    }

    fn serve(scene: &Scene, words: &[String], manager: Option<&Path>) -> Daemon {
        let mut command = headstart(words);
        command.envs(manager.map(|manager| ("NOTIFY_SOCKET", manager)));
        Self::listening(scene, &mut command)
    }

    /// Its logins are in a file that a test may write.
    fn listening(scene: &Scene, command: &mut Command) -> Daemon {
        command.env("REGISTRY_AUTH_FILE", scene.path("auth.json"));
        let daemon = Daemon::start(command, &scene.path("snapshotter.log"));
        let socket = scene.path("s.sock");
        wait_until("the snapshotter listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        daemon
    }

    pub(crate) fn start(scene: &'a Scene, flags: &[&str]) -> Self {
        Self::snapshotter(scene, flags).with_containerd()
    }

    /// Starts a containerd too.
    pub(crate) fn with_containerd(mut self) -> Self {
        let scene = self.scene;
        let config = configuration(&scene.arg(""));
        fs::write(scene.path("containerd.toml"), config).expect("written");
        let mut command = Command::new("containerd");
        command.arg("-c").arg(scene.path("containerd.toml"));
        self.containerd = Some(Daemon::start(&mut command, &scene.path("containerd.log")));
        wait_until("containerd listens", || self.tried(&["version"]).code == Some(0));
        self
    }

    pub(crate) fn tried(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new("ctr");
        command.args(["-a", &self.scene.arg("c.sock"), "-n", CRI]).args(arguments).stdin(Stdio::null());
        command.output().expect("ctr starts").into()
    }

    pub(crate) fn ctr(&self, arguments: &[&str]) -> Ran {
        self.tried(arguments).ok()
    }

    /// Has CRI pull an image.
    pub(crate) fn pull(&self, reference: &str) -> Called {
        self.cri("PullImage", &Self::image(reference))
    }

    /// The same with a login, as the kubelet has it of a pod's secrets.
    pub(crate) fn pull_with_login(&self, reference: &str, user: &str, password: &str) -> Called {
        let login = [field(1, user.as_bytes()), field(2, password.as_bytes())].concat();
        self.cri("PullImage", &[Self::image(reference), field(2, &login)].concat())
    }

    /// Has CRI remove an image: containerd collects garbage before it answers.
    pub(crate) fn remove(&self, reference: &str) -> Called {
        self.cri("RemoveImage", &Self::image(reference))
    }

    /// An image as messages of CRI name it.
    fn image(reference: &str) -> Vec<u8> {
        field(1, &field(1, reference.as_bytes()))
    }

    fn cri(&self, method: &str, message: &[u8]) -> Called {
        call(&self.scene.path("c.sock"), &format!("/runtime.v1.ImageService/{method}"), message)
    }

    /// The name of a container: runc has one folder for the containers of all tests.
    pub(crate) fn id(&self, name: &str) -> String {
        let folder = self.scene.path("").file_name().expect("a name").to_string_lossy().into_owned();
        format!("{}-{name}", folder.trim_start_matches('.'))
    }

    /// Runs a command in a new container of an image.
    pub(crate) fn run(&self, image: &str, id: &str, command: &[&str]) -> Ran {
        let id = self.id(id);
        let said = self.scene.path(&format!("{id}.said"));
        let _ = fs::remove_file(&said);
        let log = format!("file://{}", said.display());
        let before = ["run", "--rm", "--snapshotter", "headstart", "--log-uri", &log, image, &id];
        let mut ran = self.tried(&[&before, command].concat());
        // Both streams: `ctr` may lose what a container prints, its shim does not.
        ran.stdout = fs::read_to_string(&said).unwrap_or_default();
        ran
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scene.path("snapshotter.log")).expect("a log")
    }

    /// Kills the snapshotter, and starts another.
    pub(crate) fn kill_snapshotter(&mut self) {
        self.snapshotter.kill();
        let words = Self::words(self.scene, &self.flags);
        self.snapshotter = Self::serve(self.scene, &words, self.manager.as_deref());
    }

    /// Starts the next snapshotter, which was killed, with what the service manager has kept.
    pub(crate) fn start_again(&mut self, kept: &[(String, OwnedFd)]) {
        self.snapshotter.kill();
        let mut handed_on = with_kept(kept, &Self::words(self.scene, &self.flags));
        handed_on.command.envs(self.manager.as_ref().map(|manager| ("NOTIFY_SOCKET", manager)));
        self.snapshotter = Self::listening(self.scene, &mut handed_on.command);
    }

    /// Starts a container that goes on, and gives its standard output.
    pub(crate) fn begin(
        &self,
        image: &str,
        id: &str,
        flags: &[&str],
        command: &[&str],
    ) -> (Child, ChildStdout) {
        let mut ctr = Command::new("ctr");
        ctr.args(["-a", &self.scene.arg("c.sock"), "-n", CRI, "run", "--rm", "--snapshotter", "headstart"]);
        ctr.args(flags).args([image, &self.id(id)]).args(command);
        let mut child = ctr.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("ctr starts");
        let stdout = child.stdout.take().expect("piped");
        (child, stdout)
    }

    /// The folders in which images are mounted.
    pub(crate) fn mounted(&self) -> Vec<String> {
        self.scene
            .mounts()
            .into_iter()
            .filter(|line| line.contains("/root/images/") && line.contains("/tree "))
            .collect()
    }

    /// The disk of the first of them, whose server tells how it is.
    pub(crate) fn disk(&self) -> String {
        let mounted = self.mounted();
        let tree = mounted[0].split(' ').find(|word| word.ends_with("/tree")).expect("its place");
        tree.replace("/tree", "/disk")
    }

    /// Asks the snapshotter itself.
    fn ask(&self, method: &str, message: &[u8]) -> Called {
        call(&self.scene.path("s.sock"), &format!("{SERVICE}/{method}"), message)
    }

    pub(crate) fn prepare(&self, key: &str, parent: &str, labels: &[(&str, &str)]) -> Called {
        self.ask("Prepare", &Self::prepare_call(key, parent, labels).1)
    }

    /// The path and the message of a call of Prepare.
    pub(crate) fn prepare_call(key: &str, parent: &str, labels: &[(&str, &str)]) -> (String, Vec<u8>) {
        let mut message = [field(2, key.as_bytes()), field(3, parent.as_bytes())].concat();
        for (name, value) in labels {
            message.extend(field(4, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat()));
        }
        (format!("{SERVICE}/Prepare"), message)
    }

    pub(crate) fn with_key(&self, method: &str, key: &str) -> Called {
        self.ask(method, &field(2, key.as_bytes()))
    }

    /// Ends everything: images are removed, containerd and the snapshotter end, and nothing is left.
    pub(crate) fn end(self, images: &[&str]) {
        let scene = self.scene;
        self.stop(images);
        scene.wait_until_clean();
    }

    /// The same; what the test itself has mounted is still there.
    pub(crate) fn stop(mut self, images: &[&str]) {
        for image in images {
            assert_eq!(self.remove(image).code, OK);
        }
        wait_until("no image is mounted", || self.mounted().is_empty());
        wait_until("no snapshot is left", || {
            fs::read_dir(self.scene.path("root/snapshots")).expect("a folder").count() == 0
        });
        self.containerd = None;
        assert!(self.snapshotter.end(), "{}", self.log());
    }
}

/// A layout with one image of two layers: busybox, and data that does not compress; and the disk of both.
pub(crate) fn layout(scene: &Scene, data_bytes: usize) -> PathBuf {
    let (layout, bundle) = (scene.path("layout"), scene.path("bundle"));
    let image = format!("{}:t", layout.display());
    let root = bundle.join("rootfs");
    let bundle = bundle.display().to_string();
    tool("umoci", &["init", "--layout", &layout.display().to_string()]);
    tool("umoci", &["new", "--image", &image]);
    tool("umoci", &["unpack", "--image", &image, &bundle]);
    for name in ["bin", "dev", "proc", "sys", "tmp", "etc"] {
        fs::create_dir_all(root.join(name)).expect("a folder");
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    for name in ["sh", "cat", "echo", "md5sum", "sleep", "touch"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("a link");
    }
    tool("umoci", &["repack", "--refresh-bundle", "--image", &image, &bundle]);
    tool("umoci", &["tag", "--image", &image, "other"]);
    let mut data = vec![0; data_bytes];
    Prng::new(81).fill(&mut data);
    fs::write(root.join("data"), data).expect("written");
    fs::write(root.join("etc/motd"), "hello from the second layer\n").expect("written");
    tool("umoci", &["repack", "--image", &image, &bundle]);
    fs::remove_dir_all(&bundle).expect("removed");
    let source = format!("oci:{}:t", layout.display());
    run(["build", &source, "-o", &scene.arg("a.hsi"), "--codec", "zstd:1"]).ok();
    layout
}

/// The layout's image in a registry; gives its reference.
pub(crate) fn pushed(registry: &Registry, layout: &Path, tag: &str) -> String {
    let reference = format!("127.0.0.1:{}/tiny:{tag}", registry.port);
    let from = format!("oci:{}:{tag}", layout.display());
    tool("skopeo", &["copy", "-q", "--dest-tls-verify=false", &from, &format!("docker://{reference}")]);
    reference
}

/// The sum that md5sum has for the layout's data.
pub(crate) fn sum_of_data(scene: &Scene, layout: &Path) -> String {
    let root = scene.arg("unpacked");
    tool("umoci", &["raw", "unpack", "--image", &format!("{}:t", layout.display()), &root]);
    let said = tool("md5sum", &[&format!("{root}/data")]).stdout;
    said.split(' ').next().expect("a sum").to_owned()
}

/// A script that ends well in a container whose `/data` has this sum: `ctr` may lose what is printed.
pub(crate) fn has_sum(sum: &str) -> String {
    format!("md5sum /data | grep -q {sum}")
}

/// Makes an image of a container's image beside it; gives its address.
pub(crate) fn convert(scene: &Scene, image: &str) -> String {
    let container = format!("oci+http://{image}");
    let state = scene.arg("uploads");
    let ran = run(["convert", &container, "--codec", "zstd:1", "--upload-state", &state, "--json"]).ok();
    ran.json()["address"].as_str().expect("an address").to_owned()
}

pub(crate) fn add(scene: &Scene, image: &str) {
    let container = format!("oci+http://{image}");
    run(["snapshotter", "--root", &scene.arg("root"), "add", &container, &scene.arg("a.hsi")]).ok();
}

/// The manifest of the layout's image `t`.
pub(crate) fn manifest(layout: &Path) -> serde_json::Value {
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(path).expect("a document")).expect("JSON")
    };
    let index = read(&layout.join("index.json"));
    let mut manifests = index["manifests"].as_array().expect("manifests").iter();
    let named = manifests.find(|found| found["annotations"]["org.opencontainers.image.ref.name"] == "t");
    let digest = named.expect("it is there")["digest"].as_str().expect("a digest").replace("sha256:", "");
    read(&layout.join("blobs/sha256").join(digest))
}

/// The digests of the unpacked layers of the layout's image `t`.
pub(crate) fn diff_ids(layout: &Path) -> Vec<String> {
    let config = manifest(layout)["config"]["digest"].as_str().expect("a digest").replace("sha256:", "");
    let config = fs::read(layout.join("blobs/sha256").join(config)).expect("a configuration");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("JSON");
    let layers = config["rootfs"]["diff_ids"].as_array().expect("layers").iter();
    layers.map(|layer| layer.as_str().expect("a digest").to_owned()).collect()
}

/// A scene with the layout's image in a registry; `None` where containers cannot be run.
pub(crate) fn with_registry(data_bytes: usize) -> Option<(Scene, PathBuf, Registry, String)> {
    if !can_run() {
        return None;
    }
    let scene = Scene::new();
    let layout = layout(&scene, data_bytes);
    let registry = Registry::start(&scene, false);
    let image = pushed(&registry, &layout, "t");
    Some((scene, layout, registry, image))
}

/// Layers that the registry was asked for.
pub(crate) fn layers_fetched(scene: &Scene, layout: &Path) -> usize {
    let manifest = manifest(layout);
    let log = fs::read_to_string(scene.path("registry.log")).expect("a log");
    let layers = manifest["layers"].as_array().expect("layers").iter();
    let asked = |digest: &str| log.contains(&format!("\"GET /v2/tiny/blobs/{digest} "));
    layers.filter(|layer| asked(layer["digest"].as_str().expect("a digest"))).count()
}

#[test]
fn a_container_starts_from_a_mounted_image_whose_layers_are_not_fetched() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    let mut containers = Containers::start(&scene, &[]);
    // What is under way is in use, whatever is cleared away meanwhile.
    let ends = AtomicBool::new(false);
    let pulled = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                assert_eq!(containers.ask("Cleanup", &[]).code, OK);
            }
        });
        let pulled = containers.pull(&image);
        ends.store(true, Relaxed);
        pulled
    });
    assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    assert_eq!(layers_fetched(&scene, &layout), 0);
    assert_eq!(containers.mounted().len(), 1, "one mount for both layers");
    let ran = containers.run(&image, "one", &["cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the second layer\n");
    // Containers write to layers of their own.
    let script = "echo changed >/etc/motd; cat /etc/motd; touch /new";
    assert_eq!(containers.run(&image, "two", &["sh", "-c", script]).ok().stdout, "changed\n");
    // A snapshotter that was killed finds its snapshots and mounts again.
    containers.kill_snapshotter();
    let mut ran = None;
    wait_until("containerd has connected again", || {
        let tried = containers.run(&image, "three", &["cat", "/etc/motd", "/new"]);
        let is_refused = tried.stderr.contains("unavailable");
        ran = Some(tried);
        !is_refused
    });
    let ran = ran.expect("it was tried");
    assert!(ran.stdout.contains("second layer") && ran.code == Some(1), "{ran:?}");
    assert_eq!(containers.mounted().len(), 1);
    drop(registry);
    containers.end(&[&image]);
}

#[test]
fn other_images_are_unpacked_as_by_overlayfs() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let containers = Containers::start(&scene, &[]);
    let pulled = containers.pull(&image);
    assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    assert_eq!(containers.mounted().len(), 0);
    wait_until("the registry has told of both layers", || layers_fetched(&scene, &layout) == 2);
    let ran = containers.run(&image, "one", &["cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the second layer\n");
    let listed = containers.ctr(&["snapshots", "--snapshotter", "headstart", "ls"]).stdout;
    assert_eq!(listed.matches("Committed").count(), 2, "{listed}");
    let usage = containers.ctr(&["snapshots", "--snapshotter", "headstart", "usage"]).stdout;
    assert!(usage.contains("KiB"), "{usage}");
    drop(registry);
    containers.end(&[&image]);
}

/// CRI names the container's image; what `convert` has made of it refers to it.
#[test]
fn what_refers_to_a_containers_image_is_mounted_without_being_added() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    convert(&scene, &image);
    // With a log of requests of its own.
    let registry = registry.again(&scene);
    let containers = Containers::start(&scene, &["--disk-cache", &scene.arg("cache")]);
    let pulled = containers.pull(&image);
    assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    assert_eq!(layers_fetched(&scene, &layout), 0);
    assert_eq!(containers.mounted().len(), 1, "{}", containers.log());
    let ran = containers.run(&image, "one", &["cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the second layer\n");
    let disk = containers.disk();
    wait_until("the rest comes into the cache behind the start", || {
        server_of(&disk)["cache_fill"]["is_complete"] == true
    });
    drop(registry);
    containers.end(&[&image]);
}

/// An annotation of a layer leads to an image: one of this layer's image is mounted, another is not.
#[test]
fn an_annotation_leads_to_an_image_of_these_layers_alone() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    let converted = convert(&scene, &image);
    let artifact = converted.trim_start_matches("oci+http://").to_owned();
    let repository = artifact.split('@').next().expect("a name");
    let containers = Containers::snapshotter(&scene, &["--disk-cache", "none"]);
    let diff_id = diff_ids(&layout)[0].clone();
    let annotation = "containerd.io/snapshot/headstart.image";
    let prepare = |key: &str, layer: &str, artifact: &str| {
        containers.prepare(key, "", &[("containerd.io/snapshot.ref", layer), (annotation, artifact)]).code
    };
    let other_layer = format!("sha256:{}", "ab".repeat(32));
    assert_eq!(prepare("other", &other_layer, &artifact), OK);
    assert!(containers.log().contains("is not of the image with layer"), "{}", containers.log());
    for (key, hostile) in [("a", "/etc/passwd"), ("b", "../../x"), ("c", "file:///x"), ("d", repository)] {
        assert_eq!(prepare(key, &diff_id, hostile), OK, "{hostile}");
    }
    assert_eq!(containers.mounted().len(), 0);
    assert_eq!(prepare("one", &diff_id, &artifact), EXISTS, "{}", containers.log());
    assert_eq!(containers.mounted().len(), 1);
    let found = containers.ask(
        "List",
        &field(2, format!(r#"labels."containerd.io/snapshot.ref"=={diff_id},parent==""#).as_bytes()),
    );
    assert_eq!(found.code, INVALID, "a quotation without an end");
    let filter = format!(r#"labels."containerd.io/snapshot.ref"=={diff_id},parent=="",kind==committed"#);
    let found = containers.ask("List", &field(2, filter.as_bytes()));
    let name = format!("headstart/6/{diff_id}");
    assert!(String::from_utf8_lossy(&found.bytes).contains(&name), "{found:?}");
    for key in ["other", "a", "b", "c", "d", &name] {
        assert_eq!(containers.with_key("Remove", key).code, OK, "{key}");
    }
    wait_until("the image is unmounted", || containers.mounted().is_empty());
    drop(registry);
    containers.end(&[]);
}

/// Two images of containers with one lowest layer, of which one is mounted.
#[test]
fn a_layer_of_a_mounted_image_is_built_for_another_image() {
    if !can_run() {
        return;
    }
    let scene = Scene::new();
    let layout = layout(&scene, 100_000);
    let other = format!("{}:other", layout.display());
    let bundle = scene.arg("bundle");
    tool("umoci", &["unpack", "--image", &other, &bundle]);
    fs::write(scene.path("bundle/rootfs/etc/other"), "another second layer\n").expect("written");
    tool("umoci", &["repack", "--image", &other, &bundle]);
    fs::remove_dir_all(&bundle).expect("removed");
    let registry = Registry::start(&scene, false);
    let (image, other) = (pushed(&registry, &layout, "t"), pushed(&registry, &layout, "other"));
    add(&scene, &image);
    let containers = Containers::start(&scene, &[]);
    for image in [&image, &other] {
        let pulled = containers.pull(image);
        assert_eq!(pulled.code, OK, "{pulled:?} {}", containers.log());
    }
    let script = "cat /etc/other; [ ! -e /etc/motd ]";
    assert_eq!(containers.run(&other, "two", &["sh", "-c", script]).ok().stdout, "another second layer\n");
    let ran = containers.run(&image, "one", &["cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the second layer\n");
    assert_eq!(containers.mounted().len(), 2, "the image, and the layer that both have");
    drop(registry);
    containers.end(&[&other, &image]);
    assert_eq!(fs::read_dir(scene.path("root/built")).expect("a folder").count(), 0);
}

/// An image that cannot be had is no reason to start nothing.
#[test]
fn an_image_that_cannot_be_mounted_is_unpacked() {
    let Some((scene, _, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    fs::write(scene.path("a.hsi"), "no image").expect("written");
    let containers = Containers::start(&scene, &[]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    assert!(containers.log().contains("is unpacked as any other"), "{}", containers.log());
    assert_eq!(
        containers.run(&image, "one", &["cat", "/etc/motd"]).ok().stdout,
        "hello from the second layer\n"
    );
    assert_eq!(fs::read_dir(scene.path("root/images")).expect("a folder").count(), 0);
    drop(registry);
    containers.end(&[&image]);
}

#[test]
fn answers_are_those_that_containerd_expects() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let mut containers = Containers::snapshotter(&scene, &[]);
    let codes = |called: Called| called.code;
    assert_eq!(codes(containers.with_key("Stat", "none")), NOT_FOUND);
    assert_eq!(codes(containers.with_key("Mounts", "none")), NOT_FOUND);
    assert_eq!(codes(containers.with_key("Usage", "none")), NOT_FOUND);
    assert_eq!(codes(containers.with_key("Remove", "none")), NOT_FOUND);
    assert_eq!(codes(containers.prepare("a", "none", &[])), NOT_FOUND);
    assert_eq!(codes(containers.prepare("", "", &[])), INVALID);
    assert_eq!(codes(containers.prepare("a", "", &[])), OK);
    assert_eq!(codes(containers.prepare("a", "", &[])), EXISTS);
    // Killed before it is committed; what another one had begun is cleared away.
    fs::create_dir_all(scene.path("root/snapshots/2/fs")).expect("a folder");
    containers.kill_snapshotter();
    assert_eq!(fs::read_dir(scene.path("root/snapshots")).expect("a folder").count(), 1);
    assert_eq!(codes(containers.with_key("Mounts", "a")), OK);
    assert_eq!(codes(containers.prepare("b", "a", &[])), INVALID);
    let names = |name: &str, key: &str| [field(2, name.as_bytes()), field(3, key.as_bytes())].concat();
    let commit = |name: &str, key: &str| containers.ask("Commit", &names(name, key));
    assert_eq!(codes(commit("c", "none")), NOT_FOUND);
    assert_eq!(codes(commit("c", "a")), OK);
    assert_eq!(codes(containers.with_key("Mounts", "c")), PRECONDITION);
    let prepared = containers.prepare("b", "c", &[("containerd.io/snapshot.ref", "../../etc")]);
    assert_eq!(prepared.code, OK);
    assert!(String::from_utf8_lossy(&prepared.bytes).contains("lowerdir="), "{prepared:?}");
    assert_eq!(codes(commit("c", "b")), EXISTS);
    assert_eq!(codes(containers.with_key("Remove", "c")), PRECONDITION);
    let rebased = containers.ask("Commit", &[names("d", "b"), field(5, b"c")].concat());
    assert_eq!(codes(rebased), UNIMPLEMENTED);
    assert_eq!(codes(containers.ask("List", &field(2, b"name=c"))), INVALID);
    assert_eq!(codes(containers.ask("Stat", &[0xff, 0xff])), INVALID);
    assert_eq!(codes(containers.ask("Other", &[])), UNIMPLEMENTED);
    let listed = containers.ask("List", &field(2, br#"kind==committed,name=="c""#));
    assert!(listed.code == OK && listed.bytes.len() > 5, "{listed:?}");
    // What has no snapshot is cleared away, and only that.
    fs::create_dir_all(scene.path("root/snapshots/77/fs")).expect("a folder");
    assert_eq!(codes(containers.ask("Cleanup", &[])), OK);
    assert_eq!(fs::read_dir(scene.path("root/snapshots")).expect("a folder").count(), 2);
    for key in ["b", "c"] {
        assert_eq!(codes(containers.with_key("Remove", key)), OK);
    }
    assert_eq!(fs::read_dir(scene.path("root/snapshots")).expect("a folder").count(), 0);
}

#[test]
fn a_folder_is_of_one_snapshotter_and_what_is_wrong_is_said() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let root = scene.arg("root");
    let containers = Containers::snapshotter(&scene, &[]);
    run(["snapshotter", "--root", &root, "serve", "--socket", &scene.arg("t.sock")])
        .fails(1, &["another snapshotter uses", "--root"]);
    run(["snapshotter", "--root", &scene.arg("other"), "serve", "--socket", &scene.arg("s.sock")])
        .fails(1, &["s.sock", "a server listens on it"]);
    run(["snapshotter", "--root", &scene.arg("a:b"), "serve", "--socket", &scene.arg("t.sock")])
        .fails(1, &["overlayfs takes no folder"]);
    assert!(!scene.path("a:b").exists());
    run(["snapshotter", "--root", &root, "serve", "--", "--dsk-cache", "x"]).fails(2, &["--dsk-cache"]);
    run(["snapshotter", "--root", &root, "add", "oci:none", "a.hsi"]).fails(1, &["none"]);
    run(["snapshotter", "--root", &root, "remove", "oci:none"]).fails(1, &["was not added"]);
    executable(&scene.path("root/images.json"), "{}");
    run(["snapshotter", "--root", &root, "list"]).fails(1, &["images.json"]);
    // A damaged table is no reason to start nothing.
    let layer = format!("sha256:{}", "ab".repeat(32));
    assert_eq!(containers.prepare("a", "", &[("containerd.io/snapshot.ref", &layer)]).code, OK);
    assert!(containers.log().contains("images.json"), "{}", containers.log());
}

/// A container has written above one image: another one in its file is not mounted for it.
#[test]
fn an_image_of_the_table_that_was_replaced_is_not_mounted() {
    let Some((scene, _, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    let root = scene.arg("root");
    let listed = run(["snapshotter", "--root", &root, "list", "--json"]).ok().json();
    let chain = listed["images"][0]["chain"].as_array().expect("a chain").clone();
    let containers = Containers::snapshotter(&scene, &[]);
    let mut below = String::new();
    for (number, id) in chain.iter().enumerate() {
        let id = id.as_str().expect("an ID");
        let prepared = containers.prepare("a", &below, &[("containerd.io/snapshot.ref", id)]);
        assert_eq!(prepared.code, EXISTS, "{prepared:?} {}", containers.log());
        below = format!("headstart/{}/{id}", number + 1);
    }
    unmounted(&containers);
    fs::rename(scene.path("a.hsi"), scene.path("old.hsi")).expect("renamed");
    scene.root("a.hsi");
    let failed = containers.prepare("c", &below, &[]);
    assert!(failed.code == UNAVAILABLE && failed.message.contains("hs1-"), "{failed:?}");
    fs::rename(scene.path("old.hsi"), scene.path("a.hsi")).expect("renamed");
    assert_eq!(containers.prepare("c", &below, &[]).code, OK, "{}", containers.log());
    let below = chain.iter().enumerate().rev();
    let names = below.map(|(at, id)| format!("headstart/{}/{}", at + 1, id.as_str().expect("an ID")));
    for key in std::iter::once("c".to_owned()).chain(names) {
        assert_eq!(containers.with_key("Remove", &key).code, OK, "{key}");
    }
    wait_until("the image is unmounted", || containers.mounted().is_empty());
    drop(registry);
    containers.end(&[]);
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let root = scene.folder("root");
    tool("mount", &["-t", "tmpfs", "-o", "size=256k", "none", &root]);
    let mut containers = Containers::snapshotter(&scene, &[]);
    assert_eq!(containers.prepare("a", "", &[]).code, OK);
    let filled = fs::write(scene.path("root/filler"), vec![1; 1 << 20]);
    assert!(filled.is_err(), "the disk is full");
    let failed = containers.prepare("b", "", &[]);
    assert!(failed.code == INTERNAL && failed.message.contains("No space left"), "{failed:?}");
    let commit = [field(2, b"c"), field(3, b"a")].concat();
    assert_eq!(containers.ask("Commit", &commit).code, INTERNAL);
    assert_eq!(fs::read_dir(scene.path("root/snapshots")).expect("a folder").count(), 1);
    containers.kill_snapshotter();
    assert_eq!(containers.with_key("Mounts", "a").code, OK);
    fs::remove_file(scene.path("root/filler")).expect("removed");
    assert_eq!((containers.prepare("b", "", &[]).code, containers.ask("Commit", &commit).code), (OK, OK));
    containers.snapshotter.kill();
    drop(containers);
    tool("umount", &[&root]);
}
