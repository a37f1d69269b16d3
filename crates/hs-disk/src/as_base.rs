//! A served disk as the base of another image.
//!
//! A thread that decompresses a chunk of the other image waits here for threads of this disk. These never
//! wait for the other one: a base has no base itself, so no threads can wait in a circle.

use crossbeam_channel::unbounded;
use hs_image::{BaseDisk, Image, ImageError};
use hs_units::{Lba, to_u32};

use crate::ServedDisk;

impl BaseDisk for ServedDisk {
    fn image(&self) -> &Image {
        self.image()
    }

    /// All are asked for before the first is waited for.
    fn read(&self, runs: &mut [(Lba, &mut [u8])]) -> Result<(), ImageError> {
        let (sender, answers) = unbounded();
        for (number, (lba, buffer)) in runs.iter().enumerate() {
            let sender = sender.clone();
            self.submit(lba.byte_offset(), to_u32(buffer.len() as u64), move |result| {
                let _ = sender.send((number, result.map(<[&[u8]]>::concat).map_err(Clone::clone)));
            });
        }
        // Each sender is with a read, which is answered, or dropped unanswered.
        drop(sender);
        for _ in 0..runs.len() {
            let (number, bytes) = answers.recv().map_err(|_| ImageError::Closed)?;
            runs[number].1.copy_from_slice(&bytes?);
        }
        Ok(())
    }

    fn close(&self) {
        Self::close(self);
    }
}
