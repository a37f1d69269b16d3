//! Containers' images become what their layers are, one unpacked over the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hs_build::START_CONFIG_PATH;
use hs_build::source::{Source, SourceError, SourceKind, SourceOptions};
use serde_json::{Value, json};

use crate::support::{Tar, archive, assert_same, digest, filter, is_root, open_with, refused, source};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image that is being made: blobs by their digests.
#[derive(Default)]
struct Image {
    blobs: BTreeMap<String, Vec<u8>>,
    layers: Vec<(Value, String)>,
    config: Value,
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

impl Image {
    fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = sha256(bytes);
        self.blobs.insert(digest.clone(), bytes.to_vec());
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    /// A layer, packed by this program; not at all by none.
    fn layer(mut self, packing: &str, tar: Tar) -> Self {
        let mut bytes = tar.bytes();
        if packing == "gzip" && bytes.ends_with(&[0; 1024]) {
            // umoci ends its layers without zeros.
            bytes.truncate(bytes.len() - 1024);
        }
        let packed = if packing.is_empty() { bytes.clone() } else { filter(packing, &["-c"], &bytes) };
        let descriptor = self.blob(LAYER, &packed);
        self.layers.push((descriptor, sha256(&bytes)));
        self
    }

    fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    fn config_json(&self, architecture: &str) -> Vec<u8> {
        let diff_ids: Vec<_> = self.layers.iter().map(|(_, diff_id)| diff_id).collect();
        let config = json!({
            "os": "linux", "architecture": architecture, "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids}, "history": [],
        });
        config.to_string().into_bytes()
    }

    /// A manifest for this processor.
    fn manifest(&mut self, architecture: &str) -> Value {
        let config = self.config_json(architecture);
        let config = self.blob("application/vnd.oci.image.config.v1+json", &config);
        let layers: Vec<_> = self.layers.iter().map(|(layer, _)| layer).collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string();
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes())
    }

    /// A layout with this list of images.
    fn layout(&self, folder: &Path, manifests: &[Value]) -> PathBuf {
        fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
        fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        fs::write(folder.join("index.json"), index.to_string()).unwrap();
        for (digest, bytes) in &self.blobs {
            fs::write(folder.join(digest.replacen("sha256:", "blobs/sha256/", 1)), bytes).unwrap();
        }
        folder.to_owned()
    }

    /// What `docker save` wrote before it wrote layouts.
    fn saved(&self, folder: &Path) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let config = self.config_json("amd64");
        let name = format!("{}.json", &sha256(&config)[7..]);
        fs::write(folder.join(&name), config).unwrap();
        let mut layers = Vec::new();
        for (number, (descriptor, _)) in self.layers.iter().enumerate() {
            fs::create_dir(folder.join(number.to_string())).unwrap();
            let path = format!("{number}/layer.tar");
            fs::write(folder.join(&path), &self.blobs[descriptor["digest"].as_str().unwrap()]).unwrap();
            layers.push(path);
        }
        let manifest = json!([{"Config": name, "RepoTags": ["demo:1"], "Layers": layers}]);
        fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
        folder.to_owned()
    }
}

/// Three layers that change one another in every way.
fn three_layers(packings: [&str; 3]) -> Image {
    let first = Tar::default()
        .folder("usr")
        .folder("usr/lib")
        .symlink("lib", "usr/lib")
        .file("usr/lib/a", &[1; 10_000])
        .file("usr/lib/b", b"b")
        .folder("gone")
        .file("gone/x", b"x")
        .folder("opaque")
        .file("opaque/old", b"old")
        .file("becomes a folder", b"file")
        .folder("becomes a file")
        .file("becomes a file/f", b"f")
        .hard_link("hard", "usr/lib/b");
    let second = Tar::default()
        // By way of a link, within the root.
        .file("lib/c", b"c")
        .file("usr/lib/.wh.b", b"")
        .file(".wh.gone", b"")
        .file(".wh.never there", b"")
        .file("opaque/new", b"new")
        .file("opaque/.wh..wh..opq", b"")
        .file(".wh..wh.plnk/1.2", b"")
        .folder("becomes a folder")
        .file("becomes a folder/f", b"f")
        .file("becomes a file", b"file");
    let third = Tar::default().hard_link("again", "usr/lib/a").folder("gone").file("usr/lib/a2", &[2; 5000]);
    let [one, two, three] = packings;
    Image::default().layer(one, first).layer(two, second).layer(three, third)
}

/// What they become, as one archive.
fn flattened() -> Tar {
    Tar::default()
        .folder("usr")
        .folder("usr/lib")
        .symlink("lib", "usr/lib")
        .file("usr/lib/a", &[1; 10_000])
        .hard_link("again", "usr/lib/a")
        .file("usr/lib/a2", &[2; 5000])
        .file("usr/lib/c", b"c")
        .file("hard", b"b")
        .folder("gone")
        .folder("opaque")
        .file("opaque/new", b"new")
        .folder("becomes a folder")
        .file("becomes a folder/f", b"f")
        .file("becomes a file", b"file")
}

#[test]
fn layers_of_every_packing_become_one_tree() {
    let work = tempfile::tempdir().unwrap();
    let expected = digest(&source(&flattened().write(&work.path().join("flat.tar"))));
    for (number, packings) in
        [["", "", ""], ["gzip", "zstd", ""], ["zstd", "gzip", "gzip"]].into_iter().enumerate()
    {
        let mut image = three_layers(packings);
        let manifest = image.manifest("amd64");
        let layout = image.layout(&work.path().join(format!("layout {number}")), &[manifest]);
        let found = source(&layout);
        assert_eq!(found.kind(), SourceKind::Container);
        assert_same(&found, &source(&work.path().join("flat.tar")), &format!("{packings:?}"));
        assert_eq!(found.kept_bytes() == 0, packings == [""; 3], "plain layers are read where they lie");
        let saved = image.saved(&work.path().join(format!("saved {number}")));
        for (folder, name) in [(&layout, "layout.tar"), (&saved, "saved.tar")] {
            let tar = work.path().join(name);
            archive(folder, &tar, &[]);
            let found = source(&tar);
            assert_eq!(
                (found.kind(), digest(&found)),
                (SourceKind::Container, expected),
                "{name} {packings:?}"
            );
            let packed = filter("gzip", &["-c"], &fs::read(&tar).unwrap());
            let options = SourceOptions { keep_in: Some(work.path().to_owned()), ..SourceOptions::default() };
            let stream = Box::new(std::io::Cursor::new(packed));
            let found = Source::open_stream(stream, Path::new("stdin"), &options, &|_| {}).unwrap();
            assert_eq!(digest(&found), expected, "{name} from a stream, {packings:?}");
        }
    }
}

#[test]
fn an_image_can_be_taken_as_the_files_that_it_consists_of() {
    let work = tempfile::tempdir().unwrap();
    let mut image = three_layers(["", "", ""]);
    let manifest = image.manifest("amd64");
    let layout = image.layout(&work.path().join("layout"), &[manifest]);
    let tree = || SourceOptions { tree: true, ..SourceOptions::default() };
    assert_eq!(open_with(&layout, tree()).unwrap().kind(), SourceKind::Directory);
    let tar = work.path().join("layout.tar");
    archive(&layout, &tar, &[]);
    assert_eq!(open_with(&tar, tree()).unwrap().kind(), SourceKind::Archive);
    // And a tree that has such a file is none.
    let root = Tar::default().folder("usr").file("manifest.json", b"{}").write(&work.path().join("root.tar"));
    assert_eq!(source(&root).kind(), SourceKind::Archive);
    let error = Source::open_image_archive(&root, None, &tree(), &|_| {}).unwrap_err().to_string();
    assert!(error.contains("no container's image"), "{error}");
}

#[test]
fn the_configuration_is_kept_in_the_tree() {
    let work = tempfile::tempdir().unwrap();
    let config =
        json!({"Entrypoint": ["/init"], "Cmd": null, "Env": ["A=1"], "User": "7", "ChainID": "its own"});
    // A link in its place is not followed.
    let layer = Tar::default().folder("etc").symlink(".headstart", "etc");
    let mut image = Image::default().layer("gzip", layer).config(config);
    let manifest = image.manifest("amd64");
    let layout = image.layout(&work.path().join("layout"), &[manifest]);
    let chain = image.layers[0].1.clone();
    let json = format!(
        "{{\n  \"Entrypoint\": [\n    \"/init\"\n  ],\n  \"Env\": [\n    \"A=1\"\n  ],\n  \"User\": \"7\",\n  \"ChainID\": \"{chain}\"\n}}\n"
    );
    let expected = Tar::default()
        .folder("etc")
        .changed(b'5', ".headstart", 0, |header| header[136..147].copy_from_slice(b"00000000000"))
        .changed(b'0', START_CONFIG_PATH, json.len() as u64, |header| {
            header[136..147].copy_from_slice(b"00000000000");
        });
    let mut bytes = expected.unended();
    bytes.extend(json.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
    fs::write(work.path().join("expected.tar"), bytes).unwrap();
    let expected = digest(&source(&work.path().join("expected.tar")));
    assert_eq!(digest(&source(&layout)), expected);
    // The lowest layer of two has the name of that one.
    let mut two = image.layer("", Tar::default().file("second", b"2"));
    let manifest = two.manifest("amd64");
    let layout = two.layout(&work.path().join("two"), &[manifest]);
    let lowest = SourceOptions { layers: Some(1), ..SourceOptions::default() };
    assert_eq!(digest(&open_with(&layout, lowest).unwrap()), expected);
    assert_ne!(digest(&source(&layout)), expected);
}

#[test]
fn images_are_chosen_by_name_and_platform() {
    let work = tempfile::tempdir().unwrap();
    let mut image = Image::default().layer("", Tar::default().file("f", b"amd64"));
    let mut amd = image.manifest("amd64");
    let mut other = Image::default().layer("", Tar::default().file("f", b"arm64"));
    let mut arm = other.manifest("arm64");
    image.blobs.extend(other.blobs);
    amd["platform"] = json!({"os": "linux", "architecture": "amd64"});
    arm["platform"] = json!({"os": "linux", "architecture": "arm64", "variant": "v8"});
    let list = json!({"schemaVersion": 2, "manifests": [arm, amd]}).to_string();
    let mut nested = image.blob("application/vnd.oci.image.index.v1+json", list.as_bytes());
    nested["annotations"] = json!({"org.opencontainers.image.ref.name": "both"});
    let mut single = arm.clone();
    single["annotations"] = json!({"org.opencontainers.image.ref.name": "one"});
    let layout = image.layout(&work.path().join("layout"), &[nested, single]);
    let content = |name: Option<&str>, platform: &str| {
        let options = SourceOptions { platform: Some(platform.parse().unwrap()), ..SourceOptions::default() };
        Source::open_layout(&layout, name, &options, &|_| {}).map(|found| digest(&found))
    };
    let of = |content: &[u8]| {
        digest(&source(&Tar::default().file("f", content).write(&work.path().join("f.tar"))))
    };
    assert_eq!(content(Some("both"), "linux/amd64").unwrap(), of(b"amd64"));
    assert_eq!(content(Some("both"), "linux/arm64").unwrap(), of(b"arm64"));
    assert_eq!(content(Some("both"), "linux/arm64/v8").unwrap(), of(b"arm64"));
    assert_eq!(content(Some("one"), "linux/arm64").unwrap(), of(b"arm64"));
    for (name, platform, word) in [
        (None, "linux/arm64", "there are both, one"),
        (Some("none"), "linux/arm64", "no image is called \"none\""),
        (Some("both"), "linux/s390x", "no image is for linux/s390x"),
        (Some("one"), "linux/amd64", "no image is for linux/amd64"),
    ] {
        let error = content(name, platform).unwrap_err().to_string();
        assert!(error.contains(word), "no {word:?} in {error}");
    }
}

/// Changes a layout, and says why it is refused.
fn broken(work: &Path, break_it: impl FnOnce(&mut Image) -> Vec<Value>) -> String {
    let mut image = three_layers(["gzip", "", "zstd"]);
    let manifests = break_it(&mut image);
    let folder = work.join("broken");
    let error = refused(&image.layout(&folder, &manifests));
    fs::remove_dir_all(folder).unwrap();
    error
}

#[test]
fn blobs_that_are_not_what_their_digests_say_are_refused() {
    let work = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let error = broken(work.path(), |image| {
            let manifest = image.manifest("amd64");
            let layer = image.layers[number].0["digest"].as_str().unwrap().to_owned();
            let blob = image.blobs.get_mut(&layer).unwrap();
            let at = blob.len() - 3;
            blob[at] ^= 1;
            vec![manifest]
        });
        let words = ["is damaged: its digest is", "cannot read it", "its header cannot be read"];
        assert!(words.iter().any(|word| error.contains(word)), "{number}: {error}");
    }
    let error = broken(work.path(), |image| {
        let manifest = image.manifest("amd64");
        image.layers[1].1 = sha256(b"something else");
        let other = image.manifest("amd64");
        assert_ne!(manifest["digest"], other["digest"]);
        vec![other]
    });
    assert!(error.contains("is damaged: its digest is"), "the digest of the unpacked layer: {error}");
    let error = broken(work.path(), |image| {
        let manifest = image.manifest("amd64");
        image.blobs.remove(image.layers[2].0["digest"].as_str().unwrap());
        vec![manifest]
    });
    assert!(error.contains("is missing"), "{error}");
    let error = broken(work.path(), |image| {
        let mut manifest = image.manifest("amd64");
        manifest["size"] = json!(7);
        vec![manifest]
    });
    assert!(error.contains("more or fewer than the 7 bytes"), "{error}");
    let error = broken(work.path(), |image| {
        image.layers[0].1 = String::new();
        image.layers.push((json!({}), String::new()));
        let mut manifest = image.manifest("amd64");
        manifest["digest"] = json!("md5:00");
        vec![manifest]
    });
    assert!(error.contains("no digest that is known"), "{error}");
}

#[test]
fn documents_that_make_no_sense_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let media = |media_type: &str| {
        broken(work.path(), |image| {
            image.layers[0].0["mediaType"] = json!(media_type);
            vec![image.manifest("amd64")]
        })
    };
    assert!(media("application/vnd.oci.image.layer.v1.tar+gzip+encrypted").contains("decrypt the image"));
    assert!(media("application/vnd.headstart.image.v1").contains("a headstart image already"));
    let error = broken(work.path(), |image| vec![image.blob("", b"{\"layers\":7}")]);
    assert!(error.contains("its manifest is damaged"), "{error}");
    let error = broken(work.path(), |image| {
        image.layers.pop();
        let mut manifest: Value = image.manifest("amd64");
        let bytes = image.blobs[manifest["digest"].as_str().unwrap()].clone();
        let mut parsed: Value = serde_json::from_slice(&bytes).unwrap();
        parsed["layers"].as_array_mut().unwrap().pop();
        manifest = image.blob("", parsed.to_string().as_bytes());
        vec![manifest]
    });
    assert!(error.contains("it has 1 layers, but digests of 2"), "{error}");
    let error = broken(work.path(), |image| {
        let mut list = image.manifest("amd64");
        for _ in 0..6 {
            list = image.blob("", json!({"manifests": [list]}).to_string().as_bytes());
        }
        vec![list]
    });
    assert!(error.contains("nested more than"), "{error}");
    let error = broken(work.path(), |image| {
        let mut manifest = image.manifest("amd64");
        manifest["size"] = json!(1_u64 << 40);
        vec![manifest]
    });
    assert!(error.contains("4194304 are the most"), "{error}");
    let windows = broken(work.path(), |image| {
        let config = json!({"os": "windows", "architecture": "amd64"}).to_string();
        let config = image.blob("", config.as_bytes());
        vec![image.blob("", json!({"config": config, "layers": []}).to_string().as_bytes())]
    });
    assert!(windows.contains("an image for \"windows\""), "{windows}");
}

#[test]
fn a_bad_entry_of_a_layer_is_named() {
    let work = tempfile::tempdir().unwrap();
    for (tar, word) in [
        (Tar::default().file("../f", b"x"), "`..`"),
        (Tar::default().file("a/.wh.", b""), "whiteout of no name"),
        (Tar::default().file("a/.wh...", b""), "whiteout of no name"),
        (Tar::default().file(".wh.a/b", b""), "whiteout of no name"),
        (Tar::default().hard_link("h", "none"), "not in the archive before it"),
    ] {
        let mut image = Image::default().layer("gzip", tar);
        let manifest = image.manifest("amd64");
        let layout = image.layout(&work.path().join("layout"), &[manifest]);
        let error = open_with(&layout, SourceOptions::default()).unwrap_err();
        assert!(matches!(error, SourceError::Archive { .. }));
        let error = error.to_string();
        assert!(error.contains("layout/sha256:") && error.contains(word), "{error}");
        fs::remove_dir_all(layout).unwrap();
    }
}

/// The oracle: GNU tar unpacks one layer over the other, and files of the tree are removed by hand.
#[test]
fn layers_become_what_tar_unpacks_one_over_the_other() {
    if !is_root("unpacking layers") {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let root = work.path().join("root");
    fs::create_dir(&root).unwrap();
    let first =
        Tar::default().folder(".").folder("d").file("d/a", &[1; 9000]).file("d/b", b"b").symlink("l", "d");
    let second = Tar::default().folder("d").file("d/c", b"c").hard_link("d/e", "d/a").file("d/b", b"new");
    for (number, tar) in [first, second].into_iter().enumerate() {
        let path = tar.write(&work.path().join(format!("{number}.tar")));
        let words = ["-C", root.to_str().unwrap(), "-xpf", path.to_str().unwrap(), "--numeric-owner"];
        crate::support::run("tar", words);
    }
    let read = |number: usize| fs::read(work.path().join(format!("{number}.tar"))).unwrap();
    let mut image = Image::default();
    for number in 0..2 {
        let bytes = read(number);
        let descriptor = image.blob(LAYER, &bytes);
        image.layers.push((descriptor, sha256(&bytes)));
    }
    let manifest = image.manifest("amd64");
    let layout = image.layout(&work.path().join("layout"), &[manifest]);
    assert_same(&source(&layout), &source(&root), "tar");
}
