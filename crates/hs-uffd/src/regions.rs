//! Where a guest's memory lies, as its VMM says it.
//!
//! The message is Firecracker's: an array of objects with `base_host_virt_addr`, `size`, `offset` and
//! `page_size` (in bytes; older versions call it `page_size_kib`, in bytes as well). It is not trusted: a VMM
//! that lies gets its own memory wrong, and nothing else.

use hs_units::{BLOCK_BYTES, ByteRange};
use serde::{Deserialize, Serialize};

/// A guest's memory has a hole for devices, so it is in two parts, or in some more with memory that is added.
const MOST_REGIONS: usize = 64;
/// The size of a page, which is a block's.
const PAGE: u64 = BLOCK_BYTES;

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionsError {
    /// It is no such message.
    #[error("the message is no list of regions: {why}")]
    NoList {
        /// What the parser says.
        why: String,
    },
    /// There are none, or too many.
    #[error("a guest has from 1 to {MOST_REGIONS} regions of memory, not {count}")]
    Count {
        /// How many there are.
        count: usize,
    },
    /// The pages are huge ones.
    #[error("pages of {page_bytes} bytes are not served, only of {PAGE}")]
    PageSize {
        /// Their size.
        page_bytes: u64,
    },
    /// A region does not consist of whole pages, or ends behind the last address.
    #[error("region {number} is not of whole pages")]
    Unaligned {
        /// Which one, from 0.
        number: usize,
    },
    /// A region is not in the disk.
    #[error("region {number} ends behind the {disk_bytes} bytes of the disk")]
    Outside {
        /// Which one, from 0.
        number: usize,
        /// What there is.
        disk_bytes: u64,
    },
    /// Two regions have the same addresses.
    #[error("region {number} overlaps another")]
    Overlap {
        /// Which one, from 0.
        number: usize,
    },
}

/// A part of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its first address in the VMM's process.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// Where it begins in the disk.
    pub offset: u64,
}

/// The memory of a guest: regions in ascending order, none of which overlap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regions(Vec<Region>);

/// As Firecracker writes it.
#[derive(Deserialize)]
struct Mapping {
    base_host_virt_addr: u64,
    size: u64,
    offset: u64,
    page_size: Option<u64>,
    page_size_kib: Option<u64>,
}

impl Regions {
    /// Reads a message about memory that lies in a disk of `disk_bytes`.
    ///
    /// # Errors
    /// When it cannot be true.
    pub fn parse(message: &[u8], disk_bytes: u64) -> Result<Self, RegionsError> {
        let mappings: Vec<Mapping> = serde_json::from_slice(message)
            .map_err(|error| RegionsError::NoList { why: error.to_string() })?;
        if let Some(page_bytes) = mappings
            .iter()
            .filter_map(|mapping| mapping.page_size.or(mapping.page_size_kib))
            .find(|page| *page != PAGE)
        {
            return Err(RegionsError::PageSize { page_bytes });
        }
        let regions = mappings.iter().map(|mapping| Region {
            address: mapping.base_host_virt_addr,
            bytes: mapping.size,
            offset: mapping.offset,
        });
        Self::of(regions.collect(), disk_bytes)
    }

    /// Checks regions of memory that lies in a disk of `disk_bytes`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of(mut regions: Vec<Region>, disk_bytes: u64) -> Result<Self, RegionsError> {
        let count = regions.len();
        if !(1..=MOST_REGIONS).contains(&count) {
            return Err(RegionsError::Count { count });
        }
        for (number, region) in regions.iter().enumerate() {
            let Region { address, bytes, offset } = *region;
            let is_whole = [address, bytes, offset].iter().all(|value| value.is_multiple_of(PAGE));
            if !is_whole || bytes == 0 || address.checked_add(bytes).is_none() {
                return Err(RegionsError::Unaligned { number });
            }
            if offset.checked_add(bytes).is_none_or(|end| end > disk_bytes) {
                return Err(RegionsError::Outside { number, disk_bytes });
            }
        }
        regions.sort_by_key(|region| region.address);
        let overlap = regions.windows(2).position(|pair| pair[0].address + pair[0].bytes > pair[1].address);
        if let Some(number) = overlap {
            return Err(RegionsError::Overlap { number: number + 1 });
        }
        Ok(Self(regions))
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Region] {
        &self.0
    }

    /// The page at an address: its first address, and where it lies in the disk.
    #[must_use]
    pub fn page(&self, address: u64) -> Option<(u64, u64)> {
        let region = self
            .0
            .iter()
            .find(|region| address.checked_sub(region.address).is_some_and(|behind| behind < region.bytes))?;
        let behind = (address - region.address) / PAGE * PAGE;
        Some((region.address + behind, region.offset + behind))
    }

    /// Where a range of the disk lies in the guest's memory: addresses, and the parts of the range. The disk
    /// may be there several times, or not at all.
    pub fn addresses(&self, range: ByteRange) -> impl Iterator<Item = (u64, ByteRange)> + '_ {
        self.0.iter().filter_map(move |region| {
            let start = range.offset.max(region.offset);
            let end = range.end().min(region.offset + region.bytes);
            let part = (start < end).then(|| ByteRange::new(start, end - start))?;
            Some((region.address + (start - region.offset), part))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DISK: u64 = 1 << 20;

    fn parse(text: &str) -> Result<Regions, RegionsError> {
        Regions::parse(text.as_bytes(), DISK)
    }

    #[test]
    fn firecrackers_message_is_understood() {
        let text = r#"[{"base_host_virt_addr":139637976727552,"size":524288,"offset":0,
                "page_size":4096,"page_size_kib":4096},
            {"base_host_virt_addr":139637977251840,"size":4096,"offset":524288,"page_size_kib":4096}]"#;
        let regions = parse(text).unwrap();
        assert_eq!(regions.all().len(), 2);
        let first = 139_637_976_727_552;
        assert_eq!(regions.page(first + 4097), Some((first + 4096, 4096)));
        assert_eq!(regions.page(first + 524_288), Some((first + 524_288, 524_288)));
        assert_eq!(regions.page(first + 524_288 + 4096), None);
        assert_eq!(regions.page(first - 1), None);
        let both: Vec<_> = regions.addresses(ByteRange::new(520_192, 12_288)).collect();
        let parts = [ByteRange::new(520_192, 4096), ByteRange::new(524_288, 4096)];
        assert_eq!(both, [(first + 520_192, parts[0]), (first + 524_288, parts[1])]);
    }

    #[test]
    fn lies_are_refused() {
        let region = |address: u64, bytes: u64, offset: u64| Region { address, bytes, offset };
        let of = |regions: &[Region]| Regions::of(regions.to_vec(), DISK).unwrap_err();
        assert_eq!(of(&[]), RegionsError::Count { count: 0 });
        assert_eq!(of(&[region(0, 4096, 0); 65]), RegionsError::Count { count: 65 });
        for wrong in [region(1, 4096, 0), region(0, 5, 0), region(0, 0, 0), region(u64::MAX - 4095, 4096, 0)]
        {
            assert_eq!(of(&[wrong]), RegionsError::Unaligned { number: 0 }, "{wrong:?}");
        }
        for wrong in [region(0, DISK + 4096, 0), region(0, 4096, DISK), region(0, 8192, u64::MAX - 4095)] {
            assert_eq!(of(&[wrong]), RegionsError::Outside { number: 0, disk_bytes: DISK }, "{wrong:?}");
        }
        let overlap = of(&[region(8192, 4096, 0), region(4096, 8192, 0)]);
        assert_eq!(overlap, RegionsError::Overlap { number: 1 });
        assert!(matches!(parse("[{}]"), Err(RegionsError::NoList { .. })));
        assert!(matches!(parse(""), Err(RegionsError::NoList { .. })));
        let huge = r#"[{"base_host_virt_addr":0,"size":4096,"offset":0,"page_size":2097152}]"#;
        assert_eq!(parse(huge), Err(RegionsError::PageSize { page_bytes: 2 << 20 }));
    }

    proptest! {
        /// Whatever is said, a page is one of the disk, and found again.
        #[test]
        fn pages_lie_in_the_disk(
            numbers in prop::collection::vec((0_u64..300, 0_u64..300, 0_u64..300), 0..6),
            address in 0_u64..(300 * PAGE),
        ) {
            let region = |&(address, pages, offset): &(u64, u64, u64)| Region {
                address: address * PAGE,
                bytes: pages * PAGE,
                offset: offset * PAGE,
            };
            if let Ok(regions) = Regions::of(numbers.iter().map(region).collect(), DISK)
                && let Some((page, offset)) = regions.page(address)
            {
                prop_assert!(page <= address && address < page + PAGE && offset + PAGE <= DISK);
                let range = ByteRange::new(offset, PAGE);
                prop_assert!(regions.addresses(range).any(|found| found == (page, range)));
            }
        }
    }
}
