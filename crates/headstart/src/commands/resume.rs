//! `headstart resume`

use hs_guest::qemu;
use hs_output::whole_file::write_whole;
use hs_resume::record;
use hs_resume::resume::{ResumeSpec, resume};
use hs_start::channel;
use hs_start::image::ImageSource;

use super::boot::{Shown, print};
use crate::cli::Resume;

/// Lets a guest go on; done when it was ready and has been ended.
pub(crate) fn run(args: &Resume, quiet: bool) -> anyhow::Result<()> {
    hs_linux::rootenv::enter_private_mounts()?;
    let spec = spec(args)?;
    let outcome = match &args.record {
        None => resume(&spec)?,
        Some(output) => {
            let recorded = record::record(spec)?;
            write_whole(output, &recorded.snapshot.encode()?)?;
            if let Some(output) = &args.record_disk {
                write_whole(output, &recorded.disk.encode()?)?;
            }
            recorded.outcome
        }
    };
    let profile = args.record.as_ref().map(|output| output.display().to_string());
    print(&Shown { profile, snapshot: None, summary: outcome.summary }, args.json, quiet)?;
    if let Some(lost) = outcome.lost {
        log::error!("{lost}");
    }
    Ok(())
}

/// The resume that the flags describe.
pub(crate) fn spec(args: &Resume) -> anyhow::Result<ResumeSpec> {
    let remote = &args.snapshot.remote;
    let disk = args.disk.clone().map(|image| ImageSource { image, remote: remote.clone() });
    Ok(ResumeSpec {
        snapshot: channel::resolve(&args.insecure.apply(&args.snapshot))?,
        disk: disk.map(|disk| channel::resolve(&args.insecure.apply(&disk))).transpose()?,
        prefetches: !args.no_prefetch,
        limits: *args.limits,
        medium: args.emulation.medium,
        damage: args.emulation.damage.value(),
        warm: args.warm,
        program: qemu::find_program(&std::env::var_os("PATH").unwrap_or_default())?,
        scratch: args.scratch,
        keep: args.keep.keep.as_deref().map(std::path::absolute).transpose()?,
        typed: args.typed.clone(),
        prompt: args.prompt.clone(),
        ready: args.ready.clone(),
        ready_timeout: args.ready_timeout,
        grace: args.grace,
        network: args.network.forwards(),
        console: args.console.clone(),
        watch: None,
        disk_watch: None,
    })
}
