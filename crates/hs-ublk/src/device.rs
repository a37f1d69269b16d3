//! A block device: made, shown, handed over, and taken away.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hs_disk::ServedDisk;
use hs_linux::LinuxError;
use hs_linux::ublk::{Control, DeviceState, Features};
use hs_serve::user_key;
use serde::{Deserialize, Serialize};

use crate::keeper::Keeper;
use crate::served_queue::{ServedQueue, Totals};

/// Requests of one queue, and bytes of one request: with all queues 64 MiB are under way at most.
const DEPTH: u16 = 32;
const MOST_BYTES: u32 = 512 << 10;
const MOST_QUEUES: usize = 4;
/// Minor numbers of block devices.
const NUMBERS: u32 = 1 << 20;
/// How long a server that died may take to let go of the device, and the system to make its files.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

/// The number that a new device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNumber {
    /// One that is free.
    Any,
    /// This one.
    This(u32),
}

impl FromStr for DeviceNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Self::Any);
        }
        let number = text.parse().ok().filter(|number| *number < NUMBERS);
        number.map(Self::This).ok_or_else(|| format!("it is `any` or a number below {NUMBERS}"))
    }
}

/// What the next server needs to know of a device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its number.
    pub number: u32,
    /// What it is known again by.
    pub mark: u64,
    queues: u16,
}

/// What a device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UblkStats {
    /// Reads that it was asked for.
    pub reads: u64,
    /// Bytes that these got.
    pub read_bytes: u64,
}

/// A device that shows nothing yet, with all that has to be open for it.
pub struct Device {
    control: Control,
    held: Held,
    /// Its block device is there, and readers wait for it.
    is_taken_over: bool,
    queues: Vec<ServedQueue>,
    keeper: Keeper,
}

impl Device {
    /// Makes a device, by this number or any. Where it `is_supervised`, reads wait for the next server when
    /// this one dies; else they fail.
    ///
    /// # Errors
    /// The kernel has no ublk, the number is taken, or this process is not root.
    pub fn add(number: DeviceNumber, is_supervised: bool) -> Result<Self, LinuxError> {
        let mut control = Control::open()?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let queues = processors.min(MOST_QUEUES) as u16;
        let mark = new_mark().map_err(LinuxError::io("make a mark for", "a block device"))?;
        let wanted = match number {
            DeviceNumber::Any => None,
            DeviceNumber::This(number) => Some(number),
        };
        let number = control.add(wanted, features(queues, is_supervised, mark))?;
        let held = Held { number, mark, queues };
        let opened = Keeper::start(held).and_then(|keeper| Ok((keeper, open_queues(held)?)));
        match opened {
            Ok((keeper, queues)) => Ok(Self { control, held, is_taken_over: false, queues, keeper }),
            Err(source) => {
                let _ = control.delete(number);
                Err(LinuxError::Io { action: "serve", path: path_of(number), source })
            }
        }
    }

    /// Goes on with the device of a server that died, with the pipe to its keeper.
    ///
    /// # Errors
    /// It is gone, or does not become free.
    pub fn take_over(held: Held, keeper: OwnedFd) -> Result<Self, LinuxError> {
        let mut control = Control::open()?;
        let path = || path_of(held.number);
        let is_taken_over = take_over(&mut control, held).map_err(LinuxError::io("take over", path()))?;
        if !is_taken_over {
            // What the server that died had begun with it cannot be gone on with.
            control.delete_and_wait(held.number).map_err(LinuxError::io("take over", path()))?;
            control.add(Some(held.number), features(held.queues, true, held.mark))?;
        }
        let queues = open_queues(held).map_err(LinuxError::io("take over", path()))?;
        Ok(Self { control, held, is_taken_over, queues, keeper: Keeper::resume(keeper) })
    }

    /// What the next server needs.
    #[must_use]
    pub const fn held(&self) -> (Held, &Keeper) {
        (self.held, &self.keeper)
    }

    /// Shows this disk. Its partitions are there when this returns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn show(mut self, disk: &Arc<ServedDisk>) -> Result<Shown, LinuxError> {
        let number = self.held.number;
        let client = user_key(rustix::process::geteuid().as_raw());
        disk.open_connection(client);
        let totals = Arc::<Totals>::default();
        let threads = self.serve(disk, client, &totals);
        let started = threads.and_then(|threads| {
            if self.is_taken_over {
                self.control.end_recovery(number)?;
            } else {
                self.control.describe(number, disk.image().disk_bytes(), MOST_BYTES)?;
                self.control.start(number)?;
            }
            Ok(threads)
        });
        let Self { control, held, keeper, .. } = self;
        let threads = started.map_err(LinuxError::io("show", path_of(number)))?;
        Ok(Shown { control, held, threads, totals, keeper })
    }

    /// A thread for each queue; all wait for requests when this returns.
    fn serve(
        &mut self,
        disk: &Arc<ServedDisk>,
        client: hs_engine::queue::ClientKey,
        totals: &Arc<Totals>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let (begun, begins) = mpsc::channel();
        let mut threads = Vec::new();
        for (number, queue) in self.queues.drain(..).enumerate() {
            let (disk, totals, begun) = (Arc::clone(disk), Arc::clone(totals), begun.clone());
            let run = move || queue.run(&disk, client, &totals, move |begins| drop(begun.send(begins)));
            threads.push(std::thread::Builder::new().name(format!("ublk-{number}")).spawn(run)?);
        }
        drop(begun);
        begins.iter().collect::<io::Result<()>>()?;
        Ok(threads)
    }
}

/// A device that shows a disk. Dropped without [`Shown::remove`], it is left to its keeper.
pub struct Shown {
    control: Control,
    held: Held,
    threads: Vec<JoinHandle<()>>,
    totals: Arc<Totals>,
    keeper: Keeper,
}

impl Shown {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        path_of(self.held.number)
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> UblkStats {
        UblkStats { reads: self.totals.reads.load(Relaxed), read_bytes: self.totals.bytes.load(Relaxed) }
    }

    /// Takes it away: reads that wait get their answers first.
    pub fn remove(mut self) {
        let number = self.held.number;
        if let Err(error) = self.control.stop(number) {
            log::warn!("{} cannot be stopped: {error}", self.path().display());
        }
        // With them the character device is closed.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        match self.control.delete(number) {
            Ok(()) => self.keeper.dismiss(),
            Err(error) => log::warn!("{} cannot be deleted: {error}", self.path().display()),
        }
    }
}

const fn features(queues: u16, is_recoverable: bool, mark: u64) -> Features {
    Features { queues, depth: DEPTH, most_bytes: MOST_BYTES, is_recoverable, mark }
}

pub(crate) fn path_of(number: u32) -> PathBuf {
    format!("/dev/ublkb{number}").into()
}

/// The queues of a device, whose files the system may still be making.
fn open_queues(held: Held) -> io::Result<Vec<ServedQueue>> {
    let path = format!("/dev/ublkc{}", held.number);
    let file = patiently(|| match File::options().read(true).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // It has been opened by the server before this one.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(None),
        opened => opened.map(Some),
    })?;
    let file = Arc::new(file);
    (0..held.queues).map(|number| ServedQueue::open(&file, number, DEPTH)).collect()
}

/// Has the kernel give the device to this process; not where its server died before its block device was
/// there.
fn take_over(control: &mut Control, held: Held) -> io::Result<bool> {
    patiently(|| {
        match control.state(held.number)? {
            Some((_, mark)) if mark != held.mark => {
                return Err(io::Error::other("another program has made another device of this number"));
            }
            None => return Err(io::Error::other("another program has deleted it")),
            Some((DeviceState::Dead, _)) => return Ok(Some(false)),
            Some(_) => {}
        }
        match control.begin_recovery(held.number) {
            Ok(()) => Ok(Some(true)),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(None),
            // A server that died behind this has begun it, and had no queue.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Some(true)),
            Err(error) => Err(error),
        }
    })
}

/// Asks until there is something.
fn patiently<T>(mut ask: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask()? {
            Some(found) => return Ok(found),
            None if Instant::now() >= until => return Err(io::ErrorKind::TimedOut.into()),
            None => std::thread::sleep(LOOK),
        }
    }
}

fn new_mark() -> io::Result<u64> {
    let mut mark = [0; 8];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut mark)?;
    Ok(u64::from_ne_bytes(mark))
}
