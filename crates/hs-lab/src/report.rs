//! The report of an experiment.

use crate::published::{Basis, Claim, Published, Verdict};

/// A cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number, shown with this many digits after the point.
    Number(f64, usize),
}

impl Cell {
    /// Its form in a table.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, digits) => format!("{value:.digits$}"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The target of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

impl Target {
    /// Whether `value` reaches it.
    #[must_use]
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    /// `≤ 1.05`, or `≥ 0.99`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::AtLeast(limit) => format!("≥ {limit}"),
        }
    }
}

/// A result.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// The name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// The same with the mechanism switched off, where there is such a thing.
    pub off: Option<f64>,
    /// A figure that was measured elsewhere.
    pub published: Option<Published>,
    /// What it follows from.
    pub basis: Basis,
    /// Why it differs from what was published, where it does.
    pub reason: Option<&'static str>,
    /// Its target.
    pub target: Option<Target>,
}

impl Figure {
    /// A figure that is stated, not judged.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64) -> Self {
        Self {
            name: name.into(),
            value,
            off: None,
            published: None,
            basis: Basis::Simulation,
            reason: None,
            target: None,
        }
    }

    /// Adds the value without the mechanism.
    #[must_use]
    pub fn off(self, value: f64) -> Self {
        Self { off: Some(value), ..self }
    }

    /// Adds the published value, and its source.
    #[must_use]
    pub fn published(self, source: &'static str, claim: Claim) -> Self {
        Self { published: Some(Published { source, claim }), ..self }
    }

    /// Marks it as following from the model's inputs, so that agreement says nothing.
    #[must_use]
    pub fn arithmetic(self) -> Self {
        Self { basis: Basis::Arithmetic, ..self }
    }

    /// Says what of it was chosen with the published figure in view.
    #[must_use]
    pub fn chosen(self, what: &'static str) -> Self {
        Self { basis: Basis::Chosen(what), ..self }
    }

    /// Adds the reason why it differs from what was published.
    #[must_use]
    pub fn because(self, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Adds a target.
    #[must_use]
    pub fn target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Whether it reaches its target; `None` when it has none.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        self.target.map(|target| target.is_met(self.value))
    }

    /// Its verdict beside what was published; `None` when nothing was.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let verdict = self.published?.claim.judge(self.value);
        Some(match self.basis {
            _ if verdict.is_miss() => verdict,
            Basis::Simulation => verdict,
            Basis::Chosen(_) => Verdict::Chosen,
            Basis::Arithmetic => Verdict::Arithmetic,
        })
    }

    /// Why it is missed, or what of it was chosen.
    #[must_use]
    pub fn note(&self) -> Option<&'static str> {
        match (self.verdict()?, self.basis) {
            (Verdict::Chosen, Basis::Chosen(what)) => Some(what),
            (verdict, _) if verdict.is_miss() => self.reason,
            _ => None,
        }
    }
}

/// The report of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Names of the columns of its table: the keys of a row as JSON, and the header as CSV. A size may be in
    /// MB there; [`Report::printed`] shows MiB.
    pub columns: Vec<&'static str>,
    /// The table.
    pub rows: Vec<Vec<Cell>>,
    /// The results.
    pub figures: Vec<Figure>,
    /// The seed of the random numbers, where there are any.
    pub seed: Option<u64>,
}

/// Bytes of a MB, by those of a MiB.
const MIB_OF_A_MB: f64 = 1e6 / (1_u64 << 20) as f64;

impl Report {
    /// Titles and rows of the table as commands print them: MiB where [`Report::columns`] has MB. The rate of
    /// a medium stays in MB/s, the unit of its model.
    #[must_use]
    pub fn printed(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let is_in_mb = |column: &str| column.split([' ', '(', ')']).any(|word| word == "MB");
        let title =
            |column: &&str| if is_in_mb(column) { column.replace("MB", "MiB") } else { (*column).to_owned() };
        let cell = |(column, cell): (&&str, &Cell)| match cell {
            Cell::Number(value, digits) if is_in_mb(column) => {
                Cell::Number(value * MIB_OF_A_MB, *digits).text()
            }
            cell => cell.text(),
        };
        let row = |row: &Vec<Cell>| self.columns.iter().zip(row).map(cell).collect();
        (self.columns.iter().map(title).collect(), self.rows.iter().map(row).collect())
    }

    /// The figure of that name.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn figure(&self, name: &str) -> &Figure {
        let found = self.figures.iter().find(|figure| figure.name == name);
        found.unwrap_or_else(|| panic!("no figure is called '{name}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_mib_where_a_column_is_in_mb() {
        let row = vec!["MB".into(), Cell::Number(25.0, 3), Cell::Number(104.857_6, 1), Cell::Number(2.0, 0)];
        let report = Report {
            columns: vec!["what", "MB/s, alike", "read (MB)", "MBR"],
            rows: vec![row],
            figures: Vec::new(),
            seed: None,
        };
        let (titles, rows) = report.printed();
        assert_eq!(titles, ["what", "MB/s, alike", "read (MiB)", "MBR"]);
        assert_eq!(rows, [["MB", "25.000", "100.0", "2"]]);
    }
}
