//! Builds the shared object that completes User-mode Linux's registers ([`src/preload.c`]), which is
//! shipped inside the program. There is none for processors that have no User-mode Linux: then the file is
//! empty.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/preload.c";
/// No start files and no library: it is loaded beside whatever C library linux.uml is linked to.
const FLAGS: [&str; 8] = [
    "-shared",
    "-fPIC",
    "-Os",
    "-ffreestanding",
    "-fno-stack-protector",
    "-nostdlib",
    // Its calls are bound before it runs: that takes more of a stack than User-mode Linux has.
    "-Wl,-z,now,--build-id=none",
    "-s",
];

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let object = PathBuf::from(variable("OUT_DIR")).join("preload.so");
    if variable("CARGO_CFG_TARGET_ARCH") != "x86_64" || variable("CARGO_CFG_TARGET_OS") != "linux" {
        std::fs::write(&object, []).expect("the build folder can be written to");
        return;
    }
    // The compiler that zstd and ring are built with, the one for the target where that is another machine.
    let compiler = cc::Build::new().cargo_metadata(false).get_compiler();
    let mut command = Command::new(compiler.path());
    command.args(FLAGS).arg("-o").arg(&object).arg(SOURCE);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} failed: {status}"),
        Err(error) => panic!("{command:?} cannot be run: {error}"),
    }
}
