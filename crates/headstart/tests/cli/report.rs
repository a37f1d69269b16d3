//! `headstart report` of what other commands write.

use serde_json::Value;

use crate::boots::{self, GUEST};
use crate::scene::{START, Scene, machine_has, run};

fn report(scene: &Scene, inputs: &[&str]) -> Value {
    let output = scene.arg("report.json");
    let inputs: Vec<String> = inputs.iter().map(|name| scene.arg(name)).collect();
    let flags = ["-o".to_owned(), output.clone()];
    run(["report".to_owned()].into_iter().chain(inputs).chain(flags)).ok();
    let text = std::fs::read_to_string(output).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn before_and_after_are_of_one_disk() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("root.hsi");
    let (start, fast, command) =
        (scene.arg("start.hsp"), scene.arg("fast.hsi"), ["--", "/bin/cat", "/etc/motd"]);
    run(["profile", &image, "-o", &start].into_iter().chain(command)).ok();
    run(["optimize", &image, "--profile", &start, "-o", &fast]).ok();
    for (image, name) in [(&image, "before"), (&fast, "after")] {
        let (trace, json) = (scene.arg(&format!("{name}.csv")), scene.arg(&format!("{name}.json")));
        let flags = ["--emulate", "flat-10ms-25mbs", "--trace", &trace, &format!("--json={json}")];
        run(["run", image].into_iter().chain(flags).chain(command)).ok();
    }
    let data =
        report(&scene, &["start.hsp", "before.csv", "after.csv", "before.json", "after.json", "fast.hsi"]);
    let disks = data["disks"].as_array().expect("disks");
    assert_eq!(disks.len(), 1, "profile, traces and image are of one disk");
    assert!(disks[0]["hot"]["runs"]["first"]["count"].as_u64() > Some(0), "the image is optimized");
    assert!(disks[0]["files"]["paths"]["count"].as_u64() > Some(2), "its files are named");
    let inputs = data["inputs"].as_array().expect("inputs");
    let kinds: Vec<&str> = inputs.iter().filter_map(|input| input["kind"].as_str()).collect();
    assert_eq!(kinds, ["profile", "trace", "trace"], "a trace has the figures of its summary");
    for input in inputs {
        assert_eq!((&input["disk"], &input["command"]), (&0.into(), &"/bin/cat /etc/motd".into()));
        assert!(input["ready_s"].as_f64() > Some(0.0), "{}", input["name"]);
    }
    assert!(inputs[2]["summary"]["prefetch_bytes"].as_u64() > Some(0));
    let bars = data["stories"][0]["bars"].as_array().expect("a story");
    let bars: Vec<_> = bars.iter().map(|bar| (bar["label"].as_str(), bar["input"].as_u64())).collect();
    assert_eq!(bars, [(Some("before.csv"), Some(1)), (Some("after.csv"), Some(2))]);
    let rows = |name: &str, kind: &str| {
        let text = std::fs::read_to_string(scene.path(name)).expect("a trace");
        text.lines().filter(|line| line.split(',').nth(1) == Some(kind)).count()
    };
    assert_eq!(rows("before.csv", "warm"), 0);
    assert!(rows("before.csv", "demand") > 0 && rows("before.csv", "prefetch") == 0);
    // Which of its reads wait for what is to come depends on how far the prefetch is.
    assert!(rows("after.csv", "demand") + rows("after.csv", "warm") > 0 && rows("after.csv", "prefetch") > 0);
    // A start that shows no stages is one part.
    let trace = scene.arg("before.csv");
    let totals = run(["inspect", &trace, "--json"]).ok().json();
    assert_eq!((&totals["kind"], &totals["stages"][0]["stage"]), (&"trace".into(), &serde_json::Value::Null));
    assert!(totals["stages"][0]["bytes_per_s"].as_f64() > Some(0.0), "{totals}");
    assert!(run(["inspect", &trace]).ok().stdout.contains("unique bytes"));
    run(["inspect", &trace, "--layers", &image]).fails(1, &["reads of a profile", "stages and files"]);
    run(["inspect", &scene.arg("before.json")]).fails(1, &["not a headstart image"]);
}

/// The trace of a start has the command's processes and the time that these had a processor.
#[test]
fn processes_of_a_start_are_traced() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let (image, trace) = (scene.root("root.hsi"), scene.arg("a.csv"));
    // The inner shell computes for a good while, of which a part is seen however it is sampled.
    let work = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true";
    run([
        "run",
        &image,
        "--trace",
        &trace,
        &format!("--json={}", scene.arg("a.json")),
        "--",
        "/bin/sh",
        "-c",
        work,
    ])
    .ok();
    let data = report(&scene, &["a.csv"]);
    let lives = data["inputs"][0]["lives"].as_array().expect("processes");
    let outer =
        lives.iter().find(|life| life["parent"] != 0 && life["process"]["name"] == "sh").expect("a shell");
    let inner =
        lives.iter().find(|life| life["parent"] == outer["process"]["pid"]).expect("the shell's child");
    assert!(inner["cpu_s"].as_f64() > Some(0.0), "{lives:?}");
    let cpu = data["inputs"][0]["cpu"].as_array().expect("processor time");
    assert!(cpu.iter().any(|used| used["cpu_s"].as_f64() > Some(0.0)), "{cpu:?}");
}

#[test]
fn a_boot_is_traced() {
    if !machine_has(GUEST) {
        return;
    }
    let (scene, image) = boots::little_guest();
    let trace = scene.arg("boot.csv");
    let flags = ["--memory", "64M", "--ready", "^up$", "--vmm", "uml", "--trace", &trace, "--json"];
    let ran = boots::boot(&scene, &image, &[&flags[..], &boots::LINGER].concat()).ok();
    let data = report(&scene, &["boot.csv", "guest.hsi"]);
    let input = &data["inputs"][0];
    assert_eq!((&input["command"], &input["ready_s"]), (&"boot --vmm uml".into(), &ran.json()["ready_s"]));
    assert!(input["requests"]["at_s"]["count"].as_u64() > Some(10), "{input}");
    boots::assert_has_guests_processes(&trace);
    let lives = input["lives"].as_array().expect("processes");
    assert!(lives.iter().any(|life| life["process"]["name"] == "sync"), "{lives:?}");
}

#[test]
fn results_of_experiments_are_read() {
    let scene = Scene::new();
    let ran = run(["lab", "run", "elevators", "--json"]).ok();
    std::fs::write(scene.path("lab.json"), &ran.stdout).expect("written");
    let data = report(&scene, &["lab.json"]);
    assert_eq!(data["experiments"][0]["name"], "elevators");
    let figures = data["experiments"][0]["figures"].as_array().expect("figures");
    assert!(!figures.is_empty() && figures.iter().all(|figure| figure["value"].is_number()));
}
