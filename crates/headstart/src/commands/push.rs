//! `headstart push`

use std::fs::File;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, bail};
use hs_image::Progress;
use hs_store::http::{HttpClient, Timeouts};
use hs_store::registry::{self, Artifact};
use hs_store::{Address, cloud};
use hs_units::ByteSize;
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
    was_there: bool,
    /// The registry's name for it.
    digest: Option<String>,
}

/// Sends an image.
pub(crate) fn run(args: &Push, quiet: bool) -> anyhow::Result<()> {
    let ends = Ends::block().context("wait for signals")?;
    let name = open_image(&args.image)?.image_digest().to_string();
    let path = &args.image;
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let bytes = file.metadata().with_context(|| format!("look at {}", path.display()))?.len();
    let client = HttpClient::new(PATIENT)?;
    let keyring = keyring();
    let bar = Bar::new(quiet);
    let mut pushing = |done_bytes, total_bytes| {
        bar.update(Progress { stage: "sending", done_bytes, total_bytes });
        if ends.take().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let pushed = match &args.address {
        Address::Registry(address) => {
            let unfinished = args.upload_state.clone().or_else(|| OwnFolders::STATE.find("uploads"));
            let artifact = Artifact { file: &file, path, name: &name, unfinished: unfinished.as_deref() };
            registry::push(client, address, keyring.logins, artifact, &mut pushing)?
        }
        Address::Cloud(address) => {
            let object = cloud::Object { file: &file, path, name: &name, replace: args.replace };
            cloud::push(&client, address, &keyring.clouds, object, &mut pushing)?
        }
        Address::Web(address) => bail!("{address}: nothing can be sent to a web server; copy the file there"),
    };
    drop(bar);
    let shown = Shown {
        address: args.address.to_string(),
        image: name,
        bytes,
        sent_bytes: pushed.sent_bytes,
        was_there: pushed.sent_bytes == 0,
        digest: pushed.digest,
    };
    if args.json {
        return show::json(&shown);
    }
    if !quiet {
        let size = ByteSize(shown.bytes);
        if shown.was_there {
            show::note!("{}: it was there ({size})", shown.address);
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
