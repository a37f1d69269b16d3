//! One module for each parser of bytes from outside. Its `run` takes any bytes and panics when a promise is
//! broken. It returns whether the bytes were accepted, which shows that a corpus gets past the first check.
//!
//! `make fuzz` gives them to a fuzzer. Every `make test` runs the files of `fuzz/corpus/` through them.

pub mod archive;
pub mod block_log;
pub mod cloop;
pub mod composed;
pub mod container;
pub mod elf_needs;
pub mod ext4;
pub mod fill_events;
pub mod http_reply;
pub mod image_tables;
pub mod iso_files;
pub mod manifest;
pub mod model_file;
pub mod nbd;
pub mod overlay;
pub mod pack;
pub mod pointer;
pub mod profile;
pub mod qcow2;
pub mod recording_line;
pub mod regions;
pub mod report_json;
pub mod report_table;
pub mod saved_guest;
pub mod snapshot_filter;
pub mod superblock;
pub mod upload;
pub mod virtual_disk;
pub mod volumes;

/// Tries bytes; returns whether they were accepted.
pub type Target = fn(&[u8]) -> bool;

/// Every target by its name, which is that of its program in `targets/` and of its folder in `corpus/`.
pub const TARGETS: &[(&str, Target)] = &[
    ("archive", archive::run),
    ("block_log", block_log::run),
    ("cloop", cloop::run),
    ("composed", composed::run),
    ("container", container::run),
    ("elf_needs", elf_needs::run),
    ("ext4", ext4::run),
    ("fill_events", fill_events::run),
    ("http_reply", http_reply::run),
    ("image_tables", image_tables::run),
    ("iso_files", iso_files::run),
    ("manifest", manifest::run),
    ("model_file", model_file::run),
    ("nbd", nbd::run),
    ("overlay", overlay::run),
    ("pack", pack::run),
    ("pointer", pointer::run),
    ("profile", profile::run),
    ("qcow2", qcow2::run),
    ("recording_line", recording_line::run),
    ("regions", regions::run),
    ("report_json", report_json::run),
    ("report_table", report_table::run),
    ("saved_guest", saved_guest::run),
    ("snapshot_filter", snapshot_filter::run),
    ("superblock", superblock::run),
    ("upload", upload::run),
    ("virtual_disk", virtual_disk::run),
    ("volumes", volumes::run),
];

/// The program of a target: for the fuzzer, or one that runs the files it is given.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(feature = "libfuzzer")]
        $crate::fuzz_target!(|data: &[u8]| {
            $crate::$name::run(data);
        });

        #[cfg(not(feature = "libfuzzer"))]
        fn main() {
            $crate::replay_arguments($crate::$name::run);
        }
    };
}

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys::fuzz_target;

/// Runs the files that the command line names.
///
/// # Panics
/// When one of them cannot be read, or breaks a promise.
#[allow(clippy::print_stdout, reason = "standard output is these programs' report")]
pub fn replay_arguments(target: Target) {
    for path in std::env::args_os().skip(1) {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        println!("{}: {}", path.display(), if target(&bytes) { "accepted" } else { "refused" });
    }
}
