//! `headstart optimize`

use std::path::PathBuf;

use hs_build::HotPlacement;
use hs_build::{OptimizeOptions, OptimizeReport};
use hs_device::Medium;
use hs_layout::Placement;
use hs_start::progress;
use hs_trace::Profile;
use hs_units::ByteSize;
use serde::Serialize;

use super::sign::sign_output;
use crate::cli::Optimize;
use hs_output::show::{self, Bar};
use hs_start::channel;
use hs_start::fit::{Fitted, check_fit, fit};
use hs_start::open::{open_image, read_profile_heads, read_profiles};

#[derive(Serialize)]
struct Optimized {
    image: String,
    image_bytes: u64,
    hot_bytes: u64,
    kept_bytes: u64,
    hot_compressed_bytes: u64,
    hot_table_bytes: u64,
    hot_offset: u64,
    /// Only for a medium that is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<Placed>,
    chunks: u32,
    extents: u64,
    disk_digest: String,
    image_digest: String,
    /// Only of several profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    profiles: Option<Compared>,
    /// Only of profiles that were recorded on another disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fitted: Vec<Fitted>,
}

/// Where the hot region was put, and what each place costs by the model of the medium.
#[derive(Serialize)]
pub(crate) struct Placed {
    medium: String,
    place: &'static str,
    front_s: f64,
    end_s: f64,
}

impl Placed {
    pub(crate) fn new(medium: Medium, report: &OptimizeReport) -> Option<Self> {
        let costs = report.placement?;
        let place = match costs.best() {
            Placement::Front => "front",
            Placement::End => "end",
        };
        let (front_s, end_s) = (costs.front.as_secs_f64(), costs.end.as_secs_f64());
        Some(Self { medium: medium.to_string(), place, front_s, end_s })
    }

    /// For people.
    pub(crate) fn print(&self) {
        let Self { medium, place, front_s, end_s } = self;
        show::line(format_args!(
            "hot region at the {place}: on {medium} about {front_s:.2} s in front, {end_s:.2} s at the end"
        ));
    }
}

/// The overlap of the profiles.
#[derive(Serialize)]
struct Compared {
    common_blocks: u64,
    all_blocks: u64,
    each: Vec<ComparedProfile>,
}

/// One profile against the others.
#[derive(Serialize)]
struct ComparedProfile {
    profile: String,
    blocks: u64,
    in_others: u64,
}

impl Compared {
    /// Compares several profiles, read from these files; `None` when there is only one.
    fn new(paths: &[PathBuf], profiles: &[Profile]) -> Option<Self> {
        if profiles.len() < 2 {
            return None;
        }
        let found = hs_layout::coverage(profiles);
        let each = paths.iter().zip(&found.profiles).map(|(path, covered)| ComparedProfile {
            profile: path.display().to_string(),
            blocks: covered.blocks,
            in_others: covered.in_others,
        });
        let (common_blocks, all_blocks) = (found.common_blocks, found.all_blocks);
        Some(Self { common_blocks, all_blocks, each: each.collect() })
    }

    /// For people.
    fn print(&self) {
        show::line(format_args!(
            "{} profiles: {} blocks in all of them, {} in any",
            self.each.len(),
            self.common_blocks,
            self.all_blocks
        ));
        for one in &self.each {
            let missed = one.blocks - one.in_others;
            show::line(format_args!(
                "  {}: {} blocks; by the others alone, {missed} of them ({:.1}%) would be missed",
                one.profile,
                one.blocks,
                missed as f64 * 100.0 / one.blocks.max(1) as f64
            ));
        }
    }
}

/// Adds a hot region.
pub(crate) fn run(args: &Optimize, quiet: bool) -> anyhow::Result<()> {
    let heads = read_profile_heads(&args.profiles)?;
    let location = channel::resolve(&args.image)?;
    let image = open_image(&location)?;
    check_fit(&args.profiles, &heads, image.disk_bytes(), args.use_of.min_match)?;
    let mut profiles = read_profiles(&args.profiles)?;
    let fitted = fit(&image, &args.profiles, &mut profiles, args.use_of.min_match, quiet)?;
    let mut options =
        OptimizeOptions { codec: args.codec.codec, level: args.codec.level, ..OptimizeOptions::default() };
    options.layout.first_chunk_bytes = args.first_chunk.0;
    options.layout.max_chunk_bytes = args.max_chunk.0;
    options.layout.combine = args.use_of.combine();
    options.place = HotPlacement::FastestOn(args.use_of.medium);
    options.replaces = args.replace;
    let bar = Bar::new(quiet);
    let report =
        hs_build::optimize(&image, location.file(), &profiles, &args.output, &options, &|progress| {
            progress::of_image(&bar, progress);
        })?;
    drop(bar);
    sign_output(report.image_digest, &args.output, args.signed.sign.as_deref())?;
    let optimized = Optimized {
        image: args.output.display().to_string(),
        image_bytes: report.image_bytes,
        hot_bytes: report.hot_bytes,
        kept_bytes: report.kept_bytes,
        hot_compressed_bytes: report.hot_compressed_bytes,
        hot_table_bytes: report.hot_table_bytes,
        hot_offset: report.hot_offset,
        placement: Placed::new(args.use_of.medium, &report),
        chunks: report.chunks,
        extents: report.extents,
        disk_digest: report.disk_digest.to_string(),
        image_digest: report.image_digest.to_string(),
        profiles: Compared::new(&args.profiles, &profiles),
        fitted,
    };
    if args.json {
        return show::json(&optimized);
    }
    show::line(format_args!(
        "{}: hot region of {} in {} ({} chunks, {} extents); image {}",
        optimized.image,
        ByteSize(report.hot_bytes),
        ByteSize(report.hot_compressed_bytes),
        report.chunks,
        report.extents,
        ByteSize(report.image_bytes)
    ));
    if report.kept_bytes > 0 {
        show::line(format_args!(
            "{} of it were hot before; --replace drops them",
            ByteSize(report.kept_bytes)
        ));
    }
    optimized.placement.iter().for_each(Placed::print);
    optimized.fitted.iter().for_each(Fitted::print);
    if let Some(compared) = &optimized.profiles {
        compared.print();
    }
    show::line(optimized.image_digest);
    Ok(())
}
