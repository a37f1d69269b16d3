//! `headstart convert`, `headstart bundle`

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use hs_build::BuildOptions;
use hs_containers::bundle;
use hs_containers::convert::{self, Conversion, Converted, Recorded};
use hs_output::own_folders::OwnFolders;
use hs_output::show::{self, Bar};
use hs_service::signals::Ends;
use hs_start::image::ImageSource;
use hs_units::ByteSize;
use serde::Serialize;

use crate::cli::{Bundle, Convert};

/// A bundle that was made or removed.
#[derive(Serialize)]
struct ShownBundle {
    bundle: String,
    is_removed: bool,
}

/// Converts an image in a registry.
pub(crate) fn convert(args: &Convert, quiet: bool) -> anyhow::Result<()> {
    let signals = Ends::block().context("wait for signals")?;
    let conversion = Conversion {
        address: args.source.clone(),
        platform: args.platform.clone(),
        profiles: args.profiles.clone(),
        record: args.record.then(|| Recorded {
            command: args.command.clone(),
            ready: args.ready.as_ref().map(ToString::to_string),
        }),
        commands: args.commands.clone(),
        build: BuildOptions { codec: args.codec.codec, level: args.codec.level, ..BuildOptions::default() },
        output: args.output.clone(),
        replace: args.replace,
        dry_run: args.dry_run,
        annotate: args.annotate.clone(),
        unfinished: args.upload_state.clone().or_else(|| OwnFolders::STATE.find("uploads")),
        unpack_limit_bytes: args.unpack_limit.0,
    };
    let bar = Bar::new(quiet);
    let mut sending = |done_bytes, total_bytes| bar.update("sending", done_bytes, total_bytes);
    let converted = convert::run(&conversion, quiet, signals, &mut sending);
    drop(bar);
    let converted = converted?;
    if args.json {
        return show::json(&converted);
    }
    if !quiet {
        say(&converted);
    }
    if let Some(address) = &converted.address {
        show::line(address);
    }
    Ok(())
}

fn say(converted: &Converted) {
    let Converted { source, source_digest, platform, .. } = converted;
    hs_output::note!("{source} is {source_digest} for {platform}");
    for command in &converted.recorded {
        hs_output::note!("a recorded start of it lies in the registry: {command}");
    }
    match (&converted.address, converted.was_there) {
        (Some(_), true) => hs_output::note!("its conversion is there already"),
        (Some(_), false) => hs_output::note!(
            "converted: {}, {} sent; the image refers to the original, which is as it was",
            ByteSize(converted.image_bytes.unwrap_or_default()),
            ByteSize(converted.sent_bytes)
        ),
        (None, _) => hs_output::note!("no such conversion is there: it would be made and sent"),
    }
    if converted.removed > 0 {
        hs_output::note!("{} earlier conversions removed", converted.removed);
    }
    if let Some(annotated) = &converted.annotated {
        hs_output::note!("{annotated} names it for containerd");
    }
}

/// Makes a bundle, or removes it.
pub(crate) fn bundle(args: &Bundle, quiet: bool) -> anyhow::Result<()> {
    let shown = |dir: &Path, is_removed| ShownBundle { bundle: dir.display().to_string(), is_removed };
    let (Some(image), Some(dir)) = (&args.image, &args.dir) else {
        let dir = args.remove.as_deref().context("the directory of the bundle")?;
        bundle::remove(dir)?;
        return if args.json { show::json(&shown(dir, true)) } else { Ok(()) };
    };
    let source = ImageSource { image: image.clone(), remote: args.remote.value() };
    let bundle = bundle::Bundle {
        flags: flags(args, &source)?,
        image: source,
        dir: dir.clone(),
        command: args.command.clone(),
        entrypoint: args.entrypoint.clone(),
        terminal: args.terminal,
    };
    bundle::make(&bundle, &Ends::block().context("wait for signals")?)?;
    if args.json {
        return show::json(&shown(dir, false));
    }
    if !quiet {
        let dir = dir.display();
        hs_output::note!("`runc run -b {dir} NAME` starts it; `headstart bundle --remove {dir}` ends it");
    }
    Ok(())
}

/// What `headstart mount` is told of how the image is fetched.
fn flags(args: &Bundle, source: &ImageSource) -> anyhow::Result<Vec<OsString>> {
    let remote = &source.remote;
    let mut flags: Vec<OsString> = Vec::new();
    for (flag, is_given) in
        [("--trusted", args.trusted), ("--insecure", args.insecure.insecure), ("--offline", remote.offline)]
    {
        flags.extend(is_given.then(|| flag.into()));
    }
    let mut add = |flag: &str, value: OsString| {
        let mut word = OsString::from(flag);
        word.push(value);
        flags.push(word);
    };
    if let Some(base) = source.base() {
        add("--base=", base.word().into());
    }
    if let Some(folder) = &remote.disk_cache {
        let folder = match folder.as_os_str() == "none" {
            true => folder.clone(),
            false => std::path::absolute(folder).context("find the disk cache")?,
        };
        add("--disk-cache=", folder.into());
    }
    if let Some(folder) = &remote.channel_state {
        add("--channel-state=", folder.into());
    }
    if let Some(date) = &remote.min_date {
        add("--min-date=", date.to_string().into());
    }
    add("--read-timeout=", remote.read_timeout.as_secs().max(1).to_string().into());
    Ok(flags)
}
