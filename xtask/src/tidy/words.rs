//! Documents and comments use plain words and short lines. docs/GLOSSARY.md lists the words; what was not
//! clean when the rule came is counted in [`LIST`], and a count may only fall.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Violation;
use super::repository::{File, Repository};
use super::source::{comment_lines, is_word_at};

/// How many violations each file may have: a path and a number a line.
pub(super) const LIST: &str = "xtask/words.txt";
/// Where the words are listed that are not used, and what to say instead.
const GLOSSARY: &str = "docs/GLOSSARY.md";
/// Lines of documents, and lines with comments, are at most this long.
const WIDTH: usize = 110;
/// Its heading is followed by a table: words of prose, and what to say.
const PROSE: &str = "## Words not used";
/// Its heading is followed by a table: names of types, and what to name them.
const TYPES: &str = "## Type names not used";

/// A word that is not used, and what to say instead.
type Banned = (String, String);

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let found = find(repository);
    let allowed = repository.file(LIST).map(|list| parse(&list.text)).unwrap_or_default();
    let mut violations = Vec::new();
    for (path, found) in &found {
        let allowed = allowed.get(*path).copied().unwrap_or(0);
        if found.len() > allowed {
            if allowed > 0 {
                let what = format!(
                    "{} violations of plain words, {LIST} allows {allowed}; all of them:",
                    found.len()
                );
                violations.push(Violation::whole(*path, what));
            }
            violations.extend(found.iter().cloned());
        }
    }
    for (path, allowed) in &allowed {
        let count = found.get(path.as_str()).map_or(0, Vec::len);
        if count < *allowed {
            let what = format!("{path} has {count} violations, not {allowed}: run `xtask tidy --lower`");
            violations.push(Violation::whole(LIST, what));
        }
    }
    violations
}

/// The list with lower counts where files have become cleaner; a first list when there is none. Never raises
/// a count.
pub(super) fn lowered(repository: &Repository) -> String {
    let old = repository.file(LIST).map(|list| parse(&list.text));
    let mut text = String::new();
    for (path, found) in find(repository) {
        let count = match &old {
            Some(old) => found.len().min(old.get(path).copied().unwrap_or(0)),
            None => found.len(),
        };
        if count > 0 {
            let _ = writeln!(text, "{path} {count}");
        }
    }
    text
}

fn parse(list: &str) -> BTreeMap<String, usize> {
    let pair = |line: &str| {
        let (path, count) = line.rsplit_once(' ')?;
        Some((path.to_owned(), count.parse().ok()?))
    };
    list.lines().filter_map(pair).collect()
}

/// All violations, by file; files without any are left out.
fn find(repository: &Repository) -> BTreeMap<&str, Vec<Violation>> {
    let glossary = repository.file(GLOSSARY).map_or("", |file| &file.text);
    let (prose, types) = (table(glossary, PROSE), table(glossary, TYPES));
    let mut found = BTreeMap::new();
    for file in &repository.files {
        let violations = if file.is_rust() {
            let mut violations = lines(file, &prose, comment_lines(&file.text));
            violations.extend(type_names(file, &types));
            violations
        } else if is_document(&file.path) {
            lines(file, &prose, document_lines(&file.text))
        } else {
            Vec::new()
        };
        if !violations.is_empty() {
            found.insert(file.path.as_str(), violations);
        }
    }
    found
}

fn is_document(path: &str) -> bool {
    let is_page = path.starts_with("docs/") && path.ends_with(".md");
    is_page || ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].contains(&path)
}

/// The rows of the table below a heading: each word in backticks of the first cell, with the second cell.
fn table(text: &str, heading: &str) -> Vec<Banned> {
    let section = text.lines().skip_while(|line| *line != heading).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"));
    let mut banned = Vec::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (words, instead) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        let words = words.split('`').skip(1).step_by(2);
        banned.extend(words.map(|word| (word.to_owned(), instead.to_owned())));
    }
    banned
}

/// Lines of a document outside fenced blocks, with their numbers from 1.
fn document_lines(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index + 1, line.to_owned()));
        }
    }
    lines
}

fn lines(file: &File, banned: &[Banned], prose: Vec<(usize, String)>) -> Vec<Violation> {
    let whole: Vec<&str> = file.text.lines().collect();
    let mut violations = Vec::new();
    for (number, text) in prose {
        let line = whole[number - 1];
        let width = line.chars().count();
        if width > WIDTH && can_be_broken(&text) {
            violations.push(Violation::at(
                &file.path,
                number,
                format!("{width} columns, at most {WIDTH} are allowed"),
            ));
        }
        let text = without_code(&text).to_lowercase();
        for (word, instead) in banned {
            let times =
                text.match_indices(word.as_str()).filter(|(index, _)| is_word_at(&text, *index, word));
            for _ in times {
                violations.push(Violation::at(&file.path, number, format!("\"{word}\": {instead}")));
            }
        }
    }
    violations
}

/// False for rows of tables, for one word with a marker before it, such as an address, and for a list item
/// that is one link: a book's table of contents has those.
fn can_be_broken(text: &str) -> bool {
    let item = text.trim_start().trim_start_matches("- ");
    let is_link = item.starts_with('[') && item.ends_with(')') && item.matches("](").count() == 1;
    !text.starts_with('|') && !is_link && text.split_whitespace().count() > 2
}

/// A line with its code spans blanked: what stands there is a program's word, such as the user `nobody`.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let is_code = |index: usize| index % 2 == 1 && index + 1 < parts.len();
    let kept = parts.iter().enumerate().filter(|(index, _)| !is_code(*index));
    kept.map(|(_, part)| *part).collect::<Vec<_>>().join(" ")
}

/// Definitions of types by names that are not used.
fn type_names(file: &File, banned: &[Banned]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in file.code.lines().enumerate() {
        let words: Vec<&str> =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2).filter(|pair| ["struct", "enum", "trait", "type"].contains(&pair[0])) {
            if let Some((word, instead)) = banned.iter().find(|(word, _)| word == pair[1]) {
                let what = format!("type {word}: {instead}");
                violations.push(Violation::at(&file.path, index + 1, what));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    const WORDS: &str = "# Glossary\n## Words not used\n| Not | Say |\n| --- | --- |\n| `whoever`, `he` | name it |\n\
        | `for ever` | always |\n## Type names not used\n| Not | Say |\n| --- | --- |\n| `Turn` | Permit |\n";

    fn said(path: &str, text: &str, list: &str) -> Vec<String> {
        lines(&check(&files(&[(GLOSSARY, WORDS), (path, text), (LIST, list)])))
    }

    #[test]
    fn banned_words_are_found_in_documents_and_comments_and_nowhere_else() {
        let found = said("docs/A.md", "# A\nWhoever asks, waits for ever: he waits.\n", "");
        assert_eq!(
            found,
            [
                "docs/A.md:2: \"whoever\": name it",
                "docs/A.md:2: \"he\": name it",
                "docs/A.md:2: \"for ever\": always"
            ]
        );
        assert_eq!(said("docs/A.md", "The cache; `whoever`.\n```\nhe\n```\n", ""), [""; 0]);
        assert_eq!(said("bench/results/a.md", "whoever\n", ""), [""; 0]);
        let code = "fn he() { \"whoever\" } // fine\n/// He\n/* a\n he */\n";
        assert_eq!(said("a.rs", code, ""), ["a.rs:2: \"he\": name it", "a.rs:4: \"he\": name it"]);
    }

    #[test]
    fn long_lines_are_found_where_they_can_be_broken() {
        let (long, word) = ("ab ".repeat(40), "a".repeat(120));
        assert_eq!(said("README.md", &long, ""), ["README.md:1: 120 columns, at most 110 are allowed"]);
        for fine in [
            format!("| {long}"),
            format!("- {word}"),
            format!("  - [{long}](a)"),
            format!("```\n{long}\n```"),
        ] {
            assert_eq!(said("README.md", &fine, ""), [""; 0], "{fine}");
        }
        assert_eq!(said("a.rs", &format!("let a = 1; // {long}"), "").len(), 1);
        assert_eq!(said("a.rs", &format!("let a = \"{long}\";"), ""), [""; 0]);
    }

    #[test]
    fn types_are_not_defined_by_names_that_are_not_used() {
        assert_eq!(said("a.rs", "pub(crate) struct Turn<'a> {}\n", ""), ["a.rs:1: type Turn: Permit"]);
        assert_eq!(said("a.rs", "pub struct Turned(Turn); // struct Turn\n", ""), [""; 0]);
    }

    #[test]
    fn a_count_may_stay_or_fall_and_not_rise() {
        let two = "// he\n// he\n";
        assert_eq!(said("a.rs", two, "a.rs 2\n"), [""; 0]);
        let found = said("a.rs", two, "a.rs 1\n");
        assert!(found.len() == 3 && found[0].starts_with("a.rs: 2 violations"), "{found:?}");
        let found = said("a.rs", two, "a.rs 3\nb.rs 1\n");
        assert!(found.len() == 2 && found[0].ends_with("run `xtask tidy --lower`"), "{found:?}");
    }

    #[test]
    fn lowering_writes_a_first_list_and_never_raises_a_count() {
        let text = "// he\n// he\n";
        let of = |list: &[(&str, &str)]| {
            lowered(&files(&[&[(GLOSSARY, WORDS), ("a.rs", text), ("b.rs", text)], list].concat()))
        };
        assert_eq!(of(&[]), "a.rs 2\nb.rs 2\n");
        assert_eq!(of(&[(LIST, "a.rs 1\nb.rs 9\nc.rs 1\n")]), "a.rs 1\nb.rs 2\n");
    }
}
