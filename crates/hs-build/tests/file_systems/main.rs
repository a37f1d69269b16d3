//! File systems as foreign programs see them: `e2fsck`, and the kernel's own mount.

mod followed;
mod foreign;
mod large;
mod like;
mod random;
mod written;
