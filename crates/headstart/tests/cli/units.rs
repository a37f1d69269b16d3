//! Sizes are printed in KiB, MiB and GiB (docs/GLOSSARY.md), by every command and in every help.

use hs_testing::decimal_units;

use crate::images::write_timed_profile;
use crate::scene::{Ran, Scene, run};
use crate::usage::COMMANDS;

/// No size of what a command has printed is in a decimal unit. Keys of JSON are no text for a reader.
pub(crate) fn check_sizes(ran: &Ran) {
    let is_json = ran.stdout.starts_with(['{', '[']);
    for text in [&ran.stdout, &ran.stderr].into_iter().skip(usize::from(is_json)) {
        let sizes = decimal_units(text).into_iter().filter(|unit| !unit.ends_with("/s"));
        assert_eq!(sizes.collect::<Vec<_>>(), [""; 0], "{text}");
    }
}

#[test]
fn help_names_no_decimal_size() {
    for command in COMMANDS {
        for flag in ["--help", "-h"] {
            // `run` looks at the sizes. Rates are those of media, and stand where help lists these.
            let help = run(command.iter().chain([&flag])).ok().stdout;
            let lists_media = help.contains("usb2-stick");
            assert!(lists_media || decimal_units(&help).is_empty(), "{command:?} {flag}: {help}");
        }
    }
    run(["--help"]).ok();
}

#[test]
fn tables_of_the_laboratory_are_in_binary_units() {
    // `run` looks at the sizes. The rates of media are in the unit of their models.
    let table = run(["lab", "run", "all"]).ok().stdout;
    for title in [" MiB ", "MB/s, alike", "without (MiB)", "decompressed (KiB)"] {
        assert!(table.contains(title), "{title}");
    }
    // A row as JSON keeps its keys.
    let object = run(["lab", "run", "files-2012", "--json"]).ok().json();
    assert_eq!(object["rows"][0]["MB"].as_f64(), Some(300.0));
    run(["lab", "list"]).ok();
    run(["lab", "media"]).ok();

    let scene = Scene::new();
    let disk = scene.image("disk.hsi", 100, 1);
    let reads = (0..20).map(|number| (hs_units::Nanos(number * 10_000_000), number));
    write_timed_profile(&scene, "start.hsp", "disk.hsi", &disk, reads);
    let (image, profile) = (scene.arg("disk.hsi"), scene.arg("start.hsp"));
    let predict = ["lab", "predict", &image, "--profile", &profile, "--emulate", "lan-1g"];
    for (more, title) in [(&[][..], "MiB read"), (&["--clients", "3"], "MiB at origin")] {
        let table = run([&predict, more].concat()).ok().stdout;
        assert!(table.contains(title), "{table}");
    }
    let replayed = run(["lab", "replay", &profile, "--emulate", "flat-10ms-25mbs"]).ok().stdout;
    assert!(replayed.starts_with("20 requests, 80 KiB in "), "{replayed}");
    scene.raw("full", 5_000, 1);
    run(["lab", "calibrate", &scene.arg("full"), "--time", "0.01"]).ok();
    scene.wait_until_clean();
}
