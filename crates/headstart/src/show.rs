//! What people see: progress on a terminal, tables, errors.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use hs_image::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar on standard error: on a terminal, unless told to be quiet.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar that shows nothing yet.
    pub(crate) fn new(quiet: bool) -> Self {
        let hidden = quiet || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Self(ProgressBar::with_draw_target(None, target))
    }

    /// Shows how far a stage has come, with rate and remaining time.
    pub(crate) fn update(&self, progress: Progress) {
        if self.0.message() != progress.stage {
            let template =
                "{msg:24} {bar:32} {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12} {eta:>4} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.0.set_style(style);
            }
            self.0.reset();
            self.0.set_message(progress.stage);
            self.0.set_length(progress.total_bytes);
        }
        self.0.set_position(progress.done_bytes);
    }

    /// Shows that something of unknown length is being done.
    pub(crate) fn spin(&self, message: impl Into<String>) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            self.0.set_style(style);
        }
        self.0.set_message(message.into());
        self.0.enable_steady_tick(Duration::from_millis(120));
    }

    /// Prints a line to standard output, and goes on below it.
    pub(crate) fn print(&self, text: impl std::fmt::Display) {
        self.0.suspend(|| line(text));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A table whose first column is text and whose others are numbers.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Bytes as MB, which are millions here and in the names of media.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// Prints a line to standard output; a reader that went away is not an error.
pub(crate) fn line(text: impl std::fmt::Display) {
    use std::io::Write;
    if let Err(error) = writeln!(std::io::stdout(), "{text}")
        && error.kind() == std::io::ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}

/// Prints an object as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(value)?);
    Ok(())
}
