//! What holds for both stories.

use serde::Serialize;

use super::machine::Machine;

/// From this load on, figures of the machine should not be quoted.
const BUSY: f64 = 0.5;

/// On what, with what, and how often.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    /// The program's version.
    pub(super) version: &'static str,
    pub(super) machine: Machine,
    /// Runs of each kind at most, of the slow fewer.
    pub(super) repeats: usize,
}

impl Facts {
    /// The part of a table's heading about the runs; `counts` is how many runs each contender had.
    pub(super) fn line(&self, noun: &str, counts: impl Iterator<Item = (&'static str, usize)>) -> String {
        let counts: Vec<_> = counts.collect();
        let runs = match counts.iter().map(|(_, count)| *count).max().unwrap_or_default() {
            0 | 1 => format!("one {noun} each"),
            most => {
                let fewer = counts.iter().filter(|(_, count)| *count < most);
                let fewer: String = fewer.map(|(label, count)| format!(", {label} of {count}")).collect();
                format!("medians of {most} {noun}s in turns{fewer}")
            }
        };
        let Machine { cores, cpu, kernel, load_before, .. } = &self.machine;
        let busy = match load_before {
            Some(load) if *load >= BUSY => {
                format!("; it did other things when the demo began (load {load:.1})")
            }
            _ => String::new(),
        };
        format!("{runs}; {cores} cores of {cpu}, Linux {kernel}{busy}")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of a machine for tests.
    pub(crate) fn facts(repeats: usize) -> Facts {
        let machine = Machine {
            cores: 2,
            cpu: "CPU".to_owned(),
            memory_bytes: None,
            kernel: "6.1".to_owned(),
            load_before: Some(0.2),
        };
        Facts { version: "0", machine, repeats }
    }

    #[test]
    fn the_slow_are_excused() {
        let counts = [("raw ext4", 1), ("squashfs", 3)];
        assert_eq!(
            facts(3).line("start", counts.into_iter()),
            "medians of 3 starts in turns, raw ext4 of 1; 2 cores of CPU, Linux 6.1"
        );
        let mut busy = facts(1);
        busy.machine.load_before = Some(3.25);
        assert!(
            busy.line("boot", counts.into_iter())
                .ends_with("Linux 6.1; it did other things when the demo began (load 3.2)")
        );
        let once = [("raw ext4", 1), ("squashfs", 1)];
        assert_eq!(facts(3).line("boot", once.into_iter()), "one boot each; 2 cores of CPU, Linux 6.1");
    }
}
