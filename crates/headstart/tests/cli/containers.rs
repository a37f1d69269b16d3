//! Images beside containers' images in a registry, and bundles for runc: Debian's docker-registry, skopeo,
//! runc and podman.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::registry::{REGISTRY, Registry, program, run_here};
use crate::relay::Relay;
use crate::scene::{Ran, Running, START, Scene, has_tools, leaving, machine_has, run, tool, wait_until};
use crate::sources::{layout, root};
use crate::tokens::{self, Tokens};

pub(crate) const TOOLS: &[&str] = &[REGISTRY, "skopeo"];

/// A registry with a container's image, which says `text`.
pub(crate) fn registry_with(scene: &Scene, text: &str) -> Registry {
    let registry = Registry::start(scene, false);
    root(scene);
    send(scene, &registry, "demo:1", text);
    registry
}

/// Makes a container's image, and sends it with the program of the field.
fn send(scene: &Scene, registry: &Registry, name: &str, text: &str) {
    let config = json!({"Entrypoint": ["/bin/sh", "-c"], "Cmd": [format!("echo {text}; cat /etc/motd")]});
    let _ = fs::remove_dir_all(scene.path("layout"));
    fs::write(scene.path("root/etc/said"), text).expect("written");
    let (layout, _) = layout(scene, &config);
    let to = format!("docker://127.0.0.1:{}/{name}", registry.port);
    tool("skopeo", &["copy", "--dest-tls-verify=false", &format!("oci:{layout}:1.0"), &to]);
}

/// A manifest as the registry has it.
fn manifest(registry: &Registry, name: &str) -> Value {
    let from = format!("docker://127.0.0.1:{}/{name}", registry.port);
    let said = tool("skopeo", &["inspect", "--raw", "--tls-verify=false", &from]).stdout;
    serde_json::from_str(&said).expect("JSON")
}

/// The list of what refers to a manifest.
pub(crate) fn list(registry: &Registry, digest: &str) -> Vec<Value> {
    let list = manifest(registry, &format!("demo:{}", digest.replace(':', "-")));
    list["manifests"].as_array().expect("a list").clone()
}

fn convert(scene: &Scene, url: &str, extra: &[&str]) -> Value {
    run_here(scene, &[&["convert", url, "--codec", "zstd:1", "--json"], extra].concat()).ok().json()
}

/// What the container's own command says, started from the registry.
pub(crate) fn said(scene: &Scene, url: &str) -> Ran {
    run_here(scene, &["--quiet", "run", url, "--insecure", "--disk-cache=none"])
}

#[test]
fn a_containers_image_is_converted_once_and_started_by_its_name() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    let url = registry.url("demo:1");
    let original = manifest(&registry, "demo:1");
    said(&scene, &url).fails(1, &["container's image", "headstart convert"]);
    let with_tls = url.replace("oci+http:", "oci:");
    run_here(&scene, &["convert", &with_tls]).fails(1, &[&with_tls, "without TLS", &url]);
    let planned = convert(&scene, &url, &["--dry-run"]);
    assert!(planned["address"].is_null() && planned["sent_bytes"] == 0, "{planned}");
    let first = convert(&scene, &url, &["-o", "kept.hsi"]);
    let address = first["address"].as_str().expect("an address");
    assert!(first["was_there"] == false && first["sent_bytes"] == first["image_bytes"], "{first}");
    let verified = run_here(&scene, &["verify", "kept.hsi"]).ok();
    assert!(verified.stdout.contains(first["image"].as_str().expect("a name")), "{verified:?}");
    // The original is as it was; the image refers to it, and says what it is of.
    assert_eq!(manifest(&registry, "demo:1"), original);
    let ours = manifest(&registry, &format!("demo@{}", address.split_once('@').expect("a digest").1));
    assert_eq!(ours["subject"]["digest"], first["source_digest"]);
    assert_eq!(ours["artifactType"], "application/vnd.headstart.image.v1");
    let listed = list(&registry, first["source_digest"].as_str().expect("a digest"));
    assert_eq!((listed.len(), &listed[0]["annotations"]), (1, &ours["annotations"]));
    assert_eq!(ours["annotations"]["io.headstart.platform"], "linux/amd64");
    assert_eq!(ours["annotations"]["io.headstart.chain-id"], first["chain_id"]);
    let again = convert(&scene, &url, &[]);
    assert!(again["was_there"] == true && again["sent_bytes"] == 0, "{again}");
    assert_eq!((&again["address"], &again["image"]), (&first["address"], &first["image"]));

    assert_eq!(said(&scene, &url).ok().stdout, "one\nhello from the archive\n");
    // Write access to the repository decides what runs: root needs a name, which the address can have.
    let unnamed = run_here(&scene, &["run", &url, "--disk-cache=none"]);
    unnamed.fails(1, &["nothing proves which image", first["image"].as_str().expect("a name")]);
    let by_original = format!("{}@{}", registry.url("demo"), first["source_digest"].as_str().expect("one"));
    run_here(&scene, &["run", &by_original, "--disk-cache=none"]).fails(1, &["nothing proves which image"]);
    let by_digest = run_here(&scene, &["run", address, "--disk-cache=none", "--", "cat /etc/said"]).ok();
    assert_eq!(by_digest.stdout, "one");
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn what_is_of_another_image_is_not_started() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    let url = registry.url("demo:1");
    let first = convert(&scene, &url, &[]);
    // The tag is another image's now: what was made of the earlier one is not of it.
    send(&scene, &registry, "demo:1", "two");
    said(&scene, &url).fails(1, &["headstart convert"]);
    // Nor where a list says so.
    let second = convert(&scene, &url, &["--dry-run"]);
    let digest = |converted: &Value| converted["source_digest"].as_str().expect("a digest").to_owned();
    let lie = manifest(&registry, &format!("demo:{}", digest(&first).replace(':', "-")));
    let to =
        format!("http://127.0.0.1:{}/v2/demo/manifests/{}", registry.port, digest(&second).replace(':', "-"));
    fs::write(scene.path("lie"), lie.to_string()).expect("written");
    let put = "import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1], open(sys.argv[2], 'rb').read(), \
        {'Content-Type': 'application/vnd.oci.image.index.v1+json'}, method='PUT')).status)";
    assert_eq!(tool("python3", &["-c", put, &to, &scene.arg("lie")]).stdout, "201\n");
    assert_eq!(list(&registry, &digest(&second)).len(), 1);
    said(&scene, &url).fails(1, &["headstart convert"]);
    convert(&scene, &url, &[]);
    assert_eq!(said(&scene, &url).ok().stdout, "two\nhello from the archive\n");
}

/// Containers would start from the other one's files.
#[test]
fn what_was_built_from_another_image_is_not_added_to_the_snapshotter() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    send(&scene, &registry, "demo:2", "two");
    let (first, second) = (registry.url("demo:1"), registry.url("demo:2"));
    let (built, plain) = (scene.arg("a.hsi"), scene.arg("plain.hsi"));
    run_here(&scene, &["build", &first, "-o", &built, "--codec", "zstd:1"]).ok();
    run_here(&scene, &["build", &scene.arg("root"), "-o", &plain, "--codec", "zstd:1"]).ok();
    let converted = convert(&scene, &first, &[]);
    let address = converted["address"].as_str().expect("an address");
    let chain = |url: &str| convert(&scene, url, &["--dry-run"])["chain_id"].as_str().map(str::to_owned);
    let (theirs, wanted) = (chain(&first).expect("an ID"), chain(&second).expect("an ID"));
    let folder = scene.arg("snapshots");
    let add =
        |url: &str, image: &str| run_here(&scene, &["snapshotter", "--root", &folder, "add", url, image]);
    for image in [&built, address] {
        add(&second, image).fails(1, &[image, &theirs, &second, &wanted]);
        let added = add(&first, image).ok();
        assert!(!added.stderr.contains("does not say"), "{added:?}");
    }
    let added = add(&second, &plain).ok();
    assert_eq!(added.stderr.matches("does not say which container's image it is of").count(), 1, "{added:?}");
    let listed = run_here(&scene, &["snapshotter", "--root", &folder, "list"]).ok().stdout;
    assert!(listed.contains(&format!("{second}: {plain}#")), "{listed}");
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn a_copy_of_the_manifest_names_the_conversion_for_containerd() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    for to in ["demo:1-headstart", "other/copy:2"] {
        let converted = convert(&scene, &registry.url("demo:1"), &["--annotate", &registry.url(to)]);
        let mut copy = manifest(&registry, to);
        let digest = converted["address"].as_str().expect("an address").split_once('@').expect("a digest").1;
        let named = format!("127.0.0.1:{}/demo@{digest}", registry.port);
        let layer = &mut copy["layers"][0];
        assert_eq!(layer["annotations"]["containerd.io/snapshot/headstart.image"], named.as_str());
        layer.as_object_mut().expect("an object").remove("annotations");
        assert_eq!(copy, manifest(&registry, "demo:1"));
        // It is whole: another program copies all of it.
        let from = format!("docker://127.0.0.1:{}/{to}", registry.port);
        let folder = format!("dir:{}", scene.arg(&to.replace('/', "-")));
        tool("skopeo", &["copy", "--src-tls-verify=false", &from, &folder]);
    }
}

#[test]
fn recorded_starts_lie_beside_the_image_and_become_its_hot_region() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    let url = registry.url("demo:1");
    let hot = |converted: &Value| {
        let address = converted["address"].as_str().expect("an address");
        let inspect = ["inspect", address, "--json", "--disk-cache=none"];
        let inspected = run_here(&scene, &inspect).ok().json();
        let segments = inspected["hot_segments"].as_array().expect("segments");
        segments.iter().filter_map(|segment| segment["hot_bytes"].as_u64()).sum::<u64>()
    };
    let cold = convert(&scene, &url, &[]);
    assert_eq!(hot(&cold), 0);
    for script in ["cat /etc/motd", "cat /etc/said"] {
        let profile = ["--quiet", "profile", &url, "-o", "start.hsp", "--insecure", "--disk-cache=none"];
        run_here(&scene, &[&profile[..], &["--", script]].concat()).ok();
        let pushed = run_here(&scene, &["push", "start.hsp", &url, "--json"]).ok().json();
        assert!(pushed["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{pushed}");
        let again = run_here(&scene, &["push", "start.hsp", &url, "--json"]).ok().json();
        assert_eq!((again["was_there"].as_bool(), &again["digest"]), (Some(true), &pushed["digest"]));
    }
    let one = convert(&scene, &url, &["--command", "/etc/said"]);
    assert_eq!(one["recorded"].as_array().map(Vec::len), Some(1), "{one}");
    let both = convert(&scene, &url, &[]);
    assert_eq!(both["recorded"].as_array().map(Vec::len), Some(2), "{both}");
    assert!(hot(&one) > 0 && hot(&both) >= hot(&one), "{one} {both}");
    assert_eq!(convert(&scene, &url, &[])["was_there"], true);
    assert_eq!(said(&scene, &url).ok().stdout, "one\nhello from the archive\n");
    // This registry removes nothing unless it is told to.
    let kept = convert(&scene, &url, &["--replace"]);
    assert_eq!((kept["removed"].as_u64(), kept["kept"].as_u64()), (Some(0), Some(2)), "{kept}");
    let registry = registry.again_with_deletion(&scene);
    let gone = convert(&scene, &url, &["--replace"]);
    assert_eq!((gone["removed"].as_u64(), gone["kept"].as_u64()), (Some(2), Some(0)), "{gone}");
    // What is gone is passed over, and leaves the list when that is written.
    run_here(&scene, &["convert", &url, "--codec", "store"]).ok();
    let listed = list(&registry, gone["source_digest"].as_str().expect("a digest"));
    assert_eq!(listed.len(), 4, "two profiles, and two images: {listed:?}");
    run_here(&scene, &["push", "start.hsp", &registry.url("none:1")]).fails(1, &["404"]);
}

/// What reads from an earlier conversion reads on until the registry removes its bytes.
#[test]
fn a_conversion_that_was_replaced_and_is_needed_says_what_to_do() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one").again_with_deletion(&scene);
    fs::write(scene.path("root/noise"), hs_testing::noise(24 << 20, 83)).expect("written");
    send(&scene, &registry, "demo:1", "one");
    let url = registry.url("demo:1");
    let first = convert(&scene, &url, &[]);
    let address = first["address"].as_str().expect("an address");
    let dir = scene.folder("dir");
    let mount = ["mount", "-f", address, &dir, "--disk-cache=none", "--background=off"];
    let mut serving = Running::start_command(program(&scene, &mount));
    assert!(serving.said().contains("mounted"));
    let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
    let (mut early, mut late) = (vec![0; 4096], vec![0; 4096]);
    file.read_exact_at(&mut early, 2 << 20).expect("read");
    let replaced =
        run_here(&scene, &["convert", &url, "--codec", "store", "--replace", "--json"]).ok().json();
    assert_eq!((replaced["removed"].as_u64(), replaced["kept"].as_u64()), (Some(1), Some(0)), "{replaced}");
    file.read_exact_at(&mut late, 4 << 20).expect("its bytes are there");
    let words = ["404", "convert --replace", "pull it again"];
    run_here(&scene, &["verify", address, "--disk-cache=none"]).fails(1, &words);
    Registry::collect_garbage(&scene);
    file.read_exact_at(&mut late, 20 << 20).expect_err("they are gone");
    let said = serving.said();
    assert!(words.iter().all(|word| said.contains(word)) && said.contains("no blob sha256:"), "{said}");
    let digest = replaced["address"].as_str().expect("an address");
    run_here(&scene, &["verify", digest, "--disk-cache=none"]).ok();
    drop(file);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    drop(registry);
    scene.wait_until_clean();
}

/// One command records, sends the profile and converts.
#[test]
fn a_start_is_recorded_while_an_image_is_converted() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    let url = registry.url("demo:1");
    let temporary = scene.folder("tmp");
    let convert = |words: &[&str]| {
        let before = ["convert", &url, "--codec", "zstd:1", "--json", "--record"];
        let mut command = program(&scene, &[&before, words].concat());
        command.env("TMPDIR", &temporary);
        command
    };
    let ran = |mut command: std::process::Command| Ran::from(command.output().expect("it starts"));
    ran(convert(&["--", "exit 7"])).fails(1, &["exit code 7", "nothing is converted"]);
    let working = Running::start_command(convert(&["--", "echo begun >&2; sleep 1000"]));
    wait_until("the command runs", || scene.processes().iter().any(|pid| is_sleeping(*pid)));
    working.signal(Signal::TERM);
    assert_eq!(working.end().0.code(), Some(128 + 15));
    wait_until("the recording has ended", || !scene.processes().iter().any(|pid| is_sleeping(*pid)));
    ran(convert(&["--ready", "^begun", "--", "echo begun; sleep 1000"])).ok();
    let converted = ran(convert(&[])).ok();
    assert!(converted.stderr.contains("hello from the archive"), "{converted:?}");
    let converted = converted.json();
    assert_eq!(converted["recorded"][0], "the image's own command", "{converted}");
    let listed = list(&registry, converted["source_digest"].as_str().expect("a digest"));
    assert_eq!(listed.len(), 4, "two profiles and two images: {listed:?}");
    let inspect = ["inspect", converted["address"].as_str().expect("one"), "--json", "--disk-cache=none"];
    let inspected = run_here(&scene, &inspect).ok().json();
    assert!(inspected["hot_segments"][0]["hot_bytes"].as_u64() > Some(0), "{inspected}");
    let again = run_here(&scene, &["convert", &url, "--codec", "zstd:1", "--json"]).ok().json();
    assert_eq!((&again["was_there"], &again["address"]), (&json!(true), &converted["address"]));
    assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0);
    run_here(&scene, &["convert", &url, "--", "true"]).fails(2, &["--record"]);
    drop(registry);
    scene.wait_until_clean();
}

/// Whether this is the command that never ends.
fn is_sleeping(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("sleep 1000"))
}

#[test]
fn what_is_not_sent_to_its_end_refers_to_nothing() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    let relay = Relay::start(registry.port, |_| false);
    let url = format!("oci+http://127.0.0.1:{}/demo:1", relay.port);
    for (round, what) in ["PATCH /v2", "PUT /v2/demo/manifests/sha256:"].into_iter().enumerate() {
        relay.hold(move |line| line.starts_with(what));
        let converting = Running::start_command(program(&scene, &["convert", &url, "--codec", "zstd:1"]));
        wait_until("it is held", || relay.held() == round + 1);
        converting.signal(Signal::KILL);
        assert!(!converting.end().0.success());
        said(&scene, &registry.url("demo:1")).fails(1, &["headstart convert"]);
    }
    // The image is there, and not in the list yet: the next one lists both.
    let is_list = |line: &str| {
        let path = line.strip_prefix("PUT /v2/demo/manifests/sha256-").unwrap_or(".");
        !path.split(' ').next().unwrap_or_default().contains('.')
    };
    relay.hold(is_list);
    let converting = Running::start_command(program(&scene, &["convert", &url, "--codec", "store"]));
    wait_until("it is held", || relay.held() == 3);
    converting.signal(Signal::KILL);
    assert!(!converting.end().0.success());
    relay.hold(|_| false);
    let converted = convert(&scene, &url, &[]);
    assert_eq!(list(&registry, converted["source_digest"].as_str().expect("a digest")).len(), 2);
    assert_eq!(said(&scene, &url).ok().stdout, "one\nhello from the archive\n");
    // A registry that dies meanwhile is an error, and leaves the last conversion.
    let pid = registry.pid();
    relay.hold(move |line| {
        let dies = line.starts_with("POST /v2");
        dies && kill_process(pid, Signal::KILL).is_err()
    });
    run_here(&scene, &["convert", &url, "--codec", "lz4:1"]).fails(1, &["demo"]);
    let registry = registry.again(&scene);
    assert_eq!(said(&scene, &registry.url("demo:1")).ok().stdout, "one\nhello from the archive\n");
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn of_conversions_at_once_none_is_lost() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    let url = registry.url("demo:1");
    let running: Vec<_> = ["store", "zstd:1", "lz4:1"]
        .map(|codec| {
            let mut converting = program(&scene, &["convert", &url, "--codec", codec, "--json"]);
            converting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .into_iter()
        .map(|converting| Ran::from(converting.wait_with_output().expect("it ends")).ok().json())
        .collect();
    let listed = list(&registry, running[0]["source_digest"].as_str().expect("a digest"));
    for converted in &running {
        let address = converted["address"].as_str().expect("an address");
        let is_listed =
            |entry: &Value| entry["digest"].as_str().is_some_and(|digest| address.ends_with(digest));
        assert_eq!(listed.iter().filter(|entry| is_listed(entry)).count(), 1, "{address}");
    }
}

/// A slow link: the first piece takes longer than a token lasts.
#[test]
fn a_token_that_expires_while_an_image_is_sent_is_had_anew() {
    if !has_tools(TOOLS) || !has_tools(tokens::TOOLS) {
        return;
    }
    let scene = Scene::new();
    let tokens = Tokens::start(&scene, 3);
    let registry = registry_with(&scene, "one").again_with_tokens(&scene, &tokens);
    let mut is_slow = true;
    let relay = Relay::start(registry.port, move |line| {
        if line.starts_with("PATCH /v2") && std::mem::take(&mut is_slow) {
            std::thread::sleep(Duration::from_secs(4));
        }
        false
    });
    let url = format!("oci+http://127.0.0.1:{}/demo:1", relay.port);
    let converted = convert(&scene, &url, &[]);
    assert_eq!(converted["was_there"], false, "{converted}");
    let lines = relay.take_lines();
    let pieces = lines.iter().filter(|line| line.starts_with("PATCH /v2")).count();
    assert!(pieces >= 2, "the piece whose token had expired came again: {lines:?}");
    assert_eq!(convert(&scene, &url, &[])["was_there"], true);
    drop(registry);
}

fn runc(scene: &Scene, arguments: &[&str]) -> Ran {
    let state = scene.arg("runc");
    Command::new("runc").args(["--root", &state]).args(arguments).output().expect("it starts").into()
}

#[test]
fn runc_starts_a_container_from_a_bundle() {
    if !has_tools(&["runc"]) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    root(&scene);
    let say = "echo $0 $* A=$A HOME=$HOME; id -u; id -G; pwd; echo new >/srv/web/new && cat /srv/web/new";
    let (layout, _) = layout(
        &scene,
        &json!({
            "Entrypoint": ["/bin/sh", "-c", say, "program"], "Cmd": ["one"],
            "Env": ["PATH=/bin", "A=image"], "WorkingDir": "/srv/web",
        }),
    );
    let image = scene.arg("image.hsi");
    run(["build", &format!("oci:{layout}:1.0"), "-o", &image, "--codec", "zstd:1"]).ok();
    let bundle = scene.arg("bundle");
    leaving(&scene, ["--quiet", "bundle", &image, &bundle]).ok();
    let name = format!("headstart-{}", std::process::id());
    let own_words = "program one A=image HOME=/root\n0\n0\n/srv/web\nnew\n";
    assert_eq!(runc(&scene, &["run", "-b", &bundle, &name]).ok().stdout, own_words);
    // What was written stays until the bundle is removed.
    assert_eq!(fs::read_to_string(scene.path("bundle/rootfs/srv/web/new")).expect("written"), "new\n");
    run(["bundle", &image, &bundle]).fails(1, &["not empty", "--remove"]);
    // While a container uses its root, it stays.
    let config = fs::read_to_string(scene.path("bundle/config.json")).expect("there");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["process"]["args"] = json!(["/bin/busybox", "sleep", "600"]);
    fs::write(scene.path("bundle/config.json"), config.to_string()).expect("written");
    let started = Command::new("runc")
        .args(["--root", &scene.arg("runc"), "run", "-d", "-b", &bundle, &name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(started.expect("it starts").success());
    run(["bundle", "--remove", &bundle]).fails(1, &["in use", "runc delete"]);
    let inside = runc(&scene, &["exec", &name, "/bin/busybox", "md5sum", "/bin/busybox"]).ok().stdout;
    let own = tool("md5sum", &["/bin/busybox"]).stdout;
    assert_eq!(inside, own);
    assert_eq!(
        fs::read_to_string(scene.path("bundle/rootfs/etc/motd")).expect("read"),
        "hello from the archive\n"
    );
    runc(&scene, &["delete", "-f", &name]).ok();
    run(["bundle", "--remove", &bundle]).ok();
    assert!(!scene.path("bundle").exists());
    run(["bundle", "--remove", &scene.arg("root")]).fails(1, &["no bundle"]);
    scene.wait_until_clean();
    // Of two that are made at once in a folder, one is there and whole.
    fs::create_dir(&bundle).expect("made");
    let both = [(); 2].map(|()| Running::start(["--quiet", "bundle", &image, &bundle]));
    let [one, other] = both.map(|bundle| bundle.end());
    assert!(one.0.success() != other.0.success(), "{one:?} {other:?}");
    assert!([one.2, other.2].concat().contains("not empty"));
    assert_eq!(runc(&scene, &["run", "-b", &bundle, &name]).ok().stdout, own_words);
    run(["bundle", "--remove", &bundle]).ok();
    scene.wait_until_clean();
    // What fails leaves nothing either.
    run(["bundle", &scene.arg("config"), &bundle]).fails(1, &["config"]);
    leaving(&scene, ["bundle", &image, &bundle, "--remove", &bundle]).fails(2, &["--remove"]);
    assert!(!scene.path("bundle").exists());
    scene.wait_until_clean();
}

#[test]
fn podman_starts_a_container_from_a_mounted_tree() {
    if !has_tools(&["podman", "runc"]) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (disk, tree) = (scene.folder("disk"), scene.folder("tree"));
    leaving(&scene, ["--quiet", "mount", &image, &disk, "--fs", &tree]).ok();
    let (storage, state) = (scene.arg("storage"), scene.arg("state"));
    let ran: Ran = Command::new("podman")
        .args(["--root", &storage, "--runroot", &state, "--tmpdir", &scene.arg("tmp"), "--runtime", "runc"])
        .args([
            "--cgroup-manager",
            "cgroupfs",
            "--events-backend",
            "file",
            "run",
            "--rm",
            "--network",
            "none",
        ])
        .args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1000:1000",
            "--rootfs",
            &format!("{tree}:O"),
        ])
        .args(["/bin/sh", "-c", "echo new >/etc/new && cat /etc/motd /etc/new"])
        .output()
        .expect("it starts")
        .into();
    assert_eq!(ran.ok().stdout, "hello from the image\nnew\n");
    assert!(!std::path::Path::new(&tree).join("etc/new").exists());
    tool("umount", &[&tree]);
    let _ = Command::new("umount").args(["-q", &format!("{storage}/overlay")]).status();
    scene.wait_until_clean();
}

/// A container has the tree in a mount namespace of its own, where it stays when it is unmounted here.
#[test]
fn a_tree_is_served_until_its_last_container_is_gone() {
    if !has_tools(&["unshare", "nsenter"]) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (disk, tree) = (scene.folder("disk"), scene.folder("tree"));
    leaving(&scene, ["--quiet", "mount", &image, &disk, "--fs", &tree]).ok();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", "echo made; exec sleep 1000"]);
    let mut container = Running::start_command(command);
    assert_eq!(container.printed(), "made\n");
    tool("umount", &[&tree]);
    assert!(tool("ls", &[&tree]).stdout.is_empty());
    let (id, file) = (container.id().to_string(), format!("{tree}/bin/busybox"));
    let read = tool("nsenter", &["--mount", "--target", &id, "md5sum", &file]).ok().stdout;
    let own = tool("md5sum", &["/bin/busybox"]).stdout;
    assert_eq!(read.split(' ').next(), own.split(' ').next());
    // What is mounted here meanwhile is not the server's to unmount.
    tool("mount", &["-t", "tmpfs", "none", &tree]);
    container.signal(Signal::KILL);
    container.end();
    wait_until("the disk is gone", || !scene.mounts().iter().any(|line| line.contains("fuse.headstart")));
    tool("umount", &[&tree]);
    scene.wait_until_clean();
}

/// Whatever a conversion or a push waits for, a signal ends it, and its temporary files go.
#[test]
fn a_signal_ends_what_waits_for_a_registry() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    scene.image("a.hsi", 20, 208);
    let relay = Relay::start(registry.port, |_| false);
    let [url, own] = ["demo:1", "own"].map(|name| format!("oci+http://127.0.0.1:{}/{name}", relay.port));
    let temporary = scene.folder("tmp");
    let convert: &[&str] = &["convert", &url, "--codec", "zstd:1"];
    let push: &[&str] = &["push", "a.hsi", &own, "--upload-state=state"];
    let cases = [
        (convert, "GET /v2/demo/manifests"),
        (convert, "GET /v2/demo/blobs"),
        (convert, "PATCH /v2"),
        (push, "POST /v2"),
    ];
    for (round, (words, held)) in cases.into_iter().enumerate() {
        relay.hold(move |line| line.starts_with(held));
        let mut command = program(&scene, words);
        command.env("TMPDIR", &temporary);
        let working = Running::start_command(command);
        wait_until("it is held", || relay.held() == round + 1);
        working.signal(Signal::TERM);
        let (status, _, said) = working.end();
        assert_eq!(status.code(), Some(128 + 15), "{held}: {said}");
        assert_eq!(fs::read_dir(&temporary).expect("a folder").count(), 0, "{held}");
    }
}

#[test]
fn a_bundle_that_a_signal_ends_leaves_nothing() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one");
    scene.image("a.hsi", 20, 208);
    let relay = Relay::start(registry.port, |_| false);
    let url = format!("oci+http://127.0.0.1:{}/own", relay.port);
    run_here(&scene, &["push", "a.hsi", &url]).ok();
    relay.hold(|line| line.starts_with("GET /v2/own/blobs"));
    let working = Running::start_command(program(&scene, &["bundle", &url, "b", "--disk-cache=none"]));
    wait_until("it is held", || relay.held() == 1);
    working.signal(Signal::INT);
    let (status, _, said) = working.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("ended by a signal"), "{said}");
    assert!(!scene.path("b").exists());
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn no_container_is_no_bundle_or_conversion() {
    let scene = Scene::new();
    for word in ["app.hsi", "https://host/x", "s3://bucket/x"] {
        run_here(&scene, &["convert", word]).fails(2, &["docker://"]);
    }
}
