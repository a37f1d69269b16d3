//! The policy as its paper writes it, on plain queues.

use std::collections::VecDeque;

use super::s3_fifo::EXAMINED_AT_MOST;

/// Algorithm 1 of the S3-FIFO paper, for entries of one size: queues of names and counts, the oldest first.
pub(super) struct NaiveS3Fifo {
    room: usize,
    small_room: usize,
    small: VecDeque<(u64, u8)>,
    main: VecDeque<(u64, u8)>,
    ghost: VecDeque<u64>,
}

impl NaiveS3Fifo {
    pub(super) fn new(room: usize) -> Self {
        let [small, main] = [VecDeque::new(), VecDeque::new()];
        Self { room, small_room: room / 10, small, main, ghost: VecDeque::new() }
    }

    pub(super) fn ask(&mut self, key: u64) -> bool {
        if let Some(entry) = self.small.iter_mut().chain(&mut self.main).find(|(here, _)| *here == key) {
            entry.1 = (entry.1 + 1).min(3);
            return true;
        }
        if self.small.len() + self.main.len() == self.room {
            self.evict();
        }
        match self.ghost.iter().position(|left| *left == key) {
            Some(at) => {
                self.ghost.remove(at);
                self.main.push_back((key, 0));
            }
            None => self.small.push_back((key, 0)),
        }
        false
    }

    fn evict(&mut self) {
        // As many as the real one looks at.
        for _ in 0..EXAMINED_AT_MOST {
            let from_small = !self.small.is_empty() && self.small.len() >= self.small_room;
            if from_small || self.main.is_empty() {
                let (key, count) = self.small.pop_front().expect("not empty");
                if count <= 1 {
                    self.ghost.push_back(key);
                    if self.ghost.len() > self.room - self.small_room {
                        self.ghost.pop_front();
                    }
                    return;
                }
                self.main.push_back((key, 0));
            } else {
                let (key, count) = self.main.pop_front().expect("not empty");
                if count == 0 {
                    return;
                }
                self.main.push_back((key, count - 1));
            }
        }
        self.main.pop_front().or_else(|| self.small.pop_front()).expect("one of many");
    }
}
