//! A file as a medium delivers it.

use std::sync::Arc;

use hs_image::OpenOptions;
use hs_serve::{ServeConfig, ServedDisk};
use hs_store::{Counters, RetryCounters, RetrySnapshot, Store};

/// A file on a medium, which counts the requests that it gets.
pub struct OnMedium {
    /// The file, as the medium delivers it.
    pub store: Arc<dyn Store>,
    /// The counters of the medium.
    pub counters: Arc<Counters>,
    /// The counters of retries.
    pub retries: Arc<RetryCounters>,
    /// How an image in it is to be opened.
    pub image: OpenOptions,
}

impl OnMedium {
    /// `config`, for an image in this.
    pub fn config(&self, config: &ServeConfig) -> ServeConfig {
        ServeConfig { image: self.image.clone(), ..config.clone() }
    }

    /// The message about a medium that failed; `None` when it did not.
    pub fn trouble(&self) -> Option<String> {
        let RetrySnapshot { errors, first_error, .. } = self.retries.snapshot();
        let first = first_error?;
        Some(format!("{errors} reads of the medium failed, the first: {first}"))
    }

    /// The message at the end about reads of the disk that were answered with an error, if there were any.
    /// Their programs got only an error number. A read that another source answered is not counted.
    pub fn lost(&self, reader: &ServedDisk) -> Option<String> {
        let stats = reader.stats();
        let reads = stats.failed_requests;
        let other = if stats.given_up_requests > 0 {
            "no answer came in time (--read-timeout)"
        } else {
            "what came was not what the image says, see above"
        };
        let why = self.trouble().unwrap_or_else(|| other.to_owned());
        (reads > 0)
            .then(|| format!("{}: {reads} reads of its disk could not be answered: {why}", self.store.name()))
    }

    /// Adds the medium's errors to an error that they may have caused.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match self.trouble() {
            Some(trouble) if !format!("{error:#}").contains(&trouble) => {
                let text = format!("{error:#}; {trouble}");
                error.context(text)
            }
            _ => error,
        }
    }
}
