//! The Debian that boots as a guest, alone: for tests, which take it from the demo's cache.

use std::path::Path;

use hs_output::show::{self, Bar};

use super::cache::Cache;
use super::root::BOOT;
use super::tools::{self, MMDEBSTRAP, UNSHARE};
use super::{NEEDED_FOR_BOOT_ROOT, check_space};

/// Whether it is kept in `dir`. If so, there is no need to wait for a demo that holds the cache.
pub(super) fn is_kept_in(dir: &Path) -> bool {
    BOOT.is_kept_in(dir)
}

/// Makes it, and prints where it is.
pub(super) fn make(cache: &Cache, quiet: bool) -> anyhow::Result<()> {
    tools::check(&[MMDEBSTRAP, UNSHARE])?;
    check_space(cache, NEEDED_FOR_BOOT_ROOT)?;
    BOOT.make(cache, &Bar::new(quiet))?;
    show(cache.dir());
    Ok(())
}

/// Prints where it is in `dir`.
pub(super) fn show(dir: &Path) {
    show::line(dir.join(BOOT.name).display());
}
