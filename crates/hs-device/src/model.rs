//! A model with a name: one that comes with the program, or one of a person's own.

use core::fmt;

use crate::emmc::EmmcSpec;
use crate::link::LinkSpec;
use crate::ssd::{Ssd, SsdSpec};
use crate::turning::DiskSpec;
use crate::{Flat, FlatSpec, WritableDevice};
use hs_units::Nanos;

/// Most bytes of a model's name.
const MAX_NAME_BYTES: usize = 40;

/// A short text that can be copied: the name of a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelName {
    bytes: [u8; MAX_NAME_BYTES],
    len: u8,
}

impl ModelName {
    /// The name `text`: lower-case letters, digits, `-`, `_` and `.`, 40 at most; `None` when it is not one.
    #[must_use]
    pub const fn new(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return None;
        }
        let mut bytes = [0; MAX_NAME_BYTES];
        let mut at = 0;
        while at < text.len() {
            if !matches!(text[at], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.') {
                return None;
            }
            bytes[at] = text[at];
            at += 1;
        }
        Some(Self { bytes, len: text.len() as u8 })
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("only ASCII was let in")
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// What a model is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ModelKind {
    /// A latency and a rate.
    Flat(FlatSpec),
    /// Flash with a controller.
    Ssd(SsdSpec),
    /// A network link.
    Link(LinkSpec),
    /// A hard disk.
    Disk(DiskSpec),
    /// Flash whose service time depends on the address step.
    Emmc(EmmcSpec),
}

/// A model with a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Model {
    /// What it is called.
    pub name: ModelName,
    /// Most bytes of a file on it; `None` where there is no limit.
    pub capacity_bytes: Option<u64>,
    /// What it does.
    pub kind: ModelKind,
}

impl Model {
    /// A fresh, idle one.
    pub(crate) fn device(&self) -> Box<dyn WritableDevice> {
        match &self.kind {
            ModelKind::Flat(spec) => Box::new(Flat::new(*spec)),
            ModelKind::Ssd(spec) => Box::new(Ssd::new(*spec)),
            ModelKind::Link(spec) => Box::new(spec.device()),
            ModelKind::Disk(spec) => spec.device(),
            ModelKind::Emmc(spec) => Box::new(spec.device()),
        }
    }

    /// Bytes a second of a long sequential read at byte `offset`.
    pub(crate) fn rate(&self, offset: u64) -> u64 {
        match &self.kind {
            ModelKind::Flat(spec) => spec.rate_bytes_per_second.get(),
            ModelKind::Ssd(spec) => spec.rate_bytes_per_second(),
            ModelKind::Link(spec) => spec.rate_bytes_per_second().get(),
            ModelKind::Disk(spec) => spec.rate(offset),
            ModelKind::Emmc(spec) => spec.bytes_per_s,
        }
    }

    /// Time to the first byte of a typical request.
    pub(crate) fn latency(&self) -> Nanos {
        match &self.kind {
            ModelKind::Flat(spec) => spec.latency,
            ModelKind::Ssd(spec) => spec.random_latency(),
            ModelKind::Link(spec) => spec.round_trip,
            ModelKind::Disk(spec) => spec.latency(),
            ModelKind::Emmc(spec) => spec.latency(),
        }
    }

    /// Whether requests in flight together cost less than one after the other.
    pub(crate) const fn overlaps(&self) -> bool {
        match &self.kind {
            ModelKind::Flat(spec) => !spec.serial,
            ModelKind::Ssd(spec) => spec.queued,
            ModelKind::Link(_) => true,
            ModelKind::Disk(_) | ModelKind::Emmc(_) => false,
        }
    }
}
