//! The headstart command line.
fn main() {}
