//! The program as the scripts of an initramfs call it. That it mounts roots is tested by guests that boot
//! (`headstart/tests/cli/live.rs`).

use std::process::{Command, Output};

fn live(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart-live")).args(arguments).output().expect("it starts")
}

#[test]
fn it_says_what_it_is_for() {
    let help = live(&["--help"]);
    let text = String::from_utf8(help.stdout).expect("text");
    assert!(help.status.success());
    for word in ["root=headstart:", "headstart.overlay=", "headstart.verify", "Exit codes"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let version = String::from_utf8(live(&["--version"]).stdout).expect("text");
    assert_eq!(version.trim(), concat!("headstart-live ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_machine_that_boots_otherwise_is_left_alone() {
    // This machine's own kernel was not asked for it.
    let asked = live(&["asked"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(asked.stderr.is_empty());
    let root = live(&["root", "/nowhere"]);
    assert_eq!(root.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&root.stderr).contains("no root=headstart:"));
    assert_eq!(live(&["nonsense"]).status.code(), Some(1));
}
