//! Flags of `headstart report`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hs_report::{Format, Reporting};

use crate::cli::plain::{Plain, same_names};

/// Flags of `headstart report`, as the report knows them.
pub(crate) type Report = Plain<ReportFlags, Reporting>;

/// Flags of `headstart report`.
#[derive(Debug, Args)]
pub(crate) struct ReportFlags {
    /// Profiles, images, run summaries and results of `lab run` (JSON), traces (CSV), fio iologs, blkparse
    /// text.
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// The file to write. It appears when it is complete.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Format of the file. Default: by its name.
    #[arg(long, value_parser = format_parser())]
    pub format: Option<Format>,
    /// The built page. Default: where it is installed or built.
    #[arg(long, value_name = "FILE", hide = true)]
    pub ui: Option<PathBuf>,
}

same_names!(ReportFlags => Reporting { inputs, output, format, ui });

fn format_parser() -> impl TypedValueParser<Value = Format> {
    let names = PossibleValuesParser::new(Format::ALL.map(|(_, name, _)| name));
    names.map(|name| Format::named(&name).expect("the parser lets only known names through"))
}
