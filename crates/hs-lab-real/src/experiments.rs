//! `headstart lab list` and `headstart lab run`

use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_lab::{Claim, EXPERIMENTS, Experiment, Figure, Report, Target, Verdict};
use hs_output::show;
use serde_json::{Value, json};

use crate::machine::{self, RealFigure};

/// Says which experiments there are.
pub fn list(json: bool) -> anyhow::Result<()> {
    if json {
        let experiments: Vec<Value> =
            EXPERIMENTS.iter().map(|each| json!({"name": each.name, "about": each.about})).collect();
        return show::json(&json!({ "experiments": experiments }));
    }
    let width = EXPERIMENTS.iter().map(|each| each.name.len()).max().unwrap_or_default();
    for experiment in EXPERIMENTS {
        show::line(format!("{:width$}  {}", experiment.name, experiment.about));
    }
    Ok(())
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The experiment, or all.
    pub which: Which,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Folder for the results.
    pub out: Option<PathBuf>,
    /// Also on this machine's kernel.
    pub real: bool,
    /// Print the result as JSON.
    pub json: bool,
}

/// Which experiments are run.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// One experiment.
    One(Experiment),
    /// One after another.
    All,
}

/// An experiment that has run.
struct Ran {
    name: &'static str,
    report: Report,
    /// What came out on this machine, where that was asked for and can be.
    real: Vec<RealFigure>,
}

impl Ran {
    fn run(experiment: &Experiment, args: &Run) -> anyhow::Result<Self> {
        let report = (experiment.run)(args.seed);
        let real = if args.real { machine::run(experiment.name, args.seed)? } else { Vec::new() };
        let ran = Self { name: experiment.name, report, real };
        if let Some(folder) = &args.out {
            ran.write(folder)?;
        }
        Ok(ran)
    }

    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let object = serde_json::to_string_pretty(&self.json()).context("a report is JSON")? + "\n";
        for (end, text) in
            [(".csv", self.report.figures_csv()), ("-rows.csv", self.report.rows_csv()), (".json", object)]
        {
            let file = folder.join(format!("{}{end}", self.name));
            std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        to_json(self.name, &self.report, &self.real)
    }
}

/// Runs an experiment, or all.
pub fn run(args: &Run) -> anyhow::Result<()> {
    let experiments = match &args.which {
        Which::One(experiment) => std::slice::from_ref(experiment),
        Which::All => EXPERIMENTS,
    };
    if args.real {
        machine::prepare()?;
    }
    let mut all = Vec::new();
    for experiment in experiments {
        let ran = Ran::run(experiment, args)?;
        if !args.json {
            if experiments.len() > 1 {
                show::line(format!("\n{}: {}", experiment.name, experiment.about));
            }
            print(&ran);
        }
        all.push(ran);
    }
    match args.which {
        Which::One(_) if args.json => show::json(&all[0].json()),
        Which::All if args.json => {
            show::json(&json!({ "experiments": all.iter().map(Ran::json).collect::<Vec<_>>() }))
        }
        Which::All => {
            print_comparisons(&all);
            Ok(())
        }
        Which::One(_) => Ok(()),
    }
}

fn print(ran: &Ran) {
    let report = &ran.report;
    let (titles, rows) = report.printed();
    let mut table = show::table(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    table.add_rows(rows);
    show::line(table);
    let mut figures =
        show::table(&["figure", "ours", "switched off", "published", "in", "ratio", "", "target", ""]);
    for figure in &report.figures {
        figures.add_row([
            figure.name.clone(),
            number(Some(figure.value)),
            number(figure.off),
            figure.published.map(|published| published.claim).map(Claim::text).unwrap_or_default(),
            figure.published.map(|published| published.source).unwrap_or_default().to_owned(),
            number(figure.ratio()),
            figure.verdict().map(Verdict::name).unwrap_or_default().to_owned(),
            figure.target.map(Target::text).unwrap_or_default(),
            met(figure).to_owned(),
        ]);
    }
    show::line(figures);
    if let Some(seed) = report.seed {
        show::line(format!("seed {seed}"));
    }
    if !ran.real.is_empty() {
        let mut table = show::table(&["for real, on this machine", "", "how"]);
        for real in &ran.real {
            table.add_row([real.name.clone(), number(Some(real.value)), real.how.clone()]);
        }
        show::line(table);
    }
}

/// Everything that was published beside ours, and why what is missed is missed.
fn print_comparisons(all: &[Ran]) {
    let mut table = show::table(&["in", "figure", "published", "ours", "ratio", "verdict"]);
    let (mut counts, mut misses) = ([0; 5], Vec::new());
    for figure in all.iter().flat_map(|ran| &ran.report.figures) {
        let (Some(published), Some(verdict)) = (figure.published, figure.verdict()) else { continue };
        counts[verdict as usize] += 1;
        table.add_row([
            published.source.to_owned(),
            figure.name.clone(),
            published.claim.text(),
            number(Some(figure.value)),
            number(figure.ratio()),
            verdict.name().to_owned(),
        ]);
        if let Some(reason) = figure.miss() {
            misses.push(format!("{}, {} ({}): {reason}", published.source, figure.name, verdict.name()));
        }
    }
    show::line("\nAll that was published:");
    show::line(table);
    let count = |verdict: Verdict| counts[verdict as usize];
    show::line(format!(
        "{} within a fifth, {} of which only the direction was published, {} that follow from what the models were given, \
         {} with the right direction only, {} missed",
        count(Verdict::Reproduced),
        count(Verdict::Direction),
        count(Verdict::Given),
        count(Verdict::DirectionOnly),
        count(Verdict::Missed)
    ));
    for miss in misses {
        show::line(format!("- {miss}"));
    }
}

fn number(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.3}")).unwrap_or_default()
}

fn met(figure: &Figure) -> &'static str {
    match figure.is_met() {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    }
}

fn to_json(name: &str, report: &Report, real: &[RealFigure]) -> Value {
    let cell = |cell: &hs_lab::Cell| match cell {
        hs_lab::Cell::Text(text) => json!(text),
        hs_lab::Cell::Number(value, _) => json!(value),
    };
    let row = |row: &Vec<hs_lab::Cell>| {
        let cells = report.columns.iter().zip(row).map(|(column, value)| ((*column).to_owned(), cell(value)));
        Value::Object(cells.collect())
    };
    let figure = |figure: &Figure| {
        json!({
            "name": figure.name,
            "value": figure.value,
            "off": figure.off,
            "published": figure.published.map(|published| published.claim.text()),
            "source": figure.published.map(|published| published.source),
            "ratio": figure.ratio(),
            "verdict": figure.verdict().map(Verdict::name),
            "reason": figure.miss(),
            "target": figure.target.map(Target::text),
            "met": figure.is_met(),
        })
    };
    let real_figure = |real: &RealFigure| json!({"name": real.name, "value": real.value, "how": real.how});
    json!({
        "experiment": name,
        "seed": report.seed,
        "rows": report.rows.iter().map(row).collect::<Vec<_>>(),
        "figures": report.figures.iter().map(figure).collect::<Vec<_>>(),
        "real": real.iter().map(real_figure).collect::<Vec<_>>(),
    })
}
