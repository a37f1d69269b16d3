//! From a profile to its bytes.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use crate::error::{Limit, Section, TraceError};
use crate::header::{FLAG_READ_AHEAD, FLAG_READY, Header, MAGIC, SectionLengths, VERSION};
use crate::profile::{Profile, ReadAhead, at_most};
use crate::{columns, limits};

/// Sections are small and written once; beyond this level only time grows. Its window (4 MiB) lies
/// below [`limits::MAX_WINDOW_LOG`].
const ZSTD_LEVEL: i32 = 9;

impl Profile {
    /// The profile as the bytes of a `.hsp` file.
    ///
    /// # Errors
    /// Whatever [`Profile::validate`] finds, or [`TraceError::OverLimit`] for a body too large.
    pub fn encode(&self) -> Result<Vec<u8>, TraceError> {
        self.validate()?;
        let raw = [
            columns::put_text(self),
            columns::put_reads(&self.reads),
            columns::put_digests(&self.digests),
            columns::put_files(&self.files),
        ];
        let raw_bytes = raw.iter().map(|section| section.len() as u64).sum();
        at_most(Limit::RawBodyBytes, raw_bytes, limits::MAX_RAW_BODY_BYTES)?;
        let mut header = self.header();
        let mut body = Vec::new();
        for ((section, raw), lengths) in Section::ALL.into_iter().zip(&raw).zip(&mut header.sections) {
            let stored =
                zstd::bulk::compress(raw, ZSTD_LEVEL).map_err(|_| TraceError::Compress { section })?;
            *lengths = SectionLengths {
                stored_bytes: U64::new(stored.len() as u64),
                raw_bytes: U64::new(raw.len() as u64),
            };
            body.extend_from_slice(&stored);
        }
        header.body_digest = blake3::hash(&body).into();
        header.seal();
        let mut bytes = header.as_bytes().to_vec();
        bytes.append(&mut body);
        Ok(bytes)
    }

    /// The header but for lengths and digests. [`Profile::validate`] has bounded every count.
    fn header(&self) -> Header {
        let (read_ahead_flag, read_ahead_kib) = match self.read_ahead {
            ReadAhead::Off => (0, 0),
            ReadAhead::Kernel { kib } => (FLAG_READ_AHEAD, kib),
        };
        let ready_flag = if self.ready.is_some() { FLAG_READY } else { 0 };
        let runs: usize = self.files.iter().map(|file| file.runs.len()).sum();
        let none = SectionLengths { stored_bytes: U64::ZERO, raw_bytes: U64::ZERO };
        Header {
            magic: MAGIC,
            version: U32::new(VERSION),
            flags: U32::new(ready_flag | read_ahead_flag),
            disk_digest: self.disk_digest.0,
            disk_bytes: U64::new(self.disk_bytes),
            ready_ns: U64::new(self.ready.unwrap_or_default().0),
            ended_ns: U64::new(self.ended.0),
            read_ahead_kib: U32::new(read_ahead_kib),
            read_count: U32::new(self.reads.len() as u32),
            digest_count: U32::new(self.digests.len() as u32),
            file_count: U32::new(self.files.len() as u32),
            run_count: U32::new(runs as u32),
            zero: U32::ZERO,
            sections: [none; Section::ALL.len()],
            body_digest: [0; 32],
            zero_tail: [0; 32],
            header_digest: [0; 32],
        }
    }
}
