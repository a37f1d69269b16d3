//! What the experiments show.

use hs_lab::{EXPERIMENTS, Figure, Report};

fn run(name: &str) -> Report {
    let experiment = EXPERIMENTS.iter().find(|experiment| experiment.name == name).expect(name);
    (experiment.run)(1)
}

/// All figures that are judged must be met, but for those whose names have one of `missed` in them:
/// bench/results/experiments.md says why.
fn judge(report: &Report, missed: &[&str]) {
    for figure in &report.figures {
        let excused = missed.iter().any(|part| figure.name.contains(part));
        assert!(excused || figure.is_met() != Some(false), "{figure:?}");
    }
}

fn of<'a>(report: &'a Report, part: &'a str) -> impl Iterator<Item = &'a Figure> {
    report.figures.iter().filter(move |figure| figure.name.contains(part))
}

#[test]
fn no_class_waits_beyond_the_bound() {
    let report = run("ageing");
    judge(&report, &[]);
    assert!(report.figures.iter().all(|figure| figure.off.unwrap() > 10.0), "{:?}", report.figures);
}

#[test]
fn shares_are_equal() {
    let report = run("fairness");
    judge(&report, &[]);
    assert!(
        of(&report, "unequal")
            .filter(|figure| figure.target.is_some())
            .all(|figure| figure.off.unwrap() < 0.8)
    );
    assert!(of(&report, "connections").all(|figure| figure.off.unwrap() > 5.0));
}

#[test]
fn before_flash_the_quicker_order_is_found() {
    let experiment = EXPERIMENTS.iter().find(|experiment| experiment.name == "flash-elevators");
    // Of the twenty for which bench/results/experiments.md says so.
    for seed in [1, 4, 8, 18] {
        let report = (experiment.expect("it is there").run)(seed);
        judge(&report, &[]);
        // Order of arrival would not do on any medium that looks up its map, nor on a card.
        let by_arrival = |medium| of(&report, medium).find(|figure| figure.name.starts_with("reads/s"));
        for medium in ["pages, emmc-2010", "pages, emmc-2012", "pages, sd-uhs1"] {
            let figure = by_arrival(medium).expect(medium);
            assert!(figure.off.unwrap() < 0.9, "{figure:?}");
        }
    }
}

#[test]
fn a_prefetch_yields_to_demand() {
    let report = run("demand-p99");
    judge(&report, &[]);
    // The figures of tripwires have another mechanism switched off.
    let judged = |figure: &&Figure| figure.target.is_some() && !figure.name.contains("tripwires");
    assert!(
        of(&report, "bursts").filter(judged).all(|figure| figure.value < figure.off.unwrap() * 0.7),
        "{:?}",
        report.figures
    );
    assert!(
        of(&report, "isolated").filter(judged).all(|figure| figure.value < figure.off.unwrap() * 0.7),
        "{:?}",
        report.figures
    );
    // A reader that only misses is detected, by tripwires alone; without them it is not.
    let by_tripwires =
        |figure: &&Figure| figure.name.contains("p99 where") && !figure.name.contains("a start");
    assert!(
        report.figures.iter().filter(by_tripwires).all(|figure| figure.value < figure.off.unwrap()),
        "{:?}",
        report.figures
    );
    // And a start keeps two thirds of what prefetch gains, at least. On the CD there is nothing to gain: its
    // drive reads ahead of a program that reads in order.
    let keeps = |figure: &Figure| 1.0 - figure.value > (1.0 - figure.off.unwrap()) * 0.66;
    assert!(
        of(&report, "time with").filter(|figure| figure.off.unwrap() < 0.95).all(keeps),
        "{:?}",
        report.figures
    );
}

#[test]
fn the_same_seed_is_the_same_experiment_and_another_another() {
    for experiment in
        EXPERIMENTS.iter().filter(|experiment| ["ageing", "deadlines"].contains(&experiment.name))
    {
        let first = (experiment.run)(7);
        assert_eq!(first, (experiment.run)(7), "{}", experiment.name);
        assert_eq!(first.seed.is_some(), first != (experiment.run)(8), "{}", experiment.name);
    }
}

#[test]
fn reports_are_whole() {
    let report = run("ageing");
    assert!(report.rows.iter().all(|row| row.len() == report.columns.len()));
}

#[test]
fn deadlines_leave_the_link_to_boots_that_need_it() {
    let report = run("deadlines");
    judge(&report, &[]);
    assert_eq!(of(&report, "waits").count(), 3);
    // Where the link is never short of anything, little is lost by coming no sooner than needed.
    let apart = report.figure("worst time to ready by deadline ÷ full, boots 2 s apart");
    assert!(apart.value < 1.02, "{apart:?}");
}

#[test]
fn flushes_of_many_writers_are_one_append() {
    let report = run("gathering");
    judge(&report, &["8 writers"]);
    let value = |what: &str| report.figure(&format!("{what}, hdd-7200")).value;
    let eight = value("gathered ÷ an append for each flush, 8 writers");
    assert!((7.0..8.0).contains(&eight), "{eight}");
    // The first flush behind an append has the next one for itself, and seven are in the one after it.
    let at_once = value("at once ÷ an append for each flush, 8 writers");
    assert!((3.5..4.0).contains(&at_once), "{at_once}");
    assert!(value("gathered ÷ an append for each flush, 32 writers") > 10.0);
    assert!(value("gathered ÷ in place, 32 writers") > 5.0);
}

#[test]
fn a_compacted_overlay_is_read_as_a_plain_file() {
    let report = run("compact");
    judge(&report, &[]);
    for figure in report.figures.iter().filter(|figure| !figure.name.ends_with("ssd-sata")) {
        assert!(figure.off.unwrap() < 0.5, "{figure:?}");
    }
}

/// Every experiment has its mechanism switched off as well, and comes out differently: by a twentieth at
/// least.
#[test]
fn every_mechanism_matters() {
    for experiment in EXPERIMENTS {
        let report = (experiment.run)(1);
        let matters =
            |figure: &&Figure| figure.off.is_some_and(|off| (figure.value / off - 1.0).abs() > 0.05);
        assert!(
            report.figures.iter().any(|figure| matters(&figure)),
            "{}: {:?}",
            experiment.name,
            report.figures
        );
    }
}
