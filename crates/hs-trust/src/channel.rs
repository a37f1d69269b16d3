//! Whether the pointer of a channel is to be believed.

use anyhow::Context;

use crate::date::Date;
use crate::keys::{Key, Keys};
use crate::now::Now;
use crate::pointer::Pointer;
use crate::seen::{SeenFolder, SignedPointer};

/// A channel, and what its pointer must be.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTrust<'a> {
    /// What to call the pointer in messages.
    pub name: &'a str,
    /// The name of the channel.
    pub channel: &'a str,
    /// Keys, any of which may have signed it.
    pub keys: &'a Keys,
    /// Where it is noted what was seen of channels; nothing is noted without.
    pub seen: Option<&'a SeenFolder>,
    /// The pointer must not be older.
    pub least: Option<&'a Date>,
}

impl ChannelTrust<'_> {
    /// The pointer in `text`, if it is to be believed; it is noted as seen. The one that was seen before
    /// stays while `open` fails for the image that the new one has moved to.
    ///
    /// # Errors
    /// When it is not to be believed, or cannot be noted.
    pub fn accept(
        &self,
        text: &str,
        open: impl FnOnce(&Pointer) -> anyhow::Result<()>,
    ) -> anyhow::Result<Pointer> {
        let (pointer, by) = self.verify(text)?;
        let Some(seen) = self.seen else { return Ok(pointer) };
        let found = SignedPointer { pointer: &pointer, text };
        let before = seen.left_by(self.name, self.keys, &by, &found)?;
        if let Some((before, _)) = before.and_then(|before| self.verify(&before).ok())
            && let Err(why) = open(&pointer)
        {
            log::warn!(
                "{}: {} of {} cannot be opened, so {} of {} stays: {why:#}",
                self.name,
                pointer.image,
                pointer.date,
                before.image,
                before.date
            );
            return Ok(before);
        }
        seen.advance(self.name, self.keys, &by, &found)?;
        Ok(pointer)
    }

    /// The pointer that was seen last, if it is still to be believed.
    ///
    /// # Errors
    /// When it is not, or none was seen.
    pub fn recall(&self) -> anyhow::Result<Pointer> {
        let seen = self.seen.context("--offline: nothing is known of channels")?;
        Ok(self.verify(&seen.recall(self.keys, self.channel)?)?.0)
    }

    fn verify(&self, text: &str) -> anyhow::Result<(Pointer, Key)> {
        let (pointer, by) = Pointer::verify_by(text, self.keys, self.name)?;
        let revoked = pointer.revoked_by(self.keys, &by);
        let now = Now::of_this_machine(self.seen.and_then(|seen| seen.newest(self.keys, &revoked)));
        pointer.check(self.name, self.channel, &now, self.least)?;
        Ok((pointer, by))
    }
}
