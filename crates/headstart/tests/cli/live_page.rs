//! The live page of `serve` and `mount`, asked as a browser asks, and as it must not be.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::scene::{Ran, Running, START, Scene, headstart, machine_has, run, wait_until};

/// The built page, as far as the program knows it.
const TEMPLATE: &str = "<html><meta content=\"default-src 'none'; x\"><script id=\"data\" \
                        type=\"application/json\">null</script></html>";

fn template(scene: &Scene) -> String {
    fs::write(scene.path("page.html"), TEMPLATE).expect("written");
    scene.arg("page.html")
}

/// Where a page is: `HOST:PORT` and the path with the secret.
struct LivePage {
    host: String,
    path: String,
}

impl LivePage {
    fn of(url: &str) -> Self {
        let rest = url.trim().rsplit("http://").next().expect("an address");
        let (host, path) = rest.split_once('/').expect("a path");
        Self { host: host.to_owned(), path: format!("/{path}") }
    }

    /// The whole answer to these bytes; nothing from a server that does not answer.
    fn say(&self, request: &str) -> String {
        let mut answer = Vec::new();
        let said = TcpStream::connect(&self.host).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_end(&mut answer)
        });
        let _ = said;
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str, host: &str) -> String {
        self.say(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    /// The feed, from this change on.
    fn feed(&self, query: &str) -> Option<Value> {
        let answer = self.get(&format!("{}feed?{query}", self.path), &self.host);
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// A server of an image's file, and where file and page are.
fn serve(scene: &Scene) -> (Running, LivePage, LivePage) {
    let image = scene.arg("a.hsi");
    let mut command = headstart(["serve", &image, "--http", "127.0.0.1:0", "--ui", "0"]);
    let mut running = Running::start_command({
        command.env("HEADSTART_REPORT_UI", template(scene));
        command
    });
    let file = LivePage::of(&running.said());
    let line = running.said();
    assert!(line.starts_with("live page at http://127.0.0.1:"), "{line}");
    (running, file, LivePage::of(&line))
}

#[test]
fn the_page_shows_what_clients_get_and_only_to_its_user() {
    let scene = Scene::new();
    scene.image("a.hsi", 500, 1);
    let (server, file, page) = serve(&scene);
    let shown = page.get(&page.path, &page.host);
    assert_eq!(status(&shown), "200", "{shown}");
    assert!(
        shown.contains(r#"{"live":1}"#) && shown.contains("default-src 'none'; connect-src 'self';"),
        "{shown}"
    );
    for header in [
        "cross-origin-resource-policy: same-origin",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "frame-ancestors 'none'",
    ] {
        assert!(shown.contains(header), "no {header}: {shown}");
    }
    assert!(!shown.contains("access-control"), "{shown}");

    let before = page.feed("").expect("a feed");
    assert!(before["map"]["states"].is_string() && before["is_file"] == true, "{before}");
    assert_eq!(before["classes"][0]["requests"], 0.0, "{before}");
    let next = before["map"]["next"].as_f64().expect("a number");
    let range = "Range: bytes=0-99999\r\n";
    let got = file.say(&format!("GET {} HTTP/1.1\r\nHost: x\r\n{range}Connection: close\r\n\r\n", file.path));
    assert_eq!(status(&got), "206");
    let query = format!("image=0&server={}&from={next}", before["server"].as_str().expect("a name"));
    let after = page.feed(&query).expect("a feed");
    assert!(after["map"]["states"].is_null(), "only what has changed: {after}");
    let sum = |key: &str| -> f64 {
        after["map"][key].as_array().into_iter().flatten().filter_map(Value::as_f64).sum()
    };
    assert_eq!(sum("count"), 25.0, "100,000 bytes lie in 25 blocks: {after}");
    assert_eq!(after["classes"][0]["bytes"], 100_000.0, "{after}");
    assert!(after["clients"]["connections"].as_f64() > Some(0.0), "{after}");

    let secret = page.path.trim_matches('/').to_owned();
    assert_eq!(secret.len(), 32);
    let last = if secret.ends_with('0') { '1' } else { '0' };
    let wrong = format!("{}{last}", &secret[..31]);
    for path in ["/", "/feed", "/x/feed", &format!("/{wrong}/"), &format!("/{secret}"), "/a.hsi", "//"] {
        let answer = page.get(path, &page.host);
        assert_eq!(status(&answer), "404", "{path}: {answer}");
    }
    let port = page.host.rsplit(':').next().expect("a port");
    for host in
        ["evil.example", &format!("evil.example:{port}"), &format!("127.0.0.1.evil.example:{port}"), ""]
    {
        let answer = page.get(&page.path, host);
        assert_eq!(status(&answer), "403", "{host}: {answer}");
    }
    assert_eq!(status(&page.get(&page.path, &format!("localhost:{port}"))), "200");
    let hosts = format!("Host: {}\r\nHost: {}", page.host, page.host);
    let twice = page.say(&format!("GET {} HTTP/1.1\r\n{hosts}\r\nConnection: close\r\n\r\n", page.path));
    assert_eq!(status(&twice), "400", "{twice}");
    let post = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        page.path, page.host
    );
    assert_eq!(status(&page.say(&post)), "405");
    assert_eq!(status(&page.say("no HTTP at all\r\n\r\n")), "400");
    for strange in ["image=99&from=-1", "from=99999999999999999999", "&&=&%00", &"x".repeat(5000)] {
        assert!(page.feed(strange).is_some_and(|feed| feed["map"]["states"].is_string()), "{strange}");
    }
    server.signal(Signal::INT);
    let (code, _, said) = server.end();
    assert_eq!(code.code(), Some(0), "{said}");
    assert!(!said.contains(&secret), "the secret is told once: {said}");
}

#[test]
fn the_page_goes_on_with_the_next_server() {
    let scene = Scene::new();
    scene.image("a.hsi", 100, 2);
    let (server, file, page) = serve(&scene);
    let before = page.feed("").expect("a feed");
    let all = run(["status", "--json"]).ok().json();
    let all = all["mounts"].as_array().cloned().unwrap_or_default();
    let is_it = |one: &&Value| one["nbd"].as_str().is_some_and(|at| at.contains(&file.host));
    let pid = all.iter().find(is_it).expect("told of")["pid"].as_i64().expect("a process") as i32;
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("killed");
    let query = format!("server={}&from=0", before["server"].as_str().expect("a name"));
    let mut after = None;
    wait_until("the next server shows the page", || {
        after = page.feed(&query).filter(|feed| feed["server"] != before["server"]);
        after.is_some()
    });
    assert!(after.expect("a feed")["map"]["states"].is_string(), "another server has another map");
    server.signal(Signal::TERM);
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn without_a_page_the_server_does_not_begin() {
    let scene = Scene::new();
    scene.image("a.hsi", 10, 3);
    let mut command =
        headstart(["serve", &scene.arg("a.hsi"), "--http", "127.0.0.1:0", "--ui", "0", "--unsupervised"]);
    let ran: Ran = command.env("HEADSTART_REPORT_UI", scene.arg("none")).output().expect("it runs").into();
    ran.fails(1, &["read", "none"]);
    let mut command =
        headstart(["serve", &scene.arg("a.hsi"), "--http", "127.0.0.1:0", "--ui", "x:y:z", "--unsupervised"]);
    let ran: Ran = command.env("HEADSTART_REPORT_UI", template(&scene)).output().expect("it runs").into();
    ran.fails(1, &["listen for the live page at x:y:z"]);
}

/// A mount says its page, shows what is read of it, and writes its trace when it ends.
#[test]
fn a_mount_has_a_page_and_a_trace() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (disk, fs_folder, trace) = (scene.folder("disk"), scene.folder("fs"), scene.arg("trace.csv"));
    let mut command =
        headstart(["mount", &image, &disk, "--fs", &fs_folder, "--ui", "127.0.0.1:0", "--json"]);
    command.args(["--trace", &trace, "--emulate", "flat-10ms-25mbs", "--foreground"]);
    command.env("HEADSTART_REPORT_UI", template(&scene));
    let mut server = Running::start_command(command);
    let ready = server.printed_json();
    let page = LivePage::of(ready["ui"].as_str().expect("an address"));
    let before = page.feed("").expect("a feed");
    assert_eq!(
        (&before["is_file"], &before["medium"]),
        (&false.into(), &"flat-10ms-25mbs".into()),
        "{before}"
    );
    let motd = fs::read_to_string(scene.path("fs/etc/motd")).expect("read");
    assert_eq!(motd, "hello from the image\n");
    let query = format!(
        "server={}&from={}",
        before["server"].as_str().expect("a name"),
        before["map"]["next"].as_f64().expect("a number")
    );
    let after = page.feed(&query).expect("a feed");
    assert!(after["waits"]["reads"].as_f64() > before["waits"]["reads"].as_f64(), "{after}");
    assert!(after["map"]["first"].as_array().is_some_and(|first| !first.is_empty()), "{after}");
    server.signal(Signal::INT);
    let (code, _, said) = server.end();
    assert_eq!(code.code(), Some(0), "{said}");
    assert!(page.feed("").is_none(), "it ends with its server");
    let text = fs::read_to_string(&trace).expect("a trace");
    assert!(text.starts_with("# {") && text.lines().any(|line| line.contains(",demand,")), "{text}");
    run(["report", &trace, &image, "-o", &scene.arg("r.json")]).ok();
    scene.wait_until_clean();
}
