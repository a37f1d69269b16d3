//! Trees that are laid out like an earlier disk: foreign programs read what was written, and little changes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hs_build::export::{self, ExportFormat};
use hs_build::source::{Source, SourceOptions};
use hs_build::{BuildOptions, build, build_like};
use hs_format::{Decompressor, WindowRef};
use hs_image::Image;
use hs_store::FileStore;
use hs_units::Prng;

use crate::written::{Mount, is_clean};

const BLOCK: u64 = 4096;
/// Each state of a tree follows from the one before.
const STATES: u64 = 3;

/// A folder of random files that changes.
struct Changing {
    random: Prng,
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    names: u64,
}

impl Changing {
    fn new(root: &Path, seed: u64) -> Self {
        let (random, folders) = (Prng::new(seed), vec![root.to_owned()]);
        let mut tree = Self { random, folders, files: Vec::new(), names: 0 };
        for _ in 0..24 {
            tree.add_folder();
        }
        for _ in 0..250 {
            tree.add();
        }
        tree
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn name(&mut self) -> PathBuf {
        self.names += 1;
        let folder = self.below(self.folders.len() as u64) as usize;
        self.folders[folder].join(format!("{:x}-{}", self.random.next_u64(), self.names))
    }

    fn add_folder(&mut self) {
        let path = self.name();
        fs::create_dir(&path).unwrap();
        self.folders.push(path);
    }

    fn add(&mut self) {
        let path = self.name();
        match self.below(12) {
            0 => std::os::unix::fs::symlink("t".repeat(self.below(90) as usize + 1), &path).unwrap(),
            1 if !self.files.is_empty() => {
                let file = self.below(self.files.len() as u64) as usize;
                fs::hard_link(&self.files[file], &path).unwrap();
            }
            _ => self.write(&path),
        }
        self.files.push(path);
    }

    /// Writes a file anew: most are small, and some have holes.
    fn write(&mut self, path: &Path) {
        let len = if self.below(12) == 0 { self.below(1 << 20) } else { self.below(20_000) };
        let mut bytes = vec![0; len as usize];
        self.random.fill(&mut bytes);
        if self.below(4) == 0 {
            bytes.iter_mut().skip(5000).take(9000).for_each(|byte| *byte = 0);
        }
        let _ = fs::remove_file(path);
        fs::write(path, bytes).unwrap();
    }

    /// What a month of updates does: files become others, come, go, and get other names.
    fn update(&mut self) {
        for _ in 0..12 {
            let file = self.below(self.files.len() as u64) as usize;
            let path = self.files[file].clone();
            match self.below(4) {
                0 => {
                    fs::remove_file(&path).unwrap();
                    self.files.swap_remove(file);
                }
                1 => {
                    let to = self.name();
                    fs::rename(&path, &to).unwrap();
                    self.files[file] = to;
                }
                2 => self.add(),
                _ => self.write(&path),
            }
        }
        self.add_folder();
        let mode = 0o600 + self.below(64) as u32;
        fs::set_permissions(&self.folders[1], fs::Permissions::from_mode(mode | 0o100)).unwrap();
    }

    /// Digests of the blocks of all files.
    fn blocks(&self) -> HashSet<blake3::Hash> {
        let mut blocks = HashSet::new();
        for path in self.files.iter().filter(|path| path.symlink_metadata().unwrap().is_file()) {
            blocks.extend(fs::read(path).unwrap().chunks(BLOCK as usize).map(blake3::hash));
        }
        blocks
    }
}

pub(crate) fn open(path: &Path) -> Arc<Image> {
    Arc::new(Image::open(Arc::new(FileStore::open(path).unwrap())).unwrap())
}

/// Builds the image of a tree, like that of an earlier state if there is one.
pub(crate) fn image_of(root: &Path, like: Option<Arc<Image>>, output: &Path) -> Arc<Image> {
    let is_like = like.is_some();
    let source = Source::open(root, &SourceOptions { like, ..SourceOptions::default() }, &|_| ()).unwrap();
    assert_eq!(source.is_like_earlier(), is_like);
    let options = BuildOptions { level: 1, threads: NonZeroUsize::MIN, ..BuildOptions::default() };
    if is_like {
        build_like(&source, output, &options, &|_| ()).unwrap();
    } else {
        build(&source, output, &options, &|_| ()).unwrap();
    }
    open(output)
}

/// Blocks of windows of which `old` has no chunk, and blocks in them that `old` has nowhere.
fn new_blocks(old: &Image, new: &Image) -> (u64, u64) {
    let mut tools = Decompressor::new();
    let chunk = |image: &Image, window| match image.window(window).unwrap() {
        WindowRef::Chunk(chunk) => Some(chunk.digest),
        WindowRef::Zero => None,
    };
    let (mut chunks, mut known) = (BTreeSet::new(), HashSet::new());
    for window in 0..old.superblock().windows() {
        chunks.extend(chunk(old, window));
        let raw = old.load_window(window, &mut tools).unwrap().unwrap_or_default();
        known.extend(raw.chunks(BLOCK as usize).map(blake3::hash));
    }
    known.insert(blake3::hash(&[0; BLOCK as usize]));
    let (mut moved, mut changed) = (0, 0);
    for window in 0..new.superblock().windows() {
        if chunk(new, window).is_none_or(|digest| !chunks.insert(digest)) {
            continue;
        }
        let raw = new.load_window(window, &mut tools).unwrap().unwrap();
        moved +=
            raw.chunks(BLOCK as usize).filter(|block| block.iter().any(|byte| *byte != 0)).count() as u64;
        let is_new = |block: &&[u8]| !known.contains(&blake3::hash(block));
        changed += raw.chunks(BLOCK as usize).filter(is_new).count() as u64;
    }
    (moved, changed)
}

type Entries = BTreeMap<PathBuf, (u32, u64, i64, Vec<u8>)>;

/// Everything below a folder: mode, names, time, and content or target.
fn entries(root: &Path) -> Entries {
    let (mut found, mut pending) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let status = path.symlink_metadata().unwrap();
            let content = match status.file_type() {
                kind if kind.is_symlink() => {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                kind if kind.is_dir() => {
                    pending.push(path.clone());
                    Vec::new()
                }
                _ => fs::read(&path).unwrap(),
            };
            let key = path.strip_prefix(root).unwrap().to_owned();
            if key != Path::new("lost+found") {
                found.insert(key, (status.mode(), status.nlink(), status.mtime(), content));
            }
        }
    }
    found
}

#[test]
fn what_did_not_change_stays_where_it_was() {
    let scratch = tempfile::tempdir().unwrap();
    let (at, raw) = (scratch.path().join("at"), scratch.path().join("raw"));
    fs::create_dir(&at).unwrap();
    for seed in 0..2 {
        let root = scratch.path().join(format!("root{seed}"));
        fs::create_dir(&root).unwrap();
        let mut tree = Changing::new(&root, seed);
        let place = |name: String| scratch.path().join(name);
        let mut old = image_of(&root, None, &place(format!("{seed}-0")));
        for state in 1..=STATES {
            let before = tree.blocks();
            tree.update();
            let new = image_of(&root, Some(Arc::clone(&old)), &place(format!("{seed}-{state}")));
            let _ = fs::remove_file(&raw);
            export::export((&new, None), &raw, ExportFormat::Raw, NonZeroUsize::MIN, &|_| ()).unwrap();
            if !is_clean(&raw) {
                return;
            }
            let changed_data = tree.blocks().difference(&before).count() as u64;
            let (moved, changed) = new_blocks(&old, &new);
            // Windows with tables and directories come as a whole: seven of them at most here.
            let bound = changed_data * 5 / 4 + 7 * 32;
            assert!(
                moved <= bound,
                "seed {seed}, state {state}: {moved} blocks for {changed_data}, {changed}"
            );
            if let Some(_mount) = Mount::new(&raw, &at) {
                assert!(entries(&at) == entries(&root), "seed {seed}, state {state}");
            }
            if state == STATES {
                let again = image_of(&root, Some(Arc::clone(&old)), &place("again".to_owned()));
                assert_eq!(again.superblock().image_digest(), new.superblock().image_digest());
                let anew = image_of(&root, None, &place("anew".to_owned()));
                let (anew, _) = new_blocks(&old, &anew);
                assert!(anew > bound, "seed {seed}: {anew} blocks without places");
            }
            old = new;
        }
    }
}

#[test]
fn a_disk_of_another_kind_is_no_model() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, disk) = (scratch.path().join("root"), scratch.path().join("disk"));
    fs::create_dir(&root).unwrap();
    File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let source = Source::open(&disk, &SourceOptions::default(), &|_| ()).unwrap();
    let image = scratch.path().join("image");
    build(&source, &image, &BuildOptions::default(), &|_| ()).unwrap();
    let options = SourceOptions { like: Some(open(&image)), ..SourceOptions::default() };
    assert!(!Source::open(&root, &options, &|_| ()).unwrap().is_like_earlier());
}
