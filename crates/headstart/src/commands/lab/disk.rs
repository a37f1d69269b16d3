//! `headstart lab disk`

use anyhow::Context;
use hs_serve::ServedFile;
use serde_json::json;

use crate::cli::LabDisk;
use crate::commands::mount::wait_for_end;
use crate::{medium, show};

/// Shows a file on an emulated medium until it is unmounted.
pub(crate) fn run(args: &LabDisk, quiet: bool) -> anyhow::Result<()> {
    let signals = crate::signals::Ends::block()?;
    let on_medium = medium::open(&args.file, &args.medium, &args.damage)?;
    let name = args.file.file_name().context("the file has no name")?.to_string_lossy().into_owned();
    let served = ServedFile::start(on_medium.store, &args.dir, &name)?;
    if !quiet {
        let shown = args.dir.join(&name);
        eprintln!(
            "{} on {}; `umount {}` or Ctrl-C ends it",
            shown.display(),
            args.medium,
            args.dir.display()
        );
    }
    wait_for_end(served.session(), None, &signals, None)?;
    let (counted, again) = (on_medium.counters.snapshot(), on_medium.retries.snapshot());
    let object = json!({
        "medium": args.medium.to_string(),
        "store_requests": counted.requests,
        "store_bytes": counted.bytes,
        "seeks": counted.seeks,
        "medium_busy_s": counted.busy.as_secs_f64(),
        "store_retries": again.retries,
        "store_errors": again.errors,
    });
    if args.json {
        return show::json(&object);
    }
    if !quiet {
        eprintln!("{} requests, {} bytes, {} seeks", counted.requests, counted.bytes, counted.seeks);
    }
    Ok(())
}
