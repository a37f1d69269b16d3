//! A file as a medium delivers it.

use std::sync::Arc;

use hs_image::OpenOptions;
use hs_serve::ServeConfig;
use hs_store::{Counters, RetryCounters, RetrySnapshot, Store};

/// A file on a medium, which counts the requests that it gets.
pub(crate) struct OnMedium {
    /// The file, as the medium delivers it.
    pub store: Arc<dyn Store>,
    /// What the medium counts.
    pub counters: Arc<Counters>,
    /// What had to be asked for again.
    pub retries: Arc<RetryCounters>,
    /// How an image in it is to be opened.
    pub image: OpenOptions,
}

impl OnMedium {
    /// `config`, for an image in this.
    pub(crate) fn config(&self, config: &ServeConfig) -> ServeConfig {
        ServeConfig { image: self.image.clone(), ..config.clone() }
    }

    /// What is to be said of a medium that failed; nothing of one that did not.
    pub(crate) fn trouble(&self) -> Option<String> {
        let RetrySnapshot { errors, first_error, .. } = self.retries.snapshot();
        let first = first_error?;
        Some(format!("{errors} reads of the medium failed, the first: {first}"))
    }
}
