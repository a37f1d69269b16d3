//! The VMM when the user chooses none: User-mode Linux if a guest has run on it in a trial, else QEMU.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hs_guest::network::Network;
use hs_guest::qemu::{self, Accelerator, Bus};
use hs_guest::uml_trial::{TRIAL_MEMORY, Trial};
use hs_guest::{qemu_trial, uml};

use super::{KernelOf, MEMORY_SLACK_BYTES, QemuSpec, Vmm, mount_memory};
use hs_service::workdir::Workdir;

/// Room for the files of a trial.
const TRIAL_SCRATCH_BYTES: u64 = 4 << 20;
/// The place and the magic number of a kernel for a whole machine: Linux's boot protocol, 2.00 and later.
const BOOT_PROTOCOL: (usize, &[u8]) = (0x202, b"HdrS");

/// A VMM by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmmName {
    /// User-mode Linux if a trial guest runs on this machine, else QEMU.
    Auto,
    /// User-mode Linux.
    Uml,
    /// QEMU.
    Qemu,
}

/// What the user says of the VMM.
#[derive(Clone, Debug)]
pub struct VmmChoice {
    /// The VMM.
    pub vmm: VmmName,
    /// The guest's kernel.
    pub kernel: Option<PathBuf>,
    /// Its initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// What executes the instructions of QEMU's guest; a trial decides when `None`.
    pub accel: Option<Accelerator>,
    /// QEMU's word for the processor of its guest.
    pub cpu: Option<String>,
    /// How QEMU's guest sees its disk; a medium as a disc, any other disk as one of virtio when `None`.
    pub bus: Option<Bus>,
    /// Whether the disk is a medium that firmware starts.
    pub is_medium: bool,
    /// Whether the disk's sectors are larger than those of User-mode Linux.
    pub has_large_sectors: bool,
    /// By UEFI; else by a BIOS.
    pub uefi: bool,
    /// The network of QEMU's guest.
    pub network: Option<Network>,
    /// A flag that was given and is for QEMU only.
    pub flag_of_qemu: Option<&'static str>,
}

/// Chooses the VMM of `headstart boot`. Call `hs_linux::rootenv::enter_private_mounts` before.
pub fn choose(asked: &VmmChoice) -> anyhow::Result<Vmm> {
    match asked.vmm {
        VmmName::Uml if asked.is_medium => {
            bail!("--vmm qemu starts what firmware starts, User-mode Linux does not")
        }
        VmmName::Uml => {
            if let Some(flag) = asked.flag_of_qemu {
                bail!("{flag} is for --vmm qemu");
            }
            let path = std::env::var_os("PATH").unwrap_or_default();
            Ok(Vmm::Uml { kernel: uml::find_kernel(asked.kernel.as_deref(), &path)? })
        }
        VmmName::Qemu => qemu(asked, None),
        VmmName::Auto => automatic(asked),
    }
}

/// A flag, a kernel or a disk for QEMU chooses QEMU.
fn automatic(asked: &VmmChoice) -> anyhow::Result<Vmm> {
    let is_for_qemu = asked.is_medium
        || asked.has_large_sectors
        || asked.flag_of_qemu.is_some()
        || asked.kernel.as_deref().is_some_and(boots_machines);
    if is_for_qemu {
        return qemu(asked, None);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(named) = &asked.kernel {
        let kernel = uml::find_kernel(Some(named), &path)?;
        try_uml(&kernel).context("--vmm qemu takes a --kernel of the usual kind")?;
        return Ok(Vmm::Uml { kernel });
    }
    let found = uml::find_kernel(None, &path).map_err(anyhow::Error::from);
    let why = match found.and_then(|kernel| try_uml(&kernel).map(|()| kernel)) {
        Ok(kernel) => return Ok(Vmm::Uml { kernel }),
        Err(why) => format!("{why:#}"),
    };
    let vmm = qemu(asked, Some(why.clone())).with_context(|| {
        format!("nothing can run the guest: User-mode Linux cannot ({why}), nor can QEMU")
    })?;
    log::warn!("QEMU runs the guest, since User-mode Linux cannot: {why}");
    Ok(vmm)
}

fn qemu(asked: &VmmChoice, instead_of_uml: Option<String>) -> anyhow::Result<Vmm> {
    let file = |named: &Option<PathBuf>, flag| {
        named.as_deref().map(|named| qemu::find_file(named, flag)).transpose()
    };
    let kernel = match (file(&asked.kernel, "--kernel")?, file(&asked.initrd, "--initrd")?) {
        (Some(kernel), initrd) => KernelOf::Machine { kernel, initrd },
        (None, None) if asked.is_medium => KernelOf::Medium { uefi: asked.uefi },
        (None, None) => KernelOf::Disk,
        (None, Some(_)) => bail!("--initrd goes with a --kernel: that of the disk has its own"),
    };
    Ok(Vmm::Qemu(QemuSpec {
        program: qemu::find_program(&std::env::var_os("PATH").unwrap_or_default())?,
        kernel,
        accel: asked.accel,
        cpu: asked.cpu.clone(),
        bus: asked.bus.unwrap_or(match asked.is_medium {
            true => Bus::Cd,
            false => Bus::Virtio,
        }),
        network: asked.network.clone(),
        instead_of_uml,
    }))
}

/// Runs a guest of a few instructions under the User-mode Linux at `kernel`.
pub fn try_uml(kernel: &Path) -> anyhow::Result<()> {
    let work = Workdir::new(&[kernel.to_owned()])?;
    let (scratch, memory_folder) = (work.folder("scratch")?, work.folder("memory")?);
    mount_memory(&scratch, TRIAL_SCRATCH_BYTES)?;
    mount_memory(&memory_folder, TRIAL_MEMORY.0 + MEMORY_SLACK_BYTES)?;
    Ok(Trial { kernel: kernel.to_owned(), scratch, memory_folder }.prove()?)
}

/// Runs a few instructions under the QEMU that is `program`.
pub fn try_qemu(program: &Path, accelerator: Accelerator) -> anyhow::Result<()> {
    let work = Workdir::new(&[program.to_owned()])?;
    let scratch = work.folder("scratch")?;
    mount_memory(&scratch, TRIAL_SCRATCH_BYTES)?;
    Ok(qemu_trial::prove(program, accelerator, &scratch)?)
}

/// Whether a file is a kernel for a whole machine, as boot loaders take it.
fn boots_machines(kernel: &Path) -> bool {
    let (at, magic) = BOOT_PROTOCOL;
    let mut head = vec![0; at + magic.len()];
    let read = std::fs::File::open(kernel).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head[at..] == *magic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_for_machines_is_known_by_its_boot_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinuz");
        let mut kernel = vec![0; 0x400];
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        std::fs::write(&path, &kernel).unwrap();
        assert!(boots_machines(&path));
        std::fs::write(&path, &kernel[..0x204]).unwrap();
        assert!(!boots_machines(&path));
        assert!(!boots_machines(Path::new("/bin/true")) && !boots_machines(Path::new("/no/such/file")));
    }
}
