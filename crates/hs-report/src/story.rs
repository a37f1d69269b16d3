//! Stories: starts of one thing that are compared, from demo.json or from the inputs themselves.

use serde_json::{Map, Value};

use crate::model::{Bar, Input, InputKind, Story};
use crate::read::{Inputs, summary};

/// Of a story, so many contenders are shown.
const MOST_BARS: usize = 100;
/// What demo.json says of a run beside its figures.
const NOT_FIGURES: [&str; 3] = ["contender", "direct_io", "label"];
/// From this load on, the demo says that the machine was busy.
const BUSY: f64 = 0.5;

/// A story of the demo.
struct DemoStory {
    key: &'static str,
    title: &'static str,
    /// Its contenders that headstart serves.
    ours: &'static [&'static str],
    /// The one of them that it is about.
    after: &'static str,
    /// The contender that has everything in memory.
    warm: &'static str,
}

const DEMO_STORIES: [DemoStory; 3] = [
    DemoStory {
        key: "start",
        title: "A program starts",
        ours: &["headstart", "headstart-optimized"],
        after: "headstart-optimized",
        warm: "native-warm",
    },
    DemoStory {
        key: "boot",
        title: "A system boots",
        ours: &["unoptimized", "optimized"],
        after: "optimized",
        warm: "warm",
    },
    DemoStory {
        key: "resume",
        title: "A saved guest is ready",
        ours: &["flat", "cd", "lan"],
        after: "flat",
        warm: "warm",
    },
];

/// Adds the stories of demo.json, and the median run of each contender as an input.
pub(crate) fn add_demo(demo: &Map<String, Value>, inputs: &mut Inputs) -> anyhow::Result<()> {
    for known in &DEMO_STORIES {
        let Some(story) = demo.get(known.key) else { continue };
        let (mut bars, mut keys, mut recordings) = (Vec::new(), Vec::new(), Vec::new());
        for (contender, run) in contenders(demo, story).take(MOST_BARS) {
            let (Some(run), Some(label)) = (run.as_object(), contender["label"].as_str()) else { continue };
            let mut run = run.clone();
            run.retain(|key, _| !NOT_FIGURES.contains(&key.as_str()));
            let mut recording = summary(run, label)?;
            if let Some(seconds) = recording.ready_s {
                let (key, limit_s) = (&contender["contender"], limit(story, recording.medium.as_deref()));
                let is_ours = known.ours.iter().any(|ours| key == ours);
                recording.bar = Some((inputs.stories.len(), bars.len()));
                bars.push(Bar { label: label.to_owned(), seconds, limit_s, is_ours, input: None });
                keys.push(key);
            }
            recordings.push(recording);
        }
        let rivals = (0..bars.len()).filter(|at| !bars[*at].is_ours && keys[*at] != known.warm);
        let before = rivals.min_by(|a, b| bars[*a].seconds.total_cmp(&bars[*b].seconds));
        match (keys.iter().position(|key| *key == known.after), before) {
            (Some(after), Some(before)) => {
                let title = known.title.to_owned();
                let mut found = Story::new(title, about(demo, story), bars, after, before);
                let ratios =
                    ["optimized_to_limit", "ready_to_limit"].map(|name| &story["ratios"][name]["ratio"]);
                found.to_limit = ratios.into_iter().find_map(seconds).or(found.to_limit);
                inputs.stories.push(found);
            }
            _ => recordings.iter_mut().for_each(|recording| recording.bar = None),
        }
        inputs.recordings.append(&mut recordings);
    }
    Ok(())
}

/// What a story says of each contender, and its median run: of boots that is at the top of the object.
fn contenders<'a>(
    demo: &'a Map<String, Value>,
    story: &'a Value,
) -> Box<dyn Iterator<Item = (&'a Value, &'a Value)> + 'a> {
    let list = |name: &str| story[name].as_array().into_iter().flatten();
    if story["runs"].is_array() {
        return Box::new(list("runs").map(|run| (run, run)));
    }
    let run = |of: &Value| demo.get("runs")?.get(of["contender"].as_str()?);
    Box::new(list("contenders").filter_map(move |of| Some((of, run(of)?))))
}

/// The limit of a start from `medium`.
fn limit(story: &Value, medium: Option<&str>) -> Option<f64> {
    let medium = medium?;
    let is_of_story = story["medium"] == medium;
    seconds(&story["limit"]["limit_s"])
        .filter(|_| is_of_story)
        .or_else(|| seconds(&story["media"][medium]["limit_s"]))
}

fn seconds(value: &Value) -> Option<f64> {
    value.as_f64().filter(|value| value.is_finite() && *value >= 0.0)
}

/// What starts, from what, how often, and on which machine.
fn about(demo: &Map<String, Value>, story: &Value) -> String {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut parts: Vec<String> =
        ["command", "guest"].iter().find_map(|key| text(&story[*key])).into_iter().collect();
    parts.extend(text(&story["medium"]).map(|medium| format!("from {medium}")));
    let machine = demo.get("machine").unwrap_or(&Value::Null);
    parts.extend(demo.get("repeats").and_then(Value::as_u64).map(|runs| match runs {
        1 => "one run each".to_owned(),
        runs => format!("medians of up to {runs} runs"),
    }));
    if let (Some(cores), Some(cpu)) = (machine["cores"].as_u64(), machine["cpu"].as_str()) {
        let kernel = text(&machine["kernel"]).map(|kernel| format!(", Linux {kernel}")).unwrap_or_default();
        parts.push(format!("{cores} cores of {cpu}{kernel}"));
    }
    if machine["load_before"].as_f64().is_some_and(|load| load >= BUSY) {
        parts.push("the machine did other things when the demo began".to_owned());
    }
    parts.join("; ")
}

/// The story of inputs that are starts of one command: the last compared with the first.
pub(crate) fn of_starts(inputs: &[Input]) -> Option<Story> {
    let is_start = |input: &Input| matches!(input.kind, InputKind::Trace | InputKind::Summary);
    let starts = (0..).zip(inputs).filter(|(_, input)| is_start(input));
    let starts: Vec<_> = starts.filter_map(|(number, input)| Some((number, input, input.ready_s?))).collect();
    let (_, first, _) = starts.first()?;
    if starts.len() < 2 || starts.iter().any(|(_, input, _)| input.command != first.command) {
        return None;
    }
    let last = starts.len() - 1;
    let bar = |(at, (number, input, seconds)): (usize, &(u32, &Input, f64))| {
        let limit_s = input.summary.as_ref().and_then(|summary| self::seconds(summary.get("limit_s")?));
        Bar {
            label: input.name.clone(),
            seconds: *seconds,
            limit_s,
            is_ours: at == last,
            input: Some(*number),
        }
    };
    let bars = starts.iter().enumerate().map(bar).collect();
    let about = [first.command.as_deref(), first.medium.as_deref()];
    let about: Vec<&str> = about.into_iter().flatten().collect();
    Some(Story::new("It is ready".to_owned(), about.join("; from "), bars, last, 0))
}

impl Story {
    fn new(title: String, about: String, bars: Vec<Bar>, after: usize, before: usize) -> Self {
        let to_limit =
            bars[after].limit_s.filter(|limit_s| *limit_s > 0.0).map(|limit_s| bars[after].seconds / limit_s);
        Self { title, about, bars, after: after as u32, before: before as u32, to_limit }
    }
}
