//! A boot by QEMU: its kernel, and what executes it.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use hs_build::ext4::ReadDisk;
use hs_build::read_linked_file;
use hs_guest::line_socket::LineSocket;
use hs_guest::network::Network;
use hs_guest::qemu::{Accelerator, Begin, Bus, Drive, Firmware, Qemu, SecondLine};
use hs_guest::resumable::{self, DiskWrites, Resumable};
use hs_guest::{Guest, GuestError, Launch, kvm, qemu_trial};
use hs_image::{Blocks, Image};
use hs_linux::Volume;
use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions};
use hs_linux::loopdev::{LoopDevice, LoopOptions};

use super::identity::root_in;
use super::own_recording::OwnRecording;
use super::saving::{SavedParts, Saving, empty_overlay};
use super::{BootDisk, BootSpec, first_program};
use crate::on_medium::OnMedium;
use crate::open::open_image;
use hs_service::workdir::Workdir;
use hs_units::ByteRange;

/// Where Debian and others keep the kernel that boots by default, and its initrd. Most of these are links.
const KERNELS: [&str; 4] = ["/vmlinuz", "/boot/vmlinuz", "/boot/vmlinuz-linux", "/boot/vmlinuz-virt"];
const INITRDS: [&str; 5] =
    ["/initrd.img", "/boot/initrd.img", "/boot/initramfs-linux.img", "/boot/initramfs-virt", "/boot/initrd"];
/// Where kernels lie on media: ours, live-boot's, Ubuntu's, Arch's, Fedora's.
const KERNELS_OF_MEDIA: [&str; 6] = [
    "boot/vmlinuz",
    "live/vmlinuz",
    "casper/vmlinuz",
    "arch/boot/x86_64/vmlinuz-linux",
    "images/pxeboot/vmlinuz",
    "boot/x86_64/loader/linux",
];

/// Where the guest's kernel comes from.
#[derive(Clone, Debug)]
pub enum KernelOf {
    /// From files of this machine.
    Machine {
        /// The kernel.
        kernel: PathBuf,
        /// Its initial RAM disk.
        initrd: Option<PathBuf>,
    },
    /// From the disk that it boots: its `/boot` is read.
    Disk,
    /// From the medium that it boots: firmware starts the boot loader on it.
    Medium {
        /// By UEFI; else by a BIOS.
        uefi: bool,
    },
}

/// Where UEFI for QEMU lies: code, and the variables that a machine begins with (package ovmf, and those of
/// Fedora, SUSE and Arch).
const UEFI: [(&str, &str); 4] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"),
];

/// How QEMU is to run a guest.
#[derive(Clone, Debug)]
pub struct QemuSpec {
    /// The program.
    pub program: PathBuf,
    /// The guest's kernel.
    pub kernel: KernelOf,
    /// What executes it; a trial decides when `None`.
    pub accel: Option<Accelerator>,
    /// QEMU's word for its processor, where the usual one will not do.
    pub cpu: Option<String>,
    /// How it sees its disk.
    pub bus: Bus,
    /// Its network, if it has one.
    pub network: Option<Network>,
    /// Why User-mode Linux does not run it, which would have been the choice.
    pub instead_of_uml: Option<String>,
}

/// A guest of QEMU, with its paths on this machine.
pub(super) struct OnQemu {
    spec: QemuSpec,
    accelerator: Accelerator,
    scratch: PathBuf,
    /// A place for a kernel that lies in the disk.
    kernel_folder: PathBuf,
    /// Where the guest is to be saved.
    saving: Option<Saving>,
    /// Where it gives the profile of its start, if it records that itself.
    recording: Option<LineSocket>,
}

impl OnQemu {
    /// Chooses the accelerator, by a trial where the user leaves the choice open. The boot is not timed yet.
    pub(super) fn prepare(
        spec: &BootSpec,
        qemu: &QemuSpec,
        work: &Workdir,
        scratch: PathBuf,
        on_medium: &OnMedium,
    ) -> anyhow::Result<Self> {
        let kernel_folder = work.folder("kernel")?;
        let mut prepared = Self {
            spec: qemu.clone(),
            accelerator: Accelerator::Tcg,
            scratch,
            kernel_folder,
            saving: None,
            recording: None,
        };
        prepared.accelerator = match qemu.accel {
            Some(accelerator) => accelerator,
            None => prepared.choose(spec, on_medium)?,
        };
        log::info!("the guest is executed by {}", prepared.accelerator.as_str());
        if spec.records_itself() {
            let line = LineSocket::listen(work.folder("line")?.join("socket"));
            prepared.recording = Some(line.context("listen to the guest's second serial line")?);
        }
        if spec.save.is_some() {
            prepared.saving = Some(Saving::prepare(spec, qemu.network.is_some(), work)?);
        }
        Ok(prepared)
    }

    /// A kernel in the disk is read without the emulated medium, because only the trial uses it. A remote
    /// disk is not opened a second time.
    fn choose(&self, spec: &BootSpec, on_medium: &OnMedium) -> anyhow::Result<Accelerator> {
        if let (KernelOf::Medium { .. }, BootDisk::Raw(path)) = (&self.spec.kernel, &spec.disk) {
            return Ok(self.choose_for_medium(spec, path).unwrap_or_else(|why| {
                log::info!("KVM is not used: {why:#}");
                Accelerator::Tcg
            }));
        }
        let nowhere = Drive::File(PathBuf::new());
        let qemu = match &spec.disk {
            BootDisk::Raw(path) => {
                let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
                let range = spec.root.map_or(ByteRange::new(0, on_medium.store.len()), |root| root.range);
                self.qemu(spec, nowhere, &mut ReadDisk::part(range, |at, into| file.read_exact_at(into, at)))?
            }
            BootDisk::Image(_, _) if matches!(self.spec.kernel, KernelOf::Machine { .. }) => {
                let unread = |_, _: &mut [u8]| Err(std::io::ErrorKind::Unsupported.into());
                self.qemu(spec, nowhere, &mut ReadDisk::new(0, unread))?
            }
            BootDisk::Image(image, _) => {
                let image = match image.file() {
                    Some(_) => open_image(&**image)?,
                    None => Image::open_as(Arc::clone(&on_medium.store), &on_medium.image)?,
                };
                let mut blocks = Blocks::new(&image);
                let root = spec.root.map_or_else(|| root_in(&image, spec.partition.as_deref()), Ok)?;
                let read = |at, into: &mut [u8]| blocks.read_at(at, into);
                self.qemu(spec, nowhere, &mut ReadDisk::part(root.range, read))?
            }
        };
        let (accelerator, why) = kvm::choose(&qemu);
        if let Some(why) = why {
            log::info!("KVM is not used: {why}");
        }
        Ok(accelerator)
    }

    /// Tries KVM with the kernel on a medium: that of this machine may run no stock kernel.
    fn choose_for_medium(&self, spec: &BootSpec, medium: &Path) -> anyhow::Result<Accelerator> {
        qemu_trial::prove(&self.spec.program, Accelerator::Kvm, &self.kernel_folder)?;
        let options = LoopOptions { direct_io: false, ..LoopOptions::default() };
        let device = LoopDevice::attach(medium, options)?;
        let folder = self.kernel_folder.join("medium");
        std::fs::create_dir_all(&folder).context("make a folder for the medium")?;
        let mounted = FsMount::mount(device.path(), FileSystem::Iso9660, &folder, FsMountOptions::default())?;
        let kernel = self.kernel_folder.join("kernel");
        let found = KERNELS_OF_MEDIA.iter().map(|place| folder.join(place)).find(|place| place.is_file());
        let found =
            found.context("no kernel to try it with is known on this medium (--accel kvm uses it)")?;
        std::fs::copy(&found, &kernel).context("copy the medium's kernel")?;
        mounted.unmount()?;
        let begin = Begin::Kernel { kernel, initrd: None };
        let qemu = self.qemu_that_begins(spec, Drive::File(PathBuf::new()), begin);
        let (accelerator, why) = kvm::choose(&qemu);
        why.map_or(Ok(accelerator), |why| Err(why.into()))
    }

    /// How the guest is started from a disk of so many bytes, whose root `read` reads: its kernel may lie
    /// there. A guest that is watched tells of its processes.
    pub(super) fn launch(
        &self,
        (spec, root): (&BootSpec, &Volume),
        (drive, disk_bytes): (Drive, u64),
        read: &mut ReadDisk<'_>,
        is_watched: bool,
    ) -> anyhow::Result<Launch> {
        let mut qemu = self.qemu(spec, drive, read)?;
        (qemu.partition, qemu.sector_bytes) = (root.partition, root.disk_sector_bytes);
        if is_watched {
            match &mut qemu.begin {
                Begin::Kernel { initrd: Some(initrd), .. } => {
                    *initrd = first_program::before(initrd, &self.kernel_folder)?;
                    qemu.second_line = Some(SecondLine::Processes);
                }
                Begin::Firmware(_) => qemu.second_line = Some(SecondLine::Processes),
                Begin::Kernel { initrd: None, .. } => {
                    first_program::say_unwatched("it has no initial RAM disk");
                }
            }
        }
        if let Some(line) = &self.recording {
            let reads_ahead = spec.records_read_ahead();
            qemu.second_line = Some(SecondLine::Recording { socket: line.path().to_owned(), reads_ahead });
        }
        if let Some(saving) = &self.saving {
            if self.spec.bus == Bus::Nvme {
                bail!("--bus nvme: QEMU cannot save the state of an NVMe drive; boot from --bus virtio");
            }
            if root.disk_sector_bytes != 512 {
                bail!(
                    "--snapshot-out saves guests whose disk has sectors of 512 bytes, not of {}: make an image \
                     of the partition alone (`headstart build DISK --partition ...`)",
                    root.disk_sector_bytes
                );
            }
            qemu.resumable = Some(Resumable {
                monitor: saving.monitor(),
                machine: resumable::MACHINE.to_owned(),
                cpu: resumable::portable_cpu(self.accelerator).to_owned(),
                memory_file: saving.memory_file(),
                writes: DiskWrites::Saved(empty_overlay(&self.scratch, disk_bytes)?),
                agent: Some(saving.agent()),
                has_second_place: true,
            });
        }
        Ok(qemu.launch())
    }

    /// Begins to listen to a guest that records its start.
    pub(super) fn listen(&self, guest: &mut Guest) -> Result<Option<OwnRecording>, GuestError> {
        self.recording.as_ref().map(|line| OwnRecording::begin(line, guest)).transpose()
    }

    /// Saves the guest, where that was asked for.
    pub(super) fn save(&self, guest: &mut Guest) -> Result<Option<SavedParts>, GuestError> {
        self.saving.as_ref().map(|saving| saving.save(guest, self.accelerator, &self.scratch)).transpose()
    }

    fn qemu(&self, spec: &BootSpec, drive: Drive, read: &mut ReadDisk<'_>) -> anyhow::Result<Qemu> {
        let begin = match &self.spec.kernel {
            KernelOf::Machine { kernel, initrd } => {
                Begin::Kernel { kernel: kernel.clone(), initrd: initrd.clone() }
            }
            KernelOf::Disk => {
                let (kernel, initrd) = self.kernel_of_disk(spec, read)?;
                Begin::Kernel { kernel, initrd }
            }
            KernelOf::Medium { uefi: false } => Begin::Firmware(Firmware::Bios),
            KernelOf::Medium { uefi: true } => Begin::Firmware(self.uefi()?),
        };
        Ok(self.qemu_that_begins(spec, drive, begin))
    }

    fn qemu_that_begins(&self, spec: &BootSpec, drive: Drive, begin: Begin) -> Qemu {
        Qemu {
            program: self.spec.program.clone(),
            begin,
            drive,
            partition: None,
            sector_bytes: 512,
            keeps: spec.keep.is_some(),
            bus: self.spec.bus,
            accelerator: self.accelerator,
            cpu: self.spec.cpu.clone(),
            scratch: self.scratch.clone(),
            memory: spec.memory,
            init: spec.init.clone(),
            append: spec.append.clone(),
            resumable: None,
            second_line: None,
            network: self.spec.network.clone(),
        }
    }

    /// UEFI with variables of its own.
    fn uefi(&self) -> anyhow::Result<Firmware> {
        let found = UEFI
            .into_iter()
            .find(|(code, variables)| [code, variables].iter().all(|path| Path::new(path).is_file()));
        let (code, variables) = found.context("UEFI for guests is missing: install the package ovmf")?;
        let own = self.scratch.join("uefi-variables");
        std::fs::copy(variables, &own).with_context(|| format!("copy {variables}"))?;
        // In a folder that is the guest's own.
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o666))
            .context("give the variables to the guest")?;
        Ok(Firmware::Uefi { code: code.into(), variables: own })
    }

    /// Does what a boot loader does: reads kernel and initrd from the disk, through its medium.
    fn kernel_of_disk(
        &self,
        spec: &BootSpec,
        read: &mut ReadDisk<'_>,
    ) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
        let disk = spec.disk.image();
        let mut take = |name: &str, places: &[&str]| -> anyhow::Result<Option<PathBuf>> {
            for place in places {
                let context = || format!("read {place} in {}", disk.display());
                if let Some(content) = read_linked_file(read, place).with_context(context)? {
                    let path = self.kernel_folder.join(name);
                    std::fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
                    log::info!("the guest's {name} is {place} of its disk");
                    return Ok(Some(path));
                }
            }
            Ok(None)
        };
        match take("kernel", &KERNELS)? {
            Some(kernel) => Ok((kernel, take("initrd", &INITRDS)?)),
            None => {
                let missing = GuestError::NoKernel { disk: disk.word() };
                match &self.spec.instead_of_uml {
                    Some(why) => {
                        bail!("{missing}. User-mode Linux, which has its own kernel, cannot run here: {why}")
                    }
                    None => bail!(missing),
                }
            }
        }
    }
}
