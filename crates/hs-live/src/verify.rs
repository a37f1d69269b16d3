//! The self-test of a medium: every byte of its image is read and compared.

use std::sync::atomic::{AtomicU64, Ordering};

use hs_image::Progress;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use hs_units::ByteSize;

/// How often a line says how far it has come, in percent.
const STEP_PERCENT: u64 = 10;

/// Checks every byte of an image, with a line for each tenth.
///
/// # Errors
/// The first thing that is wrong, saying where.
pub fn run(image: &ImageSource) -> anyhow::Result<()> {
    let opened = open_image(image)?;
    let next = AtomicU64::new(STEP_PERCENT);
    let show = |progress: Progress| {
        let percent = progress.done_bytes * 100 / progress.total_bytes.max(1);
        let due = next.load(Ordering::Relaxed);
        if percent >= due
            && next.fetch_max(percent - percent % STEP_PERCENT + STEP_PERCENT, Ordering::Relaxed) == due
        {
            hs_output::note!("headstart: {}: {percent} %", progress.stage);
        }
    };
    let report = hs_image::verify(&opened, None, &show)?;
    hs_output::note!(
        "headstart: {} of disk in {} chunks agree with every digest",
        ByteSize(report.disk_bytes),
        report.cold_chunks + u64::from(report.hot_chunks)
    );
    Ok(())
}
