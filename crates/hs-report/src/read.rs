//! Reads inputs, whose kinds their contents say.

mod block_log;
mod image;
mod json;
mod profile;
mod rows;
mod table;

use std::fs::File;
use std::io::{BufRead, BufReader, Seek as _};
use std::path::Path;

use anyhow::{Context, bail};
use hs_image::FileKind;

use crate::model::{Experiment, InputKind, Story};
use crate::recording::{OwnProfile, Recording};

pub(crate) use self::image::ImageInput;
pub(crate) use self::json::summary;

/// What the inputs hold.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) images: Vec<ImageInput>,
    pub(crate) recordings: Vec<Recording>,
    pub(crate) stories: Vec<Story>,
    pub(crate) experiments: Vec<Experiment>,
}

impl Inputs {
    /// Reads one more input.
    pub(crate) fn add(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let mut file = File::open(path).with_context(|| format!("open {shown}"))?;
        let kind = hs_start::open::file_kind(&file).with_context(|| format!("read {shown}"))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        match kind {
            FileKind::Image | FileKind::Pack => self.images.push(ImageInput::read(path, name)?),
            FileKind::Profile => self.recordings.push(profile::read(path, &name)?),
            FileKind::Text => {
                file.rewind().with_context(|| format!("read {shown}"))?;
                self.add_text(BufReader::new(file), &name).with_context(|| format!("read {shown}"))?;
            }
            _ => bail!(
                "{shown}: this is {kind}; a report is made from images, profiles, run summaries and results \
                 of the laboratory as JSON, traces as CSV, fio iologs and blkparse text"
            ),
        }
        Ok(())
    }

    /// Brings together what belongs together: a trace and the summary of the same start, and a profile that a
    /// guest recorded of itself and the trace of its whole start.
    pub(crate) fn align(&mut self) {
        self.join_summaries();
        self.align_profiles();
    }

    /// A trace takes the figures of the summary of the same start.
    fn join_summaries(&mut self) {
        let mut at = 0;
        while at < self.recordings.len() {
            let it = &self.recordings[at];
            let Some(trace) = self.recordings.iter().position(|trace| it.is_summary_of(trace)) else {
                at += 1;
                continue;
            };
            let summary = self.recordings.remove(at);
            self.recordings[trace - usize::from(trace > at)].take_figures(summary);
        }
    }

    /// Puts the profile that a guest recorded of itself on the time axis of its whole start.
    fn align_profiles(&mut self) {
        let known = |recording: &Recording| Some((recording.own_profile?, recording.name.clone()));
        let own: Vec<_> = self.recordings.iter().filter_map(known).collect();
        for profile in self.recordings.iter_mut().filter(|one| one.kind == InputKind::Profile) {
            let is_own = |(own, _): &&(OwnProfile, String)| {
                profile.disk_digest == Some(own.disk_digest)
                    && profile.ended_s.is_some_and(|ended| (ended - own.ended_s).abs() < 1e-6)
            };
            if let Some((own, name)) = own.iter().find(is_own) {
                profile.begin_at(own.from_s, name);
            }
        }
    }

    /// Reads an input that is text.
    pub(crate) fn add_text(&mut self, mut file: impl BufRead, name: &str) -> anyhow::Result<()> {
        let start = file.fill_buf()?;
        let first = start.trim_ascii_start().first().copied();
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_table = first == Some(b'#') || line.split(|byte| *byte == b',').any(|word| word == b"at_s");
        match first {
            Some(b'{' | b'[') => json::read(file, name, self)?,
            _ if is_table => self.recordings.extend(table::read(file, name)?),
            _ => self.recordings.push(block_log::read(file, name)?),
        }
        Ok(())
    }
}
