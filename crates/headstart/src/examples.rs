//! The definition of all commands, with examples for the end of every command's help and man page.

use clap::{Command, CommandFactory};
use hs_output::installed::with_pages;

use crate::cli::{Cli, groups};
use crate::{outputs, sources};

/// So many examples are in a short help.
const SHORT_EXAMPLES: usize = 2;

/// What is typed, by command.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "headstart build /srv/root -o root.hsi",
            "headstart profile root.hsi -o start.hsp -- python3 -c 'import pandas'",
            "headstart optimize root.hsi --profile start.hsp -o fast.hsi",
            "headstart run fast.hsi -- python3 -c 'import pandas'",
        ],
    ),
    (
        "build",
        &[
            "headstart build /srv/root -o root.hsi",
            "headstart build /srv/root -o release.hsi --codec zstd:19     # slower, and smaller",
            "headstart build root.tar.gz -o root.hsi                      # or -, for standard input",
            "headstart build docker://python:3.12-slim -o python.hsi      # then: headstart run python.hsi",
            "headstart build vm.qcow2 -o vm.hsi",
            "headstart build disk.raw -o disk.hsi --codec zstd:3 --window 256K",
            "headstart build /srv/root -o fast.hsi --profile start.hsp",
            "headstart build /srv/root -o v2.hsi --like v1.hsi            # an update that moves little",
        ],
    ),
    (
        "profile",
        &[
            "headstart profile root.hsi -o start.hsp --ready listening -- /usr/sbin/server",
            "headstart profile root.hsi -o start.hsp -- python3 -c 'import pandas'",
        ],
    ),
    (
        "optimize",
        &[
            "headstart optimize root.hsi --profile start.hsp -o fast.hsi",
            "headstart optimize root.hsi -p first.hsp -p second.hsp -o fast.hsi",
            "headstart optimize newer.hsi -p start.hsp -o fast.hsi       # of another build of the root",
        ],
    ),
    (
        "pack",
        &[
            "headstart pack disk.qcow2 -o plain.hspk                     # then: boot plain.hspk --record boot.hsp",
            "headstart pack disk.qcow2 -p boot.hsp -o boot.hspk",
            "headstart pack https://HOST/disk.qcow2 -p boot.hsp -o boot.hspk    # then: boot with --base",
            "headstart pack /dev/vg/huge -p boot.hsp -o boot.hspk --sampled",
        ],
    ),
    (
        "commit",
        &[
            "headstart commit fast.hsi changes.hsk -o newer.hsi",
            "headstart commit fast.hsi changes.hsk -o changes.hsi --delta    # then: run changes.hsi --base fast.hsi",
            "headstart commit fast.hsi changes.hsk -o older.hsi --snapshot before-upgrade",
        ],
    ),
    (
        "install",
        &[
            "headstart install /dev/sdX --root /srv/root",
            "headstart install disk.raw --size 8G --root fast.hsi        # a file, for a virtual machine",
            "headstart install /dev/sdX                                  # what is on it",
            "headstart install /dev/sdX --update newer.hsi --without-writes",
            "headstart install /dev/sdX --update https://example.org/stable#key=KEY --without-writes",
        ],
    ),
    (
        "mount",
        &[
            "headstart mount fast.hsi /mnt/disk                  # the disk is /mnt/disk/disk.img",
            "headstart mount fast.hsi /mnt/disk --fs /mnt/root   # umount /mnt/root ends both",
            "headstart mount fast.hsi /mnt/disk --foreground --clear-dead",
            "headstart mount fast.hsi /mnt/disk --json",
            "mount -t headstart fast.hsi /mnt/disk -o fs=/mnt/root",
        ],
    ),
    (
        "serve",
        &[
            "headstart serve fast.hsi --nbd localhost        # qemu-img info nbd://localhost/fast",
            "headstart serve fast.hsi --http 0.0.0.0:8080    # run http://HOST:8080/fast.hsi#hs1-... -- CMD",
            "headstart serve root=fast.hsi data.hsi --nbd unix:/run/disks.sock",
            "headstart serve fast.hsi --vhost-user-blk /run/disk.sock    # docs/VHOST.md has QEMU's flags",
            "headstart serve fast.hsi --ublk 0    # mount -o ro /dev/ublkb0 /mnt",
            "headstart serve fast.hsi --nbd localhost:0 --emulate flat-10ms-25mbs --json",
            "headstart serve fast.hsi --nbd 0.0.0.0 --tls-certificates /etc/pki/nbd --tls-verify-peer",
            "nbdfuse /mnt/disk nbd+unix:///root?socket=/run/disks.sock    # the disk is /mnt/disk/nbd",
        ],
    ),
    (
        "attach",
        &[
            "headstart attach fast.hsi disk.raw    # qemu: -drive file=disk.raw,format=raw,readonly=on",
            "headstart attach fast.hsi disk.raw --foreground --no-fill",
            "headstart attach fast.hsi disk.raw --json",
        ],
    ),
    ("fill", &["headstart fill disk.raw", "headstart fill disk.raw --image moved.hsi --json"]),
    (
        "report",
        &[
            "headstart report start.hsp fast.hsi -o start.html       # the start, with names of files",
            "headstart report before.json after.json -o compared.html",
            "headstart report start.hsp -o start.pftrace             # for ui.perfetto.dev",
            "headstart report start.hsp -o start.iolog               # for fio --read_iolog",
        ],
    ),
    ("detach", &["headstart detach disk.raw", "headstart detach disk.raw --incomplete --json"]),
    ("accelerate on", &["headstart accelerate on", "headstart accelerate on --no-initramfs"]),
    ("accelerate off", &["headstart accelerate off"]),
    ("accelerate status", &["headstart accelerate status", "headstart accelerate status --json"]),
    ("accelerate record", &["headstart accelerate record --root /srv --list app.pages -- /srv/bin/app"]),
    ("accelerate warm", &["headstart accelerate warm --root /srv --list app.pages"]),
    (
        "accelerate now",
        &[
            "headstart accelerate now --dry-run",
            "headstart accelerate now",
            "headstart accelerate now -p start.hsp",
        ],
    ),
    ("snapshotter serve", &["headstart snapshotter serve", "headstart snapshotter serve -- --cache 256M"]),
    ("snapshotter add", &["headstart snapshotter add docker://python:3.12-slim /images/python.hsi"]),
    ("snapshotter remove", &["headstart snapshotter remove docker://python:3.12-slim"]),
    ("snapshotter list", &["headstart snapshotter list", "headstart snapshotter list --json"]),
    ("overlay list", &["headstart overlay list changes.hsk", "headstart overlay list *.hsk --json"]),
    ("overlay check", &["headstart overlay check changes.hsk"]),
    ("overlay compact", &["headstart overlay compact changes.hsk"]),
    (
        "overlay snapshot",
        &[
            "headstart overlay snapshot changes.hsk before-upgrade",
            "headstart overlay revert changes.hsk before-upgrade",
        ],
    ),
    ("overlay revert", &["headstart overlay revert changes.hsk before-upgrade"]),
    ("overlay delete", &["headstart overlay delete changes.hsk before-upgrade"]),
    ("cache show", &["headstart cache", "headstart cache show --json"]),
    ("cache clear", &["headstart cache clear", "headstart cache clear --disk-cache /srv/cache"]),
    (
        "cache fill",
        &[
            "headstart cache fill https://host/fast.hsi",
            "headstart cache fill oci://registry.example/images/fast:1 --json",
        ],
    ),
    ("cache limit", &["headstart cache limit 10G", "headstart cache limit 0      # keep nothing"]),
    (
        "push",
        &[
            "headstart push fast.hsi oci://registry.example/images/fast:1",
            "headstart push fast.hsi oci+http://localhost:5000/fast --json",
            "headstart push fast.hsi s3://images/fast.hsi      # not Amazon's: AWS_ENDPOINT_URL",
            "headstart push --abandon s3://images/fast.hsi     # remove an interrupted upload",
            "headstart push start.hsp docker://registry.example/app:1    # a recorded start of a container's image",
        ],
    ),
    (
        "convert",
        &[
            "headstart convert docker://registry.example/app:1",
            "headstart convert docker://registry.example/app:1 --record    # with a hot region for its start",
            "headstart convert docker://registry.example/app:1 --annotate docker://registry.example/app:1-headstart",
            "headstart run docker://registry.example/app:1 --insecure      # starts from the conversion",
        ],
    ),
    (
        "bundle",
        &[
            "headstart bundle app.hsi /run/app && runc run -b /run/app app",
            "headstart bundle --remove /run/app",
        ],
    ),
    ("keygen", &["headstart keygen publisher      # publisher.key is secret, publisher.pub is public"]),
    (
        "sign",
        &[
            "headstart sign fast.hsi --key publisher.key                                  # fast.hsi.minisig",
            "headstart sign fast.hsi --key publisher.key --channel stable --expires 30    # stable.minisig",
        ],
    ),
    ("status", &["headstart status", "headstart status /mnt/root", "headstart status fast.hsi --json"]),
    ("top", &["headstart top", "headstart top /mnt/root --interval 0.5", "headstart top -n 1 fast.hsi"]),
    (
        "run",
        &[
            "headstart run fast.hsi -- python3 -c 'import pandas'",
            "headstart run fast.hsi --emulate flat-10ms-25mbs --json=summary.json -- /bin/true",
        ],
    ),
    (
        "boot",
        &[
            "headstart boot root.hsi --emulate flat-10ms-25mbs-serial",
            "headstart boot root.hsi --record boot.hsp",
            "headstart boot disk.raw --warm --console console.log",
            "headstart boot root.hsi --record boot.hsp --guest-read-ahead kernel   # for other hosts",
            "headstart boot root.hsi --vmm qemu                 # the kernel in its /boot, by KVM if it works",
            "headstart boot root.hsi --vmm qemu --kernel vmlinuz --initrd initrd.img --emulate cd-24x-cav",
            "headstart boot root.hsi --vmm qemu --network --forward 8080:80 --run-after-ready 60",
            "headstart boot live.iso --vmm qemu --record guest.hsp   # of `iso`: it records itself",
            "headstart boot root.hsi --vmm qemu --ready login: --snapshot-out ready.hsi      # for `resume`",
            "headstart boot root.hsi --bad-sectors 10M+64K --bad-sectors 30M+2Kx2   # a damaged disc",
        ],
    ),
    (
        "resume",
        &[
            "headstart resume ready.hsi --type root --type id --ready uid=0",
            "headstart resume ready.hsi --type root --type id --ready uid=0 --record resume.hsp",
            "headstart resume ready-fast.hsi --disk debian-fast.hsi --type root --type id --ready uid=0",
            "headstart resume ready.hsi --keep mine.hsk --type root --type id --ready uid=0   # its writes last",
        ],
    ),
    ("import", &["headstart import KNOPPIX.cloop -o knoppix.hsi"]),
    (
        "export",
        &[
            "headstart export fast.hsi -o disk.raw --format raw",
            "headstart export fast.hsi -o disk.qcow2 --format qcow2 --compress",
        ],
    ),
    (
        "inspect",
        &[
            "headstart inspect fast.hsi",
            "headstart inspect start.hsp --csv >reads.csv",
            "headstart inspect start.hsp --layers root.hsi",
            "headstart inspect boot.csv   # of `boot live.iso --trace boot.csv`: stages and files",
        ],
    ),
    ("verify", &["headstart verify fast.hsi", "headstart verify disk.hsi --against disk.raw"]),
    (
        "lab disk",
        &[
            "headstart lab disk foreign.squashfs /mnt/disk --emulate flat-10ms-25mbs --json",
            "headstart lab disk live.iso --nbd localhost --emulate cd-24x-cav   # -cdrom nbd://localhost",
        ],
    ),
    ("lab media", &["headstart lab media"]),
    (
        "lab predict",
        &[
            "headstart lab predict fast.hsi --profile start.hsp --emulate cd-24x-cav",
            "headstart lab predict fast.hsi -p start.hsp --compare hdd-7200,nvme,raw,unoptimized,optimized",
            "headstart lab predict start.hsp --emulate lan-1g --layout optimized --clients 1,10000 --within 9",
            "headstart lab predict start.hsp --emulate wan-20ms --clients 1000 --edge-cache lan-1g",
        ],
    ),
    (
        "lab replay",
        &[
            "headstart lab replay start.hsp --emulate sd-uhs1",
            "headstart lab replay fio.log --emulate mine.toml --depth 16 --json",
            "headstart lab replay blkparse.txt --on /dev/nvme0n1    # it is only read",
            "headstart lab replay start.hsp --on /mnt/disk/disk.img --cached --until-ready --think-times",
        ],
    ),
    (
        "lab calibrate",
        &[
            "headstart lab calibrate /dev/sdb -o stick.toml --name stick",
            "headstart lab calibrate /srv/large.file --time 3 --json",
        ],
    ),
    (
        "lab trace",
        &[
            "headstart lab trace /dev/sda --csv requests.csv -- tar cf /dev/null /usr",
            "headstart lab trace /var/lib --time 10 --json",
        ],
    ),
    ("lab list", &["headstart lab list"]),
    (
        "lab run",
        &[
            "headstart lab run merge-1991",
            "headstart lab run fairness --seed 7 --json >fairness.json",
            "headstart lab run all --out results",
            "sudo headstart lab run flash-elevators-2012 --real",
        ],
    ),
    (
        "completions",
        &[
            "headstart completions bash >~/.local/share/bash-completion/completions/headstart",
            "headstart completions fish >~/.config/fish/completions/headstart.fish",
        ],
    ),
    (
        "iso",
        &[
            "headstart iso /srv/root -o live.iso",
            "headstart iso root.hsi -o live.iso --label CLASSROOM --append quiet",
            "headstart boot live.iso --memory 1G --emulate cd-24x-cav",
        ],
    ),
    ("doctor", &["headstart doctor", "headstart doctor --json"]),
    (
        "demo",
        &[
            "headstart demo --out demo-out",
            "headstart demo --story start --repeats 1",
            "headstart demo --story boot --emulate-boot hdd-7200",
        ],
    ),
];

/// The definitions of all commands, with their examples.
pub(crate) fn command() -> Command {
    let program = Cli::command().mut_subcommands(|inner| with_examples(inner, ""));
    let groups = groups::list(&program);
    let flags = "Options:\n  -h, --help       Print help; `headstart help COMMAND` for a command\n  -V, --version    Print \
                 the version\n  -q, --quiet      Print errors only\n  -v, --verbose    Print more; twice prints every detail";
    let examples = of("").unwrap_or_default();
    let with = |examples: &[&str]| format!("{groups}{flags}\n\n{}", text_of(examples));
    // The list of commands fills the screen.
    let few = &examples[..examples.len().min(1)];
    program.after_help(with(few)).after_long_help(with(examples))
}

/// Adds to a command, which is one of those of `group`, its examples, and so to those below it.
fn with_examples(command: Command, group: &str) -> Command {
    let path = path(group, command.get_name());
    let command = outputs::prepare(command.mut_subcommands(|inner| with_examples(inner, &path)), &path);
    with_own_examples(command, &path)
}

fn with_own_examples(command: Command, path: &str) -> Command {
    let command = match command.get_long_about().map(ToString::to_string) {
        Some(text) => command.long_about(with_pages(&text)),
        None => command,
    };
    match of(path) {
        Some(lines) => {
            let few = &lines[..lines.len().min(SHORT_EXAMPLES)];
            let table = if path == "build" { sources::table() + "\n\n" } else { String::new() };
            command.after_help(text_of(few)).after_long_help(table + &text_of(lines))
        }
        None => command,
    }
}

fn text_of(examples: &[&str]) -> String {
    let lines = examples.iter().map(|line| format!("\n  {line}")).collect::<String>();
    format!("Examples:{lines}")
}

/// How a command is called: `build`, or `lab disk`.
fn path(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group} {name}") }
}

/// What is typed, for the command called so.
pub(crate) fn of(name: &str) -> Option<&'static [&'static str]> {
    EXAMPLES.iter().find(|(known, _)| *known == name).map(|(_, lines)| *lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(command: &Command, group: &str, found: &mut Vec<String>) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            let path = path(group, inner.get_name());
            leaves(inner, &path, found);
            if !inner.has_subcommands() {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_command_has_examples_and_no_examples_are_left_over() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "", &mut found);
        for name in &found {
            assert!(of(name).is_some(), "{name} has no examples");
        }
        for (name, _) in EXAMPLES {
            let is_program = name.is_empty();
            assert!(is_program || found.iter().any(|found| found == name), "there is no command {name}");
        }
    }

    /// Those that call this program are usable as they stand.
    #[test]
    fn examples_parse() {
        for line in EXAMPLES.iter().flat_map(|(_, lines)| *lines) {
            let line =
                line.split(['#', '>', '&']).next().unwrap_or(line).replace("'import pandas'", "import");
            // A model's file is read where its name is understood.
            let line = line.replace("mine.toml", "hdd-7200");
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[0] == "headstart" {
                assert!(command().try_get_matches_from(&words).is_ok(), "{line}");
            }
        }
    }
}
