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

use crate::scene::{Ran, Running, Scene, machine_has, wait_until};
use crate::web::remote;

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
        let mut command = remote(scene, arguments);
        let ours = |name: &str| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
        for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command.env("HOME", scene.path("home"));
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn program(&self, scene: &Scene, arguments: &[&str]) -> Command {
        let mut command = self.stranger(scene, arguments);
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
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

const EXPORT: [&str; 6] = ["export", "s3://images/dir/a.hsi", "-o", "out.raw", "--format", "raw"];

/// Parts of uploads that were not ended, as s3s-fs keeps them.
fn unfinished(scene: &Scene) -> usize {
    let names = fs::read_dir(scene.path("s3")).expect("listed").flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".upload")).count()
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
    // Neither the secret nor a signed address is told, nor kept.
    for word in [SECRET, "X-Amz-Signature", "X-Amz-Credential"] {
        assert!(!ran.stderr.contains(word) && !ran.stdout.contains(word), "{}", ran.stderr);
        let kept = Command::new("grep").args(["-rl", word, &scene.arg("cache")]).output();
        assert!(kept.expect("grep starts").stdout.is_empty(), "{word}");
    }
    store.run(&scene, &["verify", &named, CACHE, "--offline"]).ok();
}

#[test]
fn an_interrupted_upload_leaves_no_object() {
    let scene = Scene::new();
    let store = Store::start(&scene);
    scene.image("a.hsi", 12_000, 86);
    let command = store.program(&scene, &["push", "a.hsi", "s3://images/a.hsi"]);
    let pushing = Running::start_command(command);
    wait_until("something has come", || unfinished(&scene) > 0 || scene.path("s3/images/a.hsi").exists());
    pushing.signal(Signal::INT);
    let (status, _, said) = pushing.end();
    // It may have been quicker than the signal.
    if !status.success() {
        assert!(said.contains("interrupted") && !scene.path("s3/images/a.hsi").exists(), "{said}");
    }
    store.run(&scene, &["push", "a.hsi", "s3://images/a.hsi"]).ok();
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
