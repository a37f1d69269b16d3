//! The private folder in which the servers of one user can be found: a socket each.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How long servers may take to say how they are. They do so at once, unless the machine has more to do than
/// it can.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a client has that is heard when the time is over: what it has said by then is there.
const LAST_LOOK: Duration = Duration::from_millis(1);
/// More than any server says.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// Clients answered before the server looks at its other events again.
const AT_ONCE: usize = 16;

/// Where services with a user of their own have their runtime folders, as their unit says.
const OF_SERVICES: &str = "/run/headstart-serve";

/// `/run/headstart`, or a user's own.
pub struct RunFolder(PathBuf);

/// Where the folder of a user who is not root may be, the best place first. Servers and those who ask them
/// may have been started with `XDG_RUNTIME_DIR` or without.
fn places_of_user(user: u32, named: Option<PathBuf>, of_all_users: &Path) -> Vec<PathBuf> {
    let named = named.filter(|named| named.is_absolute());
    let usual = Some(of_all_users.join(user.to_string())).filter(|usual| usual.is_dir());
    let mut places: Vec<PathBuf> =
        named.into_iter().chain(usual).map(|base| base.join("headstart")).collect();
    places.dedup();
    // In a folder that others write to as well: whose it is, is checked.
    places.push(format!("/tmp/headstart-{user}").into());
    places
}

impl RunFolder {
    fn places() -> Vec<PathBuf> {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return vec!["/run/headstart".into()];
        }
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        places_of_user(user.as_raw(), named, Path::new("/run/user"))
    }

    /// Where it is, whether it exists or not.
    pub fn place() -> Option<PathBuf> {
        Self::places().into_iter().next()
    }

    /// Makes it where it does not exist.
    ///
    /// # Errors
    /// When there is no place for it, it cannot be made, or others may write in it.
    pub fn create() -> anyhow::Result<Self> {
        let path = Self::place().context("there is no place for a run folder")?;
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(error).with_context(|| format!("create {}", path.display()))
            }
            _ => Self::checked(path),
        }
    }

    /// It, or nothing, which is said, where there can be none.
    pub fn offered() -> Option<Self> {
        Self::create().inspect_err(|error| log::warn!("no status to be asked for: {error:#}")).ok()
    }

    /// The folder, if any server has ever made it.
    ///
    /// # Errors
    /// As [`RunFolder::create`].
    pub fn existing() -> anyhow::Result<Option<Self>> {
        match Self::place() {
            Some(path) if path.symlink_metadata().is_ok() => Self::checked(path).map(Some),
            _ => Ok(None),
        }
    }

    /// It, the other places where a user's servers may be found, and for root the folders of services that
    /// have a user of their own.
    ///
    /// # Errors
    /// As [`RunFolder::create`].
    pub fn all_existing() -> anyhow::Result<Vec<Self>> {
        let mut folders = Vec::from_iter(Self::existing()?);
        folders.extend(Self::places().into_iter().skip(1).filter_map(|place| Self::checked(place).ok()));
        if rustix::process::geteuid().is_root() {
            folders.extend(Self::of_services(Path::new(OF_SERVICES)));
        }
        Ok(folders)
    }

    /// Those in the runtime folders of services. Such a service answers for itself alone, whichever its user
    /// is.
    fn of_services(place: &Path) -> Vec<Self> {
        let services = fs::read_dir(place).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = services.map(|service| service.path().join("headstart")).collect();
        folders.retain(|folder| {
            folder.symlink_metadata().is_ok_and(|found| found.is_dir() && found.mode() & 0o077 == 0)
        });
        folders.sort();
        folders.into_iter().map(Self).collect()
    }

    /// A user who can write here could answer for a server.
    fn checked(path: PathBuf) -> anyhow::Result<Self> {
        let found = path.symlink_metadata().with_context(|| format!("look at {}", path.display()))?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
            bail!(
                "{} is not a folder of user {own} that is closed to others (mode 0700): remove it",
                path.display()
            );
        }
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the files of messages in which processes that are gone have left nothing: one that is killed
    /// cannot do it, and this folder lies in memory.
    pub fn forget_the_dead(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse::<u32>().ok());
            let is_over =
                process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists());
            if is_over && entry.metadata().is_ok_and(|file| file.len() == 0) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Asks every server how it is, in the order of their process ids. The sockets of dead ones are removed.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn ask_all(&self) -> anyhow::Result<Vec<(u32, io::Result<Vec<u8>>)>> {
        let entries = fs::read_dir(&self.0).with_context(|| format!("list {}", self.0.display()))?;
        let mut sockets: Vec<(u32, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                Some((name.to_str()?.strip_suffix(".sock")?.parse().ok()?, entry.path()))
            })
            .collect();
        sockets.sort_unstable();
        // All are asked before the first is heard, so that one that stands still costs its time, and not that
        // of each.
        let asked: Vec<_> = sockets.into_iter().map(|(process, path)| (process, ask(&path), path)).collect();
        let end = Instant::now() + PATIENCE;
        let mut answers = Vec::new();
        for (process, stream, path) in asked {
            let mut answer = stream.and_then(|stream| hear(stream, end));
            // One that ends meanwhile cuts the connection, and soon does not listen any more.
            for _ in 0..2 {
                if is_cut(&answer) {
                    answer = ask(&path).and_then(|stream| hear(stream, end));
                }
            }
            match answer {
                // No server listens any more: a socket listens before it gets this name.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(&path);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                answer => answers.push((process, answer)),
            }
        }
        Ok(answers)
    }
}

fn is_cut(answer: &io::Result<Vec<u8>>) -> bool {
    match answer {
        Ok(answer) => answer.is_empty(),
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

fn ask(path: &Path) -> io::Result<UnixStream> {
    // Not UnixStream::connect, which waits without a limit for a server that stands still.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn hear(stream: UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    let left = end.saturating_duration_since(Instant::now());
    stream.set_read_timeout(Some(left.max(LAST_LOOK)))?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::new(ErrorKind::TimedOut, format!("no answer in {} s", PATIENCE.as_secs())))
        }
        read => read.map(|_| answer),
    }
}

/// The socket on which a server says how it is: one JSON object for each connection. Dropping it removes it.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens in `folder` under this process's id.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(folder: &RunFolder) -> io::Result<Self> {
        let number = std::process::id();
        let path = folder.path().join(format!("{number}.sock"));
        let hidden = folder.path().join(format!(".{number}"));
        let _ = fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))?;
        // It appears when it listens, and replaces what a dead process of the same id has left.
        fs::rename(&hidden, &path)?;
        Ok(Self { listener, path })
    }

    /// One in the run folder; where there can be none, that is said, and no client can ask.
    pub fn offer(folder: Option<&RunFolder>) -> Option<Self> {
        let offered = Self::listen(folder?);
        offered.inspect_err(|error| log::warn!("no status to be asked for: {error}")).ok()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What becomes readable when a client asks.
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers those who ask, for as long as `work` takes, and gives what that gives. Where no thread can be
    /// started for it, no client gets an answer.
    pub fn answered_meanwhile<T>(&self, say: impl Fn() -> Vec<u8> + Send, work: impl FnOnce() -> T) -> T {
        let Ok((over, ends)) = io::pipe() else { return work() };
        let answer = move || loop {
            let mut events = [
                PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN),
            ];
            match poll(&mut events, None) {
                Ok(_) if events[0].revents().is_empty() => self.answer(&say),
                Err(Errno::INTR) => {}
                _ => return,
            }
        };
        std::thread::scope(|scope| {
            // The thread ends with the last writer of the pipe, also when the work panics.
            let _ends = ends;
            let answering = std::thread::Builder::new().name("hs-status".to_owned());
            if let Err(error) = answering.spawn_scoped(scope, answer) {
                log::debug!("no status to be asked for: {error}");
            }
            work()
        })
    }

    /// Answers those who ask now, and waits for none of them: an answer that does not fit into the socket's
    /// buffer, which is larger than any answer, is cut off.
    pub fn answer(&self, say: impl FnOnce() -> Vec<u8>) {
        let mut asking = Vec::new();
        while asking.len() < AT_ONCE
            && let Ok((stream, _)) = self.listener.accept()
        {
            asking.push(stream);
        }
        if asking.is_empty() {
            return;
        }
        let text = say();
        for mut stream in asking {
            if stream.set_nonblocking(true).is_ok() {
                let _ = stream.write(&text);
            }
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("closed");
        let run = RunFolder::checked(folder.path().to_owned()).expect("usable");
        (folder, run)
    }

    #[test]
    fn a_server_answers_and_a_dead_ones_socket_goes() {
        let (_keep, run) = folder();
        let dead = run.path().join("1.sock");
        // No server ever listens there: what another test is just starting would do so too, until it is
        // started.
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let address = SocketAddrUnix::new(&dead).expect("short");
        socket.and_then(|socket| rustix::net::bind(&socket, &address)).expect("bound");
        let socket = StatusSocket::listen(&run).expect("listens");
        let mode = fs::metadata(&socket.path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        let answers = std::thread::scope(|scope| {
            let asking = scope.spawn(|| run.ask_all().expect("listed"));
            socket.answered_meanwhile(|| b"{}".to_vec(), || asking.join().expect("asked"))
        });
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].0, std::process::id());
        assert_eq!(answers[0].1.as_deref().expect("answered"), b"{}");
        assert!(!dead.exists(), "the dead server's socket is removed");
        drop(socket);
        assert_eq!(fs::read_dir(run.path()).expect("listed").count(), 0);
    }

    /// The one that stands still is heard first, and says nothing before the other has been asked.
    #[test]
    fn one_server_does_not_wait_for_another_to_be_asked() {
        let (_keep, run) = folder();
        let still = UnixListener::bind(run.path().join("0.sock")).expect("bound");
        let socket = StatusSocket::listen(&run).expect("listens");
        let answers = std::thread::scope(|scope| {
            let asking = scope.spawn(|| run.ask_all().expect("listed"));
            let (mut stream, _) = still.accept().expect("asked");
            let mut events = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            poll(&mut events, None).expect("asked");
            socket.answer(|| b"{}".to_vec());
            stream.write_all(b"1").expect("it is there");
            drop(stream);
            asking.join().expect("asked")
        });
        let said: Vec<_> = answers.iter().map(|(_, answer)| answer.as_deref().expect("in time")).collect();
        assert_eq!(said, [&b"1"[..], b"{}"]);
    }

    /// Its connections may be cut before it stops listening.
    #[test]
    fn a_server_that_ends_while_it_is_asked_is_none() {
        let (_keep, run) = folder();
        let path = run.path().join("1.sock");
        let ending = UnixListener::bind(&path).expect("bound");
        let answers = std::thread::scope(|scope| {
            let asking = scope.spawn(|| run.ask_all().expect("listed"));
            drop(ending.accept().expect("asked"));
            let again = ending.accept().expect("asked again");
            fs::remove_file(&path).expect("removed");
            drop((ending, again));
            asking.join().expect("asked")
        });
        assert!(answers.is_empty(), "{answers:?}");
    }

    #[test]
    fn what_the_dead_have_said_stays_and_nothing_else_of_theirs() {
        let (_keep, run) = folder();
        let own = format!("{}.log", std::process::id());
        // There are no processes of such numbers: proc(5), pid_max.
        for (name, text) in [("4194305.log", ""), ("4194306.log", "why"), (&own, ""), ("attach-1-2.log", "")]
        {
            fs::write(run.path().join(name), text).expect("written");
        }
        run.forget_the_dead();
        let mut left: Vec<_> =
            fs::read_dir(run.path()).expect("listed").map(|entry| entry.expect("one").file_name()).collect();
        left.sort();
        let mut expected = ["4194306.log", &own, "attach-1-2.log"];
        expected.sort_unstable();
        assert_eq!(left, expected);
    }

    /// Clients that never read hold no other: each answer is written at once or cut off.
    #[test]
    fn slow_clients_do_not_hold_the_server() {
        let (_keep, run) = folder();
        let socket = StatusSocket::listen(&run).expect("listens");
        let slow: Vec<UnixStream> =
            (0..20).map(|_| UnixStream::connect(&socket.path).expect("connected")).collect();
        for _ in 0..3 {
            socket.answer(|| vec![b' '; 8 << 20]);
        }
        drop(slow);
    }

    #[test]
    fn services_with_a_user_of_their_own_are_asked_as_well() {
        let place = tempfile::tempdir().expect("a folder");
        for (name, mode) in [("b", 0o700), ("a", 0o700), ("open", 0o755)] {
            let folder = place.path().join(name).join("headstart");
            fs::create_dir_all(&folder).expect("made");
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("set");
        }
        fs::create_dir(place.path().join("empty")).expect("made");
        std::os::unix::fs::symlink("a", place.path().join("link")).expect("a link");
        std::os::unix::fs::symlink("/", place.path().join("b/other")).expect("a link");
        let found: Vec<_> = RunFolder::of_services(place.path()).into_iter().map(|folder| folder.0).collect();
        let expected = ["a", "b", "link"].map(|name| place.path().join(name).join("headstart"));
        assert_eq!(found, expected);
        assert!(RunFolder::of_services(&place.path().join("missing")).is_empty());
    }

    #[test]
    fn users_have_a_folder_with_a_runtime_folder_and_without() {
        let of_all = tempfile::tempdir().expect("a folder");
        let places = |named: Option<&str>| places_of_user(7, named.map(PathBuf::from), of_all.path());
        let last = PathBuf::from("/tmp/headstart-7");
        assert_eq!(places(None), std::slice::from_ref(&last));
        assert_eq!(places(Some("/run/x")), ["/run/x/headstart".into(), last.clone()]);
        assert_eq!(places(Some("relative")), std::slice::from_ref(&last));
        fs::create_dir(of_all.path().join("7")).expect("made");
        let usual = of_all.path().join("7/headstart");
        assert_eq!(places(None), [usual.clone(), last.clone()]);
        assert_eq!(places(of_all.path().join("7").to_str()), [usual.clone(), last.clone()]);
        assert_eq!(places(Some("/run/x")), ["/run/x/headstart".into(), usual, last]);
    }

    #[test]
    fn folders_that_others_may_enter_are_refused() {
        let (keep, _) = folder();
        fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o755)).expect("opened");
        let refused = RunFolder::checked(keep.path().to_owned()).err().expect("refused").to_string();
        assert!(refused.contains("0700"), "{refused}");
        let file = keep.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(RunFolder::checked(file).is_err());
    }
}
