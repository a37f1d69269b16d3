//! What servers give up before they answer a client.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::scene::{Running, Scene, machine_has, mount, run, wait_until};
use crate::web::{NGINX, Nginx, remote};

/// Numbers of capabilities: capability(7), linux/capability.h.
const NET_BIND_SERVICE: u64 = 1 << 10;
const IPC_LOCK: u64 = 1 << 14;
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;

/// What a process's threads are held to, as proc_pid_status(5) tells: it must be the same of each.
#[derive(Debug)]
struct Held {
    capabilities: u64,
    bounding: u64,
    no_new_privs: bool,
    filtered: bool,
    filters: u64,
}

fn held(process: u64) -> Vec<Held> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let of_thread = |entry: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(entry.ok()?.path().join("status")).ok()?;
        let word = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            value.trim_start_matches(':').trim().to_owned()
        };
        let set = |name: &str| u64::from_str_radix(&word(name), 16).expect("a set");
        assert_eq!(set("CapPrm") | set("CapInh") | set("CapAmb"), set("CapEff"), "{status}");
        Some(Held {
            capabilities: set("CapEff"),
            bounding: set("CapBnd"),
            no_new_privs: word("NoNewPrivs") == "1",
            filtered: word("Seccomp") == "2",
            // Linux 5.9.
            filters: word("Seccomp_filters").parse().expect("a number"),
        })
    };
    threads.filter_map(of_thread).collect()
}

fn check(process: u64, kept: u64) {
    let threads = held(process);
    assert!(threads.len() > 1, "a server has threads");
    for held in threads {
        assert_eq!((held.capabilities & !kept, held.bounding & !kept), (0, 0), "{held:x?}");
        assert!(held.no_new_privs && held.filtered, "{held:x?}");
    }
}

fn server(of: &str) -> u64 {
    let mut process = 0;
    wait_until("the server says who it is", || {
        let ran = run(["status", "--json", of]);
        process =
            if ran.code == Some(0) { ran.json()["mounts"][0]["pid"].as_u64().expect("a number") } else { 0 };
        process != 0
    });
    process
}

fn kill(process: u64) {
    let pid = rustix::process::Pid::from_raw(process as i32).expect("a process");
    rustix::process::kill_process(pid, Signal::KILL).expect("killed");
}

#[test]
fn servers_for_the_network_keep_nothing_that_they_do_not_need() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 300, 4);
    let (image, socket) = (scene.arg("a.hsi"), scene.arg("s.sock"));
    let nbd = format!("unix:{socket}");
    let log = scene.arg("access.log");
    let words = ["serve", &image, "--nbd", &nbd, "--http", "127.0.0.1:0", "--access-log", &log];
    let mut serving = Running::start(words);
    let said = serving.said();
    let url = said.split(" served at ").nth(1).expect("an address").trim().to_owned();
    wait_until("it is said all", || serving.said().contains("Ctrl-C"));
    let kept = NET_BIND_SERVICE | IPC_LOCK | DAC_READ_SEARCH | SYS_RESOURCE;
    let first = server(&image);
    check(first, kept);
    // What only the beginning takes is refused as well, in all threads.
    assert!(held(first).iter().all(|held| held.filters == 2), "{:x?}", held(first));
    // It serves nevertheless, and so does the next one, which opens everything anew.
    let read = || {
        let _ = fs::remove_file(scene.path("out.raw"));
        let words = ["export", &url, "-o", &scene.arg("out.raw"), "--format", "raw", "--disk-cache=none"];
        run(words).ok();
        assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
        let uri = format!("nbd+unix:///?socket={socket}");
        let mut copy = Command::new("nbdcopy");
        let ran = copy.args([&uri, &scene.arg("nbd.raw")]).output().expect("nbdcopy starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert!(fs::read(scene.path("nbd.raw")).expect("copied") == disk);
    };
    read();
    kill(first);
    wait_until("the next server is there", || server(&image) != first);
    check(server(&image), kept);
    read();
    assert!(fs::read_to_string(scene.path("access.log")).expect("a log").contains("GET"));
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    assert!(!scene.path("s.sock").exists(), "it removes its socket");
}

/// Names of hosts are looked up in files that a confined server does not open.
#[test]
fn servers_listen_at_names_of_hosts() {
    if !has_landlock() {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 30, 5);
    let name = run(["verify", &scene.arg("a.hsi")]).ok().stdout.lines().last().expect("a name").to_owned();
    let at = "localhost:0";
    let words = ["serve", &scene.arg("a.hsi"), "--nbd", at, "--http", at, "--metrics", at];
    let mut serving = Running::start(words);
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.contains("Ctrl-C")) {
        said.push(serving.said());
        assert!(said.last().is_some_and(|line| !line.is_empty()), "it ended: {said:?}");
    }
    let after = |words: &str| {
        let mut found = said.iter().filter_map(|line| line.split_once(words));
        found.next().map(|(_, address)| address.trim().to_owned()).unwrap_or_else(|| panic!("{said:?}"))
    };
    // What is printed is what a client needs.
    let url = format!("http://{}", after(" served at http://"));
    assert!(url.ends_with(&format!("/a.hsi#{name}")), "{url}");
    run(["export", &url, "-o", &scene.arg("out.raw"), "--format", "raw", "--disk-cache=none"]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    for address in [after(" served at nbd://"), after("metrics at http://")] {
        let host = address.split('/').next().expect("a host");
        std::net::TcpStream::connect(host).expect("it listens");
    }
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
}

#[test]
fn servers_of_mounts_keep_what_mounting_takes() {
    if !machine_has(crate::scene::START) {
        return;
    }
    let scene = Scene::new();
    let (image, dir, tree) = (scene.root("root.hsi"), scene.folder("dir"), scene.folder("tree"));
    mount(&scene, &[&image, &dir, "--fs", &tree]).ok();
    let kept = SYS_ADMIN | SYS_RESOURCE | IPC_LOCK | DAC_READ_SEARCH | DAC_OVERRIDE;
    let first = server(&dir);
    check(first, kept);
    kill(first);
    wait_until("the next server is there", || server(&dir) != first);
    check(server(&dir), kept);
    assert_eq!(fs::read_to_string(scene.path("tree/etc/motd")).expect("read"), "hello from the image\n");
    let pid = rustix::process::Pid::from_raw(server(&dir) as i32).expect("a process");
    rustix::process::kill_process(pid, Signal::TERM).expect("told to end");
    // It unmounts by itself.
    scene.wait_until_clean();
}

/// Landlock is not shown in /proc. A confined server cannot open what was not named when it began: here
/// chunks that it would find by a link in its cache. So it fetches them again.
#[test]
fn a_confined_server_opens_only_what_was_named() {
    if !machine_has(&[NGINX]) || !has_landlock() {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("made.hsi", 600, 7);
    fs::create_dir_all(scene.path("www")).expect("a folder");
    fs::rename(scene.path("made.hsi"), scene.path("www/a.hsi")).expect("published");
    let nginx = Nginx::start(&scene, "");
    let url = nginx.url("a.hsi");
    let read = || {
        let before = nginx.answered().len();
        let socket = scene.arg("s.sock");
        let nbd = format!("unix:{socket}");
        let words = ["serve", &url, "--nbd", &nbd, "--disk-cache=cache"];
        let mut serving = Running::start_command(remote(&scene, words));
        wait_until("it is said all", || serving.said().contains("Ctrl-C"));
        let uri = format!("nbd+unix:///?socket={socket}");
        let ran =
            Command::new("nbdcopy").args([&uri, &scene.arg("nbd.raw")]).output().expect("nbdcopy starts");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        assert!(fs::read(scene.path("nbd.raw")).expect("copied") == disk);
        serving.signal(Signal::TERM);
        assert!(serving.end().0.success());
        nginx.wait_answered(before + 1)[before..].iter().map(|(_, bytes, _)| bytes).sum::<u64>()
    };
    let (first, second) = (read(), read());
    assert!(first > 500_000 && second <= 4096, "the cache works: {first} and {second} bytes");
    fs::create_dir(scene.path("outside")).expect("a folder");
    fs::rename(scene.path("cache/chunks"), scene.path("outside/chunks")).expect("moved");
    std::os::unix::fs::symlink(scene.path("outside/chunks"), scene.path("cache/chunks")).expect("a link");
    let third = read();
    assert!(third > 500_000, "it read what it had no business with: {third} bytes fetched");
}

/// Whether the kernel enforces it; where nothing says, the program's own word is not asked.
fn has_landlock() -> bool {
    // SAFETY: with no attributes and this flag the call only gives a number: landlock_create_ruleset(2).
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    if version < 1 {
        use std::io::Write;
        assert!(std::env::var_os("CI").is_none(), "cannot run this test in CI: the kernel has no Landlock");
        let _ = writeln!(std::io::stderr(), "SKIPPED: the kernel has no Landlock");
    }
    version >= 1
}
