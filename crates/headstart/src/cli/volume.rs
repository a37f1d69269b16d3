//! Which file system of a disk is mounted: flags of `run`, `profile` and `mount --fs`.

use clap::Args;

/// By default the disk has one file system and no partitions, and its journal is replayed if it must be.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct VolumeFlags {
    /// Mount this partition of the disk: its number, its label or UUID or that of its file system, or its
    /// type (esp, root, 0x83).
    ///
    /// LABEL=, UUID=, PARTLABEL=, PARTUUID= and TYPE= before the word say which of them is meant. Without
    /// this flag a disk with partitions is refused with a list of them. Caches of a partition are not warmed:
    /// an image of the partition alone (`build --partition`) starts faster.
    #[arg(long, value_name = "PARTITION")]
    pub partition: Option<String>,
    /// Mount a file system that was not unmounted before it was copied without the changes that only its
    /// journal holds. Otherwise the journal is replayed in memory.
    #[arg(long, hide_short_help = true)]
    pub ignore_journal: bool,
}
