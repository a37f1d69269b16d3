//! JSON that commands print: run summaries, results of experiments.

use std::io::Read;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Inputs;
use crate::model::{Experiment, Figure, FigureVerdict, InputKind};
use crate::recording::Recording;
use crate::story::add_demo;

/// A larger file is none of these.
const MOST_BYTES: u64 = 64 << 20;
/// Verdicts of the laboratory that are misses (`Verdict::is_miss`).
const MISSES: [&str; 2] = ["direction only", "missed"];
/// So many summaries are shown of one file.
const MOST_SUMMARIES: usize = 1000;

pub(super) fn read(file: impl Read, name: &str, inputs: &mut Inputs) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("the JSON has more than {MOST_BYTES} bytes");
    }
    // Several objects one behind another are several runs.
    let values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    let values: Vec<Value> = values.collect::<Result<_, _>>().context("this is no JSON")?;
    let mut summaries = 0;
    for value in values {
        let several = match value {
            Value::Array(several) => several,
            one => vec![one],
        };
        for value in several {
            let Value::Object(object) = value else {
                bail!("the JSON has no object where a summary would be")
            };
            if object.contains_key("figures") || object.contains_key("experiments") {
                inputs.experiments.append(&mut experiments(object)?);
                continue;
            }
            if object.contains_key("demo_s") {
                add_demo(&object, inputs)?;
                continue;
            }
            summaries += 1;
            if summaries > MOST_SUMMARIES {
                bail!("there are more than {MOST_SUMMARIES} summaries");
            }
            let name = if summaries == 1 { name.to_owned() } else { format!("{name} ({summaries})") };
            inputs.recordings.push(summary(object, &name)?);
        }
    }
    Ok(())
}

/// A summary has these keys in every version.
const KEYS: [&str; 3] = ["wall_s", "medium", "store_requests"];

/// A run summary.
pub(crate) fn summary(object: Map<String, Value>, name: &str) -> anyhow::Result<Recording> {
    if let Some(missing) = KEYS.iter().find(|key| !object.contains_key(**key)) {
        bail!("this JSON is no run summary (there is no '{missing}') and no result of `lab run`");
    }
    let number =
        |key: &str| object.get(key).and_then(Value::as_f64).filter(|it| it.is_finite() && *it >= 0.0);
    let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
    let (ready_s, ended_s) = (number("ready_s"), number("wall_s"));
    let (medium, command) = (text("medium"), text("command"));
    let is_plain = |value: &Value| !value.is_array() && !value.is_object();
    let summary = object.into_iter().filter(|(_, value)| is_plain(value)).collect();
    Ok(Recording {
        command,
        medium,
        ready_s,
        ended_s,
        summary: Some(summary),
        ..Recording::new(name, InputKind::Summary)
    })
}

#[derive(Deserialize)]
struct Ran {
    experiment: String,
    parameters: Option<String>,
    engine: Option<String>,
    figures: Vec<RanFigure>,
}

#[derive(Deserialize)]
struct RanFigure {
    name: String,
    value: f64,
    off: Option<f64>,
    published: Option<String>,
    source: Option<String>,
    ratio: Option<f64>,
    kind: Option<String>,
    note: Option<String>,
    target: Option<String>,
    met: Option<bool>,
}

#[derive(Deserialize)]
struct All {
    experiments: Vec<Ran>,
}

fn experiments(object: Map<String, Value>) -> anyhow::Result<Vec<Experiment>> {
    let ran = if object.contains_key("experiments") {
        serde_json::from_value::<All>(object.into()).map(|all| all.experiments)
    } else {
        serde_json::from_value::<Ran>(object.into()).map(|one| vec![one])
    };
    let ran = ran.context("this JSON is no result of `lab run`")?;
    Ok(ran.into_iter().map(experiment).collect())
}

fn experiment(ran: Ran) -> Experiment {
    Experiment {
        name: ran.experiment,
        parameters: ran.parameters.unwrap_or_default(),
        engine: ran.engine.unwrap_or_default(),
        figures: ran.figures.into_iter().map(figure).collect(),
    }
}

fn figure(ran: RanFigure) -> Figure {
    let is_miss = ran.met == Some(false) || ran.kind.as_deref().is_some_and(|kind| MISSES.contains(&kind));
    let is_judged = ran.met.is_some() || ran.kind.is_some();
    let verdict = match (is_miss, is_judged) {
        (true, _) => FigureVerdict::Miss,
        (false, true) => FigureVerdict::Pass,
        (false, false) => FigureVerdict::Note,
    };
    Figure {
        name: ran.name,
        value: ran.value,
        off: ran.off,
        published: ran.published,
        source: ran.source,
        ratio: ran.ratio,
        kind: ran.kind,
        verdict,
        target: ran.target,
        note: ran.note,
    }
}
