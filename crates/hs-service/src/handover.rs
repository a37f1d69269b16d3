//! What passes between a server and its supervisor: JSON messages with descriptors, over a socket that only
//! they have.
//!
//! The server says what is to be kept of it, and that it works. The server that is started after it died is
//! told what was kept.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_fuse::Abort;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Descriptors with one message: a session has one for each of its threads at most, a server one for each
/// address.
const MOST_DESCRIPTORS: usize = 64;
/// Longer than any message: two paths and some numbers.
const MOST_BYTES: usize = 64 << 10;

/// What is said.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The descriptors that come along, and what there is to say of them, are kept under this name, until
    /// others are.
    Keep {
        /// What they are for.
        name: String,
        /// What the next server needs to know of them.
        about: Value,
    },
    /// The server works.
    Ready {
        /// A line for a service manager.
        status: String,
        /// What a parent that waits prints; null without `--json`.
        report: Value,
    },
    /// The server begins to end.
    Ending,
    /// To a server: it may begin. The processes of those before that have not let go of everything yet come
    /// along.
    Begin {
        /// Servers before this one that died.
        restarts: u32,
        /// Requests that waited for the servers before are answered with an error.
        refuse_waiting: bool,
    },
}

/// Sends a message with descriptors.
pub(super) fn send(
    socket: &OwnedFd,
    message: &Message,
    descriptors: &[BorrowedFd<'_>],
) -> anyhow::Result<()> {
    send_with(socket, message, descriptors, SendFlags::empty())
}

fn send_with(
    socket: &OwnedFd,
    message: &Message,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> anyhow::Result<()> {
    if descriptors.len() > MOST_DESCRIPTORS {
        bail!(
            "{} descriptors are more than can be handed over, which is {MOST_DESCRIPTORS}",
            descriptors.len()
        );
    }
    let text = serde_json::to_vec(message).context("write a message")?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, flags).context("send a message")?;
    Ok(())
}

/// The next message, and what came with it. Nothing when the other side is gone.
///
/// # Errors
/// [`Errno::AGAIN`] when `flags` says not to wait and there is none; others when the socket fails.
pub(super) fn receive(socket: &OwnedFd, flags: RecvFlags) -> Result<Option<(Message, Vec<OwnedFd>)>, Errno> {
    let mut text = vec![0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            // It was gone before it had read everything that was said to it.
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        log::error!("descriptors that were handed over are lost: this process may open no more (ulimit -n)");
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&text[..received.bytes]).map_err(|_| Errno::BADMSG)?;
    Ok(Some((message, descriptors)))
}

/// The name of the control files that end what a server shows, whether it lives or not.
pub const ABORT: &str = "abort";

/// What servers that died have left for the next one.
#[derive(Debug, Default)]
pub struct HandedOver(BTreeMap<String, (Value, Vec<OwnedFd>)>);

impl HandedOver {
    pub(super) fn put(&mut self, name: String, about: Value, descriptors: Vec<OwnedFd>) {
        self.0.insert(name, (about, descriptors));
    }

    /// Ends what is shown: a reader that waits for it gets an error, and no next server can go on with it.
    pub(super) fn abort(&self) {
        let controls = self.0.get(ABORT).into_iter().flat_map(|(_, controls)| controls);
        controls.for_each(|control| Abort::by(control.as_fd()));
    }

    /// Says all of it to the next server.
    pub(super) fn send_all(&self, socket: &OwnedFd) -> anyhow::Result<()> {
        for (name, (about, descriptors)) in &self.0 {
            let message = Message::Keep { name: name.clone(), about: about.clone() };
            let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            send(socket, &message, &descriptors)?;
        }
        Ok(())
    }

    /// What was kept under `name`.
    ///
    /// # Errors
    /// When it is not what this program says there.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> anyhow::Result<Option<(T, Vec<OwnedFd>)>> {
        let Some((about, descriptors)) = self.0.remove(name) else { return Ok(None) };
        let about =
            serde_json::from_value(about).with_context(|| format!("understand what was kept of {name}"))?;
        Ok(Some((about, descriptors)))
    }
}

/// The supervisor, as its server sees it; or none.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<OwnedFd>,
    /// Servers before this one that died.
    restarts: u32,
    refuse_waiting: bool,
    /// Those before that have not let go of everything yet.
    predecessors: Vec<OwnedFd>,
}

impl Supervisor {
    /// The one at the other end of `--supervisor-fd`, and what it kept of servers before this one.
    ///
    /// # Errors
    /// When it says something else.
    pub fn at(fd: Option<i32>) -> anyhow::Result<(Self, HandedOver)> {
        let mut kept = HandedOver::default();
        let Some(fd) = fd else { return Ok((Self::default(), kept)) };
        // SAFETY: the supervisor, this program too, passed the descriptor for this alone.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).context("find the supervisor")?;
        loop {
            match receive(&socket, RecvFlags::empty()).context("hear the supervisor")? {
                Some((Message::Keep { name, about }, descriptors)) => kept.put(name, about, descriptors),
                Some((Message::Begin { restarts, refuse_waiting }, predecessors)) => {
                    return Ok((Self { socket: Some(socket), restarts, refuse_waiting, predecessors }, kept));
                }
                Some(_) | None => bail!("the supervisor says nothing that a server understands"),
            }
        }
    }

    /// Its process, if there is one.
    pub fn process(&self) -> Option<u32> {
        let parent = rustix::process::getppid().filter(|_| self.socket.is_some());
        parent.map(|parent| parent.as_raw_nonzero().get().unsigned_abs())
    }

    /// Servers before this one that died.
    pub const fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Whether requests that waited for the servers before are answered with an error.
    pub const fn refuses_waiting(&self) -> bool {
        self.refuse_waiting
    }

    /// Waits until the servers before this one have let go of everything: a thread of theirs may have been
    /// waiting for its own disk, which only this one can answer. Call it when the disk is served again.
    /// Whether there was one: it may have taken requests until now.
    pub fn wait_for_predecessors(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        for predecessor in &self.predecessors {
            if !is_gone_within(predecessor, end.saturating_duration_since(Instant::now())) {
                log::warn!("a server before this one has not ended after {} s", patience.as_secs());
            }
        }
        !self.predecessors.is_empty()
    }

    /// Has it keep `descriptors` for the next server, which is told `about` them. Where it is gone, a server
    /// that goes on for another still does so: readers wait for it.
    ///
    /// # Errors
    /// When it does not take them.
    pub fn keep<'a>(
        &self,
        name: &str,
        about: impl Serialize,
        descriptors: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> anyhow::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let message = Message::Keep { name: name.to_owned(), about: serde_json::to_value(about)? };
        match send(socket, &message, &descriptors.collect::<Vec<_>>()) {
            Err(error) if self.restarts > 0 && is_of_the_dead(&error) => {
                log::warn!("no supervisor keeps '{name}': {error:#}");
                Ok(())
            }
            sent => sent.context("tell the supervisor"),
        }
    }

    /// The same for one that may be gone, or may not listen: what is served does not depend on it.
    pub(super) fn keep_if_it_can(&self, name: &str, about: &Value, descriptors: &[OwnedFd]) {
        let Some(socket) = &self.socket else { return };
        let message = Message::Keep { name: name.to_owned(), about: about.clone() };
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        if let Err(error) = send_with(socket, &message, &descriptors, SendFlags::DONTWAIT) {
            log::info!("no other process keeps '{name}': {error:#}");
        }
    }

    /// Tells it that everything is served, and what a parent that waits for that prints.
    pub fn ready(&self, status: &str, report: &Value) {
        self.tell(&Message::Ready { status: status.to_owned(), report: report.clone() });
    }

    /// Tells it that the end begins.
    pub fn ending(&self) {
        self.tell(&Message::Ending);
    }

    fn tell(&self, message: &Message) {
        if let Some(socket) = &self.socket
            && let Err(error) = send(socket, message, &[])
        {
            log::warn!("there is no supervisor any more: {error:#}");
        }
    }
}

/// Whether a message found no process any more.
pub(super) fn is_of_the_dead(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(&(Errno::PIPE | Errno::CONNRESET)))
}

/// Whether the process of a descriptor ends within this time.
pub(super) fn is_gone_within(process: &OwnedFd, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).ok();
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], timeout.as_ref()), Ok(1..))
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn sockets() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
    }

    /// What one server has kept, the next one gets, with descriptors of the same things.
    #[test]
    fn what_was_kept_reaches_the_next_server() {
        let (ours, theirs) = sockets();
        let server = Supervisor { socket: Some(theirs), ..Supervisor::default() };
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        server.keep("pipe", (7, "seven"), [writer.as_fd()].into_iter()).expect("kept");
        server.keep("pipe", (8, "eight"), [writer.as_fd()].into_iter()).expect("kept again");
        server.ready("all well", &Value::from(7));
        drop((server, writer));

        let mut kept = HandedOver::default();
        let mut ready = None;
        while let Some((message, descriptors)) = receive(&ours, RecvFlags::empty()).expect("received") {
            match message {
                Message::Keep { name, about } => kept.put(name, about, descriptors),
                Message::Ready { status, report } => ready = Some((status, report)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ready, Some(("all well".to_owned(), Value::from(7))));

        let (ours, theirs) = sockets();
        kept.send_all(&ours).expect("sent");
        send(&ours, &Message::Begin { restarts: 3, refuse_waiting: false }, &[]).expect("sent");
        drop(kept);
        let (server, mut kept) = Supervisor::at(Some(theirs.into_raw_fd())).expect("begins");
        assert_eq!(server.restarts(), 3);
        let (about, descriptors): ((u8, String), _) = kept.take("pipe").expect("understood").expect("there");
        assert_eq!(about, (8, "eight".to_owned()));
        rustix::io::write(&descriptors[0], b"x").expect("the pipe is alive");
        drop(descriptors);
        let mut bytes = [0; 2];
        assert_eq!(
            rustix::io::read(&reader, &mut bytes).expect("read"),
            1,
            "then it ends: nobody else has it"
        );
        assert_eq!(rustix::io::read(&reader, &mut bytes).expect("read"), 0);
        assert!(kept.take::<u8>("pipe").expect("understood").is_none());
    }

    /// Readers wait for one that goes on for another; of the first no program knows.
    #[test]
    fn a_server_that_goes_on_for_another_needs_no_supervisor() {
        for (restarts, goes_on) in [(0, false), (1, true)] {
            let (ours, theirs) = sockets();
            drop(ours);
            let server = Supervisor { socket: Some(theirs), restarts, ..Supervisor::default() };
            assert_eq!(server.keep("pipe", 7, std::iter::empty()).is_ok(), goes_on, "{restarts} before it");
        }
    }

    #[test]
    fn noise_is_refused() {
        let (ours, theirs) = sockets();
        rustix::io::write(&ours, b"{}").expect("written");
        assert!(Supervisor::at(Some(theirs.into_raw_fd())).is_err());
        let (ours, theirs) = sockets();
        drop(ours);
        assert!(Supervisor::at(Some(theirs.into_raw_fd())).is_err());
        let (nobody, _) = Supervisor::at(None).expect("nobody");
        nobody.ready("unheard", &Value::Null);
        assert_eq!((nobody.process(), nobody.restarts()), (None, 0));
    }
}
