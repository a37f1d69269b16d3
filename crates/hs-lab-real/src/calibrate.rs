//! `headstart lab calibrate`: probes a device, and fits a model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hs_device::{Model, ModelName, write_model_file};
use hs_lab::calibration::{Burst, Course, FITTED, Measured, PROBES, Places, Probe, fit, modelled};
use hs_output::show;
use hs_output::whole_file::write_whole;
use serde_json::{Value, json};

use crate::real_file::{Aligned, RealFile};

/// Smaller files say more of caches than of the medium.
const LEAST_BYTES: u64 = 16 << 20;
/// More reads than this say nothing new.
const MOST_READS: u64 = 200_000;

/// What is probed, and how.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// A block device, or a large file on it.
    pub path: PathBuf,
    /// The model file to write.
    pub output: Option<PathBuf>,
    /// Name of the model.
    pub name: ModelName,
    /// Duration of each probe.
    pub time: Duration,
    /// Seed of the random addresses.
    pub seed: u64,
    /// Print the result as JSON.
    pub json: bool,
}

/// Probes a device, and fits a model of it.
pub fn run(args: &Calibration, quiet: bool) -> anyhow::Result<()> {
    check(&args.path)?;
    let file = Arc::new(RealFile::direct(&args.path)?);
    if file.bytes() < LEAST_BYTES {
        bail!(
            "{} has {} bytes: at least {LEAST_BYTES} are needed to probe it",
            args.path.display(),
            file.bytes()
        );
    }
    let bar = show::Bar::new(quiet);
    let mut probed = Vec::new();
    for probe in PROBES {
        bar.spin(probe.name);
        probed.push(measure(&file, probe, args)?);
    }
    drop(bar);
    let measured: Vec<Measured> = probed.iter().map(|(measured, _)| *measured).collect();
    let model = fit(args.name, file.bytes(), &measured);
    let rows: Vec<Row> =
        probed.iter().map(|probed| Row::of(&model, file.bytes(), *probed, args.seed)).collect();
    let text = write_model_file(&model, &comments(args, &rows));
    // What was fitted must be a model that can be read again.
    Model::from_toml(&text).with_context(|| format!("{} cannot be modelled", args.path.display()))?;
    if let Some(output) = &args.output {
        write_whole(output, text.as_bytes())?;
    }
    if args.json {
        return show::json(&json!({
            "path": args.path.to_string_lossy(),
            "model": text,
            "error": error(&rows),
            "probes": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
        }));
    }
    let mut table = show::table(&["probe", "reads/s", "MB/s", "model reads/s", "model ÷ measured"]);
    for row in &rows {
        table.add_row([
            row.measured.probe.name.to_owned(),
            format!("{:.0}", row.per_s()),
            format!("{:.2}", row.per_s() * row.measured.probe.bytes as f64 / 1e6),
            format!("{:.0}", row.per_s() * row.ratio),
            format!("{:.2}", row.ratio),
        ]);
    }
    show::line(table);
    show::line(format!(
        "The model is off by {:.0}% (median of the probes that it was not made from).",
        error(&rows) * 100.0
    ));
    for line in rows.iter().filter_map(Row::slower) {
        show::line(line);
    }
    if args.output.is_none() {
        show::line(text.trim_end());
    }
    Ok(())
}

/// A probe, and what the model makes of it.
struct Row {
    measured: Measured,
    /// Whether the device was quicker at first; what was measured is then the rest.
    burst: Option<Burst>,
    /// The model's rate by the measured one.
    ratio: f64,
}

impl Row {
    fn of(model: &Model, file_bytes: u64, (measured, burst): (Measured, Option<Burst>), seed: u64) -> Self {
        let model_s = modelled(model, file_bytes, &measured, seed).as_secs_f64();
        Self { measured, burst, ratio: measured.time.as_secs_f64() / model_s.max(1e-9) }
    }

    /// What is to be said of a device that was quicker at first.
    fn slower(&self) -> Option<String> {
        let Burst { burst_per_s, sustained_per_s, after } = self.burst?;
        Some(format!(
            "{}: {burst_per_s:.0} reads/s for {:.2} s, then {sustained_per_s:.0}, as behind a bucket of tokens; the model has the lower rate.",
            self.measured.probe.name,
            after.as_secs_f64()
        ))
    }

    fn per_s(&self) -> f64 {
        self.measured.reads as f64 / self.measured.time.as_secs_f64().max(1e-9)
    }

    fn to_json(&self) -> Value {
        json!({
            "probe": self.measured.probe.name,
            "bytes": self.measured.probe.bytes,
            "readers": self.measured.probe.threads,
            "reads": self.measured.reads,
            "seconds": self.measured.time.as_secs_f64(),
            "model_to_measured": self.ratio,
            "burst": self.burst.map(|burst| json!({
                "reads_per_s": burst.burst_per_s,
                "then_per_s": burst.sustained_per_s,
                "seconds": burst.after.as_secs_f64(),
            })),
        })
    }
}

/// How far the model is off: the median over the probes that it was not made from.
fn error(rows: &[Row]) -> f64 {
    let mut off: Vec<f64> = rows[FITTED..].iter().map(|row| (row.ratio.max(1.0 / row.ratio)) - 1.0).collect();
    off.sort_by(f64::total_cmp);
    off[off.len() / 2]
}

fn comments(args: &Calibration, rows: &[Row]) -> Vec<String> {
    let worst = rows.iter().max_by(|one, other| {
        let off = |row: &Row| row.ratio.max(1.0 / row.ratio);
        off(one).total_cmp(&off(other))
    });
    let worst = worst
        .map(|row| format!("; worst: {}, {:.2} of what was measured", row.measured.probe.name, row.ratio));
    let mut comments = vec![
        format!(
            "Fitted by headstart lab calibrate, {:.1} s a probe; it was only read, so writes are as reads.",
            args.time.as_secs_f64()
        ),
        format!(
            "Off by {:.0}% in the median of other probes{}.",
            error(rows) * 100.0,
            worst.unwrap_or_default()
        ),
    ];
    comments.extend(rows.iter().filter_map(Row::slower));
    comments
}

/// Refuses files whose reads would not reach a medium.
fn check(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).with_context(|| format!("open {}", path.display()))?;
    if metadata.is_file() && metadata.blocks() * 512 < metadata.len() / 10 * 9 {
        bail!(
            "{} has holes, which no medium reads: probe a file that is full, or the device",
            path.display()
        );
    }
    Ok(())
}

/// Reads as the probe says until its time is over.
fn measure(
    file: &Arc<RealFile>,
    probe: Probe,
    args: &Calibration,
) -> anyhow::Result<(Measured, Option<Burst>)> {
    file.drop_caches();
    let time = args.time.max(Duration::from_millis(1));
    let places = parking_lot::Mutex::new(Places::new(probe, file.bytes(), args.seed));
    let course = parking_lot::Mutex::new((Course::new(time.into()), 0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            let mut buffer = Aligned::default();
            // Each reads once, however late a busy machine lets it begin.
            loop {
                let place = places.lock().next().context("places never end")?;
                file.read(place, &mut buffer)?;
                let ended = began.elapsed();
                let mut course = course.lock();
                course.0.note(ended.into());
                course.1 += 1;
                if ended >= time || course.1 >= MOST_READS {
                    return Ok(());
                }
            }
        };
        let threads: Vec<_> = (0..probe.threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a reading thread died")?)
    })?;
    Ok(course.into_inner().0.measured(probe))
}
