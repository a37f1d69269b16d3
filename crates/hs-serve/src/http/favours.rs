//! Who must be favoured so that everybody gets the same.
//!
//! Equal bounds are not quite equal shares of a link: the kernel lets each connection exceed its own by a packet of up to 64 KiB, and who has
//! ten connections exceeds ten. So what really came to each client is compared, and who gets less than the others is let have more under way. A
//! client whose own link is slower is favoured in vain, and within limits.

use std::collections::HashMap;

use hs_engine::queue::ClientKey;

/// A favour is at most this: four times what the others have under way, for each byte of them.
const MOST: f64 = 4.0;
/// How much of a measured rate is believed at once: twenty measurements are forgotten together.
const NEWS: f64 = 0.05;
/// The power of what is missing that is made good at each measurement: a tenth of it, since it takes a while until that tells.
const GAIN: f64 = 0.1;

#[derive(Debug)]
struct Favour {
    /// Bytes a second, smoothed.
    rate: f64,
    factor: f64,
}

/// What each client's share is to be multiplied by.
#[derive(Debug, Default)]
pub(super) struct Favours {
    clients: HashMap<ClientKey, Favour>,
}

impl Favours {
    /// These are all clients who are sent something, and at how many bytes a second it came to each of them since the last time.
    pub(super) fn handle_rates(&mut self, rates: &[(ClientKey, f64)]) {
        self.clients.retain(|client, _| rates.iter().any(|(other, _)| other == client));
        for (client, rate) in rates {
            let favour = self.clients.entry(*client).or_insert(Favour { rate: *rate, factor: 1.0 });
            favour.rate += (rate - favour.rate) * NEWS;
        }
        let mean = self.clients.values().map(|favour| favour.rate).sum::<f64>() / rates.len().max(1) as f64;
        for favour in self.clients.values_mut().filter(|favour| favour.rate > 0.0) {
            let missing = (mean / favour.rate).clamp(0.5, 2.0);
            favour.factor = (favour.factor * missing.powf(GAIN)).clamp(1.0, MOST);
        }
    }

    /// Of this client.
    pub(super) fn factor(&self, client: ClientKey) -> f64 {
        self.clients.get(&client).map_or(1.0, |favour| favour.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ClientKey = ClientKey(1);
    const TEN: ClientKey = ClientKey(10);
    const SLOW: ClientKey = ClientKey(2);

    /// Everybody has the part of a link that he has of the queue before it.
    fn shares<const N: usize>(favours: &Favours, queued: [(ClientKey, f64); N]) -> [(ClientKey, f64); N] {
        let queued = queued.map(|(client, bytes)| (client, bytes * favours.factor(client)));
        let all: f64 = queued.iter().map(|(_, bytes)| bytes).sum();
        queued.map(|(client, bytes)| (client, 12.5e6 * bytes / all))
    }

    #[test]
    fn who_gets_less_than_others_with_the_same_bound_is_favoured_until_he_does_not() {
        let mut favours = Favours::default();
        let queued = [(ONE, 160e3), (TEN, 200e3)];
        let ratio = |favours: &Favours| {
            let [one, ten] = shares(favours, queued);
            ten.1 / one.1
        };
        assert!(ratio(&favours) > 1.24);
        // Three seconds of measurements every 50 ms.
        for _ in 0..60 {
            favours.handle_rates(&shares(&favours, queued));
        }
        assert!((0.9..1.1).contains(&ratio(&favours)), "{}", ratio(&favours));
        for _ in 0..400 {
            favours.handle_rates(&shares(&favours, queued));
            assert!((0.9..1.1).contains(&ratio(&favours)), "it stays so");
        }
        assert!((0.99..1.01).contains(&ratio(&favours)));
    }

    #[test]
    fn a_client_who_cannot_have_more_is_favoured_within_limits_and_forgotten_when_he_goes() {
        let mut favours = Favours::default();
        for _ in 0..10_000 {
            favours.handle_rates(&[(ONE, 6e6), (SLOW, 1e6)]);
        }
        assert!(favours.factor(SLOW) <= MOST && favours.factor(SLOW) > 1.0);
        assert!((favours.factor(ONE) - 1.0).abs() < 1e-9);
        favours.handle_rates(&[(ONE, 6e6), (TEN, 0.0)]);
        assert!((favours.factor(SLOW) - 1.0).abs() < 1e-9 && favours.factor(TEN) >= 1.0);
        favours.handle_rates(&[]);
        assert!(favours.clients.is_empty());
    }
}
