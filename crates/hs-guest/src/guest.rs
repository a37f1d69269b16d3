//! A guest that runs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use hs_linux::rootenv::{self, Child, Confinement, SpawnOptions, Stream};
use parking_lot::Mutex;

use crate::GuestError;
use crate::console::{Console, Sign};
use crate::jail::{self, Jail, JailEntry};
use crate::preload::{self, Preload};

/// How often the caller's check runs while it waits for the guest.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How a guest is started. Its console is the command's standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its addresses are not randomised.
    pub fixed_addresses: bool,
    /// What is loaded into the program before its libraries, in this order.
    pub preloads: Vec<Preload>,
    /// What is visible of this machine: nothing else is in its root.
    pub jail_entries: Vec<JailEntry>,
    /// Further groups of the user that it runs as.
    pub groups: Vec<u32>,
    /// A folder of its own, in which its root is mounted and its preloads lie.
    pub place: PathBuf,
    /// What its standard input is.
    pub input: Input,
    /// None of its memory is in huge pages.
    pub small_pages: bool,
    /// It has the network of this machine.
    pub has_network: bool,
}

/// What the standard input of a guest's command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    None,
    /// What is typed on its console.
    Typed,
    /// A socket, on which its [first program](crate::first_program) tells of its processes.
    Watch,
}

/// A running guest: a tree of processes in a PID namespace of its own, in a [jail]. Dropped, it is ended,
/// with all of them; should this process die, the kernel does the same.
pub struct Guest {
    child: Option<Child>,
    jail: Option<Jail>,
    signs: Receiver<(Instant, Sign)>,
    console: Arc<Mutex<Console>>,
    reader: Option<JoinHandle<()>>,
    input: Option<File>,
    watch: Option<File>,
    /// What is typed at the next prompts.
    to_type: VecDeque<String>,
}

impl Guest {
    /// Starts the guest. Everything that its console says is written to `log` as it comes.
    ///
    /// # Errors
    /// When its processes cannot be started.
    pub fn start(
        launch: Launch,
        console: Console,
        log: impl Write + Send + 'static,
    ) -> Result<Self, GuestError> {
        let user = rootenv::JailUser {
            groups: launch.groups,
            small_pages: launch.small_pages,
            has_network: launch.has_network,
            ..jail::user()
        };
        let jail = Jail::new(&launch.place, &user, &launch.jail_entries)?;
        let variable = preload::placed(&launch.preloads, &launch.place).map_err(GuestError::Preload)?;
        let environment = launch.environment.into_iter().chain(jail.environment()).chain(variable);
        let options = SpawnOptions {
            stdin: match launch.input {
                Input::None => Stream::Null,
                Input::Typed => Stream::Pipe,
                Input::Watch => Stream::Socket,
            },
            stdout: Stream::Pipe,
            // The VMM writes its errors there, which belong between the lines of the console.
            stderr: Stream::Output,
            env: Some(environment.collect()),
            confinement: Confinement::Jail(user),
            // A signal for this process is handled by this process, which then ends the guest.
            forward_signals: false,
            fixed_addresses: launch.fixed_addresses,
            ..SpawnOptions::default()
        };
        let mut child = rootenv::spawn_in(jail.root(), &launch.command, options)?;
        let console = Arc::new(Mutex::new(console));
        let (sender, signs) = unbounded();
        let (output, input) = (child.stdout.take(), child.stdin.take());
        let (input, told) = if launch.input == Input::Watch { (None, input) } else { (input, None) };
        let watched = Arc::clone(&console);
        let reader = std::thread::Builder::new()
            .name("hs-console".to_owned())
            .spawn(move || {
                if let Some(output) = output {
                    watch(output, &watched, &sender, log);
                }
            })
            .map_err(GuestError::Console)?;
        let (child, jail, reader) = (Some(child), Some(jail), Some(reader));
        Ok(Self { child, jail, signs, console, reader, input, watch: told, to_type: VecDeque::new() })
    }

    /// Types the first of these lines now, and each further one at the next prompt that shows while
    /// [`wait_ready`](Self::wait_ready) waits.
    ///
    /// # Errors
    /// When the guest takes no input, or is gone.
    pub fn type_lines(&mut self, lines: Vec<String>) -> Result<(), GuestError> {
        self.to_type = lines.into();
        self.type_next()
    }

    fn type_next(&mut self) -> Result<(), GuestError> {
        let Some(line) = self.to_type.pop_front() else { return Ok(()) };
        let input = self.input.as_mut().ok_or(GuestError::Type(std::io::ErrorKind::Unsupported.into()))?;
        input.write_all(format!("{line}\n").as_bytes()).map_err(GuestError::Type)
    }

    /// Fails when the guest has ended, saying how.
    ///
    /// # Errors
    /// As it says.
    pub fn check_runs(&mut self) -> Result<(), GuestError> {
        match &self.child {
            Some(child) if !child.has_ended() => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// Waits until the guest is ready; returns the time when it was. `look` is called several times a second,
    /// to check for other failures, and with each stage of its boot when it begins.
    ///
    /// # Errors
    /// At once when the guest gives up or ends, when `look` fails, and `patience` after `began`.
    pub fn wait_ready(
        &mut self,
        began: Instant,
        patience: Duration,
        pattern: &str,
        look: &mut dyn FnMut(Option<(&'static str, Instant)>) -> Result<(), GuestError>,
    ) -> Result<Instant, GuestError> {
        loop {
            let left = patience.saturating_sub(began.elapsed());
            match self.signs.recv_timeout(left.min(LOOK_EVERY)) {
                Ok((at, Sign::Ready)) => return Ok(at),
                Ok((at, Sign::Stage(name))) => look(Some((name, at)))?,
                Ok((_, Sign::Panic(line))) => return Err(GuestError::Panic { line }),
                Ok((_, Sign::Emergency(line))) => return Err(GuestError::Emergency { line }),
                Ok((_, Sign::Prompt)) => self.type_next()?,
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => look(None)?,
            }
            if began.elapsed() >= patience {
                let (seconds, pattern) = (patience.as_secs_f64(), pattern.to_owned());
                return Err(GuestError::NotReady { seconds, pattern });
            }
        }
    }

    /// Lets the guest run for `grace`. `look` is called several times a second, to check for other failures.
    ///
    /// # Errors
    /// When its kernel gives up meanwhile, or `look` fails. A guest that ends by itself is fine.
    pub fn go_on(
        &mut self,
        grace: Duration,
        look: &dyn Fn() -> Result<(), GuestError>,
    ) -> Result<(), GuestError> {
        let began = Instant::now();
        loop {
            let left = grace.saturating_sub(began.elapsed());
            match self.signs.recv_timeout(left.min(LOOK_EVERY)) {
                Ok((_, Sign::Panic(line))) => return Err(GuestError::Panic { line }),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(_) | Err(RecvTimeoutError::Timeout) => look()?,
            }
            if began.elapsed() >= grace {
                return Ok(());
            }
        }
    }

    /// The processor time of the guest; the rest of the time it waited.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.child.as_ref()?.cpu_time()
    }

    /// What the guest's first program tells of its processes, where it [does](Input::Watch): once.
    #[must_use]
    pub fn take_watch(&mut self) -> Option<File> {
        self.watch.take()
    }

    /// A function that looks at the processes that run the guest, which are not those in it.
    #[must_use]
    pub fn processes(&self) -> Option<impl Fn() -> Option<Vec<rootenv::ProcessNow>> + Send + use<>> {
        self.child.as_ref().map(rootenv::Child::processes)
    }

    /// The last lines of its console.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.console.lock().tail()
    }

    /// Kills it, and does not wait for its end.
    pub fn kill(&self) {
        if let Some(child) = &self.child {
            child.killer()();
        }
    }

    /// Ends it; everything that it printed is in the log when this returns.
    pub fn end(&mut self) {
        drop(self.child.take());
        drop(self.jail.take());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }

    fn ended(&mut self) -> GuestError {
        match self.child.take().map(Child::wait) {
            Some(Ok(exit)) => GuestError::Ended { exit },
            Some(Err(error)) => error.into(),
            None => GuestError::Ended { exit: rootenv::Exit::Code(0) },
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// Until the guest's output ends, which it does with its last process.
fn watch(mut output: File, console: &Mutex<Console>, signs: &Sender<(Instant, Sign)>, mut log: impl Write) {
    let mut buffer = [0; 4096];
    let mut logged = true;
    loop {
        let read = match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                log::warn!("the guest's console cannot be read any more: {error}");
                break;
            }
        };
        let now = Instant::now();
        for sign in console.lock().feed(&buffer[..read]) {
            let _ = signs.send((now, sign));
        }
        if logged && let Err(error) = log.write_all(&buffer[..read]).and_then(|()| log.flush()) {
            log::warn!("the guest's console is no longer logged: {error}");
            logged = false;
        }
    }
}
