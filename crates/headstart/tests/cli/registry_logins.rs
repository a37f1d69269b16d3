//! Logins of registries, and other hosts that must not get them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::Signal;

use crate::registry::{REGISTRY, Registry, place, program, run_here};
use crate::scene::{Ran, Running, Scene, has_tools, machine_has};
use crate::tokens::{self, Tokens};
use crate::web::remote;

const PASSWORD: &str = "pa55-w0rd-secret";
/// `alice:` and the password, as they go over the wire.
const ENCODED: &str = "YWxpY2U6cGE1NS13MHJkLXNlY3JldA==";
const IDENTITY: &str = "refresh-token-secret";

/// A server with given answers that records its requests.
struct Host {
    port: u16,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Host {
    /// `answer` gets a request's first line.
    fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        Self::start_with(move |request| answer(request.lines().next().unwrap_or_default()))
    }

    /// `answer` gets a whole request.
    fn start_with(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(request) = request(&client) else { continue };
                let reply = answer(&request);
                requests.lock().expect("sound").push(request);
                let _ = (&client).write_all(reply.as_bytes());
            }
        });
        Self { port, sent }
    }

    /// Everything that it was sent.
    fn sent(&self) -> String {
        self.sent.lock().expect("sound").concat()
    }
}

fn request(client: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(client);
    let (mut head, mut body_bytes) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            body_bytes = length.trim().parse().ok()?;
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; body_bytes];
    reader.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body) + "\n")
}

fn reply(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn wants_token(realm: &str) -> String {
    reply("401 Unauthorized", &format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"s\"\r\n"), "")
}

/// Reads an image of the registry at this port, with a login for it.
fn read_with(scene: &Scene, registry: u16, login: &str, realms: Option<&str>) -> Ran {
    let address = format!("oci+http://127.0.0.1:{registry}/demo");
    ask_with(scene, &["inspect", &address, "--disk-cache=cache"], registry, login, realms)
}

/// Runs a command with a login for the registry at this port.
fn ask_with(scene: &Scene, words: &[&str], registry: u16, login: &str, realms: Option<&str>) -> Ran {
    fs::create_dir_all(scene.path("home/.docker")).expect("a folder");
    let login =
        if login.is_empty() { String::new() } else { format!(r#""127.0.0.1:{registry}":{{{login}}}"#) };
    let text = format!(r#"{{"auths":{{{login}}}}}"#);
    fs::write(scene.path("home/.docker/config.json"), text).expect("written");
    let mut command: Command = remote(scene, words);
    for name in ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", scene.path("home"));
    command.envs(realms.map(|realms| ("HEADSTART_REGISTRY_REALMS", realms)));
    command.output().expect("the program starts").into()
}

fn password() -> String {
    format!(r#""username":"alice","password":"{PASSWORD}""#)
}

/// The registry answers, and what the user reads must not say that it does not.
#[test]
fn a_token_server_that_is_away_is_named() {
    let scene = Scene::new();
    let place = place();
    let away = place.local_addr().expect("an address").to_string();
    let realm = format!("http://{away}/token");
    let registry = Host::start(move |_| wants_token(&realm));
    let ran = read_with(&scene, registry.port, "", None);
    ran.fails(1, &[&format!("its token server {away}: no connection")]);
}

#[test]
fn reads_that_are_given_up_name_the_token_server_that_is_away() {
    if !machine_has(&[]) || !has_tools(&[&[REGISTRY], tokens::TOOLS].concat()) {
        return;
    }
    let scene = Scene::new();
    scene.image("big.hsi", 2_000, 5);
    let registry = Registry::start(&scene, false);
    let (url, dir) = (registry.url("tiny:t"), scene.folder("dir"));
    run_here(&scene, &["push", &scene.arg("big.hsi"), &url]).ok();
    let mut tokens = Tokens::start(&scene, 2);
    let registry = registry.again_with_tokens(&scene, &tokens);
    let words = ["mount", "-f", &url, &dir, "--disk-cache=none", "--prefetch", "off", "--read-timeout", "4"];
    let mut mounted = Running::start_command(program(&scene, &words));
    while !mounted.said().contains("mounted") {}
    tokens.wait_until_expired(registry.port);
    tokens.kill();
    let file = fs::File::open(scene.path("dir/disk.img")).expect("opened");
    file.read_exact_at(&mut [0; 4096], 1_000 * 4096).expect_err("it is given up");
    drop(file);
    mounted.signal(Signal::TERM);
    let (code, _, said) = mounted.end();
    assert!(code.success(), "{said}");
    let away = format!("s (its token server 127.0.0.1:{}: no connection", tokens.port());
    let lines = said.lines().filter(|line| line.contains("no answer from oci") && line.contains(&away));
    // When it begins to wait, which may be told in one word or the other, and at the end.
    assert!(lines.clone().any(|line| line.contains("wait")), "{said}");
    assert!(lines.clone().any(|line| line.ends_with(": reads are given up")), "{said}");
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn a_host_behind_a_redirect_is_told_no_login() {
    let scene = Scene::new();
    let elsewhere = Host::start(|line| match line.contains("/token") {
        true => reply("200 OK", "", r#"{"token":"abc"}"#),
        false => {
            let (_, place) = line.split_once("realm=").expect("it was redirected with its own address");
            wants_token(&format!("http://{}/token", place.split(' ').next().unwrap_or_default()))
        }
    });
    let place = format!("127.0.0.1:{}", elsewhere.port);
    let there = place.clone();
    let registry = Host::start(move |_| {
        reply("307 Temporary Redirect", &format!("Location: http://{there}/m?realm={there}\r\n"), "")
    });
    let ran = read_with(&scene, registry.port, &password(), None);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let sent = elsewhere.sent();
    assert!(sent.contains("GET /m?realm="), "it was not even asked: {sent}");
    assert!(!sent.to_lowercase().contains("authorization") && !sent.contains("/token"), "{sent}");
}

#[test]
fn a_login_is_told_to_another_host_only_where_the_user_says_so() {
    let scene = Scene::new();
    let realm = Host::start(|_| reply("200 OK", "", r#"{"token":"abc"}"#));
    // Another name, and so another host, on this machine.
    let place = format!("http://localhost:{}/token", realm.port);
    let registry = Host::start(move |_| wants_token(&place));
    let ran = read_with(&scene, registry.port, &password(), None);
    ran.fails(1, &["localhost", "another host", "HEADSTART_REGISTRY_REALMS"]);
    assert_eq!(realm.sent(), "");
    // The registry refuses the token that comes of it, but that is another matter.
    read_with(&scene, registry.port, &password(), Some("x=y, 127.0.0.1=localhost")).fails(1, &["refuses"]);
    assert!(realm.sent().contains(ENCODED), "{}", realm.sent());
}

#[test]
fn a_refresh_token_goes_where_it_is_sent_and_no_further() {
    let scene = Scene::new();
    let elsewhere = Host::start(|_| reply("200 OK", "", r#"{"token":"abc"}"#));
    let further = format!("Location: http://127.0.0.1:{}/token\r\n", elsewhere.port);
    let realm = Host::start(move |_| reply("307 Temporary Redirect", &further, ""));
    let place = format!("http://127.0.0.1:{}/token", realm.port);
    let registry = Host::start(move |_| wants_token(&place));
    let login = format!(r#""username":"<token>","identitytoken":"{IDENTITY}","auth":"PHRva2VuPjo=""#);
    read_with(&scene, registry.port, &login, None).fails(1, &["a token", "307"]);
    assert!(realm.sent().contains(IDENTITY), "the realm was not asked: {}", realm.sent());
    assert_eq!(elsewhere.sent(), "");
}

/// A registry that any client may read, and that wants a login for the first POST: by these fields, with a
/// token or by `Basic`.
fn writable(challenges: impl Fn(u16) -> String + Send + 'static, token: Option<&'static str>) -> Host {
    let port = Arc::new(Mutex::new(0));
    let own = Arc::clone(&port);
    let registry = Host::start_with(move |request| {
        let port = *own.lock().expect("sound");
        let (method, place) = request.split_once(' ').expect("a request");
        let mut proofs = request.lines().filter_map(|line| line.split_once(": "));
        let mut proofs = proofs.by_ref().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let is_proven = proofs.any(|(_, proof)| match token {
            Some(token) => proof == format!("Bearer {token}"),
            None => proof == format!("Basic {ENCODED}"),
        });
        match method {
            "GET" if place.starts_with("/token") => match token {
                Some(token) => reply("200 OK", "", &format!(r#"{{"token":"{token}"}}"#)),
                None => reply("404 Not Found", "", ""),
            },
            "GET" | "HEAD" => reply("404 Not Found", "", ""),
            _ if !is_proven => reply("401 Unauthorized", &challenges(port), ""),
            "POST" => reply("202 Accepted", "Location: /upload\r\n", ""),
            "PATCH" => reply("202 Accepted", "", ""),
            _ => reply("201 Created", "", ""),
        }
    });
    *port.lock().expect("sound") = registry.port;
    registry
}

#[test]
fn basic_is_used_where_tokens_cannot_be_had_and_tokens_where_they_can() {
    let scene = Scene::new();
    scene.image("a.hsi", 20, 207);
    let bearer = |port: u16| format!("Bearer realm=\"http://127.0.0.1:{port}/token\",service=\"s\"");
    let basic = "Basic realm=\"r\"";
    let two_fields =
        move |port| format!("WWW-Authenticate: {basic}\r\nWWW-Authenticate: {}\r\n", bearer(port));
    let one_field = move |port| format!("WWW-Authenticate: {}, {basic}\r\n", bearer(port));
    let only_basic = move |_| format!("WWW-Authenticate: {basic}\r\n");
    let broken = move |_| format!("WWW-Authenticate: Bearer realm=x:\"\r\nWWW-Authenticate: {basic}\r\n");
    let push = |registry: &Host, login: &str| {
        let address = format!("oci+http://127.0.0.1:{}/demo", registry.port);
        let image = scene.arg("a.hsi");
        let words = ["push", &image, &address, "--upload-state=state"];
        ask_with(&scene, &words, registry.port, login, None)
    };
    for (number, registry) in [
        writable(two_fields, None),
        writable(one_field, None),
        writable(only_basic, None),
        writable(broken, None),
    ]
    .iter()
    .enumerate()
    {
        push(registry, &password()).ok();
        let sent = registry.sent();
        assert!(sent.contains("POST /v2/demo/blobs/uploads/"), "{number}: {sent}");
        assert!(sent.to_lowercase().contains("authorization: basic"), "{number}: {sent}");
        // Who has no login is told to log in, not what a token server says.
        push(registry, "").fails(1, &["wants a login"]);
        // A file that is damaged is not the same as none.
        push(registry, "{").fails(1, &["wants a login", "config.json", "docker login"]);
    }
    for registry in [writable(two_fields, Some("t0ken")), writable(one_field, Some("t0ken"))] {
        push(&registry, &password()).ok();
        let sent = registry.sent();
        let mut basics = sent.split("\r\n\r\n").filter(|head| head.contains(ENCODED));
        // The password goes to the token server only.
        assert!(basics.all(|head| head.contains("GET /token?")), "{sent}");
    }
}
