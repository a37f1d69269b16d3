//! What the rules look at: the text files of the repository and what cargo says about its packages.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::metadata::{self, Package};
use super::source;

/// One text file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// The whole text; empty for a file that is none.
    pub(crate) text: String,
    /// For Rust files: the text with comments and literals blanked, line for line the same.
    pub(crate) code: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { source::blank(text) } else { String::new() };
        Self { path: path.into(), text: text.into(), code }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The repository as the rules see it; tests build small ones by hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repository {
    /// Every file that is or could be committed.
    pub(crate) files: Vec<File>,
    /// Every package of the dependency graph on the platforms we build for.
    pub(crate) packages: Vec<Package>,
}

impl Repository {
    /// Reads the repository at `root` and asks cargo about its packages.
    pub(crate) fn open(root: &Path) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        for path in listed_files(root)? {
            let bytes = match std::fs::read(root.join(&path)) {
                Ok(bytes) => bytes,
                // Listed but gone from the work tree, or a link to a folder: nothing to check.
                Err(_) => continue,
            };
            // Pictures and other data have no text.
            files.push(File::new(&path, &String::from_utf8(bytes).unwrap_or_default()));
        }
        Ok(Self { files, packages: metadata::load(root)? })
    }

    /// The file at this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Rust files, in order of path.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// True if a file or a folder lies at this path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    /// Packages that belong to the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.member)
    }
}

/// Tracked files and new ones that git does not ignore; without git (a source archive), every file
/// outside the folders that builds make.
fn listed_files(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    if let Ok(output) = git
        && output.status.success()
    {
        let text = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        return Ok(text.split('\0').filter(|name| !name.is_empty()).map(Into::into).collect());
    }
    let mut files = BTreeSet::new();
    walk(root, root, &mut files)?;
    Ok(files)
}

fn walk(root: &Path, folder: &Path, files: &mut BTreeSet<String>) -> anyhow::Result<()> {
    const MADE_BY_BUILDS: &[&str] = &[".git", "target", "demo-out", "corpus", "artifacts", "node_modules"];
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry.with_context(|| folder.display().to_string())?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if !MADE_BY_BUILDS.iter().any(|name| entry.file_name() == *name) {
                walk(root, &path, files)?;
            }
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            files.insert(name.into());
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;
    use crate::tidy::Violation;

    /// A repository of these files and no packages.
    pub(crate) fn files(files: &[(&str, &str)]) -> Repository {
        Repository {
            files: files.iter().map(|(path, text)| File::new(path, text)).collect(),
            packages: Vec::new(),
        }
    }

    /// What a rule says, one line a violation.
    pub(crate) fn lines(violations: &[Violation]) -> Vec<String> {
        violations.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_contained_by_its_files_and_a_prefix_of_a_name_is_not() {
        let repository = fixture::files(&[("docs/FORMAT.md", "")]);
        assert!(repository.contains("docs") && repository.contains("docs/"));
        assert!(repository.contains("docs/FORMAT.md"));
        assert!(!repository.contains("docs/FORM"));
    }

    #[test]
    fn without_git_the_walk_leaves_out_what_builds_made() {
        let root = std::env::temp_dir().join(format!("xtask-walk-{}", std::process::id()));
        std::fs::create_dir_all(root.join("target")).unwrap();
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("target/built"), "").unwrap();
        std::fs::write(root.join("src/lib.rs"), "").unwrap();
        let mut found = BTreeSet::new();
        walk(&root, &root, &mut found).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["src/lib.rs"]);
    }
}
