//! The first story as text: one table, and the conclusions.

use hs_units::ByteSize;

use super::contenders::{self, Result};
use super::outcome::Outcome;
use crate::facts::Facts;
use crate::table;
use hs_output::show::mib;

/// The whole text, ending in a line break.
pub(super) fn render(facts: &Facts, outcome: &Outcome) -> String {
    let titles = ["start from", "seconds", "× limit", "requests", "MiB read", "hot MiB", "image MiB"];
    let rows = outcome.runs.iter().map(|run| row(run, outcome.common.limit.limit_s));
    table::render(&heading(facts, outcome), titles, rows, &sentences(outcome))
}

fn heading(facts: &Facts, outcome: &Outcome) -> String {
    let counts = outcome.runs.iter().map(|run| (run.label, run.all_ready_s.len()));
    format!("{}\nfrom {}; {}", outcome.command, outcome.common.medium, facts.line("start", counts))
}

fn row(run: &Result, limit_s: f64) -> [String; 7] {
    let summary = &run.summary;
    let on_medium = summary.image_bytes > 0;
    let hot = match (summary.hot_bytes, summary.hot_compressed_bytes) {
        (0, _) => "–".to_owned(),
        (hot, packed) => format!("{} in {}", mib(hot), mib(packed)),
    };
    let where_on_medium = |text: String| if on_medium { text } else { "–".to_owned() };
    [
        run.label.to_owned(),
        format!("{:.2}", run.ready_s()),
        format!("{:.2}", run.ready_s() / limit_s),
        where_on_medium(summary.store_requests.to_string()),
        where_on_medium(mib(summary.store_bytes)),
        hot,
        where_on_medium(mib(summary.image_bytes)),
    ]
}

/// The conclusions from the table, each in one line.
fn sentences(outcome: &Outcome) -> Vec<String> {
    let (limit, ratios) = (&outcome.common.limit, &outcome.ratios);
    let window = ByteSize(outcome.common.window_bytes);
    let mut sentences = vec![
        limit_sentence(outcome),
        format!(
            "Optimized, the start takes {} and {}.",
            ratios.optimized_to_limit.times("the limit"),
            ratios.optimized_to_squashfs_sorted.times("the sorted squashfs")
        ),
        format!(
            "Unoptimized, it takes {}; the image has {}, both at zstd level {} in {window}.",
            ratios.unoptimized_to_squashfs.times("the squashfs"),
            ratios.image_bytes_to_squashfs.times("its size"),
            outcome.common.level
        ),
        format!(
            "The hot region has {} of its blocks packed independently at zstd level {} in 128 KiB; \
             adding it took {:.1} s and left the cold region as it was, byte for byte.",
            ratios.hot_bytes_to_packing.times("the size"),
            outcome.common.hot_level,
            outcome.common.optimize_s,
        ),
    ];
    let optimized_s = outcome.runs[contenders::OPTIMIZED].ready_s();
    sentences.extend(limit.critical_path_sentence(optimized_s));
    if limit.medium_s.is_none() {
        sentences.push(
            "Nothing was emulated: the files came from memory, so their medium does not show.".to_owned(),
        );
    }
    sentences.push(loop_note(&outcome.runs));
    sentences
}

fn limit_sentence(outcome: &Outcome) -> String {
    let limit = &outcome.common.limit;
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
    use super::super::outcome::judge;
    use super::*;
    use crate::facts::tests::facts;
    use crate::outcome::Common;
    use hs_device::Medium;
    use hs_start::summary::Summary;

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
        Outcome {
            common: Common::new(Medium::parse(medium).unwrap(), limit, 9.0, Default::default()),
            command: "python3".to_owned(),
            ratios,
            packing_bytes: 19_000_000,
            runs,
        }
    }

    #[test]
    fn the_table_has_a_row_each_and_says_what_was_missed() {
        let text = render(&facts(1), &outcome("flat-10ms-25mbs"));
        let line =
            |label: &str| text.lines().find(|line| line.contains(label)).unwrap_or_default().to_owned();
        let fields = |label: &str| {
            let line = line(label).replace(['│', '║'], " ").replace(label, "");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(fields("headstart, optimized "), "1.00 1.25 7 1.2 47.7 in 19.1 138.3");
        assert_eq!(fields("warm native "), "0.60 0.75 – – – –");
        assert_eq!(fields("raw ext4 "), "20.00 25.00 7 1.2 – 667.6");
        assert!(
            text.contains("takes 1.250 × the limit (goal ≤ 1.15: MISSED) and 0.250 × the sorted"),
            "{text}"
        );
        assert!(text.contains("The limit is the medium: 0.80 s"), "{text}");
        assert_eq!(hs_testing::decimal_units(&text), [""; 0], "{text}");
        assert!(text.ends_with("raw ext4 with; squashfs, sorted without; squashfs without.\n"), "{text}");
    }

    #[test]
    fn without_an_emulated_medium_the_program_is_the_limit() {
        let text = render(&facts(1), &outcome("none"));
        assert!(text.contains("The limit is the program: 0.60 s"), "{text}");
        assert!(text.contains("their medium does not show"), "{text}");
    }
}
