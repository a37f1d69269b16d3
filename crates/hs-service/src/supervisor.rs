//! The supervisor: it starts the server, keeps what the server serves with, and starts the next one when that
//! dies.
//!
//! It does next to nothing, so that there is next to nothing that could kill it: descriptors come in, stay,
//! and go out to the next server. Readers of a FUSE mount wait while its descriptors are open, clients of a
//! listening socket likewise.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use crate::background::{LogFile, Parent, again, inherit, inherited};
use crate::backoff::{Backoff, Death};
use crate::careful;
use crate::handover::{self, HandedOver, Message, is_gone_within, is_of_the_dead, receive, send};
use crate::notify::Manager;
use crate::run_folder::RunFolder;
use crate::signals::Ends;

/// So many in a row that did not even begin to serve are no accident.
const MOST_FAILURES: u32 = 8;
/// A server that was told to end may take so long; it has its own limits, which are shorter, unless it is
/// itself what hangs.
const END_PATIENCE: Duration = Duration::from_secs(4);
/// How long the dying may take when nothing waits any more.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// Under this name the keeper has the process of the server.
const SERVER: &str = "server";
/// How long the server of a supervisor that died may take to end, before the next one is started beside it.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(1);
/// Signals that come together are one: a terminal, timeout(1) and systemd tell a process and its group.
const ONE_WORD: Duration = Duration::from_secs(1);
/// How often a server is looked at that may be dead without having ended, see [`is_dying`].
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// How a server is started, and what is done when none can be.
pub struct Plan<'a> {
    /// The arguments of this program, without its name.
    pub arguments: &'a [OsString],
    /// The command among them.
    pub subcommand: &'a str,
    /// Who waits until a background server serves.
    pub ready_fd: Option<i32>,
    /// Takes down what servers that died have left, when no other is started.
    pub clear: &'a dyn Fn(),
    /// Whether SIGHUP is for the server, which reads files again; else it ends it.
    pub reloads: bool,
    /// The socket to another process that keeps everything as well, see [`crate::keeper`].
    pub keeper_fd: Option<i32>,
    /// A descriptor for the first server alone.
    pub first_fd: Option<i32>,
}

impl<'a> Plan<'a> {
    /// Of a server in the foreground that leaves nothing to take down.
    #[must_use]
    pub fn in_foreground(arguments: &'a [OsString], subcommand: &'a str, reloads: bool) -> Self {
        let clear = &|| {};
        Self { arguments, subcommand, ready_fd: None, clear, reloads, keeper_fd: None, first_fd: None }
    }
}

/// Runs servers until one ends by itself, and gives its exit code.
///
/// # Errors
/// When none can be started, or one after the other dies.
pub fn supervise(plan: &Plan<'_>) -> anyhow::Result<i32> {
    let (keeper, mut kept) = handover::Supervisor::at(plan.keeper_fd)?;
    let orphan = end_orphan(&mut kept)?;
    let parent = plan.ready_fd.map(Parent::at).transpose()?;
    // A background server has told its parent; the manager of that one was not this one's.
    let manager = if plan.ready_fd.is_none() { Manager::of_this_process() } else { Manager::none() };
    let mut supervisor = Supervisor::new(Ends::block().context("wait for signals")?, parent, manager);
    supervisor.reloads = plan.reloads;
    supervisor.for_first = plan.first_fd.map(inherited).transpose()?;
    supervisor.is_first = keeper.restarts() == 0;
    (supervisor.restarts, supervisor.kept, supervisor.keeper) = (keeper.restarts(), kept, keeper);
    supervisor.orphan = orphan;
    careful::take_care();
    let ended = supervisor.run(plan);
    // A server that was killed may wait for its own disk, which no server answers any more.
    supervisor.kept.abort();
    drop(std::mem::take(&mut supervisor.kept));
    supervisor.wait_for_the_dying();
    (plan.clear)();
    if let (Ok(0), Some(log_file)) = (&ended, supervisor.log_file) {
        log_file.remove();
    }
    ended
}

/// Ends the server of the supervisor before this one, which may live: what it takes from the kernel after the
/// next server has asked for all requests again would be lost with it. Gives its process, if that is not gone
/// yet.
fn end_orphan(kept: &mut HandedOver) -> anyhow::Result<Option<OwnedFd>> {
    let Some(((), processes)) = kept.take(SERVER)? else { return Ok(None) };
    let orphan = processes.into_iter().next();
    Ok(orphan.filter(|process| {
        // It may be gone.
        let _ = pidfd_send_signal(process, Signal::KILL);
        !is_gone_within(process, ORPHAN_PATIENCE)
    }))
}

struct Supervisor {
    signals: Ends,
    /// As [`Plan`] says.
    reloads: bool,
    parent: Option<Parent>,
    manager: Manager,
    /// Where messages go of a supervisor in the background.
    log_file: Option<LogFile>,
    kept: HandedOver,
    /// Keeps it too.
    keeper: handover::Supervisor,
    /// What the first server alone is given.
    for_first: Option<OwnedFd>,
    restarts: u32,
    /// No other supervisor has served this before.
    is_first: bool,
    /// Whether the next server answers what was under way with errors.
    suspects_requests: bool,
    /// When a signal came: the next server that is gone is the last.
    told_to_end: Option<Instant>,
    /// It was killed, since it had not said that it serves.
    was_killed_early: bool,
    /// The server takes down what it serves, for which no other one is needed: the disk was unmounted.
    is_ending: bool,
    /// The program that started a background server has gone before it was told that it serves: no program
    /// would know of what it serves. What another supervisor has served before has its readers.
    is_abandoned: bool,
    /// Servers that died and have not let go of everything.
    dying: Vec<Child>,
    /// The server of the supervisor before this one, where it had not ended.
    orphan: Option<OwnedFd>,
}

/// What the supervisor waits for while there is a server.
struct Woken {
    signal: bool,
    /// As a pipe reports it that has no reader any more.
    abandoned: bool,
    gone: bool,
}

/// How a server went.
struct Gone {
    /// Nothing while a thread of it still waits for something.
    status: Option<ExitStatus>,
    /// Whether it had begun to serve.
    served: bool,
    /// How long it was there.
    lived: Duration,
}

impl Gone {
    /// Nothing of one that a signal ended, or that still waits.
    fn code(&self) -> Option<i32> {
        self.status?.code()
    }

    /// Whether a signal ended it that was no fault of its own.
    fn was_killed(&self) -> bool {
        self.status.is_none_or(|status| status.code().is_none() && !is_crash(status))
    }
}

impl Supervisor {
    fn new(signals: Ends, parent: Option<Parent>, manager: Manager) -> Self {
        Self {
            signals,
            reloads: false,
            parent,
            manager,
            log_file: None,
            kept: HandedOver::default(),
            keeper: handover::Supervisor::default(),
            for_first: None,
            restarts: 0,
            is_first: true,
            suspects_requests: false,
            told_to_end: None,
            was_killed_early: false,
            is_ending: false,
            is_abandoned: false,
            dying: Vec::new(),
            orphan: None,
        }
    }

    fn run(&mut self, plan: &Plan<'_>) -> anyhow::Result<i32> {
        let mut backoff = Backoff::default();
        loop {
            let gone = match self.one_server(plan) {
                // This machine is short of something: those who wait for the next server wait until it is
                // not.
                Err(error) if self.restarts > 0 && self.told_to_end.is_none() => {
                    log::error!("the next server cannot be started: {error:#}");
                    if self.wait_for_signal(backoff.longer())? {
                        return Ok(1);
                    }
                    continue;
                }
                gone => gone?,
            };
            if self.is_the_last(&gone) {
                return Ok(self.exit_code(&gone));
            }
            let (served, lived, was_killed) = (gone.served, gone.lived, gone.was_killed());
            let pause = backoff.died(Death { served, lived, was_killed });
            backoff.crashed(gone.status.is_some_and(is_crash));
            self.suspects_requests = backoff.suspects_requests();
            let failures = backoff.failures();
            if failures >= MOST_FAILURES {
                log::error!("{failures} servers in a row died before they served: what is served ends here");
                return Ok(gone.code().unwrap_or(1));
            }
            log::error!("the server {}; the next one goes on", how(gone.status));
            if !pause.is_zero() && self.wait_for_signal(pause)? {
                return Ok(1);
            }
            self.restarts += 1;
        }
    }

    /// Whether no other server is to follow.
    fn is_the_last(&self, gone: &Gone) -> bool {
        let code = gone.code();
        // The first one's reasons are for the person who started it; later ones have served before.
        let by_itself = code.is_some_and(|code| code == 0 || (!gone.served && self.restarts == 0));
        by_itself || self.is_ending || self.told_to_end.is_some()
    }

    /// What is told of the last server. One that was killed because it did not serve yet has done what was
    /// asked, unless its parent waits for a mount; it may have said meanwhile that it serves.
    fn exit_code(&self, gone: &Gone) -> i32 {
        let served = gone.served && !self.was_killed_early;
        gone.code().unwrap_or(i32::from(served || self.parent.is_some()))
    }

    /// Starts a server and stays with it until it is gone.
    fn one_server(&mut self, plan: &Plan<'_>) -> anyhow::Result<Gone> {
        let began = Instant::now();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .context("make a socket for the server")?;
        self.kept.send_all(&ours)?;
        let orphan = self.orphan.as_ref().map(|orphan| orphan.try_clone().context("keep a process"));
        let dying = self.dying.iter().map(pidfd).chain(orphan).collect::<anyhow::Result<Vec<_>>>()?;
        if self.suspects_requests {
            log::error!("three servers in a row have crashed: the reads that waited for them are refused");
        }
        let begin = Message::Begin { restarts: self.restarts, refuse_waiting: self.suspects_requests };
        let flag = format!("--supervisor-fd={}", theirs.as_raw_fd());
        let mut command = again(plan.arguments, plan.subcommand, &[flag])?;
        let for_first = self.for_first.take();
        let passed: Vec<_> = [&theirs].into_iter().chain(&for_first).map(AsFd::as_fd).collect();
        inherit(&mut command, &passed);
        let mut child = command.spawn().context("start the server")?;
        drop((theirs, for_first));
        let watched = pidfd(&child).and_then(|process| {
            // Before it begins, so that a next supervisor knows of each server that could take requests.
            self.keeper.keep_if_it_can(SERVER, &Value::Null, std::slice::from_ref(&process));
            let dying: Vec<_> = dying.iter().map(AsFd::as_fd).collect();
            match send(&ours, &begin, &dying) {
                // How it ended is seen below.
                Err(error) if !is_of_the_dead(&error) => return Err(error),
                _ => {}
            }
            self.watch(&mut child, &process, ours)
        });
        if watched.is_err() {
            // No program would know of it any more.
            let _ = child.kill();
        }
        let status = child.try_wait().context("ask how the server ended")?;
        if status.is_none() {
            self.dying.push(child);
        }
        Ok(Gone { status, served: watched?, lived: began.elapsed() })
    }

    /// Passes on signals and hears the server, until it is gone; tells whether it served.
    fn watch(&mut self, child: &mut Child, process: &OwnedFd, socket: OwnedFd) -> anyhow::Result<bool> {
        let (mut served, mut socket, mut is_to_reload) = (false, Some(socket), false);
        loop {
            let Woken { signal, abandoned, gone } = self.wait(child.id(), process, socket.as_ref())?;
            // What it said before it died counts.
            while let Some(from) = &socket {
                match receive(from, RecvFlags::DONTWAIT) {
                    Ok(Some((message, descriptors))) => served |= self.hear(message, descriptors)?,
                    Err(rustix::io::Errno::AGAIN) => break,
                    Ok(None) => socket = None,
                    Err(error) => {
                        log::error!("the server is not understood any more: {error}");
                        socket = None;
                    }
                }
            }
            self.dying.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if gone {
                return Ok(served);
            }
            if abandoned && self.parent.take().is_some() {
                match self.is_first {
                    true => self.is_abandoned = true,
                    false => self.go_to_background()?,
                }
            }
            let abandoned = std::mem::take(&mut self.is_abandoned);
            if signal || abandoned {
                let signal = self.signals.take().unwrap_or(Signal::TERM);
                if signal == Signal::HUP && self.reloads && !abandoned {
                    is_to_reload = true;
                } else {
                    self.end_server(process, signal, served);
                }
            } else if self.told_to_end.is_some_and(|told| told.elapsed() >= END_PATIENCE) {
                self.kill(process);
            }
            // Before it serves, the signal could end it.
            if is_to_reload && served {
                is_to_reload = false;
                let _ = pidfd_send_signal(process, Signal::HUP);
            }
        }
    }

    /// Until something happens, or it is time to look at the server.
    fn wait(&self, server: u32, process: &OwnedFd, socket: Option<&OwnedFd>) -> anyhow::Result<Woken> {
        let mut events = vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        // A pipe that no process can read from any more is an error, which need not be asked for.
        let parent =
            self.parent.as_ref().map(|parent| PollFd::from_borrowed_fd(parent.as_fd(), PollFlags::empty()));
        let has_parent = parent.is_some();
        events.extend(parent);
        events.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let came = match poll(&mut events, Some(&LOOK)) {
            Ok(came) => came,
            Err(rustix::io::Errno::INTR) => 1,
            Err(error) => return Err(error).context("wait for the server"),
        };
        let happened = |number: usize| !events[number].revents().is_empty();
        Ok(Woken {
            signal: happened(0),
            gone: happened(1) || (came == 0 && is_dying(server)),
            abandoned: has_parent && happened(2),
        })
    }

    /// Tells the server to end. One that does not serve yet looks at no signal, perhaps for as long as a
    /// network is waited for; and a user who says it twice does not want to wait.
    fn end_server(&mut self, process: &OwnedFd, signal: Signal, serves: bool) {
        let again = self.told_to_end.is_some_and(|before| before.elapsed() >= ONE_WORD);
        self.told_to_end.get_or_insert_with(Instant::now);
        self.was_killed_early |= !serves;
        if !serves || again {
            return self.kill(process);
        }
        // It may be gone by now.
        let _ = pidfd_send_signal(process, signal);
    }

    fn kill(&mut self, process: &OwnedFd) {
        let _ = pidfd_send_signal(process, Signal::KILL);
        // A thread of it may wait for its own disk, where no signal reaches it.
        self.kept.abort();
    }

    /// Gives servers that were killed a while to let go of what they were mounting, which no server answers
    /// any more.
    fn wait_for_the_dying(&mut self) {
        let end = Instant::now() + LAST_PATIENCE;
        for child in &self.dying {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
            if let (Ok(process), Ok(left)) = (pidfd(child), left) {
                let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left));
            }
        }
    }

    /// Does what the server says; true when it says that it serves.
    fn hear(&mut self, message: Message, descriptors: Vec<OwnedFd>) -> anyhow::Result<bool> {
        match message {
            Message::Keep { name, about } => {
                self.keeper.keep_if_it_can(&name, &about, &descriptors);
                self.kept.put(name, about, descriptors);
            }
            Message::Ready { status, report } => {
                if let Some(parent) = self.parent.take() {
                    self.go_to_background()?;
                    self.is_abandoned = parent.tell(&report).is_err() && self.is_first;
                }
                self.manager.ready(&status);
                return Ok(true);
            }
            Message::Ending => {
                self.is_ending = true;
                self.manager.stopping();
            }
            Message::Begin { .. } => log::warn!("the server said what only a supervisor says"),
        }
        Ok(false)
    }

    /// Leaves the streams of the program that started it.
    fn go_to_background(&mut self) -> anyhow::Result<()> {
        let folder = RunFolder::existing().ok().flatten();
        let log_file = LogFile::of(folder.as_ref());
        log_file.go_to_background()?;
        self.log_file = Some(log_file);
        Ok(())
    }

    /// Waits so long, unless a signal comes, which is the end. The next server reads all files in any case.
    fn wait_for_signal(&mut self, pause: Duration) -> anyhow::Result<bool> {
        let timeout = Timespec::try_from(pause).context("the time to wait")?;
        let came = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&timeout));
        let is_reload = matches!(came, Ok(1..)) && self.reloads && self.signals.take() == Some(Signal::HUP);
        Ok(matches!(came, Ok(1..)) && !is_reload)
    }
}

fn pidfd(child: &Child) -> anyhow::Result<OwnedFd> {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("watch the server")
}

/// Whether a process died by a fault of its own: signal(7), those that a fault or abort(3) raises.
fn is_crash(status: ExitStatus) -> bool {
    const FAULTS: [i32; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];
    status.signal().is_some_and(|signal| FAULTS.contains(&signal))
}

fn how(status: Option<ExitStatus>) -> String {
    match status {
        None => "was killed".to_owned(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
    }
}

/// Whether a process has been killed without ending: a thread of it may wait, where no signal reaches it, for
/// a read of its own disk, which only the next server can answer. Until then the kernel does not say that the
/// process is gone.
fn is_dying(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    is_dying_by(&status)
}

/// As `/proc/PID/status` tells: proc_pid_status(5).
fn is_dying_by(status: &str) -> bool {
    const KILLED: u64 = 1 << (libc::SIGKILL - 1);
    status.lines().filter_map(|line| line.split_once(':')).any(|(name, value)| match name {
        "State" => value.trim_start().starts_with(['Z', 'X']),
        "SigPnd" | "ShdPnd" => u64::from_str_radix(value.trim(), 16).is_ok_and(|set| set & KILLED != 0),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dying_are_told_from_the_living() {
        let status = |state, pending, shared| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t{pending}\nShdPnd:\t{shared}\n")
        };
        let none = "0000000000000000";
        assert!(!is_dying_by(&status("S (sleeping)", none, none)));
        assert!(!is_dying_by(&status("D (disk sleep)", "0000000000004000", none)));
        assert!(is_dying_by(&status("D (disk sleep)", "0000000000000100", none)));
        assert!(is_dying_by(&status("S (sleeping)", none, "0000000000000100")));
        assert!(is_dying_by(&status("Z (zombie)", none, none)));
        assert!(!is_dying_by(""));
        assert!(!is_dying(std::process::id()));
    }

    #[test]
    fn a_server_that_said_that_it_ends_is_the_last() {
        let signals = Ends::block().expect("signals of this thread");
        let mut supervisor = Supervisor::new(signals, None, Manager::none());
        let gone = |status| Gone { status, served: true, lived: Duration::from_secs(9) };
        let [failed, killed] = [Some(ExitStatus::from_raw(1 << 8)), Some(ExitStatus::from_raw(9))];
        for status in [failed, killed, None] {
            assert!(!supervisor.is_the_last(&gone(status)), "{}", how(status));
        }
        assert!(!supervisor.hear(Message::Ending, Vec::new()).expect("heard"));
        for status in [failed, killed, None] {
            assert!(supervisor.is_the_last(&gone(status)), "{}", how(status));
        }
    }

    /// A signal that comes when the server serves and its message is under way.
    #[test]
    fn a_server_that_was_killed_before_it_was_heard_has_done_what_was_asked() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep starts");
        let mut supervisor = Supervisor::new(Ends::block().expect("signals"), None, Manager::none());
        supervisor.end_server(&pidfd(&child).expect("watched"), Signal::TERM, false);
        let status = Some(child.wait().expect("ended"));
        let gone = Gone { status, served: true, lived: Duration::from_secs(1) };
        assert!(supervisor.is_the_last(&gone));
        assert_eq!((gone.code(), supervisor.exit_code(&gone)), (None, 0));
    }

    #[test]
    fn ends_have_words() {
        assert_eq!(how(None), "was killed");
        assert_eq!(how(Some(ExitStatus::from_raw(9))), "was ended by signal 9");
        assert_eq!(how(Some(ExitStatus::from_raw(1 << 8))), "ended with code 1");
    }
}
