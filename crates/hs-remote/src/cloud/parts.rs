//! Sending an image in parts, so that a later process can continue.
//!
//! The note of a part that has come has the store's name for it (an entity tag, or the name of a block,
//! which cannot be guessed), and a digest of its bytes. A later process leaves out the parts of which the
//! file still has those bytes. The store is not asked which parts it has: the end of the upload names them
//! all, and the store refuses an end with parts that it does not have. Then all of the image is sent again.

use std::collections::BTreeMap;
use std::time::Duration;

use object_store::Error;
use object_store::multipart::PartId;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::completion::Completion;
use super::destination::Destination;
use super::object::said;
use super::push::{AT_ONCE, Sending};
use crate::http::{HttpError, Tries};
use crate::push::KEPT;
use crate::sha256::Sha256;
use crate::unfinished::Unfinished;
use crate::{Abandoned, PushError, Pushed, Pushing};

/// How long an interruption may go unnoticed while parts are being sent.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The first line of a note.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    upload: String,
    /// The image's own name.
    name: String,
    bytes: u64,
    part_bytes: u64,
}

/// The line for each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    number: u32,
    /// The library's identifier.
    id: String,
    sha256: String,
}

/// Parses a note; `None` when it is not valid. Of a part that was sent twice the last line counts.
fn parse(text: &str) -> Option<(Begun, BTreeMap<u32, Part>)> {
    let mut lines = text.lines();
    let begun = serde_json::from_str(lines.next()?).ok()?;
    let parts = lines.filter_map(|line| serde_json::from_str::<Part>(line).ok());
    Some((begun, parts.map(|part| (part.number, part)).collect()))
}

fn json(noted: &impl Serialize) -> String {
    serde_json::to_string(noted).expect("strings and numbers are JSON")
}

/// Gives up the noted upload to this place.
pub(super) fn abandon(from: &Destination<'_>, unfinished: &Unfinished) -> Result<Abandoned, PushError> {
    let noted = unfinished.recall().and_then(|text| parse(&text));
    if let Some((begun, _)) = &noted {
        from.abort(&begun.upload).map_err(|error| from.refused(&error))?;
    }
    unfinished.forget();
    Ok(match noted {
        None => Abandoned::Nothing,
        Some(_) if from.removes_parts() => Abandoned::Removed,
        Some(_) => Abandoned::Forgotten,
    })
}

/// An upload that is under way.
pub(super) struct Parts<'a> {
    sending: &'a Sending<'a>,
    unfinished: Unfinished,
    begun: Begun,
    /// Those that have come.
    there: BTreeMap<u32, Part>,
    /// The store refused because it does not have the upload, or not these parts.
    is_unknown: bool,
}

impl<'a> Parts<'a> {
    /// Continues the upload of an earlier process, or begins one.
    pub(super) fn begin(sending: &'a Sending<'a>, unfinished: Unfinished) -> Result<Self, PushError> {
        let Some((begun, noted)) = unfinished.recall().and_then(|text| parse(&text)) else {
            return Self::anew(sending, unfinished);
        };
        let is_ours = begun.name == sending.object.name
            && begun.bytes == sending.size
            && begun.part_bytes == sending.part_bytes();
        let mut upload = Self { sending, unfinished, begun, there: BTreeMap::new(), is_unknown: false };
        if is_ours {
            upload.there = upload.unchanged(noted)?;
        }
        if !upload.there.is_empty() {
            return Ok(upload);
        }
        // The earlier upload was of another image, or none of its parts can be used.
        upload.leave();
        Self::anew(sending, upload.unfinished)
    }

    fn anew(sending: &'a Sending<'a>, unfinished: Unfinished) -> Result<Self, PushError> {
        let name = sending.object.name.to_owned();
        let upload = sending.to.begin(&name).map_err(|error| sending.to.refused(&error))?;
        let begun = Begun { upload, name, bytes: sending.size, part_bytes: sending.part_bytes() };
        unfinished.note(&json(&begun));
        Ok(Self { sending, unfinished, begun, there: BTreeMap::new(), is_unknown: false })
    }

    /// The noted parts that the file still has.
    fn unchanged(&self, noted: BTreeMap<u32, Part>) -> Result<BTreeMap<u32, Part>, PushError> {
        let mut unchanged = BTreeMap::new();
        for (number, part) in noted {
            if self.length_of(number).is_some() && Sha256::of(&self.read(number)?).to_string() == part.sha256
            {
                unchanged.insert(number, part);
            }
        }
        Ok(unchanged)
    }

    fn count(&self) -> u32 {
        self.begun.bytes.div_ceil(self.begun.part_bytes) as u32
    }

    /// The bytes of a part; nothing when there is none of that number.
    fn length_of(&self, number: u32) -> Option<u64> {
        let offset = u64::from(number.checked_sub(1)?).checked_mul(self.begun.part_bytes)?;
        let left = self.begun.bytes.checked_sub(offset)?;
        (left > 0).then_some(left.min(self.begun.part_bytes))
    }

    fn read(&self, number: u32) -> Result<Vec<u8>, PushError> {
        let offset = u64::from(number - 1) * self.begun.part_bytes;
        self.sending.read(offset, self.length_of(number).unwrap_or(0))
    }

    fn bytes_there(&self) -> u64 {
        self.there.keys().filter_map(|number| self.length_of(*number)).sum()
    }

    /// Sends what is missing, and ends the upload. If the store has forgotten what an earlier process has
    /// sent, all of the image is sent again.
    pub(super) fn send(mut self, pushing: &mut Pushing<'_>) -> Result<Pushed, PushError> {
        let (sending, resumed_bytes) = (self.sending, self.bytes_there());
        match sending.to.client.wait_for(self.send_missing(pushing)).and_then(|()| self.complete()) {
            Err(PushError::Refused { .. }) if self.is_unknown && resumed_bytes > 0 => {
                return Self::anew(sending, self.unfinished)?.send(pushing);
            }
            Ok(()) => self.unfinished.forget(),
            Err(error @ PushError::Taken { .. }) => return Err(error),
            Err(error) => {
                self.keep_or_leave(&error);
                return Err(error);
            }
        }
        Ok(Pushed { sent_bytes: sending.size - resumed_bytes, resumed_bytes, digest: None })
    }

    async fn send_missing(&mut self, pushing: &mut Pushing<'_>) -> Result<(), PushError> {
        let numbers: Vec<_> = (1..=self.count()).filter(|number| !self.there.contains_key(number)).collect();
        let mut missing = numbers.into_iter();
        // Dropping this ends the requests under way.
        let mut under_way = JoinSet::new();
        // After a failure no new part is begun, but those under way may still come, and are then noted.
        let mut failed = None;
        loop {
            if pushing(self.bytes_there(), self.sending.size).is_break() {
                let is_kept = self.unfinished.is_noted() && !self.there.is_empty();
                return Err(self.sending.to.interrupted(is_kept));
            }
            while failed.is_none()
                && under_way.len() < AT_ONCE
                && let Some(number) = missing.next()
            {
                let bytes = self.read(number)?;
                let sha256 = Sha256::of(&bytes).to_string();
                let (bucket, key) = (self.sending.to.bucket.clone(), self.sending.to.key.clone());
                let upload = self.begun.upload.clone();
                under_way.spawn(async move {
                    let sent = bucket.put_part(&key, &upload, number as usize - 1, bytes.into()).await;
                    sent.map(|PartId { content_id: id }| Part { number, id, sha256 })
                });
            }
            match tokio::time::timeout(LOOK_EVERY, under_way.join_next()).await {
                Err(_) => {}
                Ok(None) => return failed.map_or(Ok(()), Err),
                Ok(Some(done)) => match done.map_err(Error::from).and_then(|part| part) {
                    Ok(part) => {
                        self.unfinished.add(&json(&part));
                        self.there.insert(part.number, part);
                    }
                    Err(error) => failed = failed.or_else(|| Some(self.part_refused(&error))),
                },
            }
        }
    }

    fn part_refused(&mut self, error: &Error) -> PushError {
        // Some stores refuse an upload that they do not know as forbidden. If no new one may begin either,
        // the note stays.
        self.is_unknown = matches!(error, Error::NotFound { .. } | Error::PermissionDenied { .. });
        if matches!(error, Error::NotFound { .. }) {
            self.unfinished.forget();
        }
        self.sending.to.refused(error)
    }

    /// Ends the upload, and does not replace an object that another process has sent meanwhile.
    fn complete(&mut self) -> Result<(), PushError> {
        // A store without conditions is at least asked at the last moment.
        match self.sending.is_there() {
            Ok(false) => {}
            found => {
                if matches!(found, Ok(true) | Err(PushError::Taken { .. })) {
                    self.leave();
                }
                return found.map(drop);
            }
        }
        let to = &self.sending.to;
        let parts: Vec<_> = self.there.values().map(|part| PartId { content_id: part.id.clone() }).collect();
        let end = Completion { to, upload: &self.begun.upload, name: &self.begun.name, parts: &parts };
        let send = |if_absent| Tries::new(to.address.clone()).often(|| end.send(if_absent));
        let is_conditional = !self.sending.object.replace && to.knows_conditions();
        let ended = match send(is_conditional) {
            Err(HttpError::Refused { status: 501, .. }) if is_conditional => send(false),
            ended => ended,
        };
        let Err(error) = ended else { return Ok(()) };
        // An end whose answer was lost is still an end, and an equal image of another process is as good.
        let found = self.sending.is_there();
        let is_final = matches!(error, HttpError::Refused { status: 400..=499, .. });
        if is_final || matches!(found, Ok(true) | Err(PushError::Taken { .. })) {
            self.leave();
        }
        if found? {
            return Ok(());
        }
        self.is_unknown = matches!(error, HttpError::Refused { status: 400 | 403 | 404, .. });
        Err(self.sending.to.refused_by(error))
    }

    /// After a failure: what is noted is kept for a later process, anything else is removed.
    fn keep_or_leave(&self, error: &PushError) {
        let is_kept = self.unfinished.recall().is_some() && !self.there.is_empty();
        if !is_kept {
            self.leave();
        } else if !matches!(error, PushError::Interrupted { .. }) {
            log::warn!("{}: {KEPT}", self.sending.to.address);
        }
    }

    /// Has the store remove the parts.
    fn leave(&self) {
        self.unfinished.forget();
        if let Err(error) = self.sending.to.abort(&self.begun.upload) {
            log::warn!("{}: parts of an upload may be left there: {}", self.sending.to.address, said(&error));
        }
    }
}
