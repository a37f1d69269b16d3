//! The report page: recordings of starts, run summaries and results of the laboratory as one HTML file, and
//! the same data for other programs.

#![forbid(unsafe_code)]

pub mod model;

mod column;
mod export;
mod page;
mod read;
mod recording;
mod stage_files;
mod story;

#[cfg(test)]
mod model_tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_output::report_page::Template;
use hs_output::whole_file::write_whole;

pub use column::{Column, Number, Texts};
pub use stage_files::{FileReads, ReadTotals, StageReads, TraceTotals, totals};

use crate::read::Inputs;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// One page that shows everything.
    Html,
    /// The page's data alone.
    Json,
    /// A trace for Perfetto: a track for each process and request in flight.
    Perfetto,
    /// A row for each request.
    Csv,
    /// The same as Parquet, for programs that analyse data.
    Parquet,
    /// An iolog of version 3, which fio replays.
    Iolog,
}

impl Format {
    /// Formats by their names and the endings of their files.
    pub const ALL: [(Self, &'static str, &'static [&'static str]); 6] = [
        (Self::Html, "html", &["html", "htm"]),
        (Self::Json, "json", &["json"]),
        (Self::Perfetto, "perfetto", &["perfetto", "pftrace", "perfetto-trace"]),
        (Self::Csv, "csv", &["csv"]),
        (Self::Parquet, "parquet", &["parquet"]),
        (Self::Iolog, "iolog", &["iolog"]),
    ];

    /// The format of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format)
    }

    /// The format that the ending of a file's name says.
    #[must_use]
    pub fn of_file(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?;
        Self::ALL.iter().find(|(_, _, endings)| endings.contains(&ending)).map(|(format, ..)| *format)
    }
}

/// What is reported, and where to.
#[derive(Clone, Debug)]
pub struct Reporting {
    /// Images, profiles, summaries, results of experiments, traces.
    pub inputs: Vec<PathBuf>,
    /// The file to write.
    pub output: PathBuf,
    /// Its format; by its name when `None`.
    pub format: Option<Format>,
    /// The built page; where it is installed or built when `None`.
    pub ui: Option<PathBuf>,
}

/// What works where the page is not built.
const WITHOUT_PAGE: &str = "--format csv, iolog, json, parquet and perfetto work without it";

/// Reads the inputs and writes the report.
///
/// # Errors
/// When an input cannot be read or is of no known kind, or the report cannot be written.
pub fn run(args: &Reporting, quiet: bool) -> anyhow::Result<()> {
    let Some(format) = args.format.or_else(|| Format::of_file(&args.output)) else {
        bail!("the name {} says no format: --format does", args.output.display());
    };
    let mut inputs = Inputs::default();
    for path in &args.inputs {
        inputs.add(path)?;
    }
    inputs.align();
    let bytes = match format {
        Format::Html => {
            let template = Template::read(args.ui.as_deref(), WITHOUT_PAGE)?;
            template.with(&json(&page::report(inputs))?).into_bytes()
        }
        Format::Json => json(&page::report(inputs))?.into_bytes(),
        Format::Perfetto | Format::Csv | Format::Parquet | Format::Iolog => requests(&inputs, format)?,
    };
    write_whole(&args.output, &bytes)?;
    if !quiet {
        let size = hs_units::ByteSize(bytes.len() as u64);
        hs_output::note!("{}: {size}", args.output.display());
    }
    Ok(())
}

/// The report of one input that is text, and its requests as a table that is such an input too; no table
/// where there are no requests.
///
/// # Errors
/// When it is no such input.
pub fn of_text(text: &[u8], name: &str) -> anyhow::Result<(model::Report, Option<Vec<u8>>)> {
    let mut inputs = Inputs::default();
    inputs.add_text(text, name)?;
    let table = requests(&inputs, Format::Csv).ok();
    Ok((page::report(inputs), table))
}

fn json(report: &model::Report) -> anyhow::Result<String> {
    serde_json::to_string(report).context("a report is JSON")
}

fn requests(inputs: &Inputs, format: Format) -> anyhow::Result<Vec<u8>> {
    if inputs.recordings.iter().all(|recording| recording.requests.is_empty()) {
        bail!("no input has requests: profiles and traces have some");
    }
    match format {
        Format::Perfetto => Ok(export::perfetto(&inputs.recordings)),
        Format::Parquet => export::parquet(&inputs.recordings),
        Format::Iolog => export::iolog(&inputs.recordings),
        _ => export::csv(&inputs.recordings),
    }
}
