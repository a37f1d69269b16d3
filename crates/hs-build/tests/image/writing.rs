//! Outputs that cannot be written.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hs_build::{BuildError, build, optimize};
use hs_units::{BlockRange, Lba, Prng};

use crate::sample::{Bench, disk, fast_build, hot_options, open, profile, source};

/// A tmpfs that holds a few hundred KiB, or `None` (visibly) where one cannot be mounted.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = rustix::mount::MountFlags::NOSUID;
        match rustix::mount::mount("tiny", folder.path(), "tmpfs", flags, Some(c"size=256k")) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                hs_testing::skip(format!("a tmpfs cannot be mounted ({error}); run as root"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.path()).expect("listed").next().is_none()
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left() {
    let Some(tiny) = TinyDisk::mount() else { return };
    let mut content = vec![0; 200 * 8192];
    Prng::new(51).fill(&mut content);
    let bench = Bench::new(content);
    let out = tiny.path().join("out.hsi");
    let error = build(&bench.source(), &out, &fast_build(8192, 2), &|_| {}).expect_err("the disk is full");
    let text = error.to_string();
    assert!(text.contains("out.hsi") && text.contains("No space left on device"), "{text}");
    assert!(tiny.is_empty());

    bench.build("cold", &fast_build(8192, 2));
    let image = open(&bench.path("cold"));
    let start = profile(&image, &bench.disk, &[BlockRange::new(Lba(0), 300)]);
    let failed = optimize(&image, Some(&bench.path("cold")), &[start], &out, &hot_options(2), &|_| {});
    let text = failed.expect_err("the disk is full").to_string();
    assert!(text.contains("out.hsi") && text.contains("No space left on device"), "{text}");
    assert!(tiny.is_empty());
}

#[test]
fn a_folder_that_is_not_there_and_a_device_are_named() {
    let bench = Bench::new(disk(&mut Prng::new(52), 20, 8192));
    let options = fast_build(8192, 1);
    let missing = bench.path("missing/out.hsi");
    let text = build(&bench.source(), &missing, &options, &|_| {}).expect_err("no folder").to_string();
    assert!(text.contains("missing/out.hsi") && text.contains("No such file or directory"), "{text}");
    for path in [Path::new("/dev/null"), bench.folder.path()] {
        let refused = build(&bench.source(), path, &options, &|_| {}).expect_err("not replaced");
        assert!(matches!(refused, BuildError::NotAFile { .. }), "{refused}");
    }
}

#[test]
fn a_source_that_changes_gives_no_image() {
    let bench = Bench::new(disk(&mut Prng::new(53), 2000, 8192));
    let source = source(&bench.path("disk.raw"));
    let changed = AtomicBool::new(false);
    let change_once = |_| {
        if !changed.swap(true, Ordering::SeqCst) {
            let path = bench.path("disk.raw");
            let mut file = std::fs::File::options().append(true).open(path).expect("opened");
            file.write_all(b"more").expect("written");
        }
    };
    let built = build(&source, &bench.path("out"), &fast_build(8192, 2), &change_once);
    assert!(matches!(built, Err(BuildError::Source(_))), "{built:?}");
    assert_eq!(bench.names(), [""; 0]);
}

/// What was there before stays until the new image is whole.
#[test]
fn a_build_that_fails_keeps_the_old_image() {
    let bench = Bench::new(disk(&mut Prng::new(54), 200, 8192));
    bench.build("out", &fast_build(8192, 1));
    let before = bench.bytes("out");
    let source = source(&bench.path("disk.raw"));
    std::fs::write(bench.path("disk.raw"), "short").expect("written");
    assert!(build(&source, &bench.path("out"), &fast_build(8192, 1), &|_| {}).is_err());
    assert!(bench.bytes("out") == before);
    assert_eq!(bench.names(), ["out"]);
}
