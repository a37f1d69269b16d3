//! What is said of files that are something else than what was meant, and that nothing is made of them.

use std::fs;

use crate::scene::{START, Scene, machine_has, run};

/// Files of kinds that people mix up, and what each is called.
fn mixed_up(scene: &Scene) -> Vec<(String, &'static str)> {
    scene.image("image.hsi", 30, 1);
    let first_bytes: [(&str, usize, &[u8], &str); 7] = [
        ("disk.qcow2", 0, b"QFI\xfb\0\0\0\x03", "a qcow2 file"),
        ("disk.vhdx", 0, b"vhdxfile", "a virtual disk"),
        ("disk.raw.gz", 0, &[0x1f, 0x8b, 0x08, 0], "compressed with gzip"),
        ("root.tar", 257, b"ustar", "a tar archive"),
        ("program", 0, b"\x7fELF", "a program"),
        ("start.hsp", 0, b"HSPROF\0\0", "a profile"),
        ("mine.hsk", 0, b"HSKEEP\0\0", "an overlay"),
    ];
    let mut files = vec![(scene.arg("image.hsi"), "a headstart image")];
    for (name, offset, bytes, called) in first_bytes {
        let mut content = vec![0; 70_000];
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        fs::write(scene.path(name), content).expect("written");
        files.push((scene.arg(name), called));
    }
    fs::write(scene.path("passwd"), "root:x:0:0:root:/root:/bin/sh\n".repeat(200)).expect("written");
    files.push((scene.arg("passwd"), "a text file"));
    fs::write(scene.path("blank"), vec![0; 65_536]).expect("written");
    files.push((scene.arg("blank"), "begins with zeros"));
    files
}

/// The smallest file that passes for ext4, of which the kernel would say more.
fn ext4(scene: &Scene, name: &str, bytes: usize) -> String {
    let mut disk = vec![0; bytes];
    disk[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    fs::write(scene.path(name), disk).expect("written");
    scene.arg(name)
}

#[test]
fn what_is_no_disk_becomes_no_image() {
    let scene = Scene::new();
    let out = scene.arg("out.hsi");
    for (file, called) in mixed_up(&scene) {
        for command in ["build", "import"] {
            match command {
                // It takes those that are whole.
                "build" if called == "a qcow2 file" => {
                    run([command, &file, "-o", &out]).fails(1, &[&file, "its qcow2 header is damaged"]);
                }
                "build" if called == "a virtual disk" => {
                    run([command, &file, "-o", &out]).fails(1, &[&file, "it may be cut short"]);
                }
                _ => run([command, &file, "-o", &out]).fails(1, &[&file, called, "not a raw disk"]),
            }
            assert!(!scene.path("out.hsi").exists(), "{command} {file}");
        }
        run(["build", &file, "-o", &out, "--raw", "--codec", "store"]).ok();
        fs::remove_file(&out).expect("it was made");
    }
    // What is a disk needs no force, unless it was cut short.
    run(["build", &ext4(&scene, "disk.ext4", 8192), "-o", &out, "--codec", "store"]).ok();
    run(["build", &ext4(&scene, "cut.ext4", 8000), "-o", &out])
        .fails(1, &["ext2/3/4", "8000 bytes", "--raw"]);
}

#[test]
fn what_is_no_image_says_what_it_is_and_what_to_do() {
    let scene = Scene::new();
    let raw = ext4(&scene, "disk.ext4", 8192);
    let folder = scene.folder("folder");
    let disk = ["disk.ext4", "a raw disk with ext2/3/4", "headstart build", "run --raw"];
    run(["verify", &raw]).fails(1, &disk);
    run(["inspect", &raw]).fails(1, &disk);
    run(["mount", "-f", &raw, &folder]).fails(1, &disk);
    run(["serve", &raw, "--http", "localhost:0"]).fails(1, &disk);
    run(["export", &raw, "-o", &scene.arg("out"), "--format", "raw"]).fails(1, &disk);
    run(["push", &raw, "s3://bucket/key"]).fails(1, &disk);
    let signature = scene.arg("stable.minisig");
    fs::write(&signature, "untrusted comment: stable\n").expect("written");
    run(["serve", &signature, "--http", "localhost:0"])
        .fails(1, &["text", &format!("--channel {signature}")]);
    for (file, called) in mixed_up(&scene).into_iter().filter(|(_, called)| *called != "a headstart image") {
        if !called.contains("profile") {
            run(["inspect", &file]).fails(1, &[&file, called, "not a headstart image"]);
        }
        run(["verify", &file]).fails(1, &[&file, called, "not a headstart image"]);
    }
    run(["verify", &scene.arg("start.hsp")]).fails(1, &["optimize IMAGE --profile"]);
    run(["verify", &scene.arg("mine.hsk")]).fails(1, &["headstart commit IMAGE"]);
    for archive in ["root.tar", "disk.raw.gz"] {
        run(["verify", &scene.arg(archive)]).fails(1, &[&format!("{archive} -o IMAGE")]);
    }
    if machine_has(START) {
        run(["run", &raw, "--", "true"]).fails(1, &disk);
        run(["run", &scene.arg("start.hsp"), "--", "true"]).fails(1, &["a profile", "optimize"]);
    }
}

#[test]
fn a_profile_that_is_none_says_what_it_is() {
    let scene = Scene::new();
    scene.image("image.hsi", 30, 1);
    let image = scene.arg("image.hsi");
    run(["optimize", &image, "-p", &image, "-o", &scene.arg("out")])
        .fails(1, &["image.hsi", "a headstart image, not a profile", "headstart profile"]);
    assert!(!scene.path("out").exists());
}

/// Only a person decides that a file of theirs goes.
#[test]
fn no_file_is_advised_to_be_removed() {
    let scene = Scene::new();
    scene.image("image.hsi", 30, 1);
    for command in [&["hydrate"][..], &["detach"]] {
        let ran = run(command.iter().map(|word| (*word).to_owned()).chain([scene.arg("image.hsi")]));
        ran.fails(1, &["image.hsi", "not a self-filling file"]);
        assert!(!ran.stderr.contains("remove"), "{}", ran.stderr);
    }
}

#[test]
fn a_missing_folder_of_the_output_is_said_before_the_work() {
    let scene = Scene::new();
    let root = scene.folder("root");
    fs::write(scene.path("root/file"), "content").expect("written");
    let out = scene.arg("gone/out.hsi");
    run(["build", &root, "-o", &out]).fails(1, &["out.hsi cannot be written", "no directory", "gone"]);
    run(["import", &scene.arg("no.cloop"), "-o", &out]).fails(1, &["no directory"]);
}

#[test]
fn a_mount_covers_no_files() {
    let scene = Scene::new();
    scene.image("image.hsi", 30, 1);
    let folder = scene.folder("folder");
    fs::write(scene.path("folder/letter"), "dear").expect("written");
    let said = ["folder", "has files in it", "empty directory"];
    run(["mount", "-f", &scene.arg("image.hsi"), &folder]).fails(1, &said);
    run(["lab", "disk", &scene.arg("image.hsi"), &folder, "--medium", "none"]).fails(1, &said);
    assert_eq!(fs::read_to_string(scene.path("folder/letter")).expect("there"), "dear");
}

#[test]
fn messages_have_no_names_of_libraries_and_no_numbers() {
    let scene = Scene::new();
    let gone = run(["build", &scene.arg("gone"), "-o", &scene.arg("out")]);
    gone.fails(1, &["gone", "No such file or directory"]);
    assert!(!gone.stderr.contains("os error"), "{}", gone.stderr);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/x.hsi", listener.local_addr().expect("an address"));
    drop(listener);
    let refused = run(["inspect", &address]);
    refused.fails(1, &[&address, "Connection refused"]);
    for noise in ["os error", "client error", "tcp connect error"] {
        assert!(!refused.stderr.contains(noise), "{}", refused.stderr);
    }
}
