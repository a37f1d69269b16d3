//! What the live page is told: one JSON object for each question. TypeScript types are made from it
//! (`report-ui/src/live/feed.ts`).

use std::collections::HashMap;

use hs_service::status::Status;
use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

/// The version of this model, which the page checks.
pub(crate) const VERSION: u32 = 1;

/// How a server is now. Counters grow from its start; the page makes rates of them.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub(crate) struct Feed {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// The program, with its version.
    pub(crate) generator: String,
    /// Names the server's process: another one has another map and counts from zero.
    pub(crate) server: String,
    /// Seconds since this server began.
    pub(crate) at_s: f64,
    /// Names of all images.
    pub(crate) images: Vec<String>,
    /// The number of the image that the rest is about.
    pub(crate) image: u32,
    /// Where it is found.
    pub(crate) at: String,
    /// The medium.
    pub(crate) medium: String,
    /// Whether blocks are those of the image's file, and not of the disk in it.
    pub(crate) is_file: bool,
    /// The map.
    pub(crate) map: MapFeed,
    /// What was asked for, by its classes.
    pub(crate) classes: Vec<Class>,
    /// Reads of clients and of the kernel.
    pub(crate) waits: Waits,
    /// The prefetch; `null` without.
    pub(crate) prefetch: Option<Prefetch>,
    /// Clients over HTTP; `null` where there is no such server.
    pub(crate) clients: Option<Clients>,
}

/// What has changed in the map.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub(crate) struct MapFeed {
    /// Its blocks, of 4096 bytes each.
    pub(crate) blocks: f64,
    /// Blocks that share a cell: a power of two.
    pub(crate) blocks_per_cell: u32,
    /// What to ask for next.
    pub(crate) next: f64,
    /// The state of each cell, a byte each, as zlib and base64; `null` where the changes say enough.
    pub(crate) states: Option<String>,
    /// Of each change, its first cell.
    pub(crate) first: Vec<u32>,
    /// How many cells it has.
    pub(crate) count: Vec<u32>,
    /// The new state: its number in the page's list of states.
    pub(crate) state: Vec<u8>,
}

/// Requests of one class.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub(crate) struct Class {
    /// Its name.
    pub(crate) name: String,
    /// How many.
    pub(crate) requests: f64,
    /// Bytes that they asked for.
    pub(crate) bytes: f64,
}

/// Reads and their waits.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(TS))]
pub(crate) struct Waits {
    /// Reads.
    pub(crate) reads: f64,
    /// Of these, reads that waited for the medium.
    pub(crate) waited: f64,
    /// How long they waited, all together.
    pub(crate) wait_s: f64,
    /// Reads that wait now.
    pub(crate) now: f64,
    /// How long the one has waited that waits longest.
    pub(crate) longest_s: f64,
}

/// How far the prefetch is.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub(crate) struct Prefetch {
    /// Where its blocks go.
    pub(crate) mode: String,
    /// Uncompressed bytes that have come.
    pub(crate) bytes: f64,
    /// Uncompressed bytes there are.
    pub(crate) bytes_total: f64,
    /// Why it ended; `null` while it goes on.
    pub(crate) ended: Option<String>,
}

/// Clients over HTTP.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(TS))]
pub(crate) struct Clients {
    /// Clients that are being answered now.
    pub(crate) now: f64,
    /// Connections so far.
    pub(crate) connections: f64,
}

/// What the page asks for: `image=NUMBER&server=NAME&from=NUMBER`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question<'q> {
    pub(super) image: usize,
    /// The server that said `from`.
    pub(super) server: &'q str,
    pub(super) from: Option<u64>,
}

impl<'q> Question<'q> {
    /// What it does not understand, it leaves out.
    pub(super) fn parse(query: &'q str) -> Self {
        let words: HashMap<&str, &str> = query.split('&').filter_map(|word| word.split_once('=')).collect();
        let number = |name: &str| words.get(name).and_then(|text| text.parse::<u64>().ok());
        Self {
            image: number("image").and_then(|image| usize::try_from(image).ok()).unwrap_or(0),
            server: words.get("server").copied().unwrap_or_default(),
            from: number("from"),
        }
    }
}

impl Feed {
    /// What the status of an image says.
    pub(super) fn of(status: &Status, is_file: bool) -> Self {
        let class = |name: &str, requests: u64, bytes: u64| Class {
            name: name.to_owned(),
            requests: requests as f64,
            bytes: bytes as f64,
        };
        let queue = &status.queue.classes;
        let classes = if is_file {
            vec![
                class("sent to clients", status.demand_requests, status.demand_bytes),
                class("read from the medium", status.store_requests, status.store_bytes),
            ]
        } else {
            queue.iter().map(|each| class(&each.class, each.requests, each.bytes)).collect()
        };
        let prefetch = &status.prefetch;
        let at = status.nbd.clone().unwrap_or_else(|| status.dir.display().to_string());
        Self {
            version: VERSION,
            generator: format!("headstart {}", status.version),
            server: format!("{}-{}", status.pid, status.since),
            at,
            medium: status.medium.clone(),
            is_file,
            classes,
            waits: Waits {
                reads: status.demand_requests as f64,
                waited: status.waited_requests as f64,
                wait_s: status.demand_wait_s,
                now: status.waiting_now as f64,
                longest_s: status.waiting_longest_s,
            },
            prefetch: (!is_file && prefetch.bytes_total > 0).then(|| Prefetch {
                mode: prefetch.mode.clone(),
                bytes: prefetch.bytes as f64,
                bytes_total: prefetch.bytes_total as f64,
                ended: prefetch.end_reason.clone(),
            }),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_what_the_page_asks_or_nothing() {
        let question = Question::parse("image=2&server=1-2.5&from=77");
        assert_eq!(question, Question { image: 2, server: "1-2.5", from: Some(77) });
        for strange in ["", "&&=&=x", "image=-1&from=1e9", "image=99999999999999999999&from=", "from=%00"] {
            assert_eq!(Question::parse(strange), Question { image: 0, server: "", from: None }, "{strange}");
        }
    }

    #[test]
    fn the_types_of_the_page_are_those_of_the_feed() {
        let declarations = hs_testing::typescript!(Feed, MapFeed, Class, Waits, Prefetch, Clients);
        let source = "crates/hs-daemon/src/live_page/feed.rs";
        hs_testing::check_typescript("report-ui/src/live/feed.ts", source, &declarations);
    }
}
