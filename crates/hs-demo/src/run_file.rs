//! Where the folder of `--out` keeps what is known of a run.

use std::path::{Path, PathBuf};

/// The file of `kind` (`json`, `console`) of the `number`th run, counted from 1, of the contender `key` of a
/// story with `prefix`.
pub(super) fn run_file(out: &Path, prefix: &str, key: &str, number: usize, kind: &str) -> PathBuf {
    out.join(format!("runs/{prefix}{key}-{number}.{kind}"))
}
