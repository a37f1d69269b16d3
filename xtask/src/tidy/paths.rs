//! Nothing in the repository depends on the machine it was written on.

use super::Violation;
use super::repository::Repository;
use super::source::line_of;

/// Beginnings of absolute paths that exist on one machine only. They are put together here so that
/// this list does not find itself.
const PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp/bri", "ef"),
    concat!("/tmp/target", "-"),
    concat!("/home/", "user/"),
    concat!("/root/.car", "go"),
];

pub(super) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &repository.files {
        for path in PATHS {
            for (index, _) in file.text.match_indices(path) {
                if begins_a_path(&file.text, index) {
                    let line = line_of(&file.text, index);
                    violations.push(Violation::at(
                        &file.path,
                        line,
                        format!("{path} is a path of one machine"),
                    ));
                }
            }
        }
    }
    violations
}

/// An absolute path is not the middle of a longer one, such as an overlay's `upper/…` folders.
fn begins_a_path(text: &str, index: usize) -> bool {
    !text[..index]
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '$'))
}

#[cfg(test)]
mod tests {
    use super::super::repository::fixture::{files, lines};
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        let text = concat!("a\nsee /wo", "rk/x\n");
        let said = lines(&check(&files(&[("docs/A.md", text)])));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("docs/A.md:2: "), "{said:?}");
    }

    #[test]
    fn the_middle_of_a_path_is_fine() {
        assert_eq!(check(&files(&[("a.rs", concat!("{dir}/wo", "rk/x overlay/wo", "rk/"))])), []);
    }
}
