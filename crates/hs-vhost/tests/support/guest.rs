//! A guest with a virtio block device, and its VMM. Rings are written by hand, so that they may be wrong.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserVirtioFeatures};
use vhost::{Result, VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// What must happen happens within this, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const ENTRIES: u16 = 64;
pub(crate) const MEMORY_BYTES: u64 = 16 << 20;
/// Where the memory is for the VMM.
const VMM_AT: u64 = 0x7000_0000_0000;
/// Of each queue: its descriptors, its available and its used ring, headers and statuses.
const QUEUE_BYTES: u64 = 0x1_0000;
const AVAILABLE_AT: u64 = 0x2000;
const USED_AT: u64 = 0x4000;
const HEADERS_AT: u64 = 0x6000;
const STATUSES_AT: u64 = 0x8000;
pub(crate) const DATA_AT: u64 = 1 << 20;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;
pub(crate) const IN: u32 = 0;
pub(crate) const OUT: u32 = 1;
pub(crate) const FLUSH: u32 = 4;
pub(crate) const GET_ID: u32 = 8;
const EVENT_IDX: u64 = 1 << 29;

/// A guest, its VMM, and their connection.
pub(crate) struct Guest {
    pub(crate) vmm: Frontend,
    pub(crate) memory: GuestMemoryMmap,
    memory_file: File,
    pub(crate) queues: Vec<Queue>,
    inflight: Option<(VhostUserInflight, File)>,
}

/// The guest's side of a queue.
pub(crate) struct Queue {
    pub(crate) at: u64,
    kick: EventFd,
    call: EventFd,
    available: u16,
    seen: u16,
    interrupts: u64,
    is_mute: bool,
}

impl Guest {
    /// A guest with so many queues, before its VMM has connected them.
    pub(crate) fn new(socket: &Path, queues: usize) -> Result<Self> {
        let file: File = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a file").into();
        ftruncate(&file, MEMORY_BYTES).expect("it is long enough");
        let offset = FileOffset::new(file.try_clone().expect("a duplicate"), 0);
        let ranges = [(GuestAddress(0), MEMORY_BYTES as usize, Some(offset))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).expect("mapped");
        let event = || EventFd::new(EFD_NONBLOCK).expect("an event");
        let queue = |number: usize| {
            let at = number as u64 * QUEUE_BYTES;
            Queue { at, kick: event(), call: event(), available: 0, seen: 0, interrupts: 0, is_mute: false }
        };
        let queues = (0..queues).map(queue).collect();
        Ok(Self { vmm: connect(socket)?, memory, memory_file: file, queues, inflight: None })
    }

    /// The same, served.
    pub(crate) fn served(socket: &Path, queues: usize) -> Result<Self> {
        let mut guest = Self::new(socket, queues)?;
        guest.introduce()?;
        (0..queues).try_for_each(|number| guest.start(number))?;
        Ok(guest)
    }

    /// Says what a VMM says before its guest starts.
    pub(crate) fn introduce(&mut self) -> Result<()> {
        self.vmm.set_owner()?;
        let features = self.vmm.get_features()?;
        let protocol = self.vmm.get_protocol_features()?;
        self.vmm.set_protocol_features(protocol)?;
        self.vmm.set_features(features & !EVENT_IDX)?;
        assert!(features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0);
        self.share(MEMORY_BYTES)
    }

    /// Shares memory of this size.
    pub(crate) fn share(&mut self, bytes: u64) -> Result<()> {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: bytes,
            userspace_addr: VMM_AT,
            mmap_offset: 0,
            mmap_handle: self.memory_file.as_raw_fd(),
        };
        self.vmm.set_mem_table(&[region]).map(drop)
    }

    /// Has what is under way kept for the next server.
    pub(crate) fn keep_inflight(&mut self) -> Result<()> {
        if self.inflight.is_none() {
            let wanted = VhostUserInflight::new(0, 0, self.queues.len() as u16, ENTRIES);
            self.inflight = Some(self.vmm.get_inflight_fd(&wanted)?);
        }
        let (inflight, file) = self.inflight.as_ref().expect("there is one");
        self.vmm.set_inflight_fd(inflight, file.as_raw_fd())
    }

    /// Starts a queue where the guest's used ring is.
    pub(crate) fn start(&mut self, number: usize) -> Result<()> {
        let at = self.queues[number].at;
        self.start_at(number, ENTRIES, VMM_AT + at)
    }

    /// Starts a queue, which may be a wrong one.
    pub(crate) fn start_at(&mut self, number: usize, entries: u16, at: u64) -> Result<()> {
        let base = self.used_idx(number);
        self.vmm.set_vring_num(number, entries)?;
        let config = VringConfigData {
            queue_max_size: 1024,
            queue_size: entries,
            flags: 0,
            desc_table_addr: at,
            used_ring_addr: at + USED_AT,
            avail_ring_addr: at + AVAILABLE_AT,
            log_addr: None,
        };
        self.vmm.set_vring_addr(number, &config)?;
        self.vmm.set_vring_base(number, base)?;
        let queue = &self.queues[number];
        self.vmm.set_vring_call(number, &queue.call)?;
        self.vmm.set_vring_kick(number, &queue.kick)?;
        self.vmm.set_vring_enable(number, true)?;
        // Answered after all before it.
        self.vmm.get_features().map(drop)
    }

    /// Another server, for the same guest.
    pub(crate) fn connect_again(&mut self, socket: &Path) -> Result<()> {
        self.vmm = connect(socket)?;
        self.introduce()?;
        self.keep_inflight()?;
        (0..self.queues.len()).try_for_each(|number| self.start(number))
    }

    pub(crate) fn describe(
        &self,
        number: usize,
        descriptor: u16,
        (at, len, flags, next): (u64, u32, u16, u16),
    ) {
        let place = self.queues[number].at + 16 * u64::from(descriptor);
        self.memory.write_obj(Descriptor::new(at, len, flags, next), GuestAddress(place)).expect("in memory");
    }

    /// Makes a chain available.
    pub(crate) fn offer(&mut self, number: usize, head: u16) {
        let queue = &mut self.queues[number];
        let place = queue.at + AVAILABLE_AT + 4 + 2 * u64::from(queue.available % ENTRIES);
        self.memory.write_obj(head, GuestAddress(place)).expect("in memory");
        queue.available = queue.available.wrapping_add(1);
        let available = queue.available;
        self.available(number, available);
    }

    /// Says how far the available ring goes, and has the server look.
    pub(crate) fn available(&self, number: usize, index: u16) {
        let queue = &self.queues[number];
        let place = GuestAddress(queue.at + AVAILABLE_AT + 2);
        self.memory.store(index, place, Ordering::Release).expect("in memory");
        if !queue.is_mute {
            queue.kick.write(1).expect("kicked");
        }
    }

    /// From now on the server is not told of requests, or is again and at once.
    pub(crate) fn set_mute(&mut self, number: usize, is_mute: bool) {
        self.queues[number].is_mute = is_mute;
        if !is_mute {
            self.queues[number].kick.write(1).expect("kicked");
        }
    }

    /// Whether the server wants to be told of requests.
    pub(crate) fn wants_kicks(&self, number: usize) -> bool {
        let place = GuestAddress(self.queues[number].at + USED_AT);
        self.memory.load::<u16>(place, Ordering::SeqCst).expect("in memory") == 0
    }

    /// Asks for something by three descriptors, of which `head` is the first. Data goes to `at`.
    pub(crate) fn ask(
        &mut self,
        number: usize,
        head: u16,
        (kind, sector): (u32, u64),
        (at, len): (u64, u32),
    ) {
        self.ask_with(number, head, (kind, sector), (at, len, NEXT | WRITE));
    }

    fn ask_with(
        &mut self,
        number: usize,
        head: u16,
        (kind, sector): (u32, u64),
        (at, len, flags): (u64, u32, u16),
    ) {
        let own = self.queues[number].at;
        let header = own + HEADERS_AT + 16 * u64::from(head);
        self.memory.write_obj(u64::from(kind), GuestAddress(header)).expect("in memory");
        self.memory.write_obj(sector, GuestAddress(header + 8)).expect("in memory");
        let status = own + STATUSES_AT + u64::from(head);
        self.memory.write_obj(0xff_u8, GuestAddress(status)).expect("in memory");
        self.describe(number, head, (header, 16, NEXT, head + 1));
        self.describe(number, head + 1, (at, len, flags, head + 2));
        self.describe(number, head + 2, (status, 1, WRITE, 0));
        self.offer(number, head);
    }

    /// Orders something with these bytes and waits: the status.
    pub(crate) fn order(&mut self, number: usize, kind: u32, sector: u64, bytes: &[u8]) -> u8 {
        self.memory.write_slice(bytes, GuestAddress(DATA_AT)).expect("in memory");
        self.ask_with(number, 0, (kind, sector), (DATA_AT, bytes.len() as u32, NEXT));
        assert_eq!(self.answered(number), (0, 1));
        self.status(number, 0)
    }

    pub(crate) fn used_idx(&self, number: usize) -> u16 {
        let place = GuestAddress(self.queues[number].at + USED_AT + 2);
        self.memory.load(place, Ordering::Acquire).expect("in memory")
    }

    /// Waits for the next answer: its head and its length.
    pub(crate) fn answered(&mut self, number: usize) -> (u16, u32) {
        let (at, seen) = (self.queues[number].at, self.queues[number].seen);
        while self.used_idx(number) == seen {
            // The interrupt is waited for, not the answer.
            let (until, before) = (Instant::now() + PATIENCE, self.queues[number].interrupts);
            while self.interrupts(number) == before {
                assert!(Instant::now() < until, "no answer");
                std::thread::yield_now();
            }
        }
        self.queues[number].seen = seen.wrapping_add(1);
        let place = at + USED_AT + 4 + 8 * u64::from(seen % ENTRIES);
        let [head, len]: [u32; 2] = self.memory.read_obj(GuestAddress(place)).expect("in memory");
        (head as u16, len)
    }

    /// How often it was interrupted.
    pub(crate) fn interrupts(&mut self, number: usize) -> u64 {
        let queue = &mut self.queues[number];
        queue.interrupts += queue.call.read().unwrap_or(0);
        queue.interrupts
    }

    pub(crate) fn status(&self, number: usize, head: u16) -> u8 {
        let place = self.queues[number].at + STATUSES_AT + u64::from(head);
        self.memory.read_obj(GuestAddress(place)).expect("in memory")
    }

    pub(crate) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).expect("in memory");
        bytes
    }

    /// Asks and waits: the status, and the data.
    pub(crate) fn get(&mut self, number: usize, kind: u32, sector: u64, len: u32) -> (u8, Vec<u8>) {
        let at = DATA_AT + (number as u64) * (7 << 20);
        self.ask(number, 0, (kind, sector), (at, len));
        let (head, used) = self.answered(number);
        assert_eq!(head, 0);
        let status = self.status(number, 0);
        assert!(kind != IN || used == if status == 0 { len + 1 } else { 1 }, "{used} bytes were written");
        (status, self.bytes(at, len as usize))
    }

    /// Reads the sectors of these bytes, as a kernel would. It knows where the disk ends.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> std::result::Result<Vec<u8>, i32> {
        let (first, end) = (offset / 512, (offset + u64::from(len)).div_ceil(512));
        let sectors = (end - first) as u32;
        let (status, mut bytes) = self.get(0, IN, first, 512 * sectors);
        if status != 0 {
            let space = self.vmm.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8]);
            let capacity = space.expect("the connection lives").1.try_into().expect("eight bytes");
            let is_outside = end > u64::from_le_bytes(capacity);
            return Err(if is_outside { Errno::INVAL } else { Errno::IO }.raw_os_error());
        }
        bytes.drain(..(offset % 512) as usize);
        bytes.truncate(len as usize);
        Ok(bytes)
    }
}

fn connect(socket: &Path) -> Result<Frontend> {
    let stream = UnixStream::connect(socket).map_err(vhost::vhost_user::Error::SocketConnect)?;
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    Ok(Frontend::from_stream(stream, 64))
}
