//! `headstart fill`

use hs_daemon::attach::fill::{self, Completion};

use crate::cli::Hydrate;

/// Completes a file that fills itself.
pub(crate) fn run(args: &Hydrate, quiet: bool) -> anyhow::Result<()> {
    let completion = Completion {
        file: args.file.clone(),
        image: args.image.clone(),
        remote: args.remote.value(),
        json: args.json,
    };
    fill::run(&completion, quiet)
}
