//! A file that is there is not destroyed by a slip. `src/outputs/tests.rs` has the rule for every output of
//! every command; here the program applies it.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};

use crate::scene::{START, Scene, has_tools, machine_has, run, tool};

/// What is read stays as it is, although the command ends well otherwise.
#[test]
fn what_a_command_reads_is_not_its_output() {
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 1);
    let image = scene.arg("disk.hsi");
    let before = fs::read(&image).expect("read");
    fs::hard_link(&image, scene.path("linked.hsi")).expect("linked");
    let linked = scene.arg("linked.hsi");
    let said = ["linked.hsi", "would replace", "disk.hsi, which is read"];
    run(["export", &image, "-o", &linked, "--format", "raw"]).fails(1, &said);
    run(["report", &image, "-o", &linked, "--format", "json", "--force"]).fails(1, &said);
    run(["build", &image, "-o", &linked, "--raw"]).fails(1, &said);
    run(["boot", &image, "--console", &linked]).fails(1, &said);
    run(["run", &image, &format!("--json={linked}"), "--", "true"]).fails(1, &said);
    run(["profile", &image, "-o", &linked, "--", "true"]).fails(1, &said);
    assert!(fs::read(&image).expect("read") == before);
    assert_eq!(scene.names(), ["disk.hsi", "disk.raw", "linked.hsi"]);
}

/// Nor what its source names, which others may read too.
#[test]
fn what_a_source_names_is_not_an_output() {
    if !has_tools(&["qemu-img"]) {
        return;
    }
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 1);
    let (base, top) = (scene.arg("base.qcow2"), scene.arg("top.qcow2"));
    tool("qemu-img", &["convert", "-O", "qcow2", &scene.arg("disk.raw"), &base]).ok();
    tool("qemu-img", &["create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", &top]).ok();
    let before = fs::read(&base).expect("read");
    let pack = scene.arg("top.hspk");
    run(["pack", &top, "-o", &pack]).ok();
    let said = ["base.qcow2", "this is read"];
    run(["build", &top, "-o", &base, "--force"]).fails(1, &said);
    run(["pack", &top, "-o", &base, "--force"]).fails(1, &said);
    run(["export", &pack, "-o", &base, "--force"]).fails(1, &said);
    assert!(fs::read(&base).expect("read") == before);
    // A layer of a container's image.
    fs::create_dir_all(scene.path("layout/blobs/sha256")).expect("made");
    fs::write(scene.path("layout/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("written");
    fs::write(scene.path("layout/index.json"), r#"{"schemaVersion":2,"manifests":[]}"#).expect("written");
    let layer = scene.arg("layout/blobs/sha256/layer");
    fs::write(&layer, "a layer").expect("written");
    run(["build", &scene.arg("layout"), "-o", &layer, "--force"]).fails(1, &["inside the source directory"]);
}

#[test]
fn a_file_of_another_kind_is_replaced_by_force_only() {
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 1);
    let (image, notes) = (scene.arg("disk.hsi"), scene.arg("notes.raw"));
    fs::write(&notes, "my notes\n").expect("written");
    // The format is that of the name.
    let export = ["export", &image, "-o", &notes];
    run(export).fails(1, &["notes.raw", "--output writes a raw disk", "a text file", "--force"]);
    assert_eq!(fs::read_to_string(&notes).expect("read"), "my notes\n");
    run(export.iter().chain(&["--force"])).ok();
    run(["verify", &image, "--against", &notes]).ok();
}

/// An image behind a link is replaced where it is.
#[test]
fn a_link_stays_a_link() {
    let scene = Scene::new();
    scene.image("old.hsi", 30, 1);
    symlink("old.hsi", scene.path("current.hsi")).expect("linked");
    let raw = scene.arg("disk.raw");
    let before = fs::metadata(scene.path("old.hsi")).expect("there").len();
    run(["build", &raw, "-o", &scene.arg("current.hsi"), "--raw", "--codec", "store"]).ok();
    assert!(scene.path("current.hsi").is_symlink());
    assert_ne!(fs::metadata(scene.path("old.hsi")).expect("there").len(), before);
    run(["verify", &scene.arg("old.hsi"), "--against", &raw]).ok();
    assert_eq!(scene.names(), ["current.hsi", "disk.raw", "old.hsi"]);
}

/// The summary alone goes to standard output; what the command prints goes to standard error.
#[test]
fn the_summary_of_a_start_is_printed_alone() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let ran = run(["run", "--json", &image, "--", "/bin/cat", "/etc/motd"]).ok();
    assert!(ran.json()["ready_s"].as_f64() > Some(0.0), "{ran:?}");
    assert_eq!(ran.stderr, "hello from the image\n");
}

/// All that is damaged is named, and what is to be done; a file that is cut short is called so.
#[test]
fn verify_lists_all_damage() {
    let scene = Scene::new();
    scene.raw("disk.raw", 200, 1);
    let (raw, image) = (scene.arg("disk.raw"), scene.arg("stored.hsi"));
    run(["build", &raw, "-o", &image, "--raw", "--codec", "store", "--window", "4K"]).ok();
    let name = run(["-q", "verify", &image]).ok().stdout;
    assert!(name.starts_with("hs1-") && name.lines().count() == 1, "{name}");
    let file = fs::File::options().write(true).open(&image).expect("opened");
    for window in 0..30 {
        file.write_all_at(b"damaged", 4096 + 4096 * 5 * window + 99).expect("written");
    }
    let ran = run(["verify", &image]);
    ran.fails(1, &["stored.hsi: 30 parts are damaged, of which 20 are listed", "copy the image again"]);
    assert_eq!(ran.stderr.matches("headstart: error: ").count(), 21, "{ran:?}");
    assert_eq!(ran.stderr.matches("stored.hsi: cold window ").count(), 20, "{ran:?}");
    let ran = run(["verify", &image, "--json"]);
    assert_eq!((ran.code, &ran.json()["faults"]), (Some(1), &30.into()));
    let whole = file.metadata().expect("there").len();
    file.set_len(whole - 5000).expect("cut");
    let truncated =
        format!("stored.hsi is truncated: {} of its {whole} bytes are there; copy it again", whole - 5000);
    run(["verify", &image]).fails(1, &[&truncated]);
    run(["inspect", &image]).fails(1, &[&truncated]);
}

#[test]
fn an_optimized_image_keeps_what_is_hot() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (first, second) = (scene.arg("first.hsp"), scene.arg("second.hsp"));
    for (profile, command) in [(&first, &["/bin/cat", "/etc/motd"][..]), (&second, &["/bin/true"])] {
        let words = ["profile", &image, "-o", profile, "--record-after-ready", "0", "--"];
        run(words.iter().chain(command)).ok();
    }
    let (one, both, alone) = (scene.arg("one.hsi"), scene.arg("both.hsi"), scene.arg("alone.hsi"));
    let optimize = |from: &str, profile: &str, to: &str, more: &[&str]| {
        let words = ["optimize", from, "-p", profile, "-o", to, "--codec", "zstd:1"];
        run(words.iter().chain(more)).ok()
    };
    let before = optimize(&image, &first, &one, &["--json"]).json()["hot_bytes"].as_u64();
    let kept = optimize(&one, &second, &both, &["--json"]).json();
    assert_eq!(kept["kept_bytes"].as_u64(), before);
    assert!(kept["hot_bytes"].as_u64() >= before, "{kept}");
    run(["verify", &both]).ok();
    let said = optimize(&one, &second, &alone, &["--replace"]).stdout;
    assert!(!said.contains("were hot before"), "{said}");
}

/// Words that are nearly right are answered with the right ones.
#[test]
fn nearly_right_words_are_answered_with_the_right_ones() {
    let scene = Scene::new();
    let (folder, out) = (scene.folder("root"), scene.arg("out.hsi"));
    run(["verify", &folder]).fails(1, &["a directory", "headstart build"]);
    run(["import", &folder, "-o", &out]).fails(1, &["a directory", "headstart build"]);
    run(["verify", "http:/host/x.hsi"]).fails(2, &["http://host/x.hsi"]);
    run(["verify", "host.invalid/x.hsi"]).fails(2, &["no directory host.invalid", "https://"]);
    scene.image("disk.hsi", 30, 1);
    run(["verify", &format!("{}#hs1-00", scene.arg("disk.hsi"))]).fails(2, &["'#hs1-00' is no name", "hs1-"]);
    run(["build", "docker.io/library/python:3.12", "-o", &out]).fails(
        1,
        &["No such file or directory", "a directory, a disk, a tar archive", "docker://docker.io/library"],
    );
    run(["build", "-", "-o", &out]).fails(1, &["standard input", "empty"]);
    let mut squashfs = vec![0; 8192];
    squashfs[..4].copy_from_slice(b"hsqs");
    fs::write(scene.path("root.squashfs"), squashfs).expect("written");
    let built = run(["build", &scene.arg("root.squashfs"), "-o", &out]).ok();
    assert!(built.stderr.contains("this squashfs becomes the disk as it is"), "{built:?}");
    // All messages begin in one way.
    run(["bulid"]).fails(2, &["headstart: error: unrecognized subcommand"]);
    run(["inspect", &scene.arg("gone.hsi")]).fails(1, &["headstart: error: "]);
}

/// In a chroot whose root is no mount point, root lacks no right.
#[test]
fn a_chroot_is_told_what_it_lacks() {
    if !machine_has(&["/usr/bin/unshare", "/usr/sbin/chroot"]) {
        return;
    }
    let scene = Scene::new();
    scene.image("disk.hsi", 30, 1);
    let script = "cd \"$1\" && for name in usr lib lib64 proc tmp; do
            mkdir -p root/$name && if [ -d /$name ]; then mount --rbind /$name root/$name || exit 99; fi
        done
        mkdir root/program && mount --bind \"${0%/*}\" root/program || exit 99
        exec chroot root /program/headstart run /tmp/none.hsi -- true";
    let program = env!("CARGO_BIN_EXE_headstart");
    let folder = scene.arg("");
    let arguments = ["--mount", "/bin/sh", "-c", script, program, &folder];
    let ran = std::process::Command::new("/usr/bin/unshare").args(arguments).output().expect("it starts");
    let ran = crate::scene::Ran::from(ran);
    ran.fails(1, &["a mount namespace", "/ is no mount point here, as in a chroot", "mount --bind"]);
    assert!(!ran.stderr.contains("CAP_SYS_ADMIN"), "{ran:?}");
}
