//! The process that holds the fanotify group when the server dies.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_fill::{
    Attachment, FillError, Handover, Left, Marker, OpenedFile, Subject, Survivors, deny_events, look_at,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::Attach;
use super::control::{Asking, Control, Request, ask};
use super::guarded::Guarded;
use super::process::{Server, how};
use super::report::{Behind, Report};
use super::standby::Standby;
use hs_output::log_output;
use hs_service::background::Parent;
use hs_service::backoff::{Backoff, Death};
use hs_service::careful;
use hs_service::ending::EndsEarly;
use hs_service::notify::{self, Manager};
use hs_service::signals::Ends;
use hs_start::open::open_image;

/// So many servers in a row may be killed before they fill. More deaths are a fault that does not go away.
const MOST_EARLY_DEATHS: u32 = 20;

/// How long the processes of a guard that answers no more may take to let its file go.
const LEAVES: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// Names under which the service manager keeps [`Attachment::descriptors`].
const KEPT: [&str; 4] = ["headstart-group", "headstart-file", "headstart-sidecar", "headstart-ledger"];

/// Attaches the file, and guards it until it is complete or a signal comes. `arguments` are those of the
/// program.
pub(super) fn guard(args: &Attach, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    let signals = Ends::block()?;
    let parent = args.ready_fd.map(Parent::at).transpose()?;
    // The opening of an image may wait for a network for long.
    let early = EndsEarly::watch(Some(&signals), || {})?;
    let image = open_image(&args.image)?;
    let subject = Subject { access: args.access, ..args.image.subject(&image)? };
    drop(image);
    early.end();
    let name = args.file.display();
    let report = Report { args, quiet };
    if let Some(attachment) = kept(args, &subject) {
        log::warn!("{name}: what the service manager has kept of it is guarded on");
        return go_on(Guarded::new(attachment), arguments, &signals, &report);
    }
    let began = Instant::now();
    let attachment = loop {
        match Attachment::open(&args.file, &subject) {
            Ok(OpenedFile::Incomplete(attachment)) => break Guarded::new(attachment),
            Ok(OpenedFile::Complete) => return report.is_complete(parent),
            // The file is attached already: the command succeeds as soon as there is a server.
            Err(error @ FillError::Attached { .. }) => {
                refuse_another(args, &subject)?;
                if ask(&args.file, Request::Start)? {
                    return report.was_attached(parent);
                }
                if began.elapsed() >= LEAVES {
                    return Err(error.into());
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error.into()),
        }
    };
    careful::take_care();
    let control = Control::listen(attachment.path())?;
    let in_background = parent.is_some();
    let mut guard = Guard::new(attachment, control, arguments, in_background)?;
    guard.server = Some(guard.start()?);
    let manager = if parent.is_some() { Manager::none() } else { Manager::of_this_process() };
    guard.run(&signals, parent, &manager, Some(&report))
}

/// Refuses a file that is attached as the disk of another image, and one that has no name any more.
fn refuse_another(args: &Attach, subject: &Subject) -> anyhow::Result<()> {
    let name = args.file.display();
    if !args.file.exists() {
        bail!(
            "{name} is not there, and a process has {name}.headstart: another attach makes the file just now, or it \
             was removed while it was attached (`headstart status {name}` says which process guards it: end that)"
        );
    }
    match look_at(&args.file) {
        Ok((_, Some(header))) => Ok(subject.refuse_another(&args.file, &header)?),
        // Its guard knows more.
        _ => Ok(()),
    }
}

/// The descriptors that the service manager has kept of this file. Its readers wait since all its processes
/// have died.
fn kept(args: &Attach, subject: &Subject) -> Option<Attachment> {
    let [group, writer, sidecar, ledger] = notify::all_of(notify::kept(), KEPT)?;
    let attachment = Attachment::resume(&args.file, Handover { group, writer, sidecar, ledger });
    match attachment.and_then(|attachment| attachment.check(subject).map(|()| attachment)) {
        Ok(attachment) => Some(attachment),
        Err(error) => {
            log::warn!("{}: what the service manager has kept is of no use: {error}", args.file.display());
            None
        }
    }
}

/// Guards a file with descriptors that the service manager has kept.
fn go_on(
    attachment: Guarded,
    arguments: &[OsString],
    signals: &Ends,
    report: &Report<'_>,
) -> anyhow::Result<i32> {
    careful::take_care();
    let control = Control::listen(attachment.path())?;
    let mut guard = Guard::new(attachment, control, arguments, false)?;
    guard.survivors.after_a_death(&guard.attachment, false);
    guard.server = Some(guard.start()?);
    guard.run(signals, None, &Manager::of_this_process(), Some(report))
}

/// Guards a file whose guard and server have died. Readers in the ledger go on waiting, for the next server.
pub(super) fn take_over(
    attachment: Guarded,
    arguments: &[OsString],
    in_background: bool,
    signals: &Ends,
) -> anyhow::Result<i32> {
    let control = Control::listen(attachment.path())?;
    let mut guard = Guard::new(attachment, control, arguments, in_background)?;
    guard.ready();
    let Left { waiting, denied } = guard.survivors.after_a_death(&guard.attachment, false);
    let name = guard.attachment.path().display().to_string();
    log::error!("{name}: of its readers, {waiting} go on waiting, and {denied} got an error");
    match guard.start() {
        Ok(server) => {
            log::warn!("{name}: process {} fills it from now on", server.id());
            guard.server = Some(server);
        }
        Err(error) => {
            let denied = guard.survivors.give_up(&guard.attachment);
            log::error!("{name}: {error:#}; {denied} readers got an error");
        }
    }
    // The service manager's own process has died: the descriptors that it keeps are for the process that it
    // starts next.
    guard.run(signals, None, &Manager::none(), None)
}

struct Guard<'a> {
    /// Before the standby, so that it is dropped first: the standby restores the mode that this withholds.
    attachment: Guarded,
    control: Control,
    arguments: &'a [OsString],
    in_background: bool,
    server: Option<Server>,
    /// Takes this process's place when it and the server are killed.
    standby: Standby,
    /// A client was told that the file can be read.
    was_ready: bool,
    survivors: Survivors,
    backoff: Backoff,
    /// When the next server is started, where one has died.
    start_at: Option<Instant>,
    /// Clients that wait until there is a server.
    asking: Vec<Asking>,
}

impl<'a> Guard<'a> {
    fn new(
        attachment: Guarded,
        control: Control,
        arguments: &'a [OsString],
        in_background: bool,
    ) -> anyhow::Result<Self> {
        let mut guard = Self {
            attachment,
            control,
            arguments,
            in_background,
            server: None,
            standby: Standby::new()?,
            was_ready: false,
            survivors: Survivors::default(),
            backoff: Backoff::default(),
            start_at: None,
            asking: Vec::new(),
        };
        guard.stand_by();
        Ok(guard)
    }

    fn behind(&self) -> Behind {
        Behind {
            guard: Some(std::process::id()),
            server: self.server.as_ref().map(Server::id),
            control_socket: Some(self.control.path().to_owned()),
            log: Some(log_output::place()),
        }
    }

    fn start(&self) -> anyhow::Result<Server> {
        let log_place = self.control.log_place();
        let log_file = self.in_background.then_some(&*log_place);
        Server::start(self.arguments, self.attachment.descriptors(), self.standby.alive(), log_file)
    }

    /// Starts a standby process. Without one the file is filled all the same.
    fn stand_by(&mut self) {
        let log_place = self.control.log_place();
        let log_file = self.in_background.then_some(&*log_place);
        if let Err(error) = self.standby.start(self.arguments, self.attachment.descriptors(), log_file) {
            log::warn!("{}: nothing stands by: {error:#}", self.attachment.path().display());
        }
    }

    /// Gives the descriptors to the service manager, if it keeps descriptors. Readers then wait for the next
    /// guard when all processes of the unit have died.
    fn have_kept(&self, manager: &Manager) {
        for (name, descriptor) in KEPT.into_iter().zip(self.attachment.descriptors()) {
            manager.keep(name, descriptor);
        }
    }

    /// From now on a client relies on the file.
    fn ready(&mut self) {
        self.was_ready = true;
        self.standby.tell_ready();
        if let Err(error) = self.attachment.allow_reading() {
            log::warn!("{}: its mode cannot be given back: {error}", self.attachment.path().display());
        }
    }

    fn run(
        mut self,
        signals: &Ends,
        mut parent: Option<Parent>,
        manager: &Manager,
        report: Option<&Report<'_>>,
    ) -> anyhow::Result<i32> {
        let name = self.attachment.path().display().to_string();
        loop {
            let Woken { signal, abandoned, said, ended, asked, events, alone } =
                self.wait(signals, parent.as_ref())?;
            if alone {
                log::warn!("{name}: the process that stood by has died: another one does");
                self.standby.lost();
                self.stand_by();
            }
            // The process that waits for the file has gone: it would not learn that the file fills.
            if signal || abandoned {
                KEPT.into_iter().for_each(|name| manager.forget(name));
                manager.stopping();
                return self.end();
            }
            if said && self.server.as_mut().is_some_and(Server::hear) {
                self.asking.drain(..).for_each(|asking| asking.answer(""));
                if !self.was_ready {
                    if parent.is_some() {
                        let place = self.control.log_place();
                        log_output::go_to_background(|| log_output::create_log(&place).ok())
                            .context("go to the background")?;
                    }
                    self.ready();
                    let object = report.map_or(Value::Null, |report| report.fills(|| self.behind()));
                    if parent.take().is_some_and(|parent| parent.tell(&object).is_err()) {
                        self.was_ready = false;
                        return self.end();
                    }
                    self.have_kept(manager);
                    if let (Some(report), false) = (report, self.in_background) {
                        report.say(format_args!("{name} fills itself; Ctrl-C ends it"), &object);
                    }
                    manager.ready(&format!("{name} fills itself"));
                }
            }
            if ended
                && let Some(server) = self.server.take()
                && let Some(code) = self.lost(server)?
            {
                if !self.was_ready && code != 0 {
                    self.attachment.discard_if_made();
                }
                KEPT.into_iter().for_each(|name| manager.forget(name));
                self.standby.dismiss();
                // Clients that wait for a server have a file that needs none.
                self.asking.drain(..).for_each(|asking| asking.answer(""));
                return match (report, code) {
                    // The file was complete before a client was told that it can be read.
                    (Some(report), 0) if !self.was_ready => report.is_complete(parent),
                    _ => Ok(code),
                };
            }
            if events {
                self.deny();
            }
            if self.start_at.is_some_and(|at| at <= Instant::now()) {
                self.start_if_there_is_none();
            }
            if asked && let Some(asking) = self.answer() {
                KEPT.into_iter().for_each(|name| manager.forget(name));
                manager.stopping();
                let ended = self.end();
                // Not earlier: the client may attach the file again at once.
                asking.answer("");
                return ended;
            }
        }
    }

    fn wait(&self, signals: &Ends, parent: Option<&Parent>) -> anyhow::Result<Woken> {
        let group = self.attachment.group();
        let mut events = vec![
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN),
        ];
        match &self.server {
            Some(server) => {
                events.push(PollFd::from_borrowed_fd(server.ended(), PollFlags::IN));
                events.extend(server.ready().map(|ready| PollFd::from_borrowed_fd(ready, PollFlags::IN)));
            }
            // The server answers the events, also when it is only starting; so does the next server when it
            // starts soon.
            None if self.start_at.is_some() => {}
            None => events.push(PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)),
        }
        let standby_at = events.len();
        let standby = self.standby.ended();
        events.extend(standby.map(|ended| PollFd::from_borrowed_fd(ended, PollFlags::IN)));
        events.extend(parent.map(|parent| PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::empty())));
        let pause = self.start_at.map(|at| at.saturating_duration_since(Instant::now()));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        match poll(&mut events, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the server"),
        }
        let happened = |number: usize| events.get(number).is_some_and(|event| !event.revents().is_empty());
        let has_server = self.server.is_some();
        Ok(Woken {
            signal: happened(0),
            // A pipe without a reader reports an error; poll(2) reports errors without being asked for them.
            abandoned: parent.is_some() && happened(events.len() - 1),
            asked: happened(1),
            ended: has_server && happened(2),
            alone: standby.is_some() && happened(standby_at),
            said: self.server.as_ref().is_some_and(|server| !server.is_ready()) && happened(3),
            events: !has_server && self.start_at.is_none() && happened(2),
        })
    }

    /// The server has ended. Gives an exit code when there is nothing left to guard.
    fn lost(&mut self, server: Server) -> anyhow::Result<Option<i32>> {
        let (id, was_ready, lived) = (server.id(), server.is_ready(), server.lived());
        let status = server.wait()?;
        if let Some(code) = self.done(status) {
            return Ok(Some(code));
        }
        let name = self.attachment.path().display();
        let why = format!("{name}: its server, process {id}, ended {}", how(status));
        let Left { waiting, denied } =
            self.survivors.after_a_death(&self.attachment, status.signal() != Some(libc::SIGKILL));
        log::error!("{why}; of its readers, {waiting} go on waiting, and {denied} got an error");
        // Those that are not ready count however they ended: otherwise readers could wait without end.
        let was_killed = was_ready && status.signal() == Some(libc::SIGKILL);
        let pause = self.backoff.died(Death { served: was_ready, lived, was_killed });
        // A server that was killed by a signal has not failed itself, unless every server gets a signal.
        let was_killed = status.signal().is_some() && self.backoff.failures() <= MOST_EARLY_DEATHS;
        if (was_ready && !status.success()) || was_killed {
            if !pause.is_zero() {
                log::warn!("{name}: the next server starts in {} ms", pause.as_millis());
            }
            self.start_at = Some(Instant::now() + pause);
        } else {
            self.is_not_filled(&why);
        }
        Ok(None)
    }

    /// Reports that no server follows.
    fn is_not_filled(&mut self, why: &str) {
        let name = self.attachment.path().display();
        let denied = self.survivors.give_up(&self.attachment);
        log::error!("{name}: {denied} readers got an error; reads of it fail until it is attached again");
        let trouble = format!("{why}: {name} is guarded, but not filled");
        self.asking.drain(..).for_each(|asking| asking.answer(&trouble));
    }

    fn done(&self, status: ExitStatus) -> Option<i32> {
        match self.attachment.marker() {
            Ok(Some(Marker::Complete(_))) => Some(0),
            // The server has reported it.
            Ok(Some(Marker::Contradicted(_))) => Some(1),
            // No client was told that the file can be read, and the server has already reported its error.
            _ if !self.was_ready => Some(status.code().unwrap_or(1)),
            _ => None,
        }
    }

    fn deny(&self) {
        let name = self.attachment.path().display();
        match deny_events(&self.attachment) {
            Ok(denied) => {
                if denied.readers > 0 {
                    log::warn!("{name}: {} readers got an error: the file has no server", denied.readers);
                }
                if let Some(process) = denied.writer {
                    log::error!("{name}: process {process} has written to it");
                }
            }
            Err(error) => log::warn!("{name}: a reader got an error: {error}"),
        }
    }

    /// Handles the requests of clients; returns the client that asks for the end.
    fn answer(&mut self) -> Option<Asking> {
        while let Some((request, asking)) = self.control.next() {
            if self.start_at.is_some() && request != Request::End {
                self.start_if_there_is_none();
            }
            match request {
                Request::End => return Some(asking),
                Request::Start if self.server.as_ref().is_some_and(Server::is_ready) => asking.answer(""),
                Request::Start => {
                    self.asking.push(asking);
                    self.start_if_there_is_none();
                }
                Request::Hydrate => match &mut self.server {
                    Some(server) => {
                        server.tell("hydrate");
                        asking.answer("");
                    }
                    None => asking.answer("the file has no server: attach it again"),
                },
            }
        }
        None
    }

    fn start_if_there_is_none(&mut self) {
        self.start_at = None;
        if self.server.is_some() {
            return;
        }
        match self.start() {
            Ok(server) => {
                log::warn!(
                    "{}: process {} fills it from now on",
                    self.attachment.path().display(),
                    server.id()
                );
                self.server = Some(server);
            }
            Err(error) => self.is_not_filled(&format!("{error:#}")),
        }
    }

    /// Ends the server and the guard. Before the file can be read a server handles no signals, perhaps for as
    /// long as it waits for a network. It is killed then; no client was told of a file that was made.
    fn end(mut self) -> anyhow::Result<i32> {
        let was_ready = self.was_ready;
        if let Some(server) = self.server.take() {
            if was_ready && server.is_ready() {
                server.terminate();
            } else {
                server.kill();
            }
            server.wait()?;
        }
        let denied = self.survivors.give_up(&self.attachment);
        if denied > 0 {
            log::warn!("{}: {denied} readers got an error", self.attachment.path().display());
        }
        if !was_ready && self.attachment.discard_if_made() {
            self.standby.dismiss();
            return Ok(1);
        }
        if !self.attachment.is_complete() {
            if let Err(error) = self.attachment.withhold() {
                log::warn!("{}: its mode cannot be changed: {error}", self.attachment.path().display());
            }
            // The kernel allows reads that still wait when the group is closed, so they get an error first.
            while deny_events(&self.attachment).is_ok_and(|denied| denied.readers > 0) {}
            log::warn!(
                "{} is not complete: from now on only root can read it, and root's reads give zeros where blocks \
                 are missing; attach it again, or hydrate it, before it is used",
                self.attachment.path().display()
            );
        }
        self.standby.dismiss();
        Ok(0)
    }
}

impl Drop for Guard<'_> {
    /// A guard that fails ends its server too, so that the standby takes over from both.
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
            let _ = server.wait();
        }
    }
}

/// The events that have woken the guard.
struct Woken {
    signal: bool,
    abandoned: bool,
    said: bool,
    ended: bool,
    asked: bool,
    events: bool,
    /// The standby has died.
    alone: bool,
}
