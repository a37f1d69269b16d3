//! fio's iologs and the text of blkparse: arrivals, without the time of service.

use std::io::BufRead;

use anyhow::bail;
use hs_trace::BlockLog;
use hs_units::Nanos;

use crate::model::{InputKind, Process, RequestKind};
use crate::recording::{MOST_REQUESTS, Recording, Request};

/// A longer line is none of theirs.
const MOST_LINE_BYTES: usize = 64 << 10;

pub(super) fn read(mut file: impl BufRead, name: &str) -> anyhow::Result<Recording> {
    let mut log = BlockLog::new();
    let mut requests = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = MOST_LINE_BYTES as u64;
        if std::io::Read::take(&mut file, limit).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() == MOST_LINE_BYTES {
            bail!(
                "a line has more than {MOST_LINE_BYTES} bytes: this is no trace as CSV, iolog or blkparse text"
            );
        }
        let Some(found) = log.handle_line(&String::from_utf8_lossy(&line))? else { continue };
        if requests.len() == MOST_REQUESTS {
            bail!("there are more than {MOST_REQUESTS} requests");
        }
        requests.push(Request {
            at: found.at,
            queued: Nanos::ZERO,
            service: Nanos::ZERO,
            bytes: found.range,
            kind: if found.writes { RequestKind::Write } else { RequestKind::Demand },
            process: 0,
            is_part: false,
            stage_file: 0,
        });
    }
    log.finish()?;
    let mut recording = Recording {
        requests,
        processes: vec![Process::default()],
        notes: vec!["This log says when requests arrived, and not how long they took.".to_owned()],
        ..Recording::new(name, InputKind::Trace)
    };
    recording.settle(false);
    Ok(recording)
}
