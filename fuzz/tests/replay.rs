//! The committed corpus, on the ordinary compiler.

use std::fs;
use std::path::{Path, PathBuf};

use headstart_fuzz::TARGETS;

fn files(folder: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Also cut and flipped, so that each file stands for many.
#[test]
fn every_file_of_the_corpus_keeps_the_promises_of_its_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, target) in TARGETS {
        let (mut accepted, mut refused) = (0, 0);
        let mut count = |is_accepted| *if is_accepted { &mut accepted } else { &mut refused } += 1;
        for path in files(&root.join("corpus").join(name)) {
            let bytes = fs::read(&path).expect("read");
            count(target(&bytes));
            for part in 1..8 {
                let at = bytes.len() * part / 8;
                count(target(&bytes[..at]));
                let mut flipped = bytes.clone();
                if let Some(byte) = flipped.get_mut(at) {
                    *byte ^= 1 << part;
                    count(target(&flipped));
                }
            }
        }
        // A corpus that never gets past the first check, or is never refused, tests little.
        assert!(accepted > 0 && refused > 0, "{name}: {accepted} accepted, {refused} refused");
    }
}

#[test]
fn every_target_has_a_program_and_every_program_is_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
    let programs = files(&root.join("targets"));
    assert_eq!(programs.len(), TARGETS.len(), "{programs:?}");
    for (name, _) in TARGETS {
        let path = format!("targets/{name}.rs");
        let text = fs::read_to_string(root.join(&path)).expect(&path);
        assert!(text.contains(&format!("target!({name});")), "{path}");
        assert!(manifest.contains(&format!("path = \"{path}\"")), "{path} is not in Cargo.toml");
    }
}
