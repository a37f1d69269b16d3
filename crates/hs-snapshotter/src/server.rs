//! `headstart snapshotter serve`: containerd's snapshots service on a unix socket.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hs_linux::SocketFile;
use hs_service::keeper::Keeper;
use hs_service::notify::{self, Manager};
use hs_service::signals::Ends;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::net::UnixListener;

use crate::collecting;
use crate::grpc::{self, Calls, Code, Failure};
use crate::messages::{
    CommitRequest, Empty, Info, InfoAnswer, InfoKind, KeyRequest, ListAnswer, ListRequest, Mount,
    MountsAnswer, PrepareRequest, Timestamp, UpdateRequest, UsageAnswer,
};
use crate::snapshots::{Kind, Labels, Refusal, Snapshot};
use crate::snapshotter::{CallError, Snapshotter};
use crate::waiting::{Call, Over};

/// The service, as paths of calls begin with it.
const SERVICE: &str = "/containerd.services.snapshots.v1.Snapshots/";
/// Snapshots in one message of a list: gRPC's clients take no more than 4 MiB, and labels have some KiB.
const LISTED_AT_ONCE: usize = 100;
/// Calls that are worked on at once; others wait.
const MOST_CALLS: usize = 64;
/// The name of the socket that the service manager keeps.
const KEPT: &str = "socket";
/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Where a snapshotter has its files, and where it listens.
#[derive(Clone, Debug)]
pub struct Serve {
    /// The folder of its snapshots.
    pub root: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// The socket of containerd itself.
    pub containerd: PathBuf,
    /// Further flags of `headstart mount`.
    pub flags: Vec<OsString>,
}

/// Serves until a signal comes. Mounted images stay.
///
/// # Errors
/// When the folder or the socket is in use, or cannot be used.
pub fn run(serve: Serve, quiet: bool) -> anyhow::Result<()> {
    // By number, so before anything else is opened.
    let kept = notify::kept();
    let signals = Ends::block().context("wait for signals")?;
    let manager = Arc::new(Manager::of_this_process());
    let (keepers, kept) = Keeper::of_manager(kept, &manager);
    let kept = notify::all_of(kept, [KEPT]);
    let snapshotter = Snapshotter::open(&serve.root, serve.flags, Arc::clone(&manager), keepers)?;
    // One before this one may have missed calls that remove them.
    let may_have_missed = snapshotter.has_snapshots();
    if let Some(folder) = serve.socket.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let socket = listen(&serve.socket, kept, &manager)?;
    let listener = std::os::unix::net::UnixListener::from(socket.as_fd().try_clone_to_owned()?);
    let calls: Arc<Calls> =
        Arc::new(move |path: &str, message: &[u8], by: &Call| call(&snapshotter, path, message, by));
    let (failed, failure) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("make a pipe")?;
    let thread = std::thread::Builder::new().name("grpc".to_owned()).spawn(move || {
        let _failure = failure;
        accept(listener, calls)
    });
    let thread = thread.context("start a thread")?;
    let words = format!("snapshots in {}, socket {}", serve.root.display(), socket.path().display());
    manager.ready(&words);
    if may_have_missed {
        let (containerd, socket) = (serve.containerd, socket.path().to_owned());
        let thread = std::thread::Builder::new().name("collect".to_owned());
        thread.spawn(move || collecting::collect(&containerd, &socket)).context("start a thread")?;
    }
    if !quiet {
        hs_output::note!("{words}; Ctrl-C ends it, and mounted images stay");
    }
    let mut events = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&failed, PollFlags::IN)];
    while let Err(error) = poll(&mut events, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error).context("wait for signals");
        }
    }
    manager.stopping();
    if events[1].revents().is_empty() {
        // Calls that are under way are cut off here; what is in the folder allows that at any time.
        return Ok(());
    }
    thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the server ended")))
}

/// Listens at `path`, on the socket that the service manager has kept if it is there: containerd, which
/// connects again while there is no snapshotter, waits then and is not refused.
fn listen(path: &Path, kept: Option<[OwnedFd; 1]>, manager: &Manager) -> anyhow::Result<SocketFile> {
    if let Some([kept]) = kept
        && let Ok(socket) = SocketFile::resume(kept)
        && path.canonicalize().is_ok_and(|path| path == socket.path())
    {
        socket.serves();
        return Ok(socket);
    }
    let socket = SocketFile::bind(path)?;
    manager.forget(KEPT);
    manager.keep(KEPT, socket.as_fd());
    Ok(socket)
}

fn accept(listener: std::os::unix::net::UnixListener, calls: Arc<Calls>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .max_blocking_threads(MOST_CALLS)
        .build()
        .context("start the server")?;
    runtime.block_on(async {
        let listener = UnixListener::from_std(listener).context("listen")?;
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    log::warn!("no connection could be accepted: {error}");
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let calls = Arc::clone(&calls);
            tokio::spawn(async move {
                let service = service_fn(move |request| grpc::answer(request, Arc::clone(&calls)));
                let served =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                if let Err(error) = served.await {
                    log::debug!("a connection ended: {error}");
                }
            });
        }
    })
}

/// Answers one call.
fn call(
    snapshotter: &Arc<Snapshotter>,
    path: &str,
    message: &[u8],
    by: &Call,
) -> Result<Vec<Vec<u8>>, Failure> {
    let method = path.strip_prefix(SERVICE).unwrap_or_default();
    let answered = answer(snapshotter, method, message, by);
    match &answered {
        Err(failure) if matches!(failure.code, Code::Internal | Code::Unavailable | Code::Unimplemented) => {
            log::error!("{path}: {}", failure.message);
        }
        Err(failure) => log::debug!("{path}: {:?}: {}", failure.code, failure.message),
        Ok(_) => log::debug!("{path}"),
    }
    answered
}

fn answer(
    snapshotter: &Arc<Snapshotter>,
    method: &str,
    message: &[u8],
    by: &Call,
) -> Result<Vec<Vec<u8>>, Failure> {
    let answer = match method {
        "Prepare" => prepared(snapshotter, Kind::Active, message, by)?,
        "View" => prepared(snapshotter, Kind::View, message, by)?,
        "Mounts" => mounts(snapshotter.mounts(&read::<KeyRequest>(message)?.key, by)?),
        "Commit" => {
            let asked: CommitRequest = read(message)?;
            if !asked.parent.is_empty() {
                return Err(Failure::new(Code::Unimplemented, "the capability rebase is not offered"));
            }
            snapshotter.commit(&asked.name, &asked.key, &labels(asked.labels))?;
            Empty {}.encode_to_vec()
        }
        "Remove" => {
            snapshotter.remove(&read::<KeyRequest>(message)?.key)?;
            Empty {}.encode_to_vec()
        }
        "Stat" => {
            let key = read::<KeyRequest>(message)?.key;
            let snapshot = snapshotter.stat(&key)?;
            InfoAnswer { info: Some(info(key, snapshot)) }.encode_to_vec()
        }
        "Update" => {
            let asked: UpdateRequest = read(message)?;
            let paths = asked.update_mask.map(|mask| mask.paths).unwrap_or_default();
            let wanted = asked.info.unwrap_or_default();
            let updated = snapshotter.update(&wanted.name, &labels(wanted.labels), &paths)?;
            InfoAnswer { info: Some(info(wanted.name, updated)) }.encode_to_vec()
        }
        "List" => {
            let listed = snapshotter.list(&read::<ListRequest>(message)?.filters)?;
            let infos: Vec<Info> = listed.into_iter().map(|(name, snapshot)| info(name, snapshot)).collect();
            let messages = infos.chunks(LISTED_AT_ONCE);
            return Ok(messages.map(|some| ListAnswer { info: some.to_vec() }.encode_to_vec()).collect());
        }
        "Usage" => {
            let usage = snapshotter.usage(&read::<KeyRequest>(message)?.key)?;
            let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            UsageAnswer { size: signed(usage.size_bytes), inodes: signed(usage.inodes) }.encode_to_vec()
        }
        "Cleanup" => {
            snapshotter.cleanup().map_err(CallError::from)?;
            Empty {}.encode_to_vec()
        }
        _ => return Err(Failure::new(Code::Unimplemented, "only containerd's snapshots v1 are served")),
    };
    Ok(vec![answer])
}

fn prepared(
    snapshotter: &Arc<Snapshotter>,
    kind: Kind,
    message: &[u8],
    by: &Call,
) -> Result<Vec<u8>, Failure> {
    let asked: PrepareRequest = read(message)?;
    let parent = Some(asked.parent.as_str()).filter(|parent| !parent.is_empty());
    Ok(mounts(snapshotter.prepare(kind, &asked.key, parent, &labels(asked.labels), by)?))
}

fn mounts(mounts: Vec<Mount>) -> Vec<u8> {
    MountsAnswer { mounts }.encode_to_vec()
}

fn read<T: Message + Default>(message: &[u8]) -> Result<T, Failure> {
    T::decode(message).map_err(|error| Failure::new(Code::InvalidArgument, format!("the request: {error}")))
}

fn labels(labels: HashMap<String, String>) -> Labels {
    labels.into_iter().collect()
}

fn info(name: String, snapshot: Snapshot) -> Info {
    let time = |ns: u64| {
        let (seconds, nanos) = (ns / SECOND_NS, ns % SECOND_NS);
        Some(Timestamp { seconds: seconds.cast_signed(), nanos: nanos as i32 })
    };
    let kind = match snapshot.kind {
        Kind::View => InfoKind::View,
        Kind::Active => InfoKind::Active,
        Kind::Committed => InfoKind::Committed,
    };
    Info {
        name,
        parent: snapshot.parent.unwrap_or_default(),
        kind: kind.into(),
        created_at: time(snapshot.created_ns),
        updated_at: time(snapshot.updated_ns),
        labels: snapshot.labels.into_iter().collect(),
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let code = match &error {
            CallError::Refused(Refusal::NotFound(_)) => Code::NotFound,
            CallError::Refused(Refusal::AlreadyExists(_)) => Code::AlreadyExists,
            CallError::Refused(Refusal::FailedPrecondition(..)) => Code::FailedPrecondition,
            CallError::Refused(Refusal::InvalidArgument(_)) => Code::InvalidArgument,
            CallError::Unavailable(error) => match error.downcast_ref() {
                Some(Over::Cancelled) => Code::Cancelled,
                _ => Code::Unavailable,
            },
            CallError::Failed(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

/// Where containerd listens when nothing is said.
#[must_use]
pub fn usual_containerd() -> &'static Path {
    Path::new("/run/containerd/containerd.sock")
}

/// Where a snapshotter has its files when nothing is said.
#[must_use]
pub fn usual_root() -> &'static Path {
    Path::new("/var/lib/headstart/snapshotter")
}
