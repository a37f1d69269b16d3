//! Servers that are killed at any moment of a start or a boot: the start succeeds all the same, and every
//! byte is right.
//!
//! A moment is a place in the bytes that the start needs, drawn from a seed. The web server from which they
//! come stops there until the kill is done, so that a moment is the same on a slow machine and on a fast one.

use std::fs;
use std::process::{Command, Stdio};

use hs_units::Prng;
use rustix::process::{Pid, Signal, kill_process};

use crate::boots::{GUEST, boot};
use crate::faulty_server::{FaultyServer, Identity};
use crate::network_faults::{SUMMING, SUMS, content, guest_with, name, published, sums};
use crate::scene::{Running, START, Scene, machine_has, wait_until};
use crate::supervised::{first_child, served_again};
use crate::web::remote;

/// So many starts have their server killed, and so often it is killed in boots; or as often as this variable
/// says.
const KILLS: u64 = 20;
const KILLS_VARIABLE: &str = "KILLS";
/// As often in one boot, as long as it asks for more.
const KILLS_OF_A_BOOT: u64 = 5;

fn kills() -> u64 {
    std::env::var(KILLS_VARIABLE).map_or(KILLS, |said| said.parse().expect("a number"))
}

/// `headstart mount` of the image there, with nothing kept from the start before.
fn mounting(scene: &Scene, url: &str, flags: &[&str]) -> Running {
    let dir = scene.arg("dir");
    let words = ["-q", "mount", "-f", url, &dir, "--disk-cache=none"];
    Running::start_command(remote(scene, words.iter().chain(flags)))
}

/// The sums of some files in the mounted root, by a program of that root.
fn program_in(scene: &Scene) -> String {
    let tree = scene.path("tree");
    wait_until("the root is mounted", || tree.join("bin/md5sum").symlink_metadata().is_ok());
    let output =
        Command::new("chroot").arg(tree).args(&SUMS[1..]).stdin(Stdio::null()).output().expect("chroot");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("sums")
}

/// Kills the server when the web server has stopped; false when `is_over` before that.
fn kill_when_paused(serving: &Running, server: &FaultyServer, is_over: impl Fn() -> bool) -> bool {
    wait_until("the moment comes, or the start is over", || server.is_paused() || is_over());
    let has_come = server.is_paused();
    if has_come {
        let number = Pid::from_raw(first_child(serving.id()).cast_signed()).expect("a process");
        kill_process(number, Signal::KILL).expect("killed");
    }
    server.go_on();
    has_come
}

fn end(serving: Running, scene: &Scene) {
    serving.signal(Signal::TERM);
    let (ended, _, said) = serving.end();
    assert!(ended.success(), "{said}");
    scene.wait_until_clean();
}

#[test]
fn starts_whose_server_is_killed_at_any_moment_come_to_their_end() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let scene = guest_with("md5sum");
    let file = published(&scene, &content(2, 1_000_000), "");
    let server = FaultyServer::start(file, Identity::Tag);
    let url = format!("{}#{}", server.url(), name(&scene));
    let (dir, tree) = (scene.folder("dir"), scene.folder("tree"));
    let flags = ["--fs", &tree];
    let serving = mounting(&scene, &url, &flags);
    let expected = program_in(&scene);
    assert_eq!(expected.lines().count(), 3);
    end(serving, &scene);
    let usual = server.sent();
    let mut prng = Prng::new(17);
    let mut killed = 0;
    for number in 0..kills() {
        // The first one before the server has anything.
        server.pause_after(if number == 0 { 0 } else { prng.below(usual) });
        let serving = mounting(&scene, &url, &flags);
        let (was_killed, found) = std::thread::scope(|threads| {
            let program = threads.spawn(|| program_in(&scene));
            let was_killed = kill_when_paused(&serving, &server, || program.is_finished());
            (was_killed, program.join().expect("no panic"))
        });
        assert_eq!(found, expected, "start {number}");
        if was_killed {
            served_again(&dir, 1);
            killed += 1;
        }
        end(serving, &scene);
    }
    // What is not always asked for, such as what the kernel reads ahead, may be less than the first time.
    assert!(killed * 10 >= kills() * 8, "only {killed} of {} were killed", kills());
}

#[test]
fn a_boot_whose_server_is_killed_again_and_again_comes_to_its_end() {
    if !machine_has(&[START, GUEST].concat()) {
        return;
    }
    let scene = guest_with("md5sum");
    let file = published(&scene, &content(2, 1_000_000), SUMMING);
    let server = FaultyServer::start(file, Identity::Tag);
    let url = format!("{}#{}", server.url(), name(&scene));
    let dir = scene.folder("dir");
    let (console, disk) = (scene.arg("console"), format!("{dir}/disk.img"));
    let booted = || {
        wait_until("the disk is there", || fs::metadata(&disk).is_ok());
        boot(&scene, &disk, &["--memory", "64M", "--ready", "^summed$", "--console", &console]).ok();
        sums(&fs::read_to_string(&console).expect("the console"))
    };
    let serving = mounting(&scene, &url, &[]);
    let expected = booted();
    assert_eq!(expected.len(), 3);
    end(serving, &scene);
    let usual = server.sent();
    let mut prng = Prng::new(18);
    let (mut boots, mut killed) = (0, 0);
    while killed < kills() {
        boots += 1;
        assert!(boots <= kills(), "only {killed} kills in {boots} boots");
        let serving = mounting(&scene, &url, &[]);
        let found = std::thread::scope(|threads| {
            server.pause_after(prng.below(usual / (2 * KILLS_OF_A_BOOT)));
            let guest = threads.spawn(booted);
            let mut of_this = 0;
            while of_this < KILLS_OF_A_BOOT && kill_when_paused(&serving, &server, || guest.is_finished()) {
                of_this += 1;
                served_again(&dir, of_this);
                server.pause_after(prng.below(usual / (2 * KILLS_OF_A_BOOT)));
            }
            server.go_on();
            killed += of_this;
            guest.join().expect("no panic")
        });
        assert_eq!(found, expected, "boot {boots}");
        end(serving, &scene);
    }
    eprintln!("{killed} kills in {boots} boots");
}
