//! `headstart profile`

use hs_serve::{MountFsOptions, Prefetching};
use hs_start::record;
use hs_trace::ReadAhead;
use hs_units::ByteSize;
use serde::Serialize;

use super::run;
use crate::cli::Profile;
use hs_output::show;
use hs_output::whole_file::write_whole;
use hs_start::start::{self, CommandOutput, Disk, Start, Started};
use hs_start::summary::Summary;

#[derive(Serialize)]
struct Recorded {
    profile: String,
    reads: usize,
    distinct_blocks: u64,
    files: usize,
    #[serde(flatten)]
    summary: Summary,
}

/// Records a start; gives the exit code of the command, or 0 when it was ended after its grace time.
pub(crate) fn run(args: &Profile, quiet: bool) -> anyhow::Result<i32> {
    hs_linux::rootenv::enter_private_mounts()?;
    let output = if args.json { CommandOutput::Stderr } else { CommandOutput::Stdout };
    let (profile, started) = record(args, output)?;
    let code = started.exit.map_or(0, hs_linux::rootenv::Exit::code);
    if code != 0 && !args.keep_failed {
        log::error!(
            "the command failed with exit code {code}: {} is not written (--keep-failed writes it)",
            args.output.display()
        );
        return Ok(code);
    }
    write_whole(&args.output, &profile.encode()?)?;
    let recorded = Recorded {
        profile: args.output.display().to_string(),
        reads: profile.reads.len(),
        distinct_blocks: profile.distinct_blocks(),
        files: profile.files.len(),
        summary: started.summary,
    };
    if args.json {
        show::json(&recorded)?;
    } else if !quiet {
        hs_output::note!(
            "{}: {} reads of {} in {} files; ready after {:.2} s",
            recorded.profile,
            recorded.reads,
            ByteSize(recorded.distinct_blocks * hs_units::BLOCK_BYTES),
            recorded.files,
            recorded.summary.ready_s.unwrap_or_default()
        );
    }
    Ok(code)
}

/// Records a start, and finds out which files' pages it read.
pub(crate) fn record(args: &Profile, output: CommandOutput) -> anyhow::Result<(hs_trace::Profile, Started)> {
    // Without read-ahead, each touched page is one read, and there are no other reads.
    let exact = !args.keep_read_ahead && args.start.read_ahead.is_none();
    let mount = MountFsOptions {
        read_ahead_kib: if exact { 0 } else { args.start.read_ahead_kib() },
        inode_readahead_blocks: exact.then_some(1),
        warm: false,
        ..run::mount_options(&args.start)
    };
    let mut config = start::config(&args.image, Prefetching::Off, None, &args.start.emulation.medium)?;
    config.disk_read_ahead_kib = run::disk_read_ahead_kib(&mount, config.disk_read_ahead_kib);
    let spec = Start {
        disk: Disk::Image { image: Box::new(args.start.insecure.apply(&args.image)), config },
        medium: args.start.emulation.medium,
        damage: args.start.emulation.damage.value(),
        mount,
        command: args.command.clone(),
        entrypoint: args.start.entrypoint.clone(),
        contain: args.start.contain.value(),
        scratch: args.start.scratch,
        keep: None,
        status: None,
        ready: args.start.ready.clone(),
        ready_timeout: args.start.ready_timeout,
        grace: Some(args.grace),
        tell: false,
        output,
        watch: None,
        observe: false,
        processes: None,
        learned: None,
    };
    let read_ahead =
        if exact { ReadAhead::Off } else { ReadAhead::Kernel { kib: args.start.read_ahead_kib() } };
    record::start(spec, read_ahead)
}
