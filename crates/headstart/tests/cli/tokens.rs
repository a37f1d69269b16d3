//! A token server, as docker-registry's authentication by tokens wants it.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use crate::registry::place;
use crate::scene::{Scene, tool, wait_until};
use crate::supervised::get;

/// What runs it beside docker-registry.
pub(crate) const TOOLS: &[&str] = &["openssl", "python3"];
/// The registry takes a token for a minute longer than it says.
const LEEWAY_SECONDS: u32 = 60;

/// Serves tokens to all clients, for all that they ask.
const PROGRAM: &str = r#"
import base64, http.server, json, subprocess, sys, time, urllib.parse
key, cert, port, left = sys.argv[1:5]
packed = lambda content: base64.urlsafe_b64encode(content).rstrip(b"=")
chain = [cert_line for cert_line in open(cert).read().split("-----") if len(cert_line) > 100][0].replace("\n", "")
class Tokens(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        scopes = [scope.split(":") for scope in asked.get("scope", [])]
        access = [{"type": kind, "name": name, "actions": actions.split(",")} for kind, name, actions in scopes]
        now = int(time.time())
        claims = {"iss": "test", "sub": "me", "aud": "registry", "exp": now + int(left), "nbf": now - 120,
                  "iat": now - 120, "jti": str(time.time_ns()), "access": access}
        head = {"typ": "JWT", "alg": "RS256", "x5c": [chain]}
        text = b".".join(packed(json.dumps(part).encode()) for part in (head, claims))
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text, capture_output=True, check=True)
        body = json.dumps({"token": (text + b"." + packed(signed.stdout)).decode()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Tokens)
print("listens", flush=True)
server.serve_forever()
"#;

/// One token server.
pub(crate) struct Tokens {
    key: String,
    cert: String,
    seconds: u32,
    place: TcpListener,
    child: Option<Child>,
}

impl Tokens {
    /// Starts one whose tokens last for so many seconds, or for one less.
    pub(crate) fn start(scene: &Scene, seconds: u32) -> Self {
        let (key, cert) = (scene.arg("key"), scene.arg("cert"));
        let words = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-keyout", &key, "-out", &cert];
        tool("openssl", &[&["req", "-x509"], &words[..]].concat());
        let mut tokens = Self { key, cert, seconds, place: place(), child: None };
        tokens.again();
        tokens
    }

    /// Starts it again, at the same address.
    pub(crate) fn again(&mut self) {
        self.kill();
        let left = i64::from(self.seconds) - i64::from(LEEWAY_SECONDS);
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM, &self.key, &self.cert, &self.port().to_string(), &left.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        self.child = Some(child);
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "listens\n");
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.place.local_addr().expect("an address").port()
    }

    /// What the configuration of a registry says that wants these tokens.
    pub(crate) fn wanted(&self) -> String {
        let (port, cert) = (self.port(), &self.cert);
        let realm = format!("http://127.0.0.1:{port}/token");
        format!(
            "auth: {{token: {{realm: {realm:?}, service: registry, issuer: test, rootcertbundle: {cert}}}}}\n"
        )
    }

    /// Waits until a registry takes none of the tokens any more that there are now.
    pub(crate) fn wait_until_expired(&self, registry: u16) {
        let path = "/token?service=registry&scope=repository:tiny:pull";
        let answer = get(&format!("127.0.0.1:{}", self.port()), path, "");
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let field = format!("Authorization: Bearer {}\r\n", body["token"].as_str().expect("a token"));
        let status = || {
            let answer = get(&format!("127.0.0.1:{registry}"), "/v2/tiny/tags/list", &field);
            answer.split(' ').nth(1).expect("a status").to_owned()
        };
        wait_until("the newest token has expired", || status() == "401");
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.kill();
    }
}
