//! The command line of QEMU.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use hs_units::ByteSize;

use crate::first_program::RDINIT;
use crate::jail::{self, JailEntry};
use crate::network::Network;
use crate::resumable::Resumable;
use crate::root_device::root_device;
use crate::{GuestError, Input, Launch};

/// The program's usual name.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The least scratch with which a guest can begin: header and first tables of a qcow2 file, and some clusters
/// of 64 KiB.
pub const LEAST_SCRATCH_BYTES: u64 = 1 << 20;
/// The largest write that its NVMe drive takes (`mdts` of 7: 128 pages).
pub const LARGEST_WRITE_BYTES: u64 = 512 << 10;

/// QEMU drops the system calls that it does not need: those that change its privileges, and new processes.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
/// Where its firmware and its modules are, relative to the folder of the program.
const FOLDERS: [&str; 6] =
    ["share/qemu", "share/seabios", "lib/ipxe/qemu", "lib/qemu", "lib64/qemu", "lib/x86_64-linux-gnu/qemu"];

/// An item of QEMU's configuration of the firmware. The initramfs of a medium looks for it, and records the
/// start on the serial line that it names. Only the program that runs a machine can set it: no device that is
/// plugged into one can (QEMU, docs/specs/fw_cfg.rst).
pub const RECORD_ITEM: &str = "opt/org.headstart/record";
/// Another one: the initramfs of a medium has the machine tell of its processes on the serial line that it
/// names.
pub const PROCESSES_ITEM: &str = "opt/org.headstart/processes";
/// What stands in [`RECORD_ITEM`] behind the serial line, where the kernel is to read ahead.
pub const WITH_READ_AHEAD: &str = " read-ahead";
/// The second serial line, as the guest calls it.
const SECOND_LINE: &str = "/dev/ttyS1";

/// What a guest says on its second serial line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecondLine {
    /// Its processes, by a [first program](crate::first_program), to the socket that is QEMU's standard
    /// input. The initial RAM disk of a guest that begins with a kernel has to begin with that program. One
    /// that begins with firmware is asked for it.
    Processes,
    /// The profile of its start, which the initramfs of its medium records.
    Recording {
        /// Where this process listens.
        socket: PathBuf,
        /// What the kernel reads ahead is recorded too.
        reads_ahead: bool,
    },
}

impl SecondLine {
    fn words(&self) -> Vec<OsString> {
        let (mut words, backend) = match self {
            Self::Processes => (Vec::new(), "fd=0".into()),
            Self::Recording { socket, reads_ahead } => {
                let read_ahead = if *reads_ahead { WITH_READ_AHEAD } else { "" };
                let item = format!("name={RECORD_ITEM},string={SECOND_LINE}{read_ahead}");
                let mut path = OsString::from("path=");
                path.push(doubled_commas(socket.as_os_str()));
                (vec!["-fw_cfg".into(), item.into()], path)
            }
        };
        let mut device = OsString::from("socket,id=line,");
        device.push(backend);
        words.extend(["-chardev".into(), device, "-serial".into(), "chardev:line".into()]);
        words
    }

    fn jail_entry(&self) -> Option<JailEntry> {
        match self {
            Self::Processes => None,
            Self::Recording { socket, .. } => Some(JailEntry::Socket(socket.clone())),
        }
    }
}

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor itself, through `/dev/kvm`.
    Kvm,
    /// QEMU's translator, some ten times slower; it works everywhere.
    Tcg,
}

impl Accelerator {
    /// QEMU's name for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// The processor that a guest has, as QEMU names it.
    const fn usual_cpu(self) -> &'static str {
        match self {
            Self::Kvm => "max",
            // Saving and loading the registers that XSAVE is for takes the translator long.
            Self::Tcg => "max,-xsave",
        }
    }
}

/// How the guest sees its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// As `/dev/vda`, the least work for both sides.
    Virtio,
    /// As `/dev/nvme0n1`, for which more kernels have a built-in driver.
    Nvme,
    /// As a disc in a drive, `/dev/sr0`.
    Cd,
    /// As a USB stick, `/dev/sda`.
    Usb,
}

impl Bus {
    /// Its devices, the disk last. A disc's sectors are always of 2048 bytes.
    fn devices(self, sector_bytes: u32) -> Vec<String> {
        let (controller, disk) = match self {
            Self::Virtio => (None, "virtio-blk-pci,drive=disk,bootindex=1"),
            Self::Nvme => (None, "nvme,drive=disk,serial=headstart,bootindex=1"),
            Self::Cd => return vec!["ide-cd,drive=disk,bootindex=1".to_owned()],
            Self::Usb => (Some("qemu-xhci"), "usb-storage,drive=disk,removable=on,bootindex=1"),
        };
        let sectors = match sector_bytes {
            512 => String::new(),
            _ => format!(",logical_block_size={sector_bytes},physical_block_size={sector_bytes}"),
        };
        controller.map(str::to_owned).into_iter().chain([format!("{disk}{sectors}")]).collect()
    }

    const fn disk(self) -> &'static str {
        match self {
            Self::Virtio => "/dev/vda",
            Self::Nvme => "/dev/nvme0n1",
            Self::Cd => "/dev/sr0",
            Self::Usb => "/dev/sda",
        }
    }
}

/// Where QEMU reads the disk from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drive {
    /// From an NBD server on a socket file.
    Nbd {
        /// The socket.
        socket: PathBuf,
        /// The name of the export.
        export: String,
    },
    /// From a file, byte for byte.
    File(PathBuf),
}

impl Drive {
    /// QEMU's settings of it, each name behind `prefix`.
    pub(crate) fn words(&self, prefix: &str) -> OsString {
        let settings: Vec<(&str, &OsStr)> = match self {
            Self::File(path) => vec![("driver", "file".as_ref()), ("filename", path.as_os_str())],
            Self::Nbd { socket, export } => vec![
                ("driver", "nbd".as_ref()),
                ("server.type", "unix".as_ref()),
                ("server.path", socket.as_os_str()),
                ("export", export.as_ref()),
            ],
        };
        let mut words = OsString::new();
        for (name, value) in settings {
            words.push(if words.is_empty() { "" } else { "," });
            words.push(format!("{prefix}{name}="));
            words.push(doubled_commas(value));
        }
        words
    }
}

/// What the guest's processor begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A kernel that QEMU itself loads.
    Kernel {
        /// The kernel.
        kernel: PathBuf,
        /// Its first file system.
        initrd: Option<PathBuf>,
    },
    /// The firmware, which starts the disk's own boot loader.
    Firmware(Firmware),
}

/// The firmware of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// A BIOS; QEMU brings one.
    Bios,
    /// UEFI.
    Uefi {
        /// Its code.
        code: PathBuf,
        /// Its variables, which the guest may write.
        variables: PathBuf,
    },
}

/// A guest to be started.
#[derive(Clone, Debug)]
pub struct Qemu {
    /// The program.
    pub program: PathBuf,
    /// What it begins with.
    pub begin: Begin,
    /// The disk that it boots from.
    pub drive: Drive,
    /// The number of the partition with its root, for a kernel that is loaded; the root is the whole disk
    /// when not given.
    pub partition: Option<u32>,
    /// The disk's logical sectors.
    pub sector_bytes: u32,
    /// What it writes goes to the disk. Otherwise the disk never changes.
    pub keeps: bool,
    /// How the guest sees that.
    pub bus: Bus,
    /// What executes it.
    pub accelerator: Accelerator,
    /// QEMU's word for its processor; `None` for the usual one.
    pub cpu: Option<String>,
    /// An empty folder for what it writes to the disk.
    pub scratch: PathBuf,
    /// The guest's memory.
    pub memory: ByteSize,
    /// Its first program, when it is not the usual one.
    pub init: Option<String>,
    /// Further words for its kernel's command line.
    pub append: Vec<String>,
    /// What it has besides when it is to be saved.
    pub resumable: Option<Resumable>,
    /// What it says on a second serial line, if it has one.
    pub second_line: Option<SecondLine>,
    /// Its network card, and what that is connected to.
    pub network: Option<Network>,
}

impl Qemu {
    /// How it is started. What the guest writes goes to a temporary file in `scratch` that has no name
    /// (`snapshot=on`); the first serial port is the console.
    #[must_use]
    pub fn launch(&self) -> Launch {
        let mut command = self.machine(self.accelerator);
        match &self.resumable {
            Some(resumable) => {
                command.extend(resumable.machine_words(self.memory));
                command.extend(resumable.disk_words(&self.drive));
            }
            None => command.extend(["-drive".into(), self.drive()]),
        }
        for device in self.bus.devices(self.sector_bytes) {
            command.extend(["-device".into(), device.into()]);
        }
        command.extend(self.resumable.iter().flat_map(Resumable::agent_words));
        command.extend(self.network.iter().flat_map(Network::words));
        let mut jail_entries = self.jail_entries(self.accelerator);
        if let Some(line) = &self.second_line {
            command.extend(line.words());
            jail_entries.extend(line.jail_entry());
        }
        if self.tells_processes() && matches!(self.begin, Begin::Firmware(_)) {
            let item = format!("name={PROCESSES_ITEM},string={SECOND_LINE}");
            command.extend(["-fw_cfg".into(), item.into()]);
        }
        match &self.begin {
            Begin::Kernel { initrd, .. } => {
                command.extend(["-append".into(), self.kernel_words().into()]);
                if let Some(initrd) = initrd {
                    command.extend(["-initrd".into(), doubled_commas(initrd.as_os_str())]);
                    jail_entries.push(JailEntry::File(initrd.clone()));
                }
            }
            // Boot loaders and firmware write to a screen.
            Begin::Firmware(Firmware::Bios) => command.extend(["-vga".into(), "std".into()]),
            Begin::Firmware(Firmware::Uefi { code, variables }) => {
                command.extend(["-vga".into(), "std".into()]);
                for (file, more) in [(code, ",readonly=on"), (variables, "")] {
                    let mut drive = OsString::from("if=pflash,format=raw,file=");
                    drive.push(doubled_commas(file.as_os_str()));
                    drive.push(more);
                    command.extend(["-drive".into(), drive]);
                }
                jail_entries.push(JailEntry::File(code.clone()));
            }
        }
        jail_entries.push(Self::drive_entry(&self.drive));
        jail_entries.extend(self.resumable.iter().flat_map(Resumable::jail_entries));
        jail_entries.extend(self.network.iter().flat_map(Network::jail_entries));
        Launch {
            input: if self.tells_processes() { Input::Watch } else { Input::None },
            has_network: self.network.as_ref().is_some_and(Network::is_connected),
            ..launch_of(&self.scratch, command, self.accelerator, jail_entries)
        }
    }

    pub(crate) fn drive_entry(drive: &Drive) -> JailEntry {
        match drive {
            Drive::Nbd { socket, .. } => JailEntry::Socket(socket.clone()),
            Drive::File(path) => JailEntry::Disk(path.clone()),
        }
    }

    /// A trial of `accelerator`: the same kernel without a disk, which gives up as soon as it looks for one.
    /// Only of a guest that begins with a kernel.
    #[must_use]
    pub fn trial(&self, accelerator: Accelerator) -> Launch {
        let mut command = self.machine(accelerator);
        command.extend(["-append".into(), "console=ttyS0 panic=-1".into()]);
        launch_of(&self.scratch, command, accelerator, self.jail_entries(accelerator))
    }

    /// What every guest of it needs of this machine.
    fn jail_entries(&self, accelerator: Accelerator) -> Vec<JailEntry> {
        let mut jail_entries = program_entries(&self.program, accelerator);
        jail_entries.push(JailEntry::Own(self.scratch.clone()));
        if let Begin::Kernel { kernel, .. } = &self.begin {
            jail_entries.push(JailEntry::File(kernel.clone()));
        }
        jail_entries
    }

    fn machine(&self, accelerator: Accelerator) -> Vec<OsString> {
        let portable = self.resumable.as_ref().map(|resumable| resumable.cpu.as_str());
        let cpu = portable.or(self.cpu.as_deref()).unwrap_or(accelerator.usual_cpu());
        let mut command = base_command(&self.program, accelerator, self.memory, cpu);
        let has_place = self.resumable.as_ref().is_none_or(|resumable| resumable.has_second_place);
        command.extend(places(accelerator, has_place));
        if let Begin::Kernel { kernel, .. } = &self.begin {
            command.extend(["-kernel".into(), kernel.clone().into_os_string()]);
        }
        command
    }

    fn tells_processes(&self) -> bool {
        self.second_line == Some(SecondLine::Processes)
    }

    fn drive(&self) -> OsString {
        // Nothing can be written to a disc; what is written to another disk goes to scratch.
        let mut drive = OsString::from(match self.bus {
            Bus::Cd => "if=none,id=disk,format=raw,media=cdrom,readonly=on,",
            // A flush of the guest is one of the disk. A write that fails is an error of the guest: QEMU
            // would stop it when the medium is full, and nothing lets it go on.
            _ if self.keeps => "if=none,id=disk,format=raw,cache=writeback,discard=unmap,werror=report,",
            Bus::Virtio | Bus::Nvme | Bus::Usb => "if=none,id=disk,format=raw,snapshot=on,",
        });
        drive.push(self.drive.words("file."));
        drive
    }

    /// Linux looks early whether its timer ticks, and gives up if it does not within so many turns of a loop
    /// ("IO-APIC + timer doesn't work!"); a translated one on a host that has no time for it is told to
    /// believe it.
    fn kernel_words(&self) -> String {
        let root = root_device(self.bus.disk(), self.partition);
        let mut words = format!("root={root} rw console=ttyS0 panic=-1 no_timer_check systemd.show_status=1");
        if self.tells_processes() {
            words.push_str(&format!(" rdinit={RDINIT}"));
        }
        for word in self.init.iter().map(|init| format!("init={init}")).chain(self.append.iter().cloned()) {
            words.push(' ');
            words.push_str(&word);
        }
        words
    }
}

/// No network card, no screen, no monitor, nothing of the user's own configuration; a guest that restarts has
/// ended.
pub(crate) fn base_command(
    program: &Path,
    accelerator: Accelerator,
    memory: ByteSize,
    cpu: &str,
) -> Vec<OsString> {
    let memory = format!("{}M", memory.0.div_ceil(1 << 20));
    let mut command = vec![program.to_owned().into_os_string()];
    command.extend(
        ["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"]
            .map(OsString::from),
    );
    command.extend(["-sandbox", SANDBOX].map(OsString::from));
    command.extend(["-serial", "stdio", "-cpu", cpu, "-accel"].map(OsString::from));
    command.extend([accelerator.as_str().into(), "-m".into(), memory.into()]);
    command
}

/// A guest has one processor, and its machine a place for a second. For a machine with one place the
/// translator of QEMU before 8.1 leaves memory barriers out, and now and then a device of virtio misses a
/// request (QEMU's commit c914d46d0a).
pub(crate) fn places(accelerator: Accelerator, has_second_place: bool) -> Vec<OsString> {
    match accelerator {
        Accelerator::Tcg if has_second_place => ["-smp", "1,maxcpus=2"].map(OsString::from).into(),
        Accelerator::Tcg | Accelerator::Kvm => Vec::new(),
    }
}

/// QEMU and its files.
pub(crate) fn program_entries(program: &Path, accelerator: Accelerator) -> Vec<JailEntry> {
    let mut entries = vec![JailEntry::Program(program.to_owned())];
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    entries.extend(FOLDERS.iter().map(|folder| JailEntry::Folder(prefix.join(folder))));
    if accelerator == Accelerator::Kvm {
        entries.push(JailEntry::Device("kvm"));
    }
    entries
}

/// Its environment: QEMU keeps what the guest writes in a file in `TMPDIR`.
fn environment(scratch: &Path) -> Vec<(OsString, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let scratch = OsString::from(scratch);
    vec![("TMPDIR".into(), scratch.clone()), ("HOME".into(), scratch), ("PATH".into(), path)]
}

/// How QEMU is started, for every guest of it.
pub(crate) fn launch_of(
    scratch: &Path,
    command: Vec<OsString>,
    accelerator: Accelerator,
    jail_entries: Vec<JailEntry>,
) -> Launch {
    Launch {
        command,
        environment: environment(scratch),
        fixed_addresses: false,
        preloads: Vec::new(),
        jail_entries,
        groups: match accelerator {
            Accelerator::Kvm => jail::group_of("kvm").into_iter().collect(),
            Accelerator::Tcg => Vec::new(),
        },
        place: scratch.to_owned(),
        input: Input::None,
        small_pages: false,
        has_network: false,
    }
}

/// Finds [`PROGRAM`] in the folders of `path`.
///
/// # Errors
/// When it is not there, saying which package has it.
pub fn find_program(path: &OsStr) -> Result<PathBuf, GuestError> {
    std::env::split_paths(path)
        .map(|folder| folder.join(PROGRAM))
        .find(|candidate| candidate.is_file())
        // Its other files lie beside it, and not beside a link to it.
        .map(|found| found.canonicalize().unwrap_or(found))
        .ok_or(GuestError::QemuMissing)
}

/// The path of a file that the guest is given.
///
/// # Errors
/// When there is none.
pub fn find_file(named: &Path, flag: &'static str) -> Result<PathBuf, GuestError> {
    match named.canonicalize() {
        Ok(found) if found.is_file() => Ok(found),
        _ => Err(GuestError::FileMissing { path: named.to_owned(), flag }),
    }
}

/// In a list of options a comma ends a value, and two are one that does not.
pub(crate) fn doubled_commas(text: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = Vec::with_capacity(text.len());
    for &byte in text.as_bytes() {
        bytes.push(byte);
        if byte == b',' {
            bytes.push(byte);
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qemu() -> Qemu {
        Qemu {
            program: "/usr/bin/qemu-system-x86_64".into(),
            begin: Begin::Kernel { kernel: "/boot/vmlinuz".into(), initrd: None },
            drive: Drive::Nbd { socket: "/mnt/a,b/socket".into(), export: "disk".into() },
            partition: None,
            sector_bytes: 512,
            keeps: false,
            bus: Bus::Virtio,
            cpu: None,
            accelerator: Accelerator::Tcg,
            scratch: "/mnt/scratch".into(),
            memory: ByteSize(256 << 20),
            init: Some("/bin/sh".to_owned()),
            append: vec!["quiet".to_owned()],
            resumable: None,
            second_line: None,
            network: None,
        }
    }

    fn after(launch: &Launch, flag: &str) -> Vec<String> {
        let words: Vec<String> =
            launch.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn the_disk_comes_over_nbd_and_the_user_has_the_last_word() {
        let launch = qemu().launch();
        let [drive] = &after(&launch, "-drive")[..] else { panic!("one drive") };
        assert!(drive.contains("snapshot=on"), "{drive}");
        assert!(drive.ends_with("file.server.path=/mnt/a,,b/socket,file.export=disk"), "{drive}");
        let [words] = &after(&launch, "-append")[..] else { panic!("one command line") };
        assert!(words.starts_with("root=/dev/vda rw console=ttyS0"), "{words}");
        assert!(words.contains(" no_timer_check "), "{words}");
        assert!(words.ends_with("init=/bin/sh quiet"), "{words}");
        assert_eq!(after(&launch, "-m"), ["256M"]);
        assert_eq!(after(&launch, "-cpu"), ["max,-xsave"]);
        let model = Qemu { cpu: Some("Nehalem".into()), ..qemu() };
        assert_eq!(after(&model.launch(), "-cpu"), ["Nehalem"]);
        assert!(after(&launch, "-sandbox")[0].contains("elevateprivileges=deny"));
        assert!(launch.jail_entries.contains(&JailEntry::Socket("/mnt/a,b/socket".into())));
        assert!(!launch.jail_entries.contains(&JailEntry::Device("kvm")));
        assert!(after(&launch, "-initrd").is_empty());
        assert!(launch.environment.contains(&("TMPDIR".into(), "/mnt/scratch".into())));
    }

    #[test]
    fn files_and_buses_are_as_told() {
        let guest = Qemu {
            drive: Drive::File("/mnt/disk.img".into()),
            partition: Some(2),
            sector_bytes: 4096,
            bus: Bus::Nvme,
            begin: Begin::Kernel { kernel: "/boot/vmlinuz".into(), initrd: Some("/boot/initrd".into()) },
            ..qemu()
        };
        let launch = guest.launch();
        assert!(after(&launch, "-drive")[0].ends_with("file.driver=file,file.filename=/mnt/disk.img"));
        let device = &after(&launch, "-device")[0];
        assert!(device.starts_with("nvme,") && device.contains(",logical_block_size=4096"), "{device}");
        assert!(after(&launch, "-append")[0].starts_with("root=/dev/nvme0n1p2 "));
        assert_eq!(after(&launch, "-initrd"), ["/boot/initrd"]);
    }

    #[test]
    fn a_watched_guest_begins_with_our_first_program() {
        let launch = Qemu { second_line: Some(SecondLine::Processes), ..qemu() }.launch();
        assert_eq!(launch.input, Input::Watch);
        assert_eq!(after(&launch, "-serial"), ["stdio", "chardev:line"]);
        assert!(after(&launch, "-append")[0].contains(" rdinit=/headstart/init "));
        assert!(after(&launch, "-fw_cfg").is_empty());
        assert!(!after(&qemu().launch(), "-append")[0].contains("rdinit"));
    }

    #[test]
    fn only_a_guest_with_a_network_has_this_machines() {
        let launch = qemu().launch();
        assert!(!launch.has_network && after(&launch, "-netdev").is_empty());
        let network = |network| Qemu { network: Some(network), ..qemu() }.launch();
        let launch = network(Network::Connected { forwards: Vec::new() });
        assert!(launch.has_network && after(&launch, "-netdev") == ["user,id=net"]);
        assert_eq!(after(&launch, "-device").last().unwrap(), "virtio-net-pci,netdev=net,romfile=");
        let launch = network(Network::Unplugged);
        assert!(
            !launch.has_network && !launch.jail_entries.contains(&JailEntry::File("/etc/resolv.conf".into()))
        );
    }

    #[test]
    fn firmware_starts_the_disk_itself() {
        let disc = Qemu { begin: Begin::Firmware(Firmware::Bios), bus: Bus::Cd, ..qemu() }.launch();
        assert!(after(&disc, "-kernel").is_empty() && after(&disc, "-append").is_empty());
        assert!(after(&disc, "-drive")[0].contains("media=cdrom,readonly=on"));
        assert_eq!(after(&disc, "-device"), ["ide-cd,drive=disk,bootindex=1"]);
        let uefi = Firmware::Uefi { code: "/ovmf/CODE.fd".into(), variables: "/mnt/scratch/VARS.fd".into() };
        let stick = Qemu { begin: Begin::Firmware(uefi), bus: Bus::Usb, ..qemu() }.launch();
        let drives = after(&stick, "-drive");
        assert_eq!(drives[1], "if=pflash,format=raw,file=/ovmf/CODE.fd,readonly=on");
        assert_eq!(drives[2], "if=pflash,format=raw,file=/mnt/scratch/VARS.fd");
        assert!(stick.jail_entries.contains(&JailEntry::File("/ovmf/CODE.fd".into())));
        assert!(after(&stick, "-fw_cfg").is_empty() && stick.input == Input::None);
        assert_eq!(after(&stick, "-device").len(), 2);
    }

    #[test]
    fn a_watched_machine_is_told_by_its_firmware() {
        let begin = Begin::Firmware(Firmware::Bios);
        let disc = Qemu { begin, bus: Bus::Cd, second_line: Some(SecondLine::Processes), ..qemu() }.launch();
        assert_eq!(after(&disc, "-fw_cfg"), ["name=opt/org.headstart/processes,string=/dev/ttyS1"]);
        assert_eq!((disc.input, after(&disc, "-serial").len()), (Input::Watch, 2));
        assert!(after(&disc, "-append").is_empty());
    }

    #[test]
    fn a_guest_that_records_itself_is_told_by_its_firmware() {
        let begin = Begin::Firmware(Firmware::Bios);
        let second_line = Some(SecondLine::Recording { socket: "/mnt/a,b/line".into(), reads_ahead: false });
        let disc = Qemu { begin, bus: Bus::Cd, second_line, ..qemu() }.launch();
        assert_eq!(after(&disc, "-fw_cfg"), ["name=opt/org.headstart/record,string=/dev/ttyS1"]);
        assert_eq!(after(&disc, "-chardev"), ["socket,id=line,path=/mnt/a,,b/line"]);
        assert_eq!((disc.input, after(&disc, "-serial").len()), (Input::None, 2));
        assert!(disc.jail_entries.contains(&JailEntry::Socket("/mnt/a,b/line".into())));
    }

    #[test]
    fn a_trial_has_no_disk() {
        let launch = qemu().trial(Accelerator::Kvm);
        assert_eq!(after(&launch, "-accel"), ["kvm"]);
        assert!(after(&launch, "-smp").is_empty());
        assert_eq!(after(&qemu().trial(Accelerator::Tcg), "-smp"), ["1,maxcpus=2"]);
        assert!(launch.jail_entries.contains(&JailEntry::Device("kvm")));
        assert!(after(&launch, "-drive").is_empty() && after(&launch, "-initrd").is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_program(folder.path().as_os_str()).unwrap_err().to_string();
        assert!(error.contains("install the package qemu-system-x86"), "{error}");
        let error = find_file(&folder.path().join("vmlinuz"), "--kernel").unwrap_err().to_string();
        assert!(error.contains("vmlinuz") && error.contains("--kernel"), "{error}");
        std::fs::write(folder.path().join(PROGRAM), "").unwrap();
        assert!(find_program(folder.path().as_os_str()).is_ok());
        assert!(find_file(&folder.path().join(PROGRAM), "--kernel").is_ok());
    }
}
