//! Exported requests, as other programs read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use hs_testing::{machine_has, skip};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use serde_json::Value;

use crate::{Folder, STAGED, TRACE};

fn exported(folder: &Folder, name: &str) -> PathBuf {
    let trace = folder.write("input.csv", TRACE);
    folder.report(&[&trace], name).expect("a file")
}

#[test]
fn a_table_is_read_again() {
    let folder = Folder::new();
    let first = exported(&folder, "first.csv");
    let second = folder.report(&[&first], "second.csv").expect("a table");
    let text = std::fs::read_to_string(first).expect("text");
    assert_eq!(text, std::fs::read_to_string(second).expect("text"));
    let row = "a,0.600000000,\"q ü, \"\"</script><b>\",,prefetch,4096,8192,0.000000000,0.010000000,4,,\n";
    assert!(text.ends_with(row), "{text}");
}

/// Each request has its own file, whatever else lies in its block.
#[test]
fn files_and_stages_are_read_again() {
    let folder = Folder::new();
    let trace = folder.write("start.csv", STAGED);
    let first = folder.report(&[&trace], "first.csv").expect("a table");
    let text = std::fs::read_to_string(&first).expect("text");
    let ends: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once(",0.000000000,0.500000000,").map(|(_, end)| end))
        .collect();
    assert_eq!(ends, ["1,/boot/b.img,firmware", "2,\"/k, \"\"1\"\"\",boot loader", "2,,boot loader"]);
    let second = folder.report(&[&first], "second.csv").expect("a table");
    assert_eq!(text, std::fs::read_to_string(second).expect("text"));
}

#[test]
fn parquet_has_the_same_rows() {
    let folder = Folder::new();
    let file = std::fs::File::open(exported(&folder, "a.parquet")).expect("a file");
    let reader = SerializedFileReader::new(file).expect("Parquet");
    let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 4);
    let last = &rows[3];
    assert_eq!(last.get_string(2).expect("process"), "q ü, \"</script><b>");
    assert!(last.get_long(3).is_err(), "it has no pid");
    assert_eq!((rows[0].get_long(1).ok(), rows[0].get_long(3).ok()), (Some(100_000_000), Some(7)));
    assert!(last.get_string(10).is_err() && last.get_string(11).is_err(), "no file, no stage");
    assert_eq!((last.get_long(5).ok(), last.get_long(6).ok()), (Some(4096), Some(8192)));
}

#[test]
fn fio_replays_an_iolog() {
    if !machine_has(&["fio"]) {
        return;
    }
    let folder = Folder::new();
    let log = exported(&folder, "a.iolog");
    let file = folder.write("disk", vec![1; 1 << 20]);
    let ran = Command::new("fio")
        .current_dir(folder.path(""))
        .args(["--name=replay", "--ioengine=psync", "--output-format=json"])
        .arg(format!("--read_iolog={}", log.display()))
        .arg(format!("--replay_redirect={}", file.display()))
        .output()
        .expect("fio runs");
    assert!(ran.status.success(), "{ran:?}");
    let json: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let job = &json["jobs"][0];
    assert_eq!((&job["read"]["total_ios"], &job["read"]["io_bytes"]), (&3.into(), &16_384.into()), "{job}");
    assert_eq!((&job["write"]["total_ios"], &job["write"]["io_bytes"]), (&1.into(), &512.into()), "{job}");
    // At the times of the log, whose last request comes half a second after the first.
    assert!(job["job_runtime"].as_u64().is_some_and(|millis| millis >= 490), "{job}");
}

/// A Python that has Perfetto's own classes.
fn python() -> Option<PathBuf> {
    const PACKAGES: [&str; 2] = ["perfetto==0.59.1", "protobuf==7.36.2"];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto");
    let python = folder.join("bin/python3");
    let has_classes = || {
        let import = "import perfetto.protos.perfetto.trace.perfetto_trace_pb2";
        Command::new(&python).args(["-c", import]).output().is_ok_and(|ran| ran.status.success())
    };
    if has_classes() {
        return Some(python);
    }
    let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).output();
    let made = made.is_ok_and(|made| made.status.success());
    let fetched = made
        && Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(PACKAGES)
            .output()
            .is_ok_and(|ran| ran.status.success());
    (fetched && has_classes()).then_some(python)
}

#[test]
fn perfetto_reads_a_trace() {
    let Some(python) = python() else {
        skip("pip cannot fetch Perfetto's protobuf classes (python3-venv and a package index are needed)");
        return;
    };
    let folder = Folder::new();
    let trace = exported(&folder, "a.pftrace");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/slices.py");
    let slices = |trace: &Path| -> Value {
        let ran = Command::new(&python).arg(&script).arg(trace).output().expect("Python runs");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        serde_json::from_slice(&ran.stdout).expect("JSON")
    };
    let found = slices(&trace);
    let slice = |name: &str, from: u64, to: u64, depth: u64| serde_json::json!([name, from, to, depth]);
    let expected = serde_json::json!({
        "processes": ["a"],
        "tracks": {
            "p 7, in flight 1": [
                slice("demand", 100_000_000, 103_000_000, 0),
                slice("queued", 100_000_000, 101_000_000, 1),
                slice("service", 101_000_000, 103_000_000, 1),
                slice("write", 200_000_000, 210_000_000, 0),
            ],
            "p 7, in flight 2": [slice("demand", 100_500_000, 110_500_000, 0)],
            "q ü, \"</script><b>, in flight 1": [slice("prefetch", 600_000_000, 610_000_000, 0)],
        },
        "bytes": 4096 + 4096 + 512 + 8192,
        "files": {},
    });
    assert_eq!(found, expected);
    let trace = folder.report(&[&folder.write("start.csv", STAGED)], "start.pftrace").expect("a trace");
    let found = slices(&trace);
    let stages =
        [slice("firmware", 0, 1_000_000_000, 0), slice("boot loader", 1_000_000_000, 3_000_000_000, 0)];
    assert_eq!(found["tracks"]["stages"], serde_json::json!(stages));
    let files = serde_json::json!({
        "500000000": {"stage": "firmware", "file": "/boot/b.img"},
        "1500000000": {"stage": "boot loader", "file": "/k, \"1\""},
    });
    assert_eq!(found["files"], files);
}
