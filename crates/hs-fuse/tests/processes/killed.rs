//! Everything at once, and then SIGKILL: FUSE, loop device, file system, root, command.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hs_fuse::{Session, SessionOptions};
use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions};
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use hs_linux::rootenv::{Exit, RootEnv, RootOptions, SpawnOptions, Stream, enter_private_mounts};
use hs_testing::Test;

use crate::support::MemoryDisk;

pub(crate) const TESTS: &[Test] = &[
    ("a_command_runs_in_an_image", a_command_runs_in_an_image),
    ("sigkill_leaves_nothing_behind", sigkill_leaves_nothing_behind),
];

/// The first argument that makes this program the one that is killed.
pub(crate) const VICTIM: &str = "__killed_victim";

/// The whole tower, in the order in which it must come down.
struct Tower {
    env: RootEnv,
    mounted: FsMount,
    device: LoopDevice,
    session: Session,
    file: PathBuf,
}

impl Tower {
    fn build(image: Vec<u8>, base: &Path) -> Self {
        let [shown, root, work] = ["shown", "root", "work"].map(|name| base.join(name));
        fs::create_dir_all(&shown).unwrap();
        fs::create_dir_all(&root).unwrap();
        let session = Session::mount(&shown, MemoryDisk::new(image), SessionOptions::default()).unwrap();
        let file = session.mount_point().join("disk.img");
        let device = LoopDevice::attach(&file, LoopOptions::default()).unwrap();
        let file_system = FileSystem::detect(&file).unwrap();
        let mounted = FsMount::mount(device.path(), file_system, &root, FsMountOptions::default()).unwrap();
        let env = RootEnv::prepare(&root, &work, RootOptions::default()).unwrap();
        Self { env, mounted, device, session, file }
    }
}

/// A small root with a shell and `sleep`: the host's own, with the libraries they need.
fn small_root() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    let script = r#"set -e
        for program in sh sleep cat; do
            path=$(command -v $program); real=$(readlink -f "$path")
            mkdir -p "$1/bin"; cp "$real" "$1/bin/$program"
            for library in $(ldd "$real" | grep -o '/[^ ]*'); do
                mkdir -p "$1$(dirname "$library")"; cp -L "$library" "$1$library"
            done
        done
        echo inside >"$1/where"
        mkfs.ext4 -q -d "$1" "$2" 64M"#;
    let image = directory.path().join("image");
    let made = Command::new("sh")
        .args(["-c", script, "small-root"])
        .args([&tree, &image])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    fs::read(image).unwrap()
}

fn is_attached(file: &Path) -> bool {
    fs::read_dir("/sys/block").unwrap().any(|device| {
        let backing = device.unwrap().path().join("loop/backing_file");
        fs::read_to_string(backing).is_ok_and(|shown| Path::new(shown.trim_end()).ends_with(file))
    })
}

/// A program that looks at new devices, as udev does, may have it open for a moment.
fn wait_until_freed(files: &[&Path]) {
    let end = Instant::now() + Duration::from_secs(120);
    while files.iter().any(|file| is_attached(file)) {
        assert!(Instant::now() < end, "the loop device of {files:?} is still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn a_command_runs_in_an_image() {
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let base = tempfile::tempdir().unwrap();
    let tower = Tower::build(small_root(), base.path());
    let options = SpawnOptions { stdin: Stream::Null, stdout: Stream::Pipe, ..Default::default() };
    let command = ["/bin/sh", "-c", "cat /where; echo 1 >/new; exit 7"].map(Into::into);
    let mut child = tower.env.spawn(&command, options).unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!((child.wait().unwrap(), printed.as_str()), (Exit::Code(7), "inside\n"));
    let Tower { env, mounted, device, session, file } = tower;
    assert!(is_attached(&file));
    drop(env);
    mounted.unmount().unwrap();
    drop(device);
    session.unmount().unwrap();
    wait_until_freed(&[&file]);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}

/// Builds the tower, starts a sleeper in it, and waits to be killed.
pub(crate) fn victim(base: &OsStr) -> ! {
    enter_private_mounts().unwrap();
    let tower = Tower::build(small_root(), Path::new(base));
    let command = ["/bin/sh", "-c", "echo ready; sleep 100000 & sleep 100000"].map(Into::into);
    let child = tower.env.spawn(&command, SpawnOptions { stdin: Stream::Null, ..Default::default() });
    let ended = child.unwrap().wait();
    panic!("it should have slept: {ended:?}");
}

fn sigkill_leaves_nothing_behind() {
    let base = tempfile::tempdir().unwrap();
    let mut victim = Command::new("/proc/self/exe")
        .arg(VICTIM)
        .arg(base.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = victim.stdout.take().unwrap();
    output.read_exact(&mut [0; 6]).unwrap();
    let file = Path::new("shown/disk.img");
    assert!(is_attached(&base.path().join(file)) || is_attached(file));
    victim.kill().unwrap();
    victim.wait().unwrap();
    // Every process in the root holds this pipe: its end is the end of the last of them.
    assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    // The mount namespace went with the last process, and with it the loop device; the kernel takes it
    // down in the background.
    wait_until_freed(&[&base.path().join(file), file]);
    assert_eq!(fs::read_dir(base.path().join("shown")).unwrap().count(), 0);
}
