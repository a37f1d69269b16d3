//! fio's iolog, version 3: what fio replays at the same times (`fio --read_iolog=FILE`).
//!
//! Times are microseconds (as fio 3.33 writes and reads them), file names are one word without the spaces
//! that would end it. Background and prefetch reads are reads.

use std::fmt::Write as _;

use anyhow::bail;

use crate::model::RequestKind;
use crate::recording::Recording;

/// The name of the file that is replayed, which `--replay_redirect` replaces.
const FILE: &str = "disk";

/// The requests of the only recording with requests.
pub(crate) fn iolog(recordings: &[Recording]) -> anyhow::Result<Vec<u8>> {
    let mut with_requests = recordings.iter().filter(|recording| !recording.requests.is_empty());
    let (Some(recording), None) = (with_requests.next(), with_requests.next()) else {
        bail!("an iolog is of one input that has requests: a profile or a trace");
    };
    let mut text = format!("fio version 3 iolog\n0 {FILE} add\n0 {FILE} open\n");
    let mut end = 0;
    for request in &recording.requests {
        let action = if request.kind == RequestKind::Write { "write" } else { "read" };
        let micros = request.at.0 / 1000;
        let _ = writeln!(text, "{micros} {FILE} {action} {} {}", request.bytes.offset, request.bytes.len);
        end = micros;
    }
    let _ = writeln!(text, "{end} {FILE} close");
    Ok(text.into_bytes())
}
