//! Experiments.

use crate::scene::{Scene, run};

#[test]
fn experiments_are_listed() {
    let listed = run(["lab", "list"]).ok().stdout;
    let object = run(["lab", "list", "--json"]).ok().json();
    let experiments = object["experiments"].as_array().expect("a list");
    assert_eq!(listed.lines().count(), experiments.len());
    for (line, experiment) in listed.lines().zip(experiments) {
        let (name, about) = (experiment["name"].as_str().unwrap(), experiment["about"].as_str().unwrap());
        assert!(line.starts_with(name) && line.ends_with(about), "{line}");
        assert!(run(["lab", "run", "--help"]).ok().stdout.contains(name));
    }
}

#[test]
fn an_experiment_comes_out_the_same_again() {
    let arguments = ["lab", "run", "priority-1991", "--json"];
    let ran = run(arguments).ok();
    assert_eq!(ran.stdout, run(arguments).ok().stdout);
    let object = ran.json();
    assert_eq!(object["experiment"], "priority-1991");
    let figure = &object["figures"][0];
    assert!(figure["value"].as_f64().expect("a number") < 0.372, "{figure}");
    assert_eq!((&figure["met"], &figure["target"]), (&true.into(), &"≤ 0.372".into()));
    assert_eq!(object["rows"][0]["disk"], "od282");
    let table = run(["lab", "run", "priority-1991"]).ok().stdout;
    for expected in ["od282", "write returns (s)", "met", "switched off"] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
}

#[test]
fn what_a_record_costs_is_measured_here() {
    let object = run(["lab", "run", "flash-2012", "--real", "--json"]).ok().json();
    let real = object["real"].as_array().expect("what is real");
    assert!(
        real.len() == 2 && real.iter().all(|figure| figure["value"].as_f64().unwrap() >= 0.0),
        "{real:?}"
    );
    assert_eq!(run(["lab", "run", "flash-2012", "--json"]).ok().json()["real"], serde_json::json!([]));
}

#[test]
fn results_are_written_as_csv_and_json() {
    let scene = Scene::new();
    let out = scene.path("results/of today");
    let ran = run(["lab", "run", "gather-1991", "--out", out.to_str().unwrap(), "--json"]).ok();
    let read = |end: &str| std::fs::read_to_string(out.join(format!("gather-1991{end}"))).expect(end);
    let object: serde_json::Value = serde_json::from_str(&read(".json")).expect("JSON");
    assert_eq!(object, ran.json());
    let figures = read(".csv");
    let header = "figure,ours,switched off,source,published,ratio,verdict,target,met,reason";
    assert_eq!(figures.lines().next(), Some(header));
    assert_eq!(figures.lines().count(), 1 + object["figures"].as_array().expect("figures").len());
    assert!(figures.contains(",002 table 4,4.471,"), "{figures}");
    assert_eq!(read("-rows.csv").lines().count(), 1 + object["rows"].as_array().expect("rows").len());
    let file = scene.path("file");
    std::fs::write(&file, "").unwrap();
    run(["lab", "run", "gather-1991", "--out", file.to_str().unwrap()]).fails(1, &["make", "file"]);
    scene.wait_until_clean();
}

#[test]
fn media_are_listed_and_own_ones_come_from_files() {
    let listed = run(["lab", "media"]).ok().stdout;
    let object = run(["lab", "media", "--json"]).ok().json();
    let media = object["media"].as_array().expect("a list");
    assert!(media.iter().all(|medium| listed.contains(medium["name"].as_str().unwrap())));
    assert!(listed.contains("sd-uhs1") && listed.contains("FILE.toml"), "{listed}");

    let scene = Scene::new();
    let model = scene.path("mine.toml");
    std::fs::write(&model, "name = 'mine'\n[link]\nrate = '10 Mbit/s'\nround_trip = '1 h'\n").unwrap();
    let arguments = ["lab", "disk", "x", "y", "--medium", model.to_str().unwrap()];
    run(arguments)
        .fails(2, &["mine.toml is no model: line 4: `round_trip`: '1 h' is not a time", "ns, us, ms, s"]);
    run(["lab", "disk", "x", "y", "--medium", "nowhere.toml"]).fails(2, &["open nowhere.toml"]);
    std::fs::write(&model, "name = 'mine'\n[link]\nrate = '10 Mbit/s'\nround_trip = '1 s'\n").unwrap();
    run(arguments).fails(1, &["open"]);
    scene.wait_until_clean();
}
