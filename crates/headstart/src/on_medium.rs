//! A file as a medium delivers it.

use std::sync::Arc;

use hs_image::{OpenOptions, Reader};
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

    /// What is to be said when all is over of reads of the disk in it that were answered with an error, if there were any. Whoever made them was told no more
    /// than that, and what could be read elsewhere is none of them.
    pub(crate) fn lost(&self, reader: &Reader) -> Option<String> {
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

    /// An error that the medium may be the reason for, with what it did.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match self.trouble() {
            Some(trouble) if !format!("{error:#}").contains(&trouble) => {
                let text = format!("{error:#}; {trouble}");
                error.context(text)
            }
            _ => error,
        }
    }
}
