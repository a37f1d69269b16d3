//! Images that are built from archives and from containers' images, and what `run` makes of the latter.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::disks::kernel_mounts;
use crate::scene::{Ran, START, Scene, has_tools, headstart, machine_has, run, tool};
use crate::web::{NGINX, Nginx};

/// A root with busybox, and a user beside root.
pub(crate) fn root(scene: &Scene) -> String {
    for name in ["bin", "etc", "srv/web"] {
        fs::create_dir_all(scene.path("root").join(name)).expect("a folder");
    }
    let root = scene.path("root");
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    for name in ["sh", "cat", "id", "pwd"] {
        symlink("busybox", root.join("bin").join(name)).expect("a link");
    }
    fs::write(root.join("etc/motd"), "hello from the archive\n").expect("written");
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv/web:/bin/sh\n")
        .expect("written");
    fs::write(root.join("etc/group"), "root:x:0:\nweb:x:44:\nlog:x:5:web\n").expect("written");
    scene.arg("root")
}

fn tar(scene: &Scene, name: &str) -> String {
    tool("tar", &["-C", &scene.arg("root"), "--format=posix", "-cf", &scene.arg(name), "."]);
    scene.arg(name)
}

/// Runs the program with a file as its standard input.
fn run_with_input(input: &str, arguments: &[&str]) -> Ran {
    let input = fs::File::open(input).expect("a file");
    headstart(arguments).stdin(Stdio::from(input)).output().expect("the program starts").into()
}

fn build(source: &str, output: &str) -> Value {
    run(["build", source, "-o", output, "--codec", "zstd:1", "--json"]).ok().json()
}

#[test]
fn an_archive_becomes_the_image_that_its_directory_becomes() {
    let scene = Scene::new();
    let folder = root(&scene);
    let archive = tar(&scene, "root.tar");
    let of_folder = build(&folder, &scene.arg("folder.hsi"));
    let of_archive = build(&archive, &scene.arg("archive.hsi"));
    assert_eq!(of_archive["disk_digest"], of_folder["disk_digest"]);
    assert!(of_archive.get("kept_bytes").is_none(), "{of_archive}");
    tool("gzip", &["-k", &archive]);
    let words = ["build", "-", "-o", &scene.arg("stream.hsi"), "--codec", "zstd:1"];
    let packed = scene.arg("root.tar.gz");
    let of_stream = run_with_input(&packed, &[&words[..], &["--json"]].concat()).ok();
    assert_eq!(of_stream.json()["disk_digest"], of_folder["disk_digest"]);
    assert!(of_stream.json()["kept_bytes"].as_u64().is_some_and(|bytes| bytes > 500_000));
    assert!(of_stream.stderr.contains("standard input: its files take"), "{}", of_stream.stderr);
    run(["verify", &scene.arg("stream.hsi"), "--against", &archive]).ok();
    let small = run_with_input(&packed, &[&words[..], &["--unpack-limit", "100K"]].concat());
    small.fails(1, &["standard input", "more than 100 KiB", "--unpack-limit"]);
    run(["build", "-", "-o", &scene.arg("none.hsi")]).fails(1, &["standard input", "empty"]);
    let expected = ["archive.hsi", "folder.hsi", "root", "root.tar", "root.tar.gz", "stream.hsi"];
    assert_eq!(scene.names(), expected, "nothing is left of what was kept");
    if machine_has(START) {
        let image = scene.arg("archive.hsi");
        assert_eq!(run(["run", &image, "--", "cat", "/etc/motd"]).ok().stdout, "hello from the archive\n");
        run(["run", &image]).fails(1, &["no command of its own", "`--`"]);
    }
}

#[test]
fn the_files_of_a_disk_become_the_image_that_their_directory_becomes() {
    if !machine_has(START) || !has_tools(&["mksquashfs", "mkfs.ext4", "sfdisk"]) {
        return;
    }
    let scene = Scene::new();
    let folder = root(&scene);
    let file = |name: &str| format!("{folder}/{name}");
    fs::hard_link(file("etc/motd"), file("etc/issue")).expect("a link");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(file("bin/busybox"), "trusted.note", b"kept", flags).expect("an attribute");
    tool("mknod", &[&file("null"), "c", "1", "3"]);
    // A squashfs keeps seconds.
    tool("sh", &["-c", &format!("find {folder} -exec touch -h -d @1700000000 {{}} +")]);
    let digest = |built: Value| built["disk_digest"].as_str().expect("a digest").to_owned();
    let of_folder = digest(build(&folder, &scene.arg("folder.hsi")));
    let squashfs = scene.arg("root.squashfs");
    tool("mksquashfs", &[&folder, &squashfs, "-quiet", "-no-progress"]);
    let output = scene.arg("tree.hsi");
    let as_tree = |disk: &str, more: &[&str]| {
        let words = ["build", disk, "-o", &output, "--codec", "zstd:1", "--as", "tree", "--json", "--force"];
        run([&words[..], more].concat())
    };
    assert_eq!(digest(as_tree(&squashfs, &[]).ok().json()), of_folder);
    // In a partition, as an ext4 that has a folder more.
    let disk = scene.arg("disk.raw");
    let script = format!(
        "mkdir {folder}/lost+found; touch -d @1700000000 {folder} {folder}/lost+found; \
         chmod 700 {folder}/lost+found; truncate -s 24M {disk}; \
         E2FSPROGS_FAKE_TIME=1700000000 mkfs.ext4 -q -F -d {folder} -E offset=1048576 {disk} 20M; \
         echo 'start=2048, size=40960' | sfdisk -q {disk}"
    );
    tool("sh", &["-ec", &script]);
    as_tree(&disk, &[]).fails(1, &["--partition"]);
    let of_disk = digest(as_tree(&disk, &["--partition", "1"]).ok().json());
    assert_eq!(of_disk, digest(build(&folder, &scene.arg("more.hsi"))));
    as_tree(&scene.arg("folder.hsi"), &[]).fails(1, &["a headstart image"]);
    scene.wait_until_clean();
}

/// Forty folders, each with two names in the one before, are 2^40 folders to a walk over them.
#[test]
fn folders_of_a_disk_that_have_no_end_are_refused() {
    if !machine_has(START) || !has_tools(&["mkfs.ext4", "debugfs"]) {
        return;
    }
    let scene = Scene::new();
    let (disk, output) = (scene.arg("disk.raw"), scene.arg("tree.hsi"));
    let folders = (0..=40).map(|number| format!("mkdir /d{number}\n")).collect::<String>();
    let names = (0..40).map(|number| format!("ln /d{0} /d{number}/a\nln /d{0} /d{number}/b\n", number + 1));
    let script = scene.arg("script");
    fs::write(&script, folders + &names.collect::<String>()).expect("written");
    tool("truncate", &["-s", "16M", &disk]);
    tool("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", &disk]);
    tool("debugfs", &["-w", "-f", &script, &disk]);
    let as_tree = || run(["build", &disk, "-o", &output, "--as", "tree"]);
    as_tree().fails(1, &["has another name too", "fsck"]);
    assert!(!Path::new(&output).exists());
    scene.wait_until_clean();
}

/// With Rock Ridge, which has owners, permissions, links and devices. By default it stays a disk that boots.
#[test]
fn the_files_of_an_iso_become_the_image_that_their_directory_becomes() {
    if !machine_has(START) || !has_tools(&["xorriso"]) {
        return;
    }
    let scene = Scene::new();
    let folder = root(&scene);
    let iso = scene.arg("root.iso");
    // An ISO keeps seconds.
    let script = format!(
        "mknod {folder}/null c 1 3; chown 33:44 {folder}/srv/web; chmod 4711 {folder}/bin/busybox; \
         find {folder} -exec touch -h -d @1700000000 {{}} +; xorriso -as mkisofs -quiet -R -o {iso} {folder}"
    );
    tool("sh", &["-ec", &script]);
    let of_folder = build(&folder, &scene.arg("folder.hsi"));
    let of_disk = run(["build", &iso, "-o", &scene.arg("disk.hsi"), "--codec", "zstd:1"]).ok();
    assert!(of_disk.stderr.contains("ISO 9660") && of_disk.stderr.contains("--as tree"), "{of_disk:?}");
    run(["verify", &scene.arg("disk.hsi"), "--against", &iso]).ok();
    let output = scene.arg("tree.hsi");
    let as_tree = run(["build", &iso, "-o", &output, "--codec", "zstd:1", "--as", "tree", "--json"]);
    if kernel_mounts("iso9660") {
        assert_eq!(as_tree.ok().json()["disk_digest"], of_folder["disk_digest"]);
    } else {
        as_tree.fails(1, &["cannot mount iso9660", "modprobe iso9660"]);
    }
    scene.wait_until_clean();
}

#[test]
fn an_archive_that_lies_is_refused_with_its_entry() {
    let scene = Scene::new();
    root(&scene);
    let archive = tar(&scene, "root.tar");
    let bytes = fs::read(&archive).expect("read");
    fs::write(&archive, &bytes[..bytes.len() / 2]).expect("written");
    run(["build", &archive, "-o", &scene.arg("out.hsi")]).fails(1, &["root.tar: ./", "it may be cut short"]);
    let evil = ["-C", &scene.arg("root"), "-cPf", &archive, "--transform=s,^etc,../etc,", "etc/motd"];
    tool("tar", &evil);
    run(["build", &archive, "-o", &scene.arg("out.hsi")]).fails(1, &["../etc/motd", "`..`"]);
    assert!(!scene.path("out.hsi").exists());
    run(["build", "oci-archive:root.tar:x", "-o", &scene.arg("out.hsi")])
        .fails(1, &["root.tar", "No such file"]);
    run(["build", "docker.io/library/python", "-o", &scene.arg("out.hsi")]).fails(1, &["docker://docker.io"]);
    let word = format!("oci-archive:{}", tar(&scene, "root.tar"));
    run(["build", &word, "-o", &scene.arg("out.hsi")]).fails(1, &["no container's image"]);
    run(["import", &scene.arg("root.tar"), "-o", &scene.arg("out.hsi")])
        .fails(1, &["a tar archive", "`headstart build`"]);
}

fn sha256(path: &Path) -> String {
    let said = tool("sha256sum", &[&path.display().to_string()]).stdout;
    format!("sha256:{}", said.split(' ').next().expect("a digest"))
}

/// Puts a file among the blobs of a layout, and describes it.
fn blob(layout: &Path, media_type: &str, path: &Path) -> Value {
    let digest = sha256(path);
    let bytes = fs::metadata(path).expect("a file").len();
    fs::rename(path, layout.join("blobs/sha256").join(&digest[7..])).expect("renamed");
    json!({"mediaType": media_type, "digest": digest, "size": bytes})
}

/// A layout of the root in one layer; gives the descriptor of its manifest.
pub(crate) fn layout(scene: &Scene, config: &Value) -> (String, Value) {
    let folder = scene.path("layout");
    fs::create_dir_all(folder.join("blobs/sha256")).expect("folders");
    let layer = tar(scene, "layer.tar");
    let diff_id = sha256(layer.as_ref());
    tool("gzip", &[&layer]);
    let layer = blob(&folder, "application/vnd.oci.image.layer.v1.tar+gzip", &scene.path("layer.tar.gz"));
    let document = |name: &str, media_type: &str, content: Value| {
        fs::write(scene.path(name), content.to_string()).expect("written");
        blob(&folder, media_type, &scene.path(name))
    };
    let config = document(
        "config",
        "application/vnd.oci.image.config.v1+json",
        json!({"os": "linux", "architecture": "amd64", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [diff_id]}}),
    );
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let mut manifest = document(
        "manifest",
        kind,
        json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}),
    );
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": "1.0"});
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(folder.join("index.json"), index.to_string()).expect("written");
    (scene.arg("layout"), manifest)
}

#[test]
fn the_command_of_a_containers_image_is_started() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    root(&scene);
    let say = "echo $0 $# $* A=$A HOME=$HOME PATH=$PATH; id -u; id -g; id -G; pwd";
    let (layout, _) = layout(
        &scene,
        &json!({
            "Entrypoint": ["/bin/sh", "-c", say, "program"], "Cmd": ["one", "two"],
            "Env": ["PATH=/bin", "A=image"], "User": "web", "WorkingDir": "/srv/web",
        }),
    );
    let image = scene.arg("image.hsi");
    build(&format!("oci:{layout}:1.0"), &image);
    let said = |arguments: &[&str]| {
        let words = ["run", &image].iter().chain(arguments).copied().collect::<Vec<_>>();
        run(words).ok().stdout
    };
    let own = "program 2 one two A=image HOME=/srv/web PATH=/bin\n33\n44\n44 5\n/srv/web\n";
    assert_eq!(said(&[]), own);
    assert_eq!(said(&["--", "three"]), own.replace("2 one two", "1 three"));
    assert_eq!(said(&["--env", "A=mine"]), own.replace("A=image", "A=mine"));
    assert_eq!(said(&["--entrypoint", "cat", "--", "/etc/motd"]), "hello from the archive\n");
    assert_eq!(said(&["--entrypoint", "", "--", "id", "-u"]), "33\n");
    // A profile is recorded of it, and an optimized image still has it.
    let profile = scene.arg("start.hsp");
    assert_eq!(run(["profile", &image, "-o", &profile]).ok().stdout, own);
    run(["optimize", &image, "--profile", &profile, "-o", &scene.arg("fast.hsi")]).ok();
    assert_eq!(run(["run", &scene.arg("fast.hsi")]).ok().stdout, own);
    scene.wait_until_clean();
}

#[test]
fn a_configuration_that_cannot_be_obeyed_is_said() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let folder = root(&scene);
    fs::create_dir(scene.path("root/.headstart")).expect("a folder");
    let config = |text: &str| {
        fs::write(scene.path("root/.headstart/config.json"), text).expect("written");
        build(&folder, &scene.arg("image.hsi"));
        run(["run", &scene.arg("image.hsi")])
    };
    assert_eq!(config(r#"{"Cmd":["cat","/etc/motd"]}"#).ok().stdout, "hello from the archive\n");
    config(r#"{"Cmd":["id"],"User":"nobody"}"#).fails(1, &["user \"nobody\"", "/etc/passwd"]);
    config(r#"{"Cmd":["id"],"WorkingDir":"/none"}"#).fails(1, &["enter the working directory /none in"]);
    config(r#"{"Cmd":"id"}"#).fails(1, &["/.headstart/config.json in the image"]);
    config(r#"{"Env":["A=1"]}"#).fails(1, &["no command of its own"]);
    fs::remove_file(scene.path("root/.headstart/config.json")).expect("removed");
    symlink("/etc/passwd", scene.path("root/.headstart/config.json")).expect("a link");
    build(&folder, &scene.arg("image.hsi"));
    run(["run", &scene.arg("image.hsi")]).fails(1, &["open /.headstart/config.json in the image"]);
}

#[test]
fn an_image_is_fetched_from_a_registry() {
    if !has_tools(&["sha256sum"]) || !Path::new(NGINX).exists() {
        return;
    }
    let scene = Scene::new();
    root(&scene);
    let (layout, manifest) = layout(&scene, &json!({"Cmd": ["cat", "/etc/motd"]}));
    // A registry is a web server with these paths.
    let repository = scene.path("www/v2/demo/root");
    fs::create_dir_all(repository.join("manifests")).expect("folders");
    fs::create_dir_all(repository.join("blobs")).expect("folders");
    let blobs = scene.path("layout/blobs/sha256");
    for entry in fs::read_dir(&blobs).expect("listed").flatten() {
        let digits = entry.file_name().into_string().expect("digits");
        fs::copy(entry.path(), repository.join(format!("blobs/sha256:{digits}"))).expect("copied");
    }
    let digest = manifest["digest"].as_str().expect("a digest");
    let by_digest = repository.join(format!("manifests/{digest}"));
    fs::copy(blobs.join(&digest[7..]), &by_digest).expect("copied");
    let list = json!({"schemaVersion": 2, "manifests": [
        {"digest": digest, "size": manifest["size"], "platform": {"os": "linux", "architecture": "amd64"}}]});
    fs::write(repository.join("manifests/1"), list.to_string()).expect("written");
    let nginx = Nginx::start(&scene, "default_type application/octet-stream;");
    let address = format!("oci+http://127.0.0.1:{}/demo/root", nginx.port);
    let expected = build(&layout, &scene.arg("layout.hsi"));
    for reference in [":1", &format!("@{digest}")] {
        let words = ["build", &format!("{address}{reference}"), "-o", &scene.arg("pulled.hsi")];
        let built = run(words.into_iter().chain(["--platform", "linux/amd64", "--json"])).ok().json();
        assert_eq!(built["disk_digest"], expected["disk_digest"], "{reference}");
    }
    let pull = |platform: &str| {
        run(["build", &format!("{address}:1"), "-o", &scene.arg("other.hsi"), "--platform", platform])
    };
    pull("linux/s390x").fails(1, &["127.0.0.1", "no image is for linux/s390x", "linux/amd64"]);
    run(["build", &format!("{address}:2"), "-o", &scene.arg("other.hsi")]).fails(1, &["manifest"]);
    let mut changed = fs::read(&by_digest).expect("read");
    changed.push(b' ');
    fs::write(&by_digest, changed).expect("written");
    pull("linux/amd64").fails(1, &["more or fewer than"]);
    fs::remove_dir_all(repository.join("blobs")).expect("removed");
    fs::copy(blobs.join(&digest[7..]), &by_digest).expect("copied");
    pull("linux/amd64").fails(1, &["127.0.0.1", "cannot read the blob sha256:"]);
    assert!(!scene.path("other.hsi").exists());
}

#[test]
fn a_build_from_standard_input_says_what_it_waits_for() {
    let scene = Scene::new();
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_headstart");
    command.args(["-c", &format!("echo no archive | {program} build - -o {}", scene.arg("out.hsi"))]);
    let ran: Ran = command.output().expect("a shell").into();
    ran.fails(1, &["standard input: this is no tar archive", "write it to a file first"]);
}

#[test]
fn flags_that_mean_nothing_for_a_source_are_refused() {
    let scene = Scene::new();
    scene.raw("disk.raw", 20, 1);
    let (disk, tree, out) = (scene.arg("disk.raw"), scene.folder("tree"), scene.arg("out.hsi"));
    for (source, flag, of) in [
        (&disk, &["--free", "1M"][..], "a directory"),
        (&disk, &["--unpack-limit", "1M"], "an archive"),
        (&tree, &["--platform", "linux/amd64"], "a container's image"),
        (&tree, &["--layers", "1"], "a container's image"),
        (&tree, &["--follow-backing"], "a qcow2 file"),
    ] {
        let refused = run([&["build", source, "-o", &out], flag].concat());
        refused.fails(1, &[source, &format!("{} is for {of}", flag[0])]);
    }
    run(["build", &disk, "--raw", "-o", "-"]).fails(1, &["-: it is standard output", "./-"]);
    tool("mkfifo", &[&scene.arg("fifo")]);
    run(["build", &scene.arg("fifo"), "-o", &out]).fails(1, &["this is a FIFO", "- reads an archive"]);
    assert!(!scene.path("out.hsi").exists());
}
