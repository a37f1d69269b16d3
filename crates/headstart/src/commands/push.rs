//! `headstart push`

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_format::FileKind;
use hs_remote::http::{HttpClient, Timeouts};
use hs_remote::registry::{self, Artifact};
use hs_remote::{Abandoned, Address, cloud, left_uploads};
use hs_units::ByteSize;
use httpdate::HttpDate;
use serde::Serialize;

use crate::cli::Push;
use hs_output::own_folders::OwnFolders;
use hs_output::show::{self, Bar};
use hs_service::ending::Interruption;
use hs_service::signals::Ends;
use hs_start::open::{file_kind, open_image};
use hs_start::remote::keyring;

/// A server sends nothing while it receives a piece, which takes long on a slow link.
const PATIENT: Timeouts = Timeouts { connect: Duration::from_secs(10), stall: Duration::from_secs(300) };

#[derive(Serialize)]
struct Shown {
    address: String,
    image: String,
    bytes: u64,
    sent_bytes: u64,
    /// What an earlier push had sent before it was broken off.
    resumed_bytes: u64,
    was_there: bool,
    /// The registry's name for it.
    digest: Option<String>,
}

#[derive(Serialize)]
struct ShownProfile {
    address: String,
    profile: String,
    bytes: u64,
    sent_bytes: u64,
    was_there: bool,
    /// The registry's name for it.
    digest: String,
}

#[derive(Serialize)]
struct ShownAbandoned {
    address: String,
    /// Whether there was anything.
    was_there: bool,
    /// Whether that is gone already.
    is_removed: bool,
}

/// How many interrupted uploads are listed.
const MOST_TOLD: usize = 5;

/// Sends an image, or abandons an interrupted upload.
pub(crate) fn run(args: &Push, quiet: bool) -> anyhow::Result<()> {
    let unfinished = args.upload_state.clone().or_else(|| OwnFolders::STATE.find("uploads"));
    match &args.image {
        _ if args.abandon => abandon(args, unfinished.as_deref()),
        Some(image) => send(args, image, unfinished.as_deref(), quiet),
        None => unreachable!("an image or --abandon is required"),
    }
}

fn send(args: &Push, path: &Path, unfinished: Option<&Path>, quiet: bool) -> anyhow::Result<()> {
    let signals = Ends::block().context("wait for signals")?;
    let interruption = Interruption::watch(signals, || {}).context("wait for signals")?;
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    if file_kind(&file).is_ok_and(|kind| kind == FileKind::Profile) {
        return send_profile(args, path, quiet);
    }
    let name = open_image(path)?.image_digest().to_string();
    let bytes = file.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    let client = HttpClient::new(PATIENT)?;
    let keyring = keyring();
    let artifact = Artifact { file: &file, path, name: &name, unfinished };
    let object = cloud::Object { file: &file, path, name: &name, replace: args.replace, unfinished };
    let bar = Bar::new(quiet);
    let mut pushing = |done_bytes, total_bytes| {
        bar.update("sending", done_bytes, total_bytes);
        if interruption.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let pushed = match &args.address {
        Address::Registry(address) => registry::push(client, address, keyring.logins, artifact, &mut pushing),
        Address::Cloud(address) => cloud::push(&client, address, &keyring.clouds, object, &mut pushing),
        Address::Web(address) => bail!("{address}: nothing can be sent to a web server; copy the file there"),
    };
    drop(bar);
    if !quiet {
        tell_of_left(unfinished, args);
    }
    let pushed = pushed?;
    let shown = Shown {
        address: args.address.to_string(),
        image: name,
        bytes,
        sent_bytes: pushed.sent_bytes,
        resumed_bytes: pushed.resumed_bytes,
        was_there: pushed.sent_bytes == 0 && pushed.resumed_bytes == 0,
        digest: pushed.digest,
    };
    if args.json {
        return show::json(&shown);
    }
    if !quiet {
        let size = ByteSize(shown.bytes);
        if shown.was_there {
            hs_output::note!("{}: it was there ({size})", shown.address);
        } else if shown.resumed_bytes > 0 {
            let (sent, resumed) = (ByteSize(shown.sent_bytes), ByteSize(shown.resumed_bytes));
            hs_output::note!("{}: {sent} sent, {resumed} had been before", shown.address);
        } else {
            hs_output::note!("{}: {size} sent", shown.address);
        }
        if let Some(digest) = &shown.digest {
            hs_output::note!("the registry's name for it is {digest}");
        }
    }
    show::line(format_args!("{}#{}", shown.address, shown.image));
    Ok(())
}

/// Sends a recorded start of a container's image, to lie beside it.
fn send_profile(args: &Push, path: &Path, quiet: bool) -> anyhow::Result<()> {
    let Address::Registry(address) = &args.address else {
        bail!("{}: a profile lies beside a container's image in a registry", args.address)
    };
    let bytes = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?.len();
    let mut pushing = |_, _| ControlFlow::Continue(());
    let pushed = hs_containers::profiles::push(path, address, None, &mut pushing)?;
    let digest = pushed.digest.unwrap_or_default();
    if args.json {
        let (was_there, sent_bytes) = (pushed.sent_bytes == 0, pushed.sent_bytes);
        let profile = path.display().to_string();
        let address = address.to_string();
        return show::json(&ShownProfile { address, profile, bytes, sent_bytes, was_there, digest });
    }
    if !quiet {
        hs_output::note!("{address} has it now: `headstart convert {address}` uses it");
    }
    show::line(digest);
    Ok(())
}

fn abandon(args: &Push, unfinished: Option<&Path>) -> anyhow::Result<()> {
    let client = HttpClient::new(PATIENT)?;
    let keyring = keyring();
    let abandoned = match &args.address {
        Address::Registry(address) => registry::abandon(client, address, keyring.logins, unfinished)?,
        Address::Cloud(address) => cloud::abandon(&client, address, &keyring.clouds, unfinished)?,
        Address::Web(address) => bail!("{address}: nothing can be sent to a web server"),
    };
    let address = args.address.to_string();
    if args.json {
        let was_there = abandoned != Abandoned::Nothing;
        let is_removed = abandoned == Abandoned::Removed;
        return show::json(&ShownAbandoned { address, was_there, is_removed });
    }
    let what = match abandoned {
        Abandoned::Nothing => "there is nothing to remove",
        Abandoned::Removed => "what had come is removed",
        Abandoned::Forgotten => "what had come is not gone on with; the store removes it within a week",
    };
    show::line(format_args!("{address}: {what}"));
    Ok(())
}

/// Tells of other uploads that were broken off: stores ask money for their parts.
fn tell_of_left(folder: Option<&Path>, args: &Push) {
    let here = args.address.to_string();
    let others = left_uploads(folder.unwrap_or(Path::new("")));
    let others: Vec<_> = others.into_iter().filter(|left| left.address != here).collect();
    for left in others.iter().take(MOST_TOLD) {
        let since =
            left.begun().map_or_else(String::new, |begun| format!(", begun on {}", HttpDate::from(begun)));
        hs_output::note!(
            "headstart: {} was not sent to the end to {}{since}: push it again, or headstart push --abandon {}",
            left.image,
            left.address,
            left.address
        );
    }
    if let Some(more) = others.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        hs_output::note!("headstart: nor were {more} others");
    }
}
