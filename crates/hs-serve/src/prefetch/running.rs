//! The threads of a prefetch.

use std::sync::Arc;
use std::thread::JoinHandle;

use hs_image::Reader;

use super::push::Pushing;
use super::{Deliver, Driver};
use crate::ServeError;

/// The threads of a prefetch. Dropping it stops them.
pub struct Running {
    pub(super) driver: Arc<Driver>,
    pub(super) reader: Arc<Reader>,
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) decoders: Vec<JoinHandle<()>>,
    pub(super) pushers: Vec<JoinHandle<()>>,
    pub(super) pushing: Option<Arc<Pushing>>,
}

impl Running {
    /// Threads that push the chunks that the decoding threads do not push. They may have to wait for a page
    /// that a reader holds until its last chunk has come, so they never bring chunks. Chunks that wait for
    /// them count against the prefetch's budget.
    pub(super) fn start_pushers(
        &mut self,
        reader: &Arc<Reader>,
        deliver: Arc<dyn Deliver>,
        threads: usize,
    ) -> Result<Arc<Pushing>, ServeError> {
        let pushing = Arc::new(Pushing::new(deliver));
        for number in 0..threads {
            let (reader, driver) = (Arc::clone(reader), Arc::clone(&self.driver));
            let push = {
                let pushing = Arc::clone(&pushing);
                move || pushing.work(&driver, &reader)
            };
            self.pushers.push(spawn(format!("hs-push-{number}"), push)?);
        }
        self.pushing = Some(Arc::clone(&pushing));
        Ok(pushing)
    }

    /// Waits until everything that the engine wanted has been read and decompressed.
    pub fn wait(&mut self) {
        for thread in self.threads.drain(..).chain(self.decoders.drain(..)) {
            let _ = thread.join();
        }
        if let Some(pushing) = &self.pushing {
            pushing.end();
        }
        for thread in self.pushers.drain(..) {
            let _ = thread.join();
        }
        self.reader.stream_ended();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.driver.stop();
        self.reader.wake_stream();
        self.wait();
    }
}

/// Starts a thread.
pub(super) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ServeError> {
    let failed =
        |source| ServeError::Io { action: "start a thread for", path: "the prefetch".into(), source };
    std::thread::Builder::new().name(name).spawn(run).map_err(failed)
}
