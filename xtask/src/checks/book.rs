//! The book of docs/: mdBook builds it without a warning, and each link in it leads somewhere.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Outcome;

/// Others warn of other things. scripts/setup.sh installs it.
const VERSION: &str = "0.5.4";
/// Pages that mdBook adds to those of docs/: their links are those of the others, seen from elsewhere.
const ADDED: [&str; 3] = ["404.html", "print.html", "toc.html"];

pub(super) fn check(root: &Path) -> Outcome {
    let Some(program) = find() else {
        return Outcome::Skipped(format!("mdbook {VERSION} is missing: scripts/setup.sh installs it"));
    };
    let output = match Command::new(program).arg("build").current_dir(root).output() {
        Ok(output) => output,
        Err(error) => return Outcome::Failed(format!("mdbook: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || ["WARN", "ERROR"].iter().any(|word| said.contains(word)) {
        print!("{said}");
        return Outcome::Failed("mdbook warns".into());
    }
    match broken_links(&root.join("book")) {
        Ok(broken) if broken.is_empty() => Outcome::Passed,
        Ok(broken) => {
            broken.iter().for_each(|link| println!("{link}"));
            Outcome::Failed(format!("{} links of the book lead nowhere", broken.len()))
        }
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

/// The mdBook of this machine, where cargo installs programs or on PATH, if it is of that version.
fn find() -> Option<PathBuf> {
    let works = |program: &PathBuf| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
    };
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let own = home.map(|home| home.join("bin/mdbook"));
    own.into_iter().chain([PathBuf::from("mdbook")]).find(works)
}

/// Links of pages in `book` that lead to no file, or to no heading of a page.
fn broken_links(book: &Path) -> Result<Vec<String>> {
    let mut pages = HashMap::new();
    for folder in [book.to_owned(), book.join("decisions")] {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "html") {
                let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                pages.insert(path, text);
            }
        }
    }
    let mut broken = Vec::new();
    for (page, text) in &pages {
        let is_added = page.file_name().is_some_and(|name| ADDED.iter().any(|added| name == *added));
        let links = links(text).filter(|link| !is_added && !leads_somewhere(page, link, &pages));
        broken.extend(links.map(|link| format!("{}: {link}", page.display())));
    }
    broken.sort();
    Ok(broken)
}

/// What a page links to.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let behind = [" href=\"", " src=\""].into_iter().flat_map(|name| text.split(name).skip(1));
    behind.filter_map(|rest| Some(rest.split_once('"')?.0)).filter(|link| !link.contains(':'))
}

fn leads_somewhere(page: &Path, link: &str, pages: &HashMap<PathBuf, String>) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { resolve(page, file) };
    match pages.get(&target) {
        Some(text) => heading.is_empty() || text.contains(&format!(" id=\"{heading}\"")),
        // A document beside docs/ is no page of the book, and mdBook names it as if it were.
        None => target.exists() || target.with_extension("md").exists(),
    }
}

/// Without `..`, since `pages` has each path in one form.
fn resolve(page: &Path, file: &str) -> PathBuf {
    let mut target = page.parent().unwrap_or(page).to_owned();
    for part in file.split('/') {
        match part {
            ".." => {
                target.pop();
            }
            "." => {}
            _ => target.push(part),
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_file_and_to_a_heading() {
        let folder = Path::new("/nowhere/book");
        let text = "<h2 id=\"a-life\">A life</h2> <a href=\"https://else.where\">x</a> <a href=\"#a-life\">";
        let other =
            "<a href=\"../A.html#a-life\"><img src=\"../gone.svg\"><a class=\"x\" href=\"../A.html#none\">";
        let pages: HashMap<PathBuf, String> = [("A.html", text), ("decisions/1.html", other)]
            .map(|(name, text)| (folder.join(name), text.into()))
            .into();
        let broken = |name: &str| -> Vec<&str> {
            let page = folder.join(name);
            links(&pages[&page]).filter(|link| !leads_somewhere(&page, link, &pages)).collect()
        };
        assert!(broken("A.html").is_empty());
        assert_eq!(broken("decisions/1.html"), ["../A.html#none", "../gone.svg"]);
    }
}
