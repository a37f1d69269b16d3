//! A guest's memory, as its VMM shares it: files that are mapped here.

use std::fs::File;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vhost::vhost_user::{Error, Result};
use vm_memory::{
    FileOffset, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap, GuestRegionMmap,
    MmapRegion,
};

/// Files of a guest's memory at most: one for each slot of QEMU's memory devices.
pub(crate) const MOST_REGIONS: usize = 256;

/// Memory that rings share and a VMM may change.
pub(crate) type Space = GuestMemoryAtomic<GuestMemoryMmap>;

/// The memory of one guest.
pub(crate) struct Memory {
    space: Space,
    regions: Vec<Region>,
}

#[derive(Clone)]
struct Region {
    /// Where it is for the VMM, which gives the addresses of rings so.
    vmm_at: u64,
    guest_at: u64,
    bytes: u64,
    mapped: Arc<GuestRegionMmap>,
}

impl Region {
    fn map(region: &VhostUserMemoryRegion, file: File) -> Result<Self> {
        let (vmm_at, guest_at, bytes) = (region.user_addr, region.guest_phys_addr, region.memory_size);
        let mapped = map(file, region.mmap_offset, bytes)?;
        let mapped = GuestRegionMmap::new(mapped, GuestAddress(guest_at)).ok_or(Error::InvalidParam)?;
        Ok(Self { vmm_at, guest_at, bytes, mapped: Arc::new(mapped) })
    }
}

/// Maps a part of a file that has it. Pages beyond the end of a file cannot be touched.
pub(crate) fn map(file: File, offset: u64, bytes: u64) -> Result<MmapRegion> {
    let end = offset.checked_add(bytes).ok_or(Error::InvalidParam)?;
    let found = rustix::fs::fstat(&file).map_err(|errno| Error::ReqHandlerError(errno.into()))?;
    if u64::try_from(found.st_size).unwrap_or(0) < end {
        return Err(Error::InvalidParam);
    }
    let len = usize::try_from(bytes).map_err(|_| Error::InvalidParam)?;
    MmapRegion::from_file(FileOffset::new(file, offset), len)
        .map_err(|error| Error::ReqHandlerError(std::io::Error::other(error)))
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { space: Space::new(GuestMemoryMmap::default()), regions: Vec::new() }
    }

    /// What rings use.
    pub(crate) fn space(&self) -> Space {
        self.space.clone()
    }

    /// The memory is these.
    pub(crate) fn set(&mut self, regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<()> {
        if regions.len() != files.len() || regions.len() > MOST_REGIONS {
            return Err(Error::InvalidParam);
        }
        let regions = regions.iter().zip(files).map(|(region, file)| Region::map(region, file));
        self.replace(regions.collect::<Result<_>>()?)
    }

    /// There is one more.
    pub(crate) fn add(&mut self, region: &VhostUserMemoryRegion, file: File) -> Result<()> {
        if self.regions.len() >= MOST_REGIONS {
            return Err(Error::InvalidParam);
        }
        let mut regions = self.regions.clone();
        regions.push(Region::map(region, file)?);
        self.replace(regions)
    }

    /// There is one less.
    pub(crate) fn remove(&mut self, region: &VhostUserMemoryRegion) -> Result<()> {
        let is_it = |own: &Region| {
            (own.guest_at, own.vmm_at, own.bytes)
                == (region.guest_phys_addr, region.user_addr, region.memory_size)
        };
        let at = self.regions.iter().position(is_it).ok_or(Error::InvalidParam)?;
        let mut regions = self.regions.clone();
        regions.remove(at);
        self.replace(regions)
    }

    fn replace(&mut self, mut regions: Vec<Region>) -> Result<()> {
        regions.sort_by_key(|region| region.guest_at);
        let mapped: Vec<_> = regions.iter().map(|region| Arc::clone(&region.mapped)).collect();
        let memory = if mapped.is_empty() {
            GuestMemoryMmap::default()
        } else {
            GuestMemoryMmap::from_arc_regions(mapped)
                .map_err(|error| Error::ReqHandlerError(std::io::Error::other(error)))?
        };
        self.regions = regions;
        self.space.lock().map_err(|_| Error::BackendInternalError)?.replace(memory);
        Ok(())
    }

    /// Where an address of the VMM is for the guest.
    pub(crate) fn guest_address(&self, vmm_at: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let at = vmm_at.checked_sub(region.vmm_at).filter(|at| *at < region.bytes)?;
            region.guest_at.checked_add(at).map(GuestAddress)
        })
    }

    /// The memory as it is now.
    pub(crate) fn now(&self) -> Arc<GuestMemoryMmap> {
        self.space.memory().into_inner()
    }
}
