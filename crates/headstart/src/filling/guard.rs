//! The process that holds the group whatever becomes of the server.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::Context;
use hs_serve::self_filling::{Attachment, FillError, Found, Left, Marker, Survivors, deny_events};
use rustix::event::{PollFd, PollFlags, poll};

use super::control::{Asking, Control, Request, ask};
use super::process::{Server, how};
use crate::cli::Attach;
use crate::commands::open_image;
use crate::log_output;
use crate::service::background::Parent;
use crate::service::careful;
use crate::service::notify::Manager;
use crate::show;
use crate::signals::Ends;

/// So many servers in a row may be killed before they fill; more are a fault that does not go away.
const MOST_EARLY_DEATHS: u32 = 20;

/// Attaches the file, and guards it until it is complete or a signal comes. `arguments` are those of the program.
pub(crate) fn guard(args: &Attach, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    let signals = Ends::block()?;
    let parent = args.ready_fd.map(Parent::at).transpose()?;
    let image = open_image(&args.image)?;
    let subject = args.image.subject(&image)?;
    drop(image);
    let name = args.file.display();
    let attachment = match Attachment::open(&args.file, &subject) {
        Ok(Found::Incomplete(attachment)) => attachment,
        Ok(Found::Complete) => {
            say(quiet, format_args!("{name} is complete"));
            return told(parent);
        }
        // Whoever attaches what is attached has what he wants, as soon as there is a server.
        Err(error @ FillError::Attached { .. }) => {
            if !ask(&args.file, Request::Start)? {
                return Err(error.into());
            }
            say(quiet, format_args!("{name} was attached already"));
            return told(parent);
        }
        Err(error) => return Err(error.into()),
    };
    careful::take_care();
    let control = Control::listen(attachment.path())?;
    let in_background = parent.is_some();
    let mut guard = Guard {
        attachment,
        control,
        arguments,
        in_background,
        server: None,
        survivors: Survivors::default(),
        early_deaths: 0,
        asking: Vec::new(),
    };
    guard.server = Some(guard.start()?);
    guard.run(&signals, parent, quiet || args.ready_fd.is_some())
}

fn say(quiet: bool, what: std::fmt::Arguments<'_>) {
    if !quiet {
        show::note!("{what}");
    }
}

/// Whoever waits until the file can be read has what he wants; gives the exit code.
fn told(parent: Option<Parent>) -> anyhow::Result<i32> {
    parent.map_or(Ok(()), Parent::tell).map(|()| 0)
}

struct Guard<'a> {
    attachment: Attachment,
    control: Control,
    arguments: &'a [OsString],
    in_background: bool,
    server: Option<Server>,
    survivors: Survivors,
    /// Servers in a row that died before they filled.
    early_deaths: u32,
    /// Those who wait until there is a server.
    asking: Vec<Asking>,
}

impl Guard<'_> {
    fn start(&self) -> anyhow::Result<Server> {
        let log_place = self.control.log_place();
        let log_file = self.in_background.then_some(&*log_place);
        Server::start(self.arguments, self.attachment.descriptors(), log_file)
    }

    fn run(mut self, signals: &Ends, mut parent: Option<Parent>, quiet: bool) -> anyhow::Result<i32> {
        let manager = if parent.is_some() { Manager::none() } else { Manager::of_this_process() };
        let name = self.attachment.path().display().to_string();
        let mut was_ready = false;
        loop {
            let Woken { signal, abandoned, said, ended, asked, events } =
                self.wait(signals, parent.as_ref())?;
            // Whoever waits for the file to fill has gone: nobody would know that it does.
            if signal || abandoned {
                manager.stopping();
                return self.end(was_ready);
            }
            if said && self.server.as_mut().is_some_and(Server::hear) {
                self.asking.drain(..).for_each(|asking| asking.answer(""));
                if !was_ready {
                    was_ready = true;
                    if parent.is_some() {
                        let place = self.control.log_place();
                        log_output::go_to_background(|| {
                            File::options().create(true).append(true).open(place).ok()
                        })
                        .context("go to the background")?;
                    }
                    if parent.take().is_some_and(|parent| parent.tell().is_err()) {
                        return self.end(false);
                    }
                    say(quiet, format_args!("{name} fills itself; Ctrl-C ends it"));
                    manager.ready(&format!("{name} fills itself"));
                }
            }
            if ended
                && let Some(server) = self.server.take()
                && let Some(code) = self.lost(server, !was_ready)?
            {
                if !was_ready && code != 0 {
                    self.attachment.discard_if_made();
                }
                // Whoever waits for a server has a file that needs none.
                self.asking.drain(..).for_each(|asking| asking.answer(""));
                return if code == 0 { told(parent) } else { Ok(code) };
            }
            if events {
                self.deny();
            }
            if asked && let Some(asking) = self.answer() {
                manager.stopping();
                let ended = self.end(was_ready);
                // Not before: whoever asked may attach the file again at once.
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
            // While there is a server, what is asked is for it, even when it only begins.
            None => events.push(PollFd::from_borrowed_fd(group.as_fd(), PollFlags::IN)),
        }
        events.extend(parent.map(|parent| PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::empty())));
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the server"),
        }
        let happened = |number: usize| events.get(number).is_some_and(|event| !event.revents().is_empty());
        let has_server = self.server.is_some();
        Ok(Woken {
            signal: happened(0),
            // A pipe that nobody can read from any more is an error, which need not be asked for.
            abandoned: parent.is_some() && happened(events.len() - 1),
            asked: happened(1),
            ended: has_server && happened(2),
            said: self.server.as_ref().is_some_and(|server| !server.is_ready()) && happened(3),
            events: !has_server && happened(2),
        })
    }

    /// The server has ended. Gives an exit code when there is nothing left to guard.
    fn lost(&mut self, server: Server, is_first: bool) -> anyhow::Result<Option<i32>> {
        let (id, was_ready) = (server.id(), server.is_ready());
        let status = server.wait()?;
        if let Some(code) = self.done(status, is_first) {
            return Ok(Some(code));
        }
        let name = self.attachment.path().display();
        let why = format!("{name}: its server, process {id}, ended {}", how(status));
        let Left { waiting, denied } =
            self.survivors.after_a_death(&self.attachment, status.signal() != Some(libc::SIGKILL));
        log::error!("{why}; of its readers, {waiting} go on waiting, and {denied} got an error");
        // A signal is not the server's own failure, unless it always gets one.
        self.early_deaths = if was_ready { 0 } else { self.early_deaths + 1 };
        let was_killed = status.signal().is_some() && self.early_deaths <= MOST_EARLY_DEATHS;
        if (was_ready && !status.success()) || was_killed {
            match self.start() {
                Ok(server) => {
                    log::warn!("{name}: process {} fills it from now on", server.id());
                    self.server = Some(server);
                    return Ok(None);
                }
                Err(error) => log::error!("{name}: {error:#}"),
            }
        }
        let denied = self.survivors.give_up(&self.attachment);
        log::error!("{name}: {denied} readers got an error; reads of it fail until it is attached again");
        let trouble = format!("{why}: {name} is guarded, but not filled");
        self.asking.drain(..).for_each(|asking| asking.answer(&trouble));
        Ok(None)
    }

    fn done(&self, status: ExitStatus, is_first: bool) -> Option<i32> {
        match self.attachment.marker() {
            Ok(Some(Marker::Complete(_))) => Some(0),
            // Nobody has been told that the file can be read; what the server had to say it has said.
            _ if is_first => Some(status.code().unwrap_or(1)),
            _ => None,
        }
    }

    fn deny(&self) {
        let name = self.attachment.path().display();
        match deny_events(&self.attachment) {
            Ok(denied) => {
                if denied.readers > 0 {
                    log::warn!("{name}: {} readers got an error: nobody fills it", denied.readers);
                }
                if let Some(process) = denied.writer {
                    log::error!("{name}: process {process} has written to it");
                }
            }
            Err(error) => log::warn!("{name}: a reader got an error: {error}"),
        }
    }

    /// Does what is asked; gives who asks for the end.
    fn answer(&mut self) -> Option<Asking> {
        while let Some((request, asking)) = self.control.next() {
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
                    None => asking.answer("nobody fills it: attach it again"),
                },
            }
        }
        None
    }

    fn start_if_there_is_none(&mut self) {
        if self.server.is_some() {
            return;
        }
        match self.start() {
            Ok(server) => self.server = Some(server),
            Err(error) => self.asking.drain(..).for_each(|asking| asking.answer(&format!("{error:#}"))),
        }
    }

    /// Ends both. Before the file could be read a server looks at nothing, perhaps for as long as a network is waited for,
    /// and nobody was told of a file that was made.
    fn end(mut self, was_ready: bool) -> anyhow::Result<i32> {
        if let Some(server) = self.server.take() {
            if was_ready {
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
            return Ok(1);
        }
        if !matches!(self.attachment.marker(), Ok(Some(Marker::Complete(_)))) {
            log::warn!(
                "{} is not complete: from now on, reads of it give zeros where blocks are missing; attach it again, or \
                 hydrate it, before it is used",
                self.attachment.path().display()
            );
        }
        Ok(0)
    }
}

/// What has happened.
struct Woken {
    signal: bool,
    abandoned: bool,
    said: bool,
    ended: bool,
    asked: bool,
    events: bool,
}
