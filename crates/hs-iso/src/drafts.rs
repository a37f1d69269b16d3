//! What a signal that ends the process removes, and says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use hs_output::log_output;
use hs_service::ending::Interruption;
use hs_service::signals::Ends;

/// What is left when the process ends now.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Files and folders of no use.
    pub(crate) drafts: Vec<PathBuf>,
    /// What becomes of the rest.
    pub(crate) said: &'static str,
}

/// The same, for the thread that waits for signals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafts(Arc<Mutex<Left>>);

impl Drafts {
    /// Watches for these signals, of which one ends the process.
    pub(crate) fn watch(signals: Ends, left: Left) -> anyhow::Result<(Self, Interruption)> {
        let this = Self(Arc::new(Mutex::new(left)));
        let watched = this.clone();
        let last = move || {
            let left = watched.left();
            left.drafts.iter().for_each(|draft| remove(draft));
            log_output::failure(&format!("interrupted; {}", left.said));
        };
        let interruption = Interruption::watch(signals, last).context("wait for signals")?;
        Ok((this, interruption))
    }

    /// What is left from now on. While this is held, no signal ends the process.
    pub(crate) fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a file, or a folder in which another thread of this process may still make files.
fn remove(draft: &Path) {
    if draft.is_dir() {
        while draft.exists() {
            match std::fs::remove_dir_all(draft) {
                Err(error) if error.kind() != std::io::ErrorKind::DirectoryNotEmpty => return,
                _ => {}
            }
        }
    } else {
        let _ = std::fs::remove_file(draft);
    }
}
