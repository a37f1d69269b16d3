//! Bytes as a VMDK, VDI, VHD or VHDX file, the first MiB of whose disk is read.

use hs_build::source::virtual_disk::read_in_memory;

const MOST_BYTES: u64 = 1 << 20;

/// Whether the disk could be read; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Ok(disk) = read_in_memory(data, MOST_BYTES) else { return false };
    assert!(disk.len() as u64 <= MOST_BYTES);
    true
}
