//! Registries that are started again while images are sent to them: Debian's docker-registry.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::thread;

use crate::containers::{TOOLS, list, registry_with, said};
use crate::registry::{REGISTRY, Registry, export, program, run_here};
use crate::relay::Relay;
use crate::scene::{Ran, START, Scene, has_tools, machine_has, wait_until};

enum Event {
    Asked,
    Ended(Ran),
}

/// Runs a command, and starts its registry again behind the answer to each request that is chosen by its
/// first line. The answer is held back meanwhile, so the next request comes to the next registry. Gives how
/// often.
fn ran_with_restarts(
    scene: &Scene,
    mut registry: Registry,
    relay: &Relay,
    words: &[&str],
    mut is_chosen: impl FnMut(&str) -> bool + Send + 'static,
) -> (Registry, usize, Ran) {
    let (events, seen) = channel();
    let (answers, may_go_on) = channel();
    let asking = events.clone();
    relay.hold(move |line| {
        if is_chosen(line) {
            asking.send(Event::Asked).expect("the test waits");
            may_go_on.recv().expect("the test goes on");
        }
        false
    });
    let mut command = program(scene, words);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("it starts");
    let answered = relay.answers();
    thread::spawn(move || events.send(Event::Ended(child.wait_with_output().expect("it ends").into())));
    let (mut restarts, mut next) = (0, None);
    loop {
        match next.take().unwrap_or_else(|| seen.recv().expect("it ends")) {
            Event::Asked => {}
            Event::Ended(ran) => return (registry, restarts, ran),
        }
        let before = answered.seen.load(SeqCst);
        let held = answered.gate.lock();
        answers.send(()).expect("the relay waits");
        // A request on a connection that was just closed has no answer: it is made again.
        wait_until("the registry has answered, or is asked again", || {
            next = next.take().or_else(|| seen.try_recv().ok());
            next.is_some() || answered.seen.load(SeqCst) > before
        });
        if next.is_none() {
            registry = registry.again(scene);
            restarts += 1;
        }
        drop(held);
    }
}

#[test]
fn a_push_goes_on_when_its_registry_is_started_again_behind_each_answer() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 4600, 91);
    let registry = Registry::start(&scene, false).again_with_secret(&scene);
    let relay = Relay::start(registry.port, |_| false);
    let address = format!("oci+http://127.0.0.1:{}/demo", relay.port);
    let push = ["push", "--upload-state=state", "a.hsi", &address, "--json"];
    let (registry, restarts, ran) = ran_with_restarts(&scene, registry, &relay, &push, |_| true);
    let pushed = ran.ok().json();
    // The blob is looked for, begun, sent in pieces and ended; then configuration and manifest are sent.
    assert!(restarts >= 9, "{restarts}");
    assert_eq!((&pushed["sent_bytes"], &pushed["resumed_bytes"]), (&pushed["bytes"], &0.into()), "{pushed}");
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0);
    export(&scene, &registry.url("demo"), &[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
}

/// Without a secret that stays the same, this registry does not know the uploads of the one before it.
#[test]
fn an_upload_that_its_registry_has_lost_is_begun_again() {
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let disk = scene.image("a.hsi", 4600, 92);
    let registry = Registry::start(&scene, false).again(&scene);
    let relay = Relay::start(registry.port, |_| false);
    let address = format!("oci+http://127.0.0.1:{}/demo", relay.port);
    let push = ["push", "--upload-state=state", "a.hsi", &address, "--json"];
    let is_begun = |line: &str| line.starts_with("POST ");
    let (registry, restarts, ran) = ran_with_restarts(&scene, registry, &relay, &push, is_begun);
    assert!(restarts > 1, "{restarts}");
    ran.fails(1, &[&address, "404", "http.secret", "the same command sends it anew"]);
    assert_eq!(fs::read_dir(scene.path("state")).expect("listed").count(), 0, "{}", ran.stderr);
    // Between two of three pieces: the next one is refused. Behind all three: the end is. Behind the
    // beginning of the empty configuration.
    let pieces = fs::metadata(scene.path("a.hsi")).expect("an image").len().div_ceil(4 << 20);
    assert_eq!(pieces, 3);
    let mut seen = [("PATCH ", 2), ("PATCH ", 6), ("POST ", 4)].map(|(method, nth)| (method, nth, 0));
    let once = move |line: &str| {
        seen.iter_mut().fold(false, |chosen, (method, nth, count)| {
            let is_this = line.starts_with(*method);
            *count += usize::from(is_this);
            chosen || is_this && count == nth
        })
    };
    let registry = registry.again(&scene);
    let (registry, restarts, ran) = ran_with_restarts(&scene, registry, &relay, &push, once);
    let pushed = ran.ok().json();
    assert_eq!((restarts, &pushed["sent_bytes"]), (3, &pushed["bytes"]), "{pushed}");
    export(&scene, &registry.url("demo"), &[]).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
}

#[test]
fn a_conversion_goes_on_when_its_registry_is_started_again_behind_each_answer() {
    if !has_tools(TOOLS) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let registry = registry_with(&scene, "one").again_with_secret(&scene);
    let relay = Relay::start(registry.port, |_| false);
    let url = format!("oci+http://127.0.0.1:{}/demo:1", relay.port);
    let convert = ["convert", &url, "--codec", "zstd:1", "--json"];
    let (registry, restarts, ran) = ran_with_restarts(&scene, registry, &relay, &convert, |_| true);
    let converted = ran.ok().json();
    assert!(restarts >= 12, "{restarts}");
    let digest = converted["source_digest"].as_str().expect("a digest");
    assert_eq!(list(&registry, digest).len(), 1);
    assert_eq!(said(&scene, &registry.url("demo:1")).ok().stdout, "one\nhello from the archive\n");
    let again = run_here(&scene, &["convert", &registry.url("demo:1"), "--codec", "zstd:1", "--json"]);
    assert_eq!(again.ok().json()["was_there"], true);
    drop(registry);
    scene.wait_until_clean();
}
