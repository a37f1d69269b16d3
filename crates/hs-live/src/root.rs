//! From the kernel's command line to a mounted root.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use hs_linux::OwnMounts;
use hs_start::image::ImageSource;
use hs_start::open::open_image;
use rustix::mount::{UnmountFlags, unmount};

use crate::device::{self, FoundDevice};
use crate::words::{DeviceName, RecordPlace, RootPlace, Words};
use crate::{came_up, keeper, overlay, private_root, server, udev_rules, verify};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The root is mounted.
    Mounted,
    /// The image was checked, as the command line asks; nothing is mounted.
    Verified,
}

/// Mounts the root that `command_line` names at `new_root`; everything of the program lies at `base`.
///
/// # Errors
/// When there is no such root; the text says what is missing and what to try.
pub fn mount(base: &Path, new_root: &Path, command_line: &str) -> anyhow::Result<Outcome> {
    let words = Words::parse(command_line)?;
    for word in &words.unknown {
        log::warn!("the kernel's command line: {word} is not known");
    }
    private_root::make(base)?;
    let (image, on_medium) = match &words.place {
        RootPlace::Address(_) if words.keep.is_some() => {
            bail!("headstart.keep is a file beside the image, and the image has an address")
        }
        RootPlace::Address(address) => (address.clone(), None),
        RootPlace::Device { name, trust } => {
            let found = on_device(base, name, trust, &words);
            let (found, digest) = found.inspect_err(|_| udev_rules::examine_everything())?;
            udev_rules::name_medium(&found);
            (format!("{}{}{trust}", private_root::MEDIUM, words.image_path), Some(digest))
        }
    };
    if words.verify {
        // Seen from here, a medium lies below the base.
        let seen = if image.starts_with(private_root::MEDIUM) {
            format!("{}{image}", base.display())
        } else {
            image
        };
        verify::run(&ImageSource::parse(seen.as_ref(), &server::remote(&words))?)?;
        return Ok(Outcome::Verified);
    }
    if let Some(RecordPlace::Device(name)) = &words.record {
        let device = device::wait_for(name, words.wait, Duration::ZERO, |found| Ok(found[0].clone()))?;
        device::mount(&device, &base.join(&private_root::RECORD[1..]), true)?;
    }
    let own = OwnMounts::enter(base)?;
    let started = server::start(&image, command_line).and_then(|served| {
        on_medium.map_or(Ok(()), |digest| keeper::start(command_line, &digest))?;
        Ok(served)
    });
    own.leave()?;
    let served = started?;
    let inside = |path: &str| base.join(path.trim_start_matches('/'));
    let fs = inside(private_root::FS);
    match words.keep {
        // It takes writes itself.
        Some(_) => rustix::mount::mount_bind(&fs, new_root)
            .with_context(|| format!("mount the root at {}", new_root.display()))?,
        None => overlay::mount(&words.overlay, &served.disk_digest, &fs, &inside("overlay"), new_root)?,
    }
    came_up::ask(&words);
    Ok(Outcome::Mounted)
}

/// How long other devices of the same name may take to appear, where nothing says which image is meant.
const SETTLE: Duration = Duration::from_secs(1);

/// Waits for the device, and mounts its file system. Gives it, and the digest of the image.
pub(crate) fn on_device(
    base: &Path,
    name: &DeviceName,
    trust: &str,
    words: &Words,
) -> anyhow::Result<(FoundDevice, String)> {
    let settle = if trust.is_empty() { SETTLE } else { Duration::ZERO };
    let (found, digest) = device::wait_for(name, words.wait, settle, |candidates| {
        choose(base, candidates, name, trust, words)
    })?;
    device::mount(&found, &medium(base), words.keep.is_some())?;
    Ok((found, digest))
}

pub(crate) fn medium(base: &Path) -> PathBuf {
    base.join(&private_root::MEDIUM[1..])
}

/// One of the devices of a name: those that hold an image must hold the same. Where the image is named, only
/// those with that image count.
fn choose(
    base: &Path,
    candidates: &[FoundDevice],
    name: &DeviceName,
    trust: &str,
    words: &Words,
) -> anyhow::Result<(FoundDevice, String)> {
    let mut usable: Vec<(&FoundDevice, String)> = Vec::new();
    let mut reasons = Vec::new();
    for found in candidates {
        match digest_on(base, found, trust, words) {
            Ok(digest) => usable.push((found, digest)),
            Err(error) => reasons.push(format!("{}: {error:#}", found.path.display())),
        }
    }
    let Some((first, digest)) = usable.first() else {
        bail!("{name} has not the image: {}", reasons.join("; "));
    };
    if usable.iter().any(|(_, other)| other != digest) {
        let list: Vec<_> =
            usable.iter().map(|(found, digest)| format!("{}: {digest}", found.path.display())).collect();
        bail!(
            "several devices are called {name} and hold different images ({}): take out all but one, or name \
             the image by #hs1-DIGEST",
            list.join(", ")
        );
    }
    Ok(((*first).clone(), digest.clone()))
}

/// The digest of the image on a device, which must be the one that is named.
fn digest_on(base: &Path, found: &FoundDevice, trust: &str, words: &Words) -> anyhow::Result<String> {
    let open = |path: String| -> anyhow::Result<String> {
        let source = ImageSource::parse(path.as_ref(), &server::remote(words))?;
        Ok(open_image(&source)?.image_digest().to_string())
    };
    let probe = base.join(&private_root::PROBE[1..]);
    device::mount(found, &probe, false)?;
    let image = probe.join(&words.image_path[1..]);
    let digest = match image.is_file() {
        true => open(format!("{}{trust}", image.display())),
        false => Err(anyhow::anyhow!(
            "there is no file {}: is it the right medium? headstart.image=PATH names another file",
            words.image_path
        )),
    };
    unmount(&probe, UnmountFlags::empty()).with_context(|| format!("unmount {}", probe.display()))?;
    digest
}
