//! Progress of long work, on a [`Bar`].

use hs_build::source::SourceProgress;
use hs_image::Progress;
use hs_output::show::Bar;

/// Shows how far work with an image has come.
pub fn of_image(bar: &Bar, progress: Progress) {
    bar.update(progress.stage, progress.done_bytes, progress.total_bytes);
}

/// Shows how far the opening of a source has come.
pub fn of_source(bar: &Bar, progress: SourceProgress) {
    if let SourceProgress::Scanning { entries, .. } = progress {
        bar.spin(format!("scanning the directory: {entries} entries"));
    }
}
