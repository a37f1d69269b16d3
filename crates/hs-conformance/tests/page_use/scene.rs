//! An ext4 image made from a tree, on a loop device, mounted.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hs_linux::fsmount::{FileSystem, FsMount, FsMountOptions};
use hs_linux::loopdev::{LoopDevice, LoopOptions};
use tempfile::TempDir;

pub(crate) struct Scene {
    // Dropped in this order.
    pub(crate) mounted: FsMount,
    pub(crate) device: LoopDevice,
    image: PathBuf,
    _directory: TempDir,
}

impl Scene {
    /// What `fill` puts into a directory, as an ext4 with blocks of `block_bytes`.
    pub(crate) fn new(block_bytes: u32, fill: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = image(directory.path(), block_bytes, fill);
        let device = LoopDevice::attach(&image, LoopOptions::default()).unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir(&root).unwrap();
        Self { mounted: mount(device.path(), &root), device, image, _directory: directory }
    }

    pub(crate) fn root(&self) -> &Path {
        self.mounted.target()
    }

    /// The file on the loop device.
    pub(crate) fn disk(&self) -> &Path {
        &self.image
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn inode(&self, name: &str) -> u64 {
        self.path(name).metadata().unwrap().ino()
    }

    /// What debugfs answers to each of `requests`.
    pub(crate) fn debugfs(&self, requests: &[String]) -> Vec<String> {
        let mut debugfs = Command::new("debugfs")
            .args(["-f", "-"])
            .arg(&self.image)
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = debugfs.stdin.take().unwrap();
        let text = requests.join("\n") + "\n";
        let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
        let output = debugfs.wait_with_output().unwrap();
        writer.join().unwrap();
        // Each request is shown again, behind a prompt, and its answer follows.
        let text = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<String> = text
            .split("debugfs: ")
            .skip(1)
            .map(|part| part.split_once('\n').unwrap().1.trim().to_owned())
            .collect();
        assert!(answers.len() >= requests.len(), "debugfs answered {text}");
        answers[..requests.len()].to_vec()
    }

    /// Where debugfs says the `blocks` first blocks of each file lie: (inode, block of the file) → block.
    pub(crate) fn places(&self, files: &[(u64, u64)]) -> BTreeMap<(u64, u64), u64> {
        let asked: Vec<(u64, u64)> =
            files.iter().flat_map(|&(inode, blocks)| (0..blocks).map(move |block| (inode, block))).collect();
        let requests: Vec<String> =
            asked.iter().map(|(inode, block)| format!("bmap <{inode}> {block}")).collect();
        let answers = self.debugfs(&requests);
        let places = answers.iter().map(|answer| answer.split_whitespace().next().unwrap().parse().unwrap());
        asked.into_iter().zip(places).filter(|(_, place)| *place != 0).collect()
    }
}

const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

pub(crate) fn image(directory: &Path, block_bytes: u32, fill: impl FnOnce(&Path)) -> PathBuf {
    let (tree, image) = (directory.join("tree"), directory.join("image"));
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-b", &block_bytes.to_string(), "-d"])
        .args([&tree, &image])
        .arg("64M")
        .env("PATH", PATH)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    image
}

/// Mounted without read-ahead of inode tables, which would look like use.
pub(crate) fn mount(device: &Path, root: &Path) -> FsMount {
    let options = FsMountOptions { inode_readahead_blocks: Some(0), ..Default::default() };
    FsMount::mount(device, FileSystem::Ext4, root, options).unwrap()
}
