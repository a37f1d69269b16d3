//! An overlay on a device, and what is known of its disk.

use hs_overlay::{
    Identity, Job, Limits, Needed, Opening, Overlay, OverlayError, Piece, Refusal, Source, Step,
};
use hs_units::{Digest, Prng};

use crate::device::Device;

pub(crate) const BLOCK: usize = 4096;
pub(crate) const BLOCKS: u64 = 600;
pub(crate) const DISK: Digest = Digest([7; 32]);

/// A version of a block: 0 is the disk's own content, [`ZERO`] zeros.
pub(crate) type Version = u64;
pub(crate) const ZERO: Version = u64::MAX;

pub(crate) fn identity() -> Identity {
    Identity { id: [9; 16], disk_digest: DISK, disk_bytes: BLOCKS * BLOCK as u64 }
}

/// The content of a block that was written as this version.
pub(crate) fn content(block: u64, version: Version) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    if version != ZERO {
        Prng::new(block << 40 ^ version).fill(&mut bytes);
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        bytes[8..16].copy_from_slice(&block.to_le_bytes());
    }
    bytes
}

pub(crate) struct World {
    pub(crate) device: Device,
    pub(crate) overlay: Overlay,
    /// The steps of the job that is under way.
    steps: std::collections::VecDeque<Step>,
    has_job: bool,
    /// Segments that were moved.
    pub(crate) moved: u64,
}

impl World {
    pub(crate) fn create(limits: Limits) -> Self {
        let (overlay, job) = Overlay::create(identity(), limits);
        let mut world =
            Self { device: Device::default(), overlay, steps: job.steps.into(), has_job: false, moved: 0 };
        while world.step() {}
        world
    }

    pub(crate) fn open(device: Device, limits: Limits) -> Result<Self, OverlayError> {
        let overlay = open(&device, limits)?;
        Ok(Self { device, overlay, steps: Default::default(), has_job: false, moved: 0 })
    }

    /// Writes versions of blocks, from `start` on; takes space and ends jobs where that is needed.
    pub(crate) fn write(&mut self, start: u64, versions: &[Version]) {
        let bytes: Vec<u8> =
            versions.iter().zip(start..).flat_map(|(version, block)| content(block, *version)).collect();
        loop {
            match self.overlay.handle_write(start, &bytes) {
                Ok(()) => return,
                Err(refusal) => self.make_room(refusal, versions.len() as u64),
            }
        }
    }

    pub(crate) fn zero(&mut self, start: u64, blocks: u64, discard: bool) {
        while let Err(refusal) = self.overlay.handle_zero(start, blocks, discard) {
            self.make_room(refusal, 0);
        }
    }

    fn make_room(&mut self, refusal: Refusal, data: u64) {
        if refusal == Refusal::NeedsSpace
            && let Some(job) = self.overlay.space_needed(data)
        {
            self.begin(job);
            while self.has_job {
                self.step();
            }
            return;
        }
        assert!(matches!(refusal, Refusal::Full | Refusal::NeedsSpace), "{refusal}");
        assert!(self.step(), "{refusal} and nothing to do");
    }

    fn begin(&mut self, job: Job) {
        assert!(self.steps.is_empty());
        self.steps = job.steps.into();
        self.has_job = true;
    }

    /// The next step of what is to be done; false where there is none.
    pub(crate) fn step(&mut self) -> bool {
        if self.steps.is_empty() && !self.has_job {
            let Some(job) = self.overlay.poll() else { return false };
            self.begin(job);
        }
        match self.steps.pop_front() {
            Some(Step::Write { offset, bytes }) => self.device.write(offset, &bytes),
            Some(Step::Sync) => self.device.sync(),
            Some(Step::Allocate { offset, len }) => self.device.allocate(offset + len),
            Some(Step::Punch { offset, len }) => self.device.punch(offset, len),
            Some(Step::Quiesce) | None => {}
        }
        if self.steps.is_empty() && std::mem::take(&mut self.has_job) {
            self.overlay.handle_done();
        }
        true
    }

    /// The step that comes next.
    pub(crate) fn next_step(&mut self) -> Option<&Step> {
        if self.steps.is_empty()
            && !self.has_job
            && let Some(job) = self.overlay.poll()
        {
            self.begin(job);
        }
        self.steps.front()
    }

    /// The job fails at its next step.
    pub(crate) fn fail(&mut self, failed: hs_overlay::Failed) -> bool {
        self.steps.clear();
        self.has_job = false;
        self.overlay.handle_failed(failed)
    }

    /// What a disk does that has nothing else to do: begins to move what is needed of sparse segments.
    pub(crate) fn shrink(&mut self) {
        while !self.has_job
            && self.steps.is_empty()
            && let Some(segments) = self.overlay.sparse(true)
        {
            for range in &segments {
                let bytes = self.device.read(range.offset, range.len);
                while let Err(refusal) = self.overlay.handle_segment(*range, &bytes) {
                    self.make_room(refusal, 256);
                }
                self.moved += 1;
            }
            if !segments.is_empty() {
                return;
            }
            while self.step() {}
        }
    }

    pub(crate) fn flush(&mut self) {
        let batch = self.overlay.handle_flush();
        while !self.overlay.is_durable(batch) {
            assert!(self.step(), "a flush waits and nothing is to be done");
        }
    }

    pub(crate) fn close(&mut self) {
        self.flush();
        self.overlay.handle_close();
        while self.step() {}
        assert!(self.overlay.is_idle());
    }

    /// The version of a block, from its content.
    pub(crate) fn version(&self, block: u64) -> Version {
        let mut found = None;
        self.overlay.lookup(block, block + 1, &mut |piece: Piece| {
            let bytes = match piece.source {
                Source::Gathered(number) => self.overlay.gathered(number, 1).to_vec(),
                Source::OnItsWay(number) => self.overlay.on_its_way(number, 1).to_vec(),
                Source::File(offset) => self.device.read(offset, BLOCK as u64),
                Source::Zero | Source::Discarded => vec![0; BLOCK],
                Source::Below => content(block, 0),
            };
            assert!(found.replace(bytes).is_none());
        });
        let bytes = found.expect("each block has content");
        if bytes.iter().all(|byte| *byte == 0) {
            return ZERO;
        }
        let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes, content(block, version), "block {block} is something that was never written to it");
        version
    }

    pub(crate) fn versions(&self) -> Vec<Version> {
        (0..BLOCKS).map(|block| self.version(block)).collect()
    }
}

pub(crate) fn open(device: &Device, limits: Limits) -> Result<Overlay, OverlayError> {
    let mut opening = Opening::new(Some((DISK, BLOCKS * BLOCK as u64)), device.len(), limits);
    while let Needed::Bytes(range) = opening.poll() {
        opening.handle_bytes(&device.read(range.offset, range.len))?;
    }
    opening.finish()
}
