//! When the recording of a start is over: when the machine is idle, with its user's desktop, if there is one.

/// What one second was like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Second {
    /// Pages that programs brought into the page cache.
    pub new_pages: u64,
    /// The share of the processors' time that was idle, in percent.
    pub idle_percent: u8,
    /// A user is logged in.
    pub has_session: bool,
}

/// What a recording does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndingStep {
    /// What comes belongs to the start.
    Record,
    /// The machine is idle and its user has not come yet: what comes meanwhile is left out.
    Wait,
    /// The start is over.
    End,
}

/// Seconds without work that make a machine idle.
const IDLE_SECONDS: u32 = 10;
/// A second without work.
const IDLE_PAGES: u64 = 64;
const IDLE_PERCENT: u8 = 60;
/// Seconds that a recording takes at most, and that a user is waited for.
const MAX_SECONDS: u32 = 300;
const MAX_WAIT_SECONDS: u32 = 180;

/// Follows a start.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ending {
    seconds: u32,
    idle: u32,
    waited: u32,
    waits: bool,
    has_session: bool,
}

impl Ending {
    /// One more second has passed.
    pub fn second(&mut self, second: Second) -> EndingStep {
        self.seconds += 1;
        let came = second.has_session && !self.has_session;
        self.has_session |= second.has_session;
        let is_idle = second.new_pages < IDLE_PAGES && second.idle_percent >= IDLE_PERCENT;
        self.idle = if is_idle && !came { self.idle + 1 } else { 0 };
        if self.seconds >= MAX_SECONDS {
            return EndingStep::End;
        }
        if self.waits && !self.has_session {
            self.waited += 1;
            return if self.waited >= MAX_WAIT_SECONDS { EndingStep::End } else { EndingStep::Wait };
        }
        self.waits = false;
        match (self.idle >= IDLE_SECONDS, self.has_session) {
            (false, _) => EndingStep::Record,
            (true, true) => EndingStep::End,
            (true, false) => {
                self.waits = true;
                EndingStep::Wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Second = Second { new_pages: 500, idle_percent: 10, has_session: false };
    const IDLE: Second = Second { new_pages: 3, idle_percent: 95, has_session: false };

    fn steps(seconds: &[(u32, Second)]) -> Vec<(u32, EndingStep)> {
        let mut ending = Ending::default();
        let mut steps: Vec<(u32, EndingStep)> = Vec::new();
        for second in seconds.iter().flat_map(|(count, second)| (0..*count).map(move |_| *second)) {
            let step = ending.second(second);
            match steps.last_mut().filter(|last| last.1 == step) {
                Some(last) => last.0 += 1,
                None => steps.push((1, step)),
            }
            if step == EndingStep::End {
                break;
            }
        }
        steps
    }

    #[test]
    fn a_login_belongs_to_the_start() {
        let at_work = Second { has_session: true, ..BUSY };
        let rests = Second { has_session: true, ..IDLE };
        use EndingStep::{End, Record, Wait};
        let expected = [(39, Record), (51, Wait), (29, Record), (1, End)];
        assert_eq!(steps(&[(30, BUSY), (60, IDLE), (20, at_work), (60, rests)]), expected);
        // A user that is logged in at once.
        assert_eq!(steps(&[(20, at_work), (60, rests)]), [(29, Record), (1, End)]);
    }

    #[test]
    fn a_server_ends_without_a_user_and_a_busy_one_at_the_limit() {
        use EndingStep::{End, Record, Wait};
        assert_eq!(steps(&[(5, BUSY), (400, IDLE)]), [(14, Record), (180, Wait), (1, End)]);
        assert_eq!(steps(&[(400, BUSY)]), [(MAX_SECONDS - 1, Record), (1, End)]);
        // A moment of rest is none.
        assert_eq!(steps(&[(5, BUSY), (9, IDLE), (5, BUSY)]), [(19, Record)]);
    }
}
