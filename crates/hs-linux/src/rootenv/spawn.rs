//! Starting init, and waiting for it.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use super::INIT_ARGUMENT;
use super::confinement::Confinement;
use super::processes::ProcessNow;
use super::report::{Report, Step};
use super::signals::{self, Forwarding};
use super::spec::{CommandUser, InitSpec};
use crate::LinuxError;

/// Where one of the command's standard streams goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// Where this process's goes; a terminal stays a terminal.
    #[default]
    Inherit,
    /// To this process, through a pipe.
    Pipe,
    /// To this process and from it, through a pair of sockets.
    Socket,
    /// Nowhere: `/dev/null`.
    Null,
    /// Of standard error: where standard output goes.
    Output,
}

/// How a command is started.
#[derive(Clone, Debug)]
pub struct SpawnOptions {
    /// Standard input.
    pub stdin: Stream,
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
    /// Working directory inside the root; `/` when not given.
    pub cwd: Option<PathBuf>,
    /// The user that it runs as; this process's when not given.
    pub user: Option<CommandUser>,
    /// The command's whole environment; this process's when not given.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Pass on the signals that this process gets while the command runs (INT and QUIT unless the terminal
    /// sent them, which the command then got itself; TERM, HUP, USR1, USR2). One command at a time can have
    /// them.
    pub forward_signals: bool,
    /// What it is kept from.
    pub confinement: Confinement,
    /// Its addresses are the same each time: `ADDR_NO_RANDOMIZE` of personality(2), where that is allowed.
    pub fixed_addresses: bool,
}

impl Default for SpawnOptions {
    fn default() -> Self {
        let stream = Stream::Inherit;
        Self {
            stdin: stream,
            stdout: stream,
            stderr: stream,
            cwd: None,
            user: None,
            env: None,
            forward_signals: true,
            confinement: Confinement::Container { set_user_id: false },
            fixed_addresses: false,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The exit code a shell would give: the command's own, or 128 and the signal's number.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// True for exit code 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

/// A running command. Dropped before it ended, it is killed, with everything it started.
#[derive(Debug)]
pub struct Child {
    /// The pipe or socket to its standard input, when that was asked for.
    pub stdin: Option<File>,
    /// The pipe from its standard output, when that was asked for. It ends when the command does, even
    /// if something it started still holds the other end.
    pub stdout: Option<File>,
    /// The pipe from its standard error, when that was asked for.
    pub stderr: Option<File>,
    init: Arc<OwnedFd>,
    keeper: Option<JoinHandle<Result<Exit, LinuxError>>>,
    _forwarding: Option<Forwarding>,
}

impl Child {
    /// Waits until the command has ended and everything it started is gone.
    ///
    /// # Errors
    /// [`LinuxError::InitDied`] when its exit status was lost.
    pub fn wait(mut self) -> Result<Exit, LinuxError> {
        drop(self.stdin.take());
        self.join()
    }

    /// The processor time of the command and everything it started; `None` once all of that is gone. It is
    /// exact to a hundredth of a second for each process, and leaves out killed processes that no parent
    /// waited for.
    pub fn cpu_time(&self) -> Option<Duration> {
        super::cpu_time::of_namespace(self.init.as_fd())
    }

    /// A function that looks at the processes that the command consists of, also while another thread waits
    /// for it; it gives `None` once all of that is gone.
    pub fn processes(&self) -> impl Fn() -> Option<Vec<ProcessNow>> + Send + use<> {
        let init = Arc::clone(&self.init);
        move || super::processes::below(init.as_fd())
    }

    /// True when the command has ended and [`Child::wait`] would return at once.
    pub fn has_ended(&self) -> bool {
        self.keeper.as_ref().is_none_or(|keeper| keeper.is_finished())
    }

    /// Sends a signal to the command.
    ///
    /// # Errors
    /// It has ended already.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_send_signal(&*self.init, signal)?)
    }

    /// A function that ends the command at once, with everything it started, also while another thread waits
    /// for it.
    pub fn killer(&self) -> impl Fn() + Send + Sync + use<> {
        let init = Arc::clone(&self.init);
        move || {
            let _ = rustix::process::pidfd_send_signal(&*init, Signal::KILL);
        }
    }

    fn join(&mut self) -> Result<Exit, LinuxError> {
        let died = || LinuxError::InitDied { detail: "its keeper panicked".into() };
        self.keeper.take().map_or_else(|| Err(died()), |keeper| keeper.join().unwrap_or_else(|_| Err(died())))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            // Init cannot ignore this; with it goes its whole PID namespace. An error means it is gone.
            let _ = self.signal(libc::SIGKILL);
            if let Err(error) = self.join() {
                log::error!("{error}");
            }
        }
    }
}

/// What the thread that starts init needs, prepared so that nothing allocates after `clone3`.
struct Launch {
    spec: OwnedFd,
    report_writer: OwnedFd,
    liveness_reader: OwnedFd,
    /// What becomes descriptors 0, 1 and 2, where not inherited.
    streams: [Option<OwnedFd>; 3],
    argv: Vec<CString>,
    /// This command gets the signals of this process.
    forwards: bool,
    fixed_addresses: bool,
    /// The namespaces of its own, as flags of clone(2).
    namespaces: libc::c_int,
}

/// What messages name.
struct Asked {
    command: OsString,
    cwd: PathBuf,
}

/// Starts init, which starts the command.
pub(super) fn spawn(root: &Path, argv: &[OsString], options: SpawnOptions) -> Result<Child, LinuxError> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(LinuxError::io("make a pipe for", root));
    let (report_reader, report_writer) = pipe()?;
    let (liveness_reader, liveness_writer) = pipe()?;
    let namespaces = options.confinement.namespaces();
    let asked = Asked { command: argv[0].clone(), cwd: options.cwd.unwrap_or_else(|| "/".into()) };
    let spec = InitSpec {
        report: report_writer.as_raw_fd(),
        liveness: liveness_reader.as_raw_fd(),
        confinement: options.confinement,
        root: root.into(),
        cwd: asked.cwd.clone().into(),
        user: options.user,
        argv: argv.to_vec(),
        env: options.env.unwrap_or_else(|| std::env::vars_os().collect()),
    };
    let invalid =
        || LinuxError::Command { command: argv[0].clone(), source: io::ErrorKind::InvalidInput.into() };
    let spec =
        write_spec(&spec.encode().ok_or_else(invalid)?).map_err(LinuxError::io("tell init about", root))?;
    let (mut theirs, mut ours) = ([None, None, None], [None, None, None]);
    for (index, stream) in [options.stdin, options.stdout, options.stderr].into_iter().enumerate() {
        let failed = |source| LinuxError::Io { action: "redirect", path: root.into(), source };
        if stream == Stream::Output {
            theirs[index] = same_stream(theirs[1].as_ref()).map(Some).map_err(failed)?;
        } else {
            (theirs[index], ours[index]) = open_stream(stream, index == 0).map_err(failed)?;
        }
    }
    // Before the command can run: a program that sees it run may send a signal at once.
    let mut forwarding = options.forward_signals.then(Forwarding::begin).flatten();
    let arguments = ["headstart-init".to_owned(), INIT_ARGUMENT.to_owned(), spec.as_raw_fd().to_string()];
    let launch = Launch {
        spec,
        report_writer,
        liveness_reader,
        streams: theirs,
        argv: arguments.into_iter().filter_map(|argument| CString::new(argument).ok()).collect(),
        forwards: forwarding.is_some(),
        fixed_addresses: options.fixed_addresses,
        namespaces,
    };
    let (sender, started) = bounded(1);
    // PR_SET_PDEATHSIG means the death of the *thread* that made the child. So that thread is one that
    // lives until the child is dead, whatever becomes of the caller's.
    let keeper = std::thread::Builder::new()
        .name("root-keeper".into())
        .spawn(move || {
            let result = keep(launch, report_reader, &asked, &sender);
            drop(liveness_writer);
            result
        })
        .map_err(LinuxError::io("start a thread for", root))?;
    let Ok(init) = started.recv() else {
        // It failed before the command ran, and says why when it is joined.
        let failed = keeper
            .join()
            .unwrap_or_else(|_| Err(LinuxError::InitDied { detail: "its keeper panicked".into() }));
        return Err(failed.err().unwrap_or_else(|| LinuxError::InitDied { detail: "no command ran".into() }));
    };
    if let Some(forwarding) = &mut forwarding {
        forwarding.attach(Arc::clone(&init));
    }
    let [stdin, stdout, stderr] = ours;
    Ok(Child { stdin, stdout, stderr, init, keeper: Some(keeper), _forwarding: forwarding })
}

/// The keeper thread: starts init, says so when the command runs, and waits for its end.
fn keep(
    launch: Launch,
    report: OwnedFd,
    asked: &Asked,
    started: &Sender<Arc<OwnedFd>>,
) -> Result<Exit, LinuxError> {
    block_all_signals();
    if launch.forwards {
        signals::command_is_starting();
    }
    if launch.fixed_addresses {
        fix_addresses();
    }
    let init = Arc::new(clone_init(&launch)?);
    // Init has its own copies; while these are open, its end could not be seen.
    drop(launch);
    let mut report = File::from(report);
    let mut exit = None;
    let mut failure = None;
    while let Ok(Some(message)) = Report::receive(&mut report) {
        match message {
            Report::Started => drop(started.send(Arc::clone(&init))),
            Report::Failed(step, errno) => failure = Some(failed(step, errno, asked)),
            Report::Ended(status) => exit = Some(exit_of(status)),
        }
    }
    let status = loop {
        match rustix::process::waitid(WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED) {
            Ok(status) => break status,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(LinuxError::InitDied { detail: errno.to_string() }),
        }
    };
    if let Some(failure) = failure {
        return Err(failure);
    }
    let signal = status.as_ref().and_then(|status| status.terminating_signal());
    match (exit, signal) {
        (Some(exit), _) => Ok(exit),
        (None, Some(signal)) => Ok(Exit::Signal(signal)),
        (None, None) => {
            let code = status.and_then(|status| status.exit_status());
            let detail = code.map_or("unknown status".into(), |code| format!("exit code {code}"));
            Err(LinuxError::InitDied { detail })
        }
    }
}

fn failed(step: Step, errno: i32, asked: &Asked) -> LinuxError {
    let source = io::Error::from_raw_os_error(errno);
    match step {
        Step::Command => LinuxError::Command { command: asked.command.clone(), source },
        Step::Cwd => LinuxError::WorkingDirectory { folder: asked.cwd.clone(), source },
        step => LinuxError::RootSetup { step: step.describe(), source },
    }
}

fn exit_of(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

/// Handlers of this process must not run in the child before it has become init; and init wants all
/// signals blocked, because it reads them one by one.
fn block_all_signals() {
    // SAFETY: the set lives until both calls return; only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// What this thread starts has its addresses not randomised. A system that does not allow it is left as it
/// is.
fn fix_addresses() {
    /// Asks, and changes nothing: personality(2).
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: takes and gives numbers; of this thread, which runs nothing else, only later programs are
    // affected.
    unsafe {
        let now = libc::personality(ASK);
        if now >= 0 {
            libc::personality(now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        }
    }
}

/// A child in a new PID and a new mount namespace that executes this program again. Returns its pidfd.
fn clone_init(launch: &Launch) -> Result<OwnedFd, LinuxError> {
    let mut argv: Vec<_> = launch.argv.iter().map(|argument| argument.as_ptr()).collect();
    argv.push(std::ptr::null());
    let environment = [std::ptr::null::<libc::c_char>()];
    let mut pidfd: libc::c_int = -1;
    // SAFETY: a clone_args of zeros is valid, and means fork().
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = (launch.namespaces | libc::CLONE_PIDFD) as u64;
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: without CLONE_VM this is fork(): the child has its own copy of memory and, as the only
    // thread there, calls nothing but system calls until it executes or exits.
    unsafe {
        let size = size_of::<libc::clone_args>();
        match libc::syscall(libc::SYS_clone3, &raw mut arguments, size) {
            -1 => Err(match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EPERM) => {
                    LinuxError::NeedsRoot { what: "a root of its own for a command" }
                }
                source => LinuxError::Namespace { what: "namespaces of a command's own", source },
            }),
            0 => become_init(launch, argv.as_ptr(), environment.as_ptr()),
            _ => Ok(OwnedFd::from_raw_fd(pidfd)),
        }
    }
}

/// The child's side of [`clone_init`].
///
/// # Safety
/// Must run in a freshly cloned process; `argv` and `environment` must be what `execve` takes.
unsafe fn become_init(
    launch: &Launch,
    argv: *const *const libc::c_char,
    environment: *const *const libc::c_char,
) -> ! {
    // SAFETY: only system calls that are allowed after fork, on descriptors and strings that the parent
    // prepared and that live in this process's copy of memory.
    unsafe {
        // The keeper thread may be gone already; init looks at the liveness pipe for that.
        let mut failed = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0;
        for (number, stream) in launch.streams.iter().enumerate() {
            if let Some(stream) = stream {
                failed |= libc::dup2(stream.as_raw_fd(), number as RawFd) < 0;
            }
        }
        for fd in [&launch.spec, &launch.report_writer, &launch.liveness_reader] {
            failed |= libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) < 0;
        }
        if !failed {
            libc::execve(c"/proc/self/exe".as_ptr(), argv, environment);
        }
        Report::Failed(Step::Exec, *libc::__errno_location()).send(launch.report_writer.as_fd());
        libc::_exit(127);
    }
}

fn write_spec(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("headstart-init", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Where standard output goes, once more.
fn same_stream(output: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    match output {
        Some(output) => output.try_clone(),
        None => io::stdout().as_fd().try_clone_to_owned(),
    }
}

/// The command's end, and ours.
fn open_stream(stream: Stream, input: bool) -> io::Result<(Option<OwnedFd>, Option<File>)> {
    match stream {
        Stream::Inherit | Stream::Output => Ok((None, None)),
        Stream::Null => {
            let null = File::options().read(true).write(true).open("/dev/null")?;
            Ok((Some(null.into()), None))
        }
        Stream::Socket => {
            let (theirs, ours) = UnixStream::pair()?;
            Ok((Some(theirs.into()), Some(File::from(OwnedFd::from(ours)))))
        }
        Stream::Pipe => {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            let (theirs, ours) = if input { (reader, writer) } else { (writer, reader) };
            Ok((Some(theirs), Some(File::from(ours))))
        }
    }
}
