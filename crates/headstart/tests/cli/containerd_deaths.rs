//! Containers of containerd whose snapshotter, servers and supervisors are killed while they read.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::containerd::{Containers, OK, add, with_registry};
use crate::filling::manager_hears;
use crate::scene::{PATIENCE, Scene, tool, wait_until};

/// Bytes of the container's data. Its group may have half of that in memory: most reads come from the disk.
const DATA_BYTES: usize = 24 << 20;
const MEMORY: &str = "12582912";
/// Reads all files, again and again, and writes one sum of them each time, to a file too: `ctr` may lose the
/// last lines. Says when a read fails.
const SCRIPT: &str = "echo started; set -o pipefail; while [ ! -e /go/stop ]; do \
    busybox find / -xdev \\( -path /go -o -path /.headstart \\) -prune -o -type f -print0 | busybox sort -z | \
    busybox xargs -0 cat | md5sum | busybox tee -a /go/sums || { echo failed >>/go/sums; exit 9; }; done; \
    echo ended >>/go/sums";

/// A container that reads its whole root in a loop.
struct Reading {
    container: Child,
    stdout: BufReader<ChildStdout>,
}

impl Reading {
    fn begin(scene: &Scene, containers: &Containers<'_>, image: &str) -> Self {
        let mount = format!("type=bind,src={},dst=/go,options=rbind:rw", scene.folder("go"));
        let flags = ["--mount", &mount, "--memory-limit", MEMORY];
        let (container, stdout) = containers.begin(image, "one", &flags, &["sh", "-c", SCRIPT]);
        let mut reading = Self { container, stdout: BufReader::new(stdout) };
        assert_eq!(reading.line(), "started\n");
        reading
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line
    }

    /// Waits until all has been read once more, from now on.
    fn once_more(&self, scene: &Scene) {
        let rounds = || fs::read_to_string(scene.path("go/sums")).map_or(0, |sums| sums.lines().count());
        let before = rounds();
        wait_until("all is read once more", || rounds() >= before + 2);
    }

    /// Ends it. Each sum is the first one, which is that of the files as they were built.
    fn end(mut self, scene: &Scene) -> usize {
        fs::write(scene.path("go/stop"), "").expect("written");
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("read");
        let ended = self.container.wait().expect("it ends");
        let written = fs::read_to_string(scene.path("go/sums")).expect("sums");
        assert!(ended.success(), "{written}");
        let mut sums: Vec<&str> = written.lines().collect();
        assert_eq!(sums.pop(), Some("ended"), "{written}");
        let root = scene.arg("unpacked");
        tool("umoci", &["raw", "unpack", "--image", &format!("{}:t", scene.arg("layout")), &root]);
        let own = "cd $0; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | md5sum";
        let expected = tool("sh", &["-c", own, &root]).stdout;
        assert!(sums.iter().all(|sum| *sum == expected.trim()), "{expected}: {written}");
        sums.len()
    }
}

/// Processes of the mounted image: its servers, or its supervisors.
pub(crate) fn of_image(scene: &Scene, are_servers: bool) -> Vec<Pid> {
    let is_wanted = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("--foreground") && line.contains("--supervisor-fd") == are_servers
    };
    let found = scene.processes().into_iter().filter(is_wanted);
    found.filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect()
}

/// How many were killed. They are dead then: a server that dies still takes a request of FUSE from the
/// kernel, and what waits for that cannot even be killed until a next server answers.
pub(crate) fn kill_all(pids: &[Pid]) -> usize {
    let killed = pids.iter().filter(|pid| kill_process(**pid, Signal::KILL).is_ok()).count();
    wait_until("they are dead", || pids.iter().all(|pid| is_dead(*pid)));
    killed
}

/// Whether no thread of it is left. Its parent may not have asked for its end.
fn is_dead(pid: Pid) -> bool {
    let folder = format!("/proc/{}", pid.as_raw_nonzero());
    let threads = fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count);
    threads == 0
        || threads == 1
            && fs::read_to_string(format!("{folder}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// Once a second, as often as the test is told (`KILLS`), a server and the snapshotter are killed. The image
/// is removed while containerd may not have connected to the last one yet.
#[test]
fn a_container_does_not_notice_that_snapshotter_and_servers_are_killed() {
    let Some((scene, _, registry, image)) = with_registry(DATA_BYTES) else { return };
    let kills: usize = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    add(&scene, &image);
    let mut containers = Containers::start(&scene, &["--prefetch", "off"]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let reading = Reading::begin(&scene, &containers, &image);
    let began = Instant::now();
    for round in 1..=kills {
        let then = began + Duration::from_secs(1) * u32::try_from(round).expect("few");
        std::thread::sleep(then.saturating_duration_since(Instant::now()));
        wait_until("a server is killed", || kill_all(&of_image(&scene, true)) > 0);
        containers.kill_snapshotter();
    }
    let seconds = began.elapsed().as_secs();
    let rounds = reading.end(&scene);
    assert!(rounds > 0);
    eprintln!("{kills} kills in {seconds} s; the container read its root {rounds} times");
    drop(registry);
    containers.end(&[&image]);
}

fn wait_for_both(scene: &Scene) {
    wait_until("there are both", || [false, true].iter().all(|kind| !of_image(scene, *kind).is_empty()));
}

/// Kills the supervisors and servers of the image.
fn kill_both(scene: &Scene) {
    wait_for_both(scene);
    assert!(kill_all(&of_image(scene, false)) > 0);
    // The next supervisor may have ended it.
    kill_all(&of_image(scene, true));
}

#[test]
fn a_container_does_not_notice_that_supervisor_and_server_are_killed_together() {
    let Some((scene, _, registry, image)) = with_registry(DATA_BYTES) else { return };
    add(&scene, &image);
    // A service manager that keeps descriptors, as systemd does.
    let manager = UnixDatagram::bind(scene.path("notify")).expect("a socket");
    let kept: Arc<Mutex<Vec<(String, OwnedFd)>>> = Arc::default();
    let listening = Arc::clone(&kept);
    std::thread::spawn(move || {
        loop {
            let (text, descriptor) = manager_hears(&manager);
            let name = || text.split_once("FDNAME=").expect("a name").1.to_owned();
            match descriptor {
                Some(descriptor) => listening.lock().push((name(), descriptor)),
                None if text.starts_with("FDSTOREREMOVE=1") => {
                    let name = name();
                    listening.lock().retain(|(kept, _)| *kept != name);
                }
                None => {}
            }
        }
    });
    let containers = Containers::managed(&scene, &["--prefetch", "off"], Some(scene.path("notify")));
    let mut containers = containers.with_containerd();
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    let reading = Reading::begin(&scene, &containers, &image);
    // The snapshotter starts the next ones.
    for _ in 0..2 {
        kill_both(&scene);
        reading.once_more(&scene);
    }
    // Also those that do not serve yet.
    for _ in 0..3 {
        kill_both(&scene);
    }
    reading.once_more(&scene);
    // Where the supervisor dies alone, what its server takes could be lost with it: the next one ends it.
    wait_for_both(&scene);
    let alone = of_image(&scene, true);
    kill_all(&of_image(&scene, false));
    wait_until("the server without a supervisor is ended", || alone.iter().all(|pid| is_dead(*pid)));
    reading.once_more(&scene);
    // All three: the service manager has kept it.
    containers.snapshotter.kill();
    kill_both(&scene);
    wait_until("they are gone", || of_image(&scene, false).is_empty());
    let all = || -> Vec<(String, OwnedFd)> {
        kept.lock().iter().map(|(name, fd)| (name.clone(), fd.try_clone().expect("one more"))).collect()
    };
    containers.start_again(&all());
    reading.once_more(&scene);
    reading.once_more(&scene);
    // The snapshotter, while the supervisor that it has started does not serve yet.
    kill_both(&scene);
    wait_until("the next supervisor begins", || !of_image(&scene, false).is_empty());
    containers.snapshotter.kill();
    containers.start_again(&all());
    reading.once_more(&scene);
    // And what it went on with is kept as before.
    kill_both(&scene);
    reading.once_more(&scene);
    assert!(reading.end(&scene) >= 7);
    drop(registry);
    containers.end(&[&image]);
    let end = Instant::now() + PATIENCE;
    while kept.lock().iter().any(|(name, _)| name.starts_with("keeper.")) {
        assert!(Instant::now() < end, "{:?}", kept.lock());
        std::thread::yield_now();
    }
}
