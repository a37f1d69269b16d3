//! `headstart lab list` and `headstart lab run`

use hs_lab::{EXPERIMENTS, Figure, Report};
use serde_json::{Value, json};

use crate::cli::{LabList, LabRun};
use crate::show;

/// Says which experiments there are.
pub(crate) fn list(args: &LabList) -> anyhow::Result<()> {
    if args.json {
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

/// Runs an experiment.
pub(crate) fn run(args: &LabRun) -> anyhow::Result<()> {
    let report = (args.experiment.run)(args.seed);
    if args.json {
        return show::json(&to_json(args.experiment.name, &report));
    }
    let mut table = show::table(&report.columns);
    for row in &report.rows {
        table.add_row(row.iter().map(hs_lab::Cell::text));
    }
    show::line(table);
    let mut figures = show::table(&["figure", "value", "switched off", "1991", "target", ""]);
    for figure in &report.figures {
        let number = |value: Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
        figures.add_row([
            figure.name.clone(),
            number(Some(figure.value)),
            number(figure.off),
            number(figure.paper),
            figure.target.map(hs_lab::Target::text).unwrap_or_default(),
            verdict(figure).to_owned(),
        ]);
    }
    show::line(figures);
    if let Some(seed) = report.seed {
        show::line(format!("seed {seed}"));
    }
    Ok(())
}

fn verdict(figure: &Figure) -> &'static str {
    match figure.is_met() {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    }
}

fn to_json(name: &str, report: &Report) -> Value {
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
            "paper": figure.paper,
            "target": figure.target.map(hs_lab::Target::text),
            "met": figure.is_met(),
        })
    };
    json!({
        "experiment": name,
        "seed": report.seed,
        "rows": report.rows.iter().map(row).collect::<Vec<_>>(),
        "figures": report.figures.iter().map(figure).collect::<Vec<_>>(),
    })
}
