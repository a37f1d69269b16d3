//! What `make install` puts where, and that `make uninstall` takes all of it away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::{Scene, has_tools};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

const UNITS: [&str; 2] = ["headstart@.service", "headstart-serve@.service"];

/// A file with the place of this test's own program.
fn unit_here(scene: &Scene, name: &str) -> PathBuf {
    let unit = fs::read_to_string(root().join("dist/systemd").join(name)).expect("read");
    let installed = "/usr/local/bin/headstart";
    assert!(unit.contains(installed));
    let path = scene.path(&name.replace('@', "@x"));
    fs::write(&path, unit.replace(installed, env!("CARGO_BIN_EXE_headstart"))).expect("written");
    path
}

/// `make TARGET` for a system whose programs lie in `prefix`, below `folder`.
pub(crate) fn make(target: &str, prefix: &str, folder: &str) {
    let made = Command::new("make")
        .arg("-C")
        .arg(root())
        .args([target, &format!("PREFIX={prefix}"), &format!("DESTDIR={folder}")])
        .arg(concat!("PROGRAM=", env!("CARGO_BIN_EXE_headstart")))
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .expect("make starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn files(folder: &Path, found: &mut Vec<String>, above: &Path) {
    for entry in fs::read_dir(folder).expect("listed").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            files(&path, found, above);
        } else {
            found.push(path.strip_prefix(above).expect("below").display().to_string());
        }
    }
}

#[test]
fn what_is_installed_can_be_removed() {
    if !has_tools(&["make", "install"]) {
        return;
    }
    let scene = Scene::new();
    let folder = scene.folder("dest");
    let listed = || {
        let mut found = Vec::new();
        files(Path::new(&folder), &mut found, Path::new(&folder));
        found
    };
    make("install", "/usr", &folder);
    let found = listed();
    for name in [
        "usr/bin/headstart",
        "usr/share/man/man1/headstart.1",
        "usr/share/man/man1/headstart-mount.1",
        "usr/share/man/man1/headstart-status.1",
        "usr/share/man/man8/mount.headstart.8",
        "usr/share/bash-completion/completions/headstart",
        "usr/share/zsh/site-functions/_headstart",
        "usr/share/fish/vendor_completions.d/headstart.fish",
        "usr/lib/systemd/system/headstart@.service",
        "usr/lib/systemd/system/headstart-serve@.service",
        "usr/lib/headstart/headstart-live",
        "usr/lib/dracut/modules.d/90headstart/module-setup.sh",
        "usr/share/initramfs-tools/hooks/headstart",
        "usr/share/initramfs-tools/scripts/headstart",
        "usr/share/initramfs-tools/scripts/init-top/headstart",
        "sbin/mount.headstart",
        "sbin/umount.fuse.headstart",
    ] {
        assert!(found.iter().any(|found| found == name), "no {name} in {found:?}");
    }
    let read = |name: &str| fs::read_to_string(scene.path("dest").join(name)).expect("read");
    assert!(read("usr/lib/systemd/system/headstart@.service").contains("ExecStart=/usr/bin/headstart mount"));
    assert!(read("usr/share/man/man1/headstart-mount.1").contains(".SH EXAMPLES"));
    assert!(read("usr/share/man/man8/mount.headstart.8").contains("noauto"));
    let helper = fs::read_link(scene.path("dest/sbin/mount.headstart")).expect("a link");
    assert_eq!(helper, Path::new("/usr/bin/headstart"));
    make("uninstall", "/usr", &folder);
    assert_eq!(listed(), [] as [String; 0]);
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if !has_tools(&["systemd-analyze"]) {
        return;
    }
    let scene = Scene::new();
    let verify = |unit: &Path| {
        let ran = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output();
        let ran = ran.expect("systemd-analyze starts");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        // It also looks at units of this machine that ours leads to.
        let ours: Vec<String> =
            said.lines().filter(|line| line.contains("headstart")).map(str::to_owned).collect();
        (ran.status.success(), ours)
    };
    for name in UNITS {
        let unit = unit_here(&scene, name);
        assert_eq!(verify(&unit), (true, Vec::new()));
        // And it does look: a setting that does not exist is found.
        let text = fs::read_to_string(&unit).expect("read").replace("KillMode=mixed", "KilMode=mixed");
        fs::write(&unit, text).expect("written");
        let (_, said) = verify(&unit);
        assert!(said.iter().any(|line| line.contains("KilMode")), "{said:?}");
    }
}
