//! The media that experiments run on.

use hs_device::{Medium, NewsDisk};
use hs_engine::queue::{ElevatorKind, MediumTraits, QueueConfig};
use hs_units::Nanos;

use crate::simulation::Station;

/// The model of a medium, and its traits for the engine.
#[derive(Clone, Copy, Debug)]
pub enum Model {
    /// One of `--emulate`.
    Medium(Medium),
    /// A disk of 1991.
    News(NewsDisk),
}

/// Media of today that experiments are judged on.
const JUDGED: [&str; 4] = ["cd-24x-cav", "hdd-7200", "flat-10ms-25mbs", "flat-10ms-25mbs-serial"];

/// Bytes of the file that lies on a medium of today.
const FILE: u64 = 700_000_000;

impl Model {
    /// All models for experiments: media that rotate, media with a latency, and the two disks of 1991 that
    /// are judged.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let media =
            JUDGED.map(|name| Self::Medium(Medium::parse(name).expect("a name of the list"))).into_iter();
        media.chain([Self::News(NewsDisk::Wren4), Self::News(NewsDisk::SmoS501)]).collect()
    }

    /// The model called `name`.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let found = Self::all().into_iter().find(|model| model.name() == name);
        found.unwrap_or_else(|| panic!("no model is called '{name}'"))
    }

    /// The model of a medium that can be written to: of [`Model::all`], or of docs/MEDIA.md.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn writable(name: &str) -> Self {
        let news = [NewsDisk::Wren4, NewsDisk::SmoS501].into_iter().find(|disk| disk.name() == name);
        news.map_or_else(|| Self::Medium(Medium::parse(name).expect("a medium of the list")), Self::News)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Medium(medium) => medium.to_string(),
            Self::News(disk) => disk.to_string(),
        }
    }

    /// Bytes of the file that is read.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        match self {
            Self::Medium(_) => FILE,
            Self::News(disk) => disk.capacity_bytes() / 2,
        }
    }

    /// A fresh, idle model.
    #[must_use]
    pub fn station(&self) -> Box<dyn Station> {
        match self {
            Self::Medium(medium) => {
                let device = medium.device(FILE).expect("the file fits").expect("the medium is modelled");
                Box::new(device)
            }
            Self::News(disk) => Box::new(disk.device()),
        }
    }

    /// The same where it can be written to.
    #[must_use]
    pub fn writable_station(&self) -> Option<Box<dyn Station>> {
        match self {
            Self::Medium(medium) => {
                Some(Box::new(medium.writable_device(self.file_bytes()).expect("the file fits")?))
            }
            Self::News(_) => Some(self.station()),
        }
    }

    /// Time to the first byte of a typical request.
    #[must_use]
    pub fn latency(&self) -> Nanos {
        match self {
            Self::Medium(medium) => medium.latency(),
            Self::News(disk) => disk.latency(),
        }
    }

    /// Bytes a second of a long sequential read of the file's first half.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        match self {
            Self::Medium(medium) => {
                medium.rate_bytes_per_second(FILE, FILE / 4).expect("the medium is modelled") as f64
            }
            Self::News(disk) => disk.rate_bytes_per_second(),
        }
    }

    /// The traits for the engine.
    #[must_use]
    pub fn traits(&self) -> MediumTraits {
        let (rotational, overlaps) = match self {
            Self::Medium(medium) => (medium.turns(), medium.overlaps()),
            Self::News(_) => (true, false),
        };
        MediumTraits { rotational, overlaps, bytes_per_s: Some(self.bytes_per_s()) }
    }

    /// The engine's defaults for it.
    #[must_use]
    pub fn config(&self) -> QueueConfig {
        QueueConfig::for_medium(self.traits())
    }

    /// What a kernel puts before it: requests in order of position, with deadlines, and no shares of clients.
    #[must_use]
    pub fn kernel_config(&self) -> QueueConfig {
        QueueConfig { elevator: ElevatorKind::Deadline, fairness: None, ..self.config() }
    }

    /// About how long a request of `bytes` somewhere else takes.
    #[must_use]
    pub fn request_time(&self, bytes: u64) -> Nanos {
        self.latency() + Nanos::from_secs_f64(bytes as f64 / self.bytes_per_s())
    }
}
