//! Which image has which layers, as `headstart snapshotter add` was told: a file that a running snapshotter
//! reads each time it is asked for a layer.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::artifact::is_chain_id;
use crate::records;

/// An image of containers, and the image that is mounted for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The image of containers, as it was named.
    pub reference: String,
    /// What is mounted: a file's absolute path, or an address.
    pub artifact: String,
    /// The address of the container's image, by digest.
    pub container: String,
    /// The chain ID of each of its layers, the lowest first.
    pub chain: Vec<String>,
}

/// The table of one snapshotter's folder.
#[derive(Clone, Debug)]
pub struct Table(PathBuf);

impl Table {
    /// That of the folder `root`.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self(root.join("images.json"))
    }

    /// What it has.
    ///
    /// # Errors
    /// When the file cannot be read, or is no table.
    pub fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let entries: Vec<Entry> = records::read(&self.0)?.unwrap_or_default();
        if entries.iter().any(|entry| entry.chain.is_empty() || !entry.chain.iter().all(|id| is_chain_id(id)))
        {
            bail!("{} is no table of images", self.0.display());
        }
        Ok(entries)
    }

    /// Puts an entry in the place of the one with its reference.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, entry: Entry) -> anyhow::Result<()> {
        self.change(|entries| {
            entries.retain(|known| known.reference != entry.reference);
            entries.push(entry);
            true
        })
        .map(drop)
    }

    /// Removes the entry of this reference; false when there is none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn remove(&self, reference: &str) -> anyhow::Result<bool> {
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|known| known.reference != reference);
            entries.len() < before
        })
    }

    /// Two that change it at once wait for one another.
    fn change(&self, change: impl FnOnce(&mut Vec<Entry>) -> bool) -> anyhow::Result<bool> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        hs_output::whole_file::make_private_folder(folder)
            .with_context(|| format!("make {}", folder.display()))?;
        let lock = File::open(folder).with_context(|| format!("open {}", folder.display()))?;
        flock(&lock, FlockOperation::LockExclusive).with_context(|| format!("lock {}", folder.display()))?;
        let mut entries = self.entries()?;
        let changed = change(&mut entries);
        if changed {
            records::write(&self.0, &entries)?;
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_put_replaced_and_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let table = Table::of(&place.path().join("root"));
        let entry = |artifact: &str| Entry {
            reference: "docker.io/library/a:1".to_owned(),
            artifact: artifact.to_owned(),
            container: "oci://h/a".to_owned(),
            chain: vec![format!("sha256:{}", "0".repeat(64))],
        };
        assert_eq!(table.entries().expect("none"), []);
        table.put(entry("/a.hsi")).expect("put");
        table.put(entry("/b.hsi")).expect("put");
        assert_eq!(table.entries().expect("one"), [entry("/b.hsi")]);
        assert!(table.remove("docker.io/library/a:1").expect("removed"));
        assert!(!table.remove("docker.io/library/a:1").expect("none"));
        let hostile = Entry { chain: vec!["../x".to_owned()], ..entry("/a.hsi") };
        table.put(hostile).expect("put");
        assert!(table.entries().is_err());
    }
}
