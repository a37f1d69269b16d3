//! Stores of objects that are not S3, and what S3's own does at the end of an upload, which s3s-fs does not.
//!
//! No store of Google's or Azure's kind can be installed here, so the server is [the tests'
//! own](crate::object_server): what it knows of the protocols is written from their documents, and signatures
//! are checked by `openssl`. That shows that both agree with the documents as we read them, not with the
//! clouds.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use ct_codecs::{Base64, Base64UrlSafeNoPadding, Decoder};

use crate::object_server::{Asked, AtEnd, ObjectServer, decoded};
use crate::scene::{Ran, Running, Scene, has_tools, machine_has, wait_until};
use crate::web::without_clouds;

const OPENSSL: &str = "openssl";
const CACHE: &str = "--disk-cache=cache";
const ACCOUNT: &str = "headstarttest";
const EMAIL: &str = "tests@headstart.example";

/// What openssl writes, given this.
fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(OPENSSL);
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    child.wait_with_output().expect("it ends").stdout
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text has this signature, in base64, by HMAC and SHA-256.
fn is_signed(key: &[u8], text: &str, signature: &str) -> bool {
    let key = format!("hexkey:{}", hex(key));
    let made = openssl(&["dgst", "-sha256", "-mac", "HMAC", "-macopt", &key, "-binary"], text.as_bytes());
    !made.is_empty() && Base64::decode_to_vec(signature, None).is_ok_and(|signature| signature == made)
}

/// "Authorize with Shared Key" for requests, and "Create a service SAS", version 2020-12-06 and later, for
/// addresses.
fn azure_knows(key: &[u8], asked: &Asked) -> bool {
    let Some(signature) = asked.value("sig") else { return has_shared_key(key, asked) };
    let value = |name| asked.value(name).unwrap_or_default();
    // Where the account is not in the host's name, as with Azurite, the path begins with it.
    // The signature's permissions, and not the method alone, say what may be done.
    let wanted = if matches!(asked.method.as_str(), "GET" | "HEAD") { 'r' } else { 'w' };
    let may = value("sp").contains(wanted);
    let text = [
        value("sp"),
        value("st"),
        value("se"),
        format!("/blob{}", decoded(&asked.path)),
        String::new(),
        String::new(),
        String::new(),
        value("sv"),
        value("sr"),
    ];
    // Time of a snapshot, scope of encryption, and five headers of the answer.
    may && is_signed(key, &(text.join("\n") + "\n\n\n\n\n\n\n"), &signature)
}

fn has_shared_key(key: &[u8], asked: &Asked) -> bool {
    let prefix = format!("SharedKey {ACCOUNT}:");
    let Some(signature) = asked.header("authorization").strip_prefix(&prefix) else { return false };
    let length = Some(asked.header("content-length")).filter(|length| *length != "0").unwrap_or_default();
    let mut text = format!("{}\n", asked.method);
    for name in ["content-encoding", "content-language"] {
        text += &format!("{}\n", asked.header(name));
    }
    text += &format!("{length}\n");
    for name in [
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ] {
        text += &format!("{}\n", asked.header(name));
    }
    for (name, value) in asked.headers.iter().filter(|(name, _)| name.starts_with("x-ms-")) {
        text += &format!("{name}:{value}\n");
    }
    text += &format!("/{ACCOUNT}{}", asked.path);
    let mut query: Vec<_> =
        asked.query.iter().map(|(name, value)| (name.to_lowercase(), decoded(value))).collect();
    query.sort();
    for (name, value) in query {
        text += &format!("\n{name}:{value}");
    }
    is_signed(key, &text, signature)
}

/// "V4 signing process with Cloud Storage tooling" for addresses, and AIP-4111, self-signed tokens, for
/// requests.
fn google_knows(folder: &str, asked: &Asked) -> bool {
    let is_by_key = |text: &[u8], signature: &[u8]| {
        let path = format!("{folder}/signature-{:?}", std::thread::current().id());
        fs::write(&path, signature).expect("written");
        let public = format!("{folder}/public.pem");
        openssl(&["dgst", "-sha256", "-verify", &public, "-signature", &path], text)
            .starts_with(b"Verified OK")
    };
    let Some(signature) = asked.value("X-Goog-Signature") else {
        let Some(token) = asked.header("authorization").strip_prefix("Bearer ") else { return false };
        let Some((signed, signature)) = token.rsplit_once('.') else { return false };
        let claims = signed.split_once('.').map_or("", |(_, claims)| claims);
        let claims = Base64UrlSafeNoPadding::decode_to_vec(claims, None).expect("base64");
        let claims: serde_json::Value = serde_json::from_slice(&claims).expect("JSON");
        let signature = Base64UrlSafeNoPadding::decode_to_vec(signature, None).expect("base64");
        return claims["iss"] == EMAIL && is_by_key(signed.as_bytes(), &signature);
    };
    let value = |name| asked.value(name).unwrap_or_default();
    let mut query: Vec<_> = asked.query.iter().filter(|(name, _)| name != "X-Goog-Signature").collect();
    query.sort();
    let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // Whatever stands before Google, this is the host that is signed.
    let canonical = format!(
        "{}\n{}\n{}\nhost:storage.googleapis.com\n\nhost\nUNSIGNED-PAYLOAD",
        asked.method,
        asked.path,
        query.join("&")
    );
    let digest = hex(&openssl(&["dgst", "-sha256", "-binary"], canonical.as_bytes()));
    let (email, scope) = value("X-Goog-Credential")
        .split_once('/')
        .map_or_else(Default::default, |(email, scope)| (email.to_owned(), scope.to_owned()));
    let text = format!("GOOG4-RSA-SHA256\n{}\n{scope}\n{digest}", value("X-Goog-Date"));
    let signature: Option<Vec<u8>> = signature
        .as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
        .collect();
    email == EMAIL && signature.is_some_and(|signature| is_by_key(text.as_bytes(), &signature))
}

/// The program, with these settings of clouds and no others.
fn program(scene: &Scene, settings: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = without_clouds(scene, arguments);
    command.envs(settings.iter().copied());
    command
}

fn run(scene: &Scene, settings: &[(&str, &str)], arguments: &[&str]) -> Ran {
    program(scene, settings, arguments).output().expect("the program starts").into()
}

/// An image of two parts, and a small one: both are sent, read by ranges, and not sent again.
fn is_sent_and_read(
    scene: &Scene,
    server: &ObjectServer,
    scheme: &str,
    settings: &[(&str, &str)],
    secret: &str,
) {
    for (name, blocks, seed) in [("large.hsi", 4600, 91), ("small.hsi", 40, 92)] {
        let disk = scene.image(name, blocks, seed);
        let file = fs::read(scene.path(name)).expect("an image");
        let address = format!("{scheme}://images/dir/{name}");
        let sent = run(scene, settings, &["-vvv", "push", name, &address, "--json"]).ok();
        assert!(!sent.stderr.contains(secret), "{}", sent.stderr);
        let sent = sent.json();
        assert_eq!(sent["sent_bytes"].as_u64(), Some(file.len() as u64), "{sent}");
        let path = if scheme == "az" {
            format!("/{ACCOUNT}/images/dir/{name}")
        } else {
            format!("/images/dir/{name}")
        };
        assert!(server.with(|state| state.objects[&path].bytes == file && state.uploads.is_empty()));
        let again = run(scene, settings, &["push", name, &address, "--json"]).ok().json();
        assert_eq!(again["was_there"], true);
        scene.image("other.hsi", 50, seed + 10);
        run(scene, settings, &["push", "other.hsi", &address]).fails(1, &["another object", "--replace"]);
        let named = format!("{address}#{}", sent["image"].as_str().expect("a name"));
        let _ = fs::remove_file(scene.path("out.raw"));
        let export = ["-vvv", "export", &named, "-o", "out.raw", "--format", "raw", "--force", CACHE];
        let ran = run(scene, settings, &export).ok();
        assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
        for word in [secret, "sig=", "Signature="] {
            assert!(!ran.stderr.contains(word), "{}", ran.stderr);
        }
    }
    assert_eq!(server.with(|state| state.refused), 0);
}

#[test]
fn an_image_lies_in_a_store_of_azures_kind() {
    if !has_tools(&[OPENSSL]) {
        return;
    }
    let scene = Scene::new();
    let (key, secret) = (b"not a real key, 32 bytes of text", "bm90IGEgcmVhbCBrZXksIDMyIGJ5dGVzIG9mIHRleHQ=");
    let server = ObjectServer::start(|asked| azure_knows(key, asked));
    let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", server.port);
    let mut settings = [
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", secret),
        ("AZURE_ENDPOINT", &endpoint),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    is_sent_and_read(&scene, &server, "az", &settings, secret);
    goes_on_by_its_blocks(&scene, &server, &settings);
    ends_on_a_condition(&scene, &server, &settings);
    // The server knows a wrong key from the right one.
    settings[1].1 = "YW5vdGhlciBrZXk=";
    run(&scene, &settings, &["push", "small.hsi", "az://images/x.hsi"]).fails(1, &["403"]);
    run(&scene, &settings, &["verify", "az://images/dir/small.hsi", "--disk-cache=none"]).fails(1, &["403"]);
}

/// Breaks off an upload to `address`; the bytes that came of it.
fn broken_off(scene: &Scene, server: &ObjectServer, settings: &[(&str, &str)], address: &str) -> u64 {
    server.with(|state| state.refuse_from = Some(2));
    run(scene, settings, &["push", "large.hsi", address]).fails(1, &["403", "--abandon"]);
    server.with(|state| {
        state.refuse_from = None;
        // Which of two blocks came first is not known.
        let blocks: Vec<_> = state.uploads.values().flat_map(|(_, blocks)| blocks.values()).collect();
        assert_eq!(blocks.len(), 1);
        blocks[0].len() as u64
    })
}

/// A later process goes on with blocks, unless the store has others or none, or the upload was given up.
fn goes_on_by_its_blocks(scene: &Scene, server: &ObjectServer, settings: &[(&str, &str)]) {
    let file = fs::read(scene.path("large.hsi")).expect("an image");
    let address = "az://images/dir/x.hsi";
    let path = format!("/{ACCOUNT}/images/dir/x.hsi");
    for is_forgotten in [false, true] {
        let came = broken_off(scene, server, settings, address);
        server.with(|state| {
            state.objects.remove(&path);
            if is_forgotten {
                state.uploads.clear();
            }
        });
        let pushed = run(scene, settings, &["push", "large.hsi", address, "--json"]).ok().json();
        let resumed = if is_forgotten { 0 } else { came };
        assert_eq!(pushed["resumed_bytes"].as_u64(), Some(resumed), "{pushed}");
        assert_eq!(pushed["sent_bytes"].as_u64(), Some(file.len() as u64 - resumed), "{pushed}");
        assert!(server.with(|state| state.objects[&path].bytes == file && state.uploads.is_empty()));
        server.with(|state| state.objects.remove(&path));
    }
    // The program cannot remove them in this store, and says so.
    broken_off(scene, server, settings, address);
    let abandoned = run(scene, settings, &["push", "--abandon", address, "--json"]).ok().json();
    assert_eq!((&abandoned["was_there"], &abandoned["is_removed"]), (&true.into(), &false.into()));
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0);
    server.with(|state| state.uploads.clear());
}

/// An object that another client put there in the last moment is not replaced. An end whose answer was lost
/// is still an end.
fn ends_on_a_condition(scene: &Scene, server: &ObjectServer, settings: &[(&str, &str)]) {
    let path = format!("/{ACCOUNT}/images/dir/y.hsi");
    let push = |extra: &[&str]| {
        run(scene, settings, &[&["push", "large.hsi", "az://images/dir/y.hsi"], extra].concat())
    };
    server.with(|state| state.at_end = Some(AtEnd::AnotherClient));
    push(&[]).fails(1, &["another object", "--replace"]);
    assert!(server.with(|state| state.objects[&path].bytes == b"of somebody else"));
    for at_end in [None, Some(AtEnd::Cut)] {
        server.with(|state| state.at_end = at_end);
        push(&["--replace"]).ok();
        let file = fs::read(scene.path("large.hsi")).expect("an image");
        assert!(server.with(|state| state.objects.remove(&path).is_some_and(|there| there.bytes == file)));
    }
    server.with(|state| state.at_end = None);
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0);
}

#[test]
fn who_has_a_signed_address_of_azures_sends_and_keeps_nothing() {
    let scene = Scene::new();
    scene.image("large.hsi", 4600, 94);
    let server = ObjectServer::start(|asked| asked.value("sig").as_deref() == Some("token"));
    let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", server.port);
    let settings = [
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_SAS_KEY", "sv=2020-12-06&sig=token"),
        ("AZURE_ENDPOINT", &endpoint),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    let push = ["push", "large.hsi", "az://images/large.hsi"];
    server.with(|state| state.refuse_from = Some(2));
    run(&scene, &settings, &push).fails(1, &["403"]);
    assert!(!scene.path("state").exists());
    server.with(|state| state.refuse_from = None);
    run(&scene, &settings, &push).ok();
    let path = format!("/{ACCOUNT}/images/large.hsi");
    let file = fs::read(scene.path("large.hsi")).expect("an image");
    assert!(server.with(|state| state.objects[&path].bytes == file));
    // Nothing was noted, and where to look for it is not known.
    run(&scene, &settings, &["push", "--abandon", push[2]]).fails(1, &[push[2]]);
}

#[test]
fn an_image_lies_in_a_store_of_googles_kind() {
    if !has_tools(&[OPENSSL]) {
        return;
    }
    let scene = Scene::new();
    let folder = scene.path("").display().to_string();
    let private = openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], b"");
    fs::write(scene.path("public.pem"), openssl(&["pkey", "-pubout"], &private)).expect("written");
    let server = ObjectServer::start(move |asked| google_knows(&folder, asked));
    let account = |key: &[u8]| {
        let account = serde_json::json!({
            "private_key": String::from_utf8(key.to_vec()).expect("text"),
            "private_key_id": "1",
            "client_email": EMAIL,
            "gcs_base_url": format!("http://127.0.0.1:{}", server.port),
        });
        fs::write(scene.path("account.json"), account.to_string()).expect("written");
    };
    account(&private);
    let path = scene.arg("account.json");
    let settings = [("GOOGLE_SERVICE_ACCOUNT", path.as_str())];
    is_sent_and_read(&scene, &server, "gs", &settings, "PRIVATE KEY");
    // Uploads go on here as well.
    fs::remove_file(scene.path("other.hsi")).expect("removed");
    server.with(|state| state.refuse_from = Some(2));
    run(&scene, &settings, &["push", "large.hsi", "gs://images/x.hsi"]).fails(1, &["403"]);
    server.with(|state| state.refuse_from = None);
    let pushed = run(&scene, &settings, &["push", "large.hsi", "gs://images/x.hsi", "--json"]).ok().json();
    assert_eq!(pushed["resumed_bytes"].as_u64(), Some(8 << 20), "{pushed}");
    if machine_has(&[]) {
        let name = pushed["image"].as_str().expect("a name");
        is_mounted(&scene, &settings, &format!("gs://images/x.hsi#{name}"));
    }
    account(&openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], b""));
    run(&scene, &settings, &["push", "small.hsi", "gs://images/y.hsi"]).fails(1, &["403"]);
    run(&scene, &settings, &["verify", "gs://images/x.hsi", "--disk-cache=none"]).fails(1, &["403"]);
    scene.wait_until_clean();
}

fn is_mounted(scene: &Scene, settings: &[(&str, &str)], address: &str) {
    let dir = scene.folder("dir");
    let expected = scene.path("expected.raw");
    let export = ["export", "large.hsi", "-o", "expected.raw", "--format", "raw"];
    run(scene, settings, &export).ok();
    let mut serving =
        Running::start_command(program(scene, settings, &["mount", "-f", address, &dir, CACHE]));
    assert!(serving.said().contains("mounted"));
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == fs::read(expected).expect("read"));
    serving.signal(rustix::process::Signal::TERM);
    assert!(serving.end().0.success());
    wait_until("it is unmounted", || scene.mounts().is_empty());
}

/// A store that speaks S3, whatever is signed, and an image of three parts.
fn s3(scene: &Scene) -> (ObjectServer, String) {
    scene.image("a.hsi", 9000, 93);
    let server = ObjectServer::start(|asked| {
        !asked.header("authorization").is_empty() || asked.value("X-Amz-Signature").is_some()
    });
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    (server, endpoint)
}

fn push_s3(scene: &Scene, endpoint: &str, extra: &[&str]) -> Ran {
    let settings = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "key"),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    run(scene, &settings, &[&["push", "a.hsi", "s3://images/a.hsi", "--json"], extra].concat())
}

const PATH: &str = "/images/a.hsi";

#[test]
fn an_object_that_came_first_is_not_replaced() {
    let scene = Scene::new();
    let (server, endpoint) = s3(&scene);
    server.with(|state| state.at_end = Some(AtEnd::AnotherClient));
    push_s3(&scene, &endpoint, &[]).fails(1, &["another object", "--replace"]);
    let (left, there) = server.with(|state| (state.uploads.len(), state.objects[PATH].bytes.clone()));
    assert_eq!((left, there.as_slice()), (0, &b"of somebody else"[..]));
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0);
    push_s3(&scene, &endpoint, &["--replace"]).ok();
    assert!(
        server.with(|state| state.objects[PATH].bytes == fs::read(scene.path("a.hsi")).expect("an image"))
    );
}

#[test]
fn the_end_of_an_upload_may_go_wrong() {
    let scene = Scene::new();
    let (server, endpoint) = s3(&scene);
    let file = fs::read(scene.path("a.hsi")).expect("an image");
    // The answer is lost, the failure is reported late, or the store knows no condition.
    for at_end in [AtEnd::Cut, AtEnd::FailsLate, AtEnd::Unconditional] {
        server.with(|state| (state.at_end, state.objects) = (Some(at_end), Default::default()));
        let pushed = push_s3(&scene, &endpoint, &[]).ok().json();
        assert_eq!(
            (&pushed["was_there"], pushed["resumed_bytes"].as_u64()),
            (&false.into(), Some(0)),
            "{at_end:?}"
        );
        assert!(
            server.with(|state| state.objects[PATH].bytes == file && state.uploads.is_empty()),
            "{at_end:?}"
        );
    }
}

#[test]
fn a_failed_upload_continues() {
    let scene = Scene::new();
    let (server, endpoint) = s3(&scene);
    let file = fs::read(scene.path("a.hsi")).expect("an image");
    server.with(|state| state.refuse_from = Some(3));
    let failed = push_s3(&scene, &endpoint, &[]);
    failed.fails(1, &["403", "--abandon"]);
    server.with(|state| (state.refuse_from, state.lines) = (None, Vec::new()));
    let pushed = push_s3(&scene, &endpoint, &[]).ok().json();
    assert_eq!(pushed["resumed_bytes"].as_u64(), Some(16 << 20), "{pushed}");
    let puts = server.with(|state| state.lines.iter().filter(|line| line.starts_with("PUT")).count());
    assert_eq!(puts as u64, (file.len() as u64).div_ceil(8 << 20) - 2);
    assert!(server.with(|state| state.objects[PATH].bytes == file));

    // All is sent again when the store has other parts than the noted ones.
    server.with(|state| (state.refuse_from, state.objects) = (Some(3), Default::default()));
    push_s3(&scene, &endpoint, &[]).fails(1, &["403"]);
    server.with(|state| {
        state.refuse_from = None;
        let (_, parts) = state.uploads.values_mut().next().expect("an upload");
        *parts.values_mut().next().expect("a part") = b"of somebody else".to_vec();
    });
    let pushed = push_s3(&scene, &endpoint, &[]).ok().json();
    assert_eq!(pushed["resumed_bytes"].as_u64(), Some(0), "{pushed}");
    assert!(server.with(|state| state.objects[PATH].bytes == file && state.uploads.is_empty()));
}
