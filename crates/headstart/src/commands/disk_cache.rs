//! `headstart cache`

use std::path::Path;

use anyhow::{Context, bail};
use hs_store::DiskCache as Entries;
use hs_units::ByteSize;
use serde::Serialize;

use crate::cli::disk_cache::{DiskCache, DiskCacheAction};
use hs_daemon::fill_cache::{self, CacheFill};
use hs_output::show;
use hs_start::remote::CacheFolder;

#[derive(Serialize)]
struct Shown {
    folder: String,
    entries: u64,
    bytes: u64,
    limit_bytes: u64,
    addresses: u64,
}

/// Shows, clears or bounds the cache on disk.
pub(crate) fn run(args: &DiskCache, quiet: bool) -> anyhow::Result<()> {
    if args.disk_cache.as_deref().is_some_and(|folder| folder == Path::new("none")) {
        bail!("--disk-cache none is no cache: name a folder");
    }
    let folder = CacheFolder::of(args.disk_cache.as_deref())
        .context("this user has no folder for caches: give --disk-cache")?;
    let action = args.action.as_ref().unwrap_or(&DiskCacheAction::Show);
    match action {
        DiskCacheAction::Fill { address, now } => {
            let fill = CacheFill {
                address: address.clone(),
                disk_cache: args.disk_cache.clone(),
                now: *now,
                json: args.json,
            };
            return fill_cache::run(&fill, quiet);
        }
        DiskCacheAction::Show => {}
        DiskCacheAction::Clear => {
            Entries::shrink(&folder.chunks(), 0);
            folder.forget_addresses().with_context(|| format!("remove {}", folder.addresses().display()))?;
        }
        DiskCacheAction::Limit { size } => {
            folder.set_limit(size.0)?;
            Entries::shrink(&folder.chunks(), size.0);
        }
    }
    let usage = Entries::usage_of(&folder.chunks());
    let addresses = std::fs::read_dir(folder.addresses()).map_or(0, |entries| entries.count() as u64);
    let shown = Shown {
        folder: folder.path().display().to_string(),
        entries: usage.entries,
        bytes: usage.bytes,
        limit_bytes: folder.limit_bytes(),
        addresses,
    };
    if args.json {
        return show::json(&shown);
    }
    // `show` prints its answer even with `--quiet`.
    if !quiet || matches!(action, DiskCacheAction::Show) {
        show::line(format_args!(
            "{}: {} in {} entries, of {} at most; {} addresses are remembered",
            shown.folder,
            ByteSize(shown.bytes),
            shown.entries,
            ByteSize(shown.limit_bytes),
            shown.addresses
        ));
    }
    Ok(())
}
