//! Images that are to be unmounted while something is in the way: no snapshotter, no server, a file.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::containerd::{Containers, EXISTS, OK, add, diff_ids, with_registry};
use crate::containerd_deaths::{kill_all, of_image};
use crate::scene::{Scene, wait_until};

/// Labels the lowest layer, which is what has the image mounted.
const REFERENCE: &str = "containerd.io/snapshot.ref";

/// Processes that are stopped, until this is dropped.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn these(processes: Vec<Pid>) -> Self {
        processes.iter().for_each(|pid| kill_process(*pid, Signal::STOP).expect("stopped"));
        Self(processes)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

/// How many folders of images there are.
fn folders(scene: &Scene) -> usize {
    fs::read_dir(scene.path("root/images")).expect("a folder").count()
}

/// A snapshotter without a containerd that has mounted an image; and its snapshot's name.
fn mounted<'a>(scene: &'a Scene, layout: &Path) -> (Containers<'a>, String) {
    let containers = Containers::snapshotter(scene, &["--prefetch", "off"]);
    let layer = diff_ids(layout)[0].clone();
    assert_eq!(containers.prepare("one", "", &[(REFERENCE, &layer)]).code, EXISTS, "{}", containers.log());
    assert_eq!((containers.mounted().len(), folders(scene)), (1, 1));
    (containers, format!("headstart/1/{layer}"))
}

/// containerd collects garbage and finds no snapshotter: it says so in its log, and does not try again.
#[test]
fn what_containerd_removes_while_no_snapshotter_answers_is_made_up_for() {
    let Some((scene, _, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    let mut containers = Containers::start(&scene, &[]);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    containers.snapshotter.kill();
    assert_eq!(containers.remove(&image).code, OK);
    let log = fs::read_to_string(scene.path("containerd.log")).expect("a log");
    assert!(log.contains("snapshot garbage collection failed"), "{log}");
    assert_eq!(containers.mounted().len(), 1);
    containers.kill_snapshotter();
    wait_until("the image is unmounted", || containers.mounted().is_empty());
    drop(registry);
    containers.end(&[]);
}

#[test]
fn what_cannot_be_removed_is_tried_again() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    let (containers, name) = mounted(&scene, &layout);
    let folder = fs::read_dir(scene.path("root/images")).expect("a folder").next().expect("one");
    let in_the_way = folder.expect("an entry").path().join("file");
    fs::write(&in_the_way, "").expect("written");
    assert_eq!(containers.with_key("Remove", &name).code, OK);
    wait_until("it has failed once", || containers.log().contains("stays mounted"));
    assert_eq!(folders(&scene), 1);
    fs::remove_file(&in_the_way).expect("removed");
    wait_until("the folder is gone", || folders(&scene) == 0);
    drop(registry);
    containers.end(&[]);
}

/// Whose server is dead and has no next one yet: what looks at the mount waits. The call does not, nor does a
/// snapshotter that starts.
#[test]
fn a_removal_does_not_wait_for_a_dead_server() {
    let Some((scene, layout, registry, image)) = with_registry(100_000) else { return };
    add(&scene, &image);
    let (mut containers, name) = mounted(&scene, &layout);
    // This one is no keeper of the mount, so it must look whether that has a server.
    containers.kill_snapshotter();
    let stopped = Stopped::these(of_image(&scene, false));
    assert_eq!((stopped.0.len(), kill_all(&of_image(&scene, true))), (1, 1));
    assert_eq!(containers.with_key("Remove", &name).code, OK);
    assert_eq!(containers.mounted().len(), 1);
    // In the middle of the removal.
    containers.kill_snapshotter();
    assert_eq!(containers.mounted().len(), 1);
    drop(stopped);
    wait_until("the folder is gone", || folders(&scene) == 0);
    drop(registry);
    containers.end(&[]);
}
