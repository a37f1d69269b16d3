//! From bytes, wherever they come from, to a profile.

use std::io::Read as _;

use hs_units::{Digest, Nanos};

use crate::columns::{self, FileCounts};
use crate::error::{Section, TraceError};
use crate::header::{FLAG_READ_AHEAD, FLAG_READY, HEADER_BYTES, Header, SectionLengths};
use crate::limits;
use crate::profile::{Profile, ReadAhead};

impl Profile {
    /// The profile that `bytes`, the whole of a `.hsp` file, hold.
    ///
    /// # Errors
    /// What is wrong with the bytes; any altered byte is found. Nothing is returned in part.
    pub fn decode(bytes: &[u8]) -> Result<Self, TraceError> {
        let (header, body) = Header::parse(bytes)?;
        let [text, reads, digests, files] = split_body(&header, body)?;
        let (command, medium) = columns::take_text(&text.inflate()?)?;
        let flags = header.flags.get();
        let profile = Self {
            disk_digest: Digest(header.disk_digest),
            disk_bytes: header.disk_bytes.get(),
            command,
            medium,
            read_ahead: match flags & FLAG_READ_AHEAD {
                0 => ReadAhead::Off,
                _ => ReadAhead::Kernel { kib: header.read_ahead_kib.get() },
            },
            ready: (flags & FLAG_READY != 0).then(|| Nanos(header.ready_ns.get())),
            ended: Nanos(header.ended_ns.get()),
            reads: columns::take_reads(&reads.inflate()?, header.read_count.get() as usize)?,
            digests: columns::take_digests(&digests.inflate()?, header.digest_count.get() as usize)?,
            files: columns::take_files(
                &files.inflate()?,
                FileCounts { files: header.file_count.get() as usize, runs: header.run_count.get() as usize },
            )?,
        };
        profile.validate()?;
        Ok(profile)
    }
}

/// The first bytes of a frame (RFC 8878, section 3.1.1). They are checked first, since the library would also
/// accept skippable frames, empty input, and the formats of its early releases.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// One section as it is stored.
struct Stored<'a> {
    section: Section,
    bytes: &'a [u8],
    raw_bytes: u64,
}

/// Cuts the body, whose digest is checked first, into its sections.
fn split_body<'a>(header: &Header, body: &'a [u8]) -> Result<[Stored<'a>; 4], TraceError> {
    let stored = |lengths: &SectionLengths| lengths.stored_bytes.get();
    let sum = header.sections.iter().fold(HEADER_BYTES as u64, |sum, s| sum.saturating_add(stored(s)));
    let present = (HEADER_BYTES + body.len()) as u64;
    if present < sum {
        return Err(TraceError::Truncated { expected: sum, found: present });
    }
    if present > sum {
        return Err(TraceError::TrailingBytes { expected: sum, found: present });
    }
    let (expected, found) = (Digest(header.body_digest), Digest(blake3::hash(body).into()));
    if expected != found {
        return Err(TraceError::BodyDigest { expected, found });
    }
    let mut rest = body;
    Ok(core::array::from_fn(|index| {
        let lengths = &header.sections[index];
        // The lengths sum up to the body's, so each is a length of bytes that are there.
        let (bytes, after) = rest.split_at(stored(lengths) as usize);
        rest = after;
        Stored { section: Section::ALL[index], bytes, raw_bytes: lengths.raw_bytes.get() }
    }))
}

impl Stored<'_> {
    /// The section's bytes: exactly one frame, exactly as long as the header says. The buffer grows with the
    /// output, so a header that claims a large size costs nothing.
    fn inflate(&self) -> Result<Vec<u8>, TraceError> {
        let frame = |_| TraceError::Frame { section: self.section };
        if !self.bytes.starts_with(&ZSTD_MAGIC) {
            return Err(TraceError::Frame { section: self.section });
        }
        let mut decoder = zstd::Decoder::with_buffer(self.bytes).map_err(frame)?.single_frame();
        decoder.window_log_max(limits::MAX_WINDOW_LOG).map_err(frame)?;
        let mut raw = Vec::new();
        decoder.by_ref().take(self.raw_bytes.saturating_add(1)).read_to_end(&mut raw).map_err(frame)?;
        if raw.len() as u64 != self.raw_bytes {
            return Err(TraceError::SectionLength { section: self.section, expected: self.raw_bytes });
        }
        if decoder.finish().is_empty() { Ok(raw) } else { Err(TraceError::Frame { section: self.section }) }
    }
}
