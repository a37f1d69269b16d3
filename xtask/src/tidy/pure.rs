//! Pure crates do no I/O, start no threads and read no clock, so that every run of them replays.

use super::Violation;
use super::repository::{File, Repository};
use super::source::{is_word_at, line_of};

/// The crates that must stay deterministic functions of their arguments.
pub(crate) const PURE: &[&str] = &[
    "hs-units",
    "hs-ext4",
    "hs-format",
    "hs-volumes",
    "hs-overlay",
    "hs-trace",
    "hs-accelerate",
    "hs-queue",
    "hs-engine",
    "hs-device",
    "hs-layout",
    "hs-lab",
    "hs-papers",
];

/// Modules of the standard library that reach outside. `std::{fs, io}` is found as well.
const MODULES: &[&str] = &["fs", "net", "thread", "process", "env", "os"];

/// Types and functions that reach outside under whatever path they are imported.
const WORDS: &[&str] = &["Instant", "SystemTime", "stdin", "stdout", "stderr", "RandomState"];

/// Macros that write to a terminal. A macro leaves no import behind that could be found.
const MACROS: &[&str] = &["println!", "print!", "eprintln!", "eprint!"];

/// Packages that do I/O, start threads or bring randomness; a pure crate's tests may use them.
const PACKAGES: &[&str] = &[
    "libc",
    "rustix",
    "nix",
    "tokio",
    "rayon",
    "crossbeam-channel",
    "parking_lot",
    "tempfile",
    "rand",
    "getrandom",
    "fastrand",
    "memmap2",
    "indicatif",
];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for name in PURE {
        let folder = format!("crates/{name}/src/");
        for file in repository.rust_files().filter(|file| file.path.starts_with(&folder)) {
            violations.extend(check_file(file));
        }
    }
    for package in repository.members().filter(|package| PURE.contains(&package.name.as_str())) {
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.dev) {
            if PACKAGES.contains(&dependency.name.as_str()) {
                let what = format!("the pure crate {} depends on {}", package.name, dependency.name);
                violations.push(Violation::whole(&package.manifest, what));
            }
        }
    }
    violations
}

fn check_file(file: &File) -> Vec<Violation> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (index, _) in file.code.match_indices("std::") {
        if is_word_at(&file.code, index, "std") {
            let path = &file.code[index + "std::".len()..];
            found.extend(modules_named(path).into_iter().map(|name| (index, format!("std::{name}"))));
        }
    }
    for word in WORDS {
        for (index, _) in file.code.match_indices(word) {
            if is_word_at(&file.code, index, word) {
                found.push((index, (*word).into()));
            }
        }
    }
    for name in MACROS {
        for (index, _) in file.code.match_indices(name) {
            if is_word_at(&file.code, index, name.trim_end_matches('!')) {
                found.push((index, (*name).into()));
            }
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|(index, what)| {
            let line = line_of(&file.code, index);
            Violation::at(&file.path, line, format!("{what} in a pure crate: pass the value in instead"))
        })
        .collect()
}

/// The forbidden modules that a path after `std::` names, whether alone or in a list in braces.
fn modules_named(path: &str) -> Vec<&'static str> {
    let list = match path.strip_prefix('{') {
        Some(list) => &list[..list.find(';').unwrap_or(list.len())],
        None => {
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
            &path[..end]
        }
    };
    // In a list, only an item's first word is a module of std: `{fmt, collections::{…}}`.
    let mut depth = 0_i32;
    let mut expects_module = true;
    let mut words = Vec::new();
    let mut word = String::new();
    for c in list.chars().chain([',']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            if expects_module && depth == 0 {
                words.push(std::mem::take(&mut word));
            }
            word.clear();
            expects_module = false;
        }
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_module = true,
            _ => {}
        }
    }
    MODULES.iter().copied().filter(|name| words.iter().any(|word| word == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::fixture::member;
    use super::super::repository::fixture::{files, lines};
    use super::*;

    fn said_about(code: &str) -> Vec<String> {
        lines(&check(&files(&[("crates/hs-engine/src/lib.rs", code)])))
    }

    #[test]
    fn what_reaches_outside_is_found_with_its_line() {
        for (code, what) in [
            ("use std::fs::File;", "std::fs"),
            ("use std::{collections::BTreeMap, thread};", "std::thread"),
            ("let a = std::env::var(\"A\");", "std::env"),
            ("let t = Instant::now();", "Instant"),
            ("fn f(t: std::time::SystemTime) {}", "SystemTime"),
            ("println!(\"x\");", "println!"),
        ] {
            let said = said_about(&format!("\n{code}\n"));
            assert_eq!(said.len(), 1, "{code}: {said:?}");
            assert!(said[0].starts_with(&format!("crates/hs-engine/src/lib.rs:2: {what} ")), "{said:?}");
        }
    }

    #[test]
    fn comments_literals_and_other_crates_are_no_violations() {
        assert!(said_about("// std::fs\nlet a = \"std::net Instant\"; use std::{fmt, io::Read};").is_empty());
        assert!(said_about("use std::{collections::{BTreeMap, btree_map::fs}, fmt};").is_empty());
        assert!(check(&files(&[("crates/hs-store/src/lib.rs", "use std::fs;")])).is_empty());
    }

    #[test]
    fn a_pure_crate_that_depends_on_io_is_found_but_its_tests_may() {
        let repository = Repository {
            packages: vec![member("hs-trace", &["libc", "dev:tempfile"])],
            ..Repository::default()
        };
        let said = lines(&check(&repository));
        assert_eq!(said, ["crates/hs-trace/Cargo.toml: the pure crate hs-trace depends on libc"]);
    }
}
