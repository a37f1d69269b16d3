//! Links in the documentation lead somewhere: relative ones to a file and a heading of the repository.

use super::Violation;
use super::repository::{File, Repository};

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let documents = repository.files.iter().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| check_document(repository, file)).collect()
}

fn check_document(repository: &Repository, file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, text) in prose_lines(&file.text) {
        for target in targets(text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let resolved = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
            let Some(resolved) = resolved.filter(|path| repository.contains(path) || path.is_empty()) else {
                violations.push(Violation::at(
                    &file.path,
                    line,
                    format!("the link to {target} leads nowhere"),
                ));
                continue;
            };
            let missing =
                |document: &File| !heading.is_empty() && !headings(&document.text).contains(&heading.into());
            if repository.file(&resolved).is_some_and(missing) {
                let what = format!("{resolved} has no heading #{heading}");
                violations.push(Violation::at(&file.path, line, what));
            }
        }
    }
    violations
}

/// Lines outside fenced blocks, with their numbers from 1.
fn prose_lines(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((i + 1, line));
        }
    }
    lines
}

/// Targets of `[text](target)` and `[name]: target` that are not addresses on the network.
fn targets(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for (i, _) in line.match_indices("](") {
        if let Some((target, _)) = line[i + 2..].split_once(')') {
            found.push(target);
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target);
    }
    // A title may follow the target, and code spans may show the syntax without meaning it.
    found
        .into_iter()
        .filter_map(|target| target.split_whitespace().next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// The path from the root that `target`, written in the document `from`, means; `None` if it leaves
/// the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that the usual renderers make of a document's headings.
fn headings(text: &str) -> Vec<String> {
    prose_lines(text)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    fn said_about(text: &str) -> Vec<String> {
        lines(&check(&files(&[
            ("docs/A.md", text),
            ("docs/B.md", "# The `index`, drawn\n"),
            ("README.md", ""),
            ("crates/hs-units/src/lib.rs", ""),
        ])))
    }

    #[test]
    fn links_to_files_folders_headings_and_the_network_are_fine() {
        let text = "[b](B.md) [i](B.md#the-index-drawn) [r](../README.md) [u](../crates/hs-units/)\n\
            [w](https://example.org/x) [here](#a-b)\n# A: b\n[ref]: ./B.md \"title\"\n[root](..)\n";
        assert_eq!(said_about(text), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for bad in ["[x](C.md)", "[x](../../README.md)", "[x](B.md#gone)", "[x](#gone)", "[x]: C.md"] {
            assert_eq!(said_about(&format!("\n{bad}\n")).len(), 1, "{bad}");
        }
    }

    #[test]
    fn fenced_examples_are_not_links() {
        assert!(said_about("```\n[x](C.md)\n```\n").is_empty());
    }
}
