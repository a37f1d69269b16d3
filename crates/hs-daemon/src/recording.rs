//! The recording of what a mounted file system is asked for, from its beginning.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hs_disk::Watch;
use hs_output::whole_file::write_whole;
use hs_serve::Recorder;
use hs_start::image::ImageSource;
use hs_start::record;

/// What becomes of it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The profile to write.
    pub file: PathBuf,
    /// When, after the mount.
    pub after: Duration,
}

/// A recording that runs.
pub(crate) struct RunningRecording {
    recorder: Arc<Recorder>,
    spec: Recording,
    began: Instant,
}

impl RunningRecording {
    pub(crate) fn begin(spec: &Recording) -> Self {
        Self { recorder: Arc::default(), spec: spec.clone(), began: Instant::now() }
    }

    /// What sees the reads.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        self.recorder.clone()
    }

    /// Writes the profile when its time has come, beside everything else; the file system is at `target`.
    pub(crate) fn finish_later(self, image: ImageSource, target: PathBuf) -> anyhow::Result<()> {
        let write = move || {
            std::thread::sleep(self.spec.after);
            match self.write(&image, &target) {
                Ok(reads) => log::warn!("{reads} reads recorded in {}", self.spec.file.display()),
                Err(error) => log::error!("nothing is recorded: {error:#}"),
            }
        };
        let thread = std::thread::Builder::new().name("hs-record".to_owned());
        thread.spawn(write).map(drop).context("start the recording")
    }

    fn write(&self, image: &ImageSource, target: &Path) -> anyhow::Result<usize> {
        let profile = record::of_mount(&self.recorder, image, target, self.began)?;
        write_whole(&self.spec.file, &profile.encode()?)?;
        Ok(profile.reads.len())
    }
}
