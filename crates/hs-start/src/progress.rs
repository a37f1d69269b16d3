//! Progress of long work, on a [`Bar`].

use hs_build::source::SourceProgress;
use hs_image::Progress;
use hs_output::show::Bar;
use hs_units::ByteSize;

/// Shows how far work with an image has come.
pub fn of_image(bar: &Bar, progress: Progress) {
    bar.update(progress.stage, progress.done_bytes, progress.total_bytes);
}

/// Shows how far the opening of a source has come.
pub fn of_source(bar: &Bar, progress: SourceProgress) {
    match progress {
        SourceProgress::Scanning { entries, .. } => bar.spin(format!("scanning: {entries} entries")),
        SourceProgress::Unpacking { entries, bytes } => {
            bar.spin(format!("unpacking: {entries} entries, {} kept", ByteSize(bytes)));
        }
        _ => {}
    }
}
