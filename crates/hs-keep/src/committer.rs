//! The thread that writes: one job after the other, without a pause between a flush that comes and its
//! append.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hs_overlay::{Failed, Refusal};
use hs_units::{BLOCK_BYTES, ByteRange};
use parking_lot::MutexGuard;

use crate::change::{self, Taken};
use crate::disk::{Answer, KeptState, Shared};
use crate::snapshots;

/// After so long without an append the disk has nothing else to do, and its file is made smaller.
const IDLE: Duration = Duration::from_secs(2);

/// Answers that are given without the lock.
pub(crate) type Outcomes = Vec<(Answer, Result<(), i32>)>;

/// Writes until the disk is closed.
pub(crate) fn run(shared: &Arc<Shared>) {
    hs_linux::flush_for_kernel();
    let mut state = shared.state.lock();
    let (mut is_idle, mut in_vain) = (false, None);
    loop {
        if let Some(rest) = state.waits_for_writers() {
            // The last of them makes the append, or wakes this thread.
            shared.work.wait_for(&mut state, rest);
            continue;
        }
        snapshots::make_changes(shared, &mut state);
        let Some(job) = state.overlay.poll() else {
            let outcomes = settle(shared, &mut state);
            if !outcomes.is_empty() {
                drop(state);
                tell(outcomes);
                state = shared.state.lock();
                continue;
            }
            if state.ends && !state.overlay.is_busy() {
                break;
            }
            let appends = state.overlay.figures().appends;
            if !state.ends
                && in_vain != Some(appends)
                && let Some(segments) = state.overlay.sparse(is_idle)
            {
                state = move_segments(shared, state, &segments);
                // Without space it is not tried again before something was written.
                in_vain = (!segments.is_empty() && state.overlay.is_flushed()).then_some(appends);
                continue;
            }
            let waited = shared.work.wait_for(&mut state, IDLE);
            is_idle = waited.timed_out() && state.overlay.figures().appends == appends;
            continue;
        };
        // What was gathered is on its way, so there is room for what waits.
        let outcomes = settle(shared, &mut state);
        drop(state);
        tell(outcomes);
        let began = Instant::now();
        let ended = shared.file.run(&job, || shared.quiesce());
        state = shared.state.lock();
        let outcomes = end_job(shared, &mut state, ended.map(|()| began.elapsed()));
        if !outcomes.is_empty() {
            drop(state);
            tell(outcomes);
            state = shared.state.lock();
        }
    }
    state.has_ended = true;
    let outcomes = refuse_all(shared, &mut state, libc::ESHUTDOWN);
    shared.changed.notify_all();
    drop(state);
    tell(outcomes);
}

/// Writes what is needed of these segments again. What there is no room for, or cannot be read, stays.
fn move_segments<'a>(
    shared: &'a Shared,
    mut state: MutexGuard<'a, KeptState>,
    segments: &[ByteRange],
) -> MutexGuard<'a, KeptState> {
    for range in segments {
        drop(state);
        let bytes = shared.file.read_some(range.offset, range.len);
        state = shared.state.lock();
        let Ok(bytes) = bytes else { break };
        let mut moved = state.overlay.handle_segment(*range, &bytes);
        if moved == Err(Refusal::NeedsSpace) {
            let blocks = range.len / BLOCK_BYTES;
            let has_space = shared.file.take_space(&mut state.overlay, blocks);
            moved = has_space.map_or(moved, |()| state.overlay.handle_segment(*range, &bytes));
        }
        if moved.is_err() {
            break;
        }
    }
    if !segments.is_empty() {
        // No flush of a client waits for it: so it is not told to the supervisor either.
        state.overlay.handle_flush();
    }
    state
}

/// Makes the append that a flush of this thread waits for, if that can be made now: so no thread has to be
/// woken for it. What comes meanwhile is left to the committer.
pub(crate) fn lead(shared: &Arc<Shared>, mut state: MutexGuard<'_, KeptState>) {
    if state.waits_for_writers().is_some() {
        // Where others wait already, the committer knows until when.
        let is_first = state.flushes.len() == 1;
        drop(state);
        if is_first {
            shared.work.notify_one();
        }
        return;
    }
    // One append after the other would leave no moment between two.
    let job = if state.snapshots.is_empty() { state.overlay.poll_append() } else { None };
    let Some(job) = job else {
        drop(state);
        shared.work.notify_one();
        return;
    };
    drop(state);
    let began = Instant::now();
    let ended = shared.file.run(&job, || shared.quiesce());
    let mut state = shared.state.lock();
    let outcomes = end_job(shared, &mut state, ended.map(|()| began.elapsed()));
    let others = !state.snapshots.is_empty() || state.overlay.has_other_work();
    let wakes = state.ends || state.overlay.is_due() || others;
    drop(state);
    if wakes {
        // It goes on while the answers are sent.
        shared.work.notify_one();
    }
    tell(outcomes);
}

/// A job has ended, after so long.
fn end_job(shared: &Arc<Shared>, state: &mut KeptState, ended: Result<Duration, Failed>) -> Outcomes {
    match ended {
        Ok(took) => {
            if state.overlay.is_appending() {
                state.appended = Instant::now();
            }
            state.overlay.handle_done_in(took.into());
            settle(shared, state)
        }
        Err(failed) => give_up(shared, state, failed),
    }
}

fn tell(outcomes: Outcomes) {
    for (answer, result) in outcomes {
        answer(result);
    }
}

/// Answers the flushes whose batch is on the medium, and takes the changes for which there is room now.
fn settle(shared: &Arc<Shared>, state: &mut KeptState) -> Outcomes {
    if state.overlay.trouble().is_some() {
        // A write may have met it, beside flushes that wait.
        return refuse_all(shared, state, libc::EIO);
    }
    shared.tell(state);
    let mut outcomes = Outcomes::new();
    let KeptState { overlay, flushes, .. } = state;
    let waiting = std::mem::take(flushes);
    for (batch, answer) in waiting {
        if overlay.is_durable(batch) {
            outcomes.push((answer, Ok(())));
        } else {
            flushes.push((batch, answer));
        }
    }
    let mut only_small = false;
    loop {
        let next = if only_small { state.delayed.pop_small() } else { state.delayed.pop() };
        let Some((kind, (mut change, answer))) = next else { break };
        match change::take(shared, state, &mut change) {
            Taken::Done(result) => outcomes.push((answer, result)),
            Taken::Later => {
                state.delayed.put_back(kind, (change, answer));
                if only_small || !kind.is_large() {
                    break;
                }
                only_small = true;
            }
            Taken::Needs(source) => change::fetch(shared, state, change, source, answer),
        }
    }
    outcomes
}

/// A job has failed.
fn give_up(shared: &Arc<Shared>, state: &mut KeptState, failed: Failed) -> Outcomes {
    let tells = state.overlay.handle_failed(failed);
    if state.overlay.trouble().is_some() {
        log::error!(
            "{}: nothing is written any more: what was flushed before is there, and what was not may not last; \
             end this program, look after the medium, and run `headstart overlay check`",
            shared.file.path().display()
        );
        return refuse_all(shared, state, libc::EIO);
    }
    if tells { refuse_all(shared, state, libc::ENOSPC) } else { settle(shared, state) }
}

fn refuse_all(shared: &Shared, state: &mut KeptState, errno: i32) -> Outcomes {
    snapshots::refuse(shared, state, errno);
    let flushes = state.flushes.drain(..).map(|(_, answer)| (answer, Err(errno)));
    let delayed = state.delayed.drain().map(|(_, answer)| (answer, Err(errno)));
    let outcomes: Outcomes = flushes.chain(delayed).collect();
    if errno == libc::ENOSPC {
        state.refused += outcomes.len() as u64;
    }
    outcomes
}
