//! Servers that are killed, and programs that read meanwhile and notice nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use crate::faulty_server::{FaultyServer, Identity};
use crate::mounts::umount;
use crate::nbd::{end, serve, uri};
use crate::scene::{
    PATIENCE, Running, START, Scene, has_tools, headstart, machine_has, mount, run, wait_until,
};
use crate::service::{server_of, status_of};
use crate::web::remote;

/// Kills the server that says this of itself, and waits until it can take no more clients.
pub(crate) fn kill(status: &Value) {
    let number = status["pid"].as_u64().expect("a process");
    assert_ne!(status["supervisor"], number, "the supervisor is another process");
    let process = Pid::from_raw(number as i32).expect("a process");
    let handle = pidfd_open(process, PidfdFlags::empty()).expect("a handle");
    kill_process(process, Signal::KILL).expect("killed");
    // It is readable when the last thread has ended and left its sockets: until then one could still take a
    // client.
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&patience)).expect("polled");
    assert_eq!(ended, 1, "it does not die");
}

/// The status of the server of `of`, an image or a directory, that so many died before.
pub(crate) fn served_again(of: &str, restarts: u64) -> Value {
    let mut found = Value::Null;
    wait_until("the next server serves", || {
        found = status_of(of).first().cloned().unwrap_or_default();
        found["restarts"] == restarts
    });
    found
}

/// Reads a file in parts, without what the kernel still has of it; `between` comes between two.
fn read_in_parts(path: PathBuf, mut between: impl FnMut(usize)) -> Vec<u8> {
    const PART: usize = 256 << 10;
    let file = fs::File::open(path).expect("opened");
    let mut bytes = vec![0; file.metadata().expect("known").len() as usize];
    for (number, part) in bytes.chunks_mut(PART).enumerate() {
        between(number);
        file.read_exact_at(part, (number * PART) as u64).expect("read on");
    }
    bytes
}

#[test]
fn a_reader_goes_on_when_the_server_is_killed_again_and_again() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 640, 81);
    let dir = scene.folder("dir");
    mount(&scene, &[&scene.arg("cold.hsi"), &dir, "--medium", "flat-10ms-25mbs"]).ok();
    let mut status = server_of(&dir);
    let supervisor = status["supervisor"].clone();
    let read = read_in_parts(scene.path("dir/disk.img"), |number| {
        // Sometimes at once, sometimes when the next one serves: both must do.
        if number % 2 == 1 {
            kill(&status);
            status = served_again(&dir, number.div_ceil(2) as u64);
        }
    });
    assert!(read == disk);
    assert_eq!(status["supervisor"], supervisor);
    assert!(status["restarts"].as_u64() >= Some(3), "{status}");
    umount(&dir);
    scene.wait_until_clean();
}

/// The kernel asks again for what the server had taken that dies (Linux 6.9).
#[test]
fn readers_that_wait_for_the_dead_are_answered_by_the_next() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 640, 82);
    let dir = scene.folder("dir");
    // Each read takes so long that it is under way when the server is killed.
    mount(&scene, &[&scene.arg("cold.hsi"), &dir, "--medium", "flat-300ms-25mbs"]).ok();
    let status = server_of(&dir);
    let readers: Vec<_> = (0..4)
        .map(|number| {
            let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
            std::thread::spawn(move || {
                let mut bytes = vec![0; 8192];
                file.read_exact_at(&mut bytes, number * 600_000).expect("read");
                (number as usize * 600_000, bytes)
            })
        })
        .collect();
    wait_until("a client waits", || {
        server_of(&dir)["store_requests"].as_u64() > status["store_requests"].as_u64()
    });
    kill(&status);
    for reader in readers {
        let (place, bytes) = reader.join().expect("the reader ends");
        assert!(bytes == disk[place..][..bytes.len()], "at {place}");
    }
    served_again(&dir, 1);
    umount(&dir);
    scene.wait_until_clean();
}

/// Has the kernel drop the pages of a file.
fn forget(path: &Path) {
    let file = fs::File::open(path).expect("opened");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
}

#[test]
fn a_mounted_file_system_outlives_its_server() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    mount(&scene, &[&image, &dir, "--fs", &tree, "--medium", "flat-10ms-25mbs"]).ok();
    let program = fs::read("/bin/busybox").expect("read");
    for restarts in 0..3 {
        kill(&served_again(&dir, restarts));
        // The kernel would not ask again for pages that it has. Only these files are dropped; other programs
        // on this machine keep their page cache.
        ["tree/bin/busybox", "dir/disk.img"].into_iter().for_each(|name| forget(&scene.path(name)));
        assert!(fs::read(scene.path("tree/bin/busybox")).expect("read") == program);
        wait_until("the next server was asked", || {
            served_again(&dir, restarts + 1)["demand_bytes"].as_u64() >= Some(program.len() as u64)
        });
        assert_eq!(scene.mounts().len(), 2);
    }
    let status = served_again(&dir, 3);
    assert_eq!(status["fs"], tree.as_str());
    // The last server takes down what the first one had mounted.
    umount(&tree);
    scene.wait_until_clean();
}

/// At any moment of its start: the next server starts from the beginning, and waiting clients notice nothing.
#[test]
fn a_server_that_is_killed_while_it_starts_is_started_again() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    let web = FaultyServer::start(fs::read(&image).expect("the image"), Identity::Tag);
    let name = run(["verify", &image]).ok().stdout.lines().last().expect("a name").to_owned();
    let url = format!("{}#{name}", web.url());
    // Before it knows anything, when it has the superblock, and while it mounts.
    for bytes in [0, 5_000, 70_000] {
        web.pause_after(bytes);
        let words = ["mount", "-f", &url, &dir, "--fs", &tree, "--disk-cache=none", "-v"];
        let mut serving = Running::start_command(remote(&scene, words));
        wait_until("it is in its start", || web.is_paused());
        let server = first_child(serving.id());
        kill_process(Pid::from_raw(server as i32).expect("a process"), Signal::KILL).expect("killed");
        web.go_on();
        // That of the one that was killed is not asked.
        wait_until("it serves", || status_of(&dir).first().is_some_and(|status| status["pid"] != server));
        assert_eq!(fs::read_to_string(scene.path("tree/etc/motd")).expect("read"), "hello from the image\n");
        serving.signal(Signal::TERM);
        while serving.said() != "" {}
        assert!(serving.end().0.success());
        scene.wait_until_clean();
    }
}

/// The server that a supervisor has started.
pub(crate) fn first_child(supervisor: u32) -> u32 {
    let mut found = None;
    wait_until("there is a server", || {
        let path = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        found = children.split(' ').next().and_then(|number| number.parse().ok());
        found.is_some()
    });
    found.expect("a process")
}

/// On a medium that takes a minute for every answer, a server takes long to become ready. An interrupt does
/// not wait for it.
#[test]
fn a_start_that_is_interrupted_leaves_nothing() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    let flags = ["mount", &image, &dir, "--fs", &tree, "--medium", "flat-60000ms-25mbs"];
    for more in [&[][..], &["-f"]] {
        for signal in [Signal::INT, Signal::TERM] {
            let starting = Running::start(flags.iter().chain(more));
            wait_until("there is a server", || {
                let is_server = |pid: &u32| {
                    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                    String::from_utf8_lossy(&line).contains("--supervisor-fd")
                };
                scene.processes().iter().any(is_server)
            });
            starting.signal(signal);
            let (ended, _, said) = starting.end();
            assert_eq!(ended.success(), !more.is_empty(), "{said}");
            assert!(!said.contains("mounted;"), "{said}");
            scene.wait_until_clean();
        }
    }
    assert_eq!(scene.names(), ["dir", "root.hsi", "tree"]);
}

/// From now on the process may have so many, and opens no further ones.
fn limit_descriptors(process: u32, descriptors: u64) {
    let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: 1024 };
    let (process, old) = (process.cast_signed(), std::ptr::null_mut());
    // SAFETY: the limit lives until the call returns; the old one is not asked for.
    let set = unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, &raw const limit, old) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// What the machine lacks for a moment, here descriptors, is no reason to end what is served: its readers
/// wait.
#[test]
fn a_server_that_cannot_be_started_now_is_started_later() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 640, 86);
    let dir = scene.folder("dir");
    let manager = UnixDatagram::bind(scene.path("notify")).expect("bound");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut command = headstart(["mount", "-f", &scene.arg("cold.hsi"), &dir]);
    command.env("NOTIFY_SOCKET", scene.path("notify"));
    let mut serving = Running::start_command(command);
    assert!(serving.said().contains("mounted"));
    // The supervisor says so when it has all that the server hands over: what has no room would be lost.
    let mut ready = [0; 8];
    assert_eq!((manager.recv(&mut ready).expect("told"), &ready), (8, b"READY=1\n"));
    limit_descriptors(serving.id(), 3);
    kill(&server_of(&dir));
    let path = scene.path("dir/disk.img");
    let reader = std::thread::spawn(move || fs::read(path).expect("read"));
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.contains("cannot be started")) {
        said.push(serving.said());
        assert!(said.last().is_some_and(|line| !line.is_empty()), "{said:?}");
    }
    assert!(said.concat().contains("Too many open files"), "{said:?}");
    limit_descriptors(serving.id(), 1024);
    assert!(reader.join().expect("the reader ends") == disk);
    served_again(&dir, 1);
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    scene.wait_until_clean();
}

#[test]
fn without_an_image_the_supervisor_gives_up_and_clears_away() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 320, 83);
    let dir = scene.folder("dir");
    let mut serving = Running::start(["mount", "-f", &scene.arg("cold.hsi"), &dir]);
    assert!(serving.said().contains("mounted"));
    let status = server_of(&dir);
    fs::remove_file(scene.path("cold.hsi")).expect("removed");
    kill(&status);
    let (ended, _, said) = serving.end();
    assert_eq!(ended.code(), Some(1));
    assert!(said.contains("signal 9") && said.contains("cold.hsi") && said.contains("in a row"), "{said}");
    scene.wait_until_clean();
}

#[test]
fn the_next_server_shows_no_image_that_has_replaced_the_first() {
    if !has_tools(&["nbdcopy"]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 320, 86);
    scene.image("other.hsi", 320, 87);
    let (image, copy) = (scene.arg("cold.hsi"), scene.arg("copy"));
    let mut serving = serve(&scene, &[&image]);
    let status = served_again(&image, 0);
    fs::rename(&image, scene.path("first.hsi")).expect("renamed");
    fs::rename(scene.path("other.hsi"), &image).expect("replaced");
    kill(&status);
    loop {
        let said = serving.said();
        assert!(!said.is_empty(), "the supervisor ended");
        if said.contains("cold.hsi: it is another image") {
            break;
        }
    }
    fs::rename(scene.path("first.hsi"), &image).expect("put back");
    let copied =
        Command::new("nbdcopy").args([&uri(&scene, "cold"), &copy]).status().expect("nbdcopy starts");
    assert!(copied.success());
    assert!(fs::read(&copy).expect("read") == disk);
    end(serving);
    scene.wait_until_clean();
}

/// A system with a log has it there; without one, files of messages are all that says it.
#[test]
fn why_a_mount_is_over_stays_in_its_files_of_messages() {
    let scene = Scene::new();
    scene.image("cold.hsi", 320, 88);
    scene.image("other.hsi", 320, 89);
    let (image, dir) = (scene.arg("cold.hsi"), scene.folder("dir"));
    let mounted = run(["mount", "--json", &image, &dir]).ok().json();
    let log = Path::new(mounted["log"].as_str().expect("a name"));
    if !log.is_absolute() {
        umount(&dir);
        assert_eq!(log, Path::new("syslog"), "there are no files where the system has a log");
        return;
    }
    let supervisor = log.with_file_name(format!("{}.log", mounted["supervisor"]));
    fs::rename(scene.path("other.hsi"), &image).expect("replaced");
    kill(&mounted);
    scene.wait_until_clean();
    assert!(fs::read_to_string(&supervisor).expect("it stays").contains("what is served ends here"));
    let logs = fs::read_dir(log.parent().expect("a folder")).expect("listed").flatten();
    let ours = logs.map(|entry| entry.path()).filter(|path| {
        fs::read_to_string(path)
            .is_ok_and(|said| said.contains("it is another image") && said.contains(&image))
    });
    let ours: Vec<PathBuf> = ours.collect();
    assert!(!ours.is_empty());
    ours.iter().chain([&supervisor]).for_each(|file| fs::remove_file(file).expect("removed"));
}

/// What is asked for over HTTP, with further fields.
pub(crate) fn get(address: &str, path: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n{fields}\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn metrics_are_answered_by_whichever_server_serves() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 320, 84);
    let (image, dir) = (scene.arg("cold.hsi"), scene.folder("dir"));
    let mut serving = Running::start(["mount", "-f", &image, &dir, "--metrics", "127.0.0.1:0"]);
    assert!(serving.said().contains("mounted"));
    let said = serving.said();
    let address = said.trim().strip_prefix("metrics at http://").and_then(|url| url.strip_suffix("/metrics"));
    let address = address.expect(&said).to_owned();
    let line = |name: &str| {
        let answer = get(&address, "/metrics", "");
        assert!(answer.contains("application/openmetrics-text"), "{answer}");
        let labels = format!("{{image=\"{image}\",at=\"{dir}\"}} ");
        let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(&labels));
        found.unwrap_or_else(|| panic!("no {name} in {answer}")).parse::<f64>().expect("a number")
    };
    fs::read(scene.path("dir/disk.img")).expect("read");
    // A read is counted when it has been answered, which is a moment before.
    wait_until("all reads are counted", || line("headstart_demand_bytes_total") >= 320.0 * 4096.0);
    assert_eq!(line("headstart_restarts_total"), 0.0);
    kill(&server_of(&dir));
    assert_eq!(line("headstart_restarts_total"), 1.0, "a client waits for the next server");
    let answer = get(&address, "/", "");
    assert!(answer.starts_with("HTTP/1.0 404") || answer.starts_with("HTTP/1.1 404"), "{answer}");
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    scene.wait_until_clean();
    run(["serve", &image, "--nbd", "127.0.0.1:0", "--metrics", "nowhere"]).fails(1, &["nowhere"]);
}

#[test]
fn the_supervisor_of_exports_keeps_their_sockets() {
    let scene = Scene::new();
    let disk = scene.image("cold.hsi", 320, 85);
    let image = scene.arg("cold.hsi");
    let mut serving = Running::start(["serve", &image, "--nbd", "127.0.0.1:0", "--json"]);
    let said = serving.said();
    let uri = said.trim().rsplit(' ').next().expect("an address").to_owned();
    for restarts in 0..3 {
        let status = served_again(&image, restarts);
        assert_eq!(status["nbd"], uri.as_str());
        kill(&status);
        // A client that connects while there is no server waits, and the next server serves it.
        let copy = scene.arg("copy");
        let copied = Command::new("nbdcopy").args([&uri, &copy]).status().expect("nbdcopy starts");
        assert!(copied.success());
        assert!(fs::read(&copy).expect("read") == disk);
    }
    serving.signal(Signal::INT);
    let (ended, printed, _) = serving.end();
    assert!(ended.success());
    let summary: Value = serde_json::from_str(&printed).expect("an object");
    assert!(summary["reads"].as_u64() > Some(0), "{summary}");
    scene.wait_until_clean();
}
