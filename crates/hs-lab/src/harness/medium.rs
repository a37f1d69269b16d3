//! A medium that is late, breaks off, and fails.

use hs_device::{Device, Medium};
use hs_units::{ByteRange, Nanos, Prng};

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// When its first byte comes.
    pub(super) first_byte: Nanos,
    /// When it is over.
    pub(super) done: Nanos,
    /// How many of its bytes have come then, from its beginning on.
    pub(super) bytes: u64,
}

pub(super) struct FaultyMedium {
    device: Box<dyn Device>,
    /// Of 10,000 requests so many fail, break off, or are late.
    failing: u64,
    short: u64,
    late: u64,
    /// From then to then everything fails, as if the network were gone.
    outage: Option<(Nanos, Nanos)>,
    pub(super) turns: bool,
    pub(super) overlaps: bool,
    pub(super) bytes_per_s: f64,
}

/// Bytes of the disk on it.
pub(super) const DISK_BYTES: u64 = 600 << 20;

impl FaultyMedium {
    pub(super) fn new(prng: &mut Prng) -> Self {
        let names = [
            "hdd-7200",
            "cd-24x-cav",
            "nvme",
            "sd-uhs1",
            "lan-100m",
            "flat-1ms-100mbs",
            "flat-3ms-40mbs-serial",
        ];
        let name = names[prng.below(names.len() as u64) as usize];
        let medium = Medium::parse(name).expect("a name of the list");
        let rate = |most: u64, prng: &mut Prng| if prng.below(3) == 0 { 0 } else { prng.below(most) };
        Self {
            device: medium.device(DISK_BYTES).expect("it fits").expect("it is modelled"),
            failing: rate(300, prng),
            short: rate(300, prng),
            late: rate(100, prng),
            outage: (prng.below(8) == 0).then(|| {
                let begins = Nanos(prng.below(2_000_000_000));
                (begins, begins + Nanos(prng.below(3_000_000_000)))
            }),
            turns: medium.turns(),
            overlaps: medium.overlaps(),
            bytes_per_s: medium.rate_bytes_per_second(DISK_BYTES, 0).expect("it is modelled") as f64,
        }
    }

    pub(super) fn serve(&mut self, now: Nanos, range: ByteRange, prng: &mut Prng) -> Answer {
        let service = self.device.submit(now, range);
        let mut answer = Answer { first_byte: service.first_byte, done: service.done, bytes: range.len };
        let happens = |of: u64, prng: &mut Prng| prng.below(10_000) < of;
        let is_out = self.outage.is_some_and(|(begins, ends)| begins <= now && now < ends);
        if is_out || happens(self.failing, prng) {
            answer.bytes = 0;
        } else if happens(self.short, prng) {
            answer.bytes = prng.below(range.len);
        }
        if happens(self.late, prng) {
            let late = Nanos(prng.below(200_000_000));
            answer.first_byte += late;
            answer.done += late;
        }
        answer
    }
}
