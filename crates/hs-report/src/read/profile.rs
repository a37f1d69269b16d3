//! Profiles.

use std::path::Path;

use hs_units::{ByteRange, Nanos};

use crate::model::{InputKind, Process, RequestKind};
use crate::recording::{Recording, Request};

pub(super) fn read(path: &Path, name: &str) -> anyhow::Result<Recording> {
    let profile = hs_start::open::read_profile(path)?;
    let request = |read: &hs_trace::Read| Request {
        at: read.at,
        queued: Nanos::ZERO,
        service: read.cost,
        bytes: ByteRange::new(read.blocks.start.byte_offset(), read.blocks.bytes()),
        kind: RequestKind::Demand,
        process: 0,
        is_part: false,
        stage_file: 0,
    };
    Ok(Recording {
        command: Some(profile.command),
        medium: Some(profile.medium),
        disk_digest: Some(profile.disk_digest),
        disk_bytes: profile.disk_bytes,
        ready_s: profile.ready.map(Nanos::as_secs_f64),
        ended_s: Some(profile.ended.as_secs_f64()),
        requests: profile.reads.iter().map(request).collect(),
        processes: vec![Process::default()],
        files: profile.files,
        ..Recording::new(name, InputKind::Profile)
    })
}
