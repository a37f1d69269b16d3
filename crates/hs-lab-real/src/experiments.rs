//! `headstart lab list` and `headstart lab run`

use std::path::{Path, PathBuf};

use anyhow::Context;
use hs_lab::{Claim, Experiment, Figure, Report, Target, Verdict};
use serde_json::{Value, json};

use crate::machine::{self, RealFigure};
use hs_output::show;

/// Says which experiments there are.
pub fn list(json: bool) -> anyhow::Result<()> {
    if json {
        let experiments: Vec<Value> =
            hs_papers::all().map(|each| json!({"name": each.name, "about": each.about, "parameters": each.parameters, "engine": each.engine})).collect();
        return show::json(&json!({ "experiments": experiments }));
    }
    let width = hs_papers::all().map(|each| each.name.len()).max().unwrap_or_default();
    for experiment in hs_papers::all() {
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
    /// Write the tables of this document anew, and print nothing.
    pub markdown: Option<PathBuf>,
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
    experiment: Experiment,
    report: Report,
    /// What came out on this machine, where that was asked for and can be.
    real: Vec<RealFigure>,
}

impl Ran {
    fn run(experiment: &Experiment, args: &Run) -> anyhow::Result<Self> {
        let report = (experiment.run)(args.seed);
        let real = if args.real { machine::run(experiment.name, args.seed)? } else { Vec::new() };
        let ran = Self { experiment: *experiment, report, real };
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
            let file = folder.join(format!("{}{end}", self.experiment.name));
            std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        to_json(&self.experiment, &self.report, &self.real)
    }
}

/// Runs an experiment, or all.
pub fn run(args: &Run) -> anyhow::Result<()> {
    let experiments = match &args.which {
        Which::One(experiment) => vec![*experiment],
        Which::All => hs_papers::all().copied().collect(),
    };
    if args.real {
        machine::prepare()?;
    }
    if let Some(file) = &args.markdown {
        return write_tables(file);
    }
    let mut all = Vec::new();
    for experiment in &experiments {
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
            let reports: Vec<Report> = all.iter().map(|ran| ran.report.clone()).collect();
            let kinds = Verdict::count(&reports);
            let kinds: serde_json::Map<String, Value> =
                kinds.iter().map(|(verdict, count)| (verdict.name().to_owned(), json!(count))).collect();
            show::json(&json!({
                "experiments": all.iter().map(Ran::json).collect::<Vec<_>>(),
                "kinds": kinds,
                "notes": notes(&reports),
                "goals_missed": misses_of_goals(&reports).map(|figure| &figure.name).collect::<Vec<_>>(),
            }))
        }
        Which::All => {
            print_comparisons(&all.into_iter().map(|ran| ran.report).collect::<Vec<_>>());
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
    show::line(format!("parameters: {}", ran.experiment.parameters));
    show::line(format!("engine: {}", ran.experiment.engine));
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

/// Everything that was published beside ours, by kind, and why what is missed is missed.
fn print_comparisons(reports: &[Report]) {
    let mut table = show::table(&["in", "figure", "published", "ours", "ratio", "kind"]);
    for figure in reports.iter().flat_map(|report| &report.figures) {
        let (Some(published), Some(verdict)) = (figure.published, figure.verdict()) else { continue };
        table.add_row([
            published.source.to_owned(),
            figure.name.clone(),
            published.claim.text(),
            number(Some(figure.value)),
            number(figure.ratio()),
            verdict.name().to_owned(),
        ]);
    }
    show::line("\nAll that was published:");
    show::line(table);
    for (verdict, count) in Verdict::count(reports) {
        show::line(format!("{count:3}  {}: {}", verdict.name(), verdict.about()));
    }
    for note in notes(reports) {
        show::line(format!("- {note}"));
    }
    let missed: Vec<&Figure> = misses_of_goals(reports).collect();
    show::line(format!("goals missed: {}", missed.len()));
    for figure in missed {
        let target = figure.target.map(Target::text).unwrap_or_default();
        show::line(format!("- {}: {}, {target}", figure.name, number(Some(figure.value))));
    }
}

/// Why figures are missed, and what was chosen with the answer in view.
fn notes(reports: &[Report]) -> Vec<String> {
    let figures = reports.iter().flat_map(|report| &report.figures);
    let note = |figure: &Figure| {
        let (published, verdict, note) = (figure.published?, figure.verdict()?, figure.note()?);
        Some(format!("{}, {} ({}): {note}", published.source, figure.name, verdict.name()))
    };
    figures.filter_map(note).collect()
}

/// Figures of the engine that do not reach their goals.
fn misses_of_goals(reports: &[Report]) -> impl Iterator<Item = &Figure> {
    reports.iter().flat_map(|report| &report.figures).filter(|figure| figure.is_met() == Some(false))
}

/// Writes the tables of a document anew.
fn write_tables(file: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let updated = hs_papers::document::Results::of_all()
        .update(&text)
        .map_err(|name| anyhow::anyhow!("{}: no table '{name}', or it has no end", file.display()))?;
    std::fs::write(file, updated).with_context(|| format!("write {}", file.display()))
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

fn to_json(experiment: &Experiment, report: &Report, real: &[RealFigure]) -> Value {
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
            "kind": figure.verdict().map(Verdict::name),
            "note": figure.note(),
            "target": figure.target.map(Target::text),
            "met": figure.is_met(),
        })
    };
    let real_figure = |real: &RealFigure| json!({"name": real.name, "value": real.value, "how": real.how});
    json!({
        "experiment": experiment.name,
        "parameters": experiment.parameters,
        "engine": experiment.engine,
        "seed": report.seed,
        "rows": report.rows.iter().map(row).collect::<Vec<_>>(),
        "figures": report.figures.iter().map(figure).collect::<Vec<_>>(),
        "real": real.iter().map(real_figure).collect::<Vec<_>>(),
    })
}
