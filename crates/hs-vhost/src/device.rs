//! What a VMM sets up: memory, features and rings of one device.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use crate::call::Call;
use crate::config::{self, MOST_QUEUE_ENTRIES};
use crate::inflight::Inflight;
use crate::memory::{MOST_REGIONS, Memory};
use crate::ring::{Common, Running, Setup};

/// A device, as one VMM has it.
pub(crate) struct Device {
    common: Arc<Common>,
    memory: Memory,
    inflight: Option<Inflight>,
    features: u64,
    rings: Vec<RingState>,
}

/// A ring, running or not.
#[derive(Default)]
struct RingState {
    entries: u16,
    places: Option<Places>,
    next_avail: u16,
    kick: Option<OwnedFd>,
    call: Arc<Call>,
    is_enabled: bool,
    running: Option<Running>,
}

#[derive(Clone, Copy)]
struct Places {
    descriptors: GuestAddress,
    available: GuestAddress,
    used: GuestAddress,
}

impl RingState {
    /// Takes no more requests, and waits until those that were taken are answered.
    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.next_avail = running.stop();
        }
    }
}

fn queue_error(error: virtio_queue::Error) -> Error {
    Error::ReqHandlerError(std::io::Error::other(error))
}

/// Descriptors of a VMM are read and written where this server must not wait.
fn without_waiting(file: File) -> Result<File> {
    rustix::io::ioctl_fionbio(&file, true).map_err(|errno| Error::ReqHandlerError(errno.into()))?;
    Ok(file)
}

impl Device {
    pub(crate) fn new(common: Arc<Common>, queues: u16) -> Self {
        let rings = (0..queues).map(|_| RingState { entries: MOST_QUEUE_ENTRIES, ..RingState::default() });
        let rings = rings.collect();
        Self { common, memory: Memory::new(), inflight: None, features: 0, rings }
    }

    /// Ends all rings without waiting for requests that are under way.
    pub(crate) fn abandon(&mut self) {
        for ring in &mut self.rings {
            ring.running = None;
        }
    }

    fn ring(&mut self, number: u32) -> Result<&mut RingState> {
        self.rings.get_mut(number as usize).ok_or(Error::InvalidParam)
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Serves a ring that is set up, enabled, and not served yet.
    fn start_if_ready(&mut self, number: u32) -> Result<()> {
        let has_event_idx = self.has(config::RING_F_EVENT_IDX);
        // A driver that does not flush relies on each write.
        let writes_last = !self.has(config::F_FLUSH);
        let memory = self.memory.now();
        let space = self.memory.space();
        let mut inflight = match &self.inflight {
            Some(inflight) => inflight.queue(number as u16),
            None => None,
        };
        let common = Arc::clone(&self.common);
        let ring = self.ring(number)?;
        let (Some(kick), Some(places), true, None) =
            (&ring.kick, ring.places, ring.is_enabled, &ring.running)
        else {
            return Ok(());
        };
        let mut queue = Queue::new(MOST_QUEUE_ENTRIES).map_err(queue_error)?;
        queue.try_set_size(ring.entries).map_err(queue_error)?;
        queue.try_set_desc_table_address(places.descriptors).map_err(queue_error)?;
        queue.try_set_avail_ring_address(places.available).map_err(queue_error)?;
        queue.try_set_used_ring_address(places.used).map_err(queue_error)?;
        queue.set_event_idx(has_event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&*memory) {
            return Err(Error::InvalidParam);
        }
        let used = queue.used_idx(&*memory, Ordering::Acquire).map_err(queue_error)?.0;
        queue.set_next_used(used);
        queue.set_next_avail(ring.next_avail);
        let mut left = Vec::new();
        if let Some(inflight) = &mut inflight {
            if inflight.entries() < ring.entries {
                return Err(Error::InvalidParam);
            }
            left = inflight.recover(used);
            left.retain(|head| *head < ring.entries);
            // A VMM whose server died knows the used ring only. All that was taken is used or left.
            queue.set_next_avail(used.wrapping_add(left.len() as u16));
            if !left.is_empty() {
                log::info!("queue {number}: {} requests of a server that ended are answered", left.len());
            }
        }
        let kick = kick.try_clone().map_err(Error::ReqHandlerError)?;
        let call = Arc::clone(&ring.call);
        let number = number as usize;
        let setup = Setup { number, queue, inflight, left, memory: space, call, kick, writes_last };
        ring.running = Some(Running::start(&common, setup).map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn stop_all(&mut self) {
        self.rings.iter_mut().for_each(RingState::stop);
    }
}

impl VhostUserBackendReqHandlerMut for Device {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all();
        self.features = 0;
        for ring in &mut self.rings {
            (ring.is_enabled, ring.next_avail, ring.places, ring.kick) = (false, 0, None, None);
            ring.call.set(None);
        }
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(config::features(self.common.kept.is_some()))
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !config::features(self.common.kept.is_some()) != 0 {
            return Err(Error::InvalidParam);
        }
        self.features = features;
        // Without that feature there is no message by which rings are enabled.
        if !self.has(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()) {
            for number in 0..self.rings.len() as u32 {
                self.ring(number)?.is_enabled = true;
                self.start_if_ready(number)?;
            }
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.memory.set(regions, files)?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let entries = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        if !entries.is_power_of_two() || entries > MOST_QUEUE_ENTRIES {
            return Err(Error::InvalidParam);
        }
        self.ring(index)?.entries = entries;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let place = |at| self.memory.guest_address(at).ok_or(Error::InvalidParam);
        let places =
            Places { descriptors: place(descriptor)?, available: place(available)?, used: place(used)? };
        self.ring(index)?.places = Some(places);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index)?.next_avail = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let ring = self.ring(index)?;
        ring.stop();
        ring.kick = None;
        ring.call.set(None);
        Ok(VhostUserVringState::new(index, ring.next_avail.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let ring = self.ring(index.into())?;
        ring.stop();
        ring.kick = fd.map(without_waiting).transpose()?.map(OwnedFd::from);
        self.start_if_ready(index.into())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let file = fd.map(without_waiting).transpose()?;
        self.ring(index.into())?.call.set(file);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.ring(index.into()).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(config::protocol_features())
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.rings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let ring = self.ring(index)?;
        ring.is_enabled = enable;
        if !enable {
            ring.stop();
        }
        self.start_if_ready(index)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(config::space(self.common.target().bytes, self.rings.len() as u16, offset, size))
    }

    /// Nothing of it can be changed, and a driver that tries is not worth a connection.
    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("this is no GPU"))
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("there are no shared objects"))
    }

    fn get_inflight_fd(&mut self, inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Inflight::make(inflight.num_queues, inflight.queue_size)
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        self.inflight = Some(Inflight::open(inflight, file)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MOST_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.memory.add(region, fd)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.memory.remove(region)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("the device has no state"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("the device has no state"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("there is no shared memory"))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(Error::InvalidOperation("writes are not logged"))
    }
}
