//! The read-ahead that a guest's kernel is told, and that nothing else changes for the guest.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::boots::{GUEST, boot, kept_console, little_guest};
use crate::scene::{Scene, machine_has, run};

/// Prints the read-ahead that it was told, its name and arguments, and its mounts.
const INIT: &str = "#!/bin/sh
mount -t sysfs sysfs /sys
mount -t proc proc /proc
echo \"told $(cat /sys/block/ubda/queue/read_ahead_kb) as $0 with $* and word=$word\"
grep -c ' / ext4 rw' /proc/mounts
grep -c ' /dev devtmpfs' /proc/mounts
echo written >/written && sync && echo up
while :; do sleep 1000; done
";

fn telling_guest() -> (Scene, String) {
    let (scene, _) = little_guest();
    for name in ["mount", "grep"] {
        symlink("busybox", scene.path("root/bin").join(name)).expect("a link");
    }
    for name in ["root/sbin/init", "root/bin/other"] {
        fs::write(scene.path(name), INIT).expect("written");
        fs::set_permissions(scene.path(name), fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let image = scene.arg("telling.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    (scene, image)
}

/// The console from `told` on, and the summary's read-ahead.
fn tell(scene: &Scene, image: &str, flags: &[&str]) -> (String, serde_json::Value) {
    let console = scene.arg("console");
    let usual = ["--memory", "64M", "--ready", "^up$", "--json", "--console", &console];
    let ran = boot(scene, image, &[&usual[..], flags].concat()).ok();
    let said = fs::read_to_string(&console).expect("the console").replace('\r', "");
    let told = said.split_once("told ").unwrap_or_else(|| panic!("not told: {said}")).1;
    let lines: Vec<&str> = told.lines().take(4).collect();
    (lines.join("|"), ran.json()["guest_read_ahead_kib"].clone())
}

#[test]
fn a_guest_reads_ahead_as_it_is_told_and_is_otherwise_the_same() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = telling_guest();
    let word = ["--append", "word=said"];
    let other = ["--append", "--", "--append", "first", "--append", "second"];
    for (flags, expected) in [
        (&word[..], "as /sbin/init with  and word=said|1|1|up"),
        (
            &[&["--init", "/bin/other"], &other[..]].concat(),
            "as /bin/other with first second and word=|1|1|up",
        ),
    ] {
        let with =
            |read_ahead: &str| tell(&scene, &image, &[&["--guest-read-ahead", read_ahead], flags].concat());
        assert_eq!(with("kernel"), (format!("128 {expected}"), serde_json::Value::Null));
        assert_eq!(with("16"), (format!("16 {expected}"), 16.into()));
    }
    scene.wait_until_clean();
}

#[test]
fn a_guest_guesses_less_where_its_reads_are_known() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = telling_guest();
    let read_ahead = |image: &str, flags: &[&str]| tell(&scene, image, flags).1;
    assert!(read_ahead(&image, &[]).is_null());
    let profile = scene.arg("known.hsp");
    assert_eq!(read_ahead(&image, &["--record", &profile]), 8);
    assert!(run(["inspect", &profile]).ok().stdout.contains("boot --vmm uml --guest-read-ahead 8"));
    let fast = scene.arg("fast.hsi");
    run(["optimize", &image, "-p", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    assert_eq!(read_ahead(&fast, &[]), 8);
    assert!(read_ahead(&fast, &["--no-prefetch"]).is_null());
    assert!(read_ahead(&fast, &["--guest-read-ahead", "kernel"]).is_null());
    // With words about the root in `--append`, the kernel mounts the root.
    assert!(read_ahead(&fast, &["--append", "rootflags=errors=continue"]).is_null());
    boot(&scene, &fast, &["--guest-read-ahead", "8", "--append", "rootflags=errors=continue"])
        .fails(1, &["--guest-read-ahead", "rootflags=errors=continue", "kernel"]);
    boot(&scene, &fast, &["--guest-read-ahead", "8", "--vmm", "uml", "--kernel", "/bin/true"])
        .fails(1, &["/bin/true", "takes no initramfs"]);

    let ran = boot(&scene, &fast, &["--memory", "64M", "--init", "/bin/no-such-program"]);
    ran.fails(1, &["kernel gave up", "cannot start /bin/no-such-program"]);
    kept_console(&scene, &ran);
    scene.wait_until_clean();
}
