//! `headstart accelerate on` and `off` in a system of their own: an ext4 with this machine's programs, in
//! which systemd's own systemctl enables the unit. Its maker of initramfs only notes what it is asked for.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scene::{Ran, Scene, executable, has_tools, tool};

/// `$1` is a file system, `$2` an empty folder, `$3` the folder of this build's programs, `$4` a script that
/// runs in the file system as its root. Abstract sockets are another network's, mounts another namespace's.
const ENTER: &str = "set -e
    mount -o loop \"$1\" \"$2\"
    cd \"$2\"
    mkdir -p usr proc sys dev etc/systemd/system program note
    for link in bin sbin lib lib64; do
        if [ -L /$link ]; then ln -sfn \"$(readlink /$link)\" $link; continue; fi
        mkdir -p $link; mount --bind /$link $link
    done
    for folder in usr proc sys dev; do mount --rbind /$folder $folder; done
    mount --bind \"$3\" program
    exec chroot . /bin/sh -ec \"$4\"";

/// What every script begins with.
const BEGIN: &str = "PATH=/note:/program:/usr/sbin:/usr/bin; export PATH
    folder=/var/lib/headstart/accelerate
    link=/etc/systemd/system/sysinit.target.wants/headstart-accelerate.service
    said() { headstart accelerate status --json | tr -d ' ' | grep -c \"\\\"$1\\\":$2,\" || true; }
    ";

struct System {
    scene: Scene,
}

impl System {
    fn new() -> Option<Self> {
        if !has_tools(&["mkfs.ext4", "unshare", "systemctl"]) {
            return None;
        }
        let this = Self { scene: Scene::new() };
        let disk = this.scene.arg("disk");
        fs::File::create(&disk).and_then(|file| file.set_len(64 << 20)).expect("a file");
        let root = this.scene.folder("made");
        let units = format!("{root}/etc/systemd/system");
        fs::create_dir_all(&units).expect("a folder");
        let unit = "headstart-accelerate.service";
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd").join(unit);
        fs::copy(dist, format!("{units}/{unit}")).expect("copied");
        fs::create_dir(format!("{root}/note")).expect("a folder");
        executable(
            &Path::new(&root).join("note/update-initramfs"),
            "#!/bin/sh\necho \"$@\" >>/note/asked\ntest ! -e /note/fails || { echo no room >&2; exit 1; }\n",
        );
        tool("mkfs.ext4", &["-q", "-d", &root, &disk]);
        this.scene.folder("root");
        Some(this)
    }

    fn script(&self, text: &str) -> Ran {
        let programs = Path::new(env!("CARGO_BIN_EXE_headstart")).parent().expect("a folder");
        let (disk, root) = (self.scene.arg("disk"), self.scene.arg("root"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "sh", "-c", ENTER, "sh", &disk, &root]).arg(programs);
        command.arg(format!("{BEGIN}{text}")).stdin(Stdio::null());
        command.output().expect("unshare starts").into()
    }
}

/// Whether this machine shows which pages come.
fn records(ran: &Ran) -> bool {
    let is_seen = ran.code == Some(0) || !ran.stderr.contains("is not seen");
    if !is_seen {
        hs_testing::skip(ran.stderr.trim());
    }
    is_seen
}

#[test]
fn on_and_off_come_back_to_what_was_there() {
    let Some(system) = System::new() else { return };
    let ran = system.script(
        "find / -xdev | sort >/dev/shm/before.$$
        headstart accelerate on
        ls $folder; readlink $link; cat /note/asked; echo on $(said on true)
        headstart accelerate on --no-initramfs
        ls $folder; readlink $link; cat /note/asked; echo on $(said on true)
        headstart accelerate record -- cat /note/update-initramfs >/dev/null
        echo starts $(said starts 1)
        headstart accelerate off
        test ! -e $folder; test ! -e $link; echo on $(said on true)
        headstart accelerate off
        find / -xdev | sort | diff /dev/shm/before.$$ - || true
        rm /dev/shm/before.$$",
    );
    if !records(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let unit = "/etc/systemd/system/headstart-accelerate.service";
    let said: Vec<&str> = lines.iter().filter(|line| !line.contains(": ")).copied().collect();
    assert_eq!(said[..8], ["on", unit, "-u", "on 1", "on", unit, "-u", "on 1"], "{ran:?}");
    assert!(said[8..].contains(&"starts 1") && said.contains(&"on 0"), "{ran:?}");
    // What stays: folders, and what the initramfs was asked for.
    let left: Vec<&str> = said.iter().filter(|line| line.starts_with("> /")).copied().collect();
    assert!(left.iter().all(|line| !line.contains(".pages") && !line.contains(".service")), "{left:?}");
    system.scene.wait_until_clean();
}

#[test]
fn off_ends_what_records_and_an_initramfs_that_cannot_be_made_is_said() {
    let Some(system) = System::new() else { return };
    let ran = system.script(
        "headstart accelerate on --no-initramfs
        headstart-accelerate & recording=$!
        until test $(said running true) = 1; do :; done
        headstart accelerate off
        wait $recording; echo ended $?
        ls -A /var/lib/headstart; echo left $(said on true) $(said running true)",
    );
    if !records(&ran) {
        return;
    }
    assert!(ran.stdout.ends_with("ended 0\nleft 0 0\n"), "{ran:?}");

    // Its own failure is said, and `off` goes back from there as well.
    let ran = system.script(
        "touch /note/fails
        headstart accelerate on && exit 9
        headstart accelerate off; test ! -e $folder; test ! -e $link; echo is off",
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("make the initramfs anew") && ran.stderr.contains("no room"), "{ran:?}");
    assert!(ran.stdout.ends_with("is off\n"), "{ran:?}");
    system.scene.wait_until_clean();
}
