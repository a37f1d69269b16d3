//! The installed program as services of a real systemd: in a guest, whose systemd may be asked for anything.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::boots::{GUEST, boot, debian};
use crate::install;
use crate::scene::{Scene, has_tools, machine_has, run, tool};

/// What the guest does once it is up. Each line that it prints is judged by the test; `wait_for` tries for
/// five minutes.
const SCRIPT: &str = r#"#!/bin/sh
wait_for() { for _ in $(seq 3000); do "$@" && return; busybox sleep 0.1; done; echo "in vain: $*"; }
is() { [ "$(eval "$1")" = "$2" ]; }
main() { systemctl show -P MainPID "$1"; }
server() { headstart status --json "$1" | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p'; }
compare() { cmp /srv/tree/numbers /images/numbers && echo "$1: the same"; }
say() { echo "said: $*"; }

reasons() { journalctl --sync; journalctl -u "$1" -o cat | grep -c "$2"; }
systemctl start headstart@inner || say no FUSE: $([ $(reasons headstart@inner 'modprobe fuse') -gt 0 ] && echo said)
systemctl stop headstart@inner; systemctl reset-failed headstart@inner
for unit in headstart headstart-serve; do
    systemctl enable --now $unit@nowhere ||
        say $unit unconfigured: $([ $(reasons $unit@nowhere '/etc/headstart/nowhere.conf is missing') -gt 0 ] && echo said)
    systemctl disable --now $unit@nowhere
done

busybox insmod /images/fuse.ko && busybox insmod /images/loop.ko

systemctl start headstart@inner && say mounted
say metrics: $(busybox wget -q -O - http://127.0.0.1:980/metrics | grep -c '^headstart_start_time_seconds{')
compare mounted
say filters: $(grep Seccomp: /proc/$(main headstart@inner)/status)
first=$(server /srv/disk)
kill -9 $first
wait_for [ "$first" != "$(server /srv/disk)" ]
echo 3 >/proc/sys/vm/drop_caches
compare 'after a kill'
say name: $(cat /proc/$(server /srv/disk)/comm)
say restarts of systemd: $(systemctl show -P NRestarts headstart@inner)
kill -9 $(main headstart@inner) $(server /srv/disk)
wait_for is 'systemctl show -P NRestarts headstart@inner' 1
wait_for is 'systemctl is-active headstart@inner' active
compare 'after two kills'
journalctl --sync
say journal: $(journalctl -u headstart@inner -o cat | grep -c 'ended by signal 9')
systemctl stop headstart@inner && say stopped: $(systemctl is-active headstart@inner) $(grep -c headstart /proc/mounts)

systemctl start srv-disk.mount && say fstab mounted
compare fstab
systemctl stop srv-disk.mount && say fstab unmounted: $(grep -c headstart /proc/mounts)

systemctl start headstart-serve@clients && say serving
say $(headstart status --json | sed -n 's/.*"\(nbd:[^"]*\)".*/\1/p')
busybox wget -q -O /run/got http://127.0.0.1:8080/first.hsi && cmp /run/got /images/inner.hsi && say fetched
wait_for grep -q first.hsi /var/log/headstart/clients/access
say logged: $(grep -c first.hsi /var/log/headstart/clients/access)
mv /var/log/headstart/clients/access /var/log/headstart/clients/access.1
systemctl reload headstart-serve@clients && wait_for [ -e /var/log/headstart/clients/access ]
say reloaded: $(grep -c first.hsi /var/log/headstart/clients/access) $(systemctl is-active headstart-serve@clients)
kill -9 $(server /images/inner.hsi)
wait_for is "headstart status --json | grep -c nbd:" 1
say filters: $(grep Seccomp: /proc/$(main headstart-serve@clients)/status)
clients=$(server /images/inner.hsi | head -n 1)
user=$(stat -c %u /proc/$clients)
# The range of users that systemd makes up: systemd.exec(5).
[ "$user" -ge 61184 ] && [ "$user" -le 65519 ] && say a user of its own
say privileges: $(grep NoNewPrivs: /proc/$clients/status)
say limits: $(systemctl show -P TasksMax headstart-serve@clients) $(systemctl show -P TasksMax headstart@inner)
systemctl stop headstart-serve@clients && say stopped: $(systemctl is-active headstart-serve@clients)

systemctl start app && wait_for [ -e /var/lib/app/said ]
say app: $(cat /var/lib/app/said)
systemctl stop headstart@app && say app stopped: $(systemctl is-active app) $(grep -c /srv/app /proc/mounts)

systemctl start headstart@broken ||
    say broken: $([ $(reasons headstart@broken "Failed with result 'exit-code'") -gt 0 ] && echo exit-code)
echo all said
"#;

const SERVICE: &str = "[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/local/bin/try-services
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
[Install]
WantedBy=multi-user.target
";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// The service of an image that docs/SERVICE.md shows.
fn shown_unit() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SERVICE.md");
    let page = fs::read_to_string(page).expect("the page");
    let unit = page.split("```\n").find(|block| block.starts_with("# /etc/systemd/system/app.service\n"));
    unit.expect("the page shows it").to_owned()
}

/// A root with a program that says what it can write to, and goes on.
fn app_image(scene: &Scene, image: &Path) {
    for folder in ["bin", "dev", "proc", "run", "sys", "tmp", "var/lib/app"] {
        fs::create_dir_all(scene.path("app").join(folder)).expect("made");
    }
    fs::copy("/bin/busybox", scene.path("app/bin/busybox")).expect("copied");
    let app = scene.path("app/usr/bin/app");
    write(
        &app,
        "#!/bin/busybox sh\necho >/tmp/new && ! echo >/new && echo 'in its root' >/var/lib/app/new &&\n\
         /bin/busybox mv /var/lib/app/new /var/lib/app/said\nexec /bin/busybox sleep 3000\n",
    );
    fs::set_permissions(app, fs::Permissions::from_mode(0o755)).expect("executable");
    run(["build", &scene.arg("app"), "-o", &image.display().to_string(), "--codec", "zstd:1"]).ok();
}

/// The guest's kernel has these as modules.
fn module(name: &str) -> Option<PathBuf> {
    let kernels = fs::read_dir("/usr/lib/uml/modules").ok()?.flatten();
    kernels.map(|kernel| kernel.path().join("kernel").join(name)).find(|path| path.exists())
}

/// A Debian with the program installed, as `make install` does it, and its services configured.
fn image_with_services(scene: &Scene, modules: [PathBuf; 2]) -> String {
    let root = scene.path("root");
    tool("cp", &["-a", debian(), &root.display().to_string()]);
    install::make("install", "/usr/local", &scene.arg("root"));
    tool("strip", &[&root.join("usr/local/bin/headstart").display().to_string()]);
    let numbers: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    write(&scene.path("inner/numbers"), &numbers);
    write(&root.join("images/numbers"), &numbers);
    let inner = scene.arg("root/images/inner.hsi");
    run(["build", &scene.arg("inner"), "-o", &inner, "--codec", "zstd:1"]).ok();
    for (module, name) in modules.iter().zip(["fuse.ko", "loop.ko"]) {
        fs::copy(module, root.join("images").join(name)).expect("copied");
    }
    fs::copy("/bin/busybox", root.join("usr/bin/busybox")).expect("copied");
    for folder in ["srv/disk", "srv/tree", "srv/app/disk", "srv/app/root"] {
        fs::create_dir_all(root.join(folder)).expect("made");
    }
    let inner = "IMAGE=/images/inner.hsi\nDIR=/srv/disk\n";
    // A port that only root may take.
    let options = "OPTIONS=--fs /srv/tree --medium none --metrics 127.0.0.1:980\n";
    write(&root.join("etc/headstart/inner.conf"), &format!("{inner}{options}"));
    write(&root.join("etc/headstart/broken.conf"), &inner.replace("inner.hsi", "numbers"));
    write(
        &root.join("etc/headstart/clients.conf"),
        "IMAGES=first=/images/inner.hsi\nOPTIONS=--nbd 127.0.0.1:10809 --http 127.0.0.1:8080 --access-log /var/log/headstart/clients/access\n",
    );
    write(
        &root.join("etc/fstab"),
        "/images/inner.hsi /srv/disk headstart fs=/srv/tree,noauto,nofail,x-systemd.requires-mounts-for=/images 0 0\n",
    );
    write(&root.join("usr/local/bin/try-services"), SCRIPT);
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(root.join("usr/local/bin/try-services"), executable).expect("executable");
    let units = root.join("etc/systemd/system");
    write(&units.join("try-services.service"), SERVICE);
    app_image(scene, &root.join("images/app.hsi"));
    let app = "IMAGE=/images/app.hsi\nDIR=/srv/app/disk\nOPTIONS=--fs /srv/app/root\n";
    write(&root.join("etc/headstart/app.conf"), app);
    write(&units.join("app.service"), &shown_unit());
    symlink("../try-services.service", units.join("multi-user.target.wants/try-services.service"))
        .expect("a link");
    let image = scene.arg("services.hsi");
    run(["build", &scene.arg("root"), "-o", &image, "--free", "64M", "--codec", "zstd:1"]).ok();
    image
}

#[test]
fn services_of_a_real_systemd_mount_serve_and_are_started_again() {
    if !machine_has(&[GUEST, &["/usr/bin/mmdebstrap"]].concat()) || !has_tools(&["make", "install", "strip"])
    {
        return;
    }
    let modules =
        [module("fs/fuse/fuse.ko"), module("drivers/block/loop.ko")].map(|found| found.expect("a module"));
    let scene = Scene::new();
    scene.folder("tmp");
    let image = image_with_services(&scene, modules);
    let console = scene.arg("console");
    let flags = [
        "--memory",
        "512M",
        "--ready",
        "^all said|Failed to start try-services",
        "--ready-timeout",
        "1200",
        "--console",
        &console,
    ];
    boot(&scene, &image, &flags).ok();
    let console = fs::read_to_string(scene.path("console")).expect("the console");
    let said: Vec<&str> = console.lines().filter_map(|line| line.trim_end().strip_prefix("said: ")).collect();
    assert_eq!(
        said,
        [
            "no FUSE: said",
            "headstart unconfigured: said",
            "headstart-serve unconfigured: said",
            "mounted",
            "metrics: 1",
            "filters: Seccomp: 2",
            "name: headstart",
            "restarts of systemd: 0",
            "journal: 1",
            "stopped: inactive 0",
            "fstab mounted",
            "fstab unmounted: 0",
            "serving",
            "nbd://127.0.0.1:10809/first",
            "fetched",
            "logged: 1",
            "reloaded: 0 active",
            "filters: Seccomp: 2",
            "a user of its own",
            "privileges: NoNewPrivs: 1",
            "limits: 1024 512",
            "stopped: inactive",
            "app: in its root",
            "app stopped: inactive 0",
            "broken: exit-code",
        ],
        "{console}"
    );
    for which in ["mounted", "after a kill", "after two kills", "fstab"] {
        assert!(console.contains(&format!("{which}: the same")), "{which}: {console}");
    }
    assert!(!console.contains("in vain"), "{console}");
    scene.wait_until_clean();
}
