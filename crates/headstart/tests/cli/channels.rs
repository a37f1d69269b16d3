//! Keys, signatures and channels; Debian's minisign checks ours, and signs for us.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::scene::{Ran, Scene, has_tools, machine_has, run};
use crate::web::{NGINX, Nginx, run_remote};

/// Runs minisign in the scene's folder.
fn minisign(scene: &Scene, arguments: &[&str]) -> Ran {
    let mut command = Command::new("minisign");
    command.args(arguments).current_dir(scene.path("")).stdin(Stdio::null());
    command.output().expect("minisign starts").into()
}

/// A pair of keys called `name`; the public one's text.
fn keys(scene: &Scene, name: &str) -> String {
    let ran = run(["keygen", &scene.arg(name)]).ok();
    let key = ran.stdout.trim().strip_prefix("#key=").expect("a key").to_owned();
    assert!(fs::read_to_string(scene.path(&format!("{name}.pub"))).expect("written").contains(&key));
    key
}

/// An image called `name` in the folder `www`, and its digest.
fn published(scene: &Scene, name: &str, seed: u64) -> String {
    let _ = fs::create_dir(scene.path("www"));
    scene.image("made.hsi", 40, seed);
    fs::rename(scene.path("made.hsi"), scene.path("www").join(name)).expect("published");
    let ran = run(["verify", &scene.path("www").join(name).display().to_string()]).ok();
    ran.stdout.lines().last().expect("a name").to_owned()
}

#[test]
fn minisign_and_we_understand_each_other() {
    if !has_tools(&["minisign"]) {
        return;
    }
    let scene = Scene::new();
    let key = keys(&scene, "ours");
    let digest = published(&scene, "a.hsi", 1);
    let image = scene.arg("www/a.hsi");
    run(["sign", &image, "--key", &scene.arg("ours.key")]).ok();
    // What is signed is the name and a line feed.
    fs::write(scene.path("name"), format!("{digest}\n")).expect("written");
    minisign(&scene, &["-V", "-m", "name", "-x", "www/a.hsi.minisig", "-p", "ours.pub"]).ok();
    minisign(&scene, &["-V", "-m", "name", "-x", "www/a.hsi.minisig", "-P", &key]).ok();
    fs::write(scene.path("other"), format!("{}\n", digest.replace('1', "2"))).expect("written");
    assert_ne!(minisign(&scene, &["-V", "-m", "other", "-x", "www/a.hsi.minisig", "-P", &key]).code, Some(0));

    // Keys that minisign made, and a signature of its own with our words in it.
    minisign(&scene, &["-G", "-W", "-p", "theirs.pub", "-s", "theirs.key"]).ok();
    let theirs = fs::read_to_string(scene.path("theirs.pub")).expect("a key");
    let theirs = theirs.lines().nth(1).expect("a key").to_owned();
    run(["sign", &image, "--key", &scene.arg("theirs.key")]).ok();
    run(["verify", &image, "--key", &theirs]).ok();
    run(["verify", &image, "--key", &scene.arg("theirs.pub")]).ok();
    run(["verify", &image, "--key", &key]).fails(1, &["not signed by the key"]);
    let words = format!("headstart-pointer-1\tchannel:a.hsi\timage:{digest}\tdate:2026-01-01T00:00:00Z");
    let sign = ["-S", "-m", "name", "-x", "www/a.hsi.minisig", "-s", "theirs.key", "-t", &words];
    minisign(&scene, &sign).ok();
    let ran = run(["verify", &format!("{image}#key={theirs}"), "--channel-state", &scene.arg("state")]).ok();
    assert!(ran.stdout.contains(&digest), "{ran:?}");
}

#[test]
fn an_encrypted_key_signs_with_its_password_only() {
    let scene = Scene::new();
    published(&scene, "a.hsi", 2);
    for (name, text) in [("right", "secret\n"), ("wrong", "other\n")] {
        fs::write(scene.path(name), text).expect("written");
    }
    run(["keygen", &scene.arg("k"), "--password-file", &scene.arg("right")]).ok();
    let (image, key) = (scene.arg("www/a.hsi"), scene.arg("k.key"));
    run(["sign", &image, "--key", &key, "--password-file", &scene.arg("right")]).ok();
    run(["verify", &image, "--key", &scene.arg("k.pub")]).ok();
    run(["sign", &image, "--key", &key, "--password-file", &scene.arg("wrong")]).fails(1, &["secret key"]);
    run(["sign", &image, "--key", &key]).fails(1, &["--password-file"]);
    run(["keygen", &scene.arg("k")]).fails(1, &["k.key"]);
    // Half a pair is not left behind.
    fs::write(scene.path("half.pub"), "").expect("written");
    run(["keygen", &scene.arg("half")]).fails(1, &["half.pub exists", "no key is replaced"]);
    assert!(!scene.path("half.key").exists());
}

#[test]
fn what_is_built_can_be_signed_at_once() {
    let scene = Scene::new();
    let key = keys(&scene, "k");
    scene.raw("disk.raw", 30, 3);
    let (raw, image, secret) = (scene.arg("disk.raw"), scene.arg("a.hsi"), scene.arg("k.key"));
    run(["build", "--raw", &raw, "-o", &image, "--codec", "zstd:1", "--sign", &secret]).ok();
    let ran = run(["verify", &image, "--key", &key]).ok();
    assert!(ran.stdout.contains("signed as a.hsi"), "{ran:?}");
    // Another image of the same name is not what was signed.
    scene.raw("disk.raw", 30, 4);
    run(["build", "--raw", &raw, "-o", &image, "--codec", "zstd:1"]).ok();
    run(["verify", &image, "--key", &key]).fails(1, &["a.hsi.minisig", "not of hs1-"]);
}

#[test]
fn a_channel_moves_on_and_cannot_be_rolled_back() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    let (key, other) = (keys(&scene, "k"), keys(&scene, "other"));
    let (one, two) = (published(&scene, "one.hsi", 4), published(&scene, "two.hsi", 5));
    let sign = |image: &str, channel: &str, date: &str, extra: &[&str]| {
        let (image, key) = (scene.arg(&format!("www/{image}")), scene.arg("k.key"));
        run([&["sign", &image, "--key", &key, "--channel", channel, "--date", date], extra].concat()).ok()
    };
    let nginx = Nginx::start(&scene, "");
    let url = format!("{}#key={key}", nginx.url("stable.minisig"));
    let verify = |url: &str, extra: &[&str]| {
        run_remote(&scene, &[&["verify", url, "--disk-cache=cache", "--channel-state=state"], extra].concat())
    };
    sign("one.hsi", "stable", "2026-01-01", &[]);
    assert!(verify(&url, &[]).ok().stdout.contains(&one));
    let before = fs::read(scene.path("www/stable.minisig")).expect("signed");
    sign("two.hsi", "stable", "2026-02-01", &[]);
    assert!(verify(&url, &[]).ok().stdout.contains(&two));
    let offline = ["inspect", &url, "--disk-cache=cache", "--channel-state=state", "--offline"];
    assert!(run_remote(&scene, &offline).ok().stdout.contains(&two));

    // An old signature is a right one; only that a newer one was seen tells.
    let newest = fs::read(scene.path("www/stable.minisig")).expect("signed");
    fs::write(scene.path("www/stable.minisig"), &before).expect("rolled back");
    verify(&url, &[]).fails(1, &["rolls the channel back", "2026-02-01"]);
    run_remote(&scene, &["verify", &url, "--channel-state=fresh", "--disk-cache=none"]).ok();
    let stateless = ["verify", &url, "--channel-state=new", "--disk-cache=none", "--min-date", "2026-01-15"];
    run_remote(&scene, &stateless).fails(1, &["rolls the channel back", "--min-date"]);
    fs::write(scene.path("www/stable.minisig"), &newest).expect("restored");

    // One channel for another, another's key, two images of one date, and one that is too old.
    sign("one.hsi", "beta", "2026-03-01", &[]);
    fs::rename(scene.path("www/beta.minisig"), scene.path("www/stable.minisig")).expect("exchanged");
    verify(&url, &[]).fails(1, &["channel 'beta', not for 'stable'"]);
    fs::write(scene.path("www/stable.minisig"), &newest).expect("restored");
    verify(&format!("{}#key={other}", nginx.url("stable.minisig")), &[]).fails(1, &["not signed by the key"]);
    let signed = sign("one.hsi", "stable", "2026-02-01", &[]);
    assert!(signed.stderr.contains("is not later"), "{signed:?}");
    verify(&url, &[]).fails(1, &["with the same date", &one, &two]);
    // Who says nothing signs for a while; what never expires is warned of.
    sign("two.hsi", "stable", "2026-04-01", &["--expires", "never"]);
    assert!(verify(&url, &[]).ok().stderr.contains("never expires"));
    let signed = sign("two.hsi", "stable", "2026-04-02", &[]);
    assert!(!signed.stderr.contains("is not later"), "{signed:?}");
    let usual = verify(&url, &[]).ok();
    assert!(!usual.stderr.contains("never expires"), "{usual:?}");
    let text = fs::read_to_string(scene.path("www/stable.minisig")).expect("signed");
    assert!(text.contains("\texpires:2"), "{text}");
    let text = fs::read_to_string(scene.path("www/stable.minisig")).expect("signed");
    fs::write(scene.path("www/stable.minisig"), text.replace("expires:2", "expires:3")).expect("stretched");
    verify(&url, &[]).fails(1, &["not signed by the key"]);
    // What it points at is held to its name.
    sign("two.hsi", "stable", "2026-05-01", &[]);
    fs::copy(scene.path("www/one.hsi"), scene.path("www/two.hsi")).expect("replaced");
    verify(&url, &[]).fails(1, &["another image", &one, &two]);
}

#[test]
fn a_key_that_was_lost_is_revoked_by_the_spare_one() {
    let scene = Scene::new();
    let (daily, spare) = (keys(&scene, "daily"), keys(&scene, "spare"));
    published(&scene, "one.hsi", 4);
    let image = scene.arg("www/one.hsi");
    let sign = |key: &str, date: &str, extra: &[&str]| {
        let key = scene.arg(&format!("{key}.key"));
        let words = ["sign", &image, "--key", &key, "--channel", "stable", "--date", date];
        run([&words[..], extra].concat()).ok();
    };
    let state = scene.arg("state");
    let verify = |address: &str| run(["verify", address, "--channel-state", &state]);
    let both = format!("{}#key={daily},{spare}", scene.arg("www/stable.minisig"));
    let old = format!("{}#key={daily}", scene.arg("www/stable.minisig"));
    sign("daily", "2026-02-01", &[]);
    verify(&both).ok();
    verify(&old).ok();
    sign("spare", "2026-02-02", &["--revoke", &scene.arg("daily.pub")]);
    verify(&both).ok();
    verify(&old).fails(1, &["not signed by the key"]);
    // The thief signs something newer.
    sign("daily", "2026-02-03", &[]);
    verify(&both).fails(1, &["revoked", &daily]);
    verify(&old).fails(1, &["revoked", &daily]);
    sign("spare", "2026-02-04", &[]);
    verify(&both).ok();
}

#[test]
fn dates_of_the_future_are_refused_on_both_sides() {
    let scene = Scene::new();
    let key = keys(&scene, "k");
    let digest = published(&scene, "a.hsi", 2);
    let image = scene.arg("www/a.hsi");
    let secret = scene.arg("k.key");
    run(["sign", &image, "--key", &secret, "--date", "2099-01-01"]).fails(1, &["more than a day from now"]);
    if !has_tools(&["minisign"]) {
        return;
    }
    // Another program signs it all the same.
    fs::write(scene.path("name"), format!("{digest}\n")).expect("written");
    let words = format!("headstart-pointer-1\tchannel:a.hsi\timage:{digest}\tdate:2099-01-01T00:00:00Z");
    let sign = ["-S", "-W", "-m", "name", "-x", "www/a.hsi.minisig", "-s", "m.key", "-t", &words];
    minisign(&scene, &["-G", "-W", "-p", "m.pub", "-s", "m.key"]).ok();
    minisign(&scene, &sign).ok();
    let theirs = fs::read_to_string(scene.path("m.pub")).expect("a key");
    let theirs = theirs.lines().nth(1).expect("a key");
    let verify = ["verify", &format!("{image}#key={theirs}"), "--channel-state", &scene.arg("state")];
    run(verify).fails(1, &["2099-01-01", "more than a day from now"]);
    // So a later pointer is not locked out.
    run(["sign", &image, "--key", &secret]).ok();
    run(["verify", &format!("{image}#key={key}"), "--channel-state", &scene.arg("state")]).ok();
}

#[test]
fn without_a_folder_to_note_it_nothing_is_believed() {
    let scene = Scene::new();
    let key = keys(&scene, "k");
    published(&scene, "a.hsi", 2);
    let image = scene.arg("www/a.hsi");
    run(["sign", &image, "--key", &scene.arg("k.key")]).ok();
    let url = format!("{image}#key={key}");
    for folder in ["/", "www"] {
        fs::set_permissions(
            scene.path("").join(folder.trim_start_matches('/')),
            PermissionsExt::from_mode(0o755),
        )
        .expect("opened");
    }
    fs::copy(env!("CARGO_BIN_EXE_headstart"), scene.path("headstart")).expect("copied");
    let homeless = |extra: &[&str]| -> Ran {
        let mut command = Command::new(scene.path("headstart"));
        command.args(["verify", &url]).args(extra).env_clear().stdin(Stdio::null());
        command.uid(65534).gid(65534).current_dir("/").output().expect("started").into()
    };
    homeless(&[]).fails(1, &["--channel-state", "--min-date"]);
    homeless(&["--min-date", "2026-01-01"]).ok();
    homeless(&["--channel-state", "none"]).ok();
}
