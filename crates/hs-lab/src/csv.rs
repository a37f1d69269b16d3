//! Reports as comma-separated values (RFC 4180).

use crate::published::{Claim, Verdict};
use crate::report::{Cell, Figure, Report};

/// A field, in quotes where it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn line(fields: impl IntoIterator<Item = String>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|text| field(&text)).collect();
    fields.join(",") + "\n"
}

fn number(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

impl Figure {
    /// Ours over the published one, where that is a number.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let published = self.published.and_then(|published| published.claim.number());
        published.map(|published| self.value / published)
    }

    fn line(&self) -> String {
        let published = self.published;
        line([
            self.name.clone(),
            self.value.to_string(),
            number(self.off),
            published.map(|published| published.source).unwrap_or_default().to_owned(),
            published.map(|published| published.claim).map(Claim::text).unwrap_or_default(),
            number(self.ratio()),
            self.verdict().map(Verdict::name).unwrap_or_default().to_owned(),
            self.target.map(crate::Target::text).unwrap_or_default(),
            self.is_met().map(|met| met.to_string()).unwrap_or_default(),
            self.note().unwrap_or_default().to_owned(),
        ])
    }
}

impl Report {
    /// The figures, one a line: ours, with the mechanism switched off, the source and the published value,
    /// ours over that, and the verdict.
    #[must_use]
    pub fn figures_csv(&self) -> String {
        let header = "figure,ours,switched off,source,published,ratio,kind,target,met,note\n";
        let lines = self.figures.iter().map(Figure::line);
        std::iter::once(header.to_owned()).chain(lines).collect()
    }

    /// The table.
    #[must_use]
    pub fn rows_csv(&self) -> String {
        let cell = |cell: &Cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Number(value, _) => value.to_string(),
        };
        let header = line(self.columns.iter().map(|column| (*column).to_owned()));
        let rows = self.rows.iter().map(|row| line(row.iter().map(cell)));
        std::iter::once(header).chain(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_as_many_fields_as_the_header() {
        let report = Report {
            columns: vec!["what", "how, exactly"],
            rows: vec![vec!["a \"quoted\" word".into(), Cell::Number(0.1, 0)]],
            figures: vec![
                Figure::new("rate, after ÷ before", 4.0)
                    .off(1.0)
                    .published("000 table 2", Claim::Ratio(8.0))
                    .because("it is a test"),
                Figure::new("plain", 1.0),
            ],
            seed: None,
        };
        assert_eq!(report.rows_csv(), "what,\"how, exactly\"\n\"a \"\"quoted\"\" word\",0.1\n");
        let figures = report.figures_csv();
        let mut lines = figures.lines();
        let fields = lines.next().expect("a header").split(',').count();
        assert_eq!(
            lines.next(),
            Some("\"rate, after ÷ before\",4,1,000 table 2,8.000,0.5,direction only,,,it is a test")
        );
        assert_eq!(lines.next().expect("the second figure").split(',').count(), fields);
        assert_eq!(lines.next(), None);
    }
}
