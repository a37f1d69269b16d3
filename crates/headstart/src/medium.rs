//! The medium that a command asked for, and files on it.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap::builder::{PossibleValue, TypedValueParser};
use hs_device::Medium;
use hs_store::{Count, Counters, Emulate, FileStore, Store};

/// Takes any name of a medium, and tells help texts and shells those that stand for themselves.
#[derive(Clone)]
pub(crate) struct MediumParser;

impl TypedValueParser for MediumParser {
    type Value = Medium;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Medium, clap::Error> {
        let parse = |text: &str| Medium::parse(text);
        TypedValueParser::parse_ref(&parse, cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Medium::names().iter().map(PossibleValue::new)))
    }
}

/// A file on a medium, which counts the requests that it gets.
pub(crate) struct OnMedium {
    /// The file, as the medium delivers it.
    pub store: Arc<dyn Store>,
    /// What the medium counts.
    pub counters: Arc<Counters>,
}

/// Opens `path` on `medium`. For an emulated medium the file is first read into the page cache, so
/// that the time of the real one does not show.
pub(crate) fn open(path: &Path, medium: &Medium) -> anyhow::Result<OnMedium> {
    let file = FileStore::open(path).context("open")?;
    let file = Emulate::new(file, medium)?;
    if *medium != Medium::None {
        file.bypass(true);
        read_into_cache(&file)?;
        file.bypass(false);
    }
    let counted = Count::new(file);
    let counters = counted.counters();
    Ok(OnMedium { store: Arc::new(counted), counters })
}

fn read_into_cache(file: &impl Store) -> anyhow::Result<()> {
    let whole = hs_units::ByteRange::new(0, file.len());
    file.stream(whole, &mut |_| std::ops::ControlFlow::Continue(()))?;
    Ok(())
}
