//! Roots and machines for which starts are not accelerated, or not now; and copies of disks.

use std::path::Path;

use crate::accelerate::{Mounted, START, UUID, disk, records};
use crate::accelerate_switch::{Slow, System};
use crate::scene::{Scene, has_tools, run, tool};

#[test]
fn a_root_that_is_an_overlay_is_left_alone() {
    let Some(system) = System::new() else { return };
    let ran = system.script(
        "mkdir /up /merged; mount -t tmpfs up /up; mkdir /up/upper /up/work
        mount -t overlay -o lowerdir=/,upperdir=/up/upper,workdir=/up/work root /merged
        for link in bin sbin lib lib64; do test -L /$link || mount --rbind /$link /merged/$link; done
        for folder in usr proc sys dev program run; do mount --rbind /$folder /merged/$folder; done
        folder=/var/lib/headstart/accelerate; export folder
        exec chroot /merged /bin/sh -ec '
            for action in \"on --no-initramfs\" status \"now --force\" \"record -- true\" warm; do
                headstart accelerate $action || echo $action: $?
            done
            test ! -e $folder; mkdir -p $folder; touch $folder/on
            headstart-accelerate; echo a boot: $?
            headstart accelerate off >/dev/null; test ! -e $folder; echo is off'",
    );
    let expected =
        "on --no-initramfs: 1\nstatus: 1\nnow --force: 1\nrecord -- true: 1\nwarm: 1\na boot: 0\nis off\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected), "{ran:?}");
    let why = "/ is overlay: only ext4, XFS and btrfs are recorded";
    assert_eq!(ran.stderr.matches(why).count(), 6, "{ran:?}");
    assert!(ran.stderr.contains("nothing is read ahead"), "{ran:?}");
    system.scene.wait_until_clean();
}

/// Supplies of power: the machine's battery and its charger.
const SUPPLIES: &str = "cd /sys/class/power_supply; mount -t tmpfs supplies .; cd /sys/class/power_supply
    mkdir BAT0 AC; echo Battery >BAT0/type; echo Mains >AC/type
    power() { echo $1 >AC/online; echo $2 >BAT0/status; }
    ";

#[test]
fn on_its_battery_a_machine_is_not_laid_anew() {
    let Some(system) = System::new() else { return };
    let ran = system.script(&format!(
        "{SUPPLIES}
        power 0 Discharging
        headstart accelerate record -- cat /note/update-initramfs >/dev/null
        headstart accelerate now || echo refused $?
        headstart accelerate status | grep power
        headstart accelerate now -n | cut -d: -f1
        headstart accelerate now --force | cut -d: -f1
        power 1 Charging
        headstart accelerate status | grep power || echo mains
        echo 1 >/sys/dev/block/$(mountpoint -d /)/queue/rotational
        headstart accelerate now | cut -d: -f1"
    ));
    if !records(&ran) {
        return;
    }
    let nothing = "nothing to do\n";
    let expected = format!("refused 1\npower: battery\n{nothing}{nothing}mains\n{nothing}");
    assert_eq!((ran.code, ran.stdout), (Some(0), expected), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("this machine runs on its battery").count(), 1, "{}", ran.stderr);
    system.scene.wait_until_clean();
}

#[test]
fn a_layout_anew_ends_when_the_charger_is_pulled_out() {
    let Some(slow) = Slow::new() else { return };
    let ran = slow.slow_script(&format!(
        "{SUPPLIES}
        power 1 Charging
        echo 1 >/sys/dev/block/$(mountpoint -d /)/queue/rotational
        before=$(free)
        headstart accelerate now --json >/dev/shm/report.$$ & moving=$!
        until test $(free) -lt $((before - 1000)); do :; done
        power 0 Discharging
        wait $moving || echo ended $?
        grep -o '\"outcome\": \"[a-z]*\"' /dev/shm/report.$$
        rm /dev/shm/report.$$"
    ));
    let ended = "ended 1\n\"outcome\": \"stopped\"\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ended), "{ran:?}");
    assert!(ran.stderr.contains("runs on its battery now"), "{ran:?}");
    slow.system.scene.wait_until_clean();
}

#[test]
fn a_disk_that_is_copied_to_another_machine_has_its_list() {
    if !has_tools(&["mkfs.ext4", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "ext4", "disk", UUID);
    let mounted = Mounted::new(&scene, "disk");
    let start = ["--", "sh", "-c", START, mounted.arg()];
    if !records(&run([&["accelerate", "record", "--root", mounted.arg()][..], &start].concat())) {
        return;
    }
    // It may live on for a moment in other tests' namespaces.
    tool("sync", &["-f", mounted.arg()]);
    drop(mounted);
    tool("cp", &["--sparse=always", &scene.arg("disk"), &scene.arg("copy")]);
    let copy = Mounted::new(&scene, "copy");
    let warmed = run(["accelerate", "warm", "--root", copy.arg(), "--json"]).ok().json();
    assert!(warmed["pages"].as_u64() >= Some(12 * 5), "{warmed}");
    assert!(warmed["missing_files"] == 0 && warmed["stopped"].is_null(), "{warmed}");
    drop(copy);
    scene.wait_until_clean();
}

#[test]
fn a_snapshot_of_btrfs_has_a_list_of_its_own() {
    if !has_tools(&["mkfs.btrfs", "btrfs", "findmnt"]) {
        return;
    }
    let scene = Scene::new();
    disk(&scene, "btrfs", "disk", &format!("{}4", &UUID[..UUID.len() - 1]));
    let top = Mounted::new(&scene, "disk");
    let subvolume = |name: &str| format!("{}/{name}", top.arg());
    tool("btrfs", &["subvolume", "create", &subvolume("system")]);
    tool("cp", &["-a", &subvolume("a"), &subvolume("system")]);
    drop(top);
    let of = |mounted: &Mounted, action: &str, more: &[&str]| {
        run([&["accelerate", action, "--root", mounted.arg()][..], more].concat())
    };
    let record = |mounted: &Mounted| of(mounted, "record", &["--", "sh", "-c", START, mounted.arg()]);
    let status = |mounted: &Mounted| of(mounted, "status", &["--json"]).ok().json();
    let system = Mounted::by(&scene, "disk", "subvol=system");
    if !records(&record(&system)) {
        return;
    }
    let recorded = status(&system);
    assert_eq!(recorded["starts"], 1, "{recorded}");
    drop(system);
    let top = Mounted::new(&scene, "disk");
    tool(
        "btrfs",
        &["subvolume", "snapshot", &format!("{}/system", top.arg()), &format!("{}/later", top.arg())],
    );
    drop(top);

    // The snapshot has the other's list among its files, and does not believe it.
    let later = Mounted::by(&scene, "disk", "subvol=later");
    let theirs = Path::new(recorded["list"].as_str().expect("a path")).file_name().expect("a name");
    let theirs = later.path.join("var/lib/headstart/accelerate").join(theirs);
    let theirs = theirs.to_str().expect("UTF-8");
    later.accelerate("warm", theirs, &[]).fails(1, &["another file system or subvolume"]);
    of(&later, "warm", &[]).fails(1, &["record a start first"]);
    record(&later).ok();
    assert_eq!(status(&later)["starts"], 1);
    of(&later, "warm", &[]).ok();
    of(&later, "now", &[]).fails(1, &["holds btrfs", "the prefetch alone"]);
    drop(later);
    scene.wait_until_clean();
}
