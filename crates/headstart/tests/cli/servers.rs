//! Images on servers as they are: tags that differ from answer to answer, lengths that are not said, ranges
//! that are rounded.

use std::fs;
use std::sync::Arc;

use crate::odd_server::{Asked, OddServer, Said};
use crate::scene::{Ran, Scene, run};
use crate::web::remote;

/// An image with its name, and the bytes of its disk.
struct Published {
    scene: Scene,
    file: Arc<Vec<u8>>,
    name: String,
    disk: Vec<u8>,
}

impl Published {
    fn new(seed: u64) -> Self {
        let scene = Scene::new();
        let disk = scene.image("a.hsi", 1500, seed);
        let name =
            run(["verify", &scene.arg("a.hsi")]).ok().stdout.lines().last().expect("a name").to_owned();
        let file = Arc::new(fs::read(scene.path("a.hsi")).expect("the image"));
        // Several requests bring it.
        assert!(file.len() > 2 << 20, "{} bytes", file.len());
        Self { scene, file, name, disk }
    }

    /// Starts a server; `answer` gets the file too.
    fn served(&self, answer: impl Fn(&Asked, &[u8]) -> Said + Send + Sync + 'static) -> OddServer {
        let file = Arc::clone(&self.file);
        OddServer::start(move |asked| answer(asked, &file))
    }

    fn export(&self, url: &str) -> Ran {
        let export = ["export", url, "-o", "out.raw", "--format", "raw", "--force", "--disk-cache=none"];
        remote(&self.scene, export).output().expect("the program starts").into()
    }

    /// Reads all of it by its name.
    fn reads_by_name(&self, server: &OddServer) -> Ran {
        let ran = self.export(&format!("{}#{}", server.url(), self.name)).ok();
        assert!(fs::read(self.scene.path("out.raw")).expect("exported") == self.disk);
        ran
    }
}

/// How often it is said that tags or dates differ.
fn said(ran: &Ran) -> usize {
    ran.stderr.matches("reading goes on").count()
}

fn is_matched(asked: &Asked, tag: &str) -> bool {
    asked.header("if-match").is_none_or(|wanted| wanted == tag)
}

/// The `Last-Modified` and tags that the two edges of a network give one file, in turn.
fn edge_fields(asked: &Asked, has_tags: bool) -> String {
    let edge = asked.number % 2;
    if has_tags {
        format!("ETag: \"edge-{edge}\"\r\n")
    } else {
        format!("Last-Modified: Sun, 06 Nov 1994 08:49:3{edge} GMT\r\n")
    }
}

#[test]
fn tags_and_dates_of_a_named_image_may_differ_from_answer_to_answer() {
    let image = Published::new(201);
    let length = image.file.len();
    for has_tags in [true, false] {
        let server = image
            .served(move |asked, file| asked.part(file, &edge_fields(asked, has_tags), &length.to_string()));
        assert_eq!(said(&image.reads_by_name(&server)), 1, "tags: {has_tags}");
        // Without a name nothing else tells the files of two days apart.
        let ran = image.export(&server.url());
        ran.fails(1, &["the file was replaced on the server"]);
        assert_eq!(said(&ran), 0);
    }
}

#[test]
fn a_refused_condition_is_not_repeated() {
    let image = Published::new(202);
    let length = image.file.len().to_string();
    for edges in [true, false] {
        let length = length.clone();
        let server = image.served(move |asked, file| {
            // An edge that compares tags, and a server that refuses its own.
            let fields = if edges { edge_fields(asked, true) } else { "ETag: \"same\"\r\n".to_owned() };
            let is_refused = match edges {
                true => !is_matched(asked, fields["ETag: ".len()..].trim()),
                false => asked.header("if-match").is_some(),
            };
            if is_refused { Said::nothing(412, &fields) } else { asked.part(file, &fields, &length) }
        });
        assert_eq!(said(&image.reads_by_name(&server)), 1, "edges: {edges}");
        let asked = server.asked();
        let conditions = asked.iter().filter(|asked| asked.header("if-match").is_some()).count();
        // As many as may be under way when the first is refused.
        assert!(
            (1..=10).contains(&conditions) && asked.len() > conditions,
            "{conditions} of {}",
            asked.len()
        );
        let unnamed = image.export(&server.url());
        if edges {
            unnamed.fails(1, &["the file was replaced on the server: it was", "edge-0", "edge-1"]);
        } else {
            // The tag of the answer without the condition says that it is the same file.
            assert_eq!(said(&unnamed.ok()), 1);
        }
    }
}

#[test]
fn other_bytes_behind_a_name_are_found_by_their_digests() {
    let image = Published::new(203);
    let length = image.file.len();
    let server = image.served(move |asked, file| {
        let Some(first) = asked.range.clone().map(|range| range.start).filter(|first| *first > 0) else {
            return asked.part(file, "ETag: \"edge-0\"\r\n", &length.to_string());
        };
        // The file of another day, of the same length, at one of the edges.
        let fields = "ETag: \"edge-1\"\r\n";
        let mut other = file.to_vec();
        other[first..].iter_mut().for_each(|byte| *byte ^= 0x55);
        asked.part(&other, fields, &length.to_string())
    });
    let ran = image.export(&format!("{}#{}", server.url(), image.name));
    ran.fails(1, &["digest"]);
    assert!(!ran.stderr.contains("replaced"), "{ran:?}");
    // One of another length cannot be the same.
    let server = image.served(move |asked, file| {
        let length = length + asked.number;
        asked.part(file, "", &length.to_string())
    });
    image.export(&format!("{}#{}", server.url(), image.name)).fails(1, &["the file was replaced"]);
}

#[test]
fn a_length_that_the_server_does_not_say_is_found_elsewhere() {
    let image = Published::new(204);
    for has_head in [true, false] {
        let server = image.served(move |asked, file| match asked.method.as_str() {
            "HEAD" if has_head => Said::nothing(200, &format!("Content-Length: {}\r\n", file.len())),
            "HEAD" => Said::nothing(405, ""),
            _ => asked.part(file, "ETag: \"one\"\r\n", "*"),
        });
        // Without HEAD it is in the image's first block.
        assert_eq!(said(&image.reads_by_name(&server)), 0);
        assert_eq!(server.asked().iter().filter(|asked| asked.method == "HEAD").count(), 1);
    }
    let server = image.served(|asked, file| match asked.method.as_str() {
        "HEAD" => Said::nothing(200, "Content-Length: 5\r\nContent-Encoding: gzip\r\n"),
        _ => asked.part(&vec![7; file.len()], "", "*"),
    });
    image.export(&server.url()).fails(1, &["does not say how long the file is", "HEAD"]);
}

#[test]
fn ranges_that_are_rounded_to_blocks_and_dates_of_other_zones_are_taken() {
    let image = Published::new(205);
    let length = image.file.len();
    let server = image.served(move |asked, file| {
        let asked_for = asked.range.clone().expect("a range");
        let (first, end) = (asked_for.start & !0xffff, asked_for.end.next_multiple_of(1 << 16));
        let zone = ["GMT", "UTC", "+0000"][asked.number % 3];
        let fields = format!("Last-Modified: Sun, 06 Nov 1994 08:49:37 {zone}\r\n");
        asked.bytes(file, first..end.min(file.len()), &fields, &length.to_string())
    });
    assert_eq!(said(&image.reads_by_name(&server)), 0);
    image.export(&server.url()).ok();
    let zipping =
        image.served(move |asked, file| asked.part(file, "Content-Encoding: gzip\r\n", &length.to_string()));
    image.export(&zipping.url()).fails(1, &["the bytes are compressed (gzip)"]);
}

#[test]
fn servers_that_no_proxy_names_are_asked_directly() {
    let image = Published::new(206);
    let length = image.file.len().to_string();
    let server = image.served(move |asked, file| asked.part(file, "", &length));
    let port = server.port();
    let read = |name: &str, list: &str| -> Ran {
        let mut command = remote(&image.scene, ["verify", &server.url(), "--disk-cache=none"]);
        // Nothing listens there.
        command.env("all_proxy", "http://127.0.0.1:1").env(name, list);
        command.output().expect("the program starts").into()
    };
    for (name, list) in [
        ("no_proxy", format!("x.example 127.0.0.1:{port}")),
        ("NO_PROXY", "10.0.0.0/8,127.0.0.0/8".to_owned()),
        ("no_proxy", "*".to_owned()),
    ] {
        read(name, &list).ok();
    }
    let before = server.asked().len();
    read("no_proxy", &format!("127.0.0.1:{}", port - 1)).fails(1, &["127.0.0.1"]);
    assert_eq!(server.asked().len(), before);
}
