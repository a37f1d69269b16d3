//! The front ends, as the suite sees them: they show the disk of an image, and readers read it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_fill::{Attachment, FillOptions, OpenedFile, SelfFilling, Subject};
use hs_fuse::ServedImage;
use hs_image::Image;
use hs_linux::SocketFile;
use hs_nbd::{Export, NbdAddress, NbdListeners, NbdOptions, NbdServer, NbdTls};
use hs_serve::{ServeConfig, ServedDisk};
use hs_store::Store;
use hs_testing::machine_has;
use hs_vhost::{VhostOptions, VhostServer};

use crate::certificates;
use crate::filling::FillingFolder;
use crate::guest::Guest;
use crate::nbd_client::NbdClient;

/// A front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// disk.img, through the kernel's page cache.
    Fuse,
    /// A file that fills itself.
    Filling,
    /// NBD with replies that are whole.
    NbdSimple,
    /// NBD with replies in chunks.
    NbdStructured,
    /// The same under TLS, where both sides have certificates.
    NbdTls,
    /// A device of guests.
    Vhost,
}

/// Those that this machine has.
pub(crate) fn fronts() -> Vec<Front> {
    let fuse = machine_has(&["/dev/fuse"]).then_some(Front::Fuse);
    let filling = FillingFolder::new().map(|_| Front::Filling);
    let tls = certificates::are_to_be_had().then_some(Front::NbdTls);
    fuse.into_iter()
        .chain(filling)
        .chain([Front::NbdSimple, Front::NbdStructured, Front::Vhost])
        .chain(tls)
        .collect()
}

/// The disk of an image, shown. The fields are dropped in order.
pub(crate) struct Shown {
    shown_by: ShownBy,
    folder: tempfile::TempDir,
    front: Front,
}

enum ShownBy {
    Fuse(Box<ServedImage>),
    Filling(#[expect(dead_code, reason = "held for its threads")] Box<SelfFilling>, FillingFolder),
    Nbd(Box<(NbdServer, Arc<ServedDisk>)>),
    Vhost(#[expect(dead_code, reason = "held for its threads")] VhostServer, Arc<ServedDisk>),
}

impl Front {
    pub(crate) fn show(self, store: Arc<dyn Store>, config: &ServeConfig) -> Shown {
        let folder = tempfile::tempdir().expect("a folder");
        let shown_by = if self == Self::Fuse {
            ShownBy::Fuse(Box::new(ServedImage::start(store, folder.path(), config, None).expect("shown")))
        } else if self == Self::Filling {
            let folder = FillingFolder::new().expect("there was one");
            ShownBy::Filling(Box::new(fill(store, &folder.path().join("disk.img"), config)), folder)
        } else if self == Self::Vhost {
            let disk = config.open(store, None).expect("opened");
            let socket = SocketFile::bind(&folder.path().join("socket")).expect("listens");
            let server = VhostServer::start(Arc::clone(&disk), None, socket, VhostOptions::default());
            ShownBy::Vhost(server.expect("served"), disk)
        } else {
            let disk = config.open(store, None).expect("opened");
            let export = Export {
                name: "disk".into(),
                description: "a sample".into(),
                disk: Arc::clone(&disk).into(),
            };
            let address = NbdAddress::Unix(folder.path().join("socket"));
            let tls = (self == Self::NbdTls).then(|| {
                NbdTls::load(certificates::folder(), true, true).expect("the certificates are usable")
            });
            let options = NbdOptions { tls, ..NbdOptions::default() };
            let listeners = NbdListeners::at(&[address]).expect("listens");
            let server = NbdServer::start(vec![export], listeners, options).expect("served");
            ShownBy::Nbd(Box::new((server, disk)))
        };
        Shown { shown_by, folder, front: self }
    }

    /// What is said of a read that begins at the end, or goes beyond it.
    pub(crate) fn refuses_past_end(self) -> bool {
        !matches!(self, Self::Fuse | Self::Filling)
    }
}

/// Only what is asked for is filled, and what is prefetched.
fn fill(store: Arc<dyn Store>, path: &Path, config: &ServeConfig) -> SelfFilling {
    let image = Image::open(Arc::clone(&store)).expect("an image");
    let subject = Subject {
        disk_digest: image.disk_digest(),
        image_name: image.image_digest(),
        disk_bytes: image.disk_bytes(),
        image: store.name().into(),
        mtime: Default::default(),
        access: Default::default(),
    };
    let Ok(OpenedFile::Incomplete(attachment)) = Attachment::open(path, &subject) else {
        panic!("a new file")
    };
    SelfFilling::start(store, config, attachment, FillOptions { hydrate: false }).expect("started")
}

impl Shown {
    /// Another reader.
    pub(crate) fn reader(&self) -> Reader {
        match &self.shown_by {
            ShownBy::Fuse(_) => {
                Reader::File(File::open(self.folder.path().join("disk.img")).expect("opened"))
            }
            ShownBy::Filling(_, folder) => {
                Reader::File(File::open(folder.path().join("disk.img")).expect("opened"))
            }
            ShownBy::Vhost(..) => {
                Reader::Guest(Box::new(Guest::served(&self.socket(), 1).expect("connected")))
            }
            ShownBy::Nbd(_) => {
                let client = match self.front {
                    Front::NbdTls => {
                        NbdClient::open_tls(&self.socket(), "disk", &certificates::client_config())
                    }
                    front => NbdClient::open(&self.socket(), "disk", front == Front::NbdStructured),
                };
                Reader::Nbd(client.expect("connected"))
            }
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server, which only NBD has.
    pub(crate) fn server(&mut self) -> &mut NbdServer {
        match &mut self.shown_by {
            ShownBy::Nbd(served) => &mut served.0,
            ShownBy::Fuse(_) | ShownBy::Filling(..) | ShownBy::Vhost(..) => unreachable!("asked of NBD only"),
        }
    }

    /// The disk behind the front end.
    pub(crate) fn disk(&self) -> &ServedDisk {
        match &self.shown_by {
            ShownBy::Nbd(served) => &served.1,
            ShownBy::Fuse(served) => served.disk(),
            ShownBy::Vhost(_, disk) => disk,
            ShownBy::Filling(..) => unreachable!("asked of others only"),
        }
    }
}

/// One that reads the disk.
pub(crate) enum Reader {
    File(File),
    Nbd(NbdClient),
    Guest(Box<Guest>),
}

impl Reader {
    /// Bytes as far as there are any, or the number of the error.
    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, i32> {
        match self {
            Self::File(file) => {
                let mut found = vec![0xee; len as usize];
                let mut at = 0;
                while at < found.len() {
                    match file.read_at(&mut found[at..], offset + at as u64) {
                        Ok(0) => break,
                        Ok(count) => at += count,
                        Err(error) => return Err(error.raw_os_error().expect("the system's")),
                    }
                }
                found.truncate(at);
                Ok(found)
            }
            Self::Guest(guest) => guest.read(offset, len),
            Self::Nbd(client) => {
                client.read(offset, len).expect("the connection lives").map_err(|errno| errno as i32)
            }
        }
    }
}
