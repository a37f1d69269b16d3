//! Where those who read a served disk get it: NBD clients, guests, and this kernel.

use hs_nbd::{NbdServer, NbdStats};
use hs_ublk::Shown;
use hs_vhost::VhostServer;

use crate::serve_guests;

/// What serves disks, of what was asked for.
pub(crate) struct Fronts {
    pub(crate) nbd: Option<NbdServer>,
    pub(crate) guests: Option<VhostServer>,
    pub(crate) device: Option<Shown>,
}

impl Fronts {
    /// Where they find the image of this number.
    pub(crate) fn places_of(&self, number: usize) -> Vec<String> {
        let mut places = self.nbd.as_ref().map(|nbd| nbd.uris(number).to_vec()).unwrap_or_default();
        places.extend(self.guests.as_ref().map(serve_guests::shown));
        places.extend(self.device.as_ref().map(|device| device.path().display().to_string()));
        places
    }

    /// Ends them; what was done. Their disks are closed: reads that wait fail.
    pub(crate) fn end(&mut self) -> NbdStats {
        if let Some(nbd) = &mut self.nbd {
            nbd.stop();
        }
        let stats = self.stats();
        if let Some(device) = self.device.take() {
            device.remove();
        }
        stats
    }

    fn stats(&self) -> NbdStats {
        let mut stats = self.nbd.as_ref().map(NbdServer::stats).unwrap_or_default();
        if let Some(guests) = self.guests.as_ref().map(VhostServer::stats) {
            stats.connections += guests.connections;
            stats.reads += guests.reads;
            stats.sent_bytes += guests.read_bytes;
        }
        if let Some(device) = self.device.as_ref().map(Shown::stats) {
            stats.reads += device.reads;
            stats.sent_bytes += device.read_bytes;
        }
        stats
    }
}
