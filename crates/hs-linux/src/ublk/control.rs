//! The control device: makes, starts and deletes block devices.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::{FromBytes, IntoBytes};

use super::abi::{self, ControlCommand, DeviceInfo, Parameters};
use super::ring_for;
use crate::LinuxError;

const PATH: &str = "/dev/ublk-control";
/// The kernel chooses the number.
const ANY: u32 = u32::MAX;
/// Each command is waited for.
const ENTRIES: u32 = 2;
const SECTOR_SHIFT: u8 = 9;
const PHYSICAL_SHIFT: u8 = 12;

/// What a device is made with.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Queues.
    pub queues: u16,
    /// Requests that a queue has under way at most.
    pub depth: u16,
    /// Bytes of a request at most.
    pub most_bytes: u32,
    /// When its server dies its requests wait for the next one; else they fail, and the device goes.
    pub is_recoverable: bool,
    /// What the kernel keeps with the device, which is known again by it.
    pub mark: u64,
}

/// What the kernel knows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It was never started, or is stopped: there is no block device.
    Dead,
    /// A server answers its requests.
    Live,
    /// Its requests wait for a server.
    Waits,
}

/// The control device, open.
pub struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens it. From then on this process needs no other right than `CAP_SYS_ADMIN` for what it does here.
    ///
    /// # Errors
    /// When the kernel has none, or this process is not root.
    pub fn open() -> Result<Self, LinuxError> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LinuxError::UblkMissing { path: PATH.into() },
            io::ErrorKind::PermissionDenied => LinuxError::NeedsRoot { what: "a block device (ublk)" },
            _ => LinuxError::Io { action: "open", path: PATH.into(), source: error },
        })?;
        let ring = ring_for(ENTRIES, &[file.as_fd()], &[opcode::UringCmd80::CODE]);
        Ok(Self { ring: ring.map_err(LinuxError::io("make an io_uring for", PATH))? })
    }

    /// Makes a device, by this number or any that is free; gives its number. It has no block device yet.
    ///
    /// # Errors
    /// When the number is taken, or the kernel is older than Linux 6.5.
    pub fn add(&mut self, number: Option<u32>, features: Features) -> Result<u32, LinuxError> {
        let device = number.unwrap_or(ANY);
        let mut flags = abi::F_CMD_IOCTL_ENCODE | abi::F_USER_COPY;
        if features.is_recoverable {
            flags |= abi::F_USER_RECOVERY | abi::F_USER_RECOVERY_REISSUE;
        }
        let mut info = DeviceInfo {
            queues: features.queues,
            depth: features.depth,
            most_bytes: features.most_bytes,
            device,
            flags,
            mark: features.mark,
            ..DeviceInfo::default()
        };
        let added = self.pass(abi::ADD_DEV, device, &mut info);
        added.map_err(|source| match (source.raw_os_error(), number) {
            (Some(libc::EEXIST), Some(number)) => LinuxError::UblkTaken { number },
            _ => LinuxError::Io { action: "add a block device by", path: PATH.into(), source },
        })?;
        // What it does not know, a kernel leaves out.
        if info.flags & flags != flags {
            let _ = self.delete(info.device);
            return Err(LinuxError::UblkTooOld { lacks: flags & !info.flags });
        }
        Ok(info.device)
    }

    /// Says how large the device is; it is read-only, in sectors of 512 bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn describe(&mut self, number: u32, bytes: u64, most_bytes: u32) -> io::Result<()> {
        let mut parameters = Parameters {
            len: size_of::<Parameters>() as u32,
            types: abi::PARAM_BASIC,
            attributes: abi::ATTRIBUTE_READ_ONLY,
            logical_shift: SECTOR_SHIFT,
            physical_shift: PHYSICAL_SHIFT,
            optimal_shift: PHYSICAL_SHIFT,
            least_shift: PHYSICAL_SHIFT,
            most_sectors: most_bytes >> SECTOR_SHIFT,
            sectors: bytes >> SECTOR_SHIFT,
            ..Parameters::default()
        };
        self.pass(abi::SET_PARAMS, number, &mut parameters)
    }

    /// Shows the block device, whose partitions the kernel looks for: another thread answers meanwhile. All
    /// queues have to wait for requests.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(&mut self, number: u32) -> io::Result<()> {
        self.ask(abi::START_DEV, ControlCommand { data: own_process(), ..of(number) })
    }

    /// Takes over a device whose server has died.
    ///
    /// # Errors
    /// `EBUSY` while that still has it, or when it was never started; `ENODEV` when it is gone.
    pub fn begin_recovery(&mut self, number: u32) -> io::Result<()> {
        self.ask(abi::START_USER_RECOVERY, of(number))
    }

    /// All queues wait for requests again: those that waited for a server come to them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end_recovery(&mut self, number: u32) -> io::Result<()> {
        self.ask(abi::END_USER_RECOVERY, ControlCommand { data: own_process(), ..of(number) })
    }

    /// Takes the block device away. Requests that wait fail; those that a server has are answered first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&mut self, number: u32) -> io::Result<()> {
        self.ask(abi::STOP_DEV, of(number))
    }

    /// Deletes a device that is stopped. Its number is free when nothing has it open any more: no process,
    /// and no mount. Before Linux 6.9 this waits until then.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(&mut self, number: u32) -> io::Result<()> {
        match self.ask(abi::DEL_DEV_ASYNC, of(number)) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                self.delete_and_wait(number)
            }
            deleted => deleted,
        }
    }

    /// The same, and waits until the number is free.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_and_wait(&mut self, number: u32) -> io::Result<()> {
        self.ask(abi::DEL_DEV, of(number))
    }

    /// How a device is, and its mark. Nothing when there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn state(&mut self, number: u32) -> io::Result<Option<(DeviceState, u64)>> {
        let mut info = DeviceInfo::default();
        match self.pass(abi::GET_DEV_INFO, number, &mut info) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                let state = match info.state {
                    abi::STATE_DEAD => DeviceState::Dead,
                    abi::STATE_LIVE => DeviceState::Live,
                    _ => DeviceState::Waits,
                };
                Ok(Some((state, info.mark)))
            }
        }
    }

    /// A command with a structure that the kernel reads, or fills in.
    fn pass<T: IntoBytes + FromBytes>(&mut self, op: u32, number: u32, of_device: &mut T) -> io::Result<()> {
        let address = std::ptr::from_mut(of_device) as u64;
        self.ask(op, ControlCommand { address, len: size_of::<T>() as u16, ..of(number) })
    }

    /// One command, answered.
    fn ask(&mut self, op: u32, command: ControlCommand) -> io::Result<()> {
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fixed(0), op).cmd(bytes).build();
        // SAFETY: what the command points to lives until it is answered, which is waited for below; the ring
        // has room, since no other command is under way.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if let Some(answer) = self.ring.completion().next() {
                return if answer.result() < 0 {
                    Err(io::Error::from_raw_os_error(-answer.result()))
                } else {
                    Ok(())
                };
            }
        }
    }
}

fn of(number: u32) -> ControlCommand {
    ControlCommand { device: number, queue: u16::MAX, ..ControlCommand::default() }
}

fn own_process() -> u64 {
    std::process::id().into()
}
