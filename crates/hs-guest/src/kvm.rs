//! Whether guests can run under KVM on this machine.
//!
//! A machine may have `/dev/kvm` and still run no guest: inside another virtual machine its kernel may lack
//! what a stock kernel needs, so that QEMU aborts or the guest hangs. So only a trial shows it.

use std::time::{Duration, Instant};

use regex::Regex;

use crate::console::Console;
use crate::qemu::{Accelerator, Qemu};
use crate::{Guest, GuestError};

/// How long a trial may take. With KVM a kernel reaches its end within a second or two. A slower trial shows
/// that KVM is of no use here.
const TRIAL_PATIENCE: Duration = Duration::from_secs(8);
/// Messages of a kernel that has come as far as to look for its disk.
const FAR_ENOUGH: &str = "Unable to mount root fs|Kernel panic - not syncing";

/// The accelerator to use for `qemu`, and why it is the translator if it is.
#[must_use]
pub fn choose(qemu: &Qemu) -> (Accelerator, Option<GuestError>) {
    match prove(qemu) {
        Ok(()) => (Accelerator::Kvm, None),
        Err(error) => (Accelerator::Tcg, Some(error)),
    }
}

/// Whether this process may use KVM.
pub(crate) fn check_device() -> Result<(), GuestError> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/kvm");
    device.map(drop).map_err(|source| GuestError::KvmUnusable { source })
}

/// Proves that the guest's kernel runs under KVM, by running it without a disk until it asks for one.
fn prove(qemu: &Qemu) -> Result<(), GuestError> {
    check_device()?;
    let far_enough = Regex::new(FAR_ENOUGH).unwrap_or_else(|error| unreachable!("{error}"));
    let launch = qemu.trial(Accelerator::Kvm);
    let mut guest = Guest::start(launch, Console::new(far_enough), std::io::sink())?;
    match guest.wait_ready(Instant::now(), TRIAL_PATIENCE, FAR_ENOUGH, &mut |_| Ok(())) {
        Ok(_) | Err(GuestError::Panic { .. }) => Ok(()),
        Err(_) => Err(GuestError::KvmUnproven { said: guest.tail().pop() }),
    }
}
