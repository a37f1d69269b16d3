//! `headstart serve` under TLS, as docs/NBD.md shows it, and the programs that people read it with.

use std::fs;
use std::process::{Command, Output};

use crate::nbd::{end, holed, serve};
use crate::scene::{Running, Scene, has_tools, run, tool};

/// Everything that these tests need.
const TOOLS: &[&str] = &["certtool", "nbdinfo", "nbdcopy", "qemu-img"];

/// A folder with an authority, a server's certificate for localhost, and a client's of the same authority, in
/// the layout that libnbd and QEMU share.
pub(crate) fn certificates(scene: &Scene, name: &str) -> String {
    let folder = scene.folder(name);
    let path = |file: &str| format!("{folder}/{file}");
    let template = |file: &str, lines: &str| fs::write(path(file), lines).expect("written");
    template("ca.info", "cn = Test Authority\nca\ncert_signing_key\ncrl_signing_key\nexpiration_days = 30\n");
    let server =
        "cn = localhost\ndns_name = localhost\nip_address = 127.0.0.1\ntls_www_server\nsigning_key\n";
    template("server.info", &format!("{server}expiration_days = 30\n"));
    template("client.info", "cn = a client\ntls_www_client\nsigning_key\nexpiration_days = 30\n");
    let key = |name: &str| {
        let out = path(&format!("{name}-key.pem"));
        tool("certtool", &["--generate-privkey", "--key-type=ed25519", "--outfile", &out]);
    };
    ["ca", "server", "client"].into_iter().for_each(key);
    let (ca_key, ca) = (path("ca-key.pem"), path("ca-cert.pem"));
    let authority = ["--generate-self-signed", "--load-privkey", &ca_key, "--template", &path("ca.info")];
    tool("certtool", &[&authority[..], &["--outfile", &ca]].concat());
    for name in ["server", "client"] {
        let (key, info) = (path(&format!("{name}-key.pem")), path(&format!("{name}.info")));
        let by = ["--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key];
        let of = ["--generate-certificate", "--load-privkey", &key, "--template", &info];
        tool("certtool", &[&of[..], &by, &["--outfile", &path(&format!("{name}-cert.pem"))]].concat());
    }
    folder
}

/// The address with these certificates, over TCP, where a server's name is checked.
fn uri(address: &str, certificates: &str) -> String {
    format!("{address}?tls-certificates={certificates}")
}

/// A server on any port of localhost; its address begins with `nbds` or `nbd`.
fn serve_on_port(image: &str, flags: &[&str]) -> (Running, String) {
    let arguments = [&["serve", "--nbd", "127.0.0.1:0", image][..], flags].concat();
    let mut serving = Running::start(arguments);
    let mut said = String::new();
    loop {
        let line = serving.said();
        assert!(!line.is_empty(), "it ended: {said}");
        said.push_str(&line);
        if line.contains("Ctrl-C") {
            let uri = said.lines().find_map(|line| line.split_once(" served at ")).expect("an address").1;
            return (serving, uri.replace("127.0.0.1", "localhost"));
        }
    }
}

fn nbdinfo(uri: &str) -> Output {
    Command::new("nbdinfo").args(["--json", uri]).output().expect("nbdinfo starts")
}

#[test]
fn libnbd_and_qemu_read_over_tls() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    let disk = holed(&scene, "holed.hsi");
    let pki = certificates(&scene, "pki");
    let (serving, address) =
        serve_on_port(&scene.arg("holed.hsi"), &["--tls-certificates", &pki, "--tls-verify-peer", "--json"]);
    assert!(address.starts_with("nbds://localhost:"), "{address}");
    let address_with = uri(&address, &pki);
    let shown = tool("nbdinfo", &["--json", &address_with]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("an object");
    assert_eq!((&shown["TLS"], &shown["structured"]), (&true.into(), &true.into()), "{shown}");
    assert_eq!(shown["exports"][0]["contexts"][0], "base:allocation");
    let copy = scene.arg("copy");
    tool("nbdcopy", &["--connections=4", "--requests=64", &address_with, &copy]);
    assert!(fs::read(&copy).expect("read") == disk);

    let port = address.rsplit_once(':').and_then(|(_, rest)| rest.split_once('/')).expect("a port").0;
    let object = format!("tls-creds-x509,id=tls,dir={pki},endpoint=client");
    let options = format!(
        "driver=nbd,server.type=inet,server.host=localhost,server.port={port},export=holed,tls-creds=tls"
    );
    let raw = format!("driver=raw,file.driver=file,file.filename={}", scene.arg("holed.raw"));
    let same = tool("qemu-img", &["compare", "--object", &object, "--image-opts", &options, &raw]);
    assert!(same.stdout.contains("identical"), "{same:?}");

    let summary: serde_json::Value = serde_json::from_str(&end(serving)).expect("an object");
    assert!(summary["sent_bytes"].as_u64() > Some(2 * (disk.len() as u64 - (1 << 20))), "{summary}");
    scene.wait_until_clean();
}

#[test]
fn who_does_not_speak_tls_is_told_nothing_where_it_is_required() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 58);
    let (image, pki, other) =
        (scene.arg("cold.hsi"), certificates(&scene, "pki"), certificates(&scene, "other"));
    let refused = |uri: &str| {
        let ran = nbdinfo(uri);
        let told = String::from_utf8_lossy(&ran.stdout).contains("export-size");
        assert!(!ran.status.success() && !told, "{uri}: {ran:?}");
    };
    let in_the_clear = |address: &str| address.replacen("nbds", "nbd", 1);

    // Required, as is the default with certificates.
    let (serving, address) = serve_on_port(&image, &["--tls-certificates", &pki]);
    refused(&in_the_clear(&address));
    refused(&uri(&address, &other));
    // A client needs no certificate unless the server asks for one: here it has one that the server would not
    // trust.
    fs::copy(format!("{pki}/ca-cert.pem"), format!("{other}/ca-cert.pem")).expect("copied");
    assert!(nbdinfo(&uri(&address, &other)).status.success());
    end(serving);

    // The client's certificate is of another authority.
    let verify = ["--tls-certificates", &pki, "--tls-verify-peer"];
    let (serving, address) = serve_on_port(&image, &verify);
    refused(&uri(&address, &other));
    assert!(nbdinfo(&uri(&address, &pki)).status.success());
    end(serving);

    // Revoked.
    let (list, info) = (format!("{pki}/ca-crl.pem"), scene.arg("crl.info"));
    fs::write(scene.path("crl.info"), "crl_next_update = 30\ncrl_number = 1\n").expect("written");
    let by = |name: &str| format!("{pki}/{name}.pem");
    let words =
        ["--generate-crl", "--load-ca-certificate", &by("ca-cert"), "--load-ca-privkey", &by("ca-key")];
    let of = ["--load-certificate", &by("client-cert"), "--template", &info, "--outfile", &list];
    tool("certtool", &[&words[..], &of].concat());
    let (serving, address) = serve_on_port(&image, &verify);
    refused(&uri(&address, &pki));
    end(serving);

    // Offered, and off.
    let (serving, address) = serve_on_port(&image, &["--tls-certificates", &pki, "--tls", "on"]);
    assert!(nbdinfo(&in_the_clear(&address)).status.success());
    assert!(nbdinfo(&uri(&address, &pki)).status.success());
    end(serving);
    let (serving, address) = serve_on_port(&image, &["--tls-certificates", &pki, "--tls", "off"]);
    assert!(address.starts_with("nbd://"), "{address}");
    refused(&uri(&address.replacen("nbd", "nbds", 1), &pki));
    end(serving);
    scene.wait_until_clean();
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    if !has_tools(TOOLS) {
        return;
    }
    let scene = Scene::new();
    scene.image("cold.hsi", 50, 59);
    let pki = certificates(&scene, "pki");
    let socket = format!("unix:{}", scene.arg("socket"));
    let refused = |words: &[&str]| {
        let arguments = ["serve", &scene.arg("cold.hsi"), "--nbd", &socket, "--tls-certificates", &pki];
        run(arguments.into_iter().chain(["--tls-verify-peer"])).fails(1, words);
    };
    let file = |name: &str| format!("{pki}/{name}");
    fs::write(file("ca-crl.pem"), "nonsense\n").expect("written");
    let serving = serve(&scene, &[&scene.arg("cold.hsi"), "--tls-certificates", &pki]);
    end(serving);
    fs::remove_file(file("ca-crl.pem")).expect("removed");
    // A key of another certificate, no key, nothing.
    fs::copy(file("client-key.pem"), file("server-key.pem")).expect("copied");
    refused(&[&pki, "certificates"]);
    fs::write(file("server-key.pem"), "nonsense\n").expect("written");
    refused(&["server-key.pem"]);
    fs::write(file("ca-cert.pem"), "").expect("written");
    refused(&["server-key.pem"]);
    fs::remove_file(file("server-cert.pem")).expect("removed");
    refused(&["server-cert.pem", "No such file"]);
    assert!(!scene.names().contains(&"socket".to_owned()));
}
