//! Whether guests run on the processor itself here.
//!
//! A machine may have `/dev/kvm` and still run no guest: inside another virtual machine its kernel may lack
//! what a stock kernel needs, so that QEMU aborts or the guest hangs. So nothing but a trial tells.

use std::time::{Duration, Instant};

use regex::Regex;

use crate::console::Console;
use crate::qemu::{Accelerator, Qemu};
use crate::{Guest, GuestError};

/// How long a trial may take. With KVM a kernel is at its end within a second or two; under the translator it
/// would take longer than many boots, so a trial that is not over by then has shown that it is worth nothing.
const TRIAL_PATIENCE: Duration = Duration::from_secs(8);
/// What a kernel says that has come as far as to look for its disk.
const FAR_ENOUGH: &str = "Unable to mount root fs|Kernel panic - not syncing";

/// The accelerator to use for `qemu`, and why it is the translator if it is.
#[must_use]
pub fn choose(qemu: &Qemu) -> (Accelerator, Option<GuestError>) {
    match prove(qemu) {
        Ok(()) => (Accelerator::Kvm, None),
        Err(error) => (Accelerator::Tcg, Some(error)),
    }
}

/// Proves that the guest's kernel runs under KVM, by running it without a disk until it asks for one.
fn prove(qemu: &Qemu) -> Result<(), GuestError> {
    std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .map_err(|source| GuestError::KvmUnusable { source })?;
    let far_enough = Regex::new(FAR_ENOUGH).unwrap_or_else(|error| unreachable!("{error}"));
    let launch = qemu.trial(Accelerator::Kvm);
    let mut guest = Guest::start(launch, Console::new(far_enough), std::io::sink())?;
    match guest.wait_ready(Instant::now(), TRIAL_PATIENCE, FAR_ENOUGH, &mut || Ok(())) {
        Ok(_) | Err(GuestError::Panic { .. }) => Ok(()),
        Err(_) => Err(GuestError::KvmUnproven { said: guest.tail().pop() }),
    }
}
