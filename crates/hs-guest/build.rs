//! Builds what is shipped inside the program for guests: the shared object that completes User-mode Linux's
//! registers ([`src/preload.c`]), and the first program of guests ([`src/first_program.c`]). There is none
//! for processors that have no User-mode Linux: then the files are empty.

use std::path::{Path, PathBuf};
use std::process::Command;

/// No start files and no library, which a guest may not have.
const FREESTANDING: [&str; 6] =
    ["-Os", "-ffreestanding", "-fno-stack-protector", "-nostdlib", "-Wl,--build-id=none", "-s"];
/// Its calls are bound before it runs: that takes more of a stack than User-mode Linux has.
const SHARED: [&str; 3] = ["-shared", "-fPIC", "-Wl,-z,now"];
/// In one segment: it lies in memory twice, in the initramfs and where it runs.
const STATIC: [&str; 5] = ["-static", "-fno-pie", "-no-pie", "-Wl,-z,noseparate-code", "-Wl,-z,norelro"];

fn main() {
    compile("src/preload.c", "preload.so", &SHARED);
    compile("src/first_program.c", "first_program", &STATIC);
}

fn compile(source: &str, name: &str, flags: &[&str]) {
    println!("cargo::rerun-if-changed={source}");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let object = PathBuf::from(variable("OUT_DIR")).join(name);
    if variable("CARGO_CFG_TARGET_ARCH") != "x86_64" || variable("CARGO_CFG_TARGET_OS") != "linux" {
        std::fs::write(&object, []).expect("the build folder can be written to");
        return;
    }
    // The compiler that zstd and ring are built with, the one for the target where that is another machine.
    let compiler = cc::Build::new().cargo_metadata(false).get_compiler();
    let mut command = Command::new(compiler.path());
    command.args(FREESTANDING).args(flags).arg("-o").arg(&object).arg(Path::new(source));
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} failed: {status}"),
        Err(error) => panic!("{command:?} cannot be run: {error}"),
    }
}
