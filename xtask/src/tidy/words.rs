//! Documents and comments use plain words and short lines. docs/GLOSSARY.md lists the words.

use super::Violation;
use super::repository::{File, Repository};
use super::source::{comment_lines, is_word_at};

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
    let glossary = repository.file(GLOSSARY).map_or("", |file| &file.text);
    let (prose, types) = (table(glossary, PROSE), table(glossary, TYPES));
    let mut violations = Vec::new();
    for file in &repository.files {
        if file.is_rust() {
            violations.extend(lines(file, &prose, comment_lines(&file.text)));
            violations.extend(type_names(file, &types));
        } else if is_document(&file.path) {
            violations.extend(lines(file, &prose, document_lines(&file.text)));
        }
    }
    violations
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

    fn said(path: &str, text: &str) -> Vec<String> {
        lines(&check(&files(&[(GLOSSARY, WORDS), (path, text)])))
    }

    #[test]
    fn banned_words_are_found_in_documents_and_comments_and_nowhere_else() {
        let found = said("docs/A.md", "# A\nWhoever asks, waits for ever: he waits.\n");
        assert_eq!(
            found,
            [
                "docs/A.md:2: \"whoever\": name it",
                "docs/A.md:2: \"he\": name it",
                "docs/A.md:2: \"for ever\": always"
            ]
        );
        assert_eq!(said("docs/A.md", "The cache; `whoever`.\n```\nhe\n```\n"), [""; 0]);
        assert_eq!(said("bench/results/a.md", "whoever\n"), [""; 0]);
        let code = "fn he() { \"whoever\" } // fine\n/// He\n/* a\n he */\n";
        assert_eq!(said("a.rs", code), ["a.rs:2: \"he\": name it", "a.rs:4: \"he\": name it"]);
    }

    #[test]
    fn long_lines_are_found_where_they_can_be_broken() {
        let (long, word) = ("ab ".repeat(40), "a".repeat(120));
        assert_eq!(said("README.md", &long), ["README.md:1: 120 columns, at most 110 are allowed"]);
        for fine in [
            format!("| {long}"),
            format!("- {word}"),
            format!("  - [{long}](a)"),
            format!("```\n{long}\n```"),
        ] {
            assert_eq!(said("README.md", &fine), [""; 0], "{fine}");
        }
        assert_eq!(said("a.rs", &format!("let a = 1; // {long}")).len(), 1);
        assert_eq!(said("a.rs", &format!("let a = \"{long}\";")), [""; 0]);
    }

    #[test]
    fn types_are_not_defined_by_names_that_are_not_used() {
        assert_eq!(said("a.rs", "pub(crate) struct Turn<'a> {}\n"), ["a.rs:1: type Turn: Permit"]);
        assert_eq!(said("a.rs", "pub struct Turned(Turn); // struct Turn\n"), [""; 0]);
    }
}
