//! `headstart status`

use anyhow::bail;
use hs_units::ByteSize;
use serde_json::json;

use crate::cli;
use hs_output::show;
use hs_service::careful::resolve;
use hs_service::status::{self, CacheStatus, PackStatus, Status};

/// Shows how every image does that this user's servers serve.
pub(crate) fn run(args: &cli::Status) -> anyhow::Result<()> {
    let mut found = status::servers()?;
    if let Some(path) = &args.of {
        let path = resolve(path);
        found.retain(|status| status.is_of(&path));
        if found.is_empty() {
            bail!("nothing serves {} now", path.display());
        }
    }
    if args.json {
        return show::json(&json!({ "mounts": found }));
    }
    if found.is_empty() {
        show::line("no image is served by headstart");
    }
    for status in &found {
        show(status);
    }
    Ok(())
}

fn show(status: &Status) {
    let memory = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), size);
    let on = status.fs.as_ref().map(|fs| format!(" and its file system at {}", fs.display()));
    let at = if status.command.is_some() { "runs" } else { "at" };
    show::line(format_args!("{} {at} {}{}", status.image.display(), status.place(), on.unwrap_or_default()));
    let seconds = (status::unix_now() - status.since).max(0.0);
    show::line(format_args!(
        "  process   {}, for {}, on medium {}, messages to {}",
        status.pid,
        duration(seconds as u64),
        status.medium,
        match &*status.log {
            "journal" => "the journal",
            "syslog" => "the system's log",
            place => place,
        }
    ));
    // A server of files over HTTP prefetches nothing, and keeps nothing.
    if !status.prefetch.mode.is_empty() {
        show_prefetch(status);
    }
    if status.cache.budget_bytes > 0 {
        show_cache(&status.cache);
    }
    show_filling(status);
    show_reads(status);
    show::line(format_args!(
        "  memory    {}, at most {}; {} locked",
        memory(status.rss_bytes),
        memory(status.peak_rss_bytes),
        memory(status.locked_bytes)
    ));
    let log = if status.errors == 0 { "" } else { ": the messages say which" };
    show::line(format_args!("  errors    {} chunks could not be had{log}", status.errors));
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

fn show_prefetch(status: &Status) {
    let prefetch = &status.prefetch;
    show::line(format_args!(
        "  prefetch  {}: {} of {} chunks, {} of {}; {}",
        prefetch.mode,
        prefetch.chunks,
        prefetch.chunks_total,
        size(prefetch.bytes),
        size(prefetch.bytes_total),
        prefetch.end_reason.as_deref().unwrap_or("going on")
    ));
}

fn show_cache(cache: &CacheStatus) {
    let looked_up = cache.hits + cache.misses;
    let hits = match looked_up {
        0 => "not used yet".to_owned(),
        _ => format!("{:.1}% of {looked_up} look-ups found what they need", cache.hit_ratio * 100.0),
    };
    let (bytes, budget) = (size(cache.bytes), size(cache.budget_bytes));
    show::line(format_args!("  cache     {bytes} of {budget} in {} chunks; {hits}", cache.chunks));
}

fn show_filling(status: &Status) {
    if let Some(fill) = &status.fill {
        show::line(format_args!(
            "  filled    {} of {}{}; {} readers waited, {} got an error; {} of {} hot chunks were read; guarded by process {}",
            size(fill.filled_bytes),
            size(fill.disk_bytes),
            if fill.hydrating { ", going on" } else { "" },
            fill.waited_readers,
            fill.denied_readers,
            fill.hot_chunks_used,
            status.prefetch.chunks_total,
            fill.guard
        ));
    }
    if let Some(fill) = &status.cache_fill {
        let state = if fill.is_complete { "all of it is there" } else { "going on" };
        let [done, total] = [fill.done_bytes, fill.total_bytes].map(size);
        show::line(format_args!("  on disk   {done} of {total}; {state}"));
    }
}

fn show_reads(status: &Status) {
    let waits = match status.did_not_wait() {
        Some(share) => format!(
            ", {} waited {:.2} s in all, {:.1}% did not wait",
            status.waited_requests,
            status.demand_wait_s,
            share * 100.0
        ),
        None => String::new(),
    };
    let (reads, bytes) = (status.demand_requests, size(status.demand_bytes));
    show::line(format_args!("  reads     {reads} for {bytes}{waits}"));
    if status.waiting_now > 0 {
        let (reads, oldest) = (status.waiting_now, status.waiting_longest_s);
        show::line(format_args!("  waiting   {reads} reads now, one of them for {oldest:.1} s"));
    }
    show::line(format_args!(
        "  medium    {} requests, {}; {} made again, {} failed",
        status.store_requests,
        size(status.store_bytes),
        status.store_retries,
        status.store_errors
    ));
    if let Some(pack) = &status.pack {
        show_pack(pack);
    }
}

fn show_pack(pack: &PackStatus) {
    let PackStatus { packed_blocks: all, compared_blocks: compared, differing_blocks: differing, .. } = pack;
    let compared = match (pack.comparison.as_deref(), differing) {
        (None, _) => String::new(),
        (Some("waiting"), _) => "; what is packed is not compared with it yet".to_owned(),
        (Some("failed"), _) => {
            "; it could not be compared with what is packed: the messages say why".to_owned()
        }
        (Some(_), 0) => format!("; {compared} of {all} packed blocks compared, all are the same"),
        (Some(_), _) => format!("; {compared} of {all} packed blocks compared, {differing} differ"),
    };
    show::line(format_args!(
        "  disk      {} requests, {}{compared}",
        pack.disk_requests,
        size(pack.disk_bytes)
    ));
}

fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(59), "59 s");
        assert_eq!(duration(61), "1 min 1 s");
        assert_eq!(duration(3660), "1 h 1 min");
        assert_eq!(duration(90_000), "1 d 1 h");
    }
}
