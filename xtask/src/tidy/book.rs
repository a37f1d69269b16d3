//! Every page of docs/ is in the book: docs/SUMMARY.md, from which mdBook makes it, has a link to each. That
//! links lead somewhere is the rule `links`.

use super::Violation;
use super::repository::Repository;

const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(summary) = repository.file(SUMMARY) else {
        return vec![Violation::whole(SUMMARY, "the book's table of contents is missing")];
    };
    let is_page = |path: &str| path.starts_with("docs/") && path.ends_with(".md") && path != SUMMARY;
    let pages = repository.files.iter().filter(|file| is_page(&file.path));
    let lacks = pages.filter(|file| {
        let link = format!("]({})", file.path.trim_start_matches("docs/"));
        !summary.text.contains(&link)
    });
    lacks.map(|file| Violation::whole(&file.path, format!("{SUMMARY} has no link to this page"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn a_page_that_the_book_lacks_is_found() {
        let book = |summary| {
            lines(&check(&files(&[(SUMMARY, summary), ("docs/d/001-a.md", ""), ("README.md", "")])))
        };
        assert_eq!(book("- [A](d/001-a.md)\n"), [""; 0]);
        assert_eq!(
            book("- [A](d/001-b.md)\n"),
            ["docs/d/001-a.md: docs/SUMMARY.md has no link to this page"]
        );
        assert_eq!(check(&files(&[])).len(), 1);
    }
}
