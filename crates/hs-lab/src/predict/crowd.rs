//! The clients that start the program, and when.

use std::num::NonZeroU32;

use hs_device::LinkSpec;
use hs_units::Nanos;

/// Clients that start the same program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// How many.
    pub clients: NonZeroU32,
    /// They begin evenly within this time; zero is all at one moment.
    pub within: Nanos,
    /// The link between them and a cache that is near to them; the medium is then the link between that cache
    /// and the origin.
    pub edge: Option<LinkSpec>,
}

/// Clients that begin at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cohort {
    pub(crate) clients: NonZeroU32,
    pub(crate) begins: Nanos,
}

/// On a link, most moments at which clients begin. Where more clients are to begin within a time, so many of
/// them begin together.
const MOMENTS: u32 = 100;

impl Crowd {
    /// One client alone.
    pub const ALONE: Self = Self { clients: NonZeroU32::MIN, within: Nanos::ZERO, edge: None };

    /// Groups of clients that begin together. On a link that shares its rate equally, clients that do the
    /// same and begin together always have everything at the same time. So one of them is simulated, with the
    /// requests of the whole group: that is exact. Elsewhere requests come one after another, and each client
    /// is simulated.
    pub(crate) fn cohorts(&self, shared: bool) -> Vec<Cohort> {
        let clients = self.clients.get();
        let moments = match (shared, self.within) {
            (false, _) => clients,
            (true, Nanos::ZERO) => 1,
            (true, _) => clients.min(MOMENTS),
        };
        (0..u64::from(moments))
            .map(|number| {
                // The first `n` cohorts have `n` parts of all clients, rounded down.
                let before = |number: u64| number * u64::from(clients) / u64::from(moments);
                let members = (before(number + 1) - before(number)) as u32;
                Cohort {
                    clients: NonZeroU32::new(members).expect("there are no more moments than clients"),
                    begins: Nanos(self.within.0 / u64::from(moments) * number),
                }
            })
            .collect()
    }
}
