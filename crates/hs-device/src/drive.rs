//! A drive: a turning surface, a head that seeks, and a buffer that it reads ahead into.

use hs_units::{ByteRange, Nanos};

use crate::seek::SeekCurve;
use crate::surface::Surface;
use crate::{Device, Service};

pub(crate) mod writing;

/// What a drive does besides turning.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct DriveSpec {
    /// Seconds that the surface takes to turn once.
    pub(crate) turn: f64,
    /// Bytes that cannot be read by halves.
    pub(crate) sector_bytes: u64,
    /// Bytes that the drive reads on after a request, and keeps.
    pub(crate) buffer_bytes: u64,
    /// Seconds from a command to the drive's doing something about it.
    pub(crate) command: f64,
    /// Bytes a second from the buffer to the computer.
    pub(crate) interface: f64,
    /// From track to track.
    pub(crate) seek: SeekCurve,
    /// When it stops turning, if it does.
    pub(crate) standby: Option<Standby>,
}

/// A drive stops turning when it has had nothing to do for long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Standby {
    /// So long.
    pub(crate) after: Nanos,
    /// Time until it turns as fast as before.
    pub(crate) spin_up: Nanos,
}

/// Where the head is, and what the buffer holds.
///
/// From `since` on it reads, one turn a turn, until `limit`; there it waits. The buffer holds what was
/// read from `low` on, as far as it is large enough.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Head {
    since: Nanos,
    turns: f64,
    low: u64,
    limit: u64,
}

/// The latest request, while it can still be abandoned.
#[derive(Clone, Copy, Debug)]
struct Latest {
    service: Service,
    /// On the surface, not in the file.
    range: ByteRange,
    /// What the head did before.
    before: Head,
}

/// A drive at work on the file that lies on it from byte `base` on. Requests are served one after the
/// other, in the order of submission.
///
/// - *In the buffer*: the bytes come at the interface's rate, without the head.
/// - *Ahead of the head*: it reads on where that is sooner than a seek.
/// - *Elsewhere*: command, seek by distance, and the rest of a turn until the first sector comes by.
///   Its angle follows from `now`, so the same requests at the same times are served the same.
pub(crate) struct Drive<S> {
    surface: S,
    spec: DriveSpec,
    base: u64,
    head: Head,
    free: Nanos,
    latest: Option<Latest>,
}

impl<S: Surface> Drive<S> {
    /// A drive that turns, with its head over the file's first byte and nothing in its buffer.
    pub(crate) fn new(surface: S, spec: DriveSpec, base: u64) -> Self {
        let head = Head { since: Nanos::ZERO, turns: surface.turns(base), low: base, limit: base };
        Self { surface, spec, base, head, free: Nanos::ZERO, latest: None }
    }

    /// Turns since the drive began, at `now`.
    fn spindle(&self, now: Nanos) -> f64 {
        now.as_secs_f64() / self.spec.turn
    }

    /// The time `turns` after `now`, rounded up, so that nothing comes before it has been read.
    fn after(&self, now: Nanos, turns: f64) -> Nanos {
        now + Nanos((turns.max(0.0) * self.spec.turn * 1e9).ceil() as u64)
    }

    /// When the head, reading on from where it is, has passed the byte before `place`; long ago where it
    /// already had when it began.
    fn passes(&self, place: u64) -> Nanos {
        let turns = self.surface.turns(place) - self.head.turns;
        if turns > 0.0 { self.after(self.head.since, turns) } else { Nanos::ZERO }
    }

    /// The byte that the head is about to read, or waits at, at `now`.
    fn position(&self, now: Nanos) -> u64 {
        let read = self.spindle(now.saturating_sub(self.head.since));
        self.surface.place(self.head.turns + read).min(self.head.limit)
    }

    /// The first time from `now` on at which byte `place` comes under a head on its track.
    fn comes_by(&self, now: Nanos, place: u64) -> Nanos {
        let angle = self.surface.turns(place) - self.spindle(now);
        self.after(now, angle - angle.floor())
    }

    /// Whole sectors of the surface that hold `request`, a range of the file.
    fn sectors(&self, request: ByteRange) -> ByteRange {
        let sector = self.spec.sector_bytes;
        let capacity = self.surface.capacity();
        let first = self.base.saturating_add(request.offset).min(capacity) / sector * sector;
        let end = self.base.saturating_add(request.offset).saturating_add(request.len);
        let end = end.div_ceil(sector).saturating_mul(sector).clamp(first, capacity);
        ByteRange::new(first, end - first)
    }

    /// Where the head stops when the computer has taken what is before `end`. The sector before it is kept,
    /// as the next request may begin in its middle.
    fn limit(&self, end: u64) -> u64 {
        let ahead = self.spec.buffer_bytes - self.spec.sector_bytes;
        end.saturating_add(ahead).min(self.surface.capacity())
    }

    /// Lets the head read on from where it waits, if it does, to fill the buffer after `end`.
    fn read_on(&mut self, now: Nanos, end: u64) {
        let limit = self.limit(end);
        if limit <= self.head.limit {
            return;
        }
        if self.passes(self.head.limit) < now {
            self.head.since = self.comes_by(now, self.head.limit);
            self.head.turns = self.surface.turns(self.head.limit);
        }
        self.head.limit = limit;
    }

    /// How long the head takes from where it is at `now` to the track of byte `place`.
    fn move_to(&self, now: Nanos, place: u64) -> Nanos {
        let from = self.surface.track(self.position(now));
        let distance = (self.surface.track(place) - from).abs();
        Nanos::from_secs_f64(self.spec.seek.seconds(distance))
    }

    /// Moves the head to `sectors`, and tells when it begins to read them.
    fn seek(&mut self, now: Nanos, sectors: ByteRange) -> Nanos {
        let arrives = now + self.move_to(now, sectors.offset);
        self.head = Head {
            since: self.comes_by(arrives, sectors.offset),
            turns: self.surface.turns(sectors.offset),
            low: sectors.offset,
            limit: self.limit(sectors.end()),
        };
        self.head.since
    }

    /// Moves the head so that it reads `sectors`, from `now` on, whichever way is sooner, and tells when
    /// their first byte is there.
    fn approach(&mut self, now: Nanos, sectors: ByteRange) -> Nanos {
        let position = self.position(now);
        let kept = self.head.low.max(position.saturating_sub(self.spec.buffer_bytes));
        let waits = self.passes(self.head.limit) < now;
        if sectors.offset < kept || sectors.offset > position && waits {
            return self.seek(now, sectors);
        }
        if sectors.offset <= position {
            self.read_on(now, sectors.end());
            return if sectors.offset < position { now } else { now.max(self.head.since) };
        }
        let before = self.head;
        let reading_on = self.passes(sectors.offset);
        let seeking = self.seek(now, sectors);
        if seeking < reading_on {
            return seeking;
        }
        self.head = before;
        self.read_on(now, sectors.end());
        reading_on.max(now)
    }

    /// When a drive that has nothing to do since `self.free` turns fast enough, asked at `starts`.
    fn turning(&self, starts: Nanos) -> Nanos {
        match self.spec.standby {
            Some(standby) if starts.saturating_sub(self.free) >= standby.after => starts + standby.spin_up,
            _ => starts,
        }
    }
}

impl<S: Surface> Device for Drive<S> {
    fn submit(&mut self, now: Nanos, request: ByteRange) -> Service {
        let starts = now.max(self.free);
        let before = self.head;
        let ready = self.turning(starts) + Nanos::from_secs_f64(self.spec.command);
        let sectors = self.sectors(request);
        let first_byte = self.approach(ready, sectors);
        let handed_over = first_byte + Nanos::from_secs_f64(request.len as f64 / self.spec.interface);
        let done = handed_over.max(self.passes(sectors.end()));
        let service = Service { starts, first_byte, done };
        self.latest = Some(Latest { service, range: sectors, before });
        self.free = done;
        service
    }

    fn abandon(&mut self, now: Nanos, service: Service) {
        // Another request is queued behind, with a time that it was promised.
        let Some(latest) = self.latest.take_if(|latest| latest.service == service) else {
            return;
        };
        if now < service.starts {
            // It never began: the head goes on as it did.
            self.free = service.starts;
            self.head = latest.before;
            return;
        }
        // A seek under way cannot be taken back.
        self.free = now.clamp(service.first_byte, service.done);
        let taken = service.delivered(now, latest.range.len);
        let limit = self.limit(latest.range.offset.saturating_add(taken));
        // The head does not read less than it already has.
        self.head.limit = self.head.limit.min(limit.max(self.position(self.free)));
    }
}

#[cfg(test)]
mod tests;
