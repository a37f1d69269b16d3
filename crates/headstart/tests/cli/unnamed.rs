//! Images from the network without a trusted name: root does not start them, unless it is told to.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::boots::{GUEST, little_guest};
use crate::scene::{Ran, START, Scene, machine_has, run};
use crate::serve_http::serve;
use crate::web::remote;

/// What commands say of an image without a name, and how they end.
const REFUSED: i32 = 1;

fn start(scene: &Scene, words: &[&str]) -> Ran {
    let mut command = remote(scene, words);
    command.env("TMPDIR", scene.path("tmp")).output().expect("the program starts").into()
}

fn unmount(scene: &Scene) {
    for name in ["fs", "disk"] {
        let _ = Command::new("umount").arg(scene.path(name)).status();
    }
}

#[test]
fn an_image_from_the_network_needs_a_name_where_root_starts_it() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let (scene, image) = little_guest();
    let name = run(["verify", &image]).ok().stdout.lines().last().expect("a name").to_owned();
    let (server, url) = serve(&scene, &["guest.hsi"]);
    let named = format!("{url}#{name}");
    let (disk, fs) = (scene.folder("disk"), scene.folder("fs"));
    let kept = scene.arg("cache");
    let commands = |address: &str, flags: &[&str]| -> [Ran; 4] {
        let with = |words: &[&str], behind: &[&str]| {
            start(&scene, &[words, &[address, "--disk-cache", &kept], flags, behind].concat())
        };
        [
            with(&["run"], &["--", "/bin/echo", "it runs"]),
            with(&["profile", "-o", "start.hsp", "--grace", "0"], &["--", "/bin/echo", "it runs"]),
            with(&["boot", "--memory", "64M", "--ready", "^up$"], &[]),
            {
                let words = ["mount", address, &disk, "--fs", &fs, "--foreground", "--disk-cache", &kept];
                let words = [&words[..], flags].concat();
                let mut command = remote(&scene, &words);
                let said = fs::File::create(scene.path("said")).expect("a file");
                let mount = command.stdout(said.try_clone().expect("a file")).stderr(said);
                let mut mount = mount.spawn().expect("the program starts");
                let heard = || fs::read_to_string(scene.path("said")).expect("read");
                while mount.try_wait().expect("asked").is_none() && !heard().contains("Ctrl-C ends it") {
                    std::thread::yield_now();
                }
                unmount(&scene);
                let code = mount.wait().expect("ended").code();
                Ran { code, stdout: String::new(), stderr: heard() }
            },
        ]
    };
    for ran in commands(&url, &[]) {
        ran.fails(REFUSED, &["nothing proves which image", &named, "--insecure"]);
        assert!(!ran.stdout.contains("it runs"), "{ran:?}");
    }
    // What the cache remembers of an address is what a server said, not what a person did.
    for ran in commands(&url, &["--insecure"]) {
        ran.ok();
    }
    start(&scene, &["run", &url, "--offline", "--disk-cache", &kept, "--", "/bin/true"])
        .fails(REFUSED, &["nothing proves which image", &named, "--insecure"]);
    for ran in commands(&named, &[]) {
        ran.ok();
    }
    // Its disk alone runs nothing, and mounts nothing.
    start(&scene, &["inspect", &url, "--disk-cache", &kept]).ok();
    start(&scene, &["export", &url, "-o", &scene.arg("disk.raw"), "--format", "raw", "--disk-cache", &kept])
        .ok();
    server.signal(Signal::INT);
    assert_eq!(server.end().0.code(), Some(0));
    scene.wait_until_clean();
}
