//! Records which pages of a snapshot, and which blocks of its disk, a resume reads.
//!
//! The kernel reads nothing ahead of a fault, so the recording has what was touched, and nothing beside it.

use std::sync::Arc;

use hs_serve::Recorder;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_start::record::digests;
use hs_trace::{Profile, ReadAhead};
use hs_units::Nanos;

use crate::resume::{Outcome, ResumeSpec, resume};

/// A recorded resume.
pub struct Recorded {
    /// Of the snapshot.
    pub snapshot: Profile,
    /// Of its disk.
    pub disk: Profile,
    /// How it went.
    pub outcome: Outcome,
}

/// Resumes a guest, and records what that reads.
///
/// # Errors
/// When the guest is not ready.
pub fn record(mut spec: ResumeSpec) -> anyhow::Result<Recorded> {
    let [of_snapshot, of_disk] = [Arc::new(Recorder::default()), Arc::new(Recorder::default())];
    spec.watch = Some(of_snapshot.clone());
    spec.disk_watch = Some(of_disk.clone());
    spec.prefetches = false;
    let outcome = resume(&spec)?;
    let with_disk = spec.snapshot.clone().with_base(&outcome.disk);
    let snapshot = profile(&spec, &with_disk, &of_snapshot, &outcome)?;
    let disk = profile(&spec, &outcome.disk, &of_disk, &outcome)?;
    Ok(Recorded { snapshot, disk, outcome })
}

fn profile(
    spec: &ResumeSpec,
    source: &ImageSource,
    recorder: &Recorder,
    outcome: &Outcome,
) -> anyhow::Result<Profile> {
    let (reads, dropped) = recorder.take();
    if dropped > 0 {
        log::warn!("{dropped} reads beyond the limit of a profile were not recorded");
    }
    let image = open_image(source)?;
    let mut profile = Profile {
        disk_digest: image.disk_digest(),
        disk_bytes: image.disk_bytes(),
        command: "resume".to_owned(),
        medium: spec.medium.to_string(),
        read_ahead: ReadAhead::Off,
        ready: Some(outcome.ready.into()),
        ended: Nanos::from_secs_f64(outcome.summary.wall_s),
        reads,
        digests: Vec::new(),
        files: Vec::new(),
    };
    profile.digests = digests(&image, &profile)?;
    Ok(profile)
}
