//! Images in a store of objects: s3s-fs, which checks signatures, in a thread of the test.

use std::fs;
use std::process::Command;
use std::thread::JoinHandle;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustix::process::Signal;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::relay::Relay;
use crate::scene::{Ran, Running, Scene, machine_has, wait_until};
use crate::web::{remote, without_clouds};

pub(crate) const KEY: &str = "AKIDTESTTESTTEST";
pub(crate) const SECRET: &str = "s3cr3t-s3cr3t-s3cr3t-s3cr3t";
const CACHE: &str = "--disk-cache=cache";

/// A store with one bucket, `images`, in a folder of the scene.
pub(crate) struct Store {
    /// Its thread ends when this is dropped, and with it all connections.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) endpoint: String,
}

impl Store {
    pub(crate) fn start(scene: &Scene) -> Self {
        fs::create_dir_all(scene.path("s3/images")).expect("a bucket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(scene.path("s3")).expect("a folder"));
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build().into_shared();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let serve = async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = auto::Builder::new(TokioExecutor::new());
                let connection = server.serve_connection(TokioIo::new(socket), service.clone()).into_owned();
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            runtime.spawn(serve);
            // That the sender is gone is the message.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        });
        Self { stop: Some(stop), thread: Some(thread), endpoint }
    }

    /// The program with no login at all, and its home in the scene.
    fn stranger(&self, scene: &Scene, arguments: &[&str]) -> Command {
        let mut command = without_clouds(scene, arguments);
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn program(&self, scene: &Scene, arguments: &[&str]) -> Command {
        let mut command = self.stranger(scene, arguments);
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }

    /// The same, which asks a relay to the store.
    fn program_by(&self, scene: &Scene, relay: &Relay, arguments: &[&str]) -> Command {
        let mut command = self.program(scene, arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", relay.port));
        command
    }

    fn run_by(&self, scene: &Scene, relay: &Relay, arguments: &[&str]) -> Ran {
        self.program_by(scene, relay, arguments).output().expect("the program starts").into()
    }

    fn run(&self, scene: &Scene, arguments: &[&str]) -> Ran {
        self.program(scene, arguments).output().expect("the program starts").into()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const EXPORT: [&str; 7] = ["export", "s3://images/dir/a.hsi", "-o", "out.raw", "--format", "raw", "--force"];

/// What s3s-fs keeps of uploads that were not ended: a note for each, and the parts.
fn unfinished(scene: &Scene) -> usize {
    let names = fs::read_dir(scene.path("s3")).expect("listed").flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".upload")).count()
}

/// The parts among them.
fn unfinished_parts(scene: &Scene) -> usize {
    let names = fs::read_dir(scene.path("s3")).expect("listed").flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().contains(".part-")).count()
}

#[test]
fn an_image_is_sent_in_parts_and_read_from_signed_addresses() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    // More than one part of 8 MiB.
    let disk = scene.image("a.hsi", 5000, 81);
    let file = fs::read(scene.path("a.hsi")).expect("an image");
    assert!(file.len() > 8 << 20);
    let address = "s3://images/dir/a.hsi";
    let sent = store.run(&scene, &["push", "a.hsi", address, "--json"]).ok().json();
    assert_eq!(sent["sent_bytes"].as_u64(), Some(file.len() as u64));
    assert!(fs::read(scene.path("s3/images/dir/a.hsi")).expect("an object") == file);
    assert_eq!(unfinished(&scene), 0);
    let again = store.run(&scene, &["push", "a.hsi", address, "--json"]).ok().json();
    assert_eq!((again["was_there"].as_bool(), again["sent_bytes"].as_u64()), (Some(true), Some(0)));

    let named = format!("{address}#{}", sent["image"].as_str().expect("a name"));
    // With few requests: this store makes a digest of the whole object for each.
    let ran = store.run(&scene, &["-vvv", "cache", "fill", &named, "--now", CACHE]).ok();
    let export = ["export", &named, "-o", "out.raw", "--format", "raw", CACHE, "--offline"];
    store.run(&scene, &export).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    // Neither the secret nor a signed address is printed or kept.
    for word in [SECRET, "X-Amz-Signature", "X-Amz-Credential"] {
        assert!(!ran.stderr.contains(word) && !ran.stdout.contains(word), "{}", ran.stderr);
        let kept = Command::new("grep").args(["-rl", word, &scene.arg("cache")]).output();
        assert!(kept.expect("grep starts").stdout.is_empty(), "{word}");
    }
    store.run(&scene, &["verify", &named, CACHE, "--offline"]).ok();
}

/// A relay to the store that keeps back all parts from the third on.
fn holding(store: &Store) -> Relay {
    let port = store.endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    Relay::start(port, |line| part_of(line).is_some_and(|number| number > 2))
}

/// The number of the part that a request sends.
fn part_of(line: &str) -> Option<u32> {
    let after = line.strip_prefix("PUT ")?.split("partNumber=").nth(1)?;
    after.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Parts that are noted to have come.
fn noted(scene: &Scene) -> usize {
    let notes = fs::read_dir(scene.path("state")).into_iter().flatten().flatten();
    let texts = notes.filter_map(|note| fs::read_to_string(note.path()).ok());
    texts.map(|text| text.matches("\"sha256\"").count()).sum()
}

/// An upload of which two parts of eight MiB have come, and which `signal` has ended.
fn broken_off(scene: &Scene, store: &Store, push: &[&str], signal: Signal) -> (Relay, String) {
    let relay = holding(store);
    let pushing = Running::start_command(store.program_by(scene, &relay, push));
    wait_until("two parts have come", || noted(scene) == 2 && relay.held() > 0);
    pushing.signal(signal);
    let (status, _, said) = pushing.end();
    assert!(!status.success() && !scene.path("s3/images/a.hsi").exists(), "{said}");
    assert_eq!(unfinished_parts(scene), 2);
    relay.hold(|_| false);
    relay.take_lines();
    (relay, said)
}

const PUSH: [&str; 4] = ["push", "a.hsi", "s3://images/a.hsi", "--json"];

#[test]
fn a_later_push_goes_on_with_the_parts_that_have_come() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    scene.image("a.hsi", 9000, 86);
    let file = fs::read(scene.path("a.hsi")).expect("an image");
    assert!(file.len() > 16 << 20);
    for signal in [Signal::KILL, Signal::INT] {
        let (relay, said) = broken_off(&scene, &store, &PUSH, signal);
        assert!(
            signal == Signal::KILL || (said.contains("interrupted") && said.contains("--abandon")),
            "{said}"
        );
        let pushed = store.run_by(&scene, &relay, &PUSH).ok().json();
        let bytes = ["sent_bytes", "resumed_bytes"].map(|key| pushed[key].as_u64().expect("a number"));
        assert_eq!(
            (bytes, &pushed["was_there"]),
            ([file.len() as u64 - (16 << 20), 16 << 20], &false.into())
        );
        assert!(fs::read(scene.path("s3/images/a.hsi")).expect("an object") == file);
        let sent: Vec<_> = relay.take_lines().iter().filter_map(|line| part_of(line)).collect();
        assert!(!sent.is_empty() && sent.iter().all(|number| *number > 2), "{sent:?}");
        assert_eq!((unfinished(&scene), fs::read_dir(scene.path("state")).expect("listed").count()), (0, 0));
        let again = store.run_by(&scene, &relay, &PUSH).ok().json();
        assert_eq!((&again["was_there"], again["resumed_bytes"].as_u64()), (&true.into(), Some(0)));
        fs::remove_file(scene.path("s3/images/a.hsi")).expect("removed");
    }
}

#[test]
fn parts_of_what_has_changed_are_sent_again() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    scene.image("a.hsi", 9000, 87);
    // A note whose digest of the first part does not match the file.
    let (relay, _) = broken_off(&scene, &store, &PUSH, Signal::KILL);
    let note = fs::read_dir(scene.path("state")).expect("listed").flatten().next().expect("a note").path();
    let text = fs::read_to_string(&note).expect("text");
    let changed = text.replacen("\"sha256\":\"sha256:", "\"sha256\":\"sha256:00", 1);
    fs::write(&note, changed).expect("written");
    let pushed = store.run_by(&scene, &relay, &PUSH).ok().json();
    assert_eq!(pushed["resumed_bytes"].as_u64(), Some(8 << 20));
    assert!(
        fs::read(scene.path("s3/images/a.hsi")).expect("an object")
            == fs::read(scene.path("a.hsi")).expect("read")
    );
    assert_eq!(unfinished(&scene), 0);

    // An upload that the store has forgotten, and one of another image: both are begun anew.
    for forget in [true, false] {
        fs::remove_file(scene.path("s3/images/a.hsi")).expect("removed");
        let (relay, _) = broken_off(&scene, &store, &PUSH, Signal::KILL);
        if forget {
            let names = fs::read_dir(scene.path("s3")).expect("listed").flatten();
            let ours = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".upload"));
            ours.for_each(|entry| fs::remove_file(entry.path()).expect("removed"));
        } else {
            scene.image("a.hsi", 9100, 88);
        }
        let pushed = store.run_by(&scene, &relay, &PUSH).ok().json();
        assert_eq!(
            (pushed["resumed_bytes"].as_u64(), pushed["sent_bytes"].as_u64()),
            (Some(0), pushed["bytes"].as_u64())
        );
        assert!(
            fs::read(scene.path("s3/images/a.hsi")).expect("an object")
                == fs::read(scene.path("a.hsi")).expect("read")
        );
        assert_eq!(unfinished(&scene), 0);
    }
}

#[test]
fn what_was_broken_off_is_told_and_can_be_abandoned() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    scene.image("a.hsi", 9000, 89);
    scene.image("b.hsi", 40, 90);
    let (relay, _) = broken_off(&scene, &store, &PUSH, Signal::INT);
    let other = store.run_by(&scene, &relay, &["push", "b.hsi", "s3://images/b.hsi"]).ok();
    assert!(
        other.stderr.contains("s3://images/a.hsi") && other.stderr.contains("--abandon"),
        "{}",
        other.stderr
    );
    // Where it was to lie is enough, and somewhere else is nothing.
    let elsewhere = store.run_by(&scene, &relay, &["push", "--abandon", "s3://images/c.hsi"]).ok();
    assert!(elsewhere.stdout.contains("nothing to remove"), "{}", elsewhere.stdout);
    let abandon = ["push", "--abandon", "s3://images/a.hsi", "--json"];
    let abandoned = store.run_by(&scene, &relay, &abandon).ok().json();
    assert_eq!((&abandoned["was_there"], &abandoned["is_removed"]), (&true.into(), &true.into()));
    assert_eq!((unfinished(&scene), noted(&scene)), (0, 0));
    let again = store.run_by(&scene, &relay, &[&PUSH[..], &["--abandon"]].concat()).ok().json();
    assert_eq!(again["was_there"], false);
    // Where nothing can be noted, nothing is kept.
    fs::remove_dir(scene.path("state")).expect("removed");
    fs::write(scene.path("state"), "a file").expect("written");
    let relay = holding(&store);
    let pushing = Running::start_command(store.program_by(&scene, &relay, &PUSH));
    wait_until("two parts have come", || unfinished_parts(&scene) == 2 && relay.held() > 0);
    pushing.signal(Signal::INT);
    let (status, _, said) = pushing.end();
    assert!(!status.success() && said.contains("nothing of it is kept"), "{said}");
    assert_eq!(unfinished(&scene), 0);
}

#[test]
fn what_is_in_the_way_is_replaced_only_on_request() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    let first = scene.image("a.hsi", 40, 82);
    let second = scene.image("b.hsi", 40, 83);
    let address = "s3://images/dir/a.hsi";
    store.run(&scene, &["push", "a.hsi", address]).ok();
    store.run(&scene, &["push", "b.hsi", address]).fails(1, &[address, "another object", "--replace"]);
    let export = |extra: &[&str]| {
        let _ = fs::remove_file(scene.path("out.raw"));
        store.run(&scene, &[&EXPORT[..], extra].concat()).ok();
        fs::read(scene.path("out.raw")).expect("exported")
    };
    assert!(export(&[CACHE]) == first);
    store.run(&scene, &["push", "b.hsi", address, "--replace"]).ok();
    assert!(export(&[CACHE]) == second);
}

#[test]
fn who_may_not_read_is_told_so() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    let disk = scene.image("a.hsi", 40, 84);
    let address = "s3://images/dir/a.hsi";
    let stranger =
        |arguments: &[&str]| -> Ran { store.stranger(&scene, arguments).output().expect("it starts").into() };
    stranger(&["push", "a.hsi", address]).fails(1, &[address, "wants a login"]);
    stranger(&EXPORT).fails(1, &["wants a login"]);
    store.run(&scene, &["push", "a.hsi", address]).ok();
    let mut command = store.program(&scene, &EXPORT);
    let ran = Ran::from(command.env("AWS_SECRET_ACCESS_KEY", "wrong-wrong").output().expect("it starts"));
    ran.fails(1, &[address, "403"]);
    assert!(!ran.stderr.contains("wrong-wrong") && !ran.stderr.contains("Signature="), "{}", ran.stderr);
    store.run(&scene, &["verify", "s3://images/none.hsi", CACHE]).fails(1, &["s3://images/none.hsi", "404"]);

    // By a profile, as the AWS command line has them.
    fs::create_dir_all(scene.path("home/.aws")).expect("a folder");
    let text = format!("[other]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    fs::write(scene.path("home/.aws/credentials"), text).expect("written");
    stranger(&EXPORT).fails(1, &["wants a login"]);
    let mut command = store.stranger(&scene, &[&EXPORT[..], &[CACHE]].concat());
    Ran::from(command.env("AWS_PROFILE", "other").output().expect("it starts")).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);

    let endpoint = store.endpoint.clone();
    drop(store);
    let mut command = remote(&scene, EXPORT);
    command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    Ran::from(command.output().expect("it starts")).fails(1, &[address]);
}

#[test]
fn a_disk_is_mounted_from_a_bucket() {
    if !machine_has(&[]) {
        return;
    }
    let scene = Scene::new();
    let store = Store::start(&scene);
    let disk = scene.image("a.hsi", 300, 85);
    let address = store.run(&scene, &["push", "a.hsi", "s3://images/a.hsi"]).ok().stdout;
    let dir = scene.folder("dir");
    let command = store.program(&scene, &["mount", "-f", address.trim(), &dir, CACHE]);
    let mut serving = Running::start_command(command);
    assert!(serving.said().contains("mounted"));
    assert!(fs::read(scene.path("dir/disk.img")).expect("read") == disk);
    let status = crate::scene::run(["status", &dir, "--json"]).ok().stdout;
    assert!(!status.contains(SECRET) && !status.contains("X-Amz"), "{status}");
    serving.signal(Signal::TERM);
    assert!(serving.end().0.success());
    wait_until("it is unmounted", || scene.mounts().is_empty());
    scene.wait_until_clean();
}
