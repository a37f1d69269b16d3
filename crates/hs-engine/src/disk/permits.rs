//! Permits for readers of the medium beside the engine: background fill reads it for itself, after everything
//! that the engine wants.

use hs_units::{ByteRange, Nanos};

use super::DiskEngine;
use super::action::PermitId;
use super::fetches::{Purpose, cut};
use super::image_map::ImageMap;
use super::reads::Requester;
use super::slab::Slab;
use crate::queue::{Class, ClientKey, Dispatch, DispatchId};

/// A permit that was asked for.
#[derive(Debug, Default)]
pub(super) struct Permit {
    /// In the queue, as long as it waits.
    pub request: Option<u32>,
    /// Of one that was granted.
    pub dispatch: Option<DispatchId>,
}

/// All permits that are asked for or granted.
#[derive(Debug, Default)]
pub(super) struct Permits {
    pub slab: Slab<Permit>,
}

impl<M: ImageMap> DiskEngine<M> {
    pub(super) fn ask_permit(&mut self, now: Nanos, range: ByteRange) -> PermitId {
        let index = self.permits.slab.take();
        self.permits.slab[index] = Permit::default();
        if !self.shut_down {
            let request = self.fetches.requests.take();
            self.permits.slab[index].request = Some(request);
            let requester = Requester { client: ClientKey::NONE, class: Class::Fill };
            self.enqueue(now, request, requester, cut(range), Purpose::Permit(index));
        }
        PermitId { index, generation: self.permits.slab.generation(index) }
    }

    /// The permit that the queue gives by this, if it is one.
    pub(super) fn granted(&mut self, dispatch: &Dispatch) -> Option<PermitId> {
        // Requests of this class do not merge.
        let request = self.queue.tags(dispatch.id).next()?.0 as u32;
        let Some(Purpose::Permit(index)) = self.fetches.requests[request].purpose else { return None };
        self.end_request(request);
        self.permits.slab[index] = Permit { request: None, dispatch: Some(dispatch.id) };
        Some(PermitId { index, generation: self.permits.slab.generation(index) })
    }

    pub(super) fn end_permit(&mut self, now: Nanos, permit: PermitId) {
        if !self.permits.slab.is_live(permit.index, permit.generation) {
            return;
        }
        let Permit { request, dispatch } = std::mem::take(&mut self.permits.slab[permit.index]);
        if let Some(request) = request {
            self.forget_request(now, request);
        }
        if let Some(dispatch) = dispatch {
            drop(self.queue.handle_done(now, dispatch, 0));
        }
        self.permits.slab.release(permit.index);
    }

    /// Permits that wait are not granted any more.
    pub(super) fn refuse_permits(&mut self) {
        for index in 0..self.permits.slab.end() {
            if self.permits.slab.get(index).is_some() {
                self.permits.slab[index].request = None;
            }
        }
    }

    /// Whether one has been granted and not given back.
    pub(super) fn has_permits_out(&self) -> bool {
        let granted = |index| self.permits.slab.get(index).is_some_and(|permit| permit.dispatch.is_some());
        (0..self.permits.slab.end()).any(granted)
    }
}
