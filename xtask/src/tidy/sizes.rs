//! A file is one noun, a function does one thing: both stay short enough to be read at once.

use super::Violation;
use super::repository::{File, Repository};
use super::source::{closing_brace, is_word_at, line_of};

/// No file is longer than this.
const LONGEST_FILE: usize = 1_000;
/// Nine files of ten are shorter than this.
const USUAL_FILE: usize = 500;
/// A newcomer reads this page in a quarter of an hour, so it stays this short.
const ARCHITECTURE: (&str, usize) = ("docs/ARCHITECTURE.md", 300);
/// The aim for a function is 70 lines; from here on it is an error.
const LONGEST_FUNCTION: usize = 90;

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let code: Vec<&File> = repository.files.iter().filter(|file| is_code(&file.path)).collect();
    let mut violations = Vec::new();
    for file in &code {
        let lines = file.text.lines().count();
        if lines > LONGEST_FILE {
            let what = format!("{lines} lines, at most {LONGEST_FILE} are allowed: split it by its nouns");
            violations.push(Violation::whole(&file.path, what));
        }
        violations.extend(long_functions(file));
    }
    let (page, most) = ARCHITECTURE;
    let lines = repository.file(page).map_or(0, |file| file.text.lines().count());
    if lines > most {
        let what =
            format!("{lines} lines, at most {most} are allowed: why it is so belongs into docs/decisions/");
        violations.push(Violation::whole(page, what));
    }
    let long: Vec<&str> = code
        .iter()
        .filter(|file| file.text.lines().count() >= USUAL_FILE)
        .map(|file| file.path.as_str())
        .collect();
    if long.len() * 10 > code.len() {
        let what =
            format!("more than a tenth of the files have {USUAL_FILE} lines or more: {}", long.join(", "));
        violations.push(Violation::whole("the repository", what));
    }
    violations
}

fn is_code(path: &str) -> bool {
    [".rs", ".sh", ".py", ".ts", ".js", ".css"].iter().any(|ending| path.ends_with(ending))
}

fn long_functions(file: &File) -> Vec<Violation> {
    let code = &file.code;
    let mut violations = Vec::new();
    for (index, _) in code.match_indices("fn ") {
        if !is_word_at(code, index, "fn") {
            continue;
        }
        // A body follows before any semicolon; without one it is a declaration or a type.
        let Some(stop) = body_or_semicolon(code, index) else { continue };
        if code.as_bytes()[stop] != b'{' {
            continue;
        }
        let first = line_of(code, index);
        let lines = line_of(code, closing_brace(code, stop)) - first + 1;
        if lines > LONGEST_FUNCTION {
            let name: String =
                code[index + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let what = format!("function {name} has {lines} lines, at most {LONGEST_FUNCTION} are allowed");
            violations.push(Violation::at(&file.path, first, what));
        }
    }
    violations
}

/// The brace that opens the body, or the semicolon that ends the declaration. The semicolon of an
/// array type (`[u8; 4]`) stands in brackets and does not count.
fn body_or_semicolon(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (i, c) in code[from..].char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            '{' | ';' if depth <= 0 => return Some(from + i),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let said = lines(&check(&files(&[("a.rs", &"// x\n".repeat(1_001))])));
        assert!(said[0].starts_with("a.rs: 1001 lines"), "{said:?}");
    }

    #[test]
    fn an_architecture_that_is_too_long_is_found_and_other_pages_may_be_long() {
        let said = |lines| {
            check(&files(&[(ARCHITECTURE.0, &"x\n".repeat(lines)), ("docs/LAB.md", &"x\n".repeat(301))]))
        };
        assert_eq!((said(300).len(), said(301).len()), (0, 1));
    }

    #[test]
    fn too_many_long_files_are_found() {
        let long = "// x\n".repeat(500);
        let nine: Vec<String> = (0..9).map(|i| format!("{i}.rs")).collect();
        let mut some: Vec<(&str, &str)> = nine.iter().map(|path| (path.as_str(), "// x\n")).collect();
        some.push(("long.rs", &long));
        assert_eq!(check(&files(&some)), []);
        some.pop();
        some[0].1 = &long;
        assert!(lines(&check(&files(&some)))[0].ends_with("0.rs"));
    }

    #[test]
    fn a_long_function_is_found_where_it_begins() {
        let body = "    let a: [u8; 4] = b;\n".repeat(89);
        let fits = format!("\nfn f(x: [u8; 2]) -> [u8; 2] {{\n{}}}\n", &body[..24 * 88]);
        let long = format!("\nfn f(x: [u8; 2]) -> [u8; 2] {{\n{body}}}\n");
        assert_eq!(check(&files(&[("a.rs", &fits)])), []);
        let said = lines(&check(&files(&[("a.rs", &long)])));
        assert_eq!(said, ["a.rs:2: function f has 91 lines, at most 90 are allowed"]);
    }

    #[test]
    fn a_declaration_without_a_body_has_no_length() {
        let trait_text = format!("trait T {{\n    fn f(&self) -> [u8; 4];\n{}}}", "    // x\n".repeat(95));
        assert_eq!(check(&files(&[("a.rs", &trait_text)])), []);
    }
}
