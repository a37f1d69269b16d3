//! `headstart boot`

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use hs_linux::fsmount::FileSystem;
use hs_resume::save::Saver;
use hs_serve::Prefetching;
use hs_trace::Profile;
use hs_units::ByteSize;
use serde::Serialize;

use crate::cli::Boot;
use hs_output::printable::Printable;
use hs_output::show;
use hs_output::whole_file::write_whole;
use hs_start::boot::{self, BootDisk, BootSpec, Booted, SaveGuest};
use hs_start::channel;
use hs_start::image::ImageSource;
use hs_start::record;
use hs_start::start;
use hs_start::summary::{FileReads, Summary};
use hs_start::trace::{OwnProfile, Traced, Tracer};

/// What a boot or a resume gives out.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    #[serde(flatten)]
    pub summary: Summary,
}

/// Boots a guest; done when it was ready and has been ended.
pub(crate) fn run(args: &Boot, quiet: bool) -> anyhow::Result<()> {
    hs_linux::rootenv::enter_private_mounts()?;
    let tracer = args.trace.as_deref().map(Tracer::new);
    let mut spec = spec(args, args.record.is_some())?;
    if let Some(tracer) = &tracer {
        (spec.watch, spec.processes) = (Some(tracer.watch()), Some(tracer.processes()));
    }
    let traced = tracer.as_ref().map(|_| Traced::of_boot(&spec)).transpose()?;
    let (profile, booted) = match &args.record {
        None if args.learn.learn => (None, record::learn_boot(spec, &args.learn.folder()?)?),
        None => (None, boot::boot(&spec)?),
        Some(output) => {
            let (profile, booted) = record::boot(spec)?;
            write_whole(output, &profile.encode()?)?;
            (Some(profile), booted)
        }
    };
    if let (Some(tracer), Some(traced)) = (&tracer, traced) {
        let traced = Traced {
            profile: profile.zip(booted.summary.recorded_from_s).map(|(profile, from_s)| OwnProfile {
                disk_digest: profile.disk_digest,
                ended_s: profile.ended.as_secs_f64(),
                from_s,
            }),
            ..traced.booted(&booted)
        };
        tracer.write(&traced, booted.medium.as_ref())?;
    }
    let profile = args.record.as_ref().map(|output| output.display().to_string());
    let snapshot = args.snapshot_out.as_ref().map(|output| output.display().to_string());
    print(&Shown { profile, snapshot, summary: booted.summary }, args.json, quiet)?;
    // The guest went on without them. Its messages about it may be in a console that was not kept.
    if let Some(lost) = booted.lost {
        log::error!("{lost}");
    }
    Ok(())
}

/// The run summary: as JSON, or as a line for people.
pub(crate) fn print(shown: &Shown, as_json: bool, quiet: bool) -> anyhow::Result<()> {
    if as_json {
        show::json(shown)?;
    } else if !quiet {
        hs_output::note!("{}", told(&shown.summary));
        if !shown.summary.medium_files.is_empty() {
            show::line(medium_files(&shown.summary.medium_files));
            let more = shown.summary.medium_files.len().saturating_sub(MOST_FILES_SHOWN);
            if more > 0 {
                hs_output::note!("{more} more are in the summary: --json");
            }
        }
    }
    Ok(())
}

/// The line for people. Where the reads are known, so is how long the guest waited for its medium.
fn told(summary: &Summary) -> String {
    let &Summary { store_requests, store_bytes, store_errors, .. } = summary;
    let waited = summary.demand_wait_s.map(|waited| format!(", {waited:.2} s of it waiting for the medium"));
    let disk = summary.packed_disk_requests.map(|requests| format!(", the pack's disk {requests} more"));
    let disk = disk.unwrap_or_default();
    let failed =
        if store_errors == 0 { String::new() } else { format!("; {store_errors} could not be served") };
    format!(
        "ready after {:.2} s{}; the medium answered {store_requests} requests with {}{disk}{failed}",
        summary.ready_s.unwrap_or_default(),
        waited.unwrap_or_default(),
        ByteSize(store_bytes)
    )
}

/// Files beyond these are in the summary only.
const MOST_FILES_SHOWN: usize = 50;

/// What was read of the medium, by stage and file, in the order in which that began.
fn medium_files(reads: &[FileReads]) -> impl std::fmt::Display {
    let header = ["file", "stage", "from, s", "to, s", "requests", "bytes", "seeks"];
    let mut table = show::table(&header);
    for of in reads.iter().take(MOST_FILES_SHOWN) {
        let file = of.file.as_deref().unwrap_or("(in no file)");
        let [from, to] = [of.first_s, of.last_s].map(|at_s| format!("{at_s:.2}"));
        let bytes = ByteSize(of.bytes).to_string();
        let (requests, seeks) = (of.requests.to_string(), of.seeks.to_string());
        let file = Printable(file).to_string();
        table.add_row([&file, of.stage, &from, &to, &requests, &bytes, &seeks]);
    }
    table
}

/// Records a boot.
pub(crate) fn record(args: &Boot) -> anyhow::Result<(Profile, Booted)> {
    record::boot(spec(args, true)?)
}

/// The boot that the flags describe, to be recorded if so.
pub(crate) fn spec(args: &Boot, is_recorded: bool) -> anyhow::Result<BootSpec> {
    // The channel's pointer is fetched only once.
    let disk = channel::resolve(&args.insecure.apply(&args.disk))?;
    let (is_image, root) = boot::identify(&disk, args.partition.as_deref())?;
    let file_system = root.map(|root| root.file_system);
    // After all checks that need no guest, because this may run a trial guest.
    let is_medium = !is_image && file_system == Some(FileSystem::Iso9660) && args.kernel.is_none();
    if is_medium && let Some(flag) = args.flag_of_kernel() {
        bail!("{flag} is for a kernel that is loaded; the boot loader of a medium has its own command line");
    }
    if !is_medium && args.qemu.firmware.is_some() {
        bail!("--firmware is for a bootable ISO");
    }
    if let Some(root) = root.filter(|root| root.file_system == FileSystem::Ext4)
        && !args.names_first_program()
    {
        boot::check_has_init(&disk, is_image, root.range)?;
    }
    let has_large_sectors = root.is_some_and(|root| root.disk_sector_bytes != 512);
    let vmm = boot::choose(&args.vmm_choice(is_medium, has_large_sectors))?;
    if let Some(root) = &root {
        vmm.check_boots(root, &disk)?;
    }
    if args.keep.keep.is_some() && (!is_image || args.warm) {
        bail!("--keep is for guests that boot from an image, without --warm");
    }
    let save = saver(args, &disk, is_image, &vmm)?;
    let disk = if is_image {
        let mode = match vmm {
            _ if args.no_prefetch || is_recorded => Prefetching::Off,
            // Over NBD there is no page cache of ours to push into.
            boot::Vmm::Qemu(_) if !args.warm => Prefetching::Hold,
            boot::Vmm::Uml { .. } | boot::Vmm::Qemu(_) => Prefetching::Push,
        };
        let mut config = start::config(&disk, mode, Some(*args.limits), &args.emulation.medium)?;
        args.cache.apply(&mut config);
        if is_recorded {
            config.disk_read_ahead_kib = 0;
        }
        // The guest's kernel reads ahead, or is told not to. Read-ahead below it would fetch blocks outside
        // the profile as soon as this kernel has dropped a prefetched page. With `--warm` the whole disk is
        // read in sequence first.
        if !args.warm {
            config.hot_disk_read_ahead_kib = 0;
        }
        BootDisk::Image(Box::new(disk), config)
    } else {
        BootDisk::Raw(disk.file().map(Path::to_owned).unwrap_or_default())
    };
    Ok(BootSpec {
        disk,
        partition: args.partition.clone(),
        root,
        medium: args.emulation.medium,
        damage: args.emulation.damage.value(),
        warm: args.warm,
        vmm,
        memory: args.memory,
        scratch: args.scratch,
        keep: args.keep.keep.as_deref().map(std::path::absolute).transpose()?,
        init: args.init.clone(),
        append: args.append.clone(),
        guest_read_ahead: args.guest_read_ahead,
        ready: args.ready.clone(),
        ready_timeout: args.ready_timeout,
        grace: args.grace,
        console: args.console.clone(),
        watch: None,
        is_recorded,
        processes: None,
        save,
        learned: None,
    })
}

/// What saves the guest, where that is asked for.
fn saver(
    args: &Boot,
    disk: &ImageSource,
    is_image: bool,
    vmm: &boot::Vmm,
) -> anyhow::Result<Option<Arc<dyn SaveGuest>>> {
    let Some(output) = &args.snapshot_out else { return Ok(None) };
    if !is_image || !matches!(vmm, boot::Vmm::Qemu(_)) {
        bail!("--snapshot-out saves guests of --vmm qemu that boot from an image");
    }
    let word = disk.word();
    let name = word.file_name().unwrap_or(word.as_os_str()).to_string_lossy().into_owned();
    let output = std::path::absolute(output)?;
    // A pack would need its own disk as well.
    let is_whole = |path: &&Path| !args.no_base && hs_start::pack::header_in_file(path).is_none();
    let base = disk.file().filter(is_whole).map(|_| disk.clone());
    Ok(Some(Arc::new(Saver::new(output, name, base))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_guest_waited_is_told_where_it_is_known() {
        let mut summary = Summary { ready_s: Some(16.8), demand_wait_s: Some(9.36), ..Summary::default() };
        assert!(told(&summary).starts_with("ready after 16.80 s, 9.36 s of it waiting for the medium; "));
        summary.demand_wait_s = None;
        assert!(told(&summary).starts_with("ready after 16.80 s; the medium answered 0 requests"));
    }
}
