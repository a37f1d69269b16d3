//! Any bytes as the JSON that the report reads: run summaries, results of experiments.

use hs_report::model::Report;

/// Whether they are; panics when the report of them is none.
pub fn run(data: &[u8]) -> bool {
    if data.trim_ascii_start().first().is_none_or(|byte| !b"{[".contains(byte)) {
        return false;
    }
    let Ok((report, table)) = hs_report::of_text(data, "input") else { return false };
    assert!(table.is_none(), "JSON has no requests");
    check(&report);
    true
}

/// What the page relies on.
pub(crate) fn check(report: &Report) {
    for story in &report.stories {
        assert!([story.before, story.after].iter().all(|bar| (*bar as usize) < story.bars.len()));
        for bar in &story.bars {
            assert!(bar.input.is_none_or(|input| (input as usize) < report.inputs.len()));
            assert!(bar.seconds.is_finite() && bar.limit_s.is_none_or(f64::is_finite));
        }
    }
    for input in &report.inputs {
        assert!(input.disk.is_none_or(|disk| (disk as usize) < report.disks.len()));
        for stage in &input.stages {
            assert!(stage.from_s <= stage.to_s);
        }
        for life in &input.lives {
            assert!(0.0 <= life.from_s && life.from_s <= life.to_s);
        }
        for used in &input.cpu {
            assert!(0.0 <= used.from_s && used.from_s <= used.to_s);
        }
        let Some(requests) = &input.requests else { continue };
        let columns = [
            &requests.block,
            &requests.blocks,
            &requests.wait_s,
            &requests.service_s,
            &requests.kind,
            &requests.part,
            &requests.process,
        ];
        assert!(columns.iter().all(|column| column.count == requests.at_s.count));
        assert!(!requests.processes.is_empty());
    }
    serde_json::to_string(report).expect("a report is JSON");
}
