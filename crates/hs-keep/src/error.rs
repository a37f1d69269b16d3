//! What can be wrong with the file of an overlay.

use std::io;
use std::path::{Path, PathBuf};

use hs_overlay::{Checked, OverlayError};

/// Why changes cannot be kept in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// A system call failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it open.
    #[error(
        "{} is in use by another process: two would destroy each other's changes; end the other one, or name \
         another file",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written anew with snapshots.
    #[error(
        "{} has snapshots ('{name}'), which share blocks with it: delete them first (headstart overlay delete)",
        path.display()
    )]
    HasSnapshots {
        /// The file.
        path: PathBuf,
        /// One of them.
        name: String,
    },
    /// Blocks of it are not what was written.
    #[error(
        "{}: {} of {} blocks are not what was written (blocks {} of the disk): restore the file, or write these \
         blocks anew", path.display(), checked.damaged, checked.damaged + checked.whole, named(checked)
    )]
    DamagedBlocks {
        /// The file.
        path: PathBuf,
        /// What a check found.
        checked: Checked,
    },
    /// The server that uses it has refused.
    #[error("{}: {said}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        said: String,
    },
    /// The server that uses it was asked, and has not answered.
    #[error(
        "{}: the server that uses it has ended, or does not go on, and has not said whether it did that: \
         `headstart overlay list` shows its snapshots",
        path.display()
    )]
    NoAnswer {
        /// The file.
        path: PathBuf,
    },
    /// It is no regular file.
    #[error("{} is no regular file: changes are kept in one", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// It is no overlay, or not one of this disk.
    #[error("{}: {source}", path.display())]
    Overlay {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: OverlayError,
    },
}

impl KeepError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn overlay(path: &Path) -> impl FnOnce(OverlayError) -> Self {
        move |source| Self::Overlay { path: path.to_owned(), source }
    }
}

/// Numbers of some damaged blocks.
fn named(checked: &Checked) -> String {
    const MOST: usize = 16;
    let named: Vec<_> = checked.named.iter().take(MOST).map(ToString::to_string).collect();
    named.join(", ") + if checked.named.len() > MOST { ", ..." } else { "" }
}
