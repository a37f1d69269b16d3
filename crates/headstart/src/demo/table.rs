//! The outcome as a person reads it: one table, and what it means.

use std::fmt::Write;

use super::contenders::Result;
use super::outcome::{Outcome, Ratio};
use crate::show;

/// Bytes of a MB, here and in the names of media.
const MB: f64 = 1e6;

/// The whole text, ending in a line break.
pub(super) fn render(outcome: &Outcome) -> String {
    let mut table =
        show::table(&["start from", "seconds", "× limit", "requests", "MB read", "hot MB", "image MB"]);
    for run in &outcome.runs {
        table.add_row(row(run, outcome.limit.limit_s));
    }
    let mut text = format!("{}\n{}\n\n", heading(outcome), table.trim_fmt());
    for sentence in sentences(outcome) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sentence}");
    }
    text
}

fn heading(outcome: &Outcome) -> String {
    let machine = &outcome.machine;
    let starts = match outcome.repeats {
        1 => "one start each".to_owned(),
        repeats => format!("medians of {repeats} starts in turns{}", exceptions(outcome)),
    };
    format!(
        "{}\nfrom {}; {starts}; {} cores of {}, Linux {}",
        outcome.command, outcome.medium, machine.cores, machine.cpu, machine.kernel
    )
}

/// Who was too slow to be started as often as the others.
fn exceptions(outcome: &Outcome) -> String {
    let fewer = outcome.runs.iter().filter(|run| run.all_ready_s.len() < outcome.repeats);
    fewer.map(|run| format!(", {} of {}", run.label, run.all_ready_s.len())).collect()
}

fn row(run: &Result, limit_s: f64) -> [String; 7] {
    let summary = &run.summary;
    let on_medium = summary.image_bytes > 0;
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / MB);
    let hot = match (summary.hot_bytes, summary.hot_compressed_bytes) {
        (0, _) => "–".to_owned(),
        (hot, packed) => format!("{} in {}", megabytes(hot), megabytes(packed)),
    };
    let where_on_medium = |text: String| if on_medium { text } else { "–".to_owned() };
    [
        run.label.to_owned(),
        format!("{:.2}", run.ready_s()),
        format!("{:.2}", run.ready_s() / limit_s),
        where_on_medium(summary.store_requests.to_string()),
        where_on_medium(megabytes(summary.store_bytes)),
        hot,
        where_on_medium(megabytes(summary.image_bytes)),
    ]
}

/// What the table means, each in one line.
fn sentences(outcome: &Outcome) -> Vec<String> {
    let (limit, ratios) = (&outcome.limit, &outcome.ratios);
    let kib = outcome.window_bytes / 1024;
    let mut sentences = vec![
        limit_sentence(outcome),
        format!(
            "Optimized, the start takes {} and {}.",
            times(&ratios.optimized_to_limit, "the limit"),
            times(&ratios.optimized_to_squashfs_sorted, "the sorted squashfs")
        ),
        format!(
            "Unoptimized, it takes {}; the image has {}, both at zstd level {} in {kib} KiB.",
            times(&ratios.unoptimized_to_squashfs, "the squashfs"),
            times(&ratios.image_bytes_to_squashfs, "its size"),
            outcome.level
        ),
        format!(
            "The hot region has {} of its blocks packed independently at zstd level {} in 128 KiB; \
             adding it took {:.1} s and left the cold region as it was, byte for byte.",
            times(&ratios.hot_bytes_to_packing, "the size"),
            outcome.hot_level,
            outcome.optimize_s,
        ),
    ];
    if limit.medium_s.is_none() {
        sentences.push(
            "Nothing was emulated: the files came from memory, so their medium does not show.".to_owned(),
        );
    }
    sentences.push(loop_note(&outcome.runs));
    sentences
}

fn limit_sentence(outcome: &Outcome) -> String {
    let limit = &outcome.limit;
    let program = format!("{:.2} s", limit.program_s);
    match limit.medium_s {
        Some(medium) if limit.is_the_medium() => format!(
            "The limit is the medium: {medium:.2} s for the hot region; the program alone takes {program}."
        ),
        Some(medium) => format!(
            "The limit is the program: {program} with everything in memory; the hot region needs {medium:.2} s \
             of the medium."
        ),
        None => format!("The limit is the program: {program} with everything in memory."),
    }
}

/// A ratio to something, and whether it is what it should be.
fn times(ratio: &Ratio, of: &str) -> String {
    let verdict = if ratio.met { "met" } else { "MISSED" };
    format!("{:.3} × {of} (goal ≤ {:.2}: {verdict})", ratio.ratio, ratio.goal)
}

fn loop_note(runs: &[Result]) -> String {
    let chosen: Vec<String> = runs
        .iter()
        .filter(|run| run.summary.hot_bytes == 0 && !run.contender.starts_with("headstart"))
        .filter_map(|run| {
            let with = if run.direct_io? { "with" } else { "without" };
            Some(format!("{} {with}", run.label))
        })
        .collect();
    format!("Loop devices, with or without direct I/O, whichever was quicker: {}.", chosen.join("; "))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demo::machine::Machine;
    use crate::demo::outcome::judge;
    use crate::summary::Summary;
    use hs_device::Medium;

    /// One start of each contender, in the order of their places.
    pub(crate) fn runs() -> Vec<Result> {
        let run = |contender, label, ready_s, image_bytes| Result {
            contender,
            label,
            direct_io: (image_bytes > 0).then_some(contender == "raw-ext4"),
            all_ready_s: vec![ready_s],
            summary: Summary {
                ready_s: Some(ready_s),
                image_bytes,
                store_requests: 7,
                store_bytes: 1_234_567,
                ..Summary::default()
            },
        };
        let mut runs = vec![
            run("raw-ext4", "raw ext4", 20.0, 700_000_000),
            run("squashfs-sorted", "squashfs, sorted", 4.0, 101_000_000),
            run("squashfs", "squashfs", 8.0, 100_000_000),
            run("headstart", "headstart", 8.0, 125_000_000),
            run("headstart-optimized", "headstart, optimized", 1.0, 145_000_000),
            run("native-warm", "warm native", 0.6, 0),
        ];
        runs[4].summary.hot_bytes = 50_000_000;
        runs[4].summary.hot_compressed_bytes = 20_000_000;
        runs
    }

    fn outcome(medium: &str) -> Outcome {
        let runs = runs();
        let (limit, ratios) = judge(&runs, Medium::parse(medium).unwrap(), 19_000_000);
        let machine =
            Machine { cores: 2, cpu: "CPU".to_owned(), memory_bytes: None, kernel: "6.1".to_owned() };
        Outcome {
            version: "0",
            machine,
            medium: medium.to_owned(),
            command: "python3".to_owned(),
            repeats: 1,
            level: 15,
            window_bytes: 128 << 10,
            hot_level: 19,
            limit,
            ratios,
            packing_bytes: 19_000_000,
            optimize_s: 9.0,
            cold_region_unchanged: true,
            runs,
            steps: Default::default(),
            demo_s: 100.0,
        }
    }

    #[test]
    fn the_table_has_a_row_each_and_says_what_was_missed() {
        let text = render(&outcome("flat-10ms-25mbs"));
        let line =
            |label: &str| text.lines().find(|line| line.contains(label)).unwrap_or_default().to_owned();
        let fields = |label: &str| {
            let line = line(label).replace(['│', '║'], " ").replace(label, "");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fields("headstart, optimized "), "1.00 1.25 7 1.2 50.0 in 20.0 145.0");
        assert_eq!(fields("warm native "), "0.60 0.75 – – – –");
        assert_eq!(fields("raw ext4 "), "20.00 25.00 7 1.2 – 700.0");
        assert!(
            text.contains("takes 1.250 × the limit (goal ≤ 1.15: MISSED) and 0.250 × the sorted"),
            "{text}"
        );
        assert!(text.contains("The limit is the medium: 0.80 s"), "{text}");
        assert!(text.ends_with("raw ext4 with; squashfs, sorted without; squashfs without.\n"), "{text}");
    }

    #[test]
    fn the_slow_are_excused() {
        let mut outcome = outcome("flat-10ms-25mbs");
        outcome.repeats = 3;
        outcome.runs[1..].iter_mut().for_each(|run| run.all_ready_s = vec![run.ready_s(); 3]);
        assert!(
            heading(&outcome).contains("medians of 3 starts in turns, raw ext4 of 1;"),
            "{}",
            heading(&outcome)
        );
    }

    #[test]
    fn without_an_emulated_medium_the_program_is_the_limit() {
        let text = render(&outcome("none"));
        assert!(text.contains("The limit is the program: 0.60 s"), "{text}");
        assert!(text.contains("their medium does not show"), "{text}");
    }
}
