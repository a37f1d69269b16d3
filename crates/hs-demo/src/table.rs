//! A story as text: what was compared, a table, and the conclusions.

use std::fmt::Write;

use hs_output::show;

/// The text, ending in a line break. The table has `titles` and `rows`; conclusions take a line each.
pub(super) fn render<const N: usize>(
    heading: &str,
    titles: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    sentences: &[String],
) -> String {
    let mut table = show::table(&titles);
    table.add_rows(rows);
    let mut text = format!("{heading}\n{}\n\n", table.trim_fmt());
    for sentence in sentences {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sentence}");
    }
    text
}
