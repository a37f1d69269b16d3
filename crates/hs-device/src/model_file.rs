//! A model of a person's own, as a TOML file. docs/MEDIA.md says what it looks like.

use core::num::{NonZeroU32, NonZeroU64};
use core::ops::Range;

use hs_units::Nanos;
use serde::Deserialize;
use toml::Spanned;

use crate::FlatSpec;
use crate::emmc::EmmcSpec;
use crate::link::LinkSpec;
use crate::model::{Model, ModelKind, ModelName};
use crate::quantity::{Quantity, QuantityFault};
use crate::ssd::{SsdRates, SsdSpec};
use crate::turning::DiskSpec;

/// Longest time that a model may take for anything: as for the names of flat media, an hour.
const MAX_NANOS: u64 = FlatSpec::MAX_LATENCY.0;

/// What is wrong with a model file, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ModelFileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: ModelFileFault,
}

/// What is wrong with a model file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFileFault {
    /// It is not TOML, has a key that no model has, lacks one, or has a value of another type.
    #[error("{message}")]
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// The name has other letters, or too many.
    #[error("`name`: '{name}' is no name (use up to 40 of a-z, 0-9, '-', '_', '.')")]
    Name {
        /// As written.
        name: String,
    },
    /// A built-in medium has that name.
    #[error("`name`: '{name}' is what a built-in medium is called; choose another name")]
    Taken {
        /// As written.
        name: String,
    },
    /// There is not exactly one section that says what the model is.
    #[error(
        "a model has one of the sections [ssd], [emmc], [link], [flat] and [disk], this file has {found}"
    )]
    Sections {
        /// How many there are.
        found: usize,
    },
    /// A number without a unit, or with one of something else.
    #[error("`{key}`: '{text}' is not a {quantity}: {fault}")]
    Quantity {
        /// The key.
        key: &'static str,
        /// Its value.
        text: String,
        /// What it should be.
        quantity: Quantity,
        /// Why it is not.
        fault: QuantityFault,
    },
    /// A value that is outside its limits.
    #[error("`{key}` is {found}, and has to be from {least} to {most}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value, in the smallest unit.
        found: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Two values that cannot both be.
    #[error("`{key}` contradicts `{other}`: {reason}")]
    Contradiction {
        /// A key.
        key: &'static str,
        /// Another.
        other: &'static str,
        /// Why not both.
        reason: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Spanned<String>,
    capacity: Option<Spanned<String>>,
    ssd: Option<Spanned<SsdTable>>,
    link: Option<Spanned<LinkTable>>,
    flat: Option<Spanned<FlatTable>>,
    disk: Option<Spanned<DiskTable>>,
    emmc: Option<Spanned<EmmcTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SsdTable {
    rbps: Spanned<String>,
    rseqiops: Spanned<u64>,
    rrandiops: Spanned<u64>,
    wbps: Option<Spanned<String>>,
    wseqiops: Option<Spanned<u64>>,
    wrandiops: Option<Spanned<u64>>,
    latency: Option<Spanned<String>>,
    stream: Option<Spanned<String>>,
    queued: Option<bool>,
    apart: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    rate: Spanned<String>,
    round_trip: Spanned<String>,
    shared_by: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmmcTable {
    command: Spanned<String>,
    page_read: Spanned<String>,
    rate: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatTable {
    latency: Spanned<String>,
    rate: Spanned<String>,
    serial: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskTable {
    rpm: Spanned<u64>,
    heads: Spanned<u64>,
    zones: Spanned<u64>,
    outer_rate: Spanned<String>,
    inner_rate: Spanned<String>,
    seek_next: Spanned<String>,
    seek_average: Spanned<String>,
    seek_full: Spanned<String>,
    buffer: Spanned<String>,
    command: Spanned<String>,
    interface: Spanned<String>,
}

/// The text, to say in which line something is.
#[derive(Clone, Copy)]
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn error(self, span: Range<usize>, fault: ModelFileFault) -> ModelFileError {
        let before = &self.0.as_bytes()[..span.start.min(self.0.len())];
        ModelFileError { line: 1 + before.iter().filter(|byte| **byte == b'\n').count(), fault }
    }

    fn quantity(
        self,
        key: &'static str,
        written: &Spanned<String>,
        quantity: Quantity,
        limits: (u64, u64),
    ) -> Result<u64, ModelFileError> {
        let text = written.get_ref();
        let fault = |fault| ModelFileFault::Quantity { key, text: text.clone(), quantity, fault };
        let value = quantity.parse(text).map_err(|found| self.error(written.span(), fault(found)))?;
        self.within(key, written.span(), value, limits)
    }

    fn within(
        self,
        key: &'static str,
        span: Range<usize>,
        found: u64,
        (least, most): (u64, u64),
    ) -> Result<u64, ModelFileError> {
        if (least..=most).contains(&found) {
            return Ok(found);
        }
        Err(self.error(span, ModelFileFault::Range { key, found, least, most }))
    }

    fn time(self, key: &'static str, written: &Spanned<String>) -> Result<Nanos, ModelFileError> {
        self.quantity(key, written, Quantity::Time, (0, MAX_NANOS)).map(Nanos)
    }

    fn rate(self, key: &'static str, written: &Spanned<String>) -> Result<u64, ModelFileError> {
        self.quantity(key, written, Quantity::Rate, (1, FlatSpec::MAX_MBS * 1_000_000))
    }

    fn count(self, key: &'static str, written: &Spanned<u64>, most: u64) -> Result<u64, ModelFileError> {
        self.within(key, written.span(), *written.get_ref(), (1, most))
    }

    fn contradiction(
        self,
        span: Range<usize>,
        key: &'static str,
        other: &'static str,
        reason: &'static str,
    ) -> ModelFileError {
        self.error(span, ModelFileFault::Contradiction { key, other, reason })
    }
}

impl Model {
    /// The model that a TOML file describes, from its text.
    ///
    /// # Errors
    /// [`ModelFileError`] with the line, when there is an unknown key, a missing one, a value without its
    /// unit or outside its limits, or two that contradict each other.
    pub fn from_toml(text: &str) -> Result<Self, ModelFileError> {
        let lines = Lines(text);
        let file: File = toml::from_str(text).map_err(|error| {
            let message = error.message().to_owned();
            lines.error(error.span().unwrap_or(0..0), ModelFileFault::Syntax { message })
        })?;
        let written = file.name.get_ref();
        let fault = |fault| lines.error(file.name.span(), fault);
        let name =
            ModelName::new(written).ok_or_else(|| fault(ModelFileFault::Name { name: written.clone() }))?;
        if crate::Medium::parse(written).is_ok() {
            return Err(fault(ModelFileFault::Taken { name: written.clone() }));
        }
        let capacity_bytes = file
            .capacity
            .as_ref()
            .map(|capacity| lines.quantity("capacity", capacity, Quantity::Size, (1, 1 << 60)))
            .transpose()?;
        let kind = match (&file.ssd, &file.link, &file.flat, &file.disk, &file.emmc) {
            (Some(table), None, None, None, None) => ssd(lines, table.get_ref()).map(ModelKind::Ssd)?,
            (None, Some(table), None, None, None) => link(lines, table.get_ref()).map(ModelKind::Link)?,
            (None, None, Some(table), None, None) => flat(lines, table.get_ref()).map(ModelKind::Flat)?,
            (None, None, None, Some(table), None) => {
                disk(lines, table, capacity_bytes).map(ModelKind::Disk)?
            }
            (None, None, None, None, Some(table)) => emmc(lines, table.get_ref()).map(ModelKind::Emmc)?,
            (ssd, link, flat, disk, emmc) => {
                let spans = [
                    emmc.as_ref().map(Spanned::span),
                    ssd.as_ref().map(Spanned::span),
                    link.as_ref().map(Spanned::span),
                    flat.as_ref().map(Spanned::span),
                    disk.as_ref().map(Spanned::span),
                ];
                let found = spans.iter().flatten().count();
                let second = spans.into_iter().flatten().max_by_key(|span| span.start).unwrap_or(0..0);
                return Err(lines.error(second, ModelFileFault::Sections { found }));
            }
        };
        Ok(Self { name, capacity_bytes, kind })
    }
}

/// Requests a second that nothing exceeds.
const MAX_PER_S: u64 = 1_000_000_000;

fn ssd(lines: Lines<'_>, table: &SsdTable) -> Result<SsdSpec, ModelFileError> {
    let read = SsdRates {
        bytes_per_s: lines.rate("rbps", &table.rbps)?,
        sequential_per_s: lines.count("rseqiops", &table.rseqiops, MAX_PER_S)?,
        random_per_s: lines.count("rrandiops", &table.rrandiops, MAX_PER_S)?,
    };
    check_rates(lines, read, ["rrandiops", "rbps"], table.rrandiops.span())?;
    let write = match (&table.wbps, &table.wseqiops, &table.wrandiops) {
        (None, None, None) => read,
        (Some(wbps), Some(wseqiops), Some(wrandiops)) => {
            let write = SsdRates {
                bytes_per_s: lines.rate("wbps", wbps)?,
                sequential_per_s: lines.count("wseqiops", wseqiops, MAX_PER_S)?,
                random_per_s: lines.count("wrandiops", wrandiops, MAX_PER_S)?,
            };
            check_rates(lines, write, ["wrandiops", "wbps"], wrandiops.span())?;
            write
        }
        (wbps, wseqiops, wrandiops) => {
            let spans = [
                wbps.as_ref().map(Spanned::span),
                wseqiops.as_ref().map(Spanned::span),
                wrandiops.as_ref().map(Spanned::span),
            ];
            let span = spans.into_iter().flatten().next().unwrap_or(0..0);
            let reason = "wbps, wseqiops and wrandiops come together or not at all";
            return Err(lines.contradiction(span, "wbps", "wrandiops", reason));
        }
    };
    let latency = table.latency.as_ref().map(|latency| lines.time("latency", latency)).transpose()?;
    let stream = table.stream.as_ref().map(|stream| lines.rate("stream", stream)).transpose()?;
    Ok(SsdSpec {
        stream_bytes_per_s: stream.and_then(NonZeroU64::new),
        read,
        write,
        latency: latency.unwrap_or_default(),
        queued: table.queued.unwrap_or(true),
        apart: table.apart.unwrap_or(false),
    })
}

/// The kernel's own figures let random pages come 3% faster than all bytes; twice as fast is a mistake.
fn check_rates(
    lines: Lines<'_>,
    rates: SsdRates,
    [key, other]: [&'static str; 2],
    span: Range<usize>,
) -> Result<(), ModelFileError> {
    if rates.random_per_s.saturating_mul(4096) / 2 > rates.bytes_per_s {
        let reason = "so many random pages of 4 KiB are more than twice as many bytes a second";
        return Err(lines.contradiction(span, key, other, reason));
    }
    Ok(())
}

fn link(lines: Lines<'_>, table: &LinkTable) -> Result<LinkSpec, ModelFileError> {
    let most = FlatSpec::MAX_MBS * 8_000_000;
    let bits_per_s = lines.quantity("rate", &table.rate, Quantity::BitRate, (1, most))?;
    let round_trip = lines.time("round_trip", &table.round_trip)?;
    let shared_by = match &table.shared_by {
        Some(shared_by) => lines.count("shared_by", shared_by, 1_000_000)?,
        None => 1,
    };
    Ok(LinkSpec {
        bits_per_s: NonZeroU64::new(bits_per_s).expect("within its limits"),
        round_trip,
        shared_by: NonZeroU32::new(shared_by as u32).expect("within its limits"),
    })
}

fn emmc(lines: Lines<'_>, table: &EmmcTable) -> Result<EmmcSpec, ModelFileError> {
    Ok(EmmcSpec {
        command: lines.time("command", &table.command)?,
        page_read: lines.time("page_read", &table.page_read)?,
        bytes_per_s: lines.rate("rate", &table.rate)?,
    })
}

fn flat(lines: Lines<'_>, table: &FlatTable) -> Result<FlatSpec, ModelFileError> {
    let latency = lines.time("latency", &table.latency)?;
    let rate = lines.rate("rate", &table.rate)?;
    let rate_bytes_per_second = NonZeroU64::new(rate).expect("within its limits");
    Ok(FlatSpec { latency, rate_bytes_per_second, serial: table.serial.unwrap_or(false) })
}

fn disk(
    lines: Lines<'_>,
    whole: &Spanned<DiskTable>,
    capacity_bytes: Option<u64>,
) -> Result<DiskSpec, ModelFileError> {
    let table = whole.get_ref();
    let Some(capacity_bytes) = capacity_bytes else {
        let reason = "a disk's geometry needs `capacity`, at the top of the file";
        return Err(lines.contradiction(whole.span(), "disk", "capacity", reason));
    };
    let rpm = lines.count("rpm", &table.rpm, 1_000_000)?;
    let spec = DiskSpec {
        capacity_bytes,
        turn: Nanos(60_000_000_000 / rpm),
        heads: lines.count("heads", &table.heads, 1_000)? as u32,
        zones: lines.within("zones", table.zones.span(), *table.zones.get_ref(), (2, 1_000))? as u32,
        outer_bytes_per_s: lines.rate("outer_rate", &table.outer_rate)?,
        inner_bytes_per_s: lines.rate("inner_rate", &table.inner_rate)?,
        seek_next: lines.time("seek_next", &table.seek_next)?,
        seek_average: lines.time("seek_average", &table.seek_average)?,
        seek_full: lines.time("seek_full", &table.seek_full)?,
        buffer_bytes: lines.quantity("buffer", &table.buffer, Quantity::Size, (0, 1 << 40))?,
        command: lines.time("command", &table.command)?,
        interface_bytes_per_s: lines.rate("interface", &table.interface)?,
    };
    if spec.inner_bytes_per_s > spec.outer_bytes_per_s {
        let reason = "inner tracks are shorter";
        return Err(lines.contradiction(table.inner_rate.span(), "inner_rate", "outer_rate", reason));
    }
    let track = u128::from(spec.inner_bytes_per_s) * u128::from(spec.turn.0) / 1_000_000_000;
    if track < 512 || track * u128::from(spec.zones) > u128::from(capacity_bytes) {
        let reason = "a track is to hold a sector of 512 bytes, and a zone a track";
        return Err(lines.contradiction(table.inner_rate.span(), "inner_rate", "capacity", reason));
    }
    if !spec.seeks_rise() {
        let reason = "no curve that rises goes through the three seek times (least, average, most)";
        return Err(lines.contradiction(table.seek_average.span(), "seek_average", "seek_full", reason));
    }
    Ok(spec)
}

/// Writes the file that [`Model::from_toml`] reads as `model`, with `comments` in front.
#[must_use]
pub fn write(model: &Model, comments: &[String]) -> String {
    let mut text: String = comments.iter().map(|line| format!("# {line}\n")).collect();
    let time = |time: Nanos| Quantity::Time.write(time.0);
    let rate = |rate: u64| Quantity::Rate.write(rate);
    text += &format!("name = \"{}\"\n", model.name);
    if let Some(bytes) = model.capacity_bytes {
        text += &format!("capacity = \"{}\"\n", Quantity::Size.write(bytes));
    }
    text += &match &model.kind {
        ModelKind::Ssd(spec) => format!(
            "\n[ssd]\nrbps = \"{}\"\nrseqiops = {}\nrrandiops = {}\nwbps = \"{}\"\nwseqiops = {}\nwrandiops = {}\n\
             latency = \"{}\"\nqueued = {}\napart = {}\n{}",
            rate(spec.read.bytes_per_s),
            spec.read.sequential_per_s,
            spec.read.random_per_s,
            rate(spec.write.bytes_per_s),
            spec.write.sequential_per_s,
            spec.write.random_per_s,
            time(spec.latency),
            spec.queued,
            spec.apart,
            spec.stream_bytes_per_s
                .map(|stream| format!("stream = \"{}\"\n", rate(stream.get())))
                .unwrap_or_default()
        ),
        ModelKind::Link(spec) => format!(
            "\n[link]\nrate = \"{}\"\nround_trip = \"{}\"\nshared_by = {}\n",
            Quantity::BitRate.write(spec.bits_per_s.get()),
            time(spec.round_trip),
            spec.shared_by
        ),
        ModelKind::Emmc(spec) => format!(
            "\n[emmc]\ncommand = \"{}\"\npage_read = \"{}\"\nrate = \"{}\"\n",
            time(spec.command),
            time(spec.page_read),
            rate(spec.bytes_per_s)
        ),
        ModelKind::Flat(spec) => format!(
            "\n[flat]\nlatency = \"{}\"\nrate = \"{}\"\nserial = {}\n",
            time(spec.latency),
            rate(spec.rate_bytes_per_second.get()),
            spec.serial
        ),
        ModelKind::Disk(spec) => format!(
            "\n[disk]\nrpm = {}\nheads = {}\nzones = {}\nouter_rate = \"{}\"\ninner_rate = \"{}\"\nseek_next = \"{}\"\n\
             seek_average = \"{}\"\nseek_full = \"{}\"\nbuffer = \"{}\"\ncommand = \"{}\"\ninterface = \"{}\"\n",
            60_000_000_000 / spec.turn.0.max(1),
            spec.heads,
            spec.zones,
            rate(spec.outer_bytes_per_s),
            rate(spec.inner_bytes_per_s),
            time(spec.seek_next),
            time(spec.seek_average),
            time(spec.seek_full),
            Quantity::Size.write(spec.buffer_bytes),
            time(spec.command),
            rate(spec.interface_bytes_per_s)
        ),
    };
    text
}

#[cfg(test)]
mod tests;
