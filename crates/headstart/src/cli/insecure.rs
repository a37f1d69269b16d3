//! Whether root accepts an image from the network that is neither named nor signed: a flag of `run`,
//! `profile`, `boot` and `mount`.

use clap::Args;
use hs_start::image::ImageSource;

/// By default root starts, boots and mounts only images from the network that have a name, or are signed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct InsecureFlag {
    /// As root, accept an image from the network without #hs1-DIGEST or #key=KEY in its address. The server,
    /// and with http:// every machine in between, then decides what runs here.
    #[arg(long, help_heading = "Remote images")]
    pub insecure: bool,
}

impl InsecureFlag {
    /// The image, which root's own programs or kernel are given, if it is allowed.
    pub(crate) fn apply(self, image: &ImageSource) -> ImageSource {
        let is_root = rustix::process::geteuid().is_root() && !hs_serve::rootenv::in_user_namespace();
        let mut image = image.clone();
        image.remote.refuses_unnamed = is_root && !self.insecure;
        image
    }
}
