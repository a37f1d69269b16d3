//! The result as a person reads it: a table, what to do, and what that comes to for each thing to do.

use std::fmt::Write;

use comfy_table::{ContentArrangement, Table, TableComponent, presets};

use crate::uses::{self, Use};
use crate::{Check, CheckState};

/// Columns of the table on a terminal of unknown width.
const WIDTH: u16 = 110;

/// The whole text, ending in a line break.
pub(crate) fn render(checks: &[Check], uses: &[Use]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    for line in [TableComponent::HorizontalLines, TableComponent::MiddleIntersections] {
        table.remove_style(line);
    }
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(["", "what", "found", "needed for"]);
    for check in checks {
        table.add_row([word(check), check.name.as_str(), check.found.as_str(), check.needed_for]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let to_do: Vec<&Check> = checks.iter().filter(|check| !check.advice.is_empty()).collect();
    if !to_do.is_empty() {
        text.push_str("\nWhat to do:\n");
        for check in to_do {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}: {}", check.name, check.advice);
        }
    }
    text.push('\n');
    text + &uses::lines(uses)
}

/// Capitals mark what stops the main path, so that it is found without colour.
fn word(check: &Check) -> &'static str {
    match (check.state, check.main_path) {
        (CheckState::Ok, _) => "ok",
        (CheckState::Degraded, _) => "limited",
        (CheckState::Missing, false) => "missing",
        (CheckState::Missing, true) => "MISSING",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_stands_out_and_has_its_advice() {
        let checks = [
            Check::ok("cores", "2", "run"),
            Check::ok("mkfs.ext4", "not found", "build")
                .but(CheckState::Missing, "install it")
                .on_main_path(true),
        ];
        let text = render(&checks, &uses::of(&checks));
        assert!(text.contains("MISSING") && text.contains("  mkfs.ext4: install it\n"), "{text}");
        assert!(text.contains("\n\nstart a program   run         needs mkfs.ext4: install it\n"), "{text}");
        assert!(text.ends_with("see a report      report      works\n"), "{text}");
        assert!(!render(&checks[..1], &[]).contains("What to do"));
    }
}
