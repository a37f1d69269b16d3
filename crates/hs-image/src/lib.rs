//! Build and read headstart images.
