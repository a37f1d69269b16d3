//! Which file pages blocks are, and what became of pages: on real ext4 images on loop devices.

mod block_files;
mod observe;
mod scene;
mod tripwires;
