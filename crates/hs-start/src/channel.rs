//! From `#key=KEY` to the image that the owner of the key has signed.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_remote::Address;
use hs_remote::http::{HttpClient, HttpOptions, HttpStore, Timeouts};
use hs_store::Store;

use crate::image::{ImageSource, RemoteOptions};
use crate::location::{ImageLocation, ImagePlace, Trust};
use crate::open::open_image;
use crate::remote::keyring;
use hs_trust::channel::ChannelTrust;
use hs_trust::keys::Key;
use hs_trust::now::Now;
use hs_trust::pointer::{MOST_BYTES, Pointer, SUFFIX};
use hs_trust::seen::SeenFolder;

/// Why a registry has no channels.
const NO_NEIGHBOURS: &str = "signatures lie beside an image, on a web server or in a bucket; in a registry nothing lies beside anything";

/// The image with the name that its signed pointer gives, where keys are trusted; else the image as it is.
pub fn resolve(image: &ImageSource) -> anyhow::Result<ImageSource> {
    let Some(Trust::Keys(keys)) = &image.image.trust else { return Ok(image.clone()) };
    let place = pointer_place(&image.image.place)?;
    let (name, channel) = names(&place)?;
    let remote = &image.remote;
    let seen = SeenFolder::of(remote.channel_state.as_deref());
    if seen.is_none() && remote.min_date.is_none() && remote.channel_state.is_none() {
        bail!(
            "{name}: there is no folder in which to note what was seen of the channel, so it could be rolled \
             back: give --channel-state DIR or --min-date DATE (--channel-state none notes nothing)"
        );
    }
    let trust = ChannelTrust {
        name: &name,
        channel: &channel,
        keys,
        seen: seen.as_ref(),
        least: remote.min_date.as_ref(),
    };
    let pointer = match &place {
        ImagePlace::Remote(_) if remote.offline => trust.recall()?,
        place => trust.accept(&read(place, &name, remote)?, |pointer| {
            open_image(pointed_at(image, place, pointer)?).map(drop)
        })?,
    };
    // What is signed under its own name is that image; a channel is to move on.
    if pointer.url.is_some() && pointer.expires.is_none() {
        log::warn!(
            "{name}: it never expires, so an attacker on the network can hold the channel at this image"
        );
    }
    log::info!("{name}: {} is {} since {}", pointer.channel, pointer.image, pointer.date);
    pointed_at(image, &place, &pointer)
}

/// The image that a pointer at `place` points at.
fn pointed_at(image: &ImageSource, place: &ImagePlace, pointer: &Pointer) -> anyhow::Result<ImageSource> {
    let place = target(place, pointer.url.as_deref())?;
    let trust = Some(Trust::Name(pointer.image));
    Ok(ImageSource { image: ImageLocation { place, trust }, remote: image.remote.clone() })
}

/// Checks the signature in a file: it must be by `key`, and of `image`, under whatever name.
pub fn verify_file(path: &Path, key: &Key, image: hs_image::ImageDigest) -> anyhow::Result<Pointer> {
    let name = path.display().to_string();
    let pointer = Pointer::verify(
        &read(&ImagePlace::File(path.to_owned()), &name, &RemoteOptions::default())?,
        key,
        &name,
    )?;
    if pointer.image != image {
        bail!("{name} is of {}, not of {image}", pointer.image);
    }
    pointer.check(&name, &pointer.channel, &Now::of_this_machine(None), None)?;
    Ok(pointer)
}

/// Where the pointer is: there, or beside the image.
fn pointer_place(place: &ImagePlace) -> anyhow::Result<ImagePlace> {
    Ok(match place {
        ImagePlace::File(path) if path.as_os_str().as_encoded_bytes().ends_with(SUFFIX.as_bytes()) => {
            place.clone()
        }
        ImagePlace::File(path) => {
            let mut name = path.clone().into_os_string();
            name.push(SUFFIX);
            ImagePlace::File(name.into())
        }
        ImagePlace::Remote(address) if address.file_name().is_some_and(|name| name.ends_with(SUFFIX)) => {
            place.clone()
        }
        ImagePlace::Remote(address) => {
            let beside = address.with_path(|path| format!("{path}{SUFFIX}"));
            ImagePlace::Remote(beside.with_context(|| format!("{address}: {NO_NEIGHBOURS}"))?)
        }
    })
}

/// What to call a pointer, and the channel that it must be of: its file's name. Else a server could give one
/// channel for another.
fn names(place: &ImagePlace) -> anyhow::Result<(String, String)> {
    let location = ImageLocation { place: place.clone(), trust: None };
    let file_name = location.file_name().unwrap_or_default();
    let channel =
        file_name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).filter(|name| !name.is_empty());
    let channel = channel.with_context(|| format!("{location}: there is no name of a channel in it"))?;
    Ok((location.to_string(), channel.to_owned()))
}

fn read(place: &ImagePlace, name: &str, remote: &RemoteOptions) -> anyhow::Result<String> {
    let bytes = match place {
        ImagePlace::File(path) => {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(path).with_context(|| format!("read {name}"))?;
            file.take(MOST_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("read {name}"))?;
            bytes
        }
        ImagePlace::Remote(address) => {
            let options = HttpOptions {
                opening_bytes: MOST_BYTES,
                opening: remote.opening_patience(),
                ..HttpOptions::default()
            };
            let client = HttpClient::new(Timeouts::default())?;
            let store = HttpStore::open(address.locate(&client, &keyring())?, client, options)?;
            let mut bytes = vec![0; store.len().min(MOST_BYTES + 1) as usize];
            store.read_at(0, &mut bytes)?;
            bytes
        }
    };
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{name} is too large for a signature");
    }
    String::from_utf8(bytes).with_context(|| format!("{name} is no text"))
}

/// Where the image lies that a pointer points at.
fn target(pointer: &ImagePlace, url: Option<&str>) -> anyhow::Result<ImagePlace> {
    if let Some(url) = url.filter(|url| url.contains("://")) {
        return Ok(ImagePlace::Remote(Address::parse(url)?));
    }
    Ok(match (pointer, url) {
        (ImagePlace::File(path), Some(url)) => ImagePlace::File(path.with_file_name(url)),
        (ImagePlace::File(path), None) => ImagePlace::File(without_suffix(&path.to_string_lossy()).into()),
        (ImagePlace::Remote(address), Some(url)) => {
            let joined = address.join(url).with_context(|| format!("{address}: it points at '{url}'"))?;
            ImagePlace::Remote(joined)
        }
        (ImagePlace::Remote(address), None) => {
            let image = address.with_path(without_suffix);
            ImagePlace::Remote(image.with_context(|| format!("{address}: {NO_NEIGHBOURS}"))?)
        }
    })
}

fn without_suffix(path: &str) -> String {
    path.strip_suffix(SUFFIX).unwrap_or(path).to_owned()
}

/// The signature beside an image.
pub fn beside(image: &Path) -> PathBuf {
    let mut name = image.to_owned().into_os_string();
    name.push(SUFFIX);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use hs_trust::date::Date;
    use hs_trust::seen::SignedPointer;

    fn place(word: &str) -> ImagePlace {
        ImageLocation::parse(OsStr::new(word)).expect(word).place
    }

    /// It was noted when this machine's clock was wrong; by now the clock is right, and the date far away.
    #[test]
    fn a_date_that_another_key_has_signed_ends_no_channel() {
        let folder = tempfile::tempdir().expect("a folder");
        let (state, place) = (folder.path().join("state"), folder.path().join("stable.minisig"));
        let pairs = [(); 2].map(|()| minisign::KeyPair::generate_unencrypted_keypair().expect("keys"));
        let [honest, stranger] = [&pairs[0], &pairs[1]].map(|pair| Key::of(&pair.pk));
        let mut pointer = Pointer {
            channel: "stable".to_owned(),
            image: format!("hs1-{}", "a".repeat(64)).parse().expect("a name"),
            date: Date::in_days(0),
            expires: Some(Date::in_days(30)),
            url: Some("a.hsi".to_owned()),
            revoked: Vec::new(),
        };
        std::fs::write(&place, pointer.sign(&pairs[0].sk).expect("signed")).expect("written");
        pointer.date = "2098-01-01".parse().expect("a date");
        let seen = SeenFolder::of(Some(&state)).expect("a folder");
        let found = SignedPointer { pointer: &pointer, text: "" };
        seen.advance("x", &stranger.clone().into(), &stranger, &found).expect("noted");
        let remote = RemoteOptions { channel_state: Some(state), ..RemoteOptions::default() };
        let trust = Some(Trust::Keys(honest.into()));
        let image = ImageSource { image: ImageLocation { place: ImagePlace::File(place), trust }, remote };
        let resolved = resolve(&image).expect("believed");
        assert_eq!(resolved.image.trust, Some(Trust::Name(pointer.image)));
    }

    #[test]
    fn pointers_lie_beside_images_and_point_from_there() {
        for (word, pointer, channel, url, image) in [
            ("/srv/a.hsi", "/srv/a.hsi.minisig", "a.hsi", None, "/srv/a.hsi"),
            ("/srv/stable.minisig", "/srv/stable.minisig", "stable", Some("a.hsi"), "/srv/a.hsi"),
            ("https://h/d/a.hsi", "https://h/d/a.hsi.minisig", "a.hsi", None, "https://h/d/a.hsi"),
            (
                "https://h/d/stable.minisig",
                "https://h/d/stable.minisig",
                "stable",
                Some("e/a.hsi"),
                "https://h/d/e/a.hsi",
            ),
            (
                "https://h/d/stable.minisig",
                "https://h/d/stable.minisig",
                "stable",
                Some("/a.hsi"),
                "https://h/a.hsi",
            ),
            ("/srv/s.minisig", "/srv/s.minisig", "s", Some("https://h/a.hsi"), "https://h/a.hsi"),
        ] {
            let found = pointer_place(&place(word)).expect(word);
            assert_eq!(found, place(pointer), "{word}");
            assert_eq!(names(&found).expect(word), (pointer.to_owned(), channel.to_owned()));
            assert_eq!(target(&found, url).expect(word), place(image), "{word}");
        }
        assert_eq!(pointer_place(&place("s3://b/d/a.hsi")).expect("one"), place("s3://b/d/a.hsi.minisig"));
        assert_eq!(
            target(&place("s3://b/d/s.minisig"), Some("e/a.hsi")).expect("one"),
            place("s3://b/d/e/a.hsi")
        );
        assert!(pointer_place(&place("oci://h/a:stable")).is_err());
        assert!(names(&place("https://h/.minisig")).is_err());
        assert!(target(&place("https://h/s.minisig"), Some("ftp://h/a")).is_err());
    }
}
