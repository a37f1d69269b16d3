//! `headstart accelerate on` and `off` in a system of their own: an ext4 with this machine's programs, in
//! which systemd's own systemctl enables the unit. Its maker of initramfs only notes what it is asked for.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use hs_testing::noise;
use rustix::process::Signal;

use crate::mounts::umount;
use crate::scene::{Ran, Running, Scene, executable, has_tools, machine_has, run, tool, wait_until};

/// `$1` is a file system, `$2` an empty folder, `$3` the folder of this build's programs, `$4` a script that
/// runs in the file system as its root. Abstract sockets are another network's, mounts another namespace's,
/// with a /run of its own.
const ENTER: &str = "set -e
    mount -o loop \"$1\" \"$2\"
    cd \"$2\"
    mkdir -p usr proc sys dev etc/systemd/system program note run
    for link in bin sbin lib lib64; do
        if [ -L /$link ]; then ln -sfn \"$(readlink /$link)\" $link; continue; fi
        mkdir -p $link; mount --bind /$link $link
    done
    for folder in usr proc sys dev; do mount --rbind /$folder $folder; done
    mount --bind \"$3\" program
    mount -t tmpfs -o mode=755 run run
    exec chroot . /bin/sh -ec \"$4\"";

/// What every script begins with.
const BEGIN: &str = "PATH=/note:/program:/usr/sbin:/usr/bin; export PATH
    folder=/var/lib/headstart/accelerate
    link=/etc/systemd/system/sysinit.target.wants/headstart-accelerate.service
    said() { headstart accelerate status --json | tr -d ' ' | grep -c \"\\\"$1\\\":$2,\" || true; }
    ";

pub(crate) struct System {
    pub(crate) scene: Scene,
}

impl System {
    pub(crate) fn new() -> Option<Self> {
        Self::with_files(0)
    }

    /// The system with so many files below `/files`.
    fn with_files(files: u64) -> Option<Self> {
        if !has_tools(&["mkfs.ext4", "unshare", "systemctl"]) {
            return None;
        }
        let this = Self { scene: Scene::new() };
        let disk = this.scene.arg("disk");
        fs::File::create(&disk).and_then(|file| file.set_len(64 << 20)).expect("a file");
        let root = this.scene.folder("made");
        fs::create_dir(format!("{root}/files")).expect("a folder");
        for number in 0..files {
            fs::write(format!("{root}/files/{number}"), noise(60_000, number)).expect("written");
        }
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
        tool("mkfs.ext4", &["-q", "-b", "4096", "-d", &root, &disk]);
        this.scene.folder("root");
        Some(this)
    }

    pub(crate) fn script(&self, text: &str) -> Ran {
        self.script_on("disk", text)
    }

    fn script_on(&self, disk: &str, text: &str) -> Ran {
        let programs = Path::new(env!("CARGO_BIN_EXE_headstart")).parent().expect("a folder");
        let (disk, root) = (self.scene.arg(disk), self.scene.arg("root"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "sh", "-c", ENTER, "sh", &disk, &root]).arg(programs);
        command.arg(format!("{BEGIN}{text}")).stdin(Stdio::null());
        command.output().expect("unshare starts").into()
    }
}

/// Whether this machine shows which pages come.
pub(crate) fn records(ran: &Ran) -> bool {
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

/// What waits, by a name and the end of its waiting.
const WAITS: &str = "touch /note/begun; until test -e /note/goes-on; do :; done";

#[test]
fn off_in_the_middle_of_on_leaves_it_off() {
    let Some(system) = System::new() else { return };
    let ran = system.script(&format!(
        "printf '#!/bin/sh\n{WAITS}\n' >/note/update-initramfs
        headstart accelerate on >/dev/null & on=$!
        until test -e /note/begun; do :; done
        headstart accelerate off >/dev/null
        touch /note/goes-on
        wait $on || echo ended $?
        test ! -e $folder; test ! -e $link; echo left $(said on true)
        # Killed there instead, it is on, and off takes all of it.
        rm /note/begun /note/goes-on
        headstart accelerate on >/dev/null & on=$!
        until test -e /note/begun; do :; done
        kill -9 $on; touch /note/goes-on
        wait $on || echo killed $?
        echo on $(said on true)
        headstart accelerate off >/dev/null
        test ! -e $folder; test ! -e $link; echo left $(said on true)"
    ));
    if !records(&ran) {
        return;
    }
    let expected = "ended 1\nleft 0\nkilled 137\non 1\nleft 0\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
    assert!(ran.stderr.contains("switched off meanwhile"), "{ran:?}");
    system.scene.wait_until_clean();
}

#[test]
fn off_ends_the_recording_of_a_program_which_goes_on() {
    let Some(system) = System::new() else { return };
    let ran = system.script(&format!(
        "headstart accelerate on --no-initramfs >/dev/null
        headstart accelerate record -- sh -c '{WAITS}; exit 3' >/dev/null & recording=$!
        until test -e /note/begun; do :; done
        headstart accelerate off >/dev/null
        while ls /sys/kernel/tracing/instances | grep -q -- -$recording-; do :; done
        touch /note/goes-on
        wait $recording || echo ended $?
        test ! -e $folder; echo left $(said on true)
        # A list that was named, and one of a system that was never on, are kept.
        headstart accelerate record --list /note/list -- true >/dev/null; ls /note/list
        headstart accelerate record -- true >/dev/null; ls $folder/*.pages | wc -l"
    ));
    if !records(&ran) {
        return;
    }
    let expected = "ended 3\nleft 0\n/note/list\n1\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
    assert!(ran.stderr.contains("switched off meanwhile"), "{ran:?}");
    system.scene.wait_until_clean();
}

/// A start that reads all files, each from far behind the one before.
const READ_ALL: &str = "for n in $(seq 300); do cat /files/$((n * 127 % 300)); done >/dev/null";

/// Sectors that the disk has given since `began`; the file system's free blocks.
const COUNT: &str = "began=0
    sectors() { set -- $(cat /sys/dev/block/$(mountpoint -d /)/stat); echo $(($3 - began)); }
    free() { stat -f -c %f /; }
    ";

/// The system of [`READ_ALL`], which is recorded, served as from a slow medium.
pub(crate) struct Slow {
    pub(crate) system: System,
}

impl Slow {
    pub(crate) fn new() -> Option<Self> {
        if !machine_has(&[]) {
            return None;
        }
        let this = Self { system: System::with_files(300)? };
        let scene = &this.system.scene;
        run(["build", &scene.arg("disk"), "-o", &scene.arg("disk.hsi"), "--codec", "zstd:1"]).ok();
        scene.folder("dir");
        let ran = this.script(
            &[],
            &format!(
                "headstart accelerate on --no-initramfs >/dev/null
            headstart accelerate record -- sh -c '{READ_ALL}'"
            ),
        );
        records(&ran).then(|| fs::copy(scene.path("changes"), scene.path("recorded")).expect("copied"))?;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        Some(this)
    }

    /// Runs a script, with nothing of the disk in a page cache.
    fn script(&self, medium: &[&str], text: &str) -> Ran {
        let scene = &self.system.scene;
        let (image, dir, changes) = (scene.arg("disk.hsi"), scene.arg("dir"), scene.arg("changes"));
        let words = ["mount", "-f", "--unsupervised", &image, &dir, "--keep", &changes];
        let server = Running::start(words.iter().chain(medium));
        wait_until("the disk is served", || scene.path("dir/disk.img").exists());
        let ran = self.system.script_on("dir/disk.img", &format!("{COUNT}{text}"));
        umount(&dir);
        server.signal(Signal::TERM);
        drop(server.end());
        ran
    }

    /// The same with what was recorded, from the slow medium.
    pub(crate) fn slow_script(&self, text: &str) -> Ran {
        let scene = &self.system.scene;
        fs::copy(scene.path("recorded"), scene.path("changes")).expect("copied");
        self.script(&["--medium", "flat-20ms-4mbs-serial"], text)
    }
}

/// The files are 18 MB, 35,000 sectors.
const OFF_MEANWHILE: &str =
    "test -d /sys/kernel/tracing/instances || mount -t tracefs tracefs /sys/kernel/tracing
    began=$(sectors)
    headstart-accelerate & recording=$!
    until test $(sectors) -gt 4000; do :; done
    headstart accelerate off >/dev/null
    wait $recording; echo ended $?
    ls -A /var/lib/headstart
    ls /sys/kernel/tracing/instances | grep -- -$recording- || true
    test $(sectors) -lt 30000 && echo before its end
    echo left $(said on true) $(said running true)";

#[test]
fn off_ends_a_boot_that_reads_ahead() {
    let Some(slow) = Slow::new() else { return };
    let ended = "ended 0\nbefore its end\nleft 0 0\n";
    let ran = slow.slow_script(OFF_MEANWHILE);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ended), "{ran:?}");
    // Also where the kernel does not show what comes, and nothing is recorded.
    let unseen = "mknod /note/none c 250 250; mount --bind /note/none /proc/kpageflags
        ";
    let ran = slow.slow_script(&format!("{unseen}{OFF_MEANWHILE}"));
    assert!(ran.stderr.contains("is not seen"), "{ran:?}");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ended), "{ran:?}");
    slow.system.scene.wait_until_clean();
}

#[test]
fn off_ends_what_asks_for_a_list_but_not_for_one_that_was_named() {
    let Some(slow) = Slow::new() else { return };
    let ran = slow.slow_script(
        "cp $folder/*.pages /note/list
        began=$(sectors)
        headstart accelerate warm >/dev/shm/said.$$ & warming=$!
        until test $(sectors) -gt 4000; do :; done
        headstart accelerate off >/dev/null
        wait $warming; echo ended $?
        test $(sectors) -lt 30000 && echo before its end
        grep -o 'ended early: it was switched off' /dev/shm/said.$$
        ls -A /var/lib/headstart
        headstart accelerate warm --list /note/list >/dev/shm/said.$$ & warming=$!
        until test $(sectors) -gt 20000; do :; done
        headstart accelerate off >/dev/null
        wait $warming; echo ended $?
        grep -c 'ended early' /dev/shm/said.$$ || true
        rm /dev/shm/said.$$",
    );
    let expected = "ended 0\nbefore its end\nended early: it was switched off\nended 0\n0\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
    slow.system.scene.wait_until_clean();
}

#[test]
fn off_ends_a_layout_anew() {
    let Some(slow) = Slow::new() else { return };
    let ran = slow.slow_script(
        "before=$(free)
        headstart accelerate now --force --json >/dev/shm/report.$$ & moving=$!
        until test $(free) -lt $((before - 1000)); do :; done
        # Only one works at a time.
        headstart-accelerate; echo another $?
        headstart accelerate now --force || echo and refused
        headstart accelerate off >/dev/null
        wait $moving || echo ended $?
        ls -A /var/lib/headstart
        grep -o '\"outcome\": \"[a-z]*\"' /dev/shm/report.$$
        rm /dev/shm/report.$$
        echo left $(said on true) $(said running true)",
    );
    let told = "the files of / are laid anew already by process ";
    assert!(
        ran.stderr.contains(told) && ran.stderr.contains("(headstart accelerate now --force --json)"),
        "{ran:?}"
    );
    let ended = "another 0\nand refused\nended 1\n\"outcome\": \"stopped\"\nleft 0 0\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ended), "{ran:?}");
    let scene = &slow.system.scene;
    // The files are what they were, and nothing is reserved any more.
    let sum = |folder: &str| format!("cat $(seq -f {folder}/files/%g 0 299) | sha256sum");
    let ran = slow.script(&[], &sum(""));
    let made = tool("sh", &["-c", &sum(&scene.arg("made"))]);
    assert_eq!((ran.code, ran.stdout), (Some(0), made.stdout), "{}", ran.stderr);
    scene.wait_until_clean();
}
