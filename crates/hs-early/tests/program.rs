//! `headstart-accelerate`, where there is nothing for it to do.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart-accelerate")).args(arguments).output().expect("it starts")
}

#[test]
fn it_says_what_it_is_and_does_nothing_where_it_is_off() {
    assert!(String::from_utf8_lossy(&run(&["--help"]).stdout).contains("headstart accelerate"));
    assert!(String::from_utf8_lossy(&run(&["--version"]).stdout).starts_with("headstart-accelerate "));
    assert_eq!(run(&["now"]).status.code(), Some(2));
    if hs_early::Switch::of(std::path::Path::new("/")).is_on() {
        return hs_testing::skip("this machine's own boots are accelerated");
    }
    let ran = run(&[]);
    assert_eq!((ran.status.code(), ran.stdout, ran.stderr), (Some(0), Vec::new(), Vec::new()));
}
