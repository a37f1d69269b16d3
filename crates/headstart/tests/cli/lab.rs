//! Experiments.

use std::fs;

use hs_trace::{BlockDigest, Profile, Read};
use hs_units::{BlockRange, Lba, Nanos};

use crate::images::{write_profile, write_timed_profile};
use crate::scene::{Scene, has_tools, machine_has, run, tool};

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
    let header = "figure,ours,switched off,source,published,ratio,kind,target,met,note";
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

#[test]
fn logs_are_replayed_on_models_and_on_files() {
    let scene = Scene::new();
    let log = scene.path("fio.log");
    let mut lines = "fio version 3 iolog\n0 f add\n0 f open\n".to_owned();
    (0..100).for_each(|number| lines += &format!("{} f read {} 4096\n", number * 100, number * 8192));
    lines += "10000 f write 0 4096\n";
    std::fs::write(&log, &lines).unwrap();
    let log = log.to_str().unwrap();
    let said = run(["lab", "replay", log, "--medium", "flat-10ms-25mbs", "--json"]).ok().json();
    // The last is made after 10 ms, and comes a latency and its transfer later.
    assert_eq!((said["requests"].as_u64(), said["skipped_writes"].as_u64()), (Some(101), Some(0)));
    assert!((said["seconds"].as_f64().unwrap() - 0.0265).abs() < 0.001, "{said}");
    let said = run(["lab", "replay", log, "--medium", "cd-24x-cav", "--depth", "1", "--json"]).ok().json();
    assert_eq!((said["requests"].as_u64(), said["skipped_writes"].as_u64()), (Some(100), Some(1)));

    std::fs::write(scene.path("disk"), vec![7; 1 << 20]).unwrap();
    let on = scene.arg("disk");
    let said = run(["lab", "replay", log, "--on", &on, "--depth", "4", "--json"]).ok().json();
    assert_eq!((said["requests"].as_u64(), said["bytes"].as_u64()), (Some(100), Some(409_600)));
    assert_eq!(said["skipped_writes"], 1);
    // Some of it lies in memory, the other half is read by another thread: all is read once.
    let file = std::fs::File::open(&on).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, std::num::NonZeroU64::new(512 << 10), rustix::fs::Advice::DontNeed)
        .unwrap();
    let said = run(["lab", "replay", log, "--on", &on, "--cached", "--json"]).ok().json();
    assert_eq!((said["requests"].as_u64(), said["bytes"].as_u64()), (Some(100), Some(409_600)));
    assert!(std::fs::read(scene.path("disk")).unwrap().iter().all(|byte| *byte == 7), "it is only read");

    for (line, wrong) in [
        ("99 f read 0 4096\n", &["fio.log cannot be replayed", "line 105: the time 99.0 µs is before"][..]),
        ("-1 f read 0 4096\n", &["line 105: the time -1 is negative"]),
        ("20000 f read 1048576 4096\n", &["do not lie in"]),
    ] {
        std::fs::write(scene.path("fio.log"), format!("{lines}{line}")).unwrap();
        run(["lab", "replay", log, "--on", &on, "--depth", "4"]).fails(1, wrong);
    }
    run(["lab", "replay", log, "--on", "/dev/null"]).fails(1, &["neither a file nor a block device"]);
    run(["lab", "replay", log]).fails(2, &["--emulate"]);
    scene.wait_until_clean();
}

#[test]
fn a_program_that_waits_asks_later() {
    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 100, 1);
    // Twenty reads 10 ms apart, and thirty at the end at the same point of the program's own time.
    let times = (0..20).map(|number| number * 10_000_000).chain((0..30).map(|number| 190_000_001 + number));
    let reads = times.zip(0..).map(|(at, lba)| (Nanos(at), lba));
    write_timed_profile(&scene, "start.hsp", "disk.hsi", &disk, reads);
    let profile = scene.arg("start.hsp");
    let on_model = |pace: &[&str]| {
        let words =
            [&["lab", "replay", &profile, "--medium", "flat-10ms-25mbs", "--json"][..], pace].concat();
        run(words).ok().json()["seconds"].as_f64().unwrap()
    };
    // Each takes 10.16 ms; those of one moment follow each other by their transfers.
    assert!((on_model(&[]) - 0.205).abs() < 0.001, "{}", on_model(&[]));
    let thinking = on_model(&["--think-times"]);
    assert!((thinking - (0.190 + 20.0 * 0.010_16 + 30.0 * 0.000_16)).abs() < 0.001, "{thinking}");
    // A real file gives what there is sooner than the program asks for it, or later.
    for cached in [&[][..], &["--cached"]] {
        let on = scene.arg("disk.raw");
        let words =
            [&["lab", "replay", &profile, "--on", &on, "--think-times", "--json"][..], cached].concat();
        let said = run(words).ok().json();
        assert_eq!((said["requests"].as_u64(), said["bytes"].as_u64()), (Some(50), Some(50 * 4096)));
        assert!(said["seconds"].as_f64().unwrap() >= 0.189, "{said}");
    }

    let log = scene.path("fio.log");
    std::fs::write(&log, "fio version 2 iolog\nf read 0 4096\n").unwrap();
    let log = log.to_str().unwrap();
    run(["lab", "replay", log, "--medium", "hdd-7200", "--think-times"]).fails(1, &["only a profile knows"]);
    let both = ["lab", "replay", &profile, "--medium", "hdd-7200", "--think-times", "--depth", "2"];
    run(both).fails(2, &["cannot be used with"]);
    scene.wait_until_clean();
}

#[test]
fn what_is_calibrated_is_a_medium_and_untouched() {
    let scene = Scene::new();
    let disk = scene.raw("disk", 5_000, 60);
    let (path, model) = (scene.arg("disk"), scene.arg("found.toml"));
    let said = run(["lab", "calibrate", &path, "-o", &model, "--name", "found", "--time", "0.02", "--json"])
        .ok()
        .json();
    assert_eq!(said["probes"].as_array().unwrap().len(), 18, "{said}");
    assert!(said["error"].as_f64().unwrap() >= 0.0);
    assert!(std::fs::read(scene.path("disk")).unwrap() == disk);
    let log = scene.path("fio.log");
    std::fs::write(&log, "fio version 2 iolog\nf read 0 4096\n").unwrap();
    let said = run(["lab", "replay", log.to_str().unwrap(), "--medium", &model]).ok().stdout;
    assert!(said.contains("on found"), "{said}");

    std::fs::write(scene.path("small"), [0; 8192]).unwrap();
    run(["lab", "calibrate", &scene.arg("small")]).fails(1, &["8192 bytes", "needed to probe"]);
    std::fs::File::create(scene.path("holes")).unwrap().set_len(1 << 30).unwrap();
    run(["lab", "calibrate", &scene.arg("holes")]).fails(1, &["holes"]);
    run(["lab", "calibrate", "/dev/null"]).fails(1, &["neither a file nor a block device"]);
    run(["lab", "calibrate", &path, "--name", "nvme"]).fails(2, &["built-in"]);
    scene.wait_until_clean();
}

#[test]
fn requests_of_a_real_device_are_traced() {
    if !machine_has(&["/dev/loop-control"]) || !has_tools(&["mkfs.ext4", "mount", "umount", "dd"]) {
        return;
    }
    // A loop device of its own: temporary files may lie on no block device, or on one without events for
    // requests.
    let scene = Scene::new();
    let (device, folder) = (scene.arg("device"), scene.folder("mounted"));
    std::fs::File::create(&device).and_then(|file| file.set_len(16 << 20)).unwrap();
    tool("mkfs.ext4", &["-q", &device]);
    tool("mount", &["-o", "loop", &device, &folder]);
    let disk = format!("{folder}/disk");
    std::fs::write(&disk, vec![1; 4 << 20]).unwrap();
    std::fs::File::open(&disk).unwrap().sync_all().unwrap();
    let (csv, source) = (scene.arg("requests.csv"), format!("if={disk}"));
    let command = ["dd", &source, "of=/dev/null", "bs=256k", "iflag=direct"];
    let traced = run([&["lab", "trace", &disk, "--csv", &csv, "--json", "--"][..], &command].concat());
    tool("umount", &[&folder]);
    if traced.code != Some(0) && traced.stderr.contains("cannot be traced") {
        hs_testing::skip(traced.stderr.trim());
        return;
    }
    let said = traced.ok().json();
    assert_eq!(said["lost_events"], 0, "{said}");
    let rows = std::fs::read_to_string(&csv).unwrap();
    let of_dd = rows.lines().skip(1).filter(|row| row.split(',').nth(1) == Some("dd")).map(|row| {
        let fields: Vec<&str> = row.split(',').collect();
        assert!(fields.len() == 9 && fields[8].parse::<f64>().unwrap() > 0.0, "{row}");
        fields[5].parse::<u64>().unwrap()
    });
    assert!(of_dd.sum::<u64>() >= 4 << 20, "{rows}");
    run(["lab", "trace", "/proc/self/stat"]).fails(1, &["lies on no block device"]);
    scene.wait_until_clean();
}

#[test]
fn a_start_is_predicted_for_every_combination() {
    let scene = Scene::new();
    let disk = scene.image("root.hsi", 4_000, 61);
    write_profile(&scene, "start.hsp", "root.hsi", &disk, (0..200).map(|number| number * 83 % 4_000));
    let (image, profile) = (scene.arg("root.hsi"), scene.arg("start.hsp"));
    let fast = scene.arg("fast.hsi");
    run(["optimize", &image, "--profile", &profile, "-o", &fast]).ok();
    let compare = "cd-24x-cav,nvme,raw,unoptimized,optimized";
    let arguments =
        ["lab", "predict", &fast, "--profile", &profile, "--own-time", "0.5", "--compare", compare, "--json"];
    let said = run(arguments).ok().json();
    let rows = said["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{said}");
    let ready = |number: usize| rows[number]["ready_s"].as_f64().unwrap();
    assert!(ready(0) > ready(1) && ready(1) > ready(2) && ready(2) >= 0.5, "{said}");
    assert!(rows.iter().all(|row| row["estimated"] == false), "{said}");
    assert_eq!(run(arguments).ok().json(), said, "virtual time comes out the same");
    for row in rows {
        let limit = row["limit_s"].as_f64().unwrap();
        assert!((0.5..=row["ready_s"].as_f64().unwrap()).contains(&limit), "{row}");
    }
    let table =
        run(["lab", "predict", &fast, "--profile", &profile, "--emulate", "nvme", "--limit"]).ok().stdout;
    assert!(table.contains("ready ÷ limit"), "{table}");

    // A profile alone: the layout is made up, and says so.
    let csv = run([
        "lab",
        "predict",
        &profile,
        "--medium",
        "lan-10m",
        "--clients",
        "3",
        "--layout",
        "optimized",
        "--csv",
    ]);
    let csv = csv.ok().stdout;
    assert!(csv.lines().count() == 2 && csv.contains("\nlan-10m,optimized,headstart,3,true,"), "{csv}");
    let waits = csv.lines().nth(1).expect("a row").split(',').nth(9).expect("a column");
    assert!(waits.len() > 5, "rounded: {csv}");

    many_clients(&fast, &profile);

    run(["lab", "predict", &image, "--medium", "nvme"]).fails(1, &["--profile"]);
    run(["lab", "predict", &profile, "-p", &profile, "--medium", "nvme"]).fails(1, &["is a profile already"]);
    run(["lab", "predict", &profile, "--medium", "none"]).fails(1, &["nothing can be predicted"]);
    run(["lab", "predict", &profile, "--compare", "fast"])
        .fails(2, &["neither a layout", "c-look", "cd-24x-cav"]);
    let other = scene.image("other.hsi", 300, 62);
    assert!(!other.is_empty());
    run(["lab", "predict", &scene.arg("other.hsi"), "-p", &profile, "--medium", "nvme"])
        .fails(1, &["recorded on disk"]);
    // What a profile claims costs nothing.
    let read = Read { at: Nanos(0), blocks: BlockRange::new(Lba(0), 1), cost: Nanos(0) };
    let digests = vec![BlockDigest::default()];
    let huge = Profile { disk_bytes: 1 << 60, reads: vec![read], digests, ..Profile::default() };
    fs::write(scene.path("huge.hsp"), huge.encode().expect("a good profile")).expect("written");
    run(["lab", "predict", &scene.arg("huge.hsp"), "--medium", "nvme"])
        .fails(1, &["8388608 can be modelled"]);
    scene.wait_until_clean();
}

/// Ten thousand clients of one link, and of a cache behind it.
fn many_clients(fast: &str, profile: &str) {
    let crowd = [
        "lab",
        "predict",
        fast,
        "-p",
        profile,
        "--clients",
        "1,10000",
        "--within",
        "2",
        "--json",
        "--medium",
    ];
    let rows = |more: &[&str]| {
        let said = run(crowd.iter().copied().chain(more.iter().copied())).ok().json();
        let figures = |row: &serde_json::Value| {
            let figure = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"));
            assert_eq!(row["clients_ready_s"].as_array().unwrap().len() as f64, figure("clients"));
            assert!(
                figure("median_ready_s") <= figure("ready_s") && figure("jain_index") <= 1.0 + 1e-9,
                "{row}"
            );
            (figure("ready_s"), figure("store_bytes"))
        };
        said["rows"].as_array().unwrap().iter().map(figures).collect::<Vec<_>>()
    };
    let (direct, cached) = (rows(&["lan-100m"]), rows(&["lan-100m", "--edge-cache", "lan-1g"]));
    assert!(direct[1].0 > direct[0].0 && direct[1].1 >= 9_999.0 * direct[0].1, "{direct:?}");
    assert!(cached[1].0 < direct[1].0 && cached[1].1 < 2.0 * cached[0].1, "{cached:?} {direct:?}");

    // 400 clients of two processors, half a second each.
    let many = [
        "lab",
        "predict",
        fast,
        "-p",
        profile,
        "--medium",
        "lan-1g",
        "--clients",
        "400",
        "--json",
        "--cores",
        "2",
    ];
    let shared = run(many.into_iter().chain(["--client-cpu", "0.5"])).ok().json();
    let ready_s = shared["rows"][0]["ready_s"].as_f64().unwrap();
    assert!(ready_s >= 50.0, "{ready_s} s, and the processors alone need 100 s for all that is read");
    run(many).fails(2, &["--client-cpu"]);
    run(many.into_iter().chain(["--client-cpu", "0.5", "--within", "2"])).fails(2, &["--within"]);

    run(["lab", "predict", fast, "-p", profile, "--medium", "nvme", "--clients", "1001"])
        .fails(1, &["no link"]);
    run(["lab", "predict", fast, "-p", profile, "--medium", "nvme", "--edge-cache", "lan-1g"])
        .fails(1, &["no link"]);
    run(["lab", "predict", fast, "-p", profile, "--medium", "lan-1g", "--edge-cache", "nvme"])
        .fails(1, &["--edge-cache nvme is no link"]);
    run(["lab", "predict", fast, "-p", profile, "--medium", "lan-1g", "--clients", "10001"])
        .fails(2, &["10000"]);
}
