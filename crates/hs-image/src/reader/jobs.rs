//! What the reader's threads do next: the engine's queue decides.
//!
//! A thread is a request to the medium, so there are few of them, and what cannot be begun at once waits
//! here: in its class, with the share of its requester (docs/ENGINE.md). Adjacent windows that different
//! readers wait for share one permit (`Turn`). Threads that read the medium themselves, such as the stream,
//! wait here for a permit as well. What needs only a processor waits for a thread, and for nothing else.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

use hs_engine::queue::{
    Class, ClientKey, Direction, DispatchId, Poll, Queue, QueueConfig, QueueMetrics, Recorded, Request,
    RequestTag, Ticket,
};
use hs_units::{ByteRange, Nanos};
use parking_lot::{Condvar, Mutex};

use super::memory::Key;

/// The requester of a read: its client, and how urgent it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// Whose share it is.
    pub client: ClientKey,
    /// How urgent it is.
    pub class: Class,
}

impl Asker {
    /// The only client of a disk, or an unknown one, that waits.
    pub const SOMEBODY: Self = Self { client: ClientKey(0), class: Class::Demand };

    /// A client that waits.
    #[must_use]
    pub const fn waiting(client: ClientKey) -> Self {
        Self { client, class: Class::Demand }
    }
}

/// Events of the queue that are kept, for `headstart status`: 64 KiB.
const KEPT_EVENTS: usize = 1024;

/// Something to be done by one of the reader's threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// A read waits for this chunk, or will soon.
    Load(Key),
    /// No read waits for these windows yet; the first is marked as loading.
    Ahead(Range<u64>),
    /// This window has come, and has to be decompressed.
    Decode(u64),
}

impl Job {
    /// The chunk that a read may begin to wait for while the job waits.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Load(key) => *key,
            Self::Ahead(windows) => Key::Cold(windows.start),
            Self::Decode(window) => Key::Cold(*window),
        }
    }
}

/// What a turn at the medium is for.
enum Errand {
    /// One of the reader's threads does it.
    Job(Job),
    /// A thread outside this pool waits for it.
    Guest,
}

struct State {
    queue: Queue,
    /// What each tag is for.
    errands: Vec<Option<Errand>>,
    free: Vec<u64>,
    /// Jobs that are not as urgent as can be.
    patient: HashMap<Key, Ticket>,
    /// Jobs that need no medium.
    ready: VecDeque<Job>,
    /// Turns that wait for a thread.
    dispatched: VecDeque<(DispatchId, Vec<Job>)>,
    /// Outside threads that wait for a permit, by tag.
    guests: HashMap<u64, Ticket>,
    /// Permits of outside threads that have not noticed yet.
    granted: HashMap<u64, DispatchId>,
    /// Of turns that are more than one's, how many have not ended theirs.
    holders: HashMap<DispatchId, usize>,
    /// Threads that wait for work.
    idle: usize,
    stopped: bool,
}

impl State {
    fn hand_in(&mut self, now: Nanos, asker: Asker, range: ByteRange, errand: Errand) -> (u64, Ticket) {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.errands.push(None);
            self.errands.len() as u64 - 1
        });
        self.errands[tag as usize] = Some(errand);
        let Asker { client, class } = asker;
        let request = Request { tag: RequestTag(tag), class, client, direction: Direction::Read, range };
        (tag, self.queue.handle_request(now, request))
    }

    /// Hands a permit to the jobs and threads that it is for.
    fn begin(&mut self, id: DispatchId) {
        let tags: Vec<u64> = self.queue.tags(id).map(|tag| tag.0).collect();
        let mut jobs = Vec::with_capacity(tags.len());
        let mut holders = 0;
        for tag in tags {
            match self.errands[tag as usize].take().expect("an errand is begun once") {
                Errand::Job(job) => {
                    self.free.push(tag);
                    self.patient.remove(&job.key());
                    jobs.push(job);
                }
                // The tag is free when the outside thread has seen it.
                Errand::Guest => {
                    self.guests.remove(&tag);
                    self.granted.insert(tag, id);
                    holders += 1;
                }
            }
        }
        if !jobs.is_empty() {
            jobs.sort_by_key(Job::key);
            self.dispatched.push_back((id, jobs));
            holders += 1;
        }
        if holders > 1 {
            self.holders.insert(id, holders);
        }
    }

    /// One holder is done with a permit.
    fn end(&mut self, now: Nanos, id: DispatchId) {
        if let Some(holders) = self.holders.get_mut(&id) {
            *holders -= 1;
            if *holders > 0 {
                return;
            }
            self.holders.remove(&id);
        }
        drop(self.queue.handle_done(now, id, 0));
    }
}

/// Jobs that wait for a thread.
pub(super) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
    /// A thread outside the pool has its permit.
    granted: Condvar,
    started: Instant,
}

impl Jobs {
    /// No jobs, for so many `threads`.
    pub(super) fn new(mut config: QueueConfig, threads: usize) -> Self {
        let threads = threads.max(1) as u32;
        for (class, config) in Class::ALL.into_iter().zip(&mut config.classes) {
            if class <= Class::ReadAhead && config.depth == 1 {
                // One more than is served waits at the medium, which would pause while a thread takes its
                // permit. See docs/decisions/021-one-queue.md.
                config.depth = threads.min(2);
            }
            if class > Class::Demand {
                // Their jobs bring many chunks already.
                config.merge_bytes = 0;
                // A thread is left for demand, whatever else is in flight.
                config.depth = config.depth.min(threads - 1).max(1);
            }
        }
        let mut queue = Queue::new(config);
        queue.start_recording(KEPT_EVENTS);
        let state = State {
            queue,
            errands: Vec::new(),
            free: Vec::new(),
            patient: HashMap::new(),
            ready: VecDeque::new(),
            dispatched: VecDeque::new(),
            guests: HashMap::new(),
            granted: HashMap::new(),
            holders: HashMap::new(),
            idle: 0,
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            granted: Condvar::new(),
            started: Instant::now(),
        }
    }

    /// Hands in a job that will ask for about this range of the medium.
    pub(super) fn push(&self, asker: Asker, range: ByteRange, job: Job) {
        let mut state = self.state.lock();
        let key = job.key();
        let (_, ticket) = state.hand_in(self.now(), asker, range, Errand::Job(job));
        if asker.class > Class::Demand {
            state.patient.insert(key, ticket);
        }
        self.look(&mut state);
    }

    /// Hands in a job that needs no medium.
    pub(super) fn push_ready(&self, job: Job) {
        self.state.lock().ready.push_back(job);
        self.changed.notify_one();
    }

    /// A read waits for this chunk now, whose job may wait below demand.
    pub(super) fn hurry(&self, key: Key) {
        let mut state = self.state.lock();
        if let Some(ticket) = state.patient.remove(&key)
            && state.queue.handle_promote(self.now(), ticket, Class::Demand)
        {
            self.look(&mut state);
        }
    }

    /// A read waits now for what waiting outside threads will bring.
    pub(super) fn hurry_guests(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = self.now();
        for ticket in state.guests.values() {
            state.queue.handle_promote(now, *ticket, Class::Demand);
        }
        self.look(state);
    }

    /// Waits for the next job; `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        while !state.stopped {
            state.idle += 1;
            let then = self.pump(&mut state);
            if let Some((id, jobs)) = state.dispatched.pop_front() {
                state.idle -= 1;
                return Some(Turn { jobs: self, id: Cell::new(Some(id)), work: jobs });
            }
            if let Some(job) = state.ready.pop_front() {
                state.idle -= 1;
                return Some(Turn { jobs: self, id: Cell::new(None), work: vec![job] });
            }
            match then {
                Some(then) => {
                    let pause = then.saturating_sub(self.now());
                    let _ = self.changed.wait_for(&mut state, pause.into());
                }
                None => self.changed.wait(&mut state),
            }
            state.idle -= 1;
        }
        None
    }

    /// Waits for a turn to read this range of the medium by oneself, which lasts until what is returned is
    /// dropped. `None` when there will be no more, or the guest `gives_up`: see [`Jobs::wake_guests`].
    pub(super) fn enter(
        &self,
        asker: Asker,
        range: ByteRange,
        gives_up: impl Fn() -> bool,
    ) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        if state.stopped {
            return None;
        }
        let (tag, ticket) = state.hand_in(self.now(), asker, range, Errand::Guest);
        state.guests.insert(tag, ticket);
        self.look(&mut state);
        loop {
            if let Some(id) = state.granted.remove(&tag) {
                state.free.push(tag);
                return Some(Turn { jobs: self, id: Cell::new(Some(id)), work: Vec::new() });
            }
            if state.stopped || gives_up() {
                state.queue.handle_cancel(self.now(), ticket);
                state.guests.remove(&tag);
                state.errands[tag as usize] = None;
                state.free.push(tag);
                return None;
            }
            self.granted.wait(&mut state);
        }
    }

    /// Waiting outside threads check whether to give up.
    pub(super) fn wake_guests(&self) {
        // Under the lock, so that no thread is between looking and waiting.
        let _state = self.state.lock();
        self.granted.notify_all();
    }

    /// Ends all waiting; jobs that no thread has begun are not done.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
        self.granted.notify_all();
    }

    /// What the queue has done so far.
    pub(super) fn metrics(&self) -> QueueMetrics {
        self.state.lock().queue.metrics(self.now())
    }

    /// The last events of the queue, at most so many, the oldest first.
    pub(super) fn events(&self, most: usize) -> Vec<Recorded> {
        let state = self.state.lock();
        state.queue.recorder().map_or_else(Vec::new, |recorder| recorder.last(most).collect())
    }

    /// How the queue behaves.
    pub(super) fn config(&self) -> QueueConfig {
        *self.state.lock().queue.config()
    }

    /// A client has one more connection.
    pub(super) fn open_connection(&self, client: ClientKey) {
        self.state.lock().queue.open_connection(client);
    }

    /// A client has one connection less.
    pub(super) fn close_connection(&self, client: ClientKey) {
        self.state.lock().queue.close_connection(client);
    }

    /// Hands out the permits that the queue grants, as long as a thread is idle for each. Returns when to
    /// look again although nothing has changed.
    fn pump(&self, state: &mut State) -> Option<Nanos> {
        while state.idle > state.dispatched.len() {
            match state.queue.poll(self.now()) {
                Poll::Dispatch(dispatch) => {
                    let jobs = state.dispatched.len();
                    state.begin(dispatch.id);
                    if state.dispatched.len() > jobs {
                        self.changed.notify_one();
                    }
                    if !state.granted.is_empty() {
                        self.granted.notify_all();
                    }
                }
                Poll::WaitUntil(then) => return Some(then),
                Poll::Idle => break,
            }
        }
        None
    }

    /// As [`pump`](Self::pump), by a thread that does not wait itself.
    fn look(&self, state: &mut State) {
        if self.pump(state).is_some() {
            // One of the waiting threads has to look again then.
            self.changed.notify_one();
        }
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }
}

/// A turn at the medium, or jobs that need none; over when this is dropped.
pub(super) struct Turn<'a> {
    jobs: &'a Jobs,
    id: Cell<Option<DispatchId>>,
    /// In order of position; several are windows that reads wait for.
    pub(super) work: Vec<Job>,
}

impl Turn<'_> {
    /// The medium has given everything: the next permit begins, whatever this thread does next.
    pub(super) fn end(&self) {
        let Some(id) = self.id.take() else { return };
        let mut state = self.jobs.state.lock();
        state.end(self.jobs.now(), id);
        self.jobs.look(&mut state);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use hs_engine::queue::{ClassConfig, MediumTraits};

    use super::*;

    fn window(window: u64) -> (ByteRange, Job) {
        (ByteRange::new(window << 20, 1 << 17), Job::Load(Key::Cold(window)))
    }

    fn push(jobs: &Jobs, client: u64, class: Class, number: u64) {
        let (range, job) = window(number);
        jobs.push(Asker { client: ClientKey(client), class }, range, job);
    }

    fn next(jobs: &Jobs) -> u64 {
        match jobs.take().expect("there is a job").work[..] {
            [Job::Load(Key::Cold(window))] => window,
            ref other => panic!("not one cold window: {other:?}"),
        }
    }

    /// A medium that serves one request at a time, and lets prefetch begin at once.
    fn serial() -> QueueConfig {
        let traits = MediumTraits { rotational: true, overlaps: false, bytes_per_s: None };
        let config = QueueConfig::for_medium(traits);
        let classes = config.classes.map(|class| ClassConfig { hold_off: Nanos::ZERO, ..class });
        QueueConfig { classes, ..config }
    }

    #[test]
    fn windows_that_lie_next_to_each_other_are_one_turn_whoever_waits_for_them() {
        let jobs = Jobs::new(serial(), 2);
        for (client, window) in [(1, 6), (2, 5), (1, 9), (3, 7)] {
            jobs.push(
                Asker::waiting(ClientKey(client)),
                ByteRange::new(window * 40_000, 40_000),
                Job::Load(Key::Cold(window)),
            );
        }
        let turn = jobs.take().expect("there are jobs");
        let load = |window| Job::Load(Key::Cold(window));
        assert_eq!(turn.work, [load(5), load(6), load(7)]);
        drop(turn);
        assert_eq!(jobs.take().expect("one more").work, [load(9)]);
        assert_eq!(jobs.metrics().classes[0].merged(), 2);
    }

    #[test]
    fn a_guest_has_a_turn_like_everybody_and_the_next_begins_when_it_ends() {
        let jobs = Jobs::new(serial(), 1);
        let guest = Asker { client: ClientKey::NOBODY, class: Class::Prefetch };
        let range = ByteRange::new(0, 1 << 20);
        std::thread::scope(|scope| {
            let (took, taken) = std::sync::mpsc::channel();
            let worker = scope.spawn(|| {
                let took = took;
                while let Some(turn) = jobs.take() {
                    took.send(turn.work.clone()).expect("somebody listens");
                }
            });
            let turn = jobs.enter(guest, range, || false).expect("it is nobody else's");
            push(&jobs, 1, Class::Demand, 3);
            assert!(taken.try_recv().is_err(), "the medium serves one at a time");
            turn.end();
            assert_eq!(taken.recv().expect("a job"), [window(3).1]);
            drop(turn);
            assert!(jobs.enter(guest, range, || false).is_some());
            jobs.stop();
            assert!(jobs.enter(guest, range, || false).is_none());
            worker.join().expect("it ends");
        });
    }

    #[test]
    fn a_guest_gives_up_and_leaves_nothing() {
        let jobs = Jobs::new(serial(), 1);
        let guest = Asker { client: ClientKey::NOBODY, class: Class::Prefetch };
        assert!(jobs.enter(guest, ByteRange::new(0, 4096), || true).is_none());
        push(&jobs, 1, Class::Demand, 3);
        assert_eq!(next(&jobs), 3);
        assert_eq!(jobs.state.lock().queue.waiting(), 0);
    }

    #[test]
    fn what_needs_no_medium_does_not_wait_for_it() {
        let jobs = Jobs::new(serial(), 1);
        push(&jobs, 1, Class::Demand, 1);
        push(&jobs, 1, Class::Demand, 5);
        let turn = jobs.take().expect("a job");
        jobs.push_ready(Job::Decode(9));
        assert_eq!(jobs.take().expect("a job").work, [Job::Decode(9)]);
        turn.end();
        assert_eq!(next(&jobs), 5);
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
