//! Figures for Prometheus: each is declared once, below, with its unit and what it means.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use hs_http::{HttpPage, HttpServeOptions, HttpServer};
use hs_linux::SocketFile;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use rustix::net::AddressFamily;

use crate::handover::{HandedOver, Supervisor};
use crate::questions::{self, QuestionSender};
use crate::status::Status;

/// A figure of a served image.
struct Metric {
    /// Without the prefix, the unit, and the `_total` of counters.
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: fn(&Status) -> Value,
}

/// What a figure is, and how much.
enum Value {
    /// It only grows, until the server is started again.
    Count(f64),
    /// It goes up and down.
    Level(f64),
    /// This server does not know.
    Unknown,
}

fn known(level: Option<u64>) -> Value {
    level.map_or(Value::Unknown, |level| Value::Level(level as f64))
}

/// Every figure there is; docs/METRICS.md lists them.
const METRICS: &[Metric] = &[
    Metric {
        name: "start_time",
        help: "When the image was mounted or exported, since 1970",
        unit: Some(Unit::Seconds),
        value: |status| Value::Level(status.since),
    },
    Metric {
        name: "restarts",
        help: "Servers before this one that died",
        unit: None,
        value: |status| Value::Count(f64::from(status.restarts)),
    },
    Metric {
        name: "demand_requests",
        help: "Reads that somebody asked for",
        unit: None,
        value: |status| Value::Count(status.demand_requests as f64),
    },
    Metric {
        name: "demand",
        help: "What these reads asked for",
        unit: Some(Unit::Bytes),
        value: |status| Value::Count(status.demand_bytes as f64),
    },
    Metric {
        name: "demand_waited_requests",
        help: "Of these reads, those that waited for the medium",
        unit: None,
        value: |status| Value::Count(status.waited_requests as f64),
    },
    Metric {
        name: "demand_wait",
        help: "How long these waited in all",
        unit: Some(Unit::Seconds),
        value: |status| Value::Count(status.demand_wait_s),
    },
    Metric {
        name: "demand_waiting_requests",
        help: "Reads that wait for the medium now",
        unit: None,
        value: |status| Value::Level(status.waiting_now as f64),
    },
    Metric {
        name: "demand_waiting_longest",
        help: "For how long the one of these has waited that has waited longest",
        unit: Some(Unit::Seconds),
        value: |status| Value::Level(status.waiting_longest_s),
    },
    Metric {
        name: "store_requests",
        help: "Requests to the medium",
        unit: None,
        value: |status| Value::Count(status.store_requests as f64),
    },
    Metric {
        name: "store_read",
        help: "What the medium delivered",
        unit: Some(Unit::Bytes),
        value: |status| Value::Count(status.store_bytes as f64),
    },
    Metric {
        name: "store_retries",
        help: "Requests to the medium that were made because one before them failed",
        unit: None,
        value: |status| Value::Count(status.store_retries as f64),
    },
    Metric {
        name: "store_errors",
        help: "Requests to the medium that failed for good",
        unit: None,
        value: |status| Value::Count(status.store_errors as f64),
    },
    Metric {
        name: "chunk_errors",
        help: "Times that a chunk could not be had, damaged or unreadable",
        unit: None,
        value: |status| Value::Count(status.errors as f64),
    },
    Metric {
        name: "prefetch_chunks",
        help: "Hot chunks that have come",
        unit: None,
        value: |status| Value::Level(f64::from(status.prefetch.chunks)),
    },
    Metric {
        name: "prefetch_chunks_wanted",
        help: "Hot chunks there are",
        unit: None,
        value: |status| Value::Level(f64::from(status.prefetch.chunks_total)),
    },
    Metric {
        name: "prefetched",
        help: "Uncompressed bytes that the prefetch has brought",
        unit: Some(Unit::Bytes),
        value: |status| Value::Count(status.prefetch.bytes as f64),
    },
    Metric {
        name: "prefetch_overdue",
        help: "Uncompressed bytes of these that came after the recorded start needed them",
        unit: Some(Unit::Bytes),
        value: |status| Value::Count(status.prefetch.overdue_bytes.unwrap_or(0) as f64),
    },
    Metric {
        name: "prefetch_running",
        help: "1 while the prefetch goes on, 0 when it has ended",
        unit: None,
        value: |status| Value::Level(f64::from(u8::from(status.prefetch.end_reason.is_none()))),
    },
    Metric {
        name: "cache",
        help: "Chunks in the server's own cache",
        unit: Some(Unit::Bytes),
        value: |status| Value::Level(status.cache.bytes as f64),
    },
    Metric {
        name: "cache_budget",
        help: "What these chunks may take now",
        unit: Some(Unit::Bytes),
        value: |status| Value::Level(status.cache.budget_bytes as f64),
    },
    Metric {
        name: "cache_hits",
        help: "Times that a chunk which somebody needed was in the cache",
        unit: None,
        value: |status| Value::Count(status.cache.hits as f64),
    },
    Metric {
        name: "cache_misses",
        help: "Times that it was not",
        unit: None,
        value: |status| Value::Count(status.cache.misses as f64),
    },
    Metric {
        name: "cache_evicted_unused",
        help: "Chunks that left the cache before anybody asked for them",
        unit: None,
        value: |status| Value::Count(status.cache.evicted_unused as f64),
    },
    Metric {
        name: "fairness",
        help: "Jain's index of the rates at which clients were served: 1 when all got the same",
        unit: None,
        value: |status| Value::Level(status.queue.jain_index),
    },
    Metric {
        name: "queue_wait",
        help: "How long requests of those who wait for an answer waited for their turn at the medium, in all",
        unit: Some(Unit::Seconds),
        value: |status| Value::Count(status.queue.demand_waited_s()),
    },
    Metric {
        name: "queue_merged",
        help: "Requests that went to the medium along with a neighbour",
        unit: None,
        value: |status| Value::Count(status.queue.merged() as f64),
    },
    Metric {
        name: "resident_memory",
        help: "Memory of the server",
        unit: Some(Unit::Bytes),
        value: |status| known(status.rss_bytes),
    },
    Metric {
        name: "locked_memory",
        help: "Memory of the server that cannot leave",
        unit: Some(Unit::Bytes),
        value: |status| known(status.locked_bytes),
    },
];

/// The socket on which a server is asked for its figures.
pub enum MetricsSocket {
    /// At an address.
    Tcp(TcpListener),
    /// At a unix socket.
    File(SocketFile),
}

impl MetricsSocket {
    /// Listens at `HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// When the address is none, or taken.
    fn listen(address: &str) -> anyhow::Result<Self> {
        let context = || format!("listen for Prometheus at {address}");
        Ok(match path_of(address) {
            Some(path) => Self::File(SocketFile::bind(path).with_context(context)?),
            None => Self::Tcp(TcpListener::bind(address).with_context(context)?),
        })
    }

    /// One that a server that died had.
    fn resume(socket: OwnedFd) -> anyhow::Result<Self> {
        let domain = rustix::net::sockopt::socket_domain(&socket).context("take over a socket")?;
        Ok(match domain {
            AddressFamily::UNIX => Self::File(SocketFile::resume(socket).context("take over a socket")?),
            _ => Self::Tcp(socket.into()),
        })
    }

    /// Where Prometheus finds it.
    pub fn url(&self) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| String::new(), |at| format!("http://{at}/metrics"))
            }
            Self::File(file) => format!("unix:{} (/metrics)", file.path().display()),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// When no thread can be started for it.
    fn open(&self, asked: QuestionSender) -> anyhow::Result<HttpServer> {
        if let Self::File(file) = self {
            file.serves();
        }
        let page = HttpPage {
            name: "metrics".to_owned(),
            content_type: CONTENT_TYPE,
            headers: &[],
            text: Arc::new(move |_| asked.ask("")),
        };
        let socket = self.as_fd().try_clone_to_owned();
        socket
            .map_err(anyhow::Error::from)
            .and_then(|socket| {
                Ok(HttpServer::start(Vec::new(), vec![page], vec![socket], HttpServeOptions::for_a_few())?)
            })
            .context("listen for Prometheus")
    }
}

/// The path in `unix:PATH`.
pub fn path_of(address: &str) -> Option<&Path> {
    address.strip_prefix("unix:").map(Path::new)
}

/// The socket that a server that died had, or one at `address`, if figures are wanted. The supervisor keeps
/// it.
///
/// # Errors
/// As `MetricsSocket::listen`.
pub fn socket(
    kept: &mut HandedOver,
    address: Option<&str>,
    supervisor: &Supervisor,
) -> anyhow::Result<Option<MetricsSocket>> {
    let held = kept.take::<()>("metrics")?.and_then(|((), sockets)| sockets.into_iter().next());
    let socket = match (held, address) {
        (Some(socket), _) => MetricsSocket::resume(socket)?,
        (None, Some(address)) => MetricsSocket::listen(address)?,
        (None, None) => return Ok(None),
    };
    supervisor.keep("metrics", (), std::iter::once(socket.as_fd()))?;
    Ok(Some(socket))
}

/// Answers who asks for figures for as long as `work` takes, and gives what that gives.
///
/// # Errors
/// Those of `work`, and when no thread can be started.
pub fn answered_meanwhile<T>(
    socket: Option<MetricsSocket>,
    statuses: impl Fn() -> Vec<Status> + Sync,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(socket) = socket else { return work() };
    let (asked, asks) = questions::channel();
    let server = socket.open(asked)?;
    std::thread::scope(|scope| {
        scope.spawn(|| asks.answer(|_| text(statuses())));
        let done = work();
        // With the server goes the sender of requests, and then the thread ends; and with the socket its
        // file.
        drop(server);
        drop(socket);
        done
    })
}

/// What the text is, for Prometheus.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The figures of all images in the text format of OpenMetrics 1.0.
fn text(statuses: Vec<Status>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(statuses)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Figures(Vec<Status>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for metric in METRICS {
            let values: Vec<_> =
                self.0.iter().map(|status| (labels(status), (metric.value)(status))).collect();
            let Some(kind) = values.iter().find_map(|(_, value)| match value {
                Value::Count(_) => Some(ConstCounter::new(0.0).metric_type()),
                Value::Level(_) => Some(ConstGauge::new(0.0).metric_type()),
                Value::Unknown => None,
            }) else {
                continue;
            };
            let name = format!("headstart_{}", metric.name);
            let mut family = encoder.encode_descriptor(&name, metric.help, metric.unit.as_ref(), kind)?;
            for (labels, value) in &values {
                match value {
                    Value::Count(value) => ConstCounter::new(*value).encode(family.encode_family(labels)?)?,
                    Value::Level(value) => ConstGauge::new(*value).encode(family.encode_family(labels)?)?,
                    Value::Unknown => {}
                }
            }
        }
        Ok(())
    }
}

/// What tells one image from another.
fn labels(status: &Status) -> [(&'static str, String); 2] {
    let at = status.nbd.clone().unwrap_or_else(|| status.dir.display().to_string());
    [("image", escaped(&status.image.display().to_string())), ("at", escaped(&at))]
}

/// A label's value as OpenMetrics has it, which `prometheus-client` leaves to us.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::PrefetchStatus;

    #[test]
    fn figures_are_asked_for_at_a_socket_in_the_file_system() {
        use std::io::{Read, Write};
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.sock");
        let socket = MetricsSocket::listen(&format!("unix:{}", path.display())).expect("listens");
        assert!(socket.url().contains("metrics.sock"), "{}", socket.url());
        let mode = path.symlink_metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let said = answered_meanwhile(
            Some(socket),
            || vec![Status::default()],
            || {
                let mut stream = std::os::unix::net::UnixStream::connect(&path)?;
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
                let mut said = String::new();
                stream.read_to_string(&mut said)?;
                Ok(said)
            },
        );
        let said = said.expect("answered");
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("# EOF\n"), "{said}");
        assert!(!path.exists(), "its file is removed");
    }

    #[test]
    fn figures_have_units_help_and_labels() {
        let status = Status {
            image: "/a\"b.hsi".into(),
            dir: "/mnt".into(),
            demand_bytes: 4096,
            demand_wait_s: 0.5,
            prefetch: PrefetchStatus { chunks: 3, ..PrefetchStatus::default() },
            ..Status::default()
        };
        let other = Status { nbd: Some("nbd://x/y".into()), rss_bytes: Some(7), ..Status::default() };
        let text = text(vec![status, other]);
        for line in [
            "# HELP headstart_demand_bytes What these reads asked for",
            "# TYPE headstart_demand_bytes counter",
            "# UNIT headstart_demand_bytes bytes",
            "headstart_demand_bytes_total{image=\"/a\\\"b.hsi\",at=\"/mnt\"} 4096.0",
            "headstart_demand_wait_seconds_total{image=\"/a\\\"b.hsi\",at=\"/mnt\"} 0.5",
            "headstart_prefetch_chunks{image=\"/a\\\"b.hsi\",at=\"/mnt\"} 3.0",
            "headstart_resident_memory_bytes{image=\"\",at=\"nbd://x/y\"} 7.0",
        ] {
            assert!(text.lines().any(|found| found == line), "no '{line}' in:\n{text}");
        }
        assert_eq!(text.matches("headstart_resident_memory_bytes{").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    /// The document names each, by the name that Prometheus sees, and nothing else.
    #[test]
    fn the_document_lists_every_figure() {
        let document = include_str!("../../../docs/METRICS.md");
        let listed: Vec<&str> = document
            .lines()
            .filter_map(|line| line.strip_prefix("| `headstart_")?.split('`').next())
            .collect();
        let sample = Status { rss_bytes: Some(1), locked_bytes: Some(1), ..Status::default() };
        let declared: Vec<String> = METRICS
            .iter()
            .map(|metric| {
                let unit = metric.unit.as_ref().map(|unit| format!("_{}", unit.as_str()));
                let total = if matches!((metric.value)(&sample), Value::Count(_)) { "_total" } else { "" };
                format!("{}{}{total}", metric.name, unit.unwrap_or_default())
            })
            .collect();
        assert_eq!(listed, declared);
    }
}
