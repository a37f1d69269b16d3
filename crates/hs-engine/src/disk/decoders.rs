//! Which chunks wait to be decompressed, and who does it.

use std::collections::VecDeque;

use super::action::DecoderId;

/// What a decoder is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decoder {
    Free,
    Decoding(u32),
    /// It gives what it has decompressed to the page cache, and may have to wait for a reader for that.
    Delivering,
    Lost,
}

/// How soon a chunk is to be decompressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    /// A read waits for it.
    Awaited,
    /// The stream has brought it.
    Stream,
    /// A sequential reader will get to it.
    Ahead,
}

/// Decoders and what waits for them.
#[derive(Debug)]
pub(super) struct Decoders {
    decoders: Vec<Decoder>,
    /// Slots and tickets; those whose chunk has another ticket by now are void.
    waiting: [VecDeque<(u32, u32)>; 3],
    tickets: u32,
}

impl Decoders {
    pub(super) fn new(count: u32) -> Self {
        Self { decoders: vec![Decoder::Free; count.max(1) as usize], waiting: Default::default(), tickets: 0 }
    }

    /// A chunk waits; returns its ticket.
    pub(super) fn push(&mut self, slot: u32, urgency: Urgency) -> u32 {
        self.tickets = self.tickets.wrapping_add(1).max(1);
        self.waiting[urgency as usize].push_back((slot, self.tickets));
        self.tickets
    }

    /// The next chunk of those that are so urgent for which `is_valid` holds.
    pub(super) fn pop(&mut self, urgency: Urgency, is_valid: impl Fn(u32, u32) -> bool) -> Option<u32> {
        while let Some((slot, ticket)) = self.waiting[urgency as usize].pop_front() {
            if is_valid(slot, ticket) {
                return Some(slot);
            }
        }
        None
    }

    /// A decoder that could begin now.
    pub(super) fn free(&self) -> Option<DecoderId> {
        let free = self.decoders.iter().position(|decoder| *decoder == Decoder::Free);
        free.map(|decoder| DecoderId(decoder as u32))
    }

    /// Whether a decoder but for this one goes on whatever readers do: then this one may wait for a reader.
    pub(super) fn another_goes_on(&self, but: DecoderId) -> bool {
        let goes_on = |decoder: &Decoder| matches!(decoder, Decoder::Free | Decoder::Decoding(_));
        (0..).zip(&self.decoders).any(|(number, decoder)| number != but.0 && goes_on(decoder))
    }

    /// Whether any decoder goes on whatever readers do.
    pub(super) fn any_goes_on(&self) -> bool {
        self.another_goes_on(DecoderId(u32::MAX))
    }

    /// Whether a decoder is at something.
    pub(super) fn are_busy(&self) -> bool {
        self.decoders.iter().any(|decoder| matches!(decoder, Decoder::Decoding(_) | Decoder::Delivering))
    }

    pub(super) fn get(&self, id: DecoderId) -> Option<Decoder> {
        self.decoders.get(id.0 as usize).copied()
    }

    pub(super) fn set(&mut self, id: DecoderId, decoder: Decoder) {
        self.decoders[id.0 as usize] = decoder;
    }
}
