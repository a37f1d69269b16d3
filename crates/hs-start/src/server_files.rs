//! The files that a server of images has business with.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use hs_remote::Address;

use crate::image::ImageSource;
use crate::location::{ImagePlace, Trust};
use crate::remote::CacheFolder;
use hs_output::whole_file::make_private_folder;
use hs_service::confinement::Files;
use hs_service::run_folder::RunFolder;
use hs_trust::seen::SeenFolder;

/// What every server looks at: itself, the machine's memory and disks, and two devices.
const OF_ALL: [&str; 4] = ["/proc", "/sys", "/dev/null", "/dev/urandom"];
/// What finding a host and trusting its certificate takes: the resolver, its libraries, and authorities.
const OF_NETWORKS: [&str; 9] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/var/lib/ca-certificates",
];

/// Where an image comes from, as far as its server's files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A file.
    File,
    /// A web server.
    Web,
    /// A registry or a store of objects, whose logins lie anywhere and may need programs.
    WithLogins,
}

impl Origin {
    /// Of this image and its base, whichever takes more.
    pub fn of(image: &ImageSource) -> Self {
        let of_base = image.base().map_or(Self::File, |base| Self::of(&base));
        of_base.max(match (&image.image.place, &image.image.trust) {
            // A signature may say that the image lies anywhere.
            (_, Some(Trust::Keys(_))) => Self::WithLogins,
            (ImagePlace::Remote(Address::Web(_)), _) => Self::Web,
            (ImagePlace::Remote(_), _) => Self::WithLogins,
            (ImagePlace::File(_), _) => Self::File,
        })
    }
}

/// What a server of these images opens. Folders of its own are made, so that they can be named.
pub fn of_images<'a>(images: impl IntoIterator<Item = &'a ImageSource>) -> Files {
    let mut files = Files { read: OF_ALL.map(PathBuf::from).to_vec(), ..Files::default() };
    files.written.extend(RunFolder::offered().map(|folder| folder.path().to_owned()));
    let bases =
        |image: &'a ImageSource| std::iter::once(Cow::Borrowed(image)).chain(image.base().map(Cow::Owned));
    for image in images.into_iter().flat_map(bases) {
        let image = &*image;
        let origin = Origin::of(image);
        if let Some(path) = image.file() {
            files.read.push(path.to_owned());
        }
        if origin >= Origin::Web {
            let authorities = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os);
            files
                .read
                .extend(OF_NETWORKS.map(PathBuf::from).into_iter().chain(authorities.map(PathBuf::from)));
            let cache = CacheFolder::of(image.remote.disk_cache.as_deref());
            let seen = SeenFolder::of(image.remote.channel_state.as_deref());
            let own = cache
                .map(|folder| folder.path().to_owned())
                .into_iter()
                .chain(seen.map(SeenFolder::into_path));
            for folder in own {
                // One that cannot be made is complained about when it is used.
                let _ = make_private_folder(&folder);
                files.written.push(folder);
            }
        }
        if origin == Origin::WithLogins {
            files.read.push("/".into());
        }
    }
    files
}

/// The folder that a file lies in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
