//! `headstart serve`: disks over NBD and vhost-user, and images as files over HTTP.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use hs_disk::Watch;
use hs_keep::{KeepFile, KeptDisk};
use hs_nbd::{
    Export, ExportedDisk, KeptImage, NbdAddress, NbdListeners, NbdOptions, NbdServer, NbdStats, NbdTls,
};
use hs_serve::{BackgroundFill, CacheSizing, Prefetching, ServedDisk};
use hs_ublk::DeviceNumber;
use hs_uffd::UffdServer;
use hs_units::{BLOCK_BYTES, ByteSize};
use hs_vhost::VhostServer;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use rustix::thread::CapabilitySet;
use serde::Serialize;
use serde_json::Value;

use crate::fronts::Fronts;
use crate::keep;
use crate::live_page::{self, LivePage, Now};
use crate::named_image::NamedImage;
use crate::serve_guests::{self, Guests};
use crate::{Fill, ServerOptions, background_fill, serve_block_device, serve_http, serve_memory};
use hs_device::Medium;
use hs_output::log_output;
use hs_output::show;
use hs_service::careful;
use hs_service::confinement::{self, Confinement};
use hs_service::ending::Deadline;
use hs_service::handover::{HandedOver, Supervisor};
use hs_service::memory::peak_rss_bytes;
use hs_service::metrics::{self, MetricsSocket};
use hs_service::notify::Manager;
use hs_service::run_folder::{RunFolder, StatusSocket};
use hs_service::signals::{Ends, hangup_reloads};
use hs_service::status::{PrefetchStatus, Status, Subject, unix_now};
use hs_service::supervisor::{self, Plan};
use hs_start::cache::CacheChoice;
use hs_start::channel;
use hs_start::image::RemoteOptions;
use hs_start::medium::{self, Damage};
use hs_start::on_medium::OnMedium;
use hs_start::pinned;
use hs_start::server_files::{self, Origin};
use hs_start::start::{self, PrefetchLimits};
use hs_start::summary::Summary;

/// What is served, and how.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Images, each a file or an address, with `NAME=` before it where the name of its export is given.
    pub images: Vec<OsString>,
    /// How remote images are fetched.
    pub remote: RemoteOptions,
    /// The file that keeps what clients and guests write.
    pub keep: Option<PathBuf>,
    /// Addresses for NBD clients.
    pub nbd: Vec<NbdAddress>,
    /// The socket at which VMMs get the memory of their guests.
    pub uffd: Option<PathBuf>,
    /// The socket at which VMMs get the disk as a device of their guests.
    pub guests: Option<Guests>,
    /// The block device of this kernel that shows the disk.
    pub ublk: Option<DeviceNumber>,
    /// Addresses for HTTP clients.
    pub http: Vec<String>,
    /// Small files to serve over HTTP as well.
    pub channel: Vec<OsString>,
    /// The access log of the HTTP server.
    pub access_log: Option<PathBuf>,
    /// Bytes a second to all HTTP clients together.
    pub http_rate: Option<u64>,
    /// Bytes a second to one address.
    pub client_rate: Option<u64>,
    /// How the servers speak TLS, if they do.
    pub tls: Option<Tls>,
    /// The folder of certificates, which is to stay readable.
    pub certificates: Option<PathBuf>,
    /// The emulated medium.
    pub medium: Medium,
    /// Its planted faults.
    pub damage: Damage,
    /// Do not prefetch.
    pub no_prefetch: bool,
    /// Limits of the prefetch.
    pub limits: PrefetchLimits,
    /// The cache.
    pub cache: CacheChoice,
    /// Fill the disk cache meanwhile.
    pub fill: Fill,
    /// Print a summary as JSON at the end.
    pub json: bool,
    /// The address of the live page.
    pub ui: Option<String>,
    /// Supervision and metrics.
    pub serving: ServerOptions,
}

impl Serve {
    /// Whether disks are read by what is served, and not only whole images.
    fn reads_disks(&self) -> bool {
        !self.nbd.is_empty() || self.uffd.is_some() || self.guests.is_some() || self.ublk.is_some()
    }

    /// Refuses flags that do not go together.
    fn check(&self) -> anyhow::Result<()> {
        if self.fill != Fill::Never && !self.reads_disks() {
            bail!("--fill is for those who read disks (--nbd, --vhost-user-blk, --ublk)");
        }
        if self.uffd.is_some() && self.images.len() > 1 {
            bail!("--uffd serves one image: its VMMs do not say which");
        }
        if self.keep.is_some() && self.ublk.is_some() {
            bail!("--keep is not for --ublk: its readers would see the disk without what was written");
        }
        if self.keep.is_some() && self.nbd.is_empty() && self.guests.is_none() {
            bail!("--keep is for those who write (--nbd, --vhost-user-blk)");
        }
        if self.keep.is_some() && self.guests.is_some() && !self.nbd.is_empty() {
            bail!("--keep takes writes from one side: --nbd or --vhost-user-blk, not both");
        }
        if self.keep.is_some() && self.uffd.is_some() {
            bail!("--keep is not for --uffd: its guests would read the disk without what was written");
        }
        if self.ublk.is_some() && self.images.len() > 1 {
            bail!("--ublk shows one image: start a server for each device");
        }
        if self.keep.is_some() && self.images.len() > 1 {
            bail!("--keep is for one image: start a server for each that is written to");
        }
        if self.guests.is_some() && self.images.len() > 1 {
            bail!("--vhost-user-blk serves one image: its VMMs do not say which");
        }
        Ok(())
    }
}

/// How a server speaks TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The folder of certificates.
    pub directory: PathBuf,
    /// NBD clients may not connect without it.
    pub required: bool,
    /// Clients need a certificate too.
    pub verify_peer: bool,
}

impl Tls {
    fn of_nbd(&self) -> anyhow::Result<NbdTls> {
        Ok(NbdTls::load(&self.directory, self.required, self.verify_peer)?)
    }
}

/// Serves the disks of images to NBD clients until a signal comes; gives the exit code. `arguments` are those
/// of the program.
pub fn run(args: &Serve, arguments: &[OsString], quiet: bool) -> anyhow::Result<i32> {
    if args.serving.starts_supervisor() {
        let reloads = hangup_reloads();
        let plan = Plan::in_foreground(arguments, "serve", reloads);
        return supervisor::supervise(&plan);
    }
    args.check()?;
    let began = Instant::now();
    let signals = Ends::block()?;
    // Asked before it could not be asked any more.
    let reloads = hangup_reloads();
    let (supervisor, mut kept) = Supervisor::at(args.serving.supervisor_fd)?;
    let supervisor = Arc::new(supervisor);
    let nbd_tls = args.tls.as_ref().map(Tls::of_nbd).transpose()?;
    let options = NbdOptions { tls: nbd_tls.clone(), ..NbdOptions::default() };
    let named = images(args, &mut kept)?;
    // Names of hosts are looked up in files that a confined server does not open.
    let mut page = LivePage::listen(args.ui.as_deref(), &mut kept, &supervisor)?;
    let metrics = metrics::socket(&mut kept, args.serving.metrics.as_deref(), &supervisor)?;
    let nbd_listeners = nbd_listeners(args, &mut kept)?;
    let http_sockets = serve_http::listen(args, &mut kept)?;
    let keep = args.keep.as_deref().map(|path| keep::open(path, &mut kept, &supervisor)).transpose()?;
    let device = serve_block_device::make(args.ublk, &mut kept, &supervisor)?;
    confine(args, &named);
    let mut http = serve_http::HttpImages::start(args, &named, http_sockets, &supervisor)?;
    let served = ServedExport::start_all(args, &named, &supervisor, (page.as_mut(), keep))?;
    if let Some(http) = &http {
        http.show_at(page.as_mut(), &named);
    }
    let memory = served.first().map(|served| served.memory(args, &mut kept, &supervisor)).transpose()?;
    let nbd = nbd(&served, nbd_listeners, options, &supervisor)?;
    careful::take_care();
    // Its guests' memory is mapped after what is there was locked into memory.
    let guests = start_guests(args, &served, &mut kept, &supervisor)?;
    let device = serve_block_device::show(device, served.first().map(|served| &served.disk))?;
    let mut fronts = Fronts { nbd, guests, device };
    let socket = StatusSocket::offer(RunFolder::offered().as_ref());
    let subjects = subjects_of(args, &served, &supervisor, &fronts);
    let statuses = || -> Vec<Status> {
        subjects
            .iter()
            .map(Subject::now)
            .chain(http.iter().flat_map(serve_http::HttpImages::statuses))
            .collect()
    };
    // A supervisor speaks to the manager of the service.
    let manager = if supervisor.process().is_none() { Manager::of_this_process() } else { Manager::none() };
    let words = words(args, named.len());
    // Images that lie elsewhere take names of hosts, which some systems ask of a socket in the file system.
    confinement::settle(named.iter().any(|named| Origin::of(&named.image) > Origin::File));
    // Before the lines: a program that has read them may end the server at once, and then it is one that
    // serves.
    supervisor.ready(&words, &Value::Null);
    manager.ready(&words);
    if supervisor.restarts() == 0 {
        if let (false, Some(http)) = (quiet, &http) {
            http.say_where(&named);
        }
        say_where(quiet, &served, &fronts, metrics.as_ref(), page.as_ref());
    }
    let reload = || reload(http.as_ref(), nbd_tls.as_ref());
    let now = || Now { statuses: statuses(), clients: http.as_ref().map(serve_http::HttpImages::clients) };
    let ended = metrics::answered_meanwhile(metrics, statuses, || {
        live_page::shown_meanwhile(page.as_ref(), now, || {
            wait_for_end(&signals, socket.as_ref(), &statuses, reloads.then_some(&reload))
        })
    });
    supervisor.ending();
    manager.stopping();
    let kept = close_kept(&served, fronts.guests.as_mut());
    // From here on nothing may wait for the medium.
    Deadline::begin(Vec::new(), || {}).lasts();
    served.iter().for_each(|served| served.disk.close());
    http.iter().for_each(serve_http::HttpImages::close);
    drop(memory);
    let stats = fronts.end();
    ended?;
    kept?;
    served.iter().filter_map(|served| served.on_medium.trouble()).for_each(|trouble| log::warn!("{trouble}"));
    drop(subjects);
    if let Some(http) = &mut http {
        http.stop();
    }
    if args.json {
        let http = http.as_ref().map(serve_http::HttpImages::totals);
        show::json(&Totals::of(args, &served, stats, http, began))?;
    }
    Ok(0)
}

/// What was written has to come to the medium, however long that takes. What a guest waits for is left to the
/// next server.
fn close_kept(served: &[ServedExport], guests: Option<&mut VhostServer>) -> anyhow::Result<()> {
    if let Some(guests) = guests {
        guests.stop();
    }
    served.iter().filter_map(|served| served.kept.as_deref()).try_for_each(|kept| keep::close(kept, true))
}

/// Shows the disk to guests as a device, where that is asked for.
fn start_guests(
    args: &Serve,
    served: &[ServedExport],
    kept: &mut HandedOver,
    supervisor: &Supervisor,
) -> anyhow::Result<Option<VhostServer>> {
    let (Some(guests), Some(served)) = (&args.guests, served.first()) else { return Ok(None) };
    serve_guests::start(&served.disk, served.kept.as_ref(), guests, kept, supervisor).map(Some)
}

/// What can be told of each image whose disk is read.
fn subjects_of<'a>(
    args: &Serve,
    served: &'a [ServedExport],
    supervisor: &Supervisor,
    fronts: &Fronts,
) -> Vec<Subject<'a>> {
    let served = served.iter().enumerate();
    served.map(|(number, served)| served.subject(args, supervisor, &fronts.places_of(number))).collect()
}

/// What is served, in a line for a service manager.
fn words(args: &Serve, images: usize) -> String {
    let ways = [
        (!args.nbd.is_empty()).then_some("for NBD clients"),
        (!args.http.is_empty()).then_some("over HTTP"),
        args.guests.is_some().then_some("as a device of guests"),
        args.ublk.is_some().then_some("as a block device"),
        args.uffd.is_some().then_some("as memory"),
    ];
    let ways: Vec<&str> = ways.into_iter().flatten().collect();
    format!("{images} {} {}", if images == 1 { "image" } else { "images" }, ways.join(" and "))
}

/// The images that the arguments name, as a server that died has served them.
fn images(args: &Serve, kept: &mut HandedOver) -> anyhow::Result<Vec<NamedImage>> {
    let parse = |word: &OsString| NamedImage::parse(word, &args.remote);
    let mut named: Vec<NamedImage> = args.images.iter().map(parse).collect::<Result<_, _>>()?;
    for (number, named) in named.iter_mut().enumerate() {
        named.image = pinned::recall(kept, number, &named.image)?;
        if named.image.file().is_some() {
            // Where the image lies is known before anything else is given up.
            named.image = channel::resolve(&named.image)?;
        }
    }
    Ok(named)
}

/// Reads certificates again, and opens the access log again.
fn reload(http: Option<&serve_http::HttpImages>, nbd_tls: Option<&NbdTls>) {
    let http = http.map_or(Ok(()), serve_http::HttpImages::reload);
    let nbd = nbd_tls.map_or(Ok(()), NbdTls::reload).map_err(anyhow::Error::from);
    for error in [http, nbd].into_iter().filter_map(Result::err) {
        log::error!("{error:#}: what was read before still counts");
    }
}

/// What lies in a folder of certificates.
const TLS_FILES: [&str; 4] = ["server-cert.pem", "server-key.pem", "ca-cert.pem", "ca-crl.pem"];

/// Gives up what serving these images does not take, before anything of theirs is read.
fn confine(args: &Serve, named: &[NamedImage]) {
    // A file that it could not write any more.
    careful::survive_low_memory();
    let mut files = server_files::of_images(named.iter().map(|named| &named.image));
    // With their folders, where newer ones will lie; each by its name, since it may be a link into another.
    if let Some(folder) = &args.certificates {
        let targets =
            TLS_FILES.map(|name| folder.join(name)).into_iter().filter_map(|at| at.canonicalize().ok());
        files.read.extend(targets.map(|target| server_files::folder_of(&target).to_owned()));
        files.read.push(folder.clone());
    }
    files.read.extend(args.channel.iter().map(|word| serve_http::channel_path(word)));
    if let Some(path) = &args.access_log {
        // It is made, if it is not there, so that it can be named; what is wrong with it is said when it is
        // used.
        let _ = serve_http::open_access_log(path);
        files.written.push(path.clone());
        // It may be moved away, and is then made again.
        files.made.push(server_files::folder_of(path).to_owned());
    }
    files.sockets.extend(args.nbd.iter().filter_map(|address| match address {
        NbdAddress::Unix(path) => Some(server_files::folder_of(path).to_owned()),
        NbdAddress::Tcp { .. } => None,
    }));
    let sockets = [args.uffd.as_ref(), args.guests.as_ref().map(|guests| &guests.socket)];
    files.sockets.extend(sockets.into_iter().flatten().map(|path| server_files::folder_of(path).to_owned()));
    let metrics = args.serving.metrics.as_deref().and_then(metrics::path_of);
    files.sockets.extend(metrics.map(|path| server_files::folder_of(path).to_owned()));
    let origins = named.iter().map(|named| Origin::of(&named.image));
    // The kernel has it stop and delete its block device by no other.
    let of_device = if args.ublk.is_some() { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
    Confinement {
        capabilities: CapabilitySet::NET_BIND_SERVICE
            | CapabilitySet::DAC_READ_SEARCH
            | CapabilitySet::IPC_LOCK
            | CapabilitySet::SYS_RESOURCE
            | of_device,
        files: Some(files),
        starts_programs: origins.max() == Some(Origin::WithLogins),
        mounts: false,
        has_rings: args.ublk.is_some(),
    }
    .enforce();
}

/// Where the NBD server listens, if there is to be one.
fn nbd_listeners(args: &Serve, kept: &mut HandedOver) -> anyhow::Result<Option<NbdListeners>> {
    if args.nbd.is_empty() {
        return Ok(None);
    }
    Ok(Some(match kept.take::<()>("nbd")? {
        Some(((), sockets)) => NbdListeners::resume(sockets)?,
        None => NbdListeners::at(&args.nbd)?,
    }))
}

/// The NBD server, if there is to be one.
fn nbd(
    served: &[ServedExport],
    listeners: Option<NbdListeners>,
    options: NbdOptions,
    supervisor: &Supervisor,
) -> anyhow::Result<Option<NbdServer>> {
    let Some(listeners) = listeners else { return Ok(None) };
    let exports = served.iter().map(ServedExport::export).collect();
    let server = NbdServer::start(exports, listeners, options)?;
    supervisor.keep("nbd", (), server.sockets())?;
    Ok(Some(server))
}

/// Tells a person where clients find what; with `quiet` only what cannot be known otherwise, the live page.
fn say_where(
    quiet: bool,
    served: &[ServedExport],
    fronts: &Fronts,
    metrics: Option<&MetricsSocket>,
    page: Option<&LivePage>,
) {
    if let Some(page) = page {
        hs_output::note!("live page at {}", page.url());
    }
    if quiet {
        return;
    }
    for (number, served) in served.iter().enumerate() {
        for uri in fronts.places_of(number) {
            hs_output::note!("{} served at {uri}", served.named.image.display());
        }
    }
    if let Some(metrics) = metrics {
        hs_output::note!("metrics at {}", metrics.url());
    }
    hs_output::note!("Ctrl-C ends it");
}

/// An image that is served.
struct ServedExport {
    named: NamedImage,
    on_medium: OnMedium,
    /// It ends before the disk does.
    filling: Option<BackgroundFill>,
    /// It ends before the disk does, too.
    kept: Option<Arc<KeptDisk>>,
    disk: Arc<ServedDisk>,
}

impl ServedExport {
    fn start(args: &Serve, named: &NamedImage, page: Option<&mut LivePage>) -> anyhow::Result<Self> {
        let named = named.clone();
        let prefetching = if args.no_prefetch { Prefetching::Off } else { Prefetching::Hold };
        // All images share the budget, and the cache.
        let budget = ByteSize(args.limits.budget.0 / args.images.len() as u64);
        let mut config = start::config(
            &named.image,
            prefetching,
            Some(PrefetchLimits { budget, ..args.limits }),
            &args.medium,
        )?;
        args.cache.apply_shared(&mut config, args.images.len(), CacheSizing::Grows);
        let on_medium = medium::open(&named.image, &args.medium, &args.damage)?;
        let config = on_medium.config(&config);
        let map = page.map(|page| page.map_of_disk(&named.name));
        let watch = map.clone().map(|map| map as Arc<dyn Watch>);
        // The prefetch for guests begins when there is something that delivers to them.
        let disk = match args.uffd {
            Some(_) => ServedDisk::open(on_medium.store.clone(), &config.disk_options(), watch)?,
            None => config.open(on_medium.store.clone(), watch)?,
        };
        if let Some(map) = map {
            live_page::describe(&map, &disk);
        }
        let filling = background_fill::start(args.fill, &named.image, &disk)?;
        Ok(Self { named, on_medium, filling, kept: None, disk })
    }

    /// All of them, where disks are read.
    fn start_all(
        args: &Serve,
        named: &[NamedImage],
        supervisor: &Supervisor,
        (mut page, keep): (Option<&mut LivePage>, Option<KeepFile>),
    ) -> anyhow::Result<Vec<Self>> {
        let named = named.iter().filter(|_| args.reads_disks());
        let served = named.map(|named| Self::start(args, named, page.as_deref_mut()));
        let mut served = served.collect::<anyhow::Result<Vec<_>>>()?;
        if let (Some(file), Some(served)) = (keep, served.first_mut()) {
            served.keep(file)?;
        }
        for (number, served) in served.iter().enumerate() {
            pinned::keep(supervisor, number, &served.named.image, served.disk.image().image_digest())?;
        }
        Ok(served)
    }

    /// Serves its disk as the memory of guests as well, where that is asked for.
    fn memory(
        &self,
        args: &Serve,
        kept: &mut HandedOver,
        supervisor: &Arc<Supervisor>,
    ) -> anyhow::Result<Option<UffdServer>> {
        let Some(path) = &args.uffd else { return Ok(None) };
        let server = serve_memory::start(&self.disk, path, kept, supervisor)?;
        self.disk.begin_prefetch(Some(server.deliver()))?;
        Ok(Some(server))
    }

    /// What is written to its disk lasts, in this file.
    fn keep(&mut self, file: KeepFile) -> anyhow::Result<()> {
        self.kept = Some(Arc::new(KeptDisk::new(self.disk.clone(), file)?));
        Ok(())
    }

    fn export(&self) -> Export {
        let image = self.disk.clone();
        let digest = image.image().image_digest();
        Export {
            name: self.named.name.clone(),
            description: format!("headstart image {digest}"),
            disk: match &self.kept {
                Some(kept) => ExportedDisk::Kept(Arc::new(KeptImage { disk: Arc::clone(kept), image })),
                None => image.into(),
            },
        }
    }

    fn subject(&self, args: &Serve, supervisor: &Supervisor, uris: &[String]) -> Subject<'_> {
        let mode = if args.no_prefetch { "off" } else { "hold" };
        Subject {
            fixed: Status {
                pid: std::process::id(),
                supervisor: supervisor.process(),
                restarts: supervisor.restarts(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                image: self.named.image.shown(),
                nbd: Some(uris.join(" ")),
                since: unix_now(),
                medium: args.medium.to_string(),
                log: log_output::place(),
                prefetch: PrefetchStatus { mode: mode.to_owned(), ..PrefetchStatus::default() },
                ..Status::default()
            },
            served: &self.disk,
            counters: self.on_medium.counters.clone(),
            retries: self.on_medium.retries.clone(),
            filling: self.filling.as_ref(),
        }
    }

    fn summary(&self, args: &Serve, began: Instant) -> Summary {
        let mut summary = Summary {
            wall_s: began.elapsed().as_secs_f64(),
            medium: args.medium.to_string(),
            image_bytes: self.on_medium.store.len(),
            peak_rss_bytes: peak_rss_bytes(),
            end_reason: self.disk.ended().map(|reason| reason.as_str().to_owned()),
            ..Summary::default()
        };
        let on_medium = &self.on_medium;
        start::fill_medium(&mut summary, &on_medium.counters.snapshot(), &on_medium.retries.snapshot());
        start::fill_image(&mut summary, &self.disk);
        summary
    }
}

/// Waits for a signal that ends it. Meanwhile those who ask are told how the exports are, and SIGHUP reloads
/// where that is to be.
fn wait_for_end(
    signals: &Ends,
    socket: Option<&StatusSocket>,
    statuses: &dyn Fn() -> Vec<Status>,
    reload: Option<&impl Fn()>,
) -> anyhow::Result<()> {
    loop {
        let mut events = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        events.extend(socket.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("wait for a signal: {error}"),
        }
        if events[0].revents().contains(PollFlags::IN) {
            match (signals.take(), reload) {
                (Some(Signal::HUP), Some(reload)) => reload(),
                _ => return Ok(()),
            }
        }
        if let Some(socket) = socket {
            socket.answer(|| serde_json::to_vec(&statuses()).unwrap_or_default());
        }
    }
}

/// What was served: the run summary of each export, and what only all together have.
#[derive(Serialize)]
struct Totals {
    wall_s: f64,
    medium: String,
    connections: u64,
    reads: u64,
    sent_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_sent_bytes: Option<u64>,
    peak_rss_bytes: Option<u64>,
    /// Of `--keep`: bytes of the disk that were written, flushes, and appends, of which each was one sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_flushes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_appends: Option<u64>,
    exports: Vec<ExportSummary>,
}

#[derive(Serialize)]
struct ExportSummary {
    name: String,
    image: PathBuf,
    #[serde(flatten)]
    summary: Summary,
}

impl Totals {
    fn of(
        args: &Serve,
        served: &[ServedExport],
        stats: NbdStats,
        http: Option<(u64, u64)>,
        began: Instant,
    ) -> Self {
        let kept = served.iter().find_map(|served| served.kept.as_deref()).map(KeptDisk::figures);
        let summary_of = |served: &ServedExport| ExportSummary {
            name: served.named.name.clone(),
            image: served.named.image.display().to_string().into(),
            summary: served.summary(args, began),
        };
        Self {
            wall_s: began.elapsed().as_secs_f64(),
            medium: args.medium.to_string(),
            connections: stats.connections,
            reads: stats.reads,
            sent_bytes: stats.sent_bytes,
            http_requests: http.map(|(requests, _)| requests),
            http_sent_bytes: http.map(|(_, bytes)| bytes),
            peak_rss_bytes: peak_rss_bytes(),
            kept_bytes: kept.map(|figures| figures.data_blocks * BLOCK_BYTES),
            kept_flushes: kept.map(|figures| figures.flushes),
            kept_appends: kept.map(|figures| figures.appends),
            exports: served.iter().map(summary_of).collect(),
        }
    }
}
