//! A server in a control group whose memory another process needs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::Advice;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use crate::scene::{Running, Scene, headstart, machine_has, run, wait_until};

const MIB: u64 = 1 << 20;
/// What the disk fills of a cache that may have more.
const CACHE_BYTES: u64 = 40 * MIB;
const WINDOW_BYTES: u64 = 128 << 10;

/// A memory control group, of either version; it goes when it is empty.
struct Group {
    folder: PathBuf,
    /// Where the machine has mounted no such groups: a mount of the test's own, which goes as well.
    mounted: Option<tempfile::TempDir>,
}

impl Group {
    /// A group below the first place of [`places`] where one can be made. `None`, and the test is skipped,
    /// where there is none.
    fn new(limit_bytes: u64) -> Option<Self> {
        let mountinfo = fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts");
        let mut lacks = Vec::new();
        for (top, limit) in places(&mountinfo) {
            match Self::below(&top, limit, limit_bytes) {
                Ok(group) => return Some(group),
                Err(lack) => lacks.push(lack),
            }
        }
        let own = tempfile::tempdir().expect("a folder");
        let mounted =
            Command::new("mount").args(["-t", "cgroup", "-o", "memory", "none"]).arg(own.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            match Self::below(own.path(), VERSION_1, limit_bytes) {
                Ok(mut group) => {
                    group.mounted = Some(own);
                    return Some(group);
                }
                Err(lack) => lacks.push(lack),
            }
            let _ = rustix::mount::unmount(own.path(), UnmountFlags::DETACH);
        }
        hs_testing::skip(format!("no control group that limits memory can be made: {lacks:?}"));
        None
    }

    fn below(top: &Path, limit: &str, limit_bytes: u64) -> Result<Self, String> {
        let folder = top.join(format!("headstart-test-{}", std::process::id()));
        let lack = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(lack)?;
        let file = folder.join(limit);
        if !file.exists() {
            // Groups of version 2 have what the group above hands down.
            let _ = fs::write(top.join("cgroup.subtree_control"), "+memory");
        }
        let limited =
            if file.exists() { fs::write(&file, limit_bytes.to_string()) } else { Err(NO_MEMORY.into()) };
        match limited {
            Ok(()) => Ok(Self { folder, mounted: None }),
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                Err(lack(error))
            }
        }
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

/// The files that hold a group's limit.
const VERSION_1: &str = "memory.limit_in_bytes";
const VERSION_2: &str = "memory.max";
const NO_MEMORY: std::io::ErrorKind = std::io::ErrorKind::Unsupported;

/// Where this machine has mounted groups that may limit memory, and the file for that: version 1 before
/// version 2, since a machine that has both limits memory by version 1.
fn places(mountinfo: &str) -> Vec<(PathBuf, &'static str)> {
    let of = |version: &'static str, limit: &'static str| {
        mountinfo.lines().filter_map(move |line| {
            let (mount, about) = line.split_once(" - ")?;
            let mut about = about.split(' ');
            let (kind, options) = (about.next()?, about.nth(1)?);
            let limits = kind == "cgroup2" || options.split(',').any(|option| option == "memory");
            let place = mount.split(' ').nth(4)?;
            (kind == version && limits).then(|| (PathBuf::from(place), limit))
        })
    };
    of("cgroup", VERSION_1).chain(of("cgroup2", VERSION_2)).collect()
}

#[test]
fn groups_of_both_versions_are_found() {
    let mountinfo = "\
        31 24 0:28 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
        35 24 0:32 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        36 24 0:33 / /groups/memory rw,relatime shared:17 - cgroup cgroup rw,memory\n";
    let found = places(mountinfo);
    assert_eq!(found, [("/groups/memory".into(), VERSION_1), ("/sys/fs/cgroup/unified".into(), VERSION_2)]);
}

fn feed(eater: &mut Child, bytes: u64) {
    let input = eater.stdin.as_mut().expect("piped");
    (0..bytes / MIB).for_each(|_| input.write_all(&[b'x'; MIB as usize]).expect("it reads"));
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until("the group is empty", || fs::remove_dir(&self.folder).is_ok());
        if let Some(own) = &self.mounted {
            let _ = rustix::mount::unmount(own.path(), UnmountFlags::DETACH);
        }
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
    let mounting = headstart(["mount", "-f", "--unsupervised", &scene.arg("cold.hsi"), &dir]);
    let mut serving = Running::start_command(group.around(&mounting));
    assert!(serving.said().contains("mounted"));
    let cache = |key: &str| {
        let status = run(["status", &dir, "--json"]).ok().json();
        status["mounts"][0]["cache"][key].as_u64().expect("a number")
    };

    // The kernel keeps one block of each window; the others stay here, because they may still be read.
    let file = File::open(scene.path("dir/disk.img")).expect("opened");
    rustix::fs::fadvise(&file, 0, None, Advice::Random).expect("advised");
    let mut block = [0; 4096];
    for at in (0..disk.len() as u64).step_by(WINDOW_BYTES as usize) {
        file.read_exact_at(&mut block, at).expect("read");
        assert!(block == disk[at as usize..][..4096]);
    }
    // A kernel may drop pages at any time, and ask for more of a window, but not for most of most of them.
    wait_until("most of the cache is full", || cache("bytes") > CACHE_BYTES / 4 * 3);
    assert!(cache("budget_bytes") >= CACHE_BYTES, "there is room for it");
    let (full, before) = (cache("bytes"), rss_anon_bytes(serving.id()));

    // In steps that leave room for the server's memory until it looks. The cache may have half of what other
    // programs leave besides 16 MiB: of the first 160 MiB at most 34, which is less than seven eighths of
    // what it has, and then 24.
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
    wait_until("the cache may be as large as before", || cache("budget_bytes") >= CACHE_BYTES);
    drop(file);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    scene.wait_until_clean();
}
