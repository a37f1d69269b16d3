//! Which snapshots there are, and what may become of them: containerd's rules, without I/O.
//!
//! ```text
//! prepare ──► active ──► commit ──► committed ──► parent of others
//! view ─────► view
//! adopt ────────────────────────► committed, of a lazily mounted image
//! ```
//!
//! An image of n layers has n committed snapshots. The topmost one is the whole tree of the image
//! ([`Content::Tree`]), those below it are empty ([`Content::Below`]): their files are in the tree above.
//! When another image has these layers too, such a snapshot gets a tree of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The label of a snapshot that is made from a layer: the chain ID of the layers up to it.
pub const REFERENCE: &str = "containerd.io/snapshot.ref";

/// Labels of a snapshot.
pub type Labels = BTreeMap<String, String>;

/// What may be done with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It is mounted read-only, and has no files of its own.
    View,
    /// It is mounted for writing.
    Active,
    /// It does not change, and is a parent of others.
    Committed,
}

/// What a snapshot adds to its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// The files in its folder.
    Files,
    /// The whole tree of this image, with what its parents have.
    Tree(String),
    /// A layer below the topmost of an image: nothing, its files are in the tree of the topmost.
    Below {
        /// The image.
        image: String,
        /// The address of the container's image, which has the layers themselves.
        container: String,
        /// How many of these layers it and its parents are.
        layers: usize,
    },
}

impl Content {
    /// The image that is mounted for it.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::Files => None,
            Self::Tree(image) | Self::Below { image, .. } => Some(image),
        }
    }
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The number of its folder; no other snapshot ever has it.
    pub id: u64,
    /// Its parent's name.
    pub parent: Option<String>,
    /// What may be done with it.
    pub kind: Kind,
    /// What it adds to its parent.
    pub content: Content,
    /// When it was made or committed, in nanoseconds since 1970.
    pub created_ns: u64,
    /// When its labels last changed.
    pub updated_ns: u64,
    /// Its labels.
    pub labels: Labels,
    /// Of a committed one, what its files take.
    pub usage: Usage,
}

/// What files take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes on the medium.
    pub size_bytes: u64,
    /// Files and folders.
    pub inodes: u64,
}

/// Why something cannot be done; each kind is an answer that containerd understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such snapshot.
    #[error("snapshot {0:?} does not exist")]
    NotFound(String),
    /// There is one already.
    #[error("snapshot {0:?} already exists")]
    AlreadyExists(String),
    /// It is not of the kind that this can be done with.
    #[error("snapshot {0:?} {1}")]
    FailedPrecondition(String, &'static str),
    /// What was asked for makes no sense.
    #[error("{0}")]
    InvalidArgument(String),
}

/// What lies below a snapshot, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lower {
    /// The files of the snapshot with this number.
    Files(u64),
    /// The tree of this image, below which nothing else is needed.
    Tree(String),
}

/// What is mounted for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The snapshot's number.
    pub id: u64,
    /// Whether it is written to.
    pub is_writable: bool,
    /// What is below it, the nearest first.
    pub lower: Vec<Lower>,
}

/// When something is made, and by which name.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The snapshot's name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a Labels,
    /// Nanoseconds since 1970.
    pub now_ns: u64,
}

/// All snapshots by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshots {
    last_id: u64,
    by_name: BTreeMap<String, Snapshot>,
}

impl Snapshots {
    /// The snapshot of this name.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn get(&self, name: &str) -> Result<&Snapshot, Refusal> {
        self.by_name.get(name).ok_or_else(|| Refusal::NotFound(name.to_owned()))
    }

    /// Each with its name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Snapshot)> {
        self.by_name.iter().map(|(name, snapshot)| (name.as_str(), snapshot))
    }

    /// The numbers of those that have a folder.
    #[must_use]
    pub fn folders(&self) -> BTreeSet<u64> {
        let with_files = |(_, snapshot): &(&str, &Snapshot)| snapshot.content == Content::Files;
        self.all().filter(with_files).map(|(_, snapshot)| snapshot.id).collect()
    }

    /// The images that must be mounted.
    #[must_use]
    pub fn images(&self) -> BTreeSet<&str> {
        self.all().filter_map(|(_, snapshot)| snapshot.content.image()).collect()
    }

    /// The snapshots that this image is mounted for.
    pub(crate) fn of_image<'a>(&'a self, image: &'a str) -> impl Iterator<Item = &'a Snapshot> {
        self.by_name.values().filter(move |snapshot| snapshot.content.image() == Some(image))
    }

    /// Puts an image with the same disk in the place of another one.
    pub(crate) fn replace_image(&mut self, old: &str, new: &str) {
        for snapshot in self.by_name.values_mut() {
            match &mut snapshot.content {
                Content::Tree(image) | Content::Below { image, .. } if image == old => new.clone_into(image),
                _ => {}
            }
        }
    }

    /// A committed snapshot of a lazily mounted image that stands for this chain of layers on this parent.
    #[must_use]
    pub fn of_layers(&self, reference: &str, parent: Option<&str>) -> Option<&str> {
        let is_it = |snapshot: &Snapshot| {
            snapshot.content.image().is_some()
                && snapshot.parent.as_deref() == parent
                && snapshot.labels.get(REFERENCE).is_some_and(|found| found == reference)
        };
        self.all().find(|(_, snapshot)| is_it(snapshot)).map(|(name, _)| name)
    }

    /// The image whose tree is below a snapshot with this parent.
    #[must_use]
    pub fn image_below(&self, parent: Option<&str>) -> Option<String> {
        match self.lower(parent).ok()?.pop()? {
            Lower::Tree(image) => Some(image),
            Lower::Files(_) => None,
        }
    }

    /// A name for a snapshot of this chain of layers that no other one has, nor ever had.
    #[must_use]
    pub fn free_name(&self, reference: &str) -> String {
        format!("headstart/{}/{reference}", self.last_id + 1)
    }

    /// Makes an active snapshot or a view.
    ///
    /// # Errors
    /// When the name is taken, or the parent is not committed or has its files in a tree above it.
    pub fn prepare(&mut self, kind: Kind, parent: Option<&str>, asked: &Asked<'_>) -> Result<Stack, Refusal> {
        self.check_parent(parent)?;
        let lower = self.lower(parent)?;
        let id = self.insert(kind, Content::Files, parent, asked)?;
        Ok(Stack { id, is_writable: kind == Kind::Active, lower })
    }

    /// Makes a committed snapshot of a layer of an image that is mounted.
    ///
    /// # Errors
    /// When the name is taken, or the parent is not committed.
    pub fn adopt(
        &mut self,
        content: Content,
        parent: Option<&str>,
        asked: &Asked<'_>,
    ) -> Result<u64, Refusal> {
        self.check_parent(parent)?;
        self.insert(Kind::Committed, content, parent, asked)
    }

    fn check_parent(&self, parent: Option<&str>) -> Result<(), Refusal> {
        let Some(parent) = parent else { return Ok(()) };
        if self.get(parent)?.kind != Kind::Committed {
            return Err(Refusal::InvalidArgument(format!("parent {parent:?} is not committed snapshot")));
        }
        Ok(())
    }

    fn insert(
        &mut self,
        kind: Kind,
        content: Content,
        parent: Option<&str>,
        asked: &Asked<'_>,
    ) -> Result<u64, Refusal> {
        if asked.name.is_empty() {
            return Err(Refusal::InvalidArgument("a snapshot needs a name".to_owned()));
        }
        if self.by_name.contains_key(asked.name) {
            return Err(Refusal::AlreadyExists(asked.name.to_owned()));
        }
        self.last_id += 1;
        let snapshot = Snapshot {
            id: self.last_id,
            parent: parent.map(str::to_owned),
            kind,
            content,
            created_ns: asked.now_ns,
            updated_ns: asked.now_ns,
            labels: asked.labels.clone(),
            usage: Usage::default(),
        };
        self.by_name.insert(asked.name.to_owned(), snapshot);
        Ok(self.last_id)
    }

    /// What is mounted for an active snapshot or a view.
    ///
    /// # Errors
    /// When there is none, or it is committed.
    pub fn stack(&self, name: &str) -> Result<Stack, Refusal> {
        let snapshot = self.get(name)?;
        if snapshot.kind == Kind::Committed {
            return Err(Refusal::FailedPrecondition(name.to_owned(), "is not active or view"));
        }
        let lower = self.lower(snapshot.parent.as_deref())?;
        Ok(Stack { id: snapshot.id, is_writable: snapshot.kind == Kind::Active, lower })
    }

    /// What lies in a chain of parents.
    fn lower(&self, parent: Option<&str>) -> Result<Vec<Lower>, Refusal> {
        let mut lower = Vec::new();
        let mut next = parent;
        while let Some(name) = next {
            let snapshot = self.get(name)?;
            match &snapshot.content {
                Content::Files => lower.push(Lower::Files(snapshot.id)),
                Content::Tree(image) => {
                    lower.push(Lower::Tree(image.clone()));
                    break;
                }
                Content::Below { .. } => {
                    return Err(Refusal::FailedPrecondition(
                        name.to_owned(),
                        "is a layer of a mounted image, and has its files in that image's tree alone",
                    ));
                }
            }
            next = snapshot.parent.as_deref();
        }
        Ok(lower)
    }

    /// The nearest of these parents whose files are not there alone.
    #[must_use]
    pub fn without_files(&self, parent: Option<&str>) -> Option<(&str, &Snapshot)> {
        let mut next = parent;
        while let Some((name, snapshot)) = next.and_then(|name| self.by_name.get_key_value(name)) {
            match snapshot.content {
                Content::Below { .. } => return Some((name, snapshot)),
                Content::Tree(_) => return None,
                Content::Files => next = snapshot.parent.as_deref(),
            }
        }
        None
    }

    /// Gives a layer of an image a tree of its own.
    ///
    /// # Errors
    /// When there is no such snapshot.
    pub fn complete(&mut self, name: &str, image: &str) -> Result<(), Refusal> {
        let snapshot = self.by_name.get_mut(name).ok_or_else(|| Refusal::NotFound(name.to_owned()))?;
        if matches!(snapshot.content, Content::Below { .. }) {
            snapshot.content = Content::Tree(image.to_owned());
        }
        Ok(())
    }

    /// Makes the active snapshot `key` a committed one with the name that is asked for.
    ///
    /// # Errors
    /// When the name is taken, or `key` is not active.
    pub fn commit(&mut self, key: &str, usage: Usage, asked: &Asked<'_>) -> Result<(), Refusal> {
        if self.by_name.contains_key(asked.name) {
            return Err(Refusal::AlreadyExists(asked.name.to_owned()));
        }
        if asked.name.is_empty() {
            return Err(Refusal::InvalidArgument("a snapshot needs a name".to_owned()));
        }
        if self.get(key)?.kind != Kind::Active {
            return Err(Refusal::FailedPrecondition(key.to_owned(), "is not active"));
        }
        let Some(mut snapshot) = self.by_name.remove(key) else { return Ok(()) };
        snapshot.kind = Kind::Committed;
        // Labels are replaced, not inherited: as containerd's own snapshotters do.
        snapshot.labels = asked.labels.clone();
        (snapshot.created_ns, snapshot.updated_ns) = (asked.now_ns, asked.now_ns);
        snapshot.usage = usage;
        self.by_name.insert(asked.name.to_owned(), snapshot);
        Ok(())
    }

    /// Removes a snapshot that is no parent.
    ///
    /// # Errors
    /// When there is none, or it is a parent.
    pub fn remove(&mut self, name: &str) -> Result<Snapshot, Refusal> {
        self.get(name)?;
        if self.by_name.values().any(|snapshot| snapshot.parent.as_deref() == Some(name)) {
            return Err(Refusal::FailedPrecondition(
                name.to_owned(),
                "has a child, which is to be removed first",
            ));
        }
        self.by_name.remove(name).ok_or_else(|| Refusal::NotFound(name.to_owned()))
    }

    /// Changes the labels: all of them when no paths are given, or those that paths name, `labels` or
    /// `labels.NAME`.
    ///
    /// # Errors
    /// When there is no such snapshot, or a path names something else.
    pub fn update(&mut self, paths: &[String], asked: &Asked<'_>) -> Result<&Snapshot, Refusal> {
        let mut labels = self.get(asked.name)?.labels.clone();
        for path in paths {
            match path.strip_prefix("labels.") {
                Some(name) => match asked.labels.get(name) {
                    Some(value) => {
                        labels.insert(name.to_owned(), value.clone());
                    }
                    None => {
                        labels.remove(name);
                    }
                },
                None if path == "labels" => labels.clone_from(asked.labels),
                None => {
                    let text = format!("cannot update {path:?} field on snapshot {:?}", asked.name);
                    return Err(Refusal::InvalidArgument(text));
                }
            }
        }
        if paths.is_empty() {
            labels.clone_from(asked.labels);
        }
        // containerd deletes a label by an empty value.
        labels.retain(|_, value| !value.is_empty());
        let missing = || Refusal::NotFound(asked.name.to_owned());
        let snapshot = self.by_name.get_mut(asked.name).ok_or_else(missing)?;
        snapshot.labels = labels;
        snapshot.updated_ns = asked.now_ns;
        Ok(snapshot)
    }

    /// Whether what was read from a file can be true: each parent is there and committed, no chain of
    /// parents is a circle, and no number is twice there.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let mut ids = BTreeSet::new();
        for (name, snapshot) in &self.by_name {
            if snapshot.id == 0 || snapshot.id > self.last_id || !ids.insert(snapshot.id) {
                return Err(format!("snapshot {name:?} has the number {}, which cannot be", snapshot.id));
            }
            if snapshot.content != Content::Files && snapshot.kind != Kind::Committed {
                return Err(format!("snapshot {name:?} is of an image, and not committed"));
            }
            let mut next = snapshot.parent.as_deref();
            for step in 0.. {
                let Some(parent) = next else { break };
                let found = self.by_name.get(parent).filter(|found| found.kind == Kind::Committed);
                let Some(found) = found else {
                    return Err(format!(
                        "snapshot {name:?} has the parent {parent:?}, which is not committed"
                    ));
                };
                if step > self.by_name.len() {
                    return Err(format!("the parents of snapshot {name:?} are a circle"));
                }
                next = found.parent.as_deref();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
