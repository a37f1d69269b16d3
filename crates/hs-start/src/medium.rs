//! The medium that a command asked for, and files on it.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_device::{Medium, Model};
use hs_engine::queue::MediumTraits;
use hs_image::OpenOptions;
use hs_store::{Count, Emulate, Fault, FileStore, Retry, Store};

use crate::bad_sectors::BadSectors;
use crate::base;
use crate::channel;
use crate::image::ImageSource;
use crate::location::ImagePlace;
use crate::on_medium::OnMedium;
use crate::pack;
use crate::remote::{self, Purpose};

/// The medium called `name`, or the model that the file of that name describes, if it ends in `.toml`.
pub fn named(name: &str) -> anyhow::Result<Medium> {
    if !name.ends_with(".toml") {
        return Ok(Medium::parse(name)?);
    }
    // A model takes some lines; whatever is longer is something else.
    let file = std::fs::File::open(name).with_context(|| format!("open {name}"))?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MAX_MODEL_BYTES), &mut text)
        .with_context(|| format!("read {name}"))?;
    Model::from_toml(&text).map(Medium::Model).with_context(|| format!("{name} is no model"))
}

/// Bytes of a model file that are read.
const MAX_MODEL_BYTES: u64 = 64 << 10;

/// Planted faults of a medium.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// Bytes that cannot be read, or not at once.
    pub bad_sectors: Vec<BadSectors>,
}

/// Opens an image, or another file, on `medium`. For an emulated medium the file is first read into the page
/// cache, so that the time of the real one does not show.
///
/// The layers of the store, from the inside out: the file, faults of its surface, the emulated time, the
/// counters, and retries of failed reads.
pub fn open(image: impl Into<ImageSource>, medium: &Medium, damage: &Damage) -> anyhow::Result<OnMedium> {
    let image = channel::resolve(&image.into())?;
    let path = match &image.image.place {
        ImagePlace::File(path) => path,
        ImagePlace::Remote(_) if *medium != Medium::None || !damage.bad_sectors.is_empty() => {
            bail!("--emulate and --bad-sectors are for files; {} lies elsewhere", image.display())
        }
        ImagePlace::Remote(address) => {
            let mut opened = remote::open(&image, address, Purpose::Serve)?;
            opened.on_medium.image.base = base::served(&image, medium);
            return pack::resolved_remote(opened, &image);
        }
    };
    let mut on_medium = open_file(path, medium, damage)?;
    on_medium.image.name = image.image.name();
    on_medium.image.base = base::served(&image, medium);
    pack::resolved(on_medium, path, &image, medium)
}

/// A file on `medium`, whatever lies in it.
pub(crate) fn open_file(path: &Path, medium: &Medium, damage: &Damage) -> anyhow::Result<OnMedium> {
    if path.is_dir() {
        let path = path.display();
        bail!(
            "{path}: this is a directory, not an image: `headstart build {path} -o IMAGE` makes an image of it"
        );
    }
    let file = Arc::new(FileStore::open(path)?);
    for bad in &damage.bad_sectors {
        if !bad.range.fits_in(file.len()) {
            bail!("{} has {} bytes: there are no sectors {bad} that could be bad", file.name(), file.len());
        }
    }
    // The rules alone decide which bytes are spoiled, so any seed does.
    let surface = Fault::new(Arc::clone(&file), damage.bad_sectors.iter().map(BadSectors::rule).collect(), 0);
    let emulated = Emulate::new(surface, medium)?;
    if *medium != Medium::None {
        read_into_cache(&file)?;
    }
    let counted = Count::new(emulated);
    let counters = counted.counters();
    let retry = Retry::new(counted);
    let retries = retry.counters();
    Ok(OnMedium { store: Arc::new(retry), counters, retries, image: OpenOptions::default() })
}

/// The traits of a file's medium for the engine; without a file it is a network. A real rotating disk still
/// gets overlapping requests: the kernel and the drive have queues of their own, and each knows the drive's
/// position better than this program.
pub fn traits(file: Option<&Path>, medium: &Medium) -> MediumTraits {
    let Some(path) = file else {
        return MediumTraits { rotational: false, overlaps: true, bytes_per_s: None };
    };
    if *medium == Medium::None {
        return MediumTraits { rotational: turns(path), overlaps: true, bytes_per_s: None };
    }
    let file_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    MediumTraits {
        rotational: medium.turns(),
        overlaps: medium.overlaps(),
        bytes_per_s: medium.rate_bytes_per_second(file_bytes, file_bytes / 4).map(|rate| rate as f64),
    }
}

/// Whether a request to this medium waits for a moving part, for a network, or for an emulated medium, as far
/// as is known.
pub fn has_dear_requests(file: Option<&Path>, medium: &Medium) -> bool {
    *medium != Medium::None || file.is_none_or(turns)
}

/// Whether the block device of a file, or the file if it is one, reports that it rotates. A file without a
/// block device (tmpfs, overlay, a network) does not.
fn turns(path: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else { return false };
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    // A partition has the queue of its disk.
    let places = ["queue/rotational", "../queue/rotational"].map(|place| Path::new(&device).join(place));
    places
        .into_iter()
        .find_map(|place| std::fs::read_to_string(place).ok())
        .is_some_and(|flag| flag.trim() == "1")
}

fn read_into_cache(file: &impl Store) -> anyhow::Result<()> {
    let whole = hs_units::ByteRange::new(0, file.len());
    file.stream(whole, &mut |_| std::ops::ControlFlow::Continue(()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_told_what_an_emulated_medium_does() {
        let file = std::env::current_exe().expect("a path");
        let of = |name| traits(Some(&file), &Medium::parse(name).expect("known"));
        let [cd, hdd] = ["cd-24x-cav", "hdd-7200"].map(of);
        assert!(cd.rotational && hdd.rotational && !cd.overlaps && !hdd.overlaps);
        let flat = of("flat-10ms-25mbs");
        assert_eq!((flat.rotational, flat.overlaps, flat.bytes_per_s), (false, true, Some(25e6)));
        assert!(!of("flat-10ms-25mbs-serial").overlaps);
        assert!(!of("emmc-2012").rotational && !of("lan-1g").rotational && of("hdd-2010").rotational);
        assert!(of("none").overlaps && !traits(Some(Path::new("/proc/self/stat")), &Medium::None).rotational);
    }
}
