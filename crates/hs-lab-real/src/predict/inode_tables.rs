//! Where the ext4 file system of an image has its inodes: the kernel reads those ahead by a rule of their
//! own.

use hs_build::ext4::{Ext4, ReadDisk};
use hs_image::{Blocks, Image};
use hs_units::{BLOCK_BYTES, BlockRange, Lba};

/// Of a disk of 128 GiB; what a larger one claims is not looked at.
const MOST_GROUPS: u64 = 1024;

/// The inode tables of the file system in `image`; none where they cannot be found, which costs a prediction
/// some exactness only.
pub(super) fn of_image(image: &Image) -> Vec<BlockRange> {
    let mut blocks = Blocks::new(image);
    let disk = ReadDisk::new(image.disk_bytes(), |offset, bytes| blocks.read_at(offset, bytes));
    let mut ext4 = match Ext4::open(disk) {
        // The blocks of the file system are those of the prediction.
        Ok(ext4) if ext4.block_bytes() == BLOCK_BYTES && ext4.groups() <= MOST_GROUPS => ext4,
        _ => return Vec::new(),
    };
    let groups = ext4.groups();
    let table = |group| ext4.inode_table(group).ok().map(|(first, count)| BlockRange::new(Lba(first), count));
    (0..groups).map_while(table).collect()
}
