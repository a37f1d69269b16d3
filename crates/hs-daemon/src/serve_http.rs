//! `headstart serve --http`: images as files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use hs_format::{HotSegment, ImageDigest};
use hs_http::{Access, AccessLog, HttpFile, HttpServeOptions, HttpServer, HttpTls, Rates};
use hs_image::Image;
use hs_store::{Counters, MemoryStore, RetryCounters, Store};
use parking_lot::RwLock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::live_page::{Clients, LiveMap, LivePage};
use crate::named_image::NamedImage;
use crate::serve::{Serve, Tls};
use hs_output::log_output;
use hs_service::handover::{HandedOver, Supervisor};
use hs_service::status::{Status, unix_now};
use hs_start::medium;
use hs_start::on_medium::OnMedium;
use hs_start::pinned;
use hs_units::{BlockRange, ByteRange};

/// What is served beside images is small: it is kept in memory.
const MOST_CHANNEL_BYTES: u64 = 1 << 20;

/// Images that are served as files.
pub(super) struct HttpImages {
    server: HttpServer,
    images: Vec<Medium>,
    log: Option<Arc<LogFile>>,
    tls: Option<HttpTls>,
    /// Maps of the images' files, where they are shown.
    maps: Vec<Arc<LiveMap>>,
}

/// An image, and what its medium counts.
struct Medium {
    status: Status,
    store: Arc<dyn Store>,
    counters: Arc<Counters>,
    retries: Arc<RetryCounters>,
    digest: ImageDigest,
    /// Where in its file the hot region lies.
    hot: Vec<ByteRange>,
}

impl Medium {
    /// An empty map of its file.
    fn map(&self) -> Arc<LiveMap> {
        let map = LiveMap::new();
        let hot = self.hot.iter().map(|bytes| BlockRange::covering(bytes.offset, bytes.len));
        map.describe(self.store.len(), hot);
        Arc::new(map)
    }
}

/// Of the files that a server may have open, so many at most are kept for what is no connection over HTTP.
const OTHER_FILES: u64 = 1024;
/// A connection is a socket, and a second descriptor of it by which it is watched.
const FILES_OF_CONNECTION: u64 = 2;

/// Lets this process have as many open files as it may: the usual limit of 1,024, which is only for old
/// programs' sake, would be the limit of clients. Gives how many that is, if there is a limit.
fn allow_open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            log::warn!("the limit of open files stays as it is: {error}");
            current
        }
    }
}

/// How many connections fit into a limit of open files, of which so many are open.
fn fitting_connections(most_files: u64, open_files: u64) -> usize {
    let others = OTHER_FILES.min(most_files / 4);
    let left = most_files.saturating_sub(open_files + others);
    usize::try_from(left / FILES_OF_CONNECTION).unwrap_or(usize::MAX).max(1)
}

/// Lowers the most connections to what fits into the limit of open files, and says so.
fn fit_open_files(options: &mut HttpServeOptions) {
    let Some(most_files) = allow_open_files() else { return };
    let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let (wanted, fitting) = (options.most_connections, fitting_connections(most_files, open_files));
    if fitting < wanted {
        log::warn!(
            "{fitting} HTTP connections at once instead of {wanted}: this process may have {most_files} open \
             files (ulimit -Hn, LimitNOFILE=)"
        );
        options.most_connections = fitting;
    }
}

/// Listens where the flags say, or goes on where a server that died did.
pub(super) fn listen(args: &Serve, kept: &mut HandedOver) -> anyhow::Result<Vec<OwnedFd>> {
    Ok(match kept.take::<()>("http")? {
        Some(((), sockets)) => sockets,
        None => HttpServer::listen(&args.http)?,
    })
}

impl HttpImages {
    /// Serves at these listening sockets. Nothing when the flags name none.
    pub(super) fn start(
        args: &Serve,
        named: &[NamedImage],
        sockets: Vec<OwnedFd>,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Option<Self>> {
        if args.http.is_empty() {
            return Ok(None);
        }
        let mut images = Vec::new();
        let mut files = Vec::new();
        for (number, named) in named.iter().enumerate() {
            let (file, medium) = image(args, named)?;
            pinned::keep(supervisor, number, &named.image, medium.digest)?;
            files.push(file);
            images.push(medium);
        }
        for word in &args.channel {
            files.push(channel(word)?);
        }
        let log = args.access_log.as_deref().map(LogFile::open).transpose()?;
        let maps: Vec<Arc<LiveMap>> =
            images.iter().filter(|_| args.ui.is_some()).map(|image| image.map()).collect();
        let mut options = options(args, log.as_ref())?;
        if !maps.is_empty() {
            let maps = maps.clone();
            options.sent = Some(Arc::new(move |file, bytes| {
                if let Some(map) = maps.get(file) {
                    map.sent(bytes);
                }
            }));
        }
        let tls = options.tls.clone();
        fit_open_files(&mut options);
        let server = HttpServer::start(files, Vec::new(), sockets, options)?;
        supervisor.keep("http", (), server.sockets())?;
        for (number, medium) in images.iter_mut().enumerate() {
            medium.status.nbd = Some(server.urls(number).join(" "));
            medium.status.restarts = supervisor.restarts();
            medium.status.supervisor = supervisor.process();
        }
        Ok(Some(Self { server, images, log, tls, maps }))
    }

    /// Opens the access log again, and reads the certificates again.
    pub(super) fn reload(&self) -> anyhow::Result<()> {
        let log = self.log.as_ref().map_or(Ok(()), |log| log.reopen());
        self.tls.as_ref().map_or(Ok(()), HttpTls::reload)?;
        log
    }

    /// Lets the page show the files of the images.
    pub(super) fn show_at(&self, page: Option<&mut LivePage>, named: &[NamedImage]) {
        let Some(page) = page else { return };
        for (map, named) in self.maps.iter().zip(named) {
            page.add_file(&named.name, Arc::clone(map));
        }
    }

    /// Who is being answered.
    pub(super) fn clients(&self) -> Clients {
        let stats = self.server.stats(None);
        Clients { now: stats.clients as f64, connections: stats.connections as f64 }
    }

    /// Tells a person where clients find what: addresses as commands take them, with the image's name.
    pub(super) fn say_where(&self, named: &[NamedImage]) {
        for (number, (named, medium)) in named.iter().zip(&self.images).enumerate() {
            for url in self.server.urls(number) {
                let (image, url) = (named.image.display(), for_clients(&url));
                hs_output::note!("{image} served at {url}#{}", medium.digest);
            }
        }
    }

    /// How it is now, for each image. A read of a client is a request over HTTP.
    pub(super) fn statuses(&self) -> impl Iterator<Item = Status> + '_ {
        self.images.iter().enumerate().map(|(number, medium)| {
            let stats = self.server.stats(Some(number));
            let counted = medium.counters.snapshot();
            let again = medium.retries.snapshot();
            Status {
                demand_requests: stats.requests,
                demand_bytes: stats.sent_bytes,
                store_requests: counted.requests,
                store_bytes: counted.bytes,
                store_retries: again.retries,
                store_errors: again.errors,
                rss_bytes: hs_service::memory::memory_bytes("VmRSS"),
                peak_rss_bytes: hs_service::memory::peak_rss_bytes(),
                locked_bytes: hs_service::careful::locked_bytes(),
                ..medium.status.clone()
            }
        })
    }

    /// Requests and bytes, of everything.
    pub(super) fn totals(&self) -> (u64, u64) {
        let stats = self.server.stats(None);
        (stats.requests, stats.sent_bytes)
    }

    /// From now on nothing waits for a medium.
    pub(super) fn close(&self) {
        self.images.iter().for_each(|image| image.store.close());
    }

    /// Lets what is under way end.
    pub(super) fn stop(&mut self) {
        self.server.stop();
    }
}

/// The file of an image. It is opened once, so that nothing else than an image is served under a tag that
/// names one.
fn image(args: &Serve, named: &NamedImage) -> anyhow::Result<(HttpFile, Medium)> {
    let on_medium = medium::open(&named.image, &args.medium, &args.damage)?;
    let image = Image::open_as(Arc::clone(&on_medium.store), &on_medium.image)?;
    let modified = named.image.file().and_then(|path| path.metadata().ok()?.modified().ok());
    let file = HttpFile {
        name: format!("{}.hsi", named.name),
        store: Arc::clone(&on_medium.store),
        tag: image.image_digest().to_string(),
        modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
    };
    let status = Status {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        image: named.image.shown(),
        since: unix_now(),
        medium: args.medium.to_string(),
        log: log_output::place(),
        ..Status::default()
    };
    let hot = image.superblock().hot.iter().map(HotSegment::range).collect();
    let OnMedium { store, counters, retries, .. } = on_medium;
    Ok((file, Medium { store, status, counters, retries, digest: image.image_digest(), hot }))
}

/// An address as other machines use it: a server at all addresses has the one by which this machine reaches
/// others.
fn for_clients(url: &str) -> String {
    let host = url.split('/').nth(2).unwrap_or_default();
    let Some(at) = host.parse().ok().filter(|at: &SocketAddr| at.ip().is_unspecified()) else {
        return url.to_owned();
    };
    // Addresses for documents (RFC 5737, RFC 3849): nothing is sent there.
    let (elsewhere, here): (_, IpAddr) = match at {
        SocketAddr::V4(_) => ("192.0.2.1:9", Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) => ("[2001:db8::1]:9", Ipv6Addr::LOCALHOST.into()),
    };
    let socket = UdpSocket::bind(SocketAddr::new(at.ip(), 0));
    let own = socket.and_then(|socket| socket.connect(elsewhere).and_then(|()| socket.local_addr()));
    let own = SocketAddr::new(own.map_or(here, |own| own.ip()), at.port());
    url.replacen(host, &own.to_string(), 1)
}

/// The file of `FILE` or `NAME=FILE`.
pub(super) fn channel_path(word: &OsStr) -> PathBuf {
    named_file(word).1.to_owned()
}

fn named_file(word: &OsStr) -> (Option<&OsStr>, &Path) {
    let bytes = word.as_bytes();
    let cut = bytes.iter().position(|byte| *byte == b'=').filter(|at| !bytes[..*at].contains(&b'/'));
    match cut {
        Some(at) => (Some(OsStr::from_bytes(&bytes[..at])), Path::new(OsStr::from_bytes(&bytes[at + 1..]))),
        None => (None, Path::new(word)),
    }
}

/// A small file, read once: `FILE` or `NAME=FILE`.
fn channel(word: &OsString) -> anyhow::Result<HttpFile> {
    let (name, path) = named_file(word);
    let name = name.or(path.file_name()).unwrap_or_default();
    let name = name.to_str().filter(|name| !name.is_empty());
    let name = name.with_context(|| format!("{}: there is no name for it", path.display()))?.to_owned();
    let context = || format!("read {}", path.display());
    let metadata = path.metadata().with_context(context)?;
    if metadata.len() > MOST_CHANNEL_BYTES {
        bail!("{} is too large for a channel: more than {MOST_CHANNEL_BYTES} bytes", path.display());
    }
    let content = std::fs::read(path).with_context(context)?;
    let tag = hs_format::chunk_digest(&content).to_string();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(content).named(path.display().to_string()));
    Ok(HttpFile { name, store, tag, modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH) })
}

fn options(args: &Serve, log: Option<&Arc<LogFile>>) -> anyhow::Result<HttpServeOptions> {
    let load = |tls: &Tls| HttpTls::load(&tls.directory, tls.verify_peer);
    let tls = args.tls.as_ref().map(load).transpose()?;
    let access = log.map(|log| -> AccessLog {
        let log = Arc::clone(log);
        Arc::new(move |access| log.tell(access))
    });
    let rates = Rates { together: args.http_rate, client: args.client_rate };
    Ok(HttpServeOptions { tls, access, rates, ..HttpServeOptions::default() })
}

/// Opens the access log. It tells who asked for what, so not all users may read it.
pub(super) fn open_access_log(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).mode(0o640).open(path)
}

/// The access log, which another program may move away (logrotate(8)).
struct LogFile {
    path: PathBuf,
    file: RwLock<File>,
}

impl LogFile {
    fn open(path: &Path) -> anyhow::Result<Arc<Self>> {
        let file = open_access_log(path).with_context(|| format!("open {}", path.display()))?;
        Ok(Arc::new(Self { path: path.to_owned(), file: RwLock::new(file) }))
    }

    /// From now on lines go to what lies there, or is made there.
    fn reopen(&self) -> anyhow::Result<()> {
        let file = open_access_log(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        *self.file.write() = file;
        Ok(())
    }

    /// One write a line: lines of several threads do not mix. A log that cannot be written stops no answer.
    fn tell(&self, access: &Access) {
        let _ = (&*self.file.read()).write_all(line(access).as_bytes());
    }
}

/// The Common Log Format, <https://httpd.apache.org/docs/2.4/logs.html#common>, and the range.
fn line(access: &Access) -> String {
    let quoted = |text: &str| text.replace(|letter: char| letter.is_control() || letter == '"', "?");
    let range = access.range.as_deref().unwrap_or("-");
    format!(
        "{} - - [{}] \"{}\" {} {} \"{}\"\n",
        access.client.map_or_else(|| "-".to_owned(), |client| client.to_string()),
        common_time(access.at),
        quoted(&access.request),
        access.status,
        access.sent_bytes,
        quoted(range),
    )
}

/// `06/Nov/1994:08:49:37 +0000`, from `Sun, 06 Nov 1994 08:49:37 GMT`.
fn common_time(at: SystemTime) -> String {
    let date = httpdate::fmt_http_date(at);
    let words: Vec<&str> = date.split(' ').collect();
    match words[..] {
        [_, day, month, year, time, _] => format!("{day}/{month}/{year}:{time} +0000"),
        _ => date,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn connections_leave_open_files_for_everything_else() {
        assert_eq!(fitting_connections(128, 24), 36);
        assert_eq!(fitting_connections(1024, 24), 372);
        assert!(fitting_connections(524_288, 30) > HttpServeOptions::default().most_connections);
        assert_eq!(fitting_connections(16, 30), 1);
    }

    #[test]
    fn clients_get_an_address_that_they_can_use() {
        for url in ["https://10.0.0.1:80/a.hsi", "http://[::1]:7/0.0.0.0", "http:///run/socket/a.hsi"] {
            assert_eq!(for_clients(url), url);
        }
        for (url, begin) in [("http://0.0.0.0:8080/a.hsi", "http://"), ("https://[::]:8080/a", "https://[")] {
            let shown = for_clients(url);
            let host = shown.split('/').nth(2).expect("a host").parse::<SocketAddr>().expect("an address");
            assert!(shown.starts_with(begin) && !host.ip().is_unspecified(), "{shown}");
            assert_eq!((host.port(), shown.rsplit('/').next()), (8080, url.rsplit('/').next()));
        }
    }

    #[test]
    fn a_line_of_the_log_is_what_others_write() {
        let access = Access {
            client: Some(std::net::Ipv4Addr::LOCALHOST.into()),
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
            request: "GET /a\"b\n HTTP/1.1".to_owned(),
            range: Some("bytes=0-9".to_owned()),
            status: 206,
            sent_bytes: 10,
        };
        assert_eq!(
            line(&access),
            "127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b? HTTP/1.1\" 206 10 \"bytes=0-9\"\n"
        );
    }
}
