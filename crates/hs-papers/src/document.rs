//! The tables of a document about the laboratory, by the names that it gives them.

use hs_lab::{Experiment, Report, markdown};

/// All experiments, as they came out with seed 1.
pub struct Results(Vec<(&'static Experiment, Report)>);

impl Results {
    /// Runs all.
    #[must_use]
    pub fn of_all() -> Self {
        Self(crate::all().map(|experiment| (experiment, (experiment.run)(1))).collect())
    }

    fn report(&self, name: &str) -> Option<&Report> {
        self.0.iter().find(|(experiment, _)| experiment.name == name).map(|(_, report)| report)
    }

    fn reports(&self) -> Vec<Report> {
        self.0.iter().map(|(_, report)| report.clone()).collect()
    }

    /// A table by its name; nothing for a name that is not known.
    fn table(&self, name: &str) -> Option<String> {
        let Some((kind, name)) = name.split_once(' ') else {
            return Some(match name {
                "kinds" => markdown::kinds(&self.reports()),
                "published" => markdown::published(&self.reports()),
                "experiments" => markdown::experiments(crate::all()),
                _ => return None,
            });
        };
        let report = self.report(name)?;
        Some(match kind {
            "rows" => markdown::rows(report),
            "figures" => markdown::figures_by_medium(report),
            // The first column down, the second across, and the third in the cells.
            "across" => markdown::rows_across(report, 0, 1, 2),
            _ => return None,
        })
    }

    /// `text` with its tables as they are now.
    ///
    /// # Errors
    /// The name of a table that is not known, or that has no end.
    pub fn update(&self, text: &str) -> Result<String, String> {
        markdown::update(text, |name| self.table(name))
    }
}
