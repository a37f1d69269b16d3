//! `headstart push`

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_image::Progress;
use hs_store::http::{HttpClient, Timeouts};
use hs_store::registry::{self, Artifact};
use hs_store::{Address, cloud, left_uploads};
use hs_units::ByteSize;
use httpdate::HttpDate;
use serde::Serialize;

use super::open_image;
use crate::cli::Push;
use crate::own_folders::OwnFolders;
use crate::remote::keyring;
use crate::show::{self, Bar};
use crate::signals::Ends;

/// A server says nothing while a piece is on its way to it, which takes long on a slow link.
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
struct Abandoned {
    address: String,
    /// Whether there was anything.
    was_there: bool,
}

/// So many uploads that were broken off are told of.
const MOST_TOLD: usize = 5;

/// Sends an image.
pub(crate) fn run(args: &Push, quiet: bool) -> anyhow::Result<()> {
    let ends = Ends::block().context("wait for signals")?;
    let name = open_image(&args.image)?.image_digest().to_string();
    let path = &args.image;
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let bytes = file.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    let client = HttpClient::new(PATIENT)?;
    let keyring = keyring();
    let unfinished = args.upload_state.clone().or_else(|| OwnFolders::STATE.find("uploads"));
    let unfinished = unfinished.as_deref();
    let artifact = Artifact { file: &file, path, name: &name, unfinished };
    let object = cloud::Object { file: &file, path, name: &name, replace: args.replace, unfinished };
    if args.abandon {
        let was_there = match &args.address {
            Address::Registry(address) => registry::abandon(client, address, keyring.logins, artifact)?,
            Address::Cloud(address) => cloud::abandon(&client, address, &keyring.clouds, object)?,
            Address::Web(address) => bail!("{address}: nothing can be sent to a web server"),
        };
        return show_abandoned(args, was_there);
    }
    let bar = Bar::new(quiet);
    let mut pushing = |done_bytes, total_bytes| {
        bar.update(Progress { stage: "sending", done_bytes, total_bytes });
        if ends.take().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
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
            show::note!("{}: it was there ({size})", shown.address);
        } else if shown.resumed_bytes > 0 {
            let (sent, resumed) = (ByteSize(shown.sent_bytes), ByteSize(shown.resumed_bytes));
            show::note!("{}: {sent} sent, {resumed} had been before", shown.address);
        } else {
            show::note!("{}: {size} sent", shown.address);
        }
        if let Some(digest) = &shown.digest {
            show::note!("the registry's name for it is {digest}");
        }
    }
    show::line(format_args!("{}#{}", shown.address, shown.image));
    Ok(())
}

fn show_abandoned(args: &Push, was_there: bool) -> anyhow::Result<()> {
    let address = args.address.to_string();
    if args.json {
        return show::json(&Abandoned { address, was_there });
    }
    let what = if was_there { "what had come is removed" } else { "there is nothing to remove" };
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
        show::note!(
            "headstart: {} was not sent to the end to {}{since}: push it again, or with --abandon",
            left.image,
            left.address
        );
    }
    if let Some(more) = others.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        show::note!("headstart: nor were {more} others");
    }
}
