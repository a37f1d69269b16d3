//! The access of a guest to the machine that runs it, should it break out of its VMM: no more than the VMM
//! needs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::boots::{GUEST, boot, little_guest};
use crate::qemu_kernels::{Then, little_kernel};
use crate::scene::{Running, Scene, headstart, machine_has, run, wait_until};

/// The first program of a guest whose root tries to be the host's: User-mode Linux knows a file system that
/// shows files of the host, and its kernel is a process of the host.
const TRY: &str = "#!/bin/sh
mkdir -p /host
mount -t hostfs none /host -o / && echo has hostfs
for f in $FILE etc/shadow proc/1/environ proc/1/root/etc/shadow; do
cat /host/$f >/dev/null && echo read $f
done
echo pwned >/host$FILE && echo wrote over it
echo pwned >/host$FILE.new && echo wrote beside it
echo pwned >/host/proc/sys/kernel/printk_ratelimit && echo wrote a setting
mkdir /host$FILE.new.folder && echo made a folder
echo done
while :; do sleep 1000; done
";

/// A guest whose first program can be `/bin/try`.
fn trying_guest() -> (Scene, String) {
    let (scene, image) = little_guest();
    for name in ["mkdir", "mount", "ls"] {
        std::os::unix::fs::symlink("busybox", scene.path("root/bin").join(name)).expect("a link");
    }
    let program = scene.path("root/bin/try");
    fs::write(&program, TRY).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    (scene, image)
}

#[test]
fn a_guests_root_reaches_no_file_of_the_host() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = trying_guest();
    let (file, console) = (scene.arg("file"), scene.arg("console"));
    fs::write(&file, "as it was\n").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("for all to write");
    let words = format!("FILE={file}");
    let flags = ["--memory", "64M", "--init", "/bin/try", "--ready", "^done$", "--console", &console];
    boot(&scene, &image, &[&flags[..], &["--append", &words]].concat()).ok();
    let said = fs::read_to_string(&console).expect("the console");
    assert!(said.contains("has hostfs"), "this kernel has no hostfs, and nothing was tried: {said}");
    for word in ["read ", "wrote ", "made "] {
        let line = said.lines().find(|line| line.starts_with(word));
        assert_eq!(line, None, "{said}");
    }
    assert_eq!(fs::read_to_string(&file).expect("the file"), "as it was\n");
    assert!(!scene.path("file.new").exists());
    scene.wait_until_clean();
}

/// The fields of one process in `/proc`.
fn fields(process: u32) -> impl Fn(&str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    move |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap_or_default().to_owned()
    }
}

/// The process below `parent` whose program is called `name`.
fn process_called(name: &str, parent: u32) -> Option<u32> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|number| {
        let program = fs::read_link(format!("/proc/{number}/exe")).unwrap_or_default();
        let grandparent = || parent_of(parent_of(*number)?);
        program.file_name().is_some_and(|file| file == name) && grandparent() == Some(parent)
    })
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Looks at the VMM called `name` while its guest is up. That of a guest with a network is in this machine's.
fn assert_is_jailed(scene: &Scene, mut command: Command, name: &str, has_network: bool) {
    command.env("TMPDIR", scene.path("tmp")).env("AWS_SECRET_ACCESS_KEY", "topsecret");
    let running = Running::start_command(command);
    wait_until("the guest is up", || {
        fs::read_to_string(scene.path("console"))
            .is_ok_and(|said| said.lines().any(|line| line.trim() == "up"))
    });
    let vmm = process_called(name, running.id()).expect("a VMM");
    let of = fields(vmm);
    let none = "0000000000000000";
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(of(set), none, "{set}");
    }
    assert_eq!((of("NoNewPrivs").as_str(), of("Seccomp").as_str()), ("1", "2"));
    for ids in ["Uid", "Gid"] {
        assert!(
            of(ids).split('\t').all(|id| id.parse::<u32>().is_ok_and(|id| id > 65_536)),
            "{ids}: {}",
            of(ids)
        );
    }
    let entries = fs::read_dir(format!("/proc/{vmm}/root")).expect("its root").flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for host in ["root", "home", "var", "sys", "boot", "run"] {
        assert!(!names.iter().any(|name| name == host), "{host} is in {names:?}");
    }
    let settings = fs::read_dir(format!("/proc/{vmm}/root/etc")).into_iter().flatten().flatten();
    let settings: Vec<_> = settings.map(|entry| entry.file_name()).collect();
    assert_eq!(settings, if has_network { &["resolv.conf"][..] } else { &[] });
    for place in ["usr/bin/sh", "bin/sh", "usr/bin/su", "dev/loop0", "dev/fuse", "dev/vda"] {
        assert!(!fs::exists(format!("/proc/{vmm}/root/{place}")).unwrap_or(true), "{place}");
    }
    for namespace in ["uts", "ipc", "pid", "mnt", "net", "cgroup"] {
        let of =
            |process: &str| fs::read_link(format!("/proc/{process}/ns/{namespace}")).expect("a namespace");
        let is_shared = has_network && namespace == "net";
        assert_eq!(of(&vmm.to_string()) == of("self"), is_shared, "{namespace}");
    }
    let environment = fs::read(format!("/proc/{vmm}/environ")).expect("its environment");
    assert!(!String::from_utf8_lossy(&environment).contains("topsecret"));
    running.signal(Signal::TERM);
    running.end();
    fs::remove_file(scene.path("console")).expect("removed");
    scene.wait_until_clean();
}

#[test]
fn user_mode_linux_is_a_user_of_its_own_in_a_root_of_its_own() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let console = scene.arg("console");
    let flags = ["--vmm", "uml", "--memory", "64M", "--ready", "never", "--console", &console];
    assert_is_jailed(&scene, headstart([&["boot", &image], &flags[..]].concat()), "linux.uml", false);
}

#[test]
fn qemu_is_a_user_of_its_own_in_a_root_of_its_own() {
    if !machine_has(&["/usr/bin/qemu-system-x86_64", "/bin/busybox", "/usr/sbin/mkfs.ext4"]) {
        return;
    }
    let (scene, image) = little_guest();
    let (console, kernel) = (scene.arg("console"), scene.arg("up"));
    little_kernel(&scene.path("up"), "up\n", Then::Hang);
    let flags = ["--vmm", "qemu", "--accel", "tcg", "--memory", "160M", "--kernel", &kernel];
    let words = [&["boot", &image], &flags[..], &["--ready", "never", "--console", &console]].concat();
    assert_is_jailed(&scene, headstart(&words), "qemu-system-x86_64", false);
    let words = [&words[..], &["--network"]].concat();
    assert_is_jailed(&scene, headstart(&words), "qemu-system-x86_64", true);
}

/// Files for the guest can be read by its user, whatever this process's umask is.
#[test]
fn a_guest_boots_whatever_the_umask_is() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headstart"), "boot", &image]);
    shell.args(["--memory", "64M", "--ready", "^up$"]).env("TMPDIR", scene.path("tmp"));
    let ran = shell.output().expect("started");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    scene.wait_until_clean();
}

/// A kernel that only root may read boots a guest that runs as `nobody`.
#[test]
fn a_kernel_that_only_root_may_read_boots() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = little_guest();
    let kernel = scene.arg("linux.uml");
    fs::copy("/usr/bin/linux.uml", &kernel).expect("copied");
    fs::set_permissions(&kernel, fs::Permissions::from_mode(0o700)).expect("root's alone");
    boot(&scene, &image, &["--memory", "64M", "--ready", "^up$", "--kernel", &kernel]).ok();
    scene.wait_until_clean();
}
