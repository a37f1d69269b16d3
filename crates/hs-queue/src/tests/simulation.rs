//! A queue in front of a medium, on a virtual clock, with random requests. Each failure prints its seed.

use std::collections::HashMap;

use hs_units::Prng;

use super::*;

/// Everything that was observed of one dispatch.
struct Observation {
    at: Nanos,
    dispatch: Dispatch,
    tags: Vec<u64>,
    /// How long each class had waited just before without being served; `None` if it did not wait.
    waited: [Option<Nanos>; Class::COUNT],
}

/// A medium that serves `depth` requests at once, each in its own time.
struct Simulation {
    queue: Queue,
    prng: Prng,
    now: Nanos,
    /// When each request in service ends.
    medium: Vec<(Nanos, Dispatch)>,
    asked: HashMap<u64, Request>,
    dispatched: Vec<Observation>,
    finished: Vec<u64>,
    longest_service: Nanos,
    /// Since when each class waits without being served.
    since: [Nanos; Class::COUNT],
}

impl Simulation {
    fn new(config: QueueConfig, seed: u64) -> Self {
        Self {
            queue: Queue::new(config),
            prng: Prng::new(seed),
            now: Nanos::ZERO,
            medium: Vec::new(),
            asked: HashMap::new(),
            dispatched: Vec::new(),
            finished: Vec::new(),
            longest_service: Nanos::ZERO,
            since: [Nanos::ZERO; Class::COUNT],
        }
    }

    fn ask(&mut self, request: Request) -> Ticket {
        self.asked.insert(request.tag.0, request);
        if self.queue.lanes[request.class.index()].is_empty() {
            self.since[request.class.index()] = self.now;
        }
        self.queue.handle_request(self.now, request)
    }

    /// Sends to the medium what the queue says, until it has nothing more; returns when to ask again.
    fn poll(&mut self) -> Option<Nanos> {
        loop {
            let waits = |class: usize| self.now.saturating_sub(self.since[class]);
            let waited =
                std::array::from_fn(|class| (!self.queue.lanes[class].is_empty()).then(|| waits(class)));
            match self.queue.poll(self.now) {
                Poll::Dispatch(dispatch) => {
                    let tags: Vec<u64> = self.queue.tags(dispatch.id).map(|tag| tag.0).collect();
                    let service = Nanos(1_000_000 + self.prng.below(9_000_000));
                    self.longest_service = self.longest_service.max(service);
                    self.medium.push((self.now + service, dispatch));
                    self.since[dispatch.class.index()] = self.now;
                    self.dispatched.push(Observation { at: self.now, dispatch, tags, waited });
                }
                Poll::WaitUntil(then) => {
                    assert!(then > self.now, "waiting until now is no waiting");
                    return Some(then);
                }
                Poll::Idle => return None,
            }
        }
    }

    /// Goes on to whatever comes first: the end of a request in service, `next`, or the queue's own time.
    /// False when nothing will ever come.
    fn step(&mut self, next: Option<Nanos>) -> bool {
        let wait = self.poll();
        let done = self.medium.iter().map(|(end, _)| *end).min();
        let Some(then) = [wait, done, next].into_iter().flatten().min() else {
            assert_eq!(self.queue.waiting(), 0, "an idle medium leaves no request waiting");
            return false;
        };
        self.now = then;
        if let Some(place) = self.medium.iter().position(|(end, _)| *end <= then) {
            let (_, dispatch) = self.medium.swap_remove(place);
            let ended = self.queue.handle_done(then, dispatch.id, dispatch.range.len);
            self.finished.extend(ended.map(|ended| {
                assert!(ended.complete);
                ended.tag.0
            }));
        }
        true
    }

    fn random_request(&mut self, tag: u64) -> Request {
        let write = self.prng.below(4) == 0;
        // A small medium with requests of all alignments, so that many touch and overlap.
        let range = ByteRange::new(self.prng.below(400) * 2048, 512 * (1 + self.prng.below(24)));
        Request {
            tag: RequestTag(tag),
            class: Class::ALL[self.prng.below(4) as usize],
            client: ClientKey(self.prng.below(5)),
            direction: if write { Direction::Write } else { Direction::Read },
            range,
        }
    }
}

fn every_config(seed: u64) -> impl Iterator<Item = QueueConfig> {
    let mediums = [(true, false), (false, true)];
    let kinds = ElevatorKind::ALL.into_iter().flat_map(move |kind| mediums.map(|medium| (kind, medium)));
    kinds.map(move |(elevator, (rotational, overlaps))| {
        let base = QueueConfig::for_medium(MediumTraits { rotational, overlaps, bytes_per_s: None });
        let fairness = base.fairness.filter(|_| !seed.is_multiple_of(3));
        let fairness = fairness.map(|fairness| FairnessConfig {
            lead_bytes: 64 << 10,
            together_bytes: 256 << 10,
            ..fairness
        });
        let mut classes = base.classes;
        for (class, depth) in classes.iter_mut().zip([4, 3, 2, 1]) {
            class.depth = class.depth.min(depth);
            class.hold_off = Nanos::from_millis(if seed.is_multiple_of(2) { 3 } else { 0 });
        }
        QueueConfig { elevator, fairness, classes, ..base }
    })
}

/// What one dispatch holds is of one class and direction, has no gap, and is not longer than allowed.
fn assert_well_merged(
    simulation: &Simulation,
    seen: &Observation,
    promoted: &HashMap<u64, Class>,
    context: &str,
) {
    let limit = simulation.queue.config().classes[seen.dispatch.class.index()].merge_bytes;
    let mut members: Vec<&Request> = seen.tags.iter().map(|tag| &simulation.asked[tag]).collect();
    assert_eq!(members.len(), seen.dispatch.requests as usize, "{context}");
    assert!(members.len() == 1 || seen.dispatch.range.len <= limit, "{context}");
    members.sort_by_key(|request| request.range.offset);
    let mut end = members[0].range.offset;
    assert_eq!(seen.dispatch.range.offset, end, "{context}");
    for request in members {
        let class = promoted.get(&request.tag.0).copied().unwrap_or(request.class);
        assert_eq!((class, request.direction), (seen.dispatch.class, seen.dispatch.direction), "{context}");
        assert!(request.range.offset <= end, "a gap: {context}");
        assert!(request.direction == Direction::Read || request.range.offset == end, "{context}");
        end = end.max(request.range.end());
    }
    assert_eq!(seen.dispatch.range.end(), end, "{context}");
}

#[test]
fn every_request_ends_once_whatever_the_elevator() {
    for seed in 0..40 {
        for config in every_config(seed) {
            let context = format!("seed {seed}, {}", config.elevator.name());
            let mut simulation = Simulation::new(config, seed);
            let mut tickets = Vec::new();
            let mut withdrawn = Vec::new();
            let mut promoted = HashMap::new();
            for tag in 0..300 {
                let request = simulation.random_request(tag);
                tickets.push((tag, simulation.ask(request)));
                if simulation.prng.below(10) == 0 {
                    let some = simulation.prng.below(tickets.len() as u64) as usize;
                    let (tag, ticket) = tickets.swap_remove(some);
                    if simulation.queue.handle_cancel(simulation.now, ticket) {
                        withdrawn.push(tag);
                    }
                } else if simulation.prng.below(10) == 0 {
                    let (tag, ticket) = tickets[simulation.prng.below(tickets.len() as u64) as usize];
                    if simulation.queue.handle_promote(simulation.now, ticket, Class::Demand) {
                        promoted.insert(tag, Class::Demand);
                    }
                }
                if simulation.prng.below(3) == 0 {
                    let until = simulation.now + Nanos(simulation.prng.below(20_000_000));
                    while simulation.now < until && simulation.step(Some(until)) {}
                }
            }
            while simulation.step(None) {}
            for seen in &simulation.dispatched {
                assert_well_merged(&simulation, seen, &promoted, &context);
            }
            let mut ended = std::mem::take(&mut simulation.finished);
            ended.append(&mut withdrawn);
            ended.sort_unstable();
            assert_eq!(ended, (0..300).collect::<Vec<_>>(), "{context}");
        }
    }
}

#[test]
fn a_lower_class_goes_first_only_when_it_is_overdue_and_is_never_overdue_for_long() {
    for seed in 0..20 {
        for config in every_config(1 + 2 * seed) {
            let context = format!("seed {seed}, {}", config.elevator.name());
            let mut simulation = Simulation::new(config, seed);
            // Demand never pauses: it is asked for twice as fast as it can be served.
            for tag in 0..3_000 {
                let mut request = simulation.random_request(tag);
                if tag % 8 != 0 {
                    request.class = Class::Demand;
                }
                request.range.offset += tag * 65_536;
                let _ = simulation.ask(request);
                let until = simulation.now + Nanos(600_000);
                while simulation.now < until && simulation.step(Some(until)) {}
            }
            let end = simulation.now;
            assert_classes(&simulation, config, end, &context);
        }
    }
}

/// Goes through what was dispatched up to `end` and checks both promises about classes.
fn assert_classes(simulation: &Simulation, config: QueueConfig, end: Nanos, context: &str) {
    let mut overtook = 0;
    for seen in simulation.dispatched.iter().filter(|seen| seen.at <= end) {
        let class = seen.dispatch.class.index();
        for (lower, waited) in seen.waited.iter().enumerate().skip(1) {
            // When it is due, the medium may be busy; then every class that is overdue as well may go before
            // it. Each of them occupies the medium once.
            let bound =
                config.classes[lower].ageing + Nanos(simulation.longest_service.0 * Class::COUNT as u64);
            let waited = waited.unwrap_or_default();
            assert!(waited <= bound, "class {lower} waited {waited}, not {bound}: {context}");
        }
        if seen.waited[..class].iter().any(Option::is_some) {
            overtook += 1;
            let waited = seen.waited[class].expect("who is served has waited");
            let ageing = config.classes[class].ageing;
            assert!(waited >= ageing, "class {class} overtook after {waited}: {context}");
        }
    }
    assert!(overtook > 0, "no class was overdue: {context}");
    let aged: u64 = simulation.queue.metrics(end).classes.iter().map(|class| class.aged).sum();
    assert!(aged > 0, "{context}");
}

/// Serves clients that ask for the next thing as soon as they have the last one, `connections` of them at
/// once each, for this many dispatches. Returns the bytes that each client got.
fn closed_loop(
    config: QueueConfig,
    connections: &[u64],
    bytes: &[u64],
    seed: u64,
    rounds: usize,
) -> Vec<u64> {
    let mut simulation = Simulation::new(config, seed);
    let mut tag = 0;
    let ask = |simulation: &mut Simulation, client: usize, tag: &mut u64| {
        *tag += 1;
        let offset = simulation.prng.below(1 << 40);
        let request = Request {
            tag: RequestTag(*tag),
            class: Class::Demand,
            client: ClientKey(client as u64),
            direction: Direction::Read,
            range: ByteRange::new(offset, bytes[client]),
        };
        let _ = simulation.ask(request);
    };
    for (client, connections) in connections.iter().enumerate() {
        for _ in 0..*connections {
            simulation.queue.open_connection(ClientKey(client as u64));
            ask(&mut simulation, client, &mut tag);
        }
    }
    let mut served = vec![0; connections.len()];
    while simulation.dispatched.len() < rounds {
        simulation.step(None);
        for ended in std::mem::take(&mut simulation.finished) {
            let request = simulation.asked.remove(&ended).unwrap();
            served[request.client.0 as usize] += request.range.len;
            ask(&mut simulation, request.client.0 as usize, &mut tag);
        }
    }
    served
}

#[test]
fn ten_connections_get_one_share() {
    let connections: Vec<u64> = std::iter::once(10).chain([1; 15]).collect();
    for elevator in ElevatorKind::ALL {
        let base = serial();
        let config = QueueConfig { elevator, ..base };
        let served = closed_loop(config, &connections, &[4096; 16], 7, 40_000);
        let share = served.iter().sum::<u64>() as f64 / 16.0;
        let greedy = served[0] as f64 / share;
        assert!(greedy <= 1.1, "{}: {greedy} shares", elevator.name());
        let index = jain_index(served.iter().map(|bytes| *bytes as f64));
        assert!(index >= 0.99, "{}: Jain's index {index}", elevator.name());
        let unshared = QueueConfig { fairness: None, ..config };
        if elevator != ElevatorKind::Cfq {
            let served = closed_loop(unshared, &connections, &[4096; 16], 7, 10_000);
            let share = served.iter().sum::<u64>() as f64 / 16.0;
            assert!(served[0] as f64 / share > 3.0, "shares are what helps: {}", elevator.name());
        }
    }
}

#[test]
fn who_asks_for_more_at_once_gets_fewer_turns() {
    let config = QueueConfig {
        fairness: Some(FairnessConfig { lead_bytes: 1 << 20, together_bytes: 0, request_cost_bytes: 0 }),
        ..serial()
    };
    let served = closed_loop(config, &[4, 4], &[4096, 65_536], 3, 60_000);
    let ratio = served[1] as f64 / served[0] as f64;
    assert!((0.9..=1.1).contains(&ratio), "{ratio}");
}
