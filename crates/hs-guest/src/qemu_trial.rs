//! Whether QEMU runs guests on this machine: a kernel of a few instructions reports on its serial port.
//!
//! It shows that QEMU starts, and that the accelerator executes instructions. A whole kernel needs more: each
//! boot first [tries its own kernel](crate::kvm) under KVM.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hs_units::ByteSize;
use regex::Regex;

use crate::console::Console;
use crate::qemu::{Accelerator, Begin, Bus, Drive, Qemu};
use crate::{Guest, GuestError};

/// Its message.
const SAID: &str = "headstart: this machine runs";
/// How long a trial may take. It is over within a second; a busy machine needs longer.
const TRIAL_PATIENCE: Duration = Duration::from_secs(30);
/// With `/dev/kvm`, it runs at once or not at all.
const KVM_PATIENCE: Duration = Duration::from_secs(8);
/// Where it lies in the guest's memory.
const LOAD_ADDRESS: u32 = 1 << 20;
/// Bytes of a multiboot header that says where the code goes.
const HEADER_BYTES: u32 = 32;

/// Proves that QEMU, which is `program`, runs instructions with `accelerator`. `folder` is for its files.
///
/// # Errors
/// When it does not; the message says what happened.
pub fn prove(program: &Path, accelerator: Accelerator, folder: &Path) -> Result<(), GuestError> {
    if accelerator == Accelerator::Kvm {
        crate::kvm::check_device()?;
    }
    let unproven = |why: String| GuestError::QemuUnproven { accelerator: accelerator.as_str(), why };
    let path = folder.join("trial-kernel");
    std::fs::write(&path, kernel())
        .map_err(|error| unproven(format!("{} cannot be written: {error}", path.display())))?;
    let said = Regex::new(SAID).unwrap_or_else(|error| unreachable!("{error}"));
    let launch = guest(program, accelerator, folder, path).trial(accelerator);
    let mut guest = Guest::start(launch, Console::new(said), std::io::sink())?;
    let patience = if accelerator == Accelerator::Kvm { KVM_PATIENCE } else { TRIAL_PATIENCE };
    match guest.wait_ready(Instant::now(), patience, SAID, &mut |_| Ok(())) {
        Ok(_) => Ok(()),
        Err(GuestError::NotReady { seconds, .. }) => {
            Err(unproven(format!("nothing ran within {seconds:.0} s")))
        }
        Err(error) => {
            let last = guest.tail().pop().map(|line| format!("; it said last: {line}"));
            Err(unproven(format!("{error}{}", last.unwrap_or_default())))
        }
    }
}

fn guest(program: &Path, accelerator: Accelerator, folder: &Path, kernel: PathBuf) -> Qemu {
    Qemu {
        program: program.to_owned(),
        begin: Begin::Kernel { kernel, initrd: None },
        drive: Drive::File(PathBuf::new()),
        partition: None,
        sector_bytes: 512,
        keeps: false,
        bus: Bus::Virtio,
        accelerator,
        cpu: None,
        scratch: folder.to_owned(),
        memory: ByteSize(16 << 20),
        init: None,
        append: Vec::new(),
        resumable: None,
        second_line: None,
        network: None,
    }
}

/// A file in the format of the Multiboot Specification 0.6.96 (section 3.1). It begins in protected mode,
/// prints [`SAID`] on the first serial port, and halts.
fn kernel() -> Vec<u8> {
    let code = |text_at: u32| {
        let mut code = vec![0xfa, 0xbe]; // cli; mov esi, text
        code.extend(text_at.to_le_bytes());
        code.extend([0xac, 0x84, 0xc0, 0x74, 20]); // next: lodsb; test al, al; jz done
        code.extend([0x88, 0xc4, 0x66, 0xba, 0xfd, 0x03]); // mov ah, al; mov dx, line status
        code.extend([0xec, 0xa8, 0x20, 0x74, 0xfb]); // wait: in al, dx; test al, empty; jz wait
        code.extend([0x88, 0xe0, 0x66, 0xba, 0xf8, 0x03, 0xee]); // mov al, ah; mov dx, data; out dx, al
        code.extend([0xeb, 0xe7, 0xf4, 0xeb, 0xfd]); // jmp next; done: hlt; jmp done
        code
    };
    let entry = LOAD_ADDRESS + HEADER_BYTES;
    let code = code(entry + code(0).len() as u32);
    let (magic, addresses_are_given) = (0x1bad_b002_u32, 1_u32 << 16);
    let checksum = 0_u32.wrapping_sub(magic).wrapping_sub(addresses_are_given);
    let header = [magic, addresses_are_given, checksum, LOAD_ADDRESS, LOAD_ADDRESS, 0, 0, entry];
    let mut file: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
    file.extend(code);
    file.extend(SAID.bytes());
    file.extend(b"\n\0");
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_adds_up_to_nothing() {
        let kernel = kernel();
        let word = |at: usize| u32::from_le_bytes(kernel[at..at + 4].try_into().unwrap());
        assert_eq!(word(0).wrapping_add(word(4)).wrapping_add(word(8)), 0);
        assert_eq!(word(28), LOAD_ADDRESS + HEADER_BYTES);
        assert!(kernel.ends_with(b"runs\n\0"));
    }
}
