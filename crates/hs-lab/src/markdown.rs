//! Reports as tables of Markdown, for bench/results/experiments.md.

use crate::experiments::Experiment;
use crate::published::{Claim, Verdict};
use crate::report::{Cell, Figure, Report};

/// Marks a figure that does not reach its goal.
const MISSED: &str = "**missed**";

/// A table of these cells. Columns of numbers are set to the right.
#[must_use]
pub fn table(titles: &[String], rows: &[Vec<String>]) -> String {
    let is_number = |text: &str| {
        let bare = |word: &str| word.trim_matches(['(', ')']).parse::<f64>().is_ok() || word == MISSED;
        text.split_whitespace().all(bare)
    };
    let side = |column: usize| {
        if rows.iter().all(|row| is_number(&row[column])) { " ---: |" } else { " --- |" }
    };
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let sides: String = (0..titles.len()).map(side).collect();
    [line(titles), format!("|{sides}\n")].into_iter().chain(rows.iter().map(|row| line(row))).collect()
}

/// Three digits that say something, and no more than two after the point from one on.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

fn maybe(value: Option<f64>) -> String {
    value.map(number).unwrap_or_default()
}

/// The rows of an experiment.
#[must_use]
pub fn rows(report: &Report) -> String {
    let (titles, rows) = report.printed();
    table(&titles, &rows)
}

/// The figures of an experiment, with a row for each medium, or what else the names end in. In brackets: with
/// the mechanism switched off. A figure that misses its target is marked.
#[must_use]
pub fn figures_by_medium(report: &Report) -> String {
    let parts = |figure: &'_ Figure| {
        let (what, medium) = figure.name.rsplit_once(", ").expect("a name ends in a medium");
        (what.to_owned(), medium.to_owned())
    };
    let mut media: Vec<String> = Vec::new();
    let mut titles = vec![String::new()];
    for (what, medium) in report.figures.iter().map(parts) {
        if !titles.contains(&what) {
            titles.push(what);
        }
        if !media.contains(&medium) {
            media.push(medium);
        }
    }
    let cell = |medium: &str, what: &String| {
        let name = format!("{what}, {medium}");
        let Some(figure) = report.figures.iter().find(|figure| figure.name == name) else {
            return String::new();
        };
        let off = figure.off.map(|off| format!(" ({})", number(off))).unwrap_or_default();
        let missed = if figure.is_met() == Some(false) { format!(" {MISSED}") } else { String::new() };
        format!("{}{off}{missed}", number(figure.value))
    };
    let row = |medium: &String| {
        let cells = titles[1..].iter().map(|what| cell(medium, what));
        std::iter::once(medium.clone()).chain(cells).collect()
    };
    table(&titles, &media.iter().map(row).collect::<Vec<Vec<String>>>())
}

/// A row for each value of the first column, and a column for each value of the second, of numbers of a third
/// one.
#[must_use]
pub fn rows_across(report: &Report, down: usize, across: usize, value: usize) -> String {
    let text = |row: &[Cell], column: usize| row[column].text();
    let mut titles = vec![format!("{} of", report.columns[value])];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in &report.rows {
        let (name, column) = (text(row, down), text(row, across));
        if !titles.contains(&column) {
            titles.push(column);
        }
        if rows.last().is_none_or(|last| last[0] != name) {
            rows.push(vec![name]);
        }
        rows.last_mut().expect("it was just put there").push(text(row, value));
    }
    table(&titles, &rows)
}

/// How many published figures are of which kind, and what the kinds are.
#[must_use]
pub fn kinds(reports: &[Report]) -> String {
    let counts = Verdict::count(reports);
    let row = |(verdict, count): &(Verdict, usize)| {
        vec![verdict.name().to_owned(), count.to_string(), verdict.about().to_owned()]
    };
    let titles = ["kind", "figures", "meaning"].map(str::to_owned);
    table(&titles, &counts.iter().map(row).collect::<Vec<_>>())
}

/// Everything that was published beside ours, by source.
#[must_use]
pub fn published(reports: &[Report]) -> String {
    let all = reports.iter().flat_map(|report| &report.figures);
    let mut rows: Vec<Vec<String>> = all
        .filter_map(|figure| {
            let (published, verdict) = (figure.published?, figure.verdict()?);
            Some(vec![
                published.source.to_owned(),
                figure.name.clone(),
                published.claim.number().map_or_else(|| Claim::text(published.claim), number),
                number(figure.value),
                maybe(figure.ratio()),
                verdict.name().to_owned(),
                figure.note().unwrap_or_default().to_owned(),
            ])
        })
        .collect();
    // Those of one document stay in the order of their experiments.
    rows.sort_by_key(|row| row[0].split(' ').next().map(str::to_owned));
    let titles =
        ["in", "figure", "published", "ours", "ours ÷ published", "kind", "why missed, or what was chosen"];
    table(&titles.map(str::to_owned), &rows)
}

/// What the experiments are made of.
pub fn experiments<'a>(experiments: impl Iterator<Item = &'a Experiment>) -> String {
    let row =
        |each: &Experiment| [each.name, each.about, each.engine, each.parameters].map(str::to_owned).to_vec();
    let titles = ["experiment", "what", "the engine's part", "parameters"].map(str::to_owned);
    table(&titles, &experiments.map(row).collect::<Vec<_>>())
}

/// Begins a block of a document that is written by this module, and names it.
const BEGIN: &str = "<!-- lab: ";
/// Ends it.
const END: &str = "<!-- lab end -->";

/// `text` with each block between `<!-- lab: NAME -->` and `<!-- lab end -->` replaced by what `block` says
/// of the name.
///
/// # Errors
/// The name that `block` does not know, or that has no end.
pub fn update(text: &str, block: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut updated = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let name = behind.split(" -->").next().unwrap_or_default();
        let new = block(name).ok_or_else(|| name.to_owned())?;
        let (_, after) = behind.split_once(END).ok_or_else(|| name.to_owned())?;
        updated += &format!("{before}{BEGIN}{name} -->\n\n{}\n{END}", new.trim_start());
        rest = after;
    }
    Ok(updated + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_marks_is_replaced_and_the_rest_stays() {
        let text = format!("a\n{BEGIN}x -->\nold\n{END}\nb\n{BEGIN}y -->{END}\n");
        let updated = update(&text, |name| Some(format!("new {name}\n"))).expect("both are known");
        assert_eq!(
            updated,
            format!("a\n{BEGIN}x -->\n\nnew x\n\n{END}\nb\n{BEGIN}y -->\n\nnew y\n\n{END}\n")
        );
        assert_eq!(update(&updated, |name| Some(format!("new {name}\n"))), Ok(updated.clone()));
        assert_eq!(update(&text, |name| (name == "x").then(String::new)), Err("y".to_owned()));
    }

    #[test]
    fn figures_are_put_into_a_row_for_each_medium() {
        let figures = vec![
            Figure::new("p99, cd", 1.234).off(123.4),
            Figure::new("p99, disk", 0.05),
            Figure::new("time, disk", 12.34),
        ];
        let report = Report { columns: Vec::new(), rows: Vec::new(), figures, seed: None };
        let expected =
            "|  | p99 | time |\n| --- | ---: | ---: |\n| cd | 1.23 (123) |  |\n| disk | 0.0500 | 12.3 |\n";
        assert_eq!(figures_by_medium(&report), expected);
    }
}
