//! Packages that dpkg installs in a run and in a guest: they are there at the next start with the same file
//! of changes, whichever of the two that is.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::boots::{GUEST, boot, debian};
use crate::kept_roots::check;
use crate::scene::{Ran, Scene, executable, headstart, machine_has, run, tool};

const TOOLS: &[&str] = &[
    "/usr/bin/mmdebstrap",
    "/usr/bin/dpkg-deb",
    "/usr/sbin/e2fsck",
    "/usr/sbin/tune2fs",
    "/dev/loop-control",
];

/// The first program of the guest: what it says ends with a line that is waited for.
const INIT: &str = "#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
mount -t proc proc /proc
STEPS
echo that is all
while :; do sleep 1000; done
";

/// Version `version` of a package whose program says it, and so does what configures it.
fn package(scene: &Scene, version: u32) -> String {
    let root = scene.folder(&format!("tiny-{version}"));
    for folder in ["DEBIAN", "usr/bin"] {
        fs::create_dir_all(Path::new(&root).join(folder)).expect("a folder");
    }
    let control = format!(
        "Package: tiny\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: tiny\n"
    );
    fs::write(format!("{root}/DEBIAN/control"), control).expect("written");
    let says = |what: &str| format!("#!/bin/sh\necho tiny {version} {what}\n");
    executable(Path::new(&format!("{root}/DEBIAN/postinst")), &says("is configured"));
    executable(Path::new(&format!("{root}/usr/bin/tiny")), &says("runs"));
    let file = scene.arg(&format!("tiny-{version}.deb"));
    tool("dpkg-deb", &["--build", "--root-owner-group", &root, &file]);
    file
}

/// A shell with `script` in the Debian with its changes, which reads this file.
fn shell(scene: &Scene, script: &str, input: &str) -> Ran {
    let (image, keep) = (scene.arg("root.hsi"), scene.arg("changes"));
    let words = ["-q", "run", &image, "--keep", &keep, "--", "/bin/sh", "-ec", script];
    let mut command = headstart(words);
    command.stdin(fs::File::open(input).map_or_else(|_| Stdio::null(), Stdio::from));
    Ran::from(command.output().expect("the program starts")).ok()
}

/// What a guest says whose first program does these steps.
fn guest(scene: &Scene, steps: &str) -> String {
    let init = scene.arg("init");
    executable(Path::new(&init), &INIT.replace("STEPS", steps));
    shell(scene, "cat >/usr/sbin/steps; chmod 755 /usr/sbin/steps", &init);
    let (image, keep, console) = (scene.arg("root.hsi"), scene.arg("changes"), scene.arg("console"));
    let flags = ["--vmm", "uml", "--keep", &keep, "--console", &console, "--init", "/usr/sbin/steps"];
    boot(scene, &image, &[&flags[..], &["--ready", "^that is all"]].concat()).ok();
    fs::read_to_string(&console).expect("the console")
}

#[test]
fn what_dpkg_installs_lasts_in_runs_and_in_guests() {
    if !machine_has(&[GUEST, TOOLS].concat()) {
        return;
    }
    let scene = Scene::new();
    scene.folder("tmp");
    run(["build", debian(), "-o", &scene.arg("root.hsi"), "--codec", "zstd:1", "--free", "64M"]).ok();
    let says = |said: &str, words: &[&str]| {
        for word in words {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
    };
    for version in [1, 2] {
        let script = format!("cat >/var/tiny-{version}.deb");
        shell(&scene, &script, &package(&scene, version));
    }
    let shell = |script: &str| shell(&scene, script, "").stdout;
    says(&shell("dpkg -i /var/tiny-1.deb"), &["tiny 1 is configured"]);
    says(&shell("tiny; dpkg -s tiny"), &["tiny 1 runs", "install ok installed", "Version: 1"]);
    says(&shell("dpkg -r tiny"), &["Removing tiny (1)"]);
    says(
        &shell("! dpkg -s tiny; ! test -e /usr/bin/tiny; dpkg -i /var/tiny-1.deb"),
        &["tiny 1 is configured"],
    );
    check(&scene);

    // A guest finds what the run installed.
    let said = guest(&scene, "tiny; dpkg -i /var/tiny-2.deb; sync");
    says(&said, &["tiny 1 runs", "(2) over (1)", "tiny 2 is configured"]);
    let said = guest(&scene, "tiny; dpkg -r tiny; test -e /usr/bin/tiny || dpkg -i /var/tiny-1.deb; sync");
    says(&said, &["tiny 2 runs", "Removing tiny (2)", "tiny 1 is configured"]);
    check(&scene);
    says(&shell("tiny; dpkg -s tiny; dpkg --audit"), &["tiny 1 runs", "install ok installed", "Version: 1"]);
    scene.wait_until_clean();
}
