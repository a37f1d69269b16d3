//! Guests of QEMU that are saved, or go on from what was saved: their part of its command line.
//!
//! ```text
//! saved:    memory file ◄──shared── guest ──► overlay of its writes ──► disk
//! resumed:  memory file ──private─► guest ──► new overlay ──► overlay as it was saved ──► disk
//!           its writes are kept:    guest ──► disk, which has the overlay as it was saved in it
//! ```
//!
//! The guest's memory is a file, so that QEMU's own format (a migration) has only the state of the devices.

use std::ffi::OsString;
use std::path::PathBuf;

use hs_units::ByteSize;

use crate::jail::JailEntry;
use crate::network::Network;
use crate::qemu::{
    Accelerator, Drive, Qemu, base_command, doubled_commas, launch_of, places, program_entries,
};
use crate::{Input, Launch};

/// The machine of a guest that is to be saved: an alias, whose full name has the version that devices have.
pub const MACHINE: &str = "pc";
/// Names on the command line: of the memory, of the disk, of the balloon, of the channel to the agent.
const MEMORY: &str = "memory";
const DISK: &str = "disk";
pub(crate) const BALLOON: &str = "balloon";
const AGENT: &str = "agent";
/// The name of the port in the guest, where `dist/resume` looks for it.
const AGENT_PORT: &str = "org.headstart.resume";

/// The processor of a guest that is to be saved: one that every machine can be.
#[must_use]
pub const fn portable_cpu(accelerator: Accelerator) -> &'static str {
    match accelerator {
        // The processor must have all of it, or QEMU does not start.
        Accelerator::Kvm => "qemu64,enforce",
        Accelerator::Tcg => "qemu64,+rdrand",
    }
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The file.
    pub path: PathBuf,
    /// Where the part begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
}

/// Where a guest's writes to its disk go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskWrites {
    /// Into this empty qcow2 file, which is saved with the guest.
    Saved(PathBuf),
    /// Into an empty qcow2 file, above what the guest had written when it was saved.
    Discarded {
        /// The empty file.
        overlay: PathBuf,
        /// A qcow2 file with what it had written.
        written: FilePart,
    },
    /// To its disk, which has what it had written when it was saved.
    Kept,
}

/// What a guest that can be saved has instead of plain memory and a temporary disk.
#[derive(Clone, Debug)]
pub struct Resumable {
    /// The socket of the monitor, on which this process listens.
    pub monitor: PathBuf,
    /// The machine, with its version when a guest is resumed.
    pub machine: String,
    /// The model of the processor.
    pub cpu: String,
    /// The guest's memory begins this file.
    pub memory_file: PathBuf,
    /// Where what the guest writes to its disk goes.
    pub writes: DiskWrites,
    /// The socket that is the guest's port for the agent, on which this process listens; snapshots of the
    /// first format have neither that nor a balloon.
    pub agent: Option<PathBuf>,
    /// Whether the translator's machine has a place for a second processor; snapshots of the first three
    /// formats do not.
    pub has_second_place: bool,
}

impl Resumable {
    /// Whether it was saved, and goes on.
    const fn is_resumed(&self) -> bool {
        !matches!(self.writes, DiskWrites::Saved(_))
    }

    /// The words for machine, memory and monitor. The id that tells the guest's kernel that it is another
    /// clone, and draws new random numbers, is new in each QEMU.
    pub(crate) fn machine_words(&self, memory: ByteSize) -> Vec<OsString> {
        let is_resumed = self.is_resumed();
        let mut machine = doubled_commas(self.machine.as_ref());
        machine.push(format!(",memory-backend={MEMORY}"));
        let mut file =
            OsString::from(format!("memory-backend-file,id={MEMORY},size={}M", memory.0.div_ceil(1 << 20)));
        file.push(if is_resumed { ",share=off,mem-path=" } else { ",share=on,mem-path=" });
        file.push(doubled_commas(self.memory_file.as_os_str()));
        let mut monitor = OsString::from("unix:");
        monitor.push(doubled_commas(self.monitor.as_os_str()));
        let words: [OsString; 8] = [
            "-machine".into(),
            machine,
            "-object".into(),
            file,
            "-qmp".into(),
            monitor,
            "-device".into(),
            "vmgenid,guid=auto".into(),
        ];
        let waits = ["-S", "-incoming", "defer"].map(OsString::from);
        words.into_iter().chain(waits.into_iter().filter(|_| is_resumed)).collect()
    }

    /// The words for the disk, whose lowest layer is `drive`.
    pub(crate) fn disk_words(&self, drive: &Drive) -> Vec<OsString> {
        let (overlay, written) = match &self.writes {
            DiskWrites::Saved(overlay) => (overlay, None),
            DiskWrites::Discarded { overlay, written } => (overlay, Some(written)),
            DiskWrites::Kept => {
                // A flush of the guest is one of the disk.
                let mut disk = OsString::from(format!("node-name={DISK},discard=unmap,"));
                disk.push(drive.words(""));
                return vec!["-blockdev".into(), disk];
            }
        };
        let mut base = OsString::from("node-name=base,read-only=on,");
        if let Drive::File(_) = drive {
            base.push("locking=off,");
        }
        base.push(drive.words(""));
        let mut nodes = vec![base];
        let mut below = "base";
        if let Some(FilePart { path, offset, bytes }) = written {
            // QEMU would drop the page cache of a file that it takes over, and with it the guest's memory.
            let mut node = OsString::from(format!(
                "node-name=written,driver=qcow2,read-only=on,backing={below},file.driver=raw,\
                 file.offset={offset},file.size={bytes},file.file.driver=file,file.file.locking=off,\
                 file.file.drop-cache=off,file.file.filename=",
            ));
            node.push(doubled_commas(path.as_os_str()));
            nodes.push(node);
            below = "written";
        }
        // It ends with the guest, so nothing need reach a medium.
        let mut top = OsString::from(format!(
            "node-name={DISK},driver=qcow2,cache.no-flush=on,backing={below},file.driver=file,file.locking=off,\
             file.cache.no-flush=on,file.filename="
        ));
        top.push(doubled_commas(overlay.as_os_str()));
        nodes.push(top);
        nodes.into_iter().flat_map(|node| ["-blockdev".into(), node]).collect()
    }

    /// The drive of a guest that goes on. A write of it that fails is an error of the guest, where QEMU would
    /// stop it when the medium is full; scratch that is full ends the guest in any case.
    fn device(&self) -> String {
        let on_error = if self.writes == DiskWrites::Kept { ",werror=report" } else { "" };
        format!("virtio-blk-pci,drive={DISK}{on_error}")
    }

    /// The words for balloon and port. They come last, so that the disk stays where it is.
    pub(crate) fn agent_words(&self) -> Vec<OsString> {
        let Some(socket) = &self.agent else { return Vec::new() };
        let mut channel = OsString::from(format!("socket,id={AGENT},path="));
        channel.push(doubled_commas(socket.as_os_str()));
        let devices = [
            format!("virtio-balloon-pci,id={BALLOON}"),
            "virtio-serial-pci".to_owned(),
            format!("virtserialport,chardev={AGENT},name={AGENT_PORT}"),
        ];
        let devices = devices.into_iter().flat_map(|device| ["-device".into(), device.into()]);
        ["-chardev".into(), channel].into_iter().chain(devices).collect()
    }

    /// What it needs of this machine besides.
    pub(crate) fn jail_entries(&self) -> Vec<JailEntry> {
        let mut entries = vec![JailEntry::Socket(self.monitor.clone())];
        entries.extend(self.agent.iter().cloned().map(JailEntry::Socket));
        if self.is_resumed() {
            entries.push(JailEntry::Disk(self.memory_file.clone()));
        } else {
            entries.extend(self.memory_file.parent().map(|folder| JailEntry::Own(folder.to_owned())));
        }
        entries
    }
}

/// A saved guest that is to go on.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// The program.
    pub program: PathBuf,
    /// What executes it.
    pub accelerator: Accelerator,
    /// The guest's memory.
    pub memory: ByteSize,
    /// The disk that it was booted from.
    pub drive: Drive,
    /// An empty folder for its files.
    pub scratch: PathBuf,
    /// Its parts.
    pub parts: Resumable,
    /// Its network card, if it was saved with one, and what that is connected to now.
    pub network: Option<Network>,
}

impl Resumed {
    /// How it is started: QEMU then waits for the state of its devices.
    #[must_use]
    pub fn launch(&self) -> Launch {
        let mut command = base_command(&self.program, self.accelerator, self.memory, &self.parts.cpu);
        command.extend(places(self.accelerator, self.parts.has_second_place));
        command.extend(self.parts.machine_words(self.memory));
        command.extend(self.parts.disk_words(&self.drive));
        command.extend(["-device".into(), self.parts.device().into()]);
        command.extend(self.parts.agent_words());
        command.extend(self.network.iter().flat_map(Network::words));
        let mut jail_entries = program_entries(&self.program, self.accelerator);
        jail_entries.push(JailEntry::Own(self.scratch.clone()));
        jail_entries.push(Qemu::drive_entry(&self.drive));
        jail_entries.extend(self.parts.jail_entries());
        jail_entries.extend(self.network.iter().flat_map(Network::jail_entries));
        Launch {
            input: Input::Typed,
            small_pages: true,
            has_network: self.network.as_ref().is_some_and(Network::is_connected),
            ..launch_of(&self.scratch, command, self.accelerator, jail_entries)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumable(writes: DiskWrites) -> Resumable {
        Resumable {
            monitor: "/mnt/a,b/monitor".into(),
            machine: "pc-i440fx-7.2".into(),
            cpu: "qemu64".into(),
            memory_file: "/mnt/m/memory".into(),
            writes,
            agent: Some("/mnt/a,b/agent".into()),
            has_second_place: true,
        }
    }

    fn text(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn memory_is_shared_to_be_saved_and_private_afterwards() {
        let overlay = || "/mnt/scratch/overlay".into();
        let saved = resumable(DiskWrites::Saved(overlay()));
        assert!(saved.jail_entries().contains(&JailEntry::Own("/mnt/m".into())));
        let saved = text(&saved.machine_words(ByteSize(64 << 20)));
        assert!(saved.contains("size=64M,share=on,mem-path=/mnt/m/memory"), "{saved}");
        assert!(saved.contains("unix:/mnt/a,,b/monitor") && !saved.contains("-incoming"), "{saved}");
        let written = FilePart { path: "/mnt/m/disk.img".into(), offset: 4096, bytes: 8192 };
        let resumed = resumable(DiskWrites::Discarded { overlay: overlay(), written });
        let words = text(&resumed.machine_words(ByteSize(64 << 20)));
        assert!(words.contains("share=off") && words.ends_with("-S -incoming defer"), "{words}");
        let drive = Drive::Nbd { socket: "/mnt/nbd".into(), export: "d".into() };
        let disk = text(&resumed.disk_words(&drive));
        assert!(
            disk.contains("file.offset=4096,file.size=8192") && disk.contains("drop-cache=off"),
            "{disk}"
        );
        assert!(disk.contains("backing=base") && disk.contains("backing=written"), "{disk}");
        assert!(resumed.jail_entries().contains(&JailEntry::Disk("/mnt/m/memory".into())));
        let agent = text(&resumed.agent_words());
        assert!(agent.contains("path=/mnt/a,,b/agent") && agent.contains("virtio-balloon-pci"), "{agent}");
        assert!(resumed.jail_entries().contains(&JailEntry::Socket("/mnt/a,b/agent".into())));
        assert!(Resumable { agent: None, ..resumed }.agent_words().is_empty());
    }

    #[test]
    fn what_is_kept_is_written_to_the_disk_itself() {
        let kept = resumable(DiskWrites::Kept);
        let drive = Drive::Nbd { socket: "/mnt/nbd".into(), export: "d".into() };
        let disk = text(&kept.disk_words(&drive));
        assert_eq!(
            disk,
            "-blockdev node-name=disk,discard=unmap,driver=nbd,server.type=unix,server.path=/mnt/nbd,export=d"
        );
        assert_eq!(kept.device(), "virtio-blk-pci,drive=disk,werror=report");
        let words = text(&kept.machine_words(ByteSize(64 << 20)));
        assert!(words.contains("share=off") && words.ends_with("-S -incoming defer"), "{words}");
        assert!(kept.jail_entries().contains(&JailEntry::Disk("/mnt/m/memory".into())));
    }
}
