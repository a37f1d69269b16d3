//! `headstart snapshotter`

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail};
use hs_build::ext4::ReadDisk;
use hs_build::{START_CONFIG_PATH, StartConfig, read_linked_file};
use hs_image::{Blocks, Image};
use hs_output::show;
use hs_remote::registry::RegistryAddress;
use hs_snapshotter::artifact::of_resolved;
use hs_snapshotter::server::{self, Serve};
use hs_snapshotter::table::{Entry, Table};
use hs_start::image::{ImageSource, RemoteOptions};
use hs_start::open::open_image;
use hs_start::source::SourceName;

use crate::arguments;
use crate::cli::snapshotter::{Snapshotter, SnapshotterAction};

/// Serves containerd, or changes the table of images.
pub(crate) fn run(args: &Snapshotter, quiet: bool) -> anyhow::Result<()> {
    let table = Table::of(&args.root);
    match &args.action {
        SnapshotterAction::Serve { socket, containerd, on_demand, flags } => {
            let (root, socket, containerd) = (args.root.clone(), socket.clone(), containerd.clone());
            let fill = (!on_demand).then(|| "--fill=where-possible".into());
            check_flags(flags);
            // What the user says comes last, and counts.
            let flags = fill.into_iter().chain(flags.iter().cloned()).collect();
            server::run(Serve { root, socket, containerd, flags }, quiet)
        }
        SnapshotterAction::Add { container, image } => add(&table, container, image, quiet),
        SnapshotterAction::Remove { container } => {
            let container = container.to_string_lossy();
            if !table.remove(&container)? {
                bail!("{container} was not added: `headstart snapshotter list` shows what was");
            }
            Ok(())
        }
        SnapshotterAction::List { json } => list(&table, *json),
    }
}

/// Ends the program where `headstart mount` would not take these flags: containers would find out.
fn check_flags(flags: &[OsString]) {
    let behind = ["--fs=tree", "--", "image", "disk"].map(OsString::from);
    let words: Vec<OsString> =
        [OsString::from("mount")].into_iter().chain(flags.to_vec()).chain(behind).collect();
    if let Err(error) = arguments::parse(&words) {
        arguments::refuse(&error);
    }
}

fn add(table: &Table, container: &OsStr, image: &OsStr, quiet: bool) -> anyhow::Result<()> {
    let reference =
        container.to_str().context("the container's image has a name that is no text")?.to_owned();
    let SourceName::Registry(address) = SourceName::parse(container) else {
        bail!(
            "{reference}: only a container's image in a registry can be added: docker://NAME, oci://HOST/NAME"
        );
    };
    let source = ImageSource::parse(image, &RemoteOptions::default())?;
    let opened = open_image(&source)?;
    let artifact = mounted_as(image, &source, &opened)?;
    let entry = of_resolved(&RegistryAddress::parse(&address)?, artifact)?;
    check_container(&opened, &entry, &reference)?;
    if !quiet {
        hs_output::note!("{} is mounted for {reference} (layers: {})", entry.artifact, entry.chain.len());
    }
    table.put(Entry { reference, ..entry })
}

/// The image as a mount is told of it, wherever that is started: with its name, for containers keep what they
/// have written above this very image.
fn mounted_as(image: &OsStr, source: &ImageSource, opened: &Image) -> anyhow::Result<String> {
    let mut word: OsString = match source.file() {
        Some(file) => file.canonicalize().with_context(|| format!("look at {}", file.display()))?.into(),
        None => image.to_owned(),
    };
    match &source.image.trust {
        // Whose key it is may sign another one.
        Some(trust) if source.file().is_some() => word.push(format!("#{trust}")),
        Some(_) => {}
        // An address in a file of its own takes no name.
        None if image.as_bytes().starts_with(b"@") => {}
        None => word.push(format!("#{}", opened.image_digest())),
    }
    word.into_string().map_err(|word| anyhow::anyhow!("{} is no text", Path::new(&word).display()))
}

/// Fails where the image says that it is of another container's image.
fn check_container(image: &Image, entry: &Entry, reference: &str) -> anyhow::Result<()> {
    let wanted = entry.chain.last().map(String::as_str).unwrap_or_default();
    match chain_of(image).with_context(|| format!("{}: which container's image it is of", image.name()))? {
        Some(chain) if chain == wanted => Ok(()),
        Some(chain) => bail!(
            "{} is of another container's image: its layers are {chain}, those of {reference} are {wanted}; \
             `headstart build {reference} -o FILE` makes one of this image",
            image.name()
        ),
        None => {
            log::warn!(
                "{} does not say which container's image it is of, so that is not compared with {reference} \
                 (images that an earlier version has built do not say it)",
                image.name()
            );
            Ok(())
        }
    }
}

/// The chain ID of the layers that the image was built from, if it says so.
fn chain_of(image: &Image) -> anyhow::Result<Option<String>> {
    let mut blocks = Blocks::new(image);
    let mut disk = ReadDisk::new(image.disk_bytes(), |at, into| blocks.read_at(at, into));
    let kept = match read_linked_file(&mut disk, &format!("/{START_CONFIG_PATH}")) {
        // Another file system.
        Err(error) if error.kind() == ErrorKind::InvalidData => None,
        kept => kept?,
    };
    let Some(json) = kept else { return Ok(None) };
    let config = StartConfig::parse(&json).with_context(|| format!("/{START_CONFIG_PATH} in the image"))?;
    Ok(Some(config.chain_id).filter(|chain| !chain.is_empty()))
}

fn list(table: &Table, json: bool) -> anyhow::Result<()> {
    let entries = table.entries()?;
    if json {
        return show::json(&serde_json::json!({ "images": entries }));
    }
    for Entry { reference, artifact, chain, .. } in entries {
        show::line(format_args!("{reference}: {artifact} (layers: {})", chain.len()));
    }
    Ok(())
}
