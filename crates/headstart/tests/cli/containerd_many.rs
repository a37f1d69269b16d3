//! Many containers of one image: its files are in memory once.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Child;

use rustix::fs::{Advice, fadvise};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::containerd::{Containers, OK, add, with_registry};
use crate::containerd_deaths::of_image;
use crate::scene::{Scene, wait_until};

const CONTAINERS: usize = 20;
const DATA_BYTES: usize = 8 << 20;
const PAGE_BYTES: usize = 4096;
/// Reads the file, says so, and stays until it is told.
const READS: &str = "md5sum /data; while [ ! -e /go/stop ]; do sleep 1; done";
/// The same, of a file that it has changed before: overlayfs copies it.
const CHANGES: &str = "echo more >>/data; md5sum /data; while [ ! -e /go/stop ]; do sleep 1; done";

/// How many bytes of a file are in the page cache, as mincore(2) tells.
pub(crate) fn cached_bytes(path: &Path) -> usize {
    let file = File::open(path).expect("opened");
    let bytes = usize::try_from(file.metadata().expect("a size").len()).expect("it fits");
    let mut cached = vec![0_u8; bytes.div_ceil(PAGE_BYTES)];
    // SAFETY: the mapping is new, its memory is not touched, and there is a byte for each of its pages.
    unsafe {
        let at = mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0);
        let at = at.expect("mapped");
        assert_eq!(libc::mincore(at, bytes, cached.as_mut_ptr()), 0);
        munmap(at, bytes).expect("unmapped");
    }
    cached.iter().filter(|page| **page & 1 == 1).count() * PAGE_BYTES
}

/// Bytes of a process's own memory.
fn own_bytes(pid: i32) -> usize {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Memory of the image's servers.
fn server_bytes(scene: &Scene) -> usize {
    of_image(scene, true).iter().map(|pid| own_bytes(pid.as_raw_nonzero().get())).sum()
}

/// Containers that have read the file, and stay.
struct Readers<'a> {
    scene: &'a Scene,
    containers: &'a Containers<'a>,
    image: &'a str,
    running: Vec<(String, Child)>,
}

impl Readers<'_> {
    /// Starts these all at once, and waits until each has read the file.
    fn begin(&mut self, names: &[String], script: &str) {
        let mount = format!("type=bind,src={},dst=/go,options=rbind:ro", self.scene.arg("go"));
        let begin = |name: &String| {
            self.containers.begin(self.image, name, &["--mount", &mount], &["sh", "-c", script])
        };
        let begun: Vec<_> = names.iter().map(begin).collect();
        for (name, (child, stdout)) in names.iter().zip(begun) {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).expect("a line");
            assert!(line.ends_with("  /data\n"), "{name}: {line}");
            self.running.push((self.containers.id(name), child));
        }
    }

    /// The file as each container has it.
    fn files(&self) -> Vec<PathBuf> {
        let listed = self.containers.ctr(&["task", "ls"]).stdout;
        let processes: Vec<Vec<&str>> =
            listed.lines().map(|line| line.split_whitespace().collect()).collect();
        let file_of = |(id, _): &(String, Child)| {
            let task = processes.iter().find(|words| words.first() == Some(&id.as_str())).expect("a task");
            format!("/proc/{}/root/data", task[1]).into()
        };
        self.running.iter().map(file_of).collect()
    }

    fn end(self) {
        fs::write(self.scene.path("go/stop"), "").expect("written");
        for (name, mut child) in self.running {
            assert!(child.wait().expect("it ends").success(), "{name}");
        }
    }
}

/// Observed by mincore(2) and /proc/PID/smaps_rollup: dropping the pages of the one file that is mounted
/// takes them from all containers, and what one of them reads all have, but not what one reads that has a
/// copy of its own; and the server has no more memory than with one container.
#[test]
fn containers_of_one_image_have_one_copy_of_it_in_memory() {
    let Some((scene, _, registry, image)) = with_registry(DATA_BYTES) else { return };
    add(&scene, &image);
    scene.folder("go");
    let containers = Containers::start(&scene, &["--prefetch", "off"]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let line = containers.mounted().pop().expect("it is mounted");
    let tree = PathBuf::from(line.split(' ').nth(4).expect("a path"));
    let (file, disk) = (tree.join("data"), tree.with_file_name("disk").join("disk.img"));
    let mut readers = Readers { scene: &scene, containers: &containers, image: &image, running: Vec::new() };
    readers.begin(&["one".to_owned()], READS);
    let of_one = server_bytes(&scene);
    let names: Vec<String> = (1..CONTAINERS).map(|number| format!("more-{number}")).collect();
    readers.begin(&names, READS);
    readers.begin(&["changing".to_owned()], CHANGES);
    let of_all = server_bytes(&scene);
    assert!(of_all < of_one + DATA_BYTES / 2, "the server has {of_all} bytes, and had {of_one}");
    assert!(cached_bytes(&disk) < DATA_BYTES / 2, "the disk's pages are in memory beside the file's");
    let files = readers.files();
    let open = File::open(&file).expect("opened");
    wait_until("the pages of the one file are dropped", || {
        fadvise(&open, 0, None, Advice::DontNeed).expect("dropped");
        cached_bytes(&file) == 0
    });
    let cached = || files.iter().map(|file| cached_bytes(file)).collect::<Vec<_>>();
    let (shared, own) = (0..CONTAINERS, CONTAINERS);
    assert_eq!(cached()[shared.clone()], [0; CONTAINERS]);
    fs::read(&files[own]).expect("read");
    assert_eq!(cached()[shared.clone()], [0; CONTAINERS], "the copy of one is no other's");
    assert!(cached()[own] > DATA_BYTES / 2, "{:?}", cached());
    fs::read(&files[0]).expect("read");
    assert!(cached()[shared].iter().all(|bytes| *bytes > DATA_BYTES / 2), "{:?}", cached());
    readers.end();
    // A file that is open keeps the image's server.
    drop(open);
    drop(registry);
    containers.end(&[&image]);
}
