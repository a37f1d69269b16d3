//! Secrets of addresses stay in the process that got them, and hostile texts stay text.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::Signal;

use crate::filling_folder::FillingFolder;
use crate::scene::{Running, Scene, headstart, machine_has, run, wait_until};
use crate::web::{NGINX, Nginx, remote, run_remote};

const LOGIN: &str = "alice:pw123";
const SIGNATURE: &str = "sig456";

/// What every user of this machine may read of these processes; read as `nobody`.
fn shown_to_others(scene: &Scene) -> Vec<String> {
    let lines = scene.processes().into_iter().map(|process| {
        let mut cat = std::process::Command::new("cat");
        cat.arg(format!("/proc/{process}/cmdline")).uid(65534).gid(65534).stdin(Stdio::null());
        let line = cat.output().expect("cat starts").stdout;
        String::from_utf8_lossy(&line).replace('\0', " ")
    });
    lines.collect()
}

/// An image at a server, and an address of it with a login and a signature.
fn published(scene: &Scene) -> (Nginx, String, Vec<u8>) {
    let disk = scene.image("made.hsi", 600, 7);
    fs::create_dir_all(scene.path("www")).expect("a folder");
    fs::rename(scene.path("made.hsi"), scene.path("www/a.hsi")).expect("published");
    let nginx = Nginx::start(scene, "");
    let url = nginx.url("a.hsi").replace("http://", &format!("http://{LOGIN}@"));
    (nginx, format!("{url}?X-Amz-Signature={SIGNATURE}"), disk)
}

fn check(scene: &Scene, processes: usize) {
    let lines = shown_to_others(scene);
    let ours: Vec<_> = lines.iter().filter(|line| line.contains("a.hsi")).collect();
    assert!(ours.len() >= processes, "at least {processes} processes: {lines:?}");
    for line in lines {
        assert!(!line.contains("pw123") && !line.contains(SIGNATURE), "{line}");
    }
}

#[test]
fn servers_and_supervisors_show_no_secrets_of_addresses() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (_nginx, url, disk) = published(&scene);
    let dir = scene.folder("dir");
    // In the background: a supervisor and a server.
    let mut command = remote(&scene, ["mount", &url, &dir, "--disk-cache=cache"]);
    let ran = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("started");
    assert!(ran.success());
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
    check(&scene, 2);
    // The next server gets them as well.
    let status = run_remote(&scene, &["status", "--json", &dir]).ok().json();
    let server = status["mounts"][0]["pid"].as_i64().expect("a number");
    let pid = rustix::process::Pid::from_raw(server as i32).expect("one");
    rustix::process::kill_process(pid, Signal::KILL).expect("killed");
    wait_until("the next server says how it is", || {
        let ran = run_remote(&scene, &["status", "--json", &dir]);
        ran.code == Some(0) && ran.json()["mounts"][0]["restarts"] == 1
    });
    check(&scene, 2);
    rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).expect("unmounted");
    wait_until_unserved(&scene);

    // In the foreground the supervisor is the process that got them.
    let command = remote(&scene, ["mount", "--foreground", &url, &dir, "--disk-cache=cache"]);
    let mut mounted = Running::start_command(command);
    wait_until("it is mounted", || mounted.said().contains("mounted"));
    check(&scene, 2);
    mounted.signal(Signal::INT);
    assert!(mounted.end().0.success());
    wait_until_unserved(&scene);
}

/// The web server goes on.
fn wait_until_unserved(scene: &Scene) {
    wait_until("no server and no supervisor is left", || {
        scene.mounts().is_empty() && shown_to_others(scene).iter().all(|line| !line.contains("a.hsi"))
    });
}

#[test]
fn a_guard_and_its_server_show_no_secrets_of_addresses() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let Some(folder) = FillingFolder::new() else { return };
    let scene = Scene::new();
    let (_nginx, url, disk) = published(&scene);
    let name = scene.path("").file_name().expect("a name").to_string_lossy().into_owned();
    let file = folder.path().join(format!("{name}-a.hsi.img")).display().to_string();
    let flags = ["attach", &url, &file, "--no-hydrate", "--no-prefetch", "--disk-cache=cache"];
    let mut command = remote(&scene, flags);
    let ran = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("started");
    assert!(ran.success());
    let lines: Vec<_> = shown_to_others(&scene).into_iter().chain(shown_by_name(&file)).collect();
    assert!(lines.iter().filter(|line| line.contains(&file)).count() >= 2, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("pw123") && !line.contains(SIGNATURE)), "{lines:?}");
    run_remote(&scene, &["hydrate", &file]).ok();
    assert!(fs::read(&file).expect("read") == disk);
}

/// Command lines of processes with this file among their arguments.
fn shown_by_name(file: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(file)).collect()
}

#[test]
fn addresses_are_read_from_files() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (_nginx, url, disk) = published(&scene);
    fs::write(scene.path("address"), format!("{url}\n")).expect("written");
    let export = |word: &str| {
        let flags = ["export", word, "-o", "out.raw", "--format", "raw", "--disk-cache=none"];
        run_remote(&scene, &flags)
    };
    export("@address").ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    export("@missing").fails(2, &["missing", "No such file"]);
    fs::write(scene.path("empty"), "\n").expect("written");
    export("@empty").fails(2, &["empty"]);
}

/// Whether the text has control characters for a terminal.
fn acts_on_terminals(text: &str) -> bool {
    text.chars().any(|letter| letter.is_control() && !"\n\t".contains(letter) || letter == '\u{202e}')
}

#[test]
fn escapes_of_a_hostile_signature_are_shown_and_not_acted_on() {
    let scene = Scene::new();
    run(["keygen", &scene.arg("k")]).ok();
    scene.image("a.hsi", 40, 1);
    let image = scene.arg("a.hsi");
    run(["sign", &image, "--key", &scene.arg("k.key")]).ok();
    let signature = scene.path("a.hsi.minisig");
    let text = fs::read_to_string(&signature).expect("signed");
    let hostile = "date:\x1b]0;PWNED\x07\x1b[2J\x1b[1;31mheadstart: signature is good\u{9b}0m\u{202e}";
    let at = text.rfind("date:").expect("a date");
    let rest = &text[at + text[at..].find(['\t', '\n']).expect("an end")..];
    fs::write(&signature, format!("{}{hostile}{rest}", &text[..at])).expect("changed");
    let ran = run(["verify", &image, "--key", &scene.arg("k.pub")]);
    ran.fails(1, &["PWNED"]);
    assert!(!acts_on_terminals(&ran.stderr), "{:?}", ran.stderr);
    assert!(ran.stderr.contains("\\u{1b}]0;PWNED\\u{7}"), "{:?}", ran.stderr);
}

#[test]
fn what_a_server_says_is_shown_and_not_acted_on() {
    // A server that answers everything with a redirect to nowhere, in words of its own.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            use std::io::{BufRead, BufReader, Write};
            let mut lines = BufReader::new(&stream).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let body = "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
                \"config\":{\"mediaType\":\"application/vnd.oci.empty.v1+json\",\"digest\":\"x\",\"size\":2},\
                \"layers\":[{\"mediaType\":\"application/vnd.headstart.image.v1\",\
                \"digest\":\"\\u001b]0;PWNED\\u0007\\nheadstart: all is well\",\"size\":1}]}";
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = (&stream).write_all([head.as_bytes(), body.as_bytes()].concat().as_slice());
        }
    });
    let url = format!("oci+http://{address}/images/a:1");
    let ran: crate::scene::Ran =
        headstart(["inspect", &url, "--disk-cache=none"]).output().expect("started").into();
    ran.fails(1, &["PWNED"]);
    assert!(!acts_on_terminals(&ran.stderr), "{:?}", ran.stderr);
    assert!(!ran.stderr.lines().any(|line| line.starts_with("headstart: all is well")), "{:?}", ran.stderr);
}
