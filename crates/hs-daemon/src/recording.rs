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
use hs_start::recording_line::RecordingLine;

/// A recording to be made.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What becomes of it.
    pub to: RecordTo,
    /// The kernel reads ahead, as usual, and that is recorded too. Without, these are exactly the pages that
    /// were touched.
    pub reads_ahead: bool,
}

/// What becomes of a recording.
#[derive(Clone, Debug)]
pub enum RecordTo {
    /// It is written to a file.
    File {
        /// The profile to write.
        file: PathBuf,
        /// When, after the mount.
        after: Duration,
    },
    /// The program at the other end of this serial line says when it ends, and gets the profile.
    Line(PathBuf),
}

impl Recording {
    /// Begins, unless a server before this one had: it has taken its recording along.
    pub(crate) fn begin(&self, restarts: u32) -> anyhow::Result<Option<RunningRecording>> {
        let end = match &self.to {
            RecordTo::File { .. } if restarts > 0 => return Ok(None),
            RecordTo::File { file, after } => End::File { file: file.clone(), after: *after },
            RecordTo::Line(path) => {
                let line = RecordingLine::open(path);
                let mut line = line.with_context(|| format!("record on {}", path.display()))?;
                if restarts > 0 {
                    line.give_up("the server that recorded it died")
                        .context("say that nothing is recorded")?;
                    return Ok(None);
                }
                End::Line(line)
            }
        };
        Ok(Some(RunningRecording { recorder: Arc::default(), end, began: Instant::now() }))
    }
}

/// When a recording ends, and where it goes.
enum End {
    File { file: PathBuf, after: Duration },
    Line(RecordingLine),
}

/// A recording that runs.
pub(crate) struct RunningRecording {
    recorder: Arc<Recorder>,
    end: End,
    began: Instant,
}

impl RunningRecording {
    /// What sees the reads.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        self.recorder.clone()
    }

    /// Gives the profile away when its time has come, beside everything else; the file system is at `target`.
    pub(crate) fn finish_later(self, image: ImageSource, target: PathBuf) -> anyhow::Result<()> {
        let finish = move || match self.finish(&image, &target) {
            Ok((reads, place)) => log::warn!("{reads} reads recorded in {place}"),
            Err(error) => log::error!("nothing is recorded: {error:#}"),
        };
        let thread = std::thread::Builder::new().name("hs-record".to_owned());
        thread.spawn(finish).map(drop).context("start the recording")
    }

    /// How many reads there were, and where they are now.
    fn finish(self, image: &ImageSource, target: &Path) -> anyhow::Result<(usize, String)> {
        let Self { recorder, end, began } = self;
        let profile = || -> anyhow::Result<(usize, Vec<u8>)> {
            let profile = record::of_mount(&recorder, image, target, began)?;
            Ok((profile.reads.len(), profile.encode()?))
        };
        match end {
            End::File { file, after } => {
                std::thread::sleep(after);
                let (reads, bytes) = profile()?;
                write_whole(&file, &bytes)?;
                Ok((reads, file.display().to_string()))
            }
            End::Line(mut line) => {
                line.wait_for_end().context("listen to the serial line")?;
                match profile() {
                    Ok((reads, bytes)) => {
                        line.give(&bytes).context("write to the serial line")?;
                        Ok((reads, "the file that `headstart boot --record` writes".to_owned()))
                    }
                    Err(error) => {
                        let _ = line.give_up(&format!("{error:#}"));
                        Err(error)
                    }
                }
            }
        }
    }
}
