//! The arguments of this program, and what of them other users may see.
//!
//! Every user of a machine can read `/proc/PID/cmdline`. Addresses of images may hold passwords, tokens and
//! signatures, so a process is given its arguments with the secrets of addresses masked, and what it was
//! really told in a file in memory that only it has.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

/// The first argument of a process whose real arguments lie in this descriptor.
const HANDED_OVER: &str = "--handed-over-arguments=";
/// What stands in the place of a secret.
const MASK: &str = "***";

/// The arguments of this process, without the program's name. If there are secrets among them, the program
/// begins once more with masked ones; it stays the same process.
pub fn of_this_process() -> Vec<OsString> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "headstart".into());
    let arguments: Vec<OsString> = arguments.collect();
    if let Some(fd) =
        arguments.first().and_then(|first| first.to_str()?.strip_prefix(HANDED_OVER)?.parse().ok())
    {
        return take(fd).unwrap_or_else(|error| {
            hs_output::note!("headstart: the arguments were not handed over: {error}");
            std::process::exit(1);
        });
    }
    if arguments.iter().any(|word| masked(word).is_some()) {
        let mut command = Command::new("/proc/self/exe");
        let error = match give(command.arg0(name), &arguments) {
            Ok(()) => command.exec(),
            Err(error) => error,
        };
        hs_output::note!(
            "headstart: warning: other users see the secrets of addresses among the arguments: {error}"
        );
    }
    arguments
}

/// Gives `command` these arguments: as they are, or masked if there are secrets among them.
///
/// # Errors
/// When there is no memory for them.
pub fn give(command: &mut Command, arguments: &[OsString]) -> io::Result<()> {
    let shown: Vec<Option<OsString>> = arguments.iter().map(|word| masked(word)).collect();
    if shown.iter().all(Option::is_none) {
        command.args(arguments);
        return Ok(());
    }
    let mut file = File::from(memfd_create("headstart-arguments", MemfdFlags::CLOEXEC)?);
    for word in arguments {
        file.write_all(word.as_bytes())?;
        file.write_all(&[0])?;
    }
    command.arg(format!("{HANDED_OVER}{}", file.as_raw_fd()));
    command.args(shown.into_iter().zip(arguments).map(|(shown, word)| shown.unwrap_or_else(|| word.clone())));
    let keep_open = move || {
        // SAFETY: fcntl with these arguments changes a flag of the child's own copy of the descriptor.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: fcntl is safe between fork and exec, and nothing is allocated. The closure owns the file, so
    // the number stays the file's for as long as the command can be started.
    unsafe {
        command.pre_exec(keep_open);
    }
    Ok(())
}

/// What [`give`] has written.
fn take(fd: i32) -> io::Result<Vec<OsString>> {
    // SAFETY: this program, when it started this process, passed the descriptor for this alone.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let words = bytes.strip_suffix(&[0]).ok_or(io::ErrorKind::UnexpectedEof)?.split(|byte| *byte == 0);
    Ok(words.map(|word| OsString::from_vec(word.to_vec())).collect())
}

/// The word without the secrets of an address in it: user and password, and the query. `None` when it has
/// none.
fn masked(word: &OsStr) -> Option<OsString> {
    let bytes = word.as_bytes();
    let after_scheme = bytes.windows(3).position(|three| three == b"://")? + 3;
    let (scheme, rest) = bytes.split_at(after_scheme);
    let (address, fragment) = split_at_first(rest, b"#");
    let (address, query) = split_at_first(address, b"?");
    let (authority, path) = split_at_first(address, b"/");
    let login = authority.iter().rposition(|byte| *byte == b'@');
    if login.is_none() && query.is_empty() {
        return None;
    }
    let mut shown = scheme.to_vec();
    if login.is_some() {
        shown.extend_from_slice(MASK.as_bytes());
    }
    shown.extend_from_slice(&authority[login.unwrap_or(0)..]);
    shown.extend_from_slice(path);
    if !query.is_empty() {
        shown.push(b'?');
        shown.extend_from_slice(MASK.as_bytes());
    }
    shown.extend_from_slice(fragment);
    Some(OsString::from_vec(shown))
}

/// The bytes before the first of these, and those from there on.
fn split_at_first<'a>(bytes: &'a [u8], ends: &[u8]) -> (&'a [u8], &'a [u8]) {
    bytes.split_at(bytes.iter().position(|byte| ends.contains(byte)).unwrap_or(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_addresses_are_masked_and_nothing_else_is() {
        for (word, shown) in [
            ("http://u:p@h/a.hsi?X-Sig=s#hs1-0", "http://***@h/a.hsi?***#hs1-0"),
            ("games=https://u@h:81/a?b=c@d", "games=https://***@h:81/a?***"),
            ("--image=https://h/a.hsi?sig=a/b://c", "--image=https://h/a.hsi?***"),
            ("https://u:p@x@h", "https://***@h"),
            ("https://h/?", "https://h/?***"),
        ] {
            assert_eq!(masked(OsStr::new(word)).as_deref(), Some(OsStr::new(shown)), "{word}");
        }
        // The registry's digest is no login, and a question mark behind # is of no query.
        for word in ["https://h/a@b#key=a?b", "oci://h/n@sha256:0", "a@b?c", "/srv/a.hsi", "", "a b"] {
            assert_eq!(masked(OsStr::new(word)), None, "{word}");
        }
    }

    #[test]
    fn what_is_given_is_taken() {
        let words = ["mount", "http://u:p@h/a", "", "--x=\n"].map(OsString::from);
        let mut command = Command::new("sh");
        give(&mut command, &words).expect("given");
        let shown: Vec<_> = command.get_args().map(OsStr::to_owned).collect();
        let fd = shown[0].to_str().and_then(|first| first.strip_prefix(HANDED_OVER)).expect("handed over");
        assert_eq!(shown[1..], ["mount", "http://***@h/a", "", "--x=\n"]);
        // A copy, since the command owns the one that it names.
        let copy = File::open(format!("/proc/self/fd/{fd}")).expect("open");
        assert_eq!(take(std::os::fd::IntoRawFd::into_raw_fd(copy)).expect("taken"), words);
        let mut command = Command::new("sh");
        give(&mut command, &words[..1]).expect("given");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["mount"]);
    }
}
