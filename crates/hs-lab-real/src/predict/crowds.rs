//! Many clients: who they are, and what a table says of them.

use anyhow::{Context, bail};
use hs_lab::predict::{Crowd, SharedProcessors};
use hs_output::show;

use super::{Case, Question, Row, layout_of, seconds};

/// Clients that are simulated one by one, where they do not share a link.
const MOST_APART: u32 = 1_000;

/// The clients that start.
pub(super) fn crowd(args: &Question, case: Case) -> anyhow::Result<Crowd> {
    let Case { medium, clients, .. } = case;
    let edge = args
        .edge_cache
        .map(|edge| edge.link().with_context(|| format!("--edge-cache {edge} is no link: use one as lan-1g")))
        .transpose()?;
    if medium.link().is_none() {
        if edge.is_some() {
            bail!(
                "{medium} is no link: an edge cache fetches over a link as wan-20ms, which --emulate names"
            );
        }
        if clients.get() > MOST_APART {
            bail!("{medium} is no link: at most {MOST_APART} clients of it can be simulated");
        }
    }
    Ok(Crowd { clients, within: args.within.into(), edge })
}

/// The processors of the clients, each of which reads so many bytes of the disk.
pub(super) fn shared_processors(args: &Question, case: Case, read_bytes: u64) -> Option<SharedProcessors> {
    let (cores, cpu) = args.cores.zip(args.client_cpu)?;
    let clients_each = (f64::from(case.clients.get()) / f64::from(cores)).max(1.0);
    Some(SharedProcessors { clients_each, seconds_per_byte: cpu.as_secs_f64() / read_bytes.max(1) as f64 })
}

pub(super) const COLUMNS: [&str; 10] = [
    "medium",
    "layout",
    "scheduler",
    "clients",
    "median ready (s)",
    "worst ready (s)",
    "worst waits (s)",
    "Jain's index",
    "requests at origin",
    "MiB at origin",
];

pub(super) fn cells(row: &Row) -> Vec<String> {
    let slowest = row.predicted.slowest();
    vec![
        row.case.medium.to_string(),
        layout_of(row),
        row.case.scheduler.name().to_owned(),
        row.case.clients.to_string(),
        seconds(row.predicted.median_ready()),
        seconds(slowest.ready),
        seconds(slowest.waited),
        format!("{:.4}", row.predicted.jain_index()),
        row.predicted.requests.to_string(),
        show::mib(row.predicted.bytes),
    ]
}
