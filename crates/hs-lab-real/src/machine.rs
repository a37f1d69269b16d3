//! Experiments on this machine's own kernel: `headstart lab run --real`.
//!
//! The medium is one of `--emulate`, emulated in real time as a FUSE file; what the kernel puts before it is
//! real. What the machine does not have is said and left out.

mod elevators;
mod emulated;
mod memory;
mod records;

/// A result of this machine.
#[derive(Clone, Debug)]
pub(crate) struct RealFigure {
    /// What it is of.
    pub name: String,
    /// What came out.
    pub value: f64,
    /// On what.
    pub how: String,
}

/// Gives the process its own mounts. Once, and before any thread.
///
/// # Errors
/// Root without `CAP_SYS_ADMIN`.
pub(crate) fn prepare() -> anyhow::Result<()> {
    if is_root() {
        hs_linux::rootenv::enter_private_mounts()?;
    }
    Ok(())
}

/// Runs what of the experiment `name` this machine can show; nothing when there is no such thing. After
/// [`prepare`].
///
/// # Errors
/// What should work here and does not.
pub(crate) fn run(name: &str, seed: u64) -> anyhow::Result<Vec<RealFigure>> {
    match name {
        "flash-elevators-2012" => elevators::run(elevators::TABLET, elevators::OF_PAPER, seed),
        "flash-elevators" => elevators::run(elevators::TABLET, elevators::ALL, seed),
        "memory-2005" => memory::run(seed),
        "flash-2012" => Ok(records::run()),
        _ => Ok(Vec::new()),
    }
}

/// Says aloud what is left out, and why.
fn skip(what: &str, why: &str) -> Vec<RealFigure> {
    hs_output::note!("skipped, for real: {what}: {why}");
    Vec::new()
}

/// Whether this process may attach devices and make control groups.
fn is_root() -> bool {
    rustix::process::geteuid().is_root() && !hs_linux::rootenv::in_user_namespace()
}
