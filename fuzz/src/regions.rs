//! Any bytes as the message of a VMM about its guest's memory, or as the description of a snapshot: what is
//! accepted lies in the disk.

use hs_resume::description::Description;
use hs_uffd::Regions;
use hs_units::{BLOCK_BYTES, ByteRange};

/// Bytes of the disk.
const DISK_BYTES: u64 = 64 << 20;

/// Whether the input is either; panics when a part of it lies outside.
pub fn run(data: &[u8]) -> bool {
    if let Ok(found) = Description::decode(data, DISK_BYTES, "input") {
        assert!(found.memory_bytes <= found.state.offset);
        for part in [found.state, found.overlay] {
            assert!(part.offset.checked_add(part.bytes).is_some_and(|end| end <= DISK_BYTES));
        }
        return true;
    }
    let Ok(regions) = Regions::parse(data, DISK_BYTES) else { return false };
    for region in regions.all() {
        for address in [region.address, region.address + region.bytes - 1] {
            let (page, offset) = regions.page(address).expect("it is in a region");
            assert!(page <= address && offset + BLOCK_BYTES <= DISK_BYTES);
            let range = ByteRange::new(offset, BLOCK_BYTES);
            assert!(regions.addresses(range).any(|found| found == (page, range)));
        }
        assert_eq!(
            regions.page(region.address.wrapping_sub(1)).is_some(),
            regions.all().iter().any(|other| {
                region
                    .address
                    .checked_sub(1)
                    .is_some_and(|at| at >= other.address && at - other.address < other.bytes)
            })
        );
    }
    true
}
