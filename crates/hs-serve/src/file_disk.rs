//! A plain file as a disk for the front ends, through its store.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use hs_linux::LinuxError;
use hs_store::Store;
use parking_lot::Mutex;

/// Requests that a plain file's medium gets at the same time, at most.
const FILE_THREADS: usize = 32;
/// How many unreadable places are logged as errors; a longer log would help no user.
const MAX_TOLD: usize = 4096;

/// Called once with the bytes, or with an error number.
type Answer = Box<dyn FnOnce(Result<&[u8], i32>) + Send>;

struct FileRead {
    offset: u64,
    len: u32,
    answer: Answer,
}

/// Since when each thread of a [`FileDisk`] has waited for the medium.
#[derive(Debug, Default)]
pub struct FileReads(Mutex<[Option<Instant>; FILE_THREADS]>);

impl FileReads {
    /// How long the oldest waiting read has waited; zero when none waits.
    #[must_use]
    pub fn oldest(&self) -> Duration {
        self.0.lock().iter().flatten().map(Instant::elapsed).max().unwrap_or_default()
    }

    fn set(&self, thread: usize, since: Option<Instant>) {
        self.0.lock()[thread] = since;
    }
}

/// A plain file as a disk, for other systems on the same medium.
pub struct FileDisk {
    bytes: u64,
    reads: Arc<FileReads>,
    queue: Option<Sender<FileRead>>,
    threads: Vec<JoinHandle<()>>,
}

impl FileDisk {
    /// The file in `store`; starts its threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(store: Arc<dyn Store>) -> Result<Self, LinuxError> {
        let (queue, requests) = unbounded();
        let told = Arc::new(Mutex::new(HashSet::new()));
        let reads = Arc::<FileReads>::default();
        let mut disk =
            Self { bytes: store.len(), reads: Arc::clone(&reads), queue: Some(queue), threads: Vec::new() };
        for number in 0..FILE_THREADS {
            let (store, requests, told) = (Arc::clone(&store), requests.clone(), Arc::clone(&told));
            let reads = Arc::clone(&reads);
            let thread = std::thread::Builder::new()
                .name(format!("hs-file-{number}"))
                .spawn(move || answer(&*store, &requests, &told, |since| reads.set(number, since)))
                .map_err(LinuxError::io("start a thread for", "the disk"))?;
            disk.threads.push(thread);
        }
        Ok(disk)
    }
}

fn answer(
    store: &dyn Store,
    requests: &Receiver<FileRead>,
    told: &Mutex<HashSet<u64>>,
    waits: impl Fn(Option<Instant>),
) {
    let mut buffer = Vec::new();
    for FileRead { offset, len, answer } in requests {
        buffer.resize(len as usize, 0);
        waits(Some(Instant::now()));
        let read = store.read_at(offset, &mut buffer);
        waits(None);
        match read {
            Ok(()) => answer(Ok(&buffer)),
            Err(error) => {
                // A program that needs an unreadable place asks again and again; one line in the log is
                // enough.
                let mut told = told.lock();
                let is_news = told.len() < MAX_TOLD && told.insert(offset);
                drop(told);
                let level = if is_news { log::Level::Error } else { log::Level::Debug };
                log::log!(level, "{}", error.with_causes());
                answer(Err(libc::EIO));
            }
        }
    }
}

impl FileDisk {
    /// The reads that wait now.
    #[must_use]
    pub fn reads(&self) -> Arc<FileReads> {
        Arc::clone(&self.reads)
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Reads `len` bytes from `offset`; `answer` is called once from any thread, or dropped where the threads
    /// have ended.
    pub fn submit(&self, offset: u64, len: u32, answer: impl FnOnce(Result<&[u8], i32>) + Send + 'static) {
        if let Some(queue) = &self.queue {
            let _ = queue.send(FileRead { offset, len, answer: Box::new(answer) });
        }
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
