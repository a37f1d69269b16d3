//! `headstart lab media`

use hs_device::Medium;
use serde_json::{Value, json};

use hs_output::installed::with_pages;
use hs_output::show;

/// A place of a large file, and its size, at which media are described.
const FILE_BYTES: u64 = 700_000_000;

/// Says which media there are.
pub fn run(json: bool) -> anyhow::Result<()> {
    let media: Vec<(&str, &str, Medium)> = Medium::described()
        .map(|(name, about)| Ok((name, about, Medium::parse(name)?)))
        .collect::<anyhow::Result<_>>()?;
    if json {
        let described = |(name, about, medium): &(&str, &str, Medium)| {
            json!({
                "name": name,
                "about": about,
                "first_bytes_per_s": medium.rate_bytes_per_second(FILE_BYTES, 0),
                "last_bytes_per_s": medium.rate_bytes_per_second(FILE_BYTES, FILE_BYTES),
                "latency_s": medium.latency().as_secs_f64(),
                "overlaps": medium.overlaps(),
                "turns": medium.turns(),
            })
        };
        return show::json(&json!({ "media": media.iter().map(described).collect::<Vec<Value>>() }));
    }
    let mut table = show::table(&["name", "MB/s", "elsewhere", "what it is"]);
    for (name, about, medium) in &media {
        let rate = |offset| medium.rate_bytes_per_second(FILE_BYTES, offset);
        let rates = match (rate(0), rate(FILE_BYTES)) {
            (Some(first), Some(last)) if first.abs_diff(last) * 50 > last => {
                format!("{:.2} to {:.2}", first as f64 / 1e6, last as f64 / 1e6)
            }
            (Some(first), _) => format!("{:.2}", first as f64 / 1e6),
            _ => String::new(),
        };
        let latency = if *medium == Medium::None { String::new() } else { medium.latency().to_string() };
        table.add_row([*name, &rates, &latency, *about]);
    }
    show::line(table);
    show::line(with_pages(
        "MB/s: at the beginning and the end of a file of 700,000,000 bytes. Others: FILE.toml (docs/MEDIA.md), or by name:",
    ));
    show::line(format!("  {}", Medium::grammar().join(", ")));
    Ok(())
}
