//! Any bytes as a trace, an iolog or blkparse text for the report.

use hs_report::model::Report;

/// Whether they are one; panics when what was read is not read again from the table that is written of it.
pub fn run(data: &[u8]) -> bool {
    // JSON has a target of its own.
    if data.trim_ascii_start().first().is_some_and(|byte| b"{[".contains(byte)) {
        return false;
    }
    let Ok((report, table)) = hs_report::of_text(data, "input") else { return false };
    crate::report_json::check(&report);
    let Some(table) = table else { return true };
    let (again, second) = hs_report::of_text(&table, "input").expect("the table is an input");
    assert!(second.as_ref() == Some(&table), "another table");
    assert_eq!(requests(&again), requests(&report));
    true
}

fn requests(report: &Report) -> Vec<u32> {
    report.inputs.iter().filter_map(|input| Some(input.requests.as_ref()?.at_s.count)).collect()
}
