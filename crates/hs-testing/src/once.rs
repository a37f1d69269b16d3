//! What many tests use and none changes is made once, though each test has a process of its own.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file or folder `name` below `kept`, which `make` makes at the path it is given. It is made by the
/// first test that asks, while the others wait, and again when this test program or one of `makers` has been
/// built anew.
///
/// # Panics
/// If it cannot be made.
pub fn made_once(kept: &Path, name: &str, makers: &[&Path], make: impl FnOnce(&Path)) -> PathBuf {
    let folder = kept.join("once").join(name);
    let (made, noted) = (folder.join("made"), folder.join("by"));
    fs::create_dir_all(kept.join("once")).expect("a folder");
    let lock = File::create(folder.with_extension("lock")).expect("a file");
    lock.lock().expect("locked");
    let program = std::env::current_exe().expect("this program");
    let by: String = [&*program].iter().chain(makers).map(|path| build_of(path)).collect();
    if fs::read_to_string(&noted).is_ok_and(|noted| noted == by) {
        return made;
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("a folder");
    make(&made);
    fs::write(noted, by).expect("written");
    made
}

/// What tells one build of a program from another.
fn build_of(program: &Path) -> String {
    let metadata = fs::metadata(program).expect("a program");
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    format!("{} {} {seconds}.{nanoseconds}\n", program.display(), metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_again_when_its_maker_changes() {
        let kept = std::env::temp_dir().join(format!("headstart-once-{}", std::process::id()));
        fs::create_dir_all(&kept).unwrap();
        let maker = kept.join("maker");
        fs::write(&maker, "one").unwrap();
        let made = |text: &str| {
            let path = made_once(&kept, "thing", &[&maker], |path| fs::write(path, text).unwrap());
            fs::read_to_string(path).unwrap()
        };
        assert_eq!([made("first"), made("second")], ["first", "first"]);
        fs::write(&maker, "another").unwrap();
        assert_eq!([made("third"), made("fourth")], ["third", "third"]);
        fs::remove_dir_all(kept).unwrap();
    }
}
