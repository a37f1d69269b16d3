use proptest::prelude::*;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn asked<'a>(name: &'a str, labels: &'a Labels) -> Asked<'a> {
    Asked { name, labels, now_ns: 5 }
}

/// Layers 1 and 2 with files, an active snapshot on them.
#[test]
fn layers_are_stacked_and_removed_from_the_top() {
    let none = Labels::new();
    let mut snapshots = Snapshots::default();
    for (name, key, parent) in [("one", "a", None), ("two", "b", Some("one"))] {
        snapshots.prepare(Kind::Active, parent, &asked(key, &none)).expect("prepared");
        snapshots.commit(key, Usage { size_bytes: 7, inodes: 1 }, &asked(name, &none)).expect("committed");
    }
    let stack = snapshots.prepare(Kind::Active, Some("two"), &asked("run", &none)).expect("prepared");
    assert_eq!(stack, Stack { id: 3, is_writable: true, lower: vec![Lower::Files(2), Lower::Files(1)] });
    assert_eq!(snapshots.stack("run").expect("active"), stack);
    assert!(matches!(snapshots.remove("one"), Err(Refusal::FailedPrecondition(..))));
    assert!(matches!(snapshots.stack("two"), Err(Refusal::FailedPrecondition(..))));
    assert!(matches!(
        snapshots.prepare(Kind::View, Some("run"), &asked("v", &none)),
        Err(Refusal::InvalidArgument(_))
    ));
    assert!(matches!(
        snapshots.prepare(Kind::View, Some("none"), &asked("v", &none)),
        Err(Refusal::NotFound(_))
    ));
    for name in ["run", "two", "one"] {
        snapshots.remove(name).expect("removed");
    }
    assert_eq!(snapshots.remove("one"), Err(Refusal::NotFound("one".to_owned())));
    let again = snapshots.prepare(Kind::Active, None, &asked("a", &none)).expect("prepared");
    assert_eq!(again.id, 4, "numbers are not used twice");
}

#[test]
fn the_tree_of_an_image_hides_the_layers_below_it() {
    let reference = labels(&[(REFERENCE, "sha256:2")]);
    let none = Labels::new();
    let mut snapshots = Snapshots::default();
    let image = || "/a.hsi".to_owned();
    let below = || Content::Below { image: image(), container: "oci://h/a".to_owned(), layers: 1 };
    snapshots.adopt(below(), None, &asked("one", &none)).expect("adopted");
    snapshots.adopt(Content::Tree(image()), Some("one"), &asked("two", &reference)).expect("adopted");
    assert_eq!(snapshots.of_layers("sha256:2", Some("one")), Some("two"));
    assert_eq!(snapshots.of_layers("sha256:2", None), None);
    let stack = snapshots.prepare(Kind::Active, Some("two"), &asked("a", &none)).expect("prepared");
    assert_eq!(stack.lower, [Lower::Tree(image())]);
    assert_eq!(snapshots.image_below(Some("two")).as_deref(), Some("/a.hsi"));
    // A layer on top of it, as a container that was committed.
    snapshots.commit("a", Usage::default(), &asked("three", &none)).expect("committed");
    let stack = snapshots.prepare(Kind::View, Some("three"), &asked("v", &none)).expect("prepared");
    assert_eq!(stack.lower, [Lower::Files(3), Lower::Tree(image())]);
    // Another image with the same lowest layer: its files are not there.
    let refused = snapshots.prepare(Kind::Active, Some("one"), &asked("b", &none));
    assert!(matches!(refused, Err(Refusal::FailedPrecondition(..))), "{refused:?}");
    assert_eq!(snapshots.without_files(Some("one")).map(|(name, _)| name), Some("one"));
    assert!(snapshots.without_files(Some("three")).is_none() && snapshots.without_files(None).is_none());
    assert_eq!((snapshots.images().len(), snapshots.folders().len()), (1, 2));
    snapshots.complete("one", "/one.hsi").expect("completed");
    let stack = snapshots.prepare(Kind::Active, Some("one"), &asked("b", &none)).expect("prepared");
    assert_eq!(stack.lower, [Lower::Tree("/one.hsi".to_owned())]);
    assert_eq!(snapshots.images().len(), 2);
}

#[test]
fn labels_change_by_paths() {
    let mut snapshots = Snapshots::default();
    let before = labels(&[("a", "1"), ("b.c", "2")]);
    snapshots.prepare(Kind::Active, None, &asked("s", &before)).expect("prepared");
    let given = labels(&[("a", "9"), ("b.c", ""), ("d", "4")]);
    let mut update = |paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        snapshots.update(&paths, &asked("s", &given)).map(|snapshot| snapshot.labels.clone())
    };
    assert_eq!(update(&["labels.d"]).expect("set"), labels(&[("a", "1"), ("b.c", "2"), ("d", "4")]));
    assert_eq!(update(&["labels.b.c"]).expect("removed"), labels(&[("a", "1"), ("d", "4")]));
    assert!(matches!(update(&["labels.a", "parent"]), Err(Refusal::InvalidArgument(_))));
    assert_eq!(update(&[]).expect("all"), labels(&[("a", "9"), ("d", "4")]));
    assert_eq!(update(&["labels"]).expect("all"), labels(&[("a", "9"), ("d", "4")]));
}

/// One call on names that a digit stands for.
#[derive(Clone, Debug)]
enum Call {
    Prepare(bool, u8, Option<u8>),
    Adopt(bool, u8, Option<u8>),
    Commit(u8, u8),
    Remove(u8),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let name = || 0..8u8;
    let parent = || prop_oneof![Just(None), (0..8u8).prop_map(Some)];
    let call = prop_oneof![
        (any::<bool>(), name(), parent()).prop_map(|(view, name, parent)| Call::Prepare(view, name, parent)),
        (any::<bool>(), name(), parent()).prop_map(|(top, name, parent)| Call::Adopt(top, name, parent)),
        (name(), name()).prop_map(|(key, name)| Call::Commit(key, name)),
        name().prop_map(Call::Remove),
    ];
    proptest::collection::vec(call, 0..60)
}

/// A plain model: a list of (name, kind, content, parent), asked by searching it.
#[derive(Default)]
struct Model(Vec<(u8, Kind, Content, Option<u8>)>);

impl Model {
    fn find(&self, name: u8) -> Option<usize> {
        self.0.iter().position(|entry| entry.0 == name)
    }

    fn is_committed(&self, name: Option<u8>) -> bool {
        name.is_none_or(|name| self.find(name).is_some_and(|at| self.0[at].1 == Kind::Committed))
    }

    /// Whether a search from the parent upwards meets a tree, or the end, before a layer without files.
    fn has_files(&self, parent: Option<u8>) -> bool {
        let Some(at) = parent.and_then(|name| self.find(name)) else { return true };
        match &self.0[at].2 {
            Content::Files => self.has_files(self.0[at].3),
            Content::Tree(_) => true,
            Content::Below { .. } => false,
        }
    }

    fn call(&mut self, call: &Call) -> bool {
        match *call {
            Call::Prepare(view, name, parent) => {
                let can = self.is_committed(parent) && self.has_files(parent) && self.find(name).is_none();
                let kind = if view { Kind::View } else { Kind::Active };
                if can {
                    self.0.push((name, kind, Content::Files, parent));
                }
                can
            }
            Call::Adopt(top, name, parent) => {
                let can = self.is_committed(parent) && self.find(name).is_none();
                if can {
                    self.0.push((name, Kind::Committed, content(top), parent));
                }
                can
            }
            Call::Commit(key, name) => {
                let found = self.find(key).filter(|at| self.0[*at].1 == Kind::Active);
                let (Some(at), None) = (found, self.find(name)) else { return false };
                (self.0[at].0, self.0[at].1) = (name, Kind::Committed);
                true
            }
            Call::Remove(name) => {
                let is_parent = self.0.iter().any(|entry| entry.3 == Some(name));
                let (Some(at), false) = (self.find(name), is_parent) else { return false };
                self.0.remove(at);
                true
            }
        }
    }
}

fn content(top: bool) -> Content {
    let (image, container) = ("/t".to_owned(), "oci://h/t".to_owned());
    if top { Content::Tree(image) } else { Content::Below { image, container, layers: 1 } }
}

fn called(snapshots: &mut Snapshots, call: &Call) -> bool {
    let none = Labels::new();
    let name = |digit: u8| digit.to_string();
    match *call {
        Call::Prepare(view, digit, parent) => {
            let kind = if view { Kind::View } else { Kind::Active };
            snapshots.prepare(kind, parent.map(name).as_deref(), &asked(&name(digit), &none)).is_ok()
        }
        Call::Adopt(top, digit, parent) => {
            snapshots.adopt(content(top), parent.map(name).as_deref(), &asked(&name(digit), &none)).is_ok()
        }
        Call::Commit(key, digit) => {
            snapshots.commit(&name(key), Usage::default(), &asked(&name(digit), &none)).is_ok()
        }
        Call::Remove(digit) => snapshots.remove(&name(digit)).is_ok(),
    }
}

proptest! {
    #[test]
    fn calls_do_what_the_model_does(calls in calls()) {
        let (mut snapshots, mut model) = (Snapshots::default(), Model::default());
        for call in &calls {
            let before = snapshots.clone();
            let done = called(&mut snapshots, call);
            prop_assert_eq!(done, model.call(call), "{:?}", call);
            prop_assert!(done || snapshots == before, "what fails changes nothing: {:?}", call);
            prop_assert_eq!(snapshots.check(), Ok(()));
            let mut found: Vec<_> = snapshots
                .all()
                .map(|(name, found)| {
                    (name.to_owned(), found.kind, found.content.clone(), found.parent.clone())
                })
                .collect();
            let mut expected: Vec<_> = model.0.iter().map(|(name, kind, content, parent)| {
                (name.to_string(), *kind, content.clone(), parent.map(|parent| parent.to_string()))
            }).collect();
            found.sort_by(|a, b| a.0.cmp(&b.0));
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert_eq!(found, expected);
        }
    }
}
