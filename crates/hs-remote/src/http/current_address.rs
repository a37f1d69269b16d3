//! Where requests for a file go now, found once for all requests that need it.
//!
//! ```text
//! expired ──► Search: one request locates the file anew and follows where the server sends it
//!               │ its answer came            │ it failed
//!               ▼                            ▼
//!             Known: all others go there     all others fail alike, and try again after their pauses
//! ```
//!
//! An object store signs an address for minutes, and a registry's token ages as well. When that ends, all
//! requests under way are refused at once. Each of them that looked for itself would ask the registry for a
//! token and a signature of its own.

use std::sync::Arc;

use hs_store::Clock;
use hs_units::Nanos;
use parking_lot::Mutex;
use reqwest::header::HeaderMap;
use tokio::sync::watch;
use url::Url;

use super::HttpError;
use super::address::{Locate, Located};
use super::transport::Transport;

/// Where the file is, as far as that is known.
pub(super) struct CurrentAddress {
    locate: Arc<dyn Locate>,
    state: Mutex<AddressState>,
}

#[derive(Default)]
struct AddressState {
    known: Option<Known>,
    /// Counts what was known, so that what is refused late does not end what replaced it.
    generation: u64,
    /// The search under way; closed when that is over.
    search: Option<watch::Receiver<Option<HttpError>>>,
}

struct Known {
    located: Located,
    /// When it has to be located again.
    ages_at: Option<Nanos>,
    /// Where a redirect led, to go there directly.
    redirected: Option<Url>,
}

/// Where one request goes.
pub(super) struct Target<'a> {
    place: &'a CurrentAddress,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// A refusal may mean that the address or login has expired.
    pub(super) may_have_aged: bool,
    /// It is the file's own address, not one that a redirect led to.
    is_original: bool,
    generation: u64,
    /// Other requests wait for the answer to this one.
    search: Option<Search>,
}

/// Dropping it without a result lets another request search.
struct Search {
    located: Located,
    ages_at: Option<Nanos>,
    result: watch::Sender<Option<HttpError>>,
}

impl CurrentAddress {
    pub(super) fn new(locate: Arc<dyn Locate>) -> Self {
        Self { locate, state: Mutex::default() }
    }

    pub(super) fn locate(&self) -> &dyn Locate {
        &*self.locate
    }

    /// Where to send a request. Waits for a search that is under way. `is_direct` asks for the file's own
    /// address, also where it is known where that leads.
    ///
    /// # Errors
    /// When the file cannot be located, or the search has failed.
    pub(super) async fn target(
        &self,
        transport: &dyn Transport,
        clock: &dyn Clock,
        is_direct: bool,
    ) -> Result<Target<'_>, HttpError> {
        let result = loop {
            let mut search = {
                let mut state = self.state.lock();
                state.forget_aged(clock.now());
                if let Some(known) = &state.known {
                    return Ok(self.known_target(known, state.generation, is_direct));
                }
                // An error means that it is over.
                match state.search.clone().filter(|search| search.has_changed().is_ok()) {
                    Some(search) => search,
                    None => {
                        let (result, search) = watch::channel(None);
                        state.search = Some(search);
                        break result;
                    }
                }
            };
            if search.changed().await.is_ok()
                && let Some(error) = search.borrow().clone()
            {
                return Err(error);
            }
        };
        let located = match self.look_up(transport).await {
            Ok(located) => located,
            Err(error) => {
                result.send_replace(Some(error.clone()));
                return Err(error);
            }
        };
        // A request that is made at the very end of that time must still be answered.
        let ages_at = located.lasts.map(|lasts| clock.now() + Nanos::from(lasts / 2));
        Ok(Target {
            place: self,
            url: located.url.clone(),
            headers: located.headers.clone(),
            may_have_aged: false,
            is_original: true,
            generation: self.state.lock().generation,
            search: Some(Search { located, ages_at, result }),
        })
    }

    async fn look_up(&self, transport: &dyn Transport) -> Result<Located, HttpError> {
        if !self.locate.ages() {
            return self.locate.locate();
        }
        // It may make requests of its own.
        let (locate, found) = (Arc::clone(&self.locate), Arc::new(Mutex::new(None)));
        let out = Arc::clone(&found);
        transport.apart(Box::new(move || *out.lock() = Some(locate.locate()))).await;
        let located = found.lock().take();
        located.unwrap_or(Err(HttpError::Closed))
    }

    fn known_target(&self, known: &Known, generation: u64, is_direct: bool) -> Target<'_> {
        let located = &known.located;
        let redirected = known.redirected.as_ref().filter(|_| !is_direct);
        let url = redirected.unwrap_or(&located.url);
        let is_same_host = url.origin() == located.url.origin();
        Target {
            place: self,
            url: url.clone(),
            headers: if is_same_host { located.headers.clone() } else { HeaderMap::new() },
            may_have_aged: redirected.is_some() || self.locate.ages(),
            is_original: redirected.is_none(),
            generation,
            search: None,
        }
    }
}

impl AddressState {
    fn forget(&mut self) {
        self.known = None;
        self.generation += 1;
    }

    fn forget_aged(&mut self, now: Nanos) {
        let ages_at = self.known.as_ref().and_then(|known| known.ages_at);
        if ages_at.is_some_and(|ages_at| ages_at <= now) {
            self.forget();
        }
    }
}

impl Target<'_> {
    /// The server has answered, from this address.
    pub(super) fn found(self, url: &Url) {
        let redirected = (*url != self.url).then(|| url.clone());
        let mut state = self.place.state.lock();
        if let Some(Search { located, ages_at, result }) = self.search {
            state.known = Some(Known { located, ages_at, redirected });
            state.generation += 1;
            // Those that wait see what is known now.
            drop(result);
        } else if self.is_original
            && state.generation == self.generation
            && let (Some(known), Some(url)) = (&mut state.known, redirected)
        {
            known.redirected = Some(url);
        }
    }

    /// The server refuses this address: the next request looks for another one, unless one is known already.
    pub(super) fn refused(self) {
        let mut state = self.place.state.lock();
        if state.generation == self.generation {
            state.forget();
        }
    }

    /// The request has failed; so have those that wait for its answer.
    pub(super) fn failed(self, error: HttpError) -> HttpError {
        if let Some(search) = self.search {
            search.result.send_replace(Some(error.clone()));
        }
        error
    }
}
