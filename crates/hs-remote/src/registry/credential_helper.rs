//! Credential helpers: programs that keep the logins of docker and podman.
//!
//! ```text
//! registry.example ──► docker-credential-NAME get ──► {"Username": …, "Secret": …}
//! ```
//!
//! A helper may ask a cloud, or a keyring that is locked. It is ended with what it has started when it does
//! not answer in time, or writes without end.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::Deserialize;

use super::login::Login;

/// How long a helper may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of an answer: a token has a few thousand.
const MOST_ANSWER_BYTES: usize = 64 << 10;
/// As a user, it means that the secret is a token.
const TOKEN_USER: &str = "<token>";

/// Why a helper gave no login.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It has none.
    HasNone,
    /// It cannot be started.
    NotStarted,
    /// What it has said is no login, or it said nothing in time.
    Broken(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// The login that this program has for `key`.
pub(super) fn ask(program: &str, key: &str) -> Result<Login, Trouble> {
    ask_within(program, key, PATIENCE)
}

fn ask_within(program: &str, key: &str, patience: Duration) -> Result<Login, Trouble> {
    let mut command = Command::new(program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|_| Trouble::NotStarted)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A pipe holds it. A helper that does not read it says so by its answer.
        let _ = stdin.write_all(key.as_bytes());
    }
    let answer = match answer(&mut child, patience) {
        Ok(answer) => answer,
        Err(error) => {
            end(&mut child);
            return Err(Trouble::Broken(format!("{error}, and was ended")));
        }
    };
    // It has ended.
    let status = child.wait().map_err(|error| Trouble::Broken(error.to_string()))?;
    if !status.success() {
        return Err(Trouble::HasNone);
    }
    if answer.is_empty() {
        return Err(Trouble::Broken("answered nothing".to_owned()));
    }
    let parsed = serde_json::from_slice(&answer);
    let Answer { username, secret } =
        parsed.map_err(|_| Trouble::Broken("answered what is no login".to_owned()))?;
    Ok(match username == TOKEN_USER {
        true => Login::Identity(secret),
        false => Login::Password { user: username, password: secret },
    })
}

/// What it writes until it ends. What it has started may go on, and keep the pipe open.
fn answer(child: &mut Child, patience: Duration) -> io::Result<Vec<u8>> {
    let late = || io::Error::other(format!("gave no answer in {} s", patience.as_secs()));
    let deadline = Instant::now() + patience;
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    // It stays open: a helper that dies of its end could not be asked for what it has started.
    let Some(stdout) = child.stdout.as_mut() else { return Ok(Vec::new()) };
    let (mut answer, mut buffer, mut is_open) = (Vec::new(), [0; 4096], true);
    loop {
        let mut events = vec![PollFd::new(&ended, PollFlags::IN)];
        if is_open {
            events.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut events, Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        let happened = |number: usize| events.get(number).is_some_and(|event| !event.revents().is_empty());
        let (has_ended, writes) = (happened(0), happened(1));
        if writes {
            let read = stdout.read(&mut buffer)?;
            is_open = read != 0;
            answer.extend_from_slice(&buffer[..read]);
            if answer.len() > MOST_ANSWER_BYTES {
                return Err(io::Error::other(format!("wrote more than {MOST_ANSWER_BYTES} bytes")));
            }
        } else if has_ended {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            return Err(late());
        }
    }
}

/// Ends a helper, and what it has started.
fn end(child: &mut Child) {
    let mut all = vec![Pid::from_child(child)];
    let mut stopped = 0;
    // What is stopped starts no more.
    while stopped < all.len() {
        for pid in &all[stopped..] {
            let _ = kill_process(*pid, Signal::STOP);
        }
        stopped = all.len();
        let started: Vec<Pid> = started_by(&all).into_iter().filter(|pid| !all.contains(pid)).collect();
        all.extend(started);
    }
    for pid in all {
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = child.wait();
}

/// The processes whose parent is one of these: proc(5), `/proc/pid/stat`.
fn started_by(parents: &[Pid]) -> Vec<Pid> {
    let is_child = |name: &str| -> Option<Pid> {
        let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let is_one = parents.contains(&Pid::from_raw(parent)?);
        Pid::from_raw(name.parse().ok()?).filter(|_| is_one)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| is_child(entry.file_name().to_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A helper with this script.
    fn helper(folder: &tempfile::TempDir, script: &str) -> PathBuf {
        let path = folder.path().join("docker-credential-test");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }

    fn asked(script: &str, patience: Duration) -> Result<Login, Trouble> {
        let folder = tempfile::tempdir().expect("a folder");
        let program = helper(&folder, script);
        ask_within(program.to_str().expect("text"), "registry.example", patience)
    }

    #[test]
    fn a_helper_is_told_the_registry_and_answers_with_a_login() {
        let login = |user: &str, secret: &str| {
            let script =
                format!(r#"read -r key; echo "{{\"Username\":\"{user}\",\"Secret\":\"{secret}\"}}""#);
            asked(&script, PATIENCE).expect("a login")
        };
        let password = "registry.example".to_owned();
        assert_eq!(login("me", "$key"), Login::Password { user: "me".to_owned(), password });
        assert_eq!(login("<token>", "t"), Login::Identity("t".to_owned()));
        // One that has what it needs need not read.
        assert!(asked(r#"echo '{"Username":"","Secret":""}'; sleep 1000 &"#, PATIENCE).is_ok());
    }

    #[test]
    fn what_is_no_login_is_said_to_be_none() {
        assert_eq!(asked("echo no; exit 1", PATIENCE), Err(Trouble::HasNone));
        let nothing = Trouble::Broken("answered nothing".to_owned());
        assert_eq!(asked("exit 0", PATIENCE), Err(nothing));
        let other = Trouble::Broken("answered what is no login".to_owned());
        assert_eq!(asked("echo hello", PATIENCE), Err(other));
        assert_eq!(ask_within("/none/docker-credential-x", "k", PATIENCE), Err(Trouble::NotStarted));
    }

    #[test]
    fn a_helper_that_hangs_is_ended() {
        let hangs = asked("sleep 1000", Duration::from_secs(1));
        assert_eq!(hangs, Err(Trouble::Broken("gave no answer in 1 s, and was ended".to_owned())));
        // It has closed its output, and goes on.
        let closed = asked("exec >&-; sleep 1000", Duration::from_secs(1));
        assert_eq!(closed, Err(Trouble::Broken("gave no answer in 1 s, and was ended".to_owned())));
    }

    #[test]
    fn a_helper_that_writes_without_end_is_ended_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let pids = folder.path().join("pids");
        let script = format!(
            "(sleep 1000 & echo $! >>{0}; wait) & sleep 1001 &\necho $! $$ >>{0}; while [ $(wc -w <{0}) -lt 3 ]; do :; done; exec yes",
            pids.display()
        );
        let program = helper(&folder, &script);
        let ended = ask_within(program.to_str().expect("text"), "k", PATIENCE);
        assert_eq!(ended, Err(Trouble::Broken("wrote more than 65536 bytes, and was ended".to_owned())));
        let text = fs::read_to_string(pids).expect("written");
        let pids: Vec<i32> = text.split_whitespace().map(|pid| pid.parse().expect("a number")).collect();
        assert_eq!(pids.len(), 3);
        for pid in pids {
            // One that is not there any more has ended.
            let Ok(process) = pidfd_open(Pid::from_raw(pid).expect("a process"), PidfdFlags::empty()) else {
                continue;
            };
            let patience = Timespec { tv_sec: 120, tv_nsec: 0 };
            let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience));
            assert_eq!(ended, Ok(1), "{pid} has ended");
        }
    }
}
