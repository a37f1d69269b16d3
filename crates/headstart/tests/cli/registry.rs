//! Images in a registry: Debian's docker-registry.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;

use crate::relay::Relay;
use crate::scene::{Ran, Running, START, Scene, executable, has_tools, machine_has, run, tool, wait_until};
use crate::service::server_of;
use crate::tokens::Tokens;
use crate::web::remote;

pub(crate) const REGISTRY: &str = "docker-registry";
const CACHE: &str = "--disk-cache=cache";
pub(crate) const USER: &str = "me";
pub(crate) const SECRET: &str = "pa55-w0rd-secret";
/// The user, and bcrypt of the secret at its least cost: what `htpasswd -B` writes.
const HTPASSWD: &str = "me:$2b$05$abcdefghijklmnopqrstuuTmAJrcKp55TowDW..MFIrZusWvvGGpq\n";

/// A port on which a program may listen and no test's connection begins: bound, and never listening.
pub(crate) fn place() -> TcpListener {
    let place = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    set_socket_reuseaddr(&place, true).expect("set");
    rustix::net::bind(&place, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("bound");
    place.into()
}

/// One registry, which keeps its data in the scene.
pub(crate) struct Registry {
    child: Child,
    pub(crate) port: u16,
    log: std::path::PathBuf,
    /// Its port's, for when it is started again.
    place: Arc<OwnedFd>,
}

impl Registry {
    pub(crate) fn start(scene: &Scene, has_login: bool) -> Self {
        let _ = fs::create_dir(scene.path("registry"));
        let mut config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"}}\n",
            scene.arg("registry")
        );
        if has_login {
            config += &Self::wants_login(scene);
        }
        Self::start_with(scene, &config)
    }

    /// What the configuration of one says that wants a login.
    fn wants_login(scene: &Scene) -> String {
        fs::write(scene.path("htpasswd"), HTPASSWD).expect("written");
        format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", scene.arg("htpasswd"))
    }

    /// Starts it with this configuration, whose port of 127.0.0.1 is 0 where any will do.
    pub(crate) fn start_with(scene: &Scene, config: &str) -> Self {
        let place = place();
        let address = place.local_addr().expect("an address").to_string();
        Self::start_at(scene, &config.replace("127.0.0.1:0", &address), Arc::new(place.into()))
    }

    fn start_at(scene: &Scene, config: &str, place: Arc<OwnedFd>) -> Self {
        fs::write(scene.path("registry.yml"), config).expect("written");
        let log = scene.path("registry.log");
        let file = fs::File::options().create(true).append(true).open(&log).expect("a file");
        let child = Command::new(REGISTRY)
            .args(["serve", &scene.arg("registry.yml")])
            .stdin(Stdio::null())
            // The log of requests goes to standard output, everything else to standard error.
            .stdout(file.try_clone().expect("one more"))
            .stderr(file)
            .spawn()
            .expect("it starts");
        let mut registry = Self { child, port: 0, log, place };
        wait_until("the registry listens", || {
            let said = registry.said();
            let port = said.split("listening on 127.0.0.1:").nth(1).map(|rest| rest.split('"').next());
            registry.port = port.flatten().and_then(|port| port.parse().ok()).unwrap_or(0);
            registry.port != 0
        });
        registry
    }

    /// Kills it and starts another with its data, at the same address. The log of requests begins anew.
    pub(crate) fn again(self, scene: &Scene) -> Self {
        let (log, place) = (self.log.clone(), Arc::clone(&self.place));
        drop(self);
        fs::remove_file(log).expect("there was one");
        let config = fs::read_to_string(scene.path("registry.yml")).expect("written");
        Self::start_at(scene, &config, place)
    }

    /// The same. It removes manifests from now on.
    pub(crate) fn again_with_deletion(self, scene: &Scene) -> Self {
        let config = fs::read_to_string(scene.path("registry.yml")).expect("written");
        let config = config.replace("storage: {", "storage: {delete: {enabled: true}, ");
        fs::write(scene.path("registry.yml"), config).expect("written");
        self.again(scene)
    }

    /// The same. Its uploads outlive it from now on, as those of several registries with one secret do.
    pub(crate) fn again_with_secret(self, scene: &Scene) -> Self {
        let config = fs::read_to_string(scene.path("registry.yml")).expect("written");
        fs::write(scene.path("registry.yml"), config.replace("http: {", "http: {secret: same, "))
            .expect("written");
        self.again(scene)
    }

    /// Has it remove what no manifest names any more.
    pub(crate) fn collect_garbage(scene: &Scene) {
        tool(REGISTRY, &["garbage-collect", &scene.arg("registry.yml")]);
    }

    /// The same. It wants a login from now on.
    pub(crate) fn again_with_login(self, scene: &Scene) -> Self {
        self.again_with(scene, &Self::wants_login(scene))
    }

    /// The same. It wants tokens from now on.
    pub(crate) fn again_with_tokens(self, scene: &Scene, tokens: &Tokens) -> Self {
        self.again_with(scene, &tokens.wanted())
    }

    /// The same, with more in its configuration.
    fn again_with(self, scene: &Scene, more: &str) -> Self {
        let config = fs::read_to_string(scene.path("registry.yml")).expect("written");
        fs::write(scene.path("registry.yml"), config + more).expect("written");
        self.again(scene)
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("oci+http://127.0.0.1:{}/{name}", self.port)
    }

    /// Logged requests with this method.
    fn requests(&self, method: &str) -> usize {
        self.said().matches(&format!("\"{method} /v2/")).count()
    }

    /// The same, once there were so many: the registry logs a request after it has answered.
    fn wait_requests(&self, method: &str, count: usize) -> usize {
        wait_until("the registry has told of every request", || self.requests(method) >= count);
        self.requests(method)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program without logins, and with its home in the scene.
pub(crate) fn program(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = remote(scene, arguments);
    for name in ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", scene.path("home"));
    command
}

pub(crate) fn run_here(scene: &Scene, arguments: &[&str]) -> Ran {
    program(scene, arguments).output().expect("the program starts").into()
}

pub(crate) fn export(scene: &Scene, address: &str, extra: &[&str]) -> Ran {
    let _ = fs::remove_file(scene.path("out.raw"));
    run_here(
        scene,
        &[&["export", address, "-o", "out.raw", "--format", "raw", "--force", CACHE], extra].concat(),
    )
}

#[test]
fn an_image_is_sent_once_and_read_lazily() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 600, 71);
    let registry = Registry::start(&scene, false);
    let url = registry.url("images/demo:1");
    let sent = run_here(&scene, &["push", "--upload-state=state", "a.hsi", &url, "--json"]).ok().json();
    assert_eq!(
        (sent["was_there"].as_bool(), sent["sent_bytes"].as_u64()),
        (Some(false), sent["bytes"].as_u64())
    );
    let name = sent["image"].as_str().expect("a name").to_owned();
    wait_until("it has told of the blob's pieces", || registry.requests("PATCH") > 0);
    // Under another tag: the blob is there. The registry logs requests in any order, a moment after it has
    // answered them. A new registry, whose log is empty, makes the count certain.
    let registry = registry.again(&scene);
    let again = run_here(
        &scene,
        &["push", "--upload-state=state", "a.hsi", &registry.url("images/demo:2"), "--json"],
    )
    .ok()
    .json();
    assert_eq!((again["was_there"].as_bool(), again["sent_bytes"].as_u64()), (Some(true), Some(0)));
    registry.wait_requests("PUT", 1);
    assert_eq!((registry.requests("PATCH"), &again["digest"]), (0, &sent["digest"]));
    let shown = run_here(&scene, &["push", "--upload-state=state", "a.hsi", &url]).ok();
    assert_eq!(shown.stdout.trim(), format!("{url}#{name}"));

    export(&scene, &format!("{url}#{name}"), &[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    // A manifest's digest proves the image's name, so there is no warning.
    let proven = format!("{}@{}", registry.url("images/demo"), sent["digest"].as_str().expect("a digest"));
    let ran = run_here(&scene, &["verify", &proven, CACHE]).ok();
    assert!(ran.stdout.contains(&name) && !ran.stderr.contains("nothing proves which image"), "{ran:?}");
    // Fetched chunks are not fetched again: one request for the manifest, and one to check that the blob is
    // the same.
    let registry = registry.again(&scene);
    export(&scene, &format!("{url}#{name}"), &[]).ok();
    let manifests = |said: &str| said.matches("\"GET /v2/images/demo/manifests/").count();
    let all = |said: &str| manifests(said) > 0 && said.contains("\" 304 ");
    wait_until("it has told of both", || all(&registry.said()));
    let said = registry.said();
    assert!(manifests(&said) == 1 && !said.contains("\" 206 "), "{said}");
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    let cached =
        run_here(&scene, &["verify", &format!("{url}#{name}"), CACHE, "--offline", "--json"]).ok().json();
    assert_eq!(cached["whole_file"], false);
    drop(registry);
    export(&scene, &url, &["--offline"]).ok();
    export(&scene, &format!("{url}#{name}"), &[]).fails(1, &["127.0.0.1", "no connection"]);
}

/// The server keeps connections between its readers' requests, and the registry closes them when it ends.
#[test]
fn a_registry_that_was_started_again_is_no_fault() {
    if !has_tools(&[REGISTRY]) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 4600, 79);
    let mut registry = Registry::start(&scene, false);
    let url = registry.url("demo:1");
    let address = run_here(&scene, &["push", "--upload-state=state", "a.hsi", &url]).ok().stdout;
    let dir = scene.folder("dir");
    let mount = ["mount", "-f", address.trim(), &dir, "--disk-cache=none", "--background=off"];
    let mut serving = Running::start_command(program(&scene, &mount));
    assert!(serving.said().contains("mounted"));
    let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
    for part in 1..5 {
        let at = part * (4 << 20);
        let mut read = vec![0; 64 << 10];
        file.read_exact_at(&mut read, at as u64).expect("read");
        assert!(read == disk[at..at + read.len()], "part {part}");
        registry = registry.again(&scene);
    }
    let server = server_of(&dir);
    assert_eq!((&server["store_retries"], &server["store_errors"]), (&0.into(), &0.into()), "{server}");
    drop(file);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn what_is_not_there_is_told() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    scene.image("a.hsi", 40, 72);
    let registry = Registry::start(&scene, false);
    let sent = run_here(&scene, &["push", "--upload-state=state", "a.hsi", &registry.url("demo"), "--json"])
        .ok()
        .json();
    let name = sent["image"].as_str().expect("a name").to_owned();
    let other = format!("hs1-{}", "ab".repeat(32));
    export(&scene, &registry.url("demo:none"), &[]).fails(1, &["demo:none", "404", "MANIFEST_UNKNOWN"]);
    export(&scene, &registry.url("nothing"), &[]).fails(1, &["nothing:latest", "404"]);
    export(&scene, &format!("{}#{other}", registry.url("demo")), &[]).fails(1, &[&other, &name]);
    let digest = format!("sha256:{}", "ab".repeat(32));
    export(&scene, &format!("{}@{digest}", registry.url("demo")), &[]).fails(1, &["404"]);
    run_here(
        &scene,
        &["push", "--upload-state=state", "a.hsi", &format!("{}@{digest}", registry.url("demo"))],
    )
    .fails(1, &[&digest, sent["digest"].as_str().expect("one")]);
    // An attacker with access to the registry's disk changes the manifest: its digest shows it.
    let hex = sent["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).expect("a digest");
    let blob =
        scene.path("registry").join(format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]));
    let manifest = fs::read_to_string(&blob).expect("the manifest");
    fs::write(&blob, manifest.replace(&name, &other)).expect("written");
    let address = format!("{}@sha256:{hex}", registry.url("demo"));
    let ran = export(&scene, &address, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    run(["push", &scene.arg("a.hsi"), "https://host/a.hsi"]).fails(1, &["web server"]);
    run(["push", &scene.arg("a.hsi"), "oci://host/A"]).fails(2, &["lower-case"]);
}

#[test]
fn logins_are_those_of_docker_and_stay_secret() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 200, 73);
    let registry = Registry::start(&scene, true);
    let (url, host) = (registry.url("demo"), format!("127.0.0.1:{}", registry.port));
    run_here(&scene, &["push", "--upload-state=state", "a.hsi", &url]).fails(1, &[&host, "wants a login"]);
    export(&scene, &url, &[]).fails(1, &[&host, "wants a login"]);

    fs::create_dir_all(scene.path("home/.docker")).expect("a folder");
    let login = |user: &str, password: &str| {
        let text = format!(r#"{{"auths":{{"{host}":{{"username":"{user}","password":"{password}"}}}}}}"#);
        fs::write(scene.path("home/.docker/config.json"), text).expect("written");
    };
    login("me", "wrong");
    run_here(&scene, &["push", "--upload-state=state", "a.hsi", &url])
        .fails(1, &[&host, "refuses this login"]);
    login("me", SECRET);
    let sent = run_here(&scene, &["-vvv", "push", "--upload-state=state", "a.hsi", &url]).ok();
    let read = export(&scene, &url, &["-vvv"]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    // As it is, and as it goes over the wire.
    let encoded = "bWU6cGE1NS13MHJkLXNlY3JldA";
    for said in [&sent.stderr, &sent.stdout, &read.stderr, &read.stdout] {
        assert!(!said.contains(SECRET) && !said.contains(encoded), "{said}");
    }
    let kept =
        Command::new("grep").args(["-rlE", &format!("{SECRET}|{encoded}"), &scene.arg("cache")]).output();
    assert!(kept.expect("grep starts").stdout.is_empty());

    // Helpers of the usual kind.
    fs::create_dir(scene.path("bin")).expect("a folder");
    let config = format!(r#"{{"credHelpers":{{"{host}":"test"}}}}"#);
    fs::write(scene.path("home/.docker/config.json"), config).expect("written");
    let path = format!("{}:{}", scene.arg("bin"), std::env::var("PATH").unwrap_or_default());
    let verify = |script: &str| {
        executable(&scene.path("bin/docker-credential-test"), &format!("#!/bin/sh\n{script}\n"));
        let mut command = program(&scene, &["verify", &url, "--disk-cache=none"]);
        Ran::from(command.env("PATH", &path).output().expect("it starts"))
    };
    let login = format!(r#"{{"Username":"me","Secret":"{SECRET}"}}"#);
    verify(&format!("cat >/dev/null; echo '{login}'")).ok();
    verify(&format!("echo '{login}'; exit 1")).fails(1, &[&host, "wants a login"]);
    let file = scene.arg("home/.docker/config.json");
    let broken = [&file, "docker-credential-test", &host];
    verify("exit 0").fails(1, &[&broken[..], &["answered nothing"]].concat());
    verify(&format!("echo 'x{login}'")).fails(1, &[&broken[..], &["answered what is no login"]].concat());
    verify("sleep 1000 & exec yes").fails(1, &[&broken[..], &["wrote more than 65536 bytes"]].concat());
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn a_program_starts_from_a_registry() {
    if !has_tools(&[REGISTRY]) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    scene.root("root.hsi");
    let registry = Registry::start(&scene, false);
    let address =
        run_here(&scene, &["push", "--upload-state=state", "root.hsi", &registry.url("root")]).ok().stdout;
    let ran = run_here(&scene, &["run", address.trim(), CACHE, "--", "/bin/cat", "/etc/motd"]).ok();
    assert_eq!(ran.stdout, "hello from the image\n");
    drop(registry);
    scene.wait_until_clean();
}

/// Hands connections on to `to`; the first that sends more than `most` bytes is cut there.
fn cutting(to: u16, most: usize) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let has_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&has_cut);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let server = TcpStream::connect(("127.0.0.1", to)).expect("the registry");
            let (mut from_server, mut to_client) =
                (server.try_clone().expect("one"), client.try_clone().expect("one"));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_server, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            let cut = Arc::clone(&cut);
            std::thread::spawn(move || pass(client, server, most, &cut));
        }
    });
    (port, has_cut)
}

fn pass(mut client: TcpStream, mut server: TcpStream, most: usize, cut: &AtomicBool) {
    let (mut buffer, mut passed) = (vec![0; 16 << 10], 0);
    while let Ok(read) = client.read(&mut buffer) {
        passed += read;
        if read == 0
            || (passed > most && !cut.swap(true, SeqCst))
            || server.write_all(&buffer[..read]).is_err()
        {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn an_upload_survives_a_cut_connection() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 4600, 74);
    assert!(fs::metadata(scene.path("a.hsi")).expect("an image").len() > 8 << 20);
    let registry = Registry::start(&scene, false);
    let (port, has_cut) = cutting(registry.port, 5 << 20);
    let address = format!("oci+http://127.0.0.1:{port}/demo");
    run_here(&scene, &["push", "--upload-state=state", "a.hsi", &address]).ok();
    assert!(has_cut.load(SeqCst));
    registry.wait_requests("PUT", 3);
    // This registry loses an upload of which a piece has come in part, so one more is begun.
    assert!(registry.requests("POST") <= 3, "{}", registry.said());
    export(&scene, &address, &[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
}

#[test]
fn a_later_push_goes_on_with_an_upload() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 4600, 75);
    let registry = Registry::start(&scene, false);
    let mut pieces = 0;
    let relay = Relay::start(registry.port, move |line| {
        pieces += usize::from(line.starts_with("PATCH "));
        line.starts_with("PATCH ") && pieces == 2
    });
    let address = format!("oci+http://127.0.0.1:{}/demo", relay.port);
    let push = ["push", "--upload-state=state", "a.hsi", &address, "--json"];
    let pushing = Running::start_command(program(&scene, &push));
    wait_until("the second piece is on its way", || relay.held() == 1);
    pushing.signal(Signal::KILL);
    assert!(!pushing.end().0.success());
    assert_eq!(fs::read_dir(scene.path("state")).expect("noted").count(), 1);
    let pushed = run_here(&scene, &push).ok().json();
    let [bytes, sent, resumed] =
        ["bytes", "sent_bytes", "resumed_bytes"].map(|key| pushed[key].as_u64().expect("a number"));
    assert_eq!((sent, resumed), (bytes - (4 << 20), 4 << 20), "{pushed}");
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0);
    export(&scene, &address, &[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
}

#[test]
fn what_is_interrupted_is_kept_until_it_is_abandoned() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    scene.image("a.hsi", 4600, 76);
    let registry = Registry::start(&scene, false);
    let mut pieces = 0;
    let relay = Relay::start(registry.port, move |line| {
        pieces += usize::from(line.starts_with("PATCH "));
        line.starts_with("PATCH ") && pieces > 1
    });
    let address = format!("oci+http://127.0.0.1:{}/demo", relay.port);
    let push = ["push", "--upload-state=state", "a.hsi", &address];
    let pushing = Running::start_command(program(&scene, &push));
    wait_until("the second piece is on its way", || relay.held() == 1);
    pushing.signal(Signal::KILL);
    assert!(!pushing.end().0.success());
    // Another push reports it.
    scene.image("b.hsi", 40, 77);
    let other = run_here(&scene, &["push", "--upload-state=state", "b.hsi", &registry.url("other")]).ok();
    assert!(other.stderr.contains(&address) && other.stderr.contains("--abandon"), "{}", other.stderr);
    // The image need not be there any more.
    fs::remove_file(scene.path("a.hsi")).expect("removed");
    let abandon = ["push", "--upload-state=state", "--abandon", &address];
    assert!(run_here(&scene, &abandon).ok().stdout.contains("is removed"));
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0);
    let uploads = scene.path("registry/docker/registry/v2/repositories/demo/_uploads");
    // This registry makes the upload's folder again when it closes the removed upload, but not its bytes.
    let left = fs::read_dir(uploads).expect("listed").flatten().map(|upload| upload.path().join("data"));
    assert!(left.into_iter().all(|data| !data.exists()), "{}", registry.said());
    assert!(run_here(&scene, &abandon).ok().stdout.contains("nothing to remove"));
}
