//! `headstart boot x.iso --record`: a guest that records its own start, and gives the profile away on its
//! second serial line.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::boots::{assert_nothing_is_in_tmp, assert_nothing_is_left_after, boot, kept_console};
use crate::live::live;
use crate::qemu_boots::QEMU;
use crate::qemu_kernels::Then;
use crate::scene::{Ran, Scene, headstart, machine_has, run, tool};

const NEEDED: [&str; 2] = ["/usr/bin/qemu-system-x86_64", "/usr/bin/xorriso"];
/// The data registers of the first and the second serial port.
const CONSOLE: u16 = 0x3f8;
const LINE: u16 = 0x2f8;
/// Where a BIOS loads the boot sector.
const LOAD_ADDRESS: u16 = 0x7c00;

/// Instructions that print the text at `si` on a serial port, and go on behind its zero.
fn printing(port: u16) -> Vec<u8> {
    let ([data, data_high], [status, status_high]) = (port.to_le_bytes(), (port + 5).to_le_bytes());
    let mut code = vec![0xac, 0x84, 0xc0, 0x74, 0x12]; // next: lodsb; test al, al; jz done
    code.extend([0x88, 0xc4, 0xba, status, status_high]); // mov ah, al; mov dx, line status
    code.extend([0xec, 0xa8, 0x20, 0x74, 0xfb]); // wait: in al, dx; test al, empty; jz wait
    code.extend([0x88, 0xe0, 0xba, data, data_high, 0xee]); // mov al, ah; mov dx, data; out dx, al
    code.extend([0xeb, 0xe9]); // jmp next; done:
    code
}

/// A bootable disc that says `line` on the second serial port, and then `up` on the first.
fn disc(scene: &Scene, line: &str, then: Then) -> String {
    let code = |text_at: u16| {
        let [low, high] = text_at.to_le_bytes();
        let mut code = vec![0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0xbe, low, high]; // cli; ds = 0; mov si, texts
        code.extend([printing(LINE), printing(CONSOLE)].concat());
        if then == Then::Reset {
            code.extend([0xb0, 0xfe, 0xe6, 0x64]); // mov al, pulse reset; out controller, al
        }
        code.extend([0xf4, 0xeb, 0xfd]); // hlt; jmp hlt
        code
    };
    let mut sector = code(LOAD_ADDRESS + code(0).len() as u16);
    sector.extend([line.as_bytes(), b"\0up\n\0"].concat());
    sector.resize(2048, 0);
    let _ = fs::create_dir(scene.path("tree"));
    fs::write(scene.path("tree/boot.bin"), sector).expect("written");
    let disc = scene.arg("little.iso");
    let _ = fs::remove_file(&disc);
    let loader = ["-b", "boot.bin", "-no-emul-boot", "-boot-load-size", "4"];
    let made = ["-as", "mkisofs", "-quiet", "-o", &disc];
    tool("xorriso", &[&made[..], &loader, &[&scene.arg("tree")]].concat());
    disc
}

fn scene() -> Scene {
    let scene = Scene::new();
    scene.folder("tmp");
    scene
}

/// Records the start from a disc.
fn record(scene: &Scene, disc: &str, flags: &[&str]) -> Ran {
    boot(scene, disc, &[&QEMU[..], &["--record", &scene.arg("boot.hsp")], flags].concat())
}

#[test]
fn a_medium_that_boots_a_debian_is_recorded_by_one_command() {
    let Some(live) = live() else { return };
    let scene = scene();
    let (iso, profile, fast) = (live.file("bios.iso"), scene.arg("boot.hsp"), scene.arg("fast.hsi"));
    let before = fs::metadata(&iso).and_then(|file| file.modified()).expect("a medium");
    let trace = scene.arg("boot.csv");
    let flags = ["--vmm", "qemu", "--accel", "tcg", "--ready-timeout", "400", "--json", "--record", &profile];
    let summary = boot(&scene, &iso, &[&flags[..], &["--trace", &trace]].concat()).ok().json();
    assert_eq!(summary["profile"], profile.as_str());
    assert!(summary["stages"][0]["name"] == "kernel", "{summary}");
    // Firmware and boot loader read the kernel, and what comes after them the image, on one time axis.
    let files = summary["medium_files"].as_array().expect("a list");
    let at = |stage: &str, file: &str| {
        let of = files.iter().find(|of| of["stage"] == stage && of["file"] == file);
        of.unwrap_or_else(|| panic!("no {stage} {file}: {summary}"))
    };
    let kernel = at("boot loader", "/boot/vmlinuz");
    assert_eq!(files[0]["stage"], "firmware", "{summary}");
    // A request counts for the file in which it begins.
    let kernel_bytes = fs::metadata(live.file("vmlinuz")).expect("a kernel").len() - 4096;
    assert!(kernel["bytes"].as_u64() >= Some(kernel_bytes), "{kernel}");
    assert!(kernel["last_s"].as_f64() <= at("init", "/headstart/root.hsi")["first_s"].as_f64(), "{summary}");
    assert!(kernel["last_s"].as_f64() < summary["recorded_from_s"].as_f64(), "{summary}");
    assert_trace_agrees(&scene, &trace, &profile, &summary);
    // It was told where, by the machine alone: the medium's command line has no such word.
    let recorded = run(["inspect", &profile, "--json"]).ok().json();
    assert!(recorded["reads"].as_u64() > Some(500) && recorded["files"].as_u64() > Some(50), "{recorded}");
    assert!(recorded["ready_s"].as_f64() <= summary["ready_s"].as_f64(), "{recorded} {summary}");
    assert_eq!(fs::metadata(&iso).and_then(|file| file.modified()).expect("a medium"), before);
    run(["optimize", &live.file("root.hsi"), "-p", &profile, "-o", &fast, "--codec", "zstd:1"]).ok();
    let made = run(["inspect", &fast, "--json"]).ok().json();
    assert!(made["hot_segments"][0]["hot_bytes"].as_u64() > Some(1 << 20), "{made}");
    assert!(made["hints"].as_u64() > Some(0), "{made}");
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// It is asked for them by the machine alone, and tells of them until it is ready.
#[test]
fn a_trace_of_a_medium_has_the_processes_of_its_machine() {
    let Some(live) = live() else { return };
    let scene = scene();
    let trace = scene.arg("boot.csv");
    let flags = ["--vmm", "qemu", "--accel", "tcg", "--ready-timeout", "400", "--json", "--trace", &trace];
    let ran = boot(&scene, &live.file("bios.iso"), &flags).ok();
    let summary = ran.json();
    let text = fs::read_to_string(&trace).expect("a trace");
    let lives: Vec<&str> = text.lines().filter(|line| line.contains(",process,")).collect();
    let from = |name: &str| -> f64 {
        let named = |line: &&&str| line.contains(&format!("\"{name}\","));
        let line = lives.iter().find(named).unwrap_or_else(|| panic!("no {name}: {lives:?}"));
        line.split(',').next().and_then(|at| at.parse().ok()).unwrap_or_else(|| panic!("no time: {line}"))
    };
    assert!(lives.iter().all(|line| !line.contains("qemu-system")), "{lives:?}");
    // The initramfs, and the system behind it. The kernel keeps 15 letters of a name.
    let (watcher, journal) = (from("headstart-watch"), from("systemd-journal"));
    let ready = summary["ready_s"].as_f64().expect("ready");
    assert!(watcher < journal && journal < ready, "{watcher} {journal} {ready}");
    assert!(text.lines().filter(|line| line.contains(",cpu,")).count() > 10, "{text}");
    scene.wait_until_clean();
}

/// The trace of that start has what the summary has, and shows it with the profile on one time axis.
fn assert_trace_agrees(scene: &Scene, trace: &str, profile: &str, summary: &Value) {
    let text = fs::read_to_string(trace).expect("a trace");
    let columns = text.lines().nth(1).expect("columns");
    assert!(columns.ends_with(",stage,file"), "{columns}");
    for row in [",stage,,,", ",demand,"] {
        assert!(text.lines().any(|line| line.contains(row)), "{row}: {columns}");
    }
    let read =
        text.lines().find(|line| line.ends_with(",boot loader,/boot/vmlinuz")).expect("the kernel is read");
    assert!(read.contains(",demand,"), "{read}");
    let totals = run(["inspect", trace, "--json"]).ok().json();
    assert_eq!((&totals["kind"], &totals["ready_s"]), (&"trace".into(), &summary["ready_s"]), "{totals}");
    let stages = totals["stages"].as_array().expect("a list").iter().filter_map(|of| of["stage"].as_str());
    // What the kernel itself reads of a drive that it finds is its own affair.
    let stages: Vec<&str> = stages.filter(|name| *name != "kernel").collect();
    assert_eq!(stages, ["firmware", "boot loader", "initramfs", "init"], "{totals}");
    let of_loader = |totals: &Value, key: &str| {
        let files = totals[key].as_array().expect("a list").iter();
        let own = files.filter(|of| of["stage"] == "boot loader");
        own.filter_map(|of| of["bytes"].as_u64()).sum::<u64>()
    };
    assert_eq!(of_loader(&totals, "files"), of_loader(summary, "medium_files"));
    let report = scene.arg("boot.json");
    run(["report", trace, profile, "-o", &report]).ok();
    let data: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
    let [medium, root] = [0, 1].map(|number| &data["inputs"][number]);
    let names: Vec<&str> =
        medium["stages"].as_array().expect("a list").iter().filter_map(|of| of["name"].as_str()).collect();
    assert_eq!(names, ["firmware", "boot loader", "kernel", "initramfs", "init"]);
    assert!(medium["stage_files"]["files"]["count"].as_u64() > Some(4), "{medium}");
    let ready = |input: &Value| input["ready_s"].as_f64().expect("ready");
    assert!((ready(medium) - ready(root)).abs() < 2.0, "{} {}", medium["ready_s"], root["ready_s"]);
    run(["report", trace, "-o", &scene.arg("boot.pftrace")]).ok();
}

#[test]
fn why_a_start_is_not_recorded_is_said() {
    if !machine_has(&NEEDED) {
        return;
    }
    let scene = scene();
    let begun = "BdsDxe\nheadstart-recording\n";
    for (line, then, why) in [
        (String::new(), Then::Hang, "its medium does not record"),
        (format!("{begun}headstart-failed no memory\n"), Then::Hang, "not recorded: no memory"),
        (format!("{begun}headstart-profile 5\nabcde"), Then::Hang, "the profile is damaged"),
        (format!("{begun}headstart-profile 99999999999\n"), Then::Hang, "too large"),
        (format!("{begun}headstart-profile 500\nabcde"), Then::Reset, "the guest ended before"),
        (begun.to_owned(), Then::Reset, "the guest ended before"),
    ] {
        let ran = record(&scene, &disc(&scene, &line, then), &["--ready", "^up$", "--ready-timeout", "60"]);
        ran.fails(1, &["the guest's start was not recorded", why]);
        kept_console(&scene, &ran);
        scene.wait_until_clean();
    }
    // Not ready, and an output that cannot be written: at once.
    let disc = disc(&scene, begun, Then::Hang);
    let ran = record(&scene, &disc, &["--ready", "never", "--ready-timeout", "5"]);
    ran.fails(1, &["not ready after 5 s"]);
    kept_console(&scene, &ran);
    let ran = boot(&scene, &disc, &[&QEMU[..], &["--record", &scene.arg("none/boot.hsp")]].concat());
    ran.fails(1, &["none/boot.hsp", "there is no directory"]);
    assert_eq!(scene.names(), ["little.iso", "tmp", "tree"]);
    assert_nothing_is_in_tmp(&scene);
}

#[test]
fn however_a_recording_of_a_medium_ends_nothing_of_it_is_left() {
    if !machine_has(&NEEDED) {
        return;
    }
    let scene = scene();
    let disc = disc(&scene, "headstart-recording\n", Then::Hang);
    for signal in [Signal::TERM, Signal::KILL] {
        let (console, profile) = (scene.arg("console"), scene.arg("boot.hsp"));
        let words = ["boot", &disc, "--ready", "^up$", "--console", &console, "--record", &profile];
        // Init and QEMU.
        assert_nothing_is_left_after(&scene, headstart(words.iter().chain(&QEMU)), signal, 2);
    }
    assert_eq!(scene.names(), ["little.iso", "tmp", "tree"]);
}
