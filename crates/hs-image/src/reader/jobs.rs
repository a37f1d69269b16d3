//! What the reader's threads do next: the engine's queue decides.
//!
//! A thread is a request to the medium, so there are few of them, and what cannot be begun at once waits here: in its
//! class, with the share of whoever asked (docs/ENGINE.md). Nothing is merged in the queue, because a job brings
//! its neighbours by itself.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use hs_engine::queue::{
    Class, ClientKey, Direction, DispatchId, Poll, Queue, QueueConfig, QueueMetrics, Request, RequestTag,
    Ticket,
};
use hs_units::{ByteRange, Nanos};
use parking_lot::{Condvar, Mutex};

use super::memory::Key;

/// Who wants something, and how urgently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// Whose share it is.
    pub client: ClientKey,
    /// How urgent it is.
    pub class: Class,
}

impl Asker {
    /// The only client of a disk, or one that nothing is known of, who waits.
    pub const SOMEBODY: Self = Self { client: ClientKey(0), class: Class::Demand };

    /// A client who waits.
    #[must_use]
    pub const fn waiting(client: ClientKey) -> Self {
        Self { client, class: Class::Demand }
    }
}

/// Something to be done by one of the reader's threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Somebody waits for this chunk, or will soon.
    Load(Key),
    /// Nobody waits for these windows yet; the first is marked as loading.
    Ahead(Range<u64>),
}

impl Job {
    /// The chunk that somebody may come to wait for while the job waits.
    fn key(&self) -> Key {
        match self {
            Self::Load(key) => *key,
            Self::Ahead(windows) => Key::Cold(windows.start),
        }
    }
}

struct State {
    queue: Queue,
    /// Jobs by tag.
    jobs: Vec<Option<Job>>,
    free: Vec<u64>,
    /// Jobs that are not as urgent as can be.
    patient: HashMap<Key, Ticket>,
    stopped: bool,
}

/// Jobs that wait for a thread.
pub(super) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
    started: Instant,
}

impl Jobs {
    /// No jobs, for so many `threads`.
    pub(super) fn new(mut config: QueueConfig, threads: usize) -> Self {
        let threads = threads.max(1) as u32;
        for (class, config) in Class::ALL.into_iter().zip(&mut config.classes) {
            config.merge_bytes = 0;
            // A thread is left for those who wait, whatever else is under way.
            config.depth =
                if class == Class::Demand { threads } else { config.depth.min(threads - 1).max(1) };
        }
        let state = State {
            queue: Queue::new(config),
            jobs: Vec::new(),
            free: Vec::new(),
            patient: HashMap::new(),
            stopped: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), started: Instant::now() }
    }

    /// Hands in a job that will ask for about this range of the medium.
    pub(super) fn push(&self, asker: Asker, range: ByteRange, job: Job) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let key = job.key();
        let tag = state.free.pop().unwrap_or_else(|| {
            state.jobs.push(None);
            state.jobs.len() as u64 - 1
        });
        state.jobs[tag as usize] = Some(job);
        let Asker { client, class } = asker;
        let request = Request { tag: RequestTag(tag), class, client, direction: Direction::Read, range };
        let ticket = state.queue.handle_request(self.now(), request);
        if class > Class::Demand {
            state.patient.insert(key, ticket);
        }
        self.changed.notify_one();
    }

    /// Somebody waits now for this chunk, whose job may wait as one that nobody waits for.
    pub(super) fn hurry(&self, key: Key) {
        let mut state = self.state.lock();
        if let Some(ticket) = state.patient.remove(&key)
            && state.queue.handle_promote(self.now(), ticket, Class::Demand)
        {
            self.changed.notify_one();
        }
    }

    /// Waits for the next job; `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        while !state.stopped {
            match state.queue.poll(self.now()) {
                Poll::Dispatch(dispatch) => {
                    let tag = state.queue.tags(dispatch.id).next().expect("nothing is merged").0;
                    let job = state.jobs[tag as usize].take().expect("a job is done once");
                    state.free.push(tag);
                    if dispatch.class > Class::Demand {
                        state.patient.remove(&job.key());
                    }
                    return Some(Turn { jobs: self, id: dispatch.id, job });
                }
                Poll::WaitUntil(then) => {
                    let pause = then.saturating_sub(self.now());
                    let _ = self.changed.wait_for(&mut state, pause.into());
                }
                Poll::Idle => self.changed.wait(&mut state),
            }
        }
        None
    }

    /// Ends all waiting; jobs that nobody has begun are not done.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// What the queue has done so far.
    pub(super) fn metrics(&self) -> QueueMetrics {
        self.state.lock().queue.metrics(self.now())
    }

    /// A client has one more connection.
    pub(super) fn open_connection(&self, client: ClientKey) {
        self.state.lock().queue.open_connection(client);
    }

    /// A client has one connection less.
    pub(super) fn close_connection(&self, client: ClientKey) {
        self.state.lock().queue.close_connection(client);
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }
}

/// A job that a thread has taken; over when this is dropped.
pub(super) struct Turn<'a> {
    jobs: &'a Jobs,
    id: DispatchId,
    pub(super) job: Job,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.jobs.state.lock();
        let now = self.jobs.now();
        drop(state.queue.handle_done(now, self.id, 0));
        // Others may have waited for this one to end although a thread was free.
        if state.queue.waiting() > 0 {
            self.jobs.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(window: u64) -> (ByteRange, Job) {
        (ByteRange::new(window << 20, 1 << 17), Job::Load(Key::Cold(window)))
    }

    fn push(jobs: &Jobs, client: u64, class: Class, number: u64) {
        let (range, job) = window(number);
        jobs.push(Asker { client: ClientKey(client), class }, range, job);
    }

    fn next(jobs: &Jobs) -> u64 {
        match jobs.take().expect("there is a job").job {
            Job::Load(Key::Cold(window)) => window,
            ref other => panic!("not a cold window: {other:?}"),
        }
    }

    #[test]
    fn who_waits_goes_before_what_is_read_ahead_and_hurried_jobs_go_with_them() {
        let jobs = Jobs::new(QueueConfig::default(), 1);
        for number in 0..3 {
            push(&jobs, 0, Class::ReadAhead, number);
        }
        push(&jobs, 0, Class::Demand, 10);
        jobs.hurry(Key::Cold(2));
        assert_eq!([(); 4].map(|()| next(&jobs)), [10, 2, 0, 1]);
        jobs.stop();
        assert!(jobs.take().is_none());
    }

    #[test]
    fn a_client_with_many_reads_does_not_keep_another_waiting() {
        let jobs = Jobs::new(QueueConfig::default(), 1);
        for number in 0..1000 {
            push(&jobs, 1, Class::Demand, number);
        }
        for _ in 0..500 {
            next(&jobs);
        }
        push(&jobs, 2, Class::Demand, 5000);
        let before = (0..100).position(|_| next(&jobs) == 5000).expect("it is served");
        assert!(before <= 8, "{before} reads of the other client went before it");
    }
}
