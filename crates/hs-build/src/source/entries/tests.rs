use super::*;

fn file() -> (Status, NewBody<'static>) {
    (status(file_type::REGULAR | 0o644), NewBody::File(Stored::default()))
}

fn status(mode: u16) -> Status {
    Status { mode, uid: 0, gid: 0, bytes: 0, device: (0, 0), modified: Time::default() }
}

/// Files end with `f`, links have ` -> `, everything else is a directory.
fn put(tree: &mut EntryTree, entry: &str) -> Result<(), ArchiveFault> {
    if let Some((name, target)) = entry.split_once(" -> ") {
        let link = NewBody::Symlink(target.as_bytes());
        return tree.put(name.as_bytes(), &status(file_type::SYMLINK | 0o777), Vec::new(), &link);
    }
    let (status, body) = match entry.ends_with('f') {
        true => file(),
        false => (status(file_type::DIRECTORY | 0o700), NewBody::Directory),
    };
    tree.put(entry.as_bytes(), &status, Vec::new(), &body)
}

fn tree(entries: &[&str]) -> EntryTree {
    let mut tree = EntryTree::new();
    for entry in entries {
        put(&mut tree, entry).unwrap_or_else(|fault| panic!("{entry}: {fault}"));
    }
    tree
}

fn listed(tree: &EntryTree) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![(String::new(), EntryId::ROOT)];
    while let Some((path, folder)) = folders.pop() {
        for (name, entry) in tree.names(folder) {
            let path = format!("{path}/{}", shown(name));
            all.push(path.clone());
            folders.push((path, entry));
        }
    }
    all.sort();
    all
}

#[test]
fn parents_appear_and_links_are_followed_within_the_tree() {
    let tree = tree(&["a/b/f", "lib -> usr/lib", "usr/lib/", "lib/f", "up -> ../../../a", "up/g/f"]);
    let expected =
        ["/a", "/a/b", "/a/b/f", "/a/g", "/a/g/f", "/lib", "/up", "/usr", "/usr/lib", "/usr/lib/f"];
    assert_eq!(listed(&tree), expected);
    assert_eq!(tree.status(tree.find(b"a").unwrap().unwrap()).mode, MISSING_MODE);
    assert_eq!(tree.find(b"lib/f").unwrap(), tree.find(b"/usr/lib/f").unwrap());
}

#[test]
fn absolute_links_begin_at_the_root_of_the_tree() {
    let tree = tree(&["etc -> /real", "etc/f", "out -> /../../real", "out/g/f"]);
    assert_eq!(listed(&tree), ["/etc", "/out", "/real", "/real/f", "/real/g", "/real/g/f"]);
}

#[test]
fn names_that_lead_nowhere_good_are_refused() {
    let mut tree = tree(&["f", "l -> l", "dir/"]);
    assert!(matches!(put(&mut tree, "a/../f"), Err(ArchiveFault::Above { .. })));
    assert!(matches!(put(&mut tree, "../f"), Err(ArchiveFault::Above { .. })));
    assert!(matches!(put(&mut tree, "f/x/f"), Err(ArchiveFault::NotADirectory { .. })));
    assert!(matches!(put(&mut tree, "l/f"), Err(ArchiveFault::TooManyLinks)));
    assert!(matches!(tree.link(b"h", b"../f"), Err(ArchiveFault::Above { .. })));
    assert!(matches!(tree.link(b"h", b"none"), Err(ArchiveFault::LinkToNothing { .. })));
    assert!(matches!(tree.link(b"h", b"dir"), Err(ArchiveFault::LinkToDirectory { .. })));
    let (status, body) = file();
    assert!(matches!(tree.put(b"./", &status, Vec::new(), &body), Err(ArchiveFault::RootIsDirectory)));
    let long = vec![b'x'; 4096];
    let put = tree.put(b"long", &status, Vec::new(), &NewBody::Symlink(&long));
    assert!(matches!(put, Err(ArchiveFault::LongTarget { .. })));
    assert_eq!(listed(&tree), ["/dir", "/f", "/l"]);
}

#[test]
fn the_last_entry_of_a_name_counts() {
    let mut tree = tree(&["a/f", "a/", "x/y/f", "x", "b -> c", "bf", "n"]);
    assert_eq!(listed(&tree), ["/a", "/a/f", "/b", "/bf", "/n", "/x", "/x/y", "/x/y/f"]);
    assert_eq!(tree.status(tree.find(b"a").unwrap().unwrap()).mode, file_type::DIRECTORY | 0o700);
    // A file replaces a directory with all that is in it.
    let (status, body) = file();
    tree.put(b"x", &status, Vec::new(), &body).unwrap();
    put(&mut tree, "n -> a").unwrap();
    assert_eq!(listed(&tree), ["/a", "/a/f", "/b", "/bf", "/n", "/x"]);
    assert_eq!(tree.target(tree.find_last(b"n").unwrap().unwrap()), Some(&b"a"[..]));
}

#[test]
fn a_hard_link_is_one_more_name_until_another_entry_takes_it() {
    let mut tree = tree(&["af"]);
    tree.link(b"/b/h", b"./af").unwrap();
    tree.link(b"af", b"af").unwrap();
    assert_eq!(tree.find(b"b/h").unwrap(), tree.find(b"af").unwrap());
    put(&mut tree, "af").unwrap();
    assert_ne!(tree.find(b"b/h").unwrap(), tree.find(b"af").unwrap());
}

#[test]
fn whiteouts_take_away_what_is_below_and_nothing_else() {
    let mut tree = tree(&["a/f", "a/b/c/f", "a/d/f", "l -> a", "g/"]);
    tree.next_layer();
    put(&mut tree, "a/b/new/f").unwrap();
    tree.white_out(b"a/b").unwrap();
    tree.white_out(b"none/at/all").unwrap();
    tree.white_out(b"l/d").unwrap();
    assert_eq!(listed(&tree), ["/a", "/a/b", "/a/b/new", "/a/b/new/f", "/a/f", "/g", "/l"]);
    tree.next_layer();
    put(&mut tree, "a/own/f").unwrap();
    tree.make_opaque(b"a").unwrap();
    tree.make_opaque(b"none").unwrap();
    tree.white_out(b"l").unwrap();
    put(&mut tree, "g/f").unwrap();
    assert_eq!(listed(&tree), ["/a", "/a/own", "/a/own/f", "/g", "/g/f"]);
    // What this layer has itself stays, whichever comes first.
    tree.white_out(b"a/own/f").unwrap();
    put(&mut tree, "g").unwrap();
    tree.white_out(b"g").unwrap();
    assert_eq!(listed(&tree), ["/a", "/a/own", "/a/own/f", "/g", "/g/f"]);
}

#[test]
fn a_whiteout_of_one_name_of_a_file_leaves_the_others_as_they_are() {
    let mut tree = tree(&["a/f"]);
    tree.link(b"h", b"a/f").unwrap();
    tree.next_layer();
    tree.white_out(b"a/f").unwrap();
    assert_eq!(listed(&tree), ["/a", "/h"]);
    assert_eq!(tree.content(tree.find(b"h").unwrap().unwrap()), Some(Stored::default()));
}

#[test]
fn an_entry_takes_less_than_200_bytes_beside_its_name() {
    // Lists grow by doubling, nodes of the sorted tree are half full at worst, and what an allocator adds.
    let bytes = 2 * size_of::<Node>() + 2 * size_of::<(Box<[u8]>, Named)>() + 16;
    assert!(bytes < 200, "{bytes} bytes");
}
