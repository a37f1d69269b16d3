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
            let folder = Path::new(top).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Self { folder };
            // A folder of another file system, where groups of the first version are mounted, has nothing in it.
            let file = group.folder.join(limit);
            if file.exists() && fs::write(file, limit_bytes.to_string()).is_ok() {
                return Some(group);
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

    /// A process in the group that keeps what it is fed: it waits for the end of a line, or of its input.
    fn eater(&self) -> Child {
        let mut tail = self.around(&Command::new("tail"));
        tail.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("tail starts")
    }
}

fn feed(eater: &mut Child, bytes: u64) {
    let input = eater.stdin.as_mut().expect("piped");
    (0..bytes / MIB).for_each(|_| input.write_all(&[b'x'; MIB as usize]).expect("it reads"));
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
    let (full, before) = (cache("bytes"), rss_anon_bytes(serving.id()));

    // By steps that leave room for what the server has until it looks. The cache may have a half of what others leave besides 16 MiB:
    // of the 160 first 34 at most, which is less than seven eighths of what it has, and then 24.
    let mut eater = group.eater();
    feed(&mut eater, 76 * MIB);
    wait_until("the cache makes room", || cache("budget_bytes") < CACHE_BYTES);
    feed(&mut eater, 20 * MIB);
    wait_until("the cache has made room", || cache("bytes") <= 24 * MIB);
    let freed = full - cache("bytes");
    wait_until("the system has it back", || rss_anon_bytes(serving.id()) + freed / 2 < before);
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
