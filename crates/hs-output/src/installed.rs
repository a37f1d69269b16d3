//! What is installed with the program: below the folder that its `bin` lies in, or in the checkout that has
//! built it.

use std::path::{Path, PathBuf};

/// Where the documentation lies below that folder; its pages are those of docs/ in a checkout.
const DOCUMENTATION: &str = "share/doc/headstart";

/// The file that is called `installed` below the folder of this program's `bin`, and `built` in a checkout.
pub(crate) fn find(installed: &str, built: &str) -> std::io::Result<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    Ok(candidates(&program, installed, built).into_iter().find(|file| file.is_file()))
}

fn candidates(program: &Path, installed: &str, built: &str) -> Vec<PathBuf> {
    let prefix = program.parent().and_then(Path::parent);
    let target = program.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "target"));
    let checkout = target.and_then(Path::parent);
    let files = [prefix.map(|prefix| prefix.join(installed)), checkout.map(|checkout| checkout.join(built))];
    files.into_iter().flatten().collect()
}

/// A text of the program's own in which each `docs/PAGE.md` is replaced by the place of that page here.
#[must_use]
pub fn with_pages(text: &str) -> String {
    let mut parts = text.split("docs/");
    let mut placed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(".md").map_or(0, |at| at + ".md".len());
        let page = format!("docs/{}", &part[..end]);
        let found = find(&format!("{DOCUMENTATION}/{page}"), &page).ok().flatten();
        placed += &found.map_or(page, |file| file.display().to_string());
        placed += &part[end..];
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_beside_the_program_or_in_the_checkout() {
        let at = |program: &str| candidates(Path::new(program), "share/doc/x/A.md", "docs/A.md");
        assert_eq!(at("/usr/bin/headstart"), [Path::new("/usr/share/doc/x/A.md")]);
        let built = at("/src/target/debug/deps/headstart");
        assert!(built.contains(&PathBuf::from("/src/docs/A.md")), "{built:?}");
    }

    /// A test's program lies in the target folder of the checkout, unless that was moved.
    #[test]
    fn texts_name_the_pages_that_are_there() {
        let kernels = find("nowhere", "docs/KERNELS.md").expect("this program");
        let kernels = kernels.map_or_else(|| "docs/KERNELS.md".to_owned(), |file| file.display().to_string());
        assert_eq!(with_pages("a: see docs/KERNELS.md, or docs/"), format!("a: see {kernels}, or docs/"));
        assert_eq!(with_pages("docs/NO-SUCH.md (x)"), "docs/NO-SUCH.md (x)");
        assert_eq!(with_pages(""), "");
    }
}
