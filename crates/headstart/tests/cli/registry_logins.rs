//! Logins of registries, and other hosts that must not get them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::scene::{Ran, Scene};
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
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(request) = request(&client) else { continue };
                let reply = answer(request.lines().next().unwrap_or_default());
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
    fs::create_dir_all(scene.path("home/.docker")).expect("a folder");
    let text = format!(r#"{{"auths":{{"127.0.0.1:{registry}":{{{login}}}}}}}"#);
    fs::write(scene.path("home/.docker/config.json"), text).expect("written");
    let address = format!("oci+http://127.0.0.1:{registry}/demo");
    let mut command: Command = remote(scene, ["inspect", &address, "--disk-cache=cache"]);
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
