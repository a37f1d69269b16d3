//! Nothing pretends to be finished: no stubs, no tests that are switched off.

use super::Violation;
use super::repository::Repository;
use super::source::{is_word_at, line_of};

/// Macros that stand for code that is not written.
const STUBS: &[&str] = &["todo", "unimplemented"];
/// Marks in comments that a person would have to remember.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in repository.rust_files() {
        for stub in STUBS {
            for (index, _) in file.code.match_indices(&format!("{stub}!")) {
                if is_word_at(&file.code, index, stub) {
                    let line = line_of(&file.code, index);
                    violations.push(Violation::at(&file.path, line, format!("{stub}! is a stub")));
                }
            }
        }
        for (index, _) in file.code.match_indices("ignore") {
            if is_attribute(&file.code, index) {
                let what = "an ignored test tests nothing: mend it or remove it";
                violations.push(Violation::at(&file.path, line_of(&file.code, index), what));
            }
        }
        for mark in MARKS {
            for (index, _) in file.text.match_indices(mark) {
                if is_word_at(&file.text, index, mark) {
                    let what = format!("{mark} in the tree: open an issue or do it");
                    violations.push(Violation::at(&file.path, line_of(&file.text, index), what));
                }
            }
        }
    }
    violations
}

/// `#[ignore]`, `#[ignore = "…"]` and the `ignore` of `#[cfg_attr(…, ignore)]`.
fn is_attribute(code: &str, index: usize) -> bool {
    let line_start = code[..index].rfind('\n').map_or(0, |i| i + 1);
    let before = code[line_start..index].trim();
    is_word_at(code, index, "ignore")
        && (before.ends_with("#[") || (before.contains("#[cfg_attr(") && before.ends_with(',')))
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn stubs_marks_and_ignored_tests_are_found() {
        for (code, what) in [
            ("fn f() { todo!() }", "todo!"),
            ("fn f() { unimplemented!(\"x\") }", "unimplemented!"),
            ("#[test]#[ignore]\nfn f() {}", "ignored"),
            ("#[ignore = \"slow\"]", "ignored"),
            ("#[cfg_attr(miri, ignore)]", "ignored"),
            (concat!("// FIX", "ME: later"), "issue"),
        ] {
            let said = lines(&check(&files(&[("a.rs", code)])));
            assert_eq!(said.len(), 1, "{code}: {said:?}");
            assert!(said[0].contains(what), "{said:?}");
        }
    }

    #[test]
    fn words_that_only_look_alike_are_no_violations() {
        let code = "// #[ignore]\nlet a = \"todo!\"; x.ignore(); let ignore = my_todo!();";
        assert_eq!(check(&files(&[("a.rs", code)])), []);
    }
}
