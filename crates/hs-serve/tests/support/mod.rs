//! What tests need from the machine, and disks to serve.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hs_serve::fuse::{Disk, Reply};
use hs_units::Prng;

/// True when this machine lets us mount and has all `tools`. Otherwise the test is skipped, which is said
/// aloud; where CI runs it, it fails.
pub(crate) fn machine_has(tools: &[&str]) -> bool {
    let missing_tool = tools.iter().find(|tool| {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        !found.is_ok_and(|output| output.status.success())
    });
    let lack = if !Path::new("/dev/fuse").exists() {
        "/dev/fuse is missing (modprobe fuse)".to_owned()
    } else if !rustix::process::geteuid().is_root() {
        "mounting needs root".to_owned()
    } else if let Some(tool) = missing_tool {
        format!("{tool} is not installed")
    } else {
        return true;
    };
    hs_testing::skip(lack);
    false
}

/// Reproducible noise.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Prng::new(seed).fill(&mut noise);
    noise
}

/// A disk in memory that counts what it is asked.
pub(crate) struct MemoryDisk {
    pub(crate) content: Vec<u8>,
    pub(crate) reads: AtomicUsize,
}

impl MemoryDisk {
    pub(crate) fn new(content: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { content, reads: AtomicUsize::new(0) })
    }
}

impl Disk for MemoryDisk {
    fn bytes(&self) -> u64 {
        self.content.len() as u64
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let start = offset as usize;
        reply.data(&[&self.content[start..start + len as usize]]);
    }
}
