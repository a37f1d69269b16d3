//! Whether an image for which nobody vouches is given to root's own programs: a flag of `run`, `profile`,
//! `boot` and `mount`.

use clap::Args;

use super::image::ImageArg;

/// By default root starts, boots and mounts only images from the network that have a name, or are signed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct InsecureFlag {
    /// As root, take an image from the network although its address has neither #hs1-DIGEST nor #key=KEY: the
    /// server, and with http:// each machine on the way, then decides what runs here.
    #[arg(long)]
    pub insecure: bool,
}

impl InsecureFlag {
    /// The image, which root's own programs or kernel are given, if it is allowed.
    pub(crate) fn apply(self, image: &ImageArg) -> ImageArg {
        let is_root = rustix::process::geteuid().is_root() && !hs_serve::rootenv::in_user_namespace();
        let mut image = image.clone();
        image.remote.refuses_unnamed = is_root && !self.insecure;
        image
    }
}
