//! `headstart lab disk`

use std::sync::Arc;

use anyhow::Context;
use hs_fuse::ServedFile;
use hs_nbd::{Export, ExportedDisk, NbdListeners, NbdOptions, NbdServer};
use hs_serve::FileAccess;
use hs_serve::FileDisk;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;

use crate::cli::LabDisk;
use hs_daemon::mount::wait_for_end;
use hs_output::show;
use hs_service::signals::Ends;
use hs_start::medium;
use hs_start::on_medium::OnMedium;

/// Shows a file on an emulated medium, in a directory until it is unmounted, to NBD clients, or both.
pub(crate) fn run(args: &LabDisk, quiet: bool) -> anyhow::Result<()> {
    let signals = Ends::block()?;
    let on_medium = medium::open(&args.file, &args.medium, &args.damage)?;
    let name = args.file.file_name().context("the file has no name")?.to_string_lossy().into_owned();
    let mut server = args.nbd.as_ref().map(|address| serve(&on_medium, &name, address)).transpose()?;
    let shown = args
        .dir
        .as_ref()
        .map(|dir| ServedFile::start(Arc::clone(&on_medium.store), dir, &name, FileAccess::default()))
        .transpose()?;
    if !quiet {
        say_where(args, &name, server.as_ref());
    }
    match &shown {
        Some(served) => wait_for_end(served.session(), None, &signals, None)?,
        None => wait_for_signal(&signals)?,
    }
    drop(shown);
    if let Some(server) = &mut server {
        server.stop();
    }
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
        hs_output::note!("{} requests, {} bytes, {} seeks", counted.requests, counted.bytes, counted.seeks);
    }
    Ok(())
}

fn serve(on_medium: &OnMedium, name: &str, address: &hs_nbd::NbdAddress) -> anyhow::Result<NbdServer> {
    let disk = ExportedDisk::File(Arc::new(FileDisk::new(Arc::clone(&on_medium.store))?));
    let description = "a file on an emulated medium".to_owned();
    let export = Export { name: name.to_owned(), description, disk };
    let listeners = NbdListeners::at(std::slice::from_ref(address))?;
    Ok(NbdServer::start(vec![export], listeners, NbdOptions::default())?)
}

fn say_where(args: &LabDisk, name: &str, server: Option<&NbdServer>) {
    for uri in server.into_iter().flat_map(|server| server.uris(0)) {
        hs_output::note!("{name} on {} at {uri}", args.medium);
    }
    match &args.dir {
        Some(dir) => {
            let (shown, medium) = (dir.join(name), args.medium);
            hs_output::note!("{} on {medium}; `umount {}` or Ctrl-C ends it", shown.display(), dir.display());
        }
        None => hs_output::note!("Ctrl-C ends it"),
    }
}

fn wait_for_signal(signals: &Ends) -> anyhow::Result<()> {
    use std::os::fd::AsFd;
    loop {
        let mut events = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) if events[0].revents().contains(PollFlags::IN) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for a signal"),
        }
    }
}
