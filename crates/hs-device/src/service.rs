//! When a request is served.

use hs_units::Nanos;

/// When a request is served, on the caller's clock. Its bytes arrive evenly between `first_byte`
/// and `done`; `starts <= first_byte <= done`.
///
/// On media whose rate changes with the place that is a simplification of what happens *within* a request:
/// `done` is exact. On a CD its first half arrives too early by at most 1/8 of the share by which the radius
/// changes, 0.02 % for a request of a quarter second, 10 % for one that reads the whole disc; bytes that the
/// drive's buffer already has arrive too late, by at most the time that the medium takes for a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Service {
    /// The medium begins to work on the request.
    pub starts: Nanos,
    /// The first byte begins to arrive.
    pub first_byte: Nanos,
    /// The last byte has arrived.
    pub done: Nanos,
}

impl Service {
    /// When the first `bytes` of the request's `total` bytes have arrived, rounded up, so that a wait until
    /// then is never too short.
    #[must_use]
    pub fn arrival(&self, bytes: u64, total: u64) -> Nanos {
        if bytes >= total {
            return self.done;
        }
        let transfer = u128::from(self.done.saturating_sub(self.first_byte).0);
        let elapsed = (transfer * u128::from(bytes)).div_ceil(u128::from(total));
        // `bytes < total`, so `elapsed` is not more than `transfer`, which is 64 bits.
        self.first_byte + Nanos(elapsed as u64)
    }

    /// How many of the request's `total` bytes have arrived at `now`, rounded down.
    #[must_use]
    pub fn delivered(&self, now: Nanos, total: u64) -> u64 {
        if now >= self.done {
            return total;
        }
        let elapsed = u128::from(now.saturating_sub(self.first_byte).0);
        let transfer = u128::from(self.done.saturating_sub(self.first_byte).0);
        if transfer == 0 {
            return 0;
        }
        // `now < done`, so the quotient is not more than `total`.
        (u128::from(total) * elapsed / transfer) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_arrive_evenly() {
        let service = Service { starts: Nanos(0), first_byte: Nanos(100), done: Nanos(200) };
        assert_eq!(service.arrival(0, 10), Nanos(100));
        assert_eq!(service.arrival(5, 10), Nanos(150));
        assert_eq!(service.arrival(10, 10), Nanos(200));
        assert_eq!(service.delivered(Nanos(99), 10), 0);
        assert_eq!(service.delivered(Nanos(159), 10), 5);
        assert_eq!(service.delivered(Nanos(1_000), 10), 10);
    }

    #[test]
    fn no_bytes_and_no_time_divide_by_nothing() {
        let service = Service { starts: Nanos(7), first_byte: Nanos(7), done: Nanos(7) };
        assert_eq!(service.arrival(0, 0), Nanos(7));
        assert_eq!(service.delivered(Nanos(6), 3), 0);
        assert_eq!(service.delivered(Nanos(7), 3), 3);
    }

    proptest! {
        /// A wait for the arrival of n bytes finds n bytes delivered, and a nanosecond before that not yet.
        #[test]
        fn arrival_and_delivery_agree(
            first in 0_u64..1 << 40,
            transfer in 1_u64..1 << 40,
            total in 1_u64..1 << 40,
            share in 0.0..=1.0_f64,
        ) {
            let done = Nanos(first + transfer);
            let service = Service { starts: Nanos(0), first_byte: Nanos(first), done };
            let bytes = ((total as f64 * share) as u64).min(total);
            let at = service.arrival(bytes, total);
            prop_assert!(service.delivered(at, total) >= bytes);
            if bytes > 0 {
                prop_assert!(service.delivered(Nanos(at.0 - 1), total) < bytes);
            }
        }
    }
}
