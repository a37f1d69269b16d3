//! Looks at the system's memory from time to time, on the calling thread.

use std::time::{Duration, Instant};

use hs_engine::{MemoryBudget, MemoryBudgetConfig};
use hs_linux::MemoryProbe;

/// A budget and where it learns from.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    probe: MemoryProbe,
    budget: MemoryBudget,
    pause: Duration,
    looked: Option<Instant>,
}

impl MemoryWatch {
    /// Looks not more often than once in `pause`.
    pub(crate) fn new(config: MemoryBudgetConfig, initial_bytes: u64, pause: Duration) -> Self {
        let budget = MemoryBudget::new(config, initial_bytes);
        Self { probe: MemoryProbe::of_this_process(), budget, pause, looked: None }
    }

    /// Looks, if it is time; the budget after that. `own_bytes` are what is held within the budget now.
    pub(crate) fn look(&mut self, own_bytes: u64) -> &MemoryBudget {
        if self.looked.is_none_or(|then| then.elapsed() >= self.pause) {
            self.looked = Some(Instant::now());
            // Without a sample it stays as it is: a system that does not tell is taken as it was.
            if let Some(sample) = self.probe.sample() {
                self.budget.handle_sample(&sample, own_bytes);
            }
        }
        &self.budget
    }
}
