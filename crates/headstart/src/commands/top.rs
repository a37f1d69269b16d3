//! `headstart top`

use std::io::IsTerminal;
use std::time::Instant;

use anyhow::bail;
use comfy_table::Table;
use hs_units::ByteSize;
use serde_json::{Value, json};

use crate::cli::Top;
use hs_output::show;
use hs_service::careful::resolve;
use hs_service::status::Status;

/// What happened to a server's figures between two updates, per second.
#[derive(serde::Serialize)]
struct Rates {
    reads: f64,
    read_bytes: f64,
    waiting: f64,
    requests: f64,
    medium_bytes: f64,
}

/// Shows what every server does, again and again.
pub(crate) fn run(args: &Top) -> anyhow::Result<()> {
    let of = args.of.as_deref().map(resolve);
    let on_terminal = std::io::stdout().is_terminal();
    let look = || -> anyhow::Result<(Instant, Vec<Status>)> {
        let mut found = hs_service::status::servers()?;
        found.retain(|status| of.as_deref().is_none_or(|of| status.is_of(of)));
        Ok((Instant::now(), found))
    };
    let mut before = look()?;
    if let (Some(of), []) = (&of, &before.1[..]) {
        bail!("nothing serves {} now", of.display());
    }
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        std::thread::sleep(args.interval);
        let now = look()?;
        let seconds = (now.0 - before.0).as_secs_f64();
        if args.json {
            show::line(update(&before.1, &now.1, seconds));
        } else {
            let table = table(&before.1, &now.1, seconds);
            if on_terminal {
                show::clear_screen();
            }
            show::line(table);
        }
        before = now;
        shown += 1;
    }
    Ok(())
}

fn table(before: &[Status], now: &[Status], seconds: f64) -> Table {
    let mut table = show::table(&[
        "served at",
        "reads/s",
        "MiB/s",
        "readers waiting",
        "requests/s",
        "medium MiB/s",
        "prefetched",
        "no wait",
        "memory",
        "restarts",
    ]);
    for status in now {
        table.add_row(row(status, rates_since(before, status, seconds)));
    }
    table
}

/// One update as JSON: each server's status, and its rates where it was there the last time.
fn update(before: &[Status], now: &[Status], seconds: f64) -> Value {
    let server = |status: &Status| {
        let rates = rates_since(before, status, seconds);
        json!({ "served_at": status.place(), "rates_per_s": rates, "status": status })
    };
    json!({ "servers": now.iter().map(server).collect::<Vec<_>>() })
}

fn rates_since(before: &[Status], now: &Status, seconds: f64) -> Option<Rates> {
    let earlier = before.iter().find(|earlier| earlier.pid == now.pid && earlier.place() == now.place());
    earlier.map(|earlier| rates(earlier, now, seconds))
}

fn rates(before: &Status, now: &Status, seconds: f64) -> Rates {
    let each_second = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    Rates {
        reads: each_second(before.demand_requests, now.demand_requests),
        read_bytes: each_second(before.demand_bytes, now.demand_bytes),
        waiting: (now.demand_wait_s - before.demand_wait_s).max(0.0) / seconds,
        requests: each_second(before.store_requests, now.store_requests),
        medium_bytes: each_second(before.store_bytes, now.store_bytes),
    }
}

/// Of a server that was not there the last time there are no rates yet.
fn row(status: &Status, rates: Option<Rates>) -> [String; 10] {
    let shown = |show: &dyn Fn(&Rates) -> String| rates.as_ref().map_or_else(|| "–".to_owned(), show);
    let prefetch = &status.prefetch;
    let prefetched = match prefetch.end_reason.as_deref() {
        Some(reason) => reason.to_owned(),
        None => format!("{}%", u64::from(prefetch.chunks) * 100 / u64::from(prefetch.chunks_total.max(1))),
    };
    [
        status.place(),
        shown(&|rates| format!("{:.0}", rates.reads)),
        shown(&|rates| show::mib(rates.read_bytes as u64)),
        shown(&|rates| format!("{:.2}", rates.waiting)),
        shown(&|rates| format!("{:.0}", rates.requests)),
        shown(&|rates| show::mib(rates.medium_bytes as u64)),
        prefetched,
        status.did_not_wait().map_or_else(|| "–".to_owned(), |share| format!("{:.1}%", share * 100.0)),
        status.rss_bytes.map_or_else(|| "?".to_owned(), |bytes| ByteSize(bytes).to_string()),
        status.restarts.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use hs_service::status::PrefetchStatus;

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let prefetch = PrefetchStatus { chunks: 1, chunks_total: 4, ..PrefetchStatus::default() };
        let before = Status { pid: 1, dir: "/a".into(), demand_requests: 10, prefetch, ..Status::default() };
        let now = Status { demand_requests: 30, demand_wait_s: 1.0, store_bytes: 4 << 20, ..before.clone() };
        let new = Status { pid: 2, dir: "/b".into(), demand_requests: 1_000, ..Status::default() };
        let told = update(std::slice::from_ref(&before), &[now.clone(), new.clone()], 2.0);
        assert_eq!(told["servers"][0]["rates_per_s"]["reads"], 10.0);
        assert!(told["servers"][1]["rates_per_s"].is_null(), "it was not there before");
        let text = table(std::slice::from_ref(&before), &[now.clone(), new], 2.0).to_string();
        let words = |place: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.contains(place)).expect(place);
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("/a")[1..8], ["/a", "10", "0.0", "0.50", "0", "2.0", "25%"]);
        assert_eq!(words("/b")[1..4], ["/b", "–", "–"]);
        assert_eq!(hs_testing::decimal_units(&text), [""; 0], "{text}");
        // A server that was started again counts from the beginning.
        let fresh = Status { demand_requests: 0, ..now.clone() };
        assert_eq!(rates(&now, &fresh, 1.0).reads, 0.0);
    }
}
