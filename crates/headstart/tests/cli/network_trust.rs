//! Which images starts and boots trust over a network: an image that must be refused is refused before
//! anything runs.

use std::fs;

use rustix::process::Signal;

use crate::boots::{GUEST, assert_nothing_is_in_tmp, little_guest};
use crate::nbd_tls::certificates;
use crate::scene::{Ran, START, Scene, has_tools, machine_has, run};
use crate::serve_http::serve;
use crate::web::{NGINX, Nginx, remote};

/// `run` and `boot` of an address, for which the program or the guest says that it runs.
fn both(scene: &Scene, address: &str, flags: &[&str]) -> [Ran; 2] {
    let one = |words: &[&str], behind: &[&str]| -> Ran {
        let words = [words, &[address, "--disk-cache=none"], flags, behind].concat();
        let mut command = remote(scene, words);
        command.env("TMPDIR", scene.path("tmp")).env("SSL_CERT_FILE", scene.path("trusted.pem"));
        command.output().expect("the program starts").into()
    };
    let boot = ["boot", "--memory", "64M", "--ready", "^up$", "--console", "console"];
    [one(&["run"], &["--", "/bin/echo", "it runs"]), one(&boot, &[])]
}

fn assert_refused(scene: &Scene, address: &str, flags: &[&str], words: &[&str]) {
    for ran in both(scene, address, flags) {
        let code = ran.code.filter(|code| *code != 0);
        ran.fails(code.unwrap_or_else(|| panic!("not refused: {ran:?}")), words);
        assert!(!ran.stdout.contains("it runs"), "{ran:?}");
    }
    let console = fs::read_to_string(scene.path("console")).unwrap_or_default();
    assert_eq!(console, "", "a guest was started");
    assert_nothing_is_in_tmp(scene);
}

fn assert_runs(scene: &Scene, address: &str, flags: &[&str]) {
    let [start, boot] = both(scene, address, flags);
    assert_eq!(start.ok().stdout, "it runs\n");
    boot.ok();
    fs::remove_file(scene.path("console")).expect("the console was kept");
}

fn name_of(image: &str) -> String {
    run(["verify", image]).ok().stdout.lines().last().expect("a name").to_owned()
}

#[test]
fn who_is_not_the_server_or_the_publisher_starts_nothing() {
    if !machine_has(&[START, GUEST, &[NGINX]].concat()) {
        return;
    }
    let (scene, _) = little_guest();
    let www = scene.folder("www");
    let image = |name: &str, free: &str| {
        let path = format!("{www}/{name}");
        run(["build", &scene.arg("root"), "-o", &path, "--free", free, "--codec", "zstd:1"]).ok();
        name_of(&path)
    };
    let (one, two) = (image("one.hsi", "64M"), image("two.hsi", "65M"));
    let key = |name: &str| {
        let ran = run(["keygen", &scene.arg(name)]).ok();
        ran.stdout.trim().strip_prefix("#key=").expect("a key").to_owned()
    };
    let (ours, theirs) = (key("ours"), key("theirs"));
    let sign = |name: &str, date: &str, extra: &[&str]| {
        let (image, key) = (format!("{www}/{name}"), scene.arg("ours.key"));
        let flags = ["--key", &key, "--channel", "stable", "--date", date];
        run([&["sign", &image], &flags[..], extra].concat()).ok();
    };
    let nginx = Nginx::start(&scene, "");
    let channel = |key: &str| format!("{}#key={key}", nginx.url("stable.minisig"));
    let state = ["--channel-state=state"];

    sign("one.hsi", "2026-01-01", &[]);
    let old = fs::read(scene.path("www/stable.minisig")).expect("signed");
    sign("two.hsi", "2026-02-01", &[]);
    assert_runs(&scene, &channel(&ours), &state);
    fs::write(scene.path("www/stable.minisig"), old).expect("rolled back");
    assert_refused(&scene, &channel(&ours), &state, &["rolls the channel back", "2026-02-01"]);
    let stateless = ["--channel-state=new", "--min-date=2026-01-15"];
    assert_refused(&scene, &channel(&ours), &stateless, &["rolls the channel back", "--min-date"]);
    assert_refused(&scene, &channel(&theirs), &["--channel-state=new"], &["not signed by the key"]);
    // The pointer is right, and what lies there is another image.
    sign("two.hsi", "2026-03-01", &[]);
    fs::copy(scene.path("www/one.hsi"), scene.path("www/two.hsi")).expect("replaced");
    assert_refused(&scene, &channel(&ours), &state, &["another image", &one, &two]);
    let named = format!("{}#{two}", nginx.url("one.hsi"));
    assert_refused(&scene, &named, &[], &["another image", &one, &two]);
    drop(nginx);
    scene.wait_until_clean();
}

#[test]
fn a_server_that_is_not_trusted_starts_nothing() {
    if !machine_has(&[START, GUEST].concat()) || !has_tools(&["certtool"]) {
        return;
    }
    let (scene, image) = little_guest();
    let pki = certificates(&scene, "pki");
    certificates(&scene, "other");
    let (server, url) = serve(&scene, &["guest.hsi", "--unsupervised", "--tls-certificates", &pki]);
    let url = format!("{}#{}", url.replace("127.0.0.1", "localhost"), name_of(&image));
    let trust = |whom: &str| fs::copy(scene.path(whom), scene.path("trusted.pem")).expect("copied");
    trust("other/ca-cert.pem");
    assert_refused(&scene, &url, &[], &["certificate"]);
    trust("pki/ca-cert.pem");
    assert_runs(&scene, &url, &[]);
    server.signal(Signal::INT);
    assert_eq!(server.end().0.code(), Some(0));
    scene.wait_until_clean();
}
