//! A queue of the device at work: its thread takes requests and commits answers, which any thread brings.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;

use hs_disk::{Requester, ServedDisk};
use hs_engine::queue::ClientKey;
use hs_linux::ublk::{Event, Queue, Reply, Request};
use hs_serve::errno;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// What was read by all queues.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) reads: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// A queue with the event that wakes its thread.
pub(crate) struct ServedQueue {
    queue: Queue,
    depth: u16,
    wake: OwnedFd,
}

impl ServedQueue {
    pub(crate) fn open(device: &Arc<std::fs::File>, number: u16, depth: u16) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Queue::open(device, number, depth, wake.as_fd())?;
        Ok(Self { queue, depth, wake })
    }

    /// Lets requests come, says so, and answers them until the device is stopped.
    pub(crate) fn run(
        self,
        disk: &ServedDisk,
        client: ClientKey,
        totals: &Arc<Totals>,
        begun: impl FnOnce(io::Result<()>),
    ) {
        let Self { mut queue, depth, wake } = self;
        let begins = queue.begin();
        let is_served = begins.is_ok();
        begun(begins);
        if !is_served {
            return;
        }
        let answers = Arc::new(Answers {
            thread: std::thread::current().id(),
            ready: Mutex::default(),
            wake,
            totals: Arc::clone(totals),
        });
        if let Err(error) = serve(&mut queue, depth, &answers, disk, client) {
            // Its requests come to the next server.
            log::error!("a queue of the block device cannot be served any more: {error}");
            std::process::exit(1);
        }
    }
}

fn serve(
    queue: &mut Queue,
    depth: u16,
    answers: &Arc<Answers>,
    disk: &ServedDisk,
    client: ClientKey,
) -> io::Result<()> {
    let (mut open, mut events, mut ready) = (depth, Vec::new(), Vec::new());
    while open > 0 {
        queue.wait(&mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Request(tag, request) => {
                    let answer =
                        Answer { to: Arc::clone(answers), tag, reply: queue.reply(tag), is_given: false };
                    answer.begin(request, disk, client);
                }
                Event::Closed(_) => open -= 1,
                Event::Woken => {
                    let _ = rustix::io::read(&answers.wake, &mut [0_u8; 8]);
                    queue.watch_wake()?;
                }
            }
        }
        std::mem::swap(&mut ready, &mut *answers.ready.lock());
        for (tag, result) in ready.drain(..) {
            queue.commit(tag, result)?;
        }
    }
    Ok(())
}

/// Answers that the queue's thread has to commit.
struct Answers {
    thread: ThreadId,
    ready: Mutex<Vec<(u16, i32)>>,
    wake: OwnedFd,
    totals: Arc<Totals>,
}

/// A request that is not answered yet.
struct Answer {
    to: Arc<Answers>,
    tag: u16,
    reply: Reply,
    is_given: bool,
}

impl Answer {
    fn begin(mut self, request: Request, disk: &ServedDisk, client: ClientKey) {
        match request {
            Request::Read { offset, bytes } => {
                self.to.totals.reads.fetch_add(1, Relaxed);
                disk.submit_for(Requester::waiting(client), offset, bytes, move |result| {
                    let result = match result.map(|pieces| self.reply.give(pieces)) {
                        Ok(Ok(())) => {
                            self.to.totals.bytes.fetch_add(bytes.into(), Relaxed);
                            bytes as i32
                        }
                        Ok(Err(error)) => -error.raw_os_error().unwrap_or(libc::EIO),
                        Err(error) => -errno(error),
                    };
                    self.give(result);
                });
            }
            Request::Flush => self.give(0),
            Request::Other => self.give(-libc::EROFS),
        }
    }

    fn give(&mut self, result: i32) {
        self.is_given = true;
        self.to.ready.lock().push((self.tag, result));
        // The queue's own thread looks before it waits.
        if std::thread::current().id() != self.to.thread {
            let _ = rustix::io::write(&self.to.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_given {
            self.give(-libc::EIO);
        }
    }
}
