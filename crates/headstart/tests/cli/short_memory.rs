//! A server in a control group whose memory somebody else needs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::Advice;
use rustix::process::Signal;

use crate::scene::{Running, Scene, headstart, machine_has, run, wait_until};

const MIB: u64 = 1 << 20;
/// What a cache begins with, and never exceeds.
const CACHE_BYTES: u64 = 40 * MIB;
const WINDOW_BYTES: u64 = 128 << 10;

/// A memory control group, of either version; it goes when it is empty.
struct Group {
    folder: PathBuf,
}

impl Group {
    /// `None`, said aloud, where this machine does not let us make one.
    fn new(limit_bytes: u64) -> Option<Self> {
        let name = format!("headstart-test-{}", std::process::id());
        for (top, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let group = Self { folder: Path::new(top).join(&name) };
            if fs::create_dir(&group.folder).is_ok() {
                if fs::write(group.folder.join(limit), limit_bytes.to_string()).is_ok() {
                    return Some(group);
                }
                drop(group);
            }
        }
        let _ = writeln!(std::io::stderr(), "SKIPPED: no control group that limits memory can be made here");
        None
    }

    /// The command, to be started in the group.
    fn around(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", self.folder.display());
        shell
            .args(["-c", &enter, "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null());
        shell
    }

    /// A process in the group that has so much memory, until its input ends: it waits for the end of a line.
    fn eater(&self, bytes: u64) -> Child {
        let mut eater = self
            .around(&Command::new("tail"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        let input = eater.stdin.as_mut().expect("piped");
        (0..bytes / MIB).for_each(|_| input.write_all(&[b'x'; MIB as usize]).expect("it reads"));
        eater
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until("the group is empty", || fs::remove_dir(&self.folder).is_ok());
    }
}

fn rss_anon_bytes(pid: u32) -> u64 {
    let table = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = table.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn the_cache_is_given_back_where_its_group_needs_the_memory() {
    if !machine_has(&[]) {
        return;
    }
    let Some(group) = Group::new(160 * MIB) else { return };
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 11_264, 62);
    let dir = scene.folder("dir");
    let mounting =
        headstart(["mount", "-f", "--unsupervised", "--cache-policy", "lru", &scene.arg("cold.hsi"), &dir]);
    let mut serving = Running::start_command(group.around(&mounting));
    assert!(serving.said().contains("mounted"));
    let cache = |key: &str| {
        let status = run(["status", &dir, "--json"]).ok().json();
        status["mounts"][0]["cache"][key].as_u64().expect("a number")
    };

    // The kernel keeps one block of each window; the others stay here, because somebody may ask for them.
    let file = File::open(scene.path("dir/disk.img")).expect("opened");
    rustix::fs::fadvise(&file, 0, None, Advice::Random).expect("advised");
    let mut block = [0; 4096];
    for at in (0..disk.len() as u64).step_by(WINDOW_BYTES as usize) {
        file.read_exact_at(&mut block, at).expect("read");
        assert!(block == disk[at as usize..][..4096]);
    }
    // A kernel may drop pages at any time, and ask for more of a window, but not for most of most of them.
    wait_until("most of the cache is full", || cache("bytes") > CACHE_BYTES / 4 * 3);
    assert_eq!(cache("budget_bytes"), CACHE_BYTES, "there is room for it");
    let before = rss_anon_bytes(serving.id());

    // 64 MiB are left for the server, of which 16 are left alone: it may have a half of the rest.
    let mut eater = group.eater(96 * MIB);
    wait_until("the cache has made room", || cache("bytes") <= CACHE_BYTES / 2);
    wait_until("the system has it back", || rss_anon_bytes(serving.id()) + 6 * MIB < before);
    file.read_exact_at(&mut block, 0).expect("read");
    assert!(block == disk[..4096]);

    drop(eater.stdin.take());
    assert!(eater.wait().expect("ended").success(), "it was killed");
    wait_until("the cache may be as large as before", || cache("budget_bytes") == CACHE_BYTES);
    drop(file);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    scene.wait_until_clean();
}
