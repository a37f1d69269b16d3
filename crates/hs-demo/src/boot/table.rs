//! The second story as text: a table, the paper's figures apart from it, and the conclusions.

use hs_units::ByteSize;

use super::contenders;
use super::outcome::{Outcome, Timed};
use super::paper::Paper;
use crate::facts::Facts;
use crate::ratio::{Ratio, Spread};
use crate::table;
use crate::turns::Tally;
use hs_output::show::{self, mib};

/// The whole text, ending in a line break.
pub(super) fn render(facts: &Facts, outcome: &Outcome, tallies: &[Tally]) -> String {
    let titles = [
        "boot from",
        "boots",
        "seconds",
        "of all boots",
        "wait",
        "requests",
        "seeks",
        "MiB read",
        "KiB/s",
        "image MiB",
    ];
    let rows = outcome.contenders.iter().zip(tallies).map(|(timed, tally)| row(timed, tally));
    let text = table::render(&heading(facts, outcome), titles, rows, &sentences(outcome, tallies));
    text + "\n" + &beside(&outcome.paper)
}

fn heading(facts: &Facts, outcome: &Outcome) -> String {
    let counts = outcome.contenders.iter().map(|timed| (timed.label, timed.all_ready_s.len()));
    format!("{}\nfrom {}; {}", outcome.guest, outcome.common.medium, facts.line("boot", counts))
}

fn row(timed: &Timed, tally: &Tally) -> [String; 10] {
    let run = tally.median().cloned().unwrap_or_default();
    let wait = timed.storage_wait_s.map(|wait| format!("{:.2}", wait.median));
    let none = || "–".to_owned();
    // A boot from memory reads no medium.
    let on_medium = |text: String| if wait.is_some() { text } else { none() };
    [
        timed.label.to_owned(),
        timed.all_ready_s.len().to_string(),
        format!("{:.2}", timed.ready_s.median),
        range(timed.ready_s),
        on_medium(wait.clone().unwrap_or_default()),
        on_medium(run.store_requests.to_string()),
        on_medium(run.seeks.to_string()),
        on_medium(mib(run.store_bytes)),
        on_medium(timed.busy_bytes_per_second.map_or_else(none, |rate| format!("{:.0}", rate / 1024.0))),
        on_medium(mib(run.image_bytes)),
    ]
}

fn range(spread: Spread) -> String {
    if spread.runs == 1 {
        return "–".to_owned();
    }
    format!("{:.2}–{:.2}", spread.least, spread.most)
}

/// The conclusions from the table, each in one line.
fn sentences(outcome: &Outcome, tallies: &[Tally]) -> Vec<String> {
    let ratios = &outcome.ratios;
    let cloop = outcome.cloop_like;
    let mut sentences = vec![
        format!(
            "cloop-like is our reader with cloop's parameters: {} windows by zlib level {}, no hot region, \
             nothing prefetched. headstart: {} by zstd level {}.",
            ByteSize(cloop.window_bytes),
            cloop.level,
            ByteSize(outcome.common.window_bytes),
            outcome.common.level
        ),
        "wait is what the medium costs: seconds less those of the boots from memory, median from median. For it, and against the \
         limit, each boot counts as if the guest had been charged for as much processor time as from memory (a slow minute of \
         this machine is no wait). KiB/s are of the time in which the medium was busy. [least to most that any two boots give]"
            .to_owned(),
        limit_sentence(outcome),
        format!("Optimized, the boot takes {}.", times(ratios.ready_to_limit, "the limit")),
        format!(
            "It waits {} and {}.",
            times(ratios.wait_to_unoptimized, "the unoptimized boot's wait"),
            times(ratios.wait_to_cloop_like, "the cloop-like one's")
        ),
        format!("It seeks {}.", times(ratios.seeks_to_unoptimized, "the unoptimized boot's seeks")),
        format!(
            "While prefetching, it reads at {}.",
            times(ratios.prefetch_rate_to_medium, "the medium's rate where the hot region lies")
        ),
    ];
    let optimized_s = outcome.contenders[contenders::OPTIMIZED].ready_s.median;
    sentences.extend(outcome.common.limit.critical_path_sentence(optimized_s));
    sentences.push(waited_sentence(tallies));
    let cannot_tell = outcome
        .contenders
        .iter()
        .filter(|timed| timed.storage_wait_s.is_some_and(|wait| wait.runs > 1 && wait.holds(0.0)))
        .map(|timed| timed.label);
    let cannot_tell: Vec<&str> = cannot_tell.collect();
    if !cannot_tell.is_empty() {
        sentences.push(format!(
            "The boots vary by more than the wait from: {}. It cannot be told from none.",
            cannot_tell.join("; ")
        ));
    }
    sentences
}

/// The waits that the image's server saw itself; other load of the machine does not change them.
fn waited_sentence(tallies: &[Tally]) -> String {
    let waited = tallies.iter().filter_map(|tally| {
        let waited_s = tally.median()?.demand_wait_s?;
        Some(format!("{} {waited_s:.2} s", tally.label))
    });
    let waited: Vec<String> = waited.collect();
    format!("As the server saw it, readers waited for the medium: {} (median boots).", waited.join(", "))
}

fn limit_sentence(outcome: &Outcome) -> String {
    let warm = format!("{:.2} s", outcome.common.limit.program_s);
    match outcome.delivery {
        Some(delivery) => {
            let limit = if outcome.common.limit.is_the_medium() { "the medium" } else { "the guest itself" };
            format!(
                "The limit is {limit}: {warm} with everything in memory; the medium needs {:.2} s for the hot region \
                 of {}, {:.0} KiB/s where it lies.",
                delivery.delivery_s,
                ByteSize(delivery.bytes),
                delivery.bytes_per_second / 1024.0
            )
        }
        None => format!(
            "The limit is the guest itself: {warm} with everything in memory. Nothing was emulated: the files came \
             from memory."
        ),
    }
}

/// A ratio, or that there is none.
fn times(ratio: Option<Ratio>, of: &str) -> String {
    ratio.map_or_else(|| format!("? × {of} (which may be nothing)"), |ratio| ratio.times(of))
}

/// What others measured, clearly apart.
fn beside(paper: &Paper) -> String {
    let mut table = show::table(&["beside it, from a paper", "seconds", "KB/s"]);
    for boot in paper.boots {
        let rate = boot.kb_per_second.map_or_else(|| "–".to_owned(), |rate| rate.to_string());
        table.add_row([boot.system.to_owned(), boot.seconds.to_string(), rate]);
    }
    format!(
        "{}\n{}: {}; not our system, nor our machine.\n{}\n",
        table.trim_fmt(),
        paper.source,
        paper.machine,
        paper.note
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::outcome::tests::outcome;
    use crate::facts::tests::facts;
    use hs_testing::decimal_units;

    fn text(medium: &str, repeats: usize) -> String {
        let (outcome, tallies) = outcome(medium, repeats);
        render(&facts(repeats), &outcome, &tallies)
    }

    fn fields(text: &str, label: &str) -> String {
        let row = format!("│ {label}");
        let line = text.lines().find(|line| line.starts_with(&row)).unwrap_or_default();
        let line = line.replace(['│', '║'], " ").replace(label, "");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_row_says_how_often_it_was_booted() {
        let text = text("cd-24x-cav", 3);
        assert_eq!(fields(&text, "raw ext4 "), "1 30.00 – 20.00 812 413 38.1 1953 381.5");
        assert_eq!(fields(&text, "headstart, optimized "), "3 10.30 10.20–10.40 0.30 7 1 9.5 3255 104.9");
        assert_eq!(fields(&text, "all in memory "), "3 10.00 9.90–10.10 – – – – – –");
        assert!(text.contains("medians of 3 boots in turns, raw ext4 of 1;"), "{text}");
        assert!(text.contains("the hot region of 9.5 MiB, 3320 KiB/s where it lies"), "{text}");
        // A paper's rate is quoted in its unit.
        let (ours, paper) = text.split_once("beside it, from a paper").expect("both");
        assert_eq!((decimal_units(ours), decimal_units(paper)), (vec![], vec!["KB/s"]));
    }

    #[test]
    fn what_is_met_and_what_the_boots_cannot_tell_is_said() {
        let text = text("cd-24x-cav", 3);
        assert!(text.contains("It waits 0.038 [") && text.contains("(goal ≤ 0.10: met)"), "{text}");
        assert!(text.contains("The limit is the guest itself: 10.00 s"), "{text}");
        assert!(text.contains("waited for the medium: headstart, optimized 0.25 s (median"), "{text}");
        assert!(!text.contains("cannot be told"), "{text}");
        let (mut outcome, tallies) = outcome("cd-24x-cav", 3);
        outcome.contenders[3].storage_wait_s = Some(Spread::new(0.1, [-0.1, 0.1, 0.3]));
        let text = render(&facts(3), &outcome, &tallies);
        assert!(text.contains("than the wait from: headstart, optimized. It cannot"), "{text}");
    }

    #[test]
    fn the_paper_stands_apart_and_other_media_have_no_goal() {
        let text = text("none", 1);
        let paper = text.find("beside it, from a paper").unwrap();
        assert!(text.find("While prefetching, it reads at ? ×").unwrap() < paper, "{text}");
        assert_eq!(fields(&text[paper..], "KNOPPIX Edu 4.1, stock "), "311 773");
        assert_eq!(fields(&text[paper..], "KNOPPIX 3.7, stock "), "207 –");
        assert!(text.contains("Nothing was emulated") && !text.contains("goal ≤ 0.10"), "{text}");
    }
}
