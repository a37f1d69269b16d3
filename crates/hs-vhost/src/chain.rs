//! A chain of descriptors, as a guest wrote it (virtio 1.2, 2.7.5).
//!
//! The chains of `virtio-queue` begin at entries of the available ring. A request that a server before this
//! one has left is known by its head alone, so chains are walked here.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

/// A longer chain is refused. A guest that keeps to `seg_max` has far fewer.
pub(crate) const MOST_DESCRIPTORS: usize = 1024;
const DESCRIPTOR_BYTES: u64 = size_of::<Descriptor>() as u64;

/// A part of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) at: GuestAddress,
    pub(crate) len: u32,
}

/// Buffers of a request, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// What the device reads.
    pub(crate) readable: Vec<Extent>,
    /// What the device writes.
    pub(crate) writable: Vec<Extent>,
}

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadChain {
    #[error("descriptor {0} is none of its table")]
    Outside(u16),
    #[error("its table is not in the guest's memory")]
    NoTable,
    #[error("it has more than {MOST_DESCRIPTORS} descriptors")]
    Long,
    #[error("a table of indirect descriptors is empty, not whole, in another one, or not the last")]
    Indirect,
    #[error("a buffer to read comes after one to write")]
    Order,
    #[error("its buffers have more than 4 GiB")]
    Bytes,
}

/// A table of descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) at: GuestAddress,
    pub(crate) size: u16,
}

impl Table {
    fn descriptor(self, memory: &GuestMemoryMmap, number: u16) -> Result<Descriptor, BadChain> {
        if number >= self.size {
            return Err(BadChain::Outside(number));
        }
        let at = self.at.checked_add(u64::from(number) * DESCRIPTOR_BYTES).ok_or(BadChain::NoTable)?;
        memory.read_obj(at).map_err(|_| BadChain::NoTable)
    }

    /// The table that an indirect descriptor names.
    fn indirect(descriptor: Descriptor) -> Result<Self, BadChain> {
        let bytes = u64::from(descriptor.len());
        let size = bytes / DESCRIPTOR_BYTES;
        if size == 0 || bytes % DESCRIPTOR_BYTES != 0 || descriptor.has_next() {
            return Err(BadChain::Indirect);
        }
        let size = u16::try_from(size).map_err(|_| BadChain::Long)?;
        Ok(Self { at: descriptor.addr(), size })
    }
}

impl Chain {
    /// The chain that begins with a descriptor of the table.
    pub(crate) fn walk(memory: &GuestMemoryMmap, table: Table, head: u16) -> Result<Self, BadChain> {
        let (mut table, mut number, mut is_indirect) = (table, head, false);
        let mut chain = Self::default();
        let mut bytes: u32 = 0;
        // A loop ends here too: each step adds an extent, but the one into an indirect table.
        while chain.readable.len() + chain.writable.len() < MOST_DESCRIPTORS {
            let descriptor = table.descriptor(memory, number)?;
            if descriptor.refers_to_indirect_table() {
                if is_indirect {
                    return Err(BadChain::Indirect);
                }
                (table, number, is_indirect) = (Table::indirect(descriptor)?, 0, true);
                continue;
            }
            let extent = Extent { at: descriptor.addr(), len: descriptor.len() };
            bytes = bytes.checked_add(extent.len).ok_or(BadChain::Bytes)?;
            if descriptor.is_write_only() {
                chain.writable.push(extent);
            } else if chain.writable.is_empty() {
                chain.readable.push(extent);
            } else {
                return Err(BadChain::Order);
            }
            if !descriptor.has_next() {
                return Ok(chain);
            }
            number = descriptor.next();
        }
        Err(BadChain::Long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;
    const TABLE: Table = Table { at: GuestAddress(0x1000), size: 8 };

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1_0000)]).expect("memory")
    }

    fn put(memory: &GuestMemoryMmap, table: u64, descriptors: &[(u64, u32, u16, u16)]) {
        for (number, (at, len, flags, next)) in descriptors.iter().enumerate() {
            let descriptor = Descriptor::new(*at, *len, *flags, *next);
            memory.write_obj(descriptor, GuestAddress(table + 16 * number as u64)).expect("written");
        }
    }

    fn walk(descriptors: &[(u64, u32, u16, u16)]) -> Result<Chain, BadChain> {
        let memory = memory();
        put(&memory, 0x1000, descriptors);
        put(&memory, 0x3000, &[(1, 2, NEXT, 1), (3, 4, WRITE, 0)]);
        put(&memory, 0x4000, &[(0x3000, 32, INDIRECT, 0)]);
        Chain::walk(&memory, TABLE, 0)
    }

    #[test]
    fn buffers_come_in_order_from_either_table() {
        let extent = |at, len| Extent { at: GuestAddress(at), len };
        let chain = walk(&[(16, 16, NEXT, 2), (0, 0, 0, 0), (32, 512, NEXT | WRITE, 3), (48, 1, WRITE, 0)]);
        let writable = vec![extent(32, 512), extent(48, 1)];
        assert_eq!(chain, Ok(Chain { readable: vec![extent(16, 16)], writable }));
        let chain = Chain { readable: vec![extent(1, 2)], writable: vec![extent(3, 4)] };
        assert_eq!(walk(&[(0x3000, 32, INDIRECT, 0)]), Ok(chain));
    }

    #[test]
    fn what_no_driver_writes_is_refused() {
        assert_eq!(walk(&[(0, 1, NEXT, 0)]), Err(BadChain::Long), "a loop");
        assert_eq!(walk(&[(0, 1, NEXT, 8)]), Err(BadChain::Outside(8)));
        assert_eq!(walk(&[(0, 1, WRITE | NEXT, 1), (0, 1, 0, 0)]), Err(BadChain::Order));
        assert_eq!(walk(&[(0, u32::MAX, NEXT, 1), (0, 1, 0, 0)]), Err(BadChain::Bytes));
        assert_eq!(walk(&[(0x4000, 16, INDIRECT, 0)]), Err(BadChain::Indirect), "a table in a table");
        assert_eq!(walk(&[(0x3000, 0, INDIRECT, 0)]), Err(BadChain::Indirect));
        assert_eq!(walk(&[(0x3000, 33, INDIRECT, 0)]), Err(BadChain::Indirect));
        assert_eq!(walk(&[(0x3000, 32, INDIRECT | NEXT, 1)]), Err(BadChain::Indirect));
        assert_eq!(walk(&[(0x3000, u32::MAX - 15, INDIRECT, 0)]), Err(BadChain::Long));
        assert_eq!(walk(&[(0xff_0000, 32, INDIRECT, 0)]), Err(BadChain::NoTable));
        assert_eq!(walk(&[(u64::MAX - 15, 32, INDIRECT, 0)]), Err(BadChain::NoTable));
        assert_eq!(Chain::walk(&memory(), TABLE, 8), Err(BadChain::Outside(8)));
        let outside = Table { at: GuestAddress(u64::MAX), size: 8 };
        assert_eq!(Chain::walk(&memory(), outside, 1), Err(BadChain::NoTable));
    }
}
