//! The live page of a server (`--ui`): the image map and rates as they happen, for one user's browser.
//!
//! The page lies below a secret in its address. It asks for a [`feed`](feed::Feed) once a second. A server
//! that is started after one died goes on with the same socket and the same secret.

mod feed;
mod map;

use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context;
use hs_disk::ServedDisk;
use hs_http::{Hidden, HttpPage, HttpServeOptions, HttpServer};
use hs_output::report_page::Template;
use hs_service::handover::{HandedOver, Supervisor};
use hs_service::status::Status;
use serde_json::json;

pub(crate) use self::feed::Clients;
use self::feed::{Feed, Question};
pub(crate) use self::map::LiveMap;

/// The name under which the supervisor keeps it.
const KEPT: &str = "ui";
/// The secret's bytes, of random.
const SECRET_BYTES: usize = 16;
/// What works where the page is not built.
const WITHOUT_PAGE: &str = "Without --ui everything works; `status` says in words what the page shows";

/// What a browser may do with answers: nothing but show them in this page.
const HEADERS: &[(&str, &str)] = &[
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
         img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// The page of a server: where it is found, and the maps that it shows.
pub(crate) struct LivePage {
    socket: TcpListener,
    secret: String,
    /// The name in the address that the user gave.
    name: Option<String>,
    template: Template,
    shown: Vec<Shown>,
}

/// An image that it shows.
struct Shown {
    name: String,
    map: Arc<LiveMap>,
    /// Whether the map is of the image's file, and not of the disk in it.
    is_file: bool,
}

/// What is shown of a server now.
pub(crate) struct Now {
    /// Of each image, in the order in which they were added.
    pub(crate) statuses: Vec<Status>,
    /// Clients over HTTP.
    pub(crate) clients: Option<Clients>,
}

impl LivePage {
    /// Listens at `address`, `[HOST:]PORT`, or goes on where a server that died did; nothing without an
    /// address. It reads the page, so it comes before files are given up.
    pub(crate) fn listen(
        address: Option<&str>,
        kept: &mut HandedOver,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = address else { return Ok(None) };
        let template = match Template::read(None, WITHOUT_PAGE) {
            // What is mounted goes on without a page.
            Err(error) if supervisor.restarts() > 0 => {
                log::warn!("there is no live page any more: {error:#}");
                return Ok(None);
            }
            template => template?.that_asks_its_server(),
        };
        let held = kept.take::<String>(KEPT)?;
        let held = held.and_then(|(secret, sockets)| Some((secret, sockets.into_iter().next()?)));
        let (host, port) = address.rsplit_once(':').unwrap_or(("localhost", address));
        let (secret, socket) = match held {
            Some((secret, socket)) => (secret, TcpListener::from(socket)),
            None => {
                let listening = match host {
                    "localhost" => TcpListener::bind(format!("127.0.0.1:{port}")),
                    _ => TcpListener::bind(address),
                };
                (secret()?, listening.with_context(|| format!("listen for the live page at {address}"))?)
            }
        };
        supervisor.keep(KEPT, secret.as_str(), std::iter::once(socket.as_fd()))?;
        let name = Some(host.to_owned());
        Ok(Some(Self { socket, secret, name, template, shown: Vec::new() }))
    }

    /// A map of one more disk, which is to see what is read.
    pub(crate) fn map_of_disk(&mut self, name: &str) -> Arc<LiveMap> {
        let map = Arc::new(LiveMap::new());
        self.shown.push(Shown { name: name.to_owned(), map: Arc::clone(&map), is_file: false });
        map
    }

    /// A map of one more file, whose bytes are sent as they are.
    pub(crate) fn add_file(&mut self, name: &str, map: Arc<LiveMap>) {
        self.shown.push(Shown { name: name.to_owned(), map, is_file: true });
    }

    /// Where it is found. Only the user may read it.
    pub(crate) fn url(&self) -> String {
        let at = self.socket.local_addr().map(|at| match at {
            // Everywhere is also here.
            SocketAddr::V4(at) if at.ip().is_unspecified() => format!("127.0.0.1:{}", at.port()),
            SocketAddr::V6(at) if at.ip().is_unspecified() => format!("[::1]:{}", at.port()),
            at => at.to_string(),
        });
        format!("http://{}/{}/", at.unwrap_or_default(), self.secret)
    }

    /// Begins to answer; `ask` has the feed for what is behind the `?`.
    fn open(&self, ask: impl Fn(&str) -> String + Send + Sync + 'static) -> anyhow::Result<HttpServer> {
        let page = self.template.with(&json!({ "live": feed::VERSION }).to_string());
        let page = HttpPage {
            name: String::new(),
            content_type: "text/html; charset=utf-8",
            headers: HEADERS,
            text: Arc::new(move |_| page.clone()),
        };
        let feed = HttpPage {
            name: "feed".to_owned(),
            content_type: "application/json",
            headers: HEADERS,
            text: Arc::new(ask),
        };
        let hidden = Some(Hidden::new(&self.secret, self.name.as_deref()));
        let options = HttpServeOptions { hidden, ..HttpServeOptions::for_a_few() };
        let socket: OwnedFd = self.socket.try_clone().context("serve the live page")?.into();
        Ok(HttpServer::start(Vec::new(), vec![page, feed], vec![socket], options)?)
    }

    /// The feed that answers a question.
    fn answer(&self, query: &str, now: &Now) -> String {
        let question = Question::parse(query);
        let image = question.image.min(self.shown.len().saturating_sub(1));
        let (Some(status), Some(Shown { map, is_file, .. })) =
            (now.statuses.get(image), self.shown.get(image))
        else {
            return "null".to_owned();
        };
        let feed = Feed::of(status, *is_file);
        let is_same = feed.server == question.server && image == question.image;
        let feed = Feed {
            at_s: map.seconds(),
            images: self.shown.iter().map(|each| each.name.clone()).collect(),
            image: image as u32,
            map: map.since(question.from.filter(|_| is_same)),
            clients: now.clients,
            ..feed
        };
        serde_json::to_string(&feed).unwrap_or_default()
    }
}

/// Random bytes, as hexadecimal digits.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.context("make a secret for the live page")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Tells the map what the image has.
pub(crate) fn describe(map: &LiveMap, disk: &ServedDisk) {
    let image = disk.image();
    let hot = (0..image.hot_chunk_count()).flat_map(|chunk| image.hot_extents(chunk).iter().copied());
    map.describe(image.disk_bytes(), hot);
}

/// Shows the page for as long as `work` takes, and gives what that gives.
pub(crate) fn shown_meanwhile<T>(
    page: Option<&LivePage>,
    now: impl Fn() -> Now + Sync,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(page) = page else { return work() };
    let (sender, asks) = hs_service::questions::channel();
    let server = page.open(move |query| sender.ask(query))?;
    std::thread::scope(|scope| {
        scope.spawn(|| asks.answer(|query| page.answer(query, &now())));
        let done = work();
        // With the server goes the sender of questions, and then the thread ends.
        drop(server);
        done
    })
}
