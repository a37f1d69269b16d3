//! A process that takes the device away when nothing serves it any more and nothing will.
//!
//! It runs this program again, and reads a pipe whose other end the server and its supervisor have. When both
//! are gone, reads of the device would wait without a limit: it is deleted, and they fail.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use hs_linux::ends::Ends;
use hs_linux::ublk::{Control, DeviceState};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::device::Held;

/// The hidden first argument with which the program is started as a keeper.
pub const ARGUMENT: &str = "__ublk-keeper";
/// The word by which it learns that there is nothing left to do.
const DISMISSED: u8 = b'.';

/// The end of its pipe that a server has.
pub struct Keeper(OwnedFd);

impl Keeper {
    /// Starts one for a device.
    pub(crate) fn start(held: Held) -> io::Result<Self> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
        Command::new("/proc/self/exe")
            // Only the name that lists of processes show.
            .arg0("headstart-ublk-keeper")
            .args([ARGUMENT, &held.number.to_string(), &held.mark.to_string()])
            .stdin(Stdio::from(reads))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        Ok(Self(writes))
    }

    /// The pipe to the keeper that a server before this one has started.
    pub(crate) const fn resume(writes: OwnedFd) -> Self {
        Self(writes)
    }

    /// There is no device any more.
    pub(crate) fn dismiss(&self) {
        let _ = rustix::io::write(&self.0, &[DISMISSED]);
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The keeper itself; `arguments` follow [`ARGUMENT`].
pub fn keeper_main(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let mut next = || arguments.next().and_then(|text| text.into_string().ok());
    let number = next().and_then(|text| text.parse().ok());
    let mark = next().and_then(|text| text.parse().ok());
    let kept = number.zip(mark).map(|(number, mark)| keep(number, mark));
    std::process::exit(i32::from(!matches!(kept, Some(Ok(())))))
}

fn keep(number: u32, mark: u64) -> io::Result<()> {
    // A terminal's Ctrl-C, and a signal to the process group, are meant for the server.
    let _ = rustix::process::setsid();
    let _signals = Ends::block()?;
    let mut word = [0];
    if io::stdin().read(&mut word)? == 1 && word[0] == DISMISSED {
        return Ok(());
    }
    let mut control = Control::open().map_err(io::Error::other)?;
    // Another program may have made a device of this number.
    match control.state(number)? {
        Some((state, found)) if found == mark => {
            if state != DeviceState::Dead {
                control.stop(number)?;
            }
            control.delete(number)
        }
        _ => Ok(()),
    }
}
