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
