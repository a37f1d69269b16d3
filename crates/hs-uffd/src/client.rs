//! One VMM, whose faults are answered.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use hs_disk::{Requester, ServedDisk};
use hs_linux::userfault::{MemoryEvent, Userfault};
use hs_serve::user_key;
use hs_units::{BLOCK_BYTES, BlockRange, to_u32};
use parking_lot::Mutex;

use crate::Regions;

/// A VMM. It is gone when its end of the connection is closed.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) faults: Userfault,
    pub(crate) regions: Regions,
    /// The user that it runs as.
    pub(crate) uid: u32,
    /// What the guest gave up (a balloon), in addresses: it reads as zeros from then on.
    removed: Mutex<Vec<(u64, u64)>>,
}

impl Client {
    pub(crate) fn new(stream: UnixStream, faults: Userfault, regions: Regions, uid: u32) -> Self {
        Self { stream, faults, regions, uid, removed: Mutex::default() }
    }

    /// Threads that waited for a server that died touch their pages again, and their faults are told again.
    pub(crate) fn wake_all(&self) {
        for region in self.regions.all() {
            if let Err(error) = self.faults.wake(region.address, region.bytes) {
                log::debug!("a guest is not woken: {error}");
            }
        }
    }

    /// Begins to answer what has happened since.
    ///
    /// # Errors
    /// When it is gone, or what it sent is no such descriptor.
    pub(crate) fn handle(self: &Arc<Self>, disk: &ServedDisk) -> io::Result<()> {
        for event in self.faults.events()? {
            match event {
                MemoryEvent::Fault { address } => self.handle_fault(disk, address),
                MemoryEvent::Removed { start, end } => self.removed.lock().push((start, end)),
                MemoryEvent::Other => {}
            }
        }
        Ok(())
    }

    fn handle_fault(self: &Arc<Self>, disk: &ServedDisk, address: u64) {
        let Some((page, offset)) = self.regions.page(address) else {
            // It registered more than it said; that waits for nothing of ours.
            log::warn!("a guest waits for memory that its VMM did not announce, at {address:#x}");
            return self.poison(address / BLOCK_BYTES * BLOCK_BYTES);
        };
        if self.is_removed(page) {
            return self.told(page, self.faults.zero(page, BLOCK_BYTES));
        }
        let client = Arc::clone(self);
        let requester = Requester::waiting(user_key(self.uid));
        disk.submit_for(requester, offset, to_u32(BLOCK_BYTES), move |result| match result {
            Ok(pieces) => {
                let bytes = pieces.concat();
                let is_zero = bytes.iter().all(|byte| *byte == 0);
                let given = match is_zero {
                    true => client.faults.zero(page, BLOCK_BYTES),
                    false => client.faults.copy(page, &bytes),
                };
                client.told(page, given);
            }
            // The disk has logged why.
            Err(_) => client.poison(page),
        });
    }

    /// Gives it blocks before it asks.
    pub(crate) fn push(&self, blocks: BlockRange, bytes: &[u8]) {
        let range = hs_units::ByteRange::new(blocks.start.byte_offset(), blocks.bytes());
        for (address, part) in self.regions.addresses(range) {
            if self.is_touched_by_removal(address, part.len) {
                continue;
            }
            let from = (part.offset - range.offset) as usize;
            if let Err(error) = self.faults.copy(address, &bytes[from..from + part.len as usize]) {
                log::debug!("a guest does not take pages: {error}");
            }
        }
    }

    fn is_removed(&self, page: u64) -> bool {
        self.removed.lock().iter().any(|(start, end)| (*start..*end).contains(&page))
    }

    fn is_touched_by_removal(&self, address: u64, bytes: u64) -> bool {
        self.removed.lock().iter().any(|(start, end)| *start < address + bytes && address < *end)
    }

    fn told(&self, page: u64, given: io::Result<()>) {
        match given {
            Ok(()) => {}
            // It has ended, or given that memory up meanwhile.
            Err(error) => log::debug!("the page at {page:#x} is not taken: {error}"),
        }
    }

    /// What touches this page gets SIGBUS. Before Linux 6.6 there is nothing of the kind, and it waits.
    fn poison(&self, page: u64) {
        log::error!("a page of a guest's memory cannot be had (address {page:#x}): the guest is stopped");
        if let Err(error) = self.faults.poison(page, BLOCK_BYTES) {
            log::error!("the guest waits without an end, since its page cannot be poisoned: {error}");
        }
    }
}
