//! `headstart import`

use anyhow::{Context, bail};
use hs_build::BuildOptions;
use hs_build::cloop::Header;
use hs_build::source::{Source, SourceOptions};
use hs_start::progress;
use hs_store::{FileStore, Store};

use super::build;
use super::source::refuse_no_disk;
use crate::cli::Import;
use hs_output::show::Bar;

/// Builds an image of the disk in another format's file.
pub(crate) fn run(args: &Import, quiet: bool) -> anyhow::Result<()> {
    let source = open(args)?;
    let mut options = BuildOptions { window_bytes: args.window.0, ..BuildOptions::default() };
    (options.codec, options.level) = (args.codec.codec, args.codec.level);
    options.threads = args.threads.unwrap_or(options.threads);
    let bar = Bar::new(quiet);
    let report =
        hs_build::build(&source, &args.output, &options, &|progress| progress::of_image(&bar, progress))?;
    drop(bar);
    build::print(&args.output, args.json, &report, None, Vec::new(), 0)
}

/// The kind of a file shows at its start, whatever its name.
fn open(args: &Import) -> anyhow::Result<Source> {
    let path = args.file.display();
    if args.file.is_dir() {
        let output = args.output.display();
        bail!("{path}: this is a directory: `headstart build {path} -o {output}` makes an image of it");
    }
    let file = FileStore::open(&args.file).with_context(|| format!("open {path}"))?;
    let mut start = vec![0; file.len().min(64) as usize];
    file.read_at(0, &mut start)?;
    if Header::is_cloop(&start) || args.file.extension().is_some_and(|extension| extension == "cloop") {
        return Ok(Source::open_cloop(Box::new(file))?);
    }
    drop(file);
    let options = SourceOptions { raw: true, ..SourceOptions::default() };
    let source = Source::open(&args.file, &options, &|_| {})?;
    refuse_no_disk(&source, &args.file, args.raw)?;
    Ok(source)
}
