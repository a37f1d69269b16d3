//! A process beside a supervisor that keeps what that one keeps. Where supervisor and server die together, it
//! starts another supervisor, which goes on with the same descriptors; readers wait meanwhile.
//!
//! To the supervisor it is what that one is to its server, over the same messages ([`crate::handover`]). What
//! it keeps it may give to the service manager in turn ([`Manager::keep`]): then all three may die.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use serde_json::Value;

use crate::background::inherit;
use crate::handover::{HandedOver, Message, receive, send};
use crate::notify::Manager;

/// The names under which the service manager keeps a supervisor's things begin so: `keeper.KEY.`
const PREFIX: &str = "keeper.";
/// The socket to the supervisor: `link-0`, and a number more for each supervisor after the first.
const LINK: &str = "link-";
/// What was said of the descriptors of one name: `NAME~about` and `NAME~0`, `NAME~1`, …
const ABOUT: &str = "about";
/// The longest description that is read.
const MOST_ABOUT_BYTES: u64 = 64 << 10;

/// The keeper of one supervisor.
pub struct Keeper {
    /// Distinguishes it from others of this process.
    key: String,
    socket: OwnedFd,
    /// The number of the socket's name in the store of the service manager.
    link: u64,
    kept: HandedOver,
    /// Names in the store of the service manager.
    stored: BTreeMap<String, usize>,
    manager: Arc<Manager>,
    /// Supervisors that died.
    deaths: u32,
}

/// The supervisor's end of the socket, for the command that starts it.
pub struct Offer(OwnedFd);

impl Offer {
    /// The flag that tells of it.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--keeper-fd={}", self.0.as_raw_fd())
    }

    /// Lets the command have it.
    pub fn go_with(&self, command: &mut Command) {
        inherit(command, &[self.0.as_fd()]);
    }
}

impl Keeper {
    /// A keeper, and what its supervisor is started with. `key` is a word of letters and digits.
    ///
    /// # Errors
    /// When there are no descriptors for it.
    pub fn new(key: &str, manager: Arc<Manager>) -> anyhow::Result<(Self, Offer)> {
        let (socket, theirs) = sockets()?;
        let (kept, stored) = (HandedOver::default(), BTreeMap::new());
        let keeper = Self { key: key.to_owned(), socket, link: 0, kept, stored, manager, deaths: 0 };
        keeper.store_link();
        keeper.begin()?;
        Ok((keeper, Offer(theirs)))
    }

    /// What the next supervisor is started with, when the one before has died: it gets what was kept.
    ///
    /// # Errors
    /// When there are no descriptors for it.
    pub fn offer_again(&mut self) -> anyhow::Result<Offer> {
        let theirs;
        (self.socket, theirs) = sockets()?;
        self.deaths += 1;
        self.link += 1;
        // The new socket is there before the old one goes, and before a supervisor has its other end: a
        // process that is killed at any time leaves a socket, and the newest is the one that counts.
        self.store_link();
        self.manager.forget(&self.name(&link(self.link - 1)));
        self.begin()?;
        Ok(Offer(theirs))
    }

    fn begin(&self) -> anyhow::Result<()> {
        self.kept.send_all(&self.socket)?;
        send(&self.socket, &Message::Begin { restarts: self.deaths, refuse_waiting: false }, &[])
    }

    /// Has the service manager keep the socket too.
    fn store_link(&self) {
        self.manager.keep(&self.name(&link(self.link)), self.socket.as_fd());
    }

    /// Keeps what the supervisor says, until that is gone.
    pub fn hear_all(&mut self) {
        loop {
            match receive(&self.socket, RecvFlags::empty()) {
                Ok(Some((Message::Keep { name, about }, descriptors))) => {
                    if let Err(error) = self.store(&name, &about, &descriptors) {
                        log::info!("the service manager does not keep '{name}': {error:#}");
                    }
                    self.kept.put(name, about, descriptors);
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => {
                    log::error!("a supervisor is not understood: {error}");
                    return;
                }
            }
        }
    }

    fn name(&self, what: &str) -> String {
        format!("{PREFIX}{}.{what}", self.key)
    }

    fn store(&mut self, name: &str, about: &Value, descriptors: &[OwnedFd]) -> anyhow::Result<()> {
        if !self.manager.is_there() {
            return Ok(());
        }
        self.forget(name);
        let mut memory = File::from(memfd_create("headstart-kept", MemfdFlags::CLOEXEC)?);
        memory.write_all(&serde_json::to_vec(about)?)?;
        self.manager.keep(&self.name(&format!("{name}~{ABOUT}")), memory.as_fd());
        for (number, descriptor) in descriptors.iter().enumerate() {
            self.manager.keep(&self.name(&format!("{name}~{number}")), descriptor.as_fd());
        }
        self.stored.insert(name.to_owned(), descriptors.len());
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        let Some(descriptors) = self.stored.remove(name) else { return };
        self.manager.forget(&self.name(&format!("{name}~{ABOUT}")));
        for number in 0..descriptors {
            self.manager.forget(&self.name(&format!("{name}~{number}")));
        }
    }

    /// Keeps nothing any more: what the supervisor served has come to its end.
    pub fn end(mut self) {
        for name in self.stored.keys().cloned().collect::<Vec<_>>() {
            self.forget(&name);
        }
        self.manager.forget(&self.name(&link(self.link)));
    }

    /// The keepers whose things the service manager has kept for this process, by their keys; and the rest.
    /// Where the socket to a supervisor is missing, its things are of no use, and the manager need not keep
    /// them: while it has them, what reads from a mount without a server waits.
    pub fn of_manager(
        kept: Vec<(String, OwnedFd)>,
        manager: &Arc<Manager>,
    ) -> (BTreeMap<String, Self>, Vec<(String, OwnedFd)>) {
        let (mut found, mut rest) = (BTreeMap::<String, BTreeMap<String, OwnedFd>>::new(), Vec::new());
        for (name, descriptor) in kept {
            match name.strip_prefix(PREFIX).and_then(|name| name.split_once('.')) {
                Some((key, what)) => {
                    found.entry(key.to_owned()).or_default().insert(what.to_owned(), descriptor);
                }
                None => rest.push((name, descriptor)),
            }
        }
        let keepers = found.into_iter().filter_map(|(key, things)| {
            let names: Vec<String> = things.keys().map(|what| format!("{PREFIX}{key}.{what}")).collect();
            Self::restored(&key, things, manager)
                .inspect_err(|error| {
                    log::error!("what was kept of {key} is of no use: {error:#}");
                    names.iter().for_each(|name| manager.forget(name));
                })
                .ok()
        });
        (keepers.map(|keeper| (keeper.key.clone(), keeper)).collect(), rest)
    }

    fn restored(
        key: &str,
        mut things: BTreeMap<String, OwnedFd>,
        manager: &Arc<Manager>,
    ) -> anyhow::Result<Self> {
        let links = things.keys().filter_map(|name| name.strip_prefix(LINK)?.parse().ok());
        let Some(newest) = links.max() else { bail!("the socket is missing") };
        let socket = things.remove(&link(newest)).context("it was there")?;
        let (mut kept, mut stored) = (HandedOver::default(), BTreeMap::new());
        let names: Vec<String> = things
            .keys()
            .filter_map(|name| name.strip_suffix(&format!("~{ABOUT}")))
            .map(str::to_owned)
            .collect();
        for name in names {
            let about = things.remove(&format!("{name}~{ABOUT}")).context("it was there")?;
            let mut text = Vec::new();
            let mut about = File::from(about);
            about.rewind()?;
            about.take(MOST_ABOUT_BYTES).read_to_end(&mut text)?;
            let about = serde_json::from_slice(&text).with_context(|| format!("what was said of {name}"))?;
            let descriptors: Vec<OwnedFd> =
                (0..).map_while(|number| things.remove(&format!("{name}~{number}"))).collect();
            stored.insert(name.clone(), descriptors.len());
            kept.put(name, about, descriptors);
        }
        let keeper = Self {
            key: key.to_owned(),
            socket,
            link: newest,
            kept,
            stored,
            manager: Arc::clone(manager),
            deaths: 0,
        };
        // Sockets to supervisors before this one, and descriptors without a description.
        things.keys().for_each(|what| keeper.manager.forget(&keeper.name(what)));
        Ok(keeper)
    }
}

/// The name of a socket to a supervisor.
fn link(number: u64) -> String {
    format!("{LINK}{number}")
}

fn sockets() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("make a socket for the supervisor")
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::handover::Supervisor;

    /// A service manager, and what it is told.
    struct Listening {
        manager: Arc<Manager>,
        socket: UnixDatagram,
        _folder: tempfile::TempDir,
    }

    impl Listening {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("notify");
            let socket = UnixDatagram::bind(&path).expect("bound");
            socket.set_nonblocking(true).expect("set");
            let manager = Arc::new(Manager::at(path.as_os_str()));
            Self { manager, socket, _folder: folder }
        }

        /// What it was told since it was last asked: `+NAME` is kept, `-NAME` is forgotten.
        fn heard(&self) -> Vec<String> {
            let mut heard = Vec::new();
            let mut bytes = [0; 256];
            while let Ok(length) = self.socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let (_, name) = text.split_once("FDNAME=").expect("a name");
                let sign = if text.starts_with("FDSTOREREMOVE=1") { '-' } else { '+' };
                heard.push(format!("{sign}{name}"));
            }
            heard
        }
    }

    fn kept(names: &[&str]) -> Vec<(String, OwnedFd)> {
        let memory = |text: &str| {
            let mut memory = File::from(memfd_create("test", MemfdFlags::CLOEXEC).expect("memory"));
            memory.write_all(text.as_bytes()).expect("written");
            OwnedFd::from(memory)
        };
        names.iter().map(|name| ((*name).to_owned(), memory("null"))).collect()
    }

    #[test]
    fn what_has_lost_its_socket_is_forgotten() {
        let listening = Listening::new();
        let names = ["keeper.a.session~0", "keeper.a.session~1", "keeper.a.session~about", "socket"];
        let (keepers, rest) = Keeper::of_manager(kept(&names), &listening.manager);
        assert!(keepers.is_empty());
        assert_eq!(rest.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["socket"]);
        let forgotten = ["-keeper.a.session~0", "-keeper.a.session~1", "-keeper.a.session~about"];
        assert_eq!(listening.heard(), forgotten);
    }

    #[test]
    fn of_two_sockets_the_newest_counts_and_all_else_is_forgotten() {
        let listening = Listening::new();
        let names = [
            "keeper.a.link-9",
            "keeper.a.link-10",
            "keeper.a.session~about",
            "keeper.a.session~0",
            // The one between was lost, and nothing describes the last.
            "keeper.a.session~2",
            "keeper.a.other~0",
        ];
        let (mut keepers, _) = Keeper::of_manager(kept(&names), &listening.manager);
        assert_eq!(listening.heard(), ["-keeper.a.link-9", "-keeper.a.other~0", "-keeper.a.session~2"]);
        let mut keeper = keepers.remove("a").expect("kept");
        let _offer = keeper.offer_again().expect("offered");
        // At each moment there is a socket.
        assert_eq!(listening.heard(), ["+keeper.a.link-11", "-keeper.a.link-10"]);
        keeper.end();
        assert_eq!(
            listening.heard(),
            ["-keeper.a.session~about", "-keeper.a.session~0", "-keeper.a.link-11"]
        );
    }

    /// The manager has the socket before a supervisor has its other end: nothing is kept without it.
    #[test]
    fn the_socket_is_kept_before_what_a_supervisor_says() {
        let listening = Listening::new();
        let (mut keeper, offer) = Keeper::new("a", Arc::clone(&listening.manager)).expect("a keeper");
        assert_eq!(listening.heard(), ["+keeper.a.link-0"]);
        let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
        let (supervisor, _) = Supervisor::at(Some(offer.0.into_raw_fd())).expect("begun");
        supervisor.keep("session", 7, [reader.as_fd()].into_iter()).expect("said");
        drop(supervisor);
        keeper.hear_all();
        assert_eq!(listening.heard(), ["+keeper.a.session~about", "+keeper.a.session~0"]);
        keeper.end();
        assert_eq!(listening.heard(), ["-keeper.a.session~about", "-keeper.a.session~0", "-keeper.a.link-0"]);
    }
}
