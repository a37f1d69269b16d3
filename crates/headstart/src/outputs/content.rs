//! What is in a file that a command writes, and whether an existing file has the same.

use std::fmt;

use hs_format::{FileKind, FsKind};
use hs_report::Format;

use crate::cli::DiskFormat;

/// What is in a file that a command writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// An image or a snapshot.
    Image,
    /// A pack.
    Pack,
    /// A profile.
    Profile,
    /// A bootable ISO.
    Iso,
    /// The disk of an image.
    Disk(DiskFormat),
    /// A report, or its requests.
    Report(Format),
    /// The trace of a start.
    Trace,
    /// The requests to a device.
    Table,
    /// A run summary.
    Json,
    /// What a guest has printed.
    Console,
    /// Lines that are appended.
    Log,
    /// The model of a medium.
    Model,
    /// A signature.
    Signature,
    /// A key.
    Key,
    /// The pages of a start.
    Pages,
}

impl Content {
    /// Whether it is written by seeking, so that its file is a regular one.
    pub(super) const fn is_seekable(self) -> bool {
        matches!(self, Self::Image | Self::Pack | Self::Iso | Self::Disk(_) | Self::Key)
    }

    /// Whether a file that begins with `start` has the same content, so that it may be replaced. An empty
    /// file has nothing to lose.
    pub(super) fn is_same(self, start: &[u8]) -> bool {
        let kind = FileKind::of(start);
        let has = |words: &[u8]| start.windows(words.len()).any(|window| window == words);
        let is_text_from = |words: &str| kind == FileKind::Text && begins(start, words);
        kind == FileKind::Empty
            || match self {
                Self::Image => kind == FileKind::Image,
                Self::Pack => kind == FileKind::Pack,
                Self::Profile => kind == FileKind::Profile,
                Self::Iso => kind == FileKind::Disk(FsKind::Iso9660),
                Self::Disk(DiskFormat::Raw) => kind.is_disk() || kind == FileKind::Zeros,
                Self::Disk(DiskFormat::Cloop) => kind == FileKind::Cloop,
                Self::Disk(DiskFormat::Qcow2) => kind == FileKind::Qcow2,
                Self::Report(Format::Html) => is_text_from("<!doctype html"),
                Self::Report(Format::Json) | Self::Json => is_text_from("{") || is_text_from("["),
                // The number of a trace's packets, and the mark of Parquet.
                Self::Report(Format::Perfetto) => kind == FileKind::Unknown && start.starts_with(b"\n"),
                Self::Report(Format::Parquet) => start.starts_with(b"PAR1"),
                Self::Report(Format::Csv) => is_text_from("input,at_s,"),
                Self::Report(Format::Iolog) => is_text_from("fio version"),
                Self::Trace => is_text_from("# {"),
                Self::Table => is_text_from("at_s,"),
                // Lines of a terminal, or a kernel's first one, which may stand among bytes of firmware.
                Self::Console => {
                    let is_of_terminal = kind == FileKind::Text && (has(b"\r\n") || has(b"\x1b["));
                    is_of_terminal || has(b"Linux version ") && !kind.is_disk() && kind != FileKind::Image
                }
                Self::Log => kind == FileKind::Text,
                Self::Model => is_text_from("# Fitted by headstart"),
                Self::Signature => is_text_from("untrusted comment:"),
                Self::Key => false,
                Self::Pages => start.starts_with(hs_accelerate::MAGIC),
            }
    }
}

/// Whether a text begins so, after white space, in letters of any case.
fn begins(text: &[u8], words: &str) -> bool {
    let text = text.trim_ascii_start();
    text.get(..words.len()).is_some_and(|start| start.eq_ignore_ascii_case(words.as_bytes()))
}

/// With its article, as in "--output writes an image".
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "an image",
            Self::Pack => "a pack",
            Self::Profile => "a profile",
            Self::Iso => "an ISO",
            Self::Disk(DiskFormat::Raw) => "a raw disk",
            Self::Disk(DiskFormat::Cloop) => "a cloop file",
            Self::Disk(DiskFormat::Qcow2) => "a qcow2 file",
            Self::Report(Format::Html) => "an HTML page",
            Self::Report(Format::Json) | Self::Json => "JSON",
            Self::Report(Format::Perfetto) => "a Perfetto trace",
            Self::Report(Format::Csv) => "a table of requests (CSV)",
            Self::Report(Format::Parquet) => "a Parquet file",
            Self::Report(Format::Iolog) => "an iolog",
            Self::Trace => "the trace of a start (CSV)",
            Self::Table => "a table of requests (CSV)",
            Self::Console => "the output of a console",
            Self::Log => "a log",
            Self::Model => "the model of a medium",
            Self::Signature => "a signature",
            Self::Key => "a key",
            Self::Pages => "a list of pages",
        })
    }
}
