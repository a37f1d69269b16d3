//! What the first bytes of a profile say.

use hs_units::Digest;

use crate::error::TraceError;
use crate::header::{HEADER_BYTES, Header};
use crate::profile::Profile;

/// What a profile is of, without the reads: to refuse one before it costs anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileHead {
    /// Digest of the disk that was read.
    pub disk_digest: Digest,
    /// Size of that disk.
    pub disk_bytes: u64,
    /// Distinct blocks, as the header counts them.
    pub blocks: u64,
}

impl ProfileHead {
    /// Bytes at the start of a profile that say it.
    pub const BYTES: usize = HEADER_BYTES;

    /// Reads the first [`Self::BYTES`] of a profile.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, TraceError> {
        let (header, _) = Header::parse(bytes)?;
        Ok(Self {
            disk_digest: Digest(header.disk_digest),
            disk_bytes: header.disk_bytes.get(),
            blocks: header.digest_count.get().into(),
        })
    }

    /// As [`Profile::check_disk`].
    ///
    /// # Errors
    /// As there.
    pub fn check_disk(&self, digest: Digest, bytes: u64) -> Result<(), TraceError> {
        if self.disk_digest != digest {
            return Err(TraceError::WrongDisk { expected: self.disk_digest, found: digest });
        }
        if self.disk_bytes != bytes {
            return Err(TraceError::WrongDiskSize { expected: self.disk_bytes, found: bytes });
        }
        Ok(())
    }
}

impl From<&Profile> for ProfileHead {
    fn from(profile: &Profile) -> Self {
        let (disk_digest, disk_bytes) = (profile.disk_digest, profile.disk_bytes);
        Self { disk_digest, disk_bytes, blocks: profile.digests.len() as u64 }
    }
}
