//! What the page gets.

use std::io::Read as _;

use ct_codecs::{Base64, Decoder as _};
use hs_trace::{BlockDigest, Profile, Read};
use hs_units::{BlockRange, Lba, Nanos};
use serde_json::Value;

use crate::{Folder, STAGED, TRACE};

/// The data in a page, and what is around it.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once(r#"<script id="data" type="application/json">"#).expect("it has data");
    let (json, rest) = rest.split_once("</script>").expect("it has an end");
    assert_eq!(rest, "</html>", "no text of an input ends the element");
    assert!(!json.contains('<'), "{json}");
    serde_json::from_str(json).expect("it is JSON")
}

/// The bytes of a column.
fn column(column: &Value) -> Vec<u8> {
    let packed = Base64::decode_to_vec(column["data"].as_str().expect("text"), None).expect("base64");
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("zlib");
    bytes
}

fn numbers(value: &Value) -> Vec<u32> {
    let bytes = column(value);
    let numbers = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect::<Vec<_>>();
    assert_eq!(value["count"], numbers.len());
    numbers
}

fn page(inputs: &[(&str, &[u8])]) -> Value {
    let folder = Folder::new();
    let paths: Vec<_> = inputs.iter().map(|(name, content)| folder.write(name, content)).collect();
    let paths: Vec<_> = paths.iter().map(AsRef::as_ref).collect();
    let page = folder.report(&paths, "report.html").expect("a report");
    data(&std::fs::read_to_string(page).expect("a page"))
}

#[test]
fn a_trace_with_hostile_names_is_shown_as_text() {
    let data = page(&[("<script>&\"'.csv", TRACE.replace("a,0", "<i>a,0").as_bytes())]);
    let input = &data["inputs"][0];
    assert_eq!((&input["name"], &input["kind"]), (&Value::from("<i>a"), &Value::from("trace")));
    let requests = &input["requests"];
    assert_eq!(numbers(&requests["block"]), [0, 2, 0, 1]);
    assert_eq!(numbers(&requests["blocks"]), [1, 1, 1, 2]);
    assert_eq!(numbers(&requests["process"]), [0, 0, 0, 1]);
    assert_eq!(column(&requests["kind"]), [0, 0, 3, 1]);
    assert_eq!(requests["processes"][1]["name"], "q ü, \"</script><b>");
    assert_eq!(data["disks"][0]["blocks"], 3);
}

#[test]
fn a_start_from_a_medium_has_stages_and_files() {
    let data = page(&[("start.csv", STAGED.as_bytes()), ("a.csv", TRACE.as_bytes())]);
    let input = &data["inputs"][0];
    let stages: Vec<_> = input["stages"].as_array().expect("stages").iter().map(|of| &of["name"]).collect();
    assert_eq!(stages, ["firmware", "boot loader"]);
    assert_eq!(input["stages"][1]["to_s"], 3.0);
    let texts = |value: &Value| -> Vec<String> { serde_json::from_slice(&column(value)).expect("texts") };
    let of = &input["stage_files"];
    assert_eq!(texts(&of["stages"]), ["firmware", "boot loader", "boot loader"]);
    assert_eq!(texts(&of["files"]), ["/boot/b.img", "/k, \"1\"", ""]);
    let bytes: Vec<f64> =
        column(&of["bytes"]).as_chunks().0.iter().map(|it| f64::from_le_bytes(*it)).collect();
    assert_eq!(bytes, [2048.0, 4096.0, 2048.0]);
    // Both files lie in block 16, which the map calls by the first of their names.
    let files = &data["disks"][0]["files"];
    assert_eq!((texts(&files["paths"]).len(), numbers(&files["runs"]["first"])), (2, vec![16, 17]));
    assert_eq!((&data["inputs"][1]["stage_files"], &data["disks"][1]["files"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_trace_says_what_each_stage_read() {
    let folder = Folder::new();
    let trace = folder.write("start.csv", STAGED);
    let found = hs_report::totals(&trace).expect("a trace");
    let loader = &found.stages[1];
    assert_eq!((loader.stage.as_deref(), loader.totals.requests), (Some("boot loader"), 1));
    assert_eq!((loader.totals.bytes, loader.totals.unique_blocks), (6144, 2));
    assert_eq!((loader.totals.busy_s, loader.totals.bytes_per_s), (0.5, Some(12_288.0)));
    assert_eq!((found.files.len(), found.ready_s), (3, Some(2.5)));
    let summary = folder.write("run.json", r#"{"wall_s": 2, "medium": "hdd", "store_requests": 7}"#);
    let error = hs_report::totals(&summary).expect_err("no requests").to_string();
    assert!(error.contains("has no requests"), "{error}");
}

fn profile(reads: u64) -> Profile {
    let read = |number: u64| Read {
        at: Nanos(number * 1000),
        blocks: BlockRange::new(Lba(number), 1),
        cost: Nanos(500),
    };
    Profile {
        disk_bytes: 4096 * 1000,
        command: "say '<b>'".to_owned(),
        ended: Nanos(2_000_000_000),
        reads: (0..reads).map(read).collect(),
        digests: (0..reads).map(|_| BlockDigest::default()).collect(),
        ..Profile::default()
    }
}

#[test]
fn profiles_of_one_disk_share_it() {
    let [one, none] = [1, 0].map(|reads| profile(reads).encode().expect("a profile"));
    let data = page(&[("one.hsp", &one), ("none.hsp", &none)]);
    assert_eq!(data["disks"].as_array().map(Vec::len), Some(1));
    assert_eq!(numbers(&data["inputs"][0]["requests"]["block"]), [0]);
    assert_eq!(data["inputs"][0]["command"], "say '<b>'");
    assert_eq!((&data["inputs"][1]["requests"], &data["inputs"][1]["disk"]), (&Value::Null, &Value::from(0)));
}

/// A run of a contender, as demo.json has it.
fn ran(contender: &str, medium: &str, ready_s: f64) -> Value {
    serde_json::json!({"contender": contender, "label": format!("<i>{contender}"), "medium": medium,
        "ready_s": ready_s, "wall_s": ready_s, "store_requests": 7, "all_ready_s": [ready_s]})
}

#[test]
fn a_demo_has_its_stories_and_their_traces() {
    let flat = "flat-10ms-25mbs";
    let boot =
        |key: &str, at: f64| serde_json::json!({"contender": key, "label": key, "ready_s": {"median": at}});
    let demo = serde_json::json!({
        "demo_s": 9, "repeats": 3, "machine": {"cores": 2, "cpu": "CPU", "kernel": "6", "load_before": 0.7},
        "start": {"medium": flat, "command": "python3", "limit": {"limit_s": 0.6},
            "ratios": {"optimized_to_limit": {"ratio": 1.25}},
            "runs": [ran("raw-ext4", flat, 19.0), ran("squashfs", flat, 3.5), ran("headstart", flat, 5.0),
                ran("headstart-optimized", flat, 0.75), ran("native-warm", "none", 0.5)]},
        "boot": {"medium": "hdd-7200", "contenders": [boot("raw", 9.0), boot("optimized", 3.0)],
            "ratios": {"ready_to_limit": {"ratio": -1}}},
        "runs": {"raw": ran("raw", "hdd-7200", 9.0), "optimized": ran("optimized", "hdd-7200", 3.0)},
        "resume": {"media": {(flat): {"limit_s": 1.0}}, "runs": [ran("boot_warm", "none", 16.0), ran("flat", flat, 1.5)]},
    });
    let trace = STAGED.replace("2.5", "0.75").replacen("# {", &format!("# {{\"medium\":\"{flat}\","), 1);
    let data = page(&[("start.csv", trace.as_bytes()), ("demo.json", demo.to_string().as_bytes())]);
    let stories = data["stories"].as_array().expect("stories");
    let [start, boot, resume] = &stories[..] else { panic!("{stories:?}") };
    assert_eq!((&start["title"], &start["to_limit"]), (&"A program starts".into(), &1.25.into()));
    let about = "python3; from flat-10ms-25mbs; medians of up to 3 runs; 2 cores of CPU, Linux 6; \
                 the machine did other things when the demo began";
    assert_eq!(start["about"], about);
    // The quickest that is neither ours nor in memory.
    assert_eq!((&start["before"], &start["after"]), (&1.into(), &3.into()));
    let bars = start["bars"].as_array().expect("bars");
    assert_eq!((&bars[3]["limit_s"], &bars[4]["limit_s"]), (&0.6.into(), &Value::Null));
    assert_eq!((&bars[2]["is_ours"], &bars[1]["is_ours"]), (&true.into(), &false.into()));
    // The trace is the run of its contender, with the figures of both.
    let traced = &data["inputs"][bars[3]["input"].as_u64().expect("an input") as usize];
    assert_eq!((&traced["kind"], &traced["name"]), (&"trace".into(), &"<i>headstart-optimized".into()));
    assert_eq!(traced["summary"]["store_requests"], 7);
    assert_eq!(data["inputs"].as_array().map(Vec::len), Some(9));
    assert_eq!((&boot["before"], &boot["after"], &boot["to_limit"]), (&0.into(), &1.into(), &Value::Null));
    assert_eq!((&resume["bars"][1]["limit_s"], &resume["to_limit"]), (&1.0.into(), &1.5.into()));
}

#[test]
fn an_odd_demo_is_refused_or_has_no_story() {
    let folder = Folder::new();
    for (start, what) in [
        (serde_json::json!({"runs": [{"label": "a"}]}), "no run summary"),
        (serde_json::json!({"runs": [{"label": "a", "wall_s": 1}]}), "no run summary"),
    ] {
        let demo = folder.write("demo.json", serde_json::json!({"demo_s": 1, "start": start}).to_string());
        let error = folder.report(&[&demo], "report.html").expect_err("no summary");
        assert!(error.contains(what), "{error}");
    }
    let runs = [ran("headstart-optimized", "none", 1.0), ran("native-warm", "none", -1.0), Value::from(7)];
    for odd in [
        serde_json::json!({"demo_s": 1, "start": {"runs": runs}, "boot": [], "resume": "x", "machine": 7}),
        serde_json::json!({"demo_s": 1, "boot": {"contenders": [{"contender": "raw"}, 7]}, "runs": 9}),
        serde_json::json!({"demo_s": 1}),
    ] {
        let data = page(&[("demo.json", odd.to_string().as_bytes())]);
        assert_eq!(data["stories"].as_array().map(Vec::len), Some(0), "{odd}");
    }
}

#[test]
fn starts_of_one_command_are_a_story() {
    let run = |at: f64| {
        format!(r#"{{"ready_s": {at}, "wall_s": 9, "medium": "hdd", "store_requests": 7, "limit_s": 1.0}}"#)
    };
    let (slow, quick) = (run(3.0), run(1.5));
    let data = page(&[("slow.json", slow.as_bytes()), ("quick.json", quick.as_bytes())]);
    let story = &data["stories"][0];
    assert_eq!((&story["before"], &story["after"], &story["to_limit"]), (&0.into(), &1.into(), &1.5.into()));
    assert_eq!((&story["bars"][1]["label"], &story["bars"][1]["input"]), (&"quick.json".into(), &1.into()));
    let data = page(&[
        ("slow.json", slow.as_bytes()),
        ("other.csv", STAGED.replacen("# {", "# {\"command\":\"x\",", 1).as_bytes()),
    ]);
    assert_eq!(data["stories"].as_array().map(Vec::len), Some(0), "another command is another start");
}

/// On one time axis: a profile that a guest recorded of itself, and what was read before it began.
#[test]
fn a_profile_begins_where_its_trace_says() {
    let [own, other] = [2, 3].map(|seconds| {
        let profile = Profile { ended: Nanos(seconds * 1_000_000_000), ..profile(2) };
        profile.encode().expect("a profile")
    });
    let line = format!(
        "# {{\"profile\":{{\"disk_digest\":\"{}\",\"ended_s\":2.0,\"from_s\":40.5}},",
        profile(1).disk_digest
    );
    let trace = STAGED.replacen("# {", &line, 1);
    let data = page(&[("own.hsp", &own), ("other.hsp", &other), ("start.csv", trace.as_bytes())]);
    let [own, other] = [0, 1].map(|number| &data["inputs"][number]);
    assert_eq!((&own["ended_s"], &other["ended_s"]), (&42.5.into(), &3.0.into()));
    assert_eq!(own["notes"][0], "It was recorded in the start of start.csv, and times count from there.");
    let first = f64::from_le_bytes(column(&own["requests"]["at_s"])[..8].try_into().expect("a number"));
    assert_eq!(first, 40.5);
    // A line that says anything else moves nothing.
    let odd = line.replace("40.5", "-1");
    let trace = STAGED.replacen("# {", &odd, 1);
    let own = profile(2).encode().expect("a profile");
    let data = page(&[("own.hsp", &own), ("start.csv", trace.as_bytes())]);
    assert_eq!(data["inputs"][0]["ended_s"], 2.0);
}

#[test]
fn summaries_and_experiments() {
    let summary = br#"{"ready_s": 1.5, "wall_s": 2, "medium": "hdd", "store_requests": 7, "more": [1]}"#;
    let experiment = br#"{"experiment": "x", "figures": [
        {"name": "a", "value": 1, "kind": "simulated"}, {"name": "b", "value": 1, "kind": "missed", "note": "why"},
        {"name": "c", "value": 1, "met": false}, {"name": "d", "value": 1}]}"#;
    let data = page(&[("run.json", summary), ("x.json", experiment)]);
    let input = &data["inputs"][0];
    assert_eq!((&input["kind"], &input["summary"]["store_requests"]), (&"summary".into(), &7.into()));
    assert_eq!((&input["ready_s"], &input["disk"]), (&1.5.into(), &Value::Null));
    let figures = data["experiments"][0]["figures"].as_array().expect("figures");
    let verdicts: Vec<&str> = figures.iter().filter_map(|figure| figure["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["pass", "miss", "miss", "note"]);
}
