//! What `make install` puts where, and that `make uninstall` takes all of it away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scene::{Ran, Scene, executable, has_tools, tool};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

const UNITS: [&str; 3] = ["headstart@.service", "headstart-serve@.service", "headstart-snapshotter.service"];

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
    let program = concat!("PROGRAM=", env!("CARGO_BIN_EXE_headstart"));
    let places = [format!("PREFIX={prefix}"), format!("DESTDIR={folder}")];
    ran_make(&[target, program, &places[0], &places[1]], &[]).ok();
}

/// `make` with these words, in the repository.
fn ran_make(words: &[&str], environment: &[(&str, &str)]) -> Ran {
    let mut command = Command::new("make");
    command.arg("-C").arg(root()).args(words).envs(environment.iter().copied());
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").stdin(Stdio::null());
    command.output().expect("make starts").into()
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
        "usr/share/man/man8/umount.fuse.headstart.8",
        "usr/share/doc/headstart/README.md",
        "usr/share/doc/headstart/docs/GUESTS.md",
        "usr/share/doc/headstart/docs/decisions/README.md",
        "etc/headstart/mount.conf.example",
        "etc/headstart/serve.conf.example",
        "usr/share/bash-completion/completions/headstart",
        "usr/share/zsh/site-functions/_headstart",
        "usr/share/fish/vendor_completions.d/headstart.fish",
        "usr/lib/systemd/system/headstart@.service",
        "usr/lib/systemd/system/headstart-serve@.service",
        "usr/lib/systemd/system/headstart-accelerate.service",
        "usr/lib/systemd/system/headstart-snapshotter.service",
        "usr/lib/headstart/headstart-live",
        "usr/lib/headstart/headstart-accelerate",
        "usr/lib/dracut/modules.d/91headstart-accelerate/accelerate.sh",
        "usr/share/initramfs-tools/scripts/init-bottom/headstart-accelerate",
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
    // Pages of the documentation are named by their places.
    assert!(
        read("usr/share/man/man1/headstart-report.1").contains("/usr/share/doc/headstart/docs/REPORT.md")
    );
    assert!(
        read("usr/lib/systemd/system/headstart@.service")
            .contains(" /usr/share/doc/headstart/docs/SERVICE.md")
    );
    let program = scene.arg("dest/usr/bin/headstart");
    let help = tool(&program, &["report", "--help"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(&format!("{folder}/usr/share/doc/headstart/docs/REPORT.md describes")), "{help}");
    let helper = fs::read_link(scene.path("dest/sbin/mount.headstart")).expect("a link");
    assert_eq!(helper, Path::new("/usr/bin/headstart"));
    make("uninstall", "/usr", &folder);
    assert_eq!(listed(), [] as [String; 0]);
}

/// The page as it is built is no part of this test: it needs npm.
const PAGE: &str = r#"<p>a page</p><script id="data" type="application/json">null</script>"#;

#[test]
fn the_program_is_built_where_its_page_cannot_be() {
    if !has_tools(&["make"]) {
        return;
    }
    let scene = Scene::new();
    scene.folder("bin");
    let path = format!("{}:{}", scene.arg("bin"), std::env::var("PATH").unwrap_or_default());
    let page = scene.path("report.html");
    let (ui, modules) = (format!("UI={}", page.display()), format!("UI_MODULES={}", scene.arg("modules")));
    // Nothing is installed or compiled: set-up counts as done.
    let release = |cargo: &str, npm: &str| {
        executable(&scene.path("bin/npm"), &format!("#!/bin/sh\n{npm}\n"));
        let words = ["release", "--assume-old=setup-build", &format!("CARGO={cargo}"), &ui, &modules];
        ran_make(&words, &[("PATH", &path)])
    };
    let ran = release("true", "echo no network >&2; exit 1").ok();
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("The program is built, its report page is not"), "{ran:?}");
    release("false", "exit 1").fails(2, &["The program is not built, see above", "run make release again"]);
    // The demo keeps the data of its report then.
    fs::create_dir_all(scene.path("target/release")).expect("made");
    executable(&scene.path("target/release/headstart"), "#!/bin/sh\necho \"$@\"\n");
    let demo_report = || {
        let target = format!("TARGET={}", scene.arg("target"));
        ran_make(&["demo-report", &target, &ui, "DEMO_OUT=out"], &[]).ok().stdout
    };
    assert!(demo_report().contains("-o out/report.json\n"));
    // Later npm works, and `make install` installs what it has made.
    let made = scene.path("made.html");
    fs::write(&made, PAGE).expect("written");
    let npm = format!("test \"$1\" = ci || cp {} {}", made.display(), page.display());
    let ran = release("true", &npm).ok();
    assert!(!ran.stderr.contains("page"), "{ran:?}");
    assert!(demo_report().contains("-o out/report.html\n"));
    let folder = scene.folder("dest");
    let program = concat!("PROGRAM=", env!("CARGO_BIN_EXE_headstart"));
    ran_make(&["install", program, "PREFIX=/usr", &format!("DESTDIR={folder}"), &ui], &[]).ok();
    scene.image("disk.hsi", 30, 2);
    let out = scene.arg("out.html");
    tool(&scene.arg("dest/usr/bin/headstart"), &["report", &scene.arg("disk.hsi"), "-o", &out]);
    assert!(fs::read_to_string(&out).expect("read").starts_with("<p>a page</p>"));
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
        let text = fs::read_to_string(&unit).expect("read").replace("KillMode=", "KilMode=");
        fs::write(&unit, text).expect("written");
        let (_, said) = verify(&unit);
        assert!(said.iter().any(|line| line.contains("KilMode")), "{said:?}");
    }
}
