//! The medium that a command asked for, and files on it.

use std::ffi::OsStr;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use hs_device::Medium;
use hs_image::OpenOptions;
use hs_serve::ServeConfig;
use hs_store::{Count, Counters, Emulate, Fault, FileStore, Retry, RetryCounters, RetrySnapshot, Store};

use crate::bad_sectors::BadSectors;
use crate::channel;
use crate::cli::image::ImageArg;
use crate::location::Place;
use crate::remote::{self, Purpose};

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

/// What is wrong with a medium, on purpose.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Damage {
    /// Bytes of the file that cannot be read, such as 10M+64K; with xTIMES behind it, so many requests fail before
    /// they can. Can be given several times.
    #[arg(long, value_name = "OFFSET+LEN[xTIMES]")]
    pub bad_sectors: Vec<BadSectors>,
}

/// A file on a medium, which counts the requests that it gets.
pub(crate) struct OnMedium {
    /// The file, as the medium delivers it.
    pub store: Arc<dyn Store>,
    /// What the medium counts.
    pub counters: Arc<Counters>,
    /// What had to be asked for again.
    pub retries: Arc<RetryCounters>,
    /// How an image in it is to be opened.
    pub image: OpenOptions,
}

impl OnMedium {
    /// `config`, for an image in this.
    pub(crate) fn config(&self, config: &ServeConfig) -> ServeConfig {
        ServeConfig { image: self.image.clone(), ..config.clone() }
    }

    /// What is to be said of a medium that failed; nothing of one that did not.
    pub(crate) fn trouble(&self) -> Option<String> {
        let RetrySnapshot { errors, first_error, .. } = self.retries.snapshot();
        let first = first_error?;
        Some(format!("{errors} reads of the medium failed, the first: {first}"))
    }
}

/// Opens an image, or another file, on `medium`. For an emulated medium the file is first read into the page cache, so
/// that the time of the real one does not show.
///
/// From the inside out: the file, the damage of its surface, the time that the medium takes, what that counts, and
/// further tries for what it could not read.
pub(crate) fn open(image: impl Into<ImageArg>, medium: &Medium, damage: &Damage) -> anyhow::Result<OnMedium> {
    let image = channel::resolve(&image.into())?;
    let path = match &image.image.place {
        Place::File(path) => path,
        Place::Remote(_) if *medium != Medium::None || !damage.bad_sectors.is_empty() => {
            bail!("--medium and --bad-sectors are for files; {} lies elsewhere", image.display())
        }
        Place::Remote(address) => return remote::open(&image, address, Purpose::Serve),
    };
    let file = Arc::new(FileStore::open(path).context("open")?);
    for bad in &damage.bad_sectors {
        if !bad.range.fits_in(file.len()) {
            bail!("{} has {} bytes: there are no sectors {bad} that could be bad", file.name(), file.len());
        }
    }
    // What is spoiled follows from the rules alone, so any seed does.
    let surface = Fault::new(Arc::clone(&file), damage.bad_sectors.iter().map(BadSectors::rule).collect(), 0);
    let emulated = Emulate::new(surface, medium)?;
    if *medium != Medium::None {
        read_into_cache(&file)?;
    }
    let counted = Count::new(emulated);
    let counters = counted.counters();
    let retry = Retry::new(counted);
    let retries = retry.counters();
    let options = OpenOptions { name: image.image.name(), ..OpenOptions::default() };
    Ok(OnMedium { store: Arc::new(retry), counters, retries, image: options })
}

fn read_into_cache(file: &impl Store) -> anyhow::Result<()> {
    let whole = hs_units::ByteRange::new(0, file.len());
    file.stream(whole, &mut |_| std::ops::ControlFlow::Continue(()))?;
    Ok(())
}
