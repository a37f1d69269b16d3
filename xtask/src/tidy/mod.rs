//! The rules of the repository that no compiler enforces. Each rule is one file with a test that
//! shows that it can fail.

use std::fmt;
use std::path::Path;

mod arrows;
mod book;
mod figures;
mod format_rules;
mod leftovers;
mod licences;
mod links;
mod lints;
mod metadata;
mod names;
mod origins;
mod paths;
mod pure;
mod reasons;
mod repository;
mod sizes;
mod slow_tests;
mod source;
mod spdx;
mod words;

pub(crate) use pure::PURE;
use repository::Repository;

/// Looks at the whole repository and says what breaks one rule.
type Rule = fn(&Repository) -> Vec<Violation>;

/// Every rule with its name, in the order in which they are reported.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("arrows", arrows::check),
    ("pure", pure::check),
    ("sizes", sizes::check),
    ("leftovers", leftovers::check),
    ("names", names::check),
    ("lints", lints::check),
    ("licences", licences::check),
    ("origins", origins::check),
    ("reasons", reasons::check),
    ("links", links::check),
    ("book", book::check),
    ("paths", paths::check),
    ("words", words::check),
    ("figures", figures::check),
    ("slow tests", slow_tests::check),
    ("format rules", format_rules::check),
];

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Path from the root of the repository, or the name of a package.
    pub(crate) place: String,
    /// Line number from 1, or `None` when the whole file or package is meant.
    pub(crate) line: Option<usize>,
    /// What is wrong and, where it is not obvious, what to do.
    pub(crate) what: String,
}

impl Violation {
    fn whole(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), line: None, what: what.into() }
    }

    fn at(place: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self { place: place.into(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.what),
            None => write!(f, "{}: {}", self.place, self.what),
        }
    }
}

/// Checks every rule on the repository at `root`.
///
/// # Errors
///
/// If the repository cannot be read or `cargo metadata` fails.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<Violation>> {
    let repository = Repository::open(root)?;
    Ok(RULES.iter().flat_map(|(_, rule)| rule(&repository)).collect())
}
