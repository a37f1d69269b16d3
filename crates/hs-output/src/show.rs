//! What people see: progress on a terminal, tables, errors.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::bail;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use hs_units::ByteSize;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::printable::Printable;

/// A progress bar on standard error: on a terminal, unless told to be quiet.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that shows nothing yet.
    pub fn new(quiet: bool) -> Self {
        let hidden = quiet || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Self(ProgressBar::with_draw_target(None, target))
    }

    /// Shows how far a stage has come, with rate and remaining time.
    pub fn update(&self, stage: &'static str, done_bytes: u64, total_bytes: u64) {
        if self.0.message() != stage {
            let template = "{msg:24} {bar:32} {done:>10} of {total:10} {rate:>12} {eta:>4} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.0.set_style(with_sizes(style));
            }
            self.0.reset();
            self.0.set_message(stage);
            self.0.set_length(total_bytes);
        }
        self.0.set_position(done_bytes);
    }

    /// Shows that something of unknown length is being done.
    pub fn spin(&self, message: impl Into<String>) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            self.0.set_style(style);
        }
        self.0.set_message(message.into());
        self.0.enable_steady_tick(Duration::from_millis(120));
    }

    /// Prints a line to standard output, and goes on below it.
    pub fn print(&self, text: impl std::fmt::Display) {
        self.0.suspend(|| line(text));
    }
}

/// The keys `done`, `total` and `rate` of a template.
fn with_sizes(style: ProgressStyle) -> ProgressStyle {
    type Out<'a> = &'a mut dyn std::fmt::Write;
    let write = |out: Out<'_>, text: std::fmt::Arguments<'_>| {
        // Writing to the buffer of a bar cannot fail.
        let _ = out.write_fmt(text);
    };
    style
        .with_key("done", move |state: &ProgressState, out: Out<'_>| {
            write(out, format_args!("{}", ByteSize(state.pos())));
        })
        .with_key("total", move |state: &ProgressState, out: Out<'_>| {
            write(out, format_args!("{}", ByteSize(state.len().unwrap_or_default())));
        })
        .with_key("rate", move |state: &ProgressState, out: Out<'_>| {
            write(out, format_args!("{}/s", ByteSize(state.per_sec() as u64)));
        })
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A table whose first column is text and whose others are numbers.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Bytes in MiB, for a column whose title says so. Anywhere else a [`ByteSize`] prints itself with its unit.
pub fn mib(bytes: u64) -> String {
    format!("{:.1}", ByteSize(bytes).in_mib())
}

/// Why standard output could not be written, when it could not.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

/// Moves to the upper left corner of the terminal and clears what is below: ECMA-48, CUP and ED.
pub fn clear_screen() {
    // If this cannot be written, the next line cannot either, and reports the error.
    let _ = write!(io::stdout(), "\x1b[H\x1b[J");
}

/// Prints a line to standard output; a reader that went away is not an error.
pub fn line(text: impl std::fmt::Display) {
    // A program that reads the output gets the exact text. On a terminal, control characters are made
    // harmless.
    let mut stdout = io::stdout();
    let written = match stdout.is_terminal() {
        true => writeln!(stdout, "{}", Printable(text)),
        false => writeln!(stdout, "{text}"),
    };
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        // Only the first error is kept.
        Err(error) => drop(UNWRITTEN.set(error)),
        Ok(()) => {}
    }
}

/// Fails when a line could not be written; called once, at the end.
///
/// # Errors
/// Why it could not.
pub fn written() -> anyhow::Result<()> {
    match UNWRITTEN.get() {
        Some(error) => bail!("write standard output: {error}"),
        None => Ok(()),
    }
}

/// Prints to standard error as `eprintln!` does, but does not panic when standard error has no reader, since
/// a server must go on.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::show::say(format_args!($($text)*))
    };
}
/// What [`note!`] does.
pub fn say(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", Printable(text));
}

/// Prints an object as JSON for a server, which goes on when standard output has no reader.
pub fn announce(object: &serde_json::Value) {
    let _ = writeln!(io::stdout(), "{object:#}");
}

/// Prints an object as JSON.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(value)?);
    Ok(())
}
