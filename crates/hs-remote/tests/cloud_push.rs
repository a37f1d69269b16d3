//! Images that are sent to an object store, at once or in parts, and interrupted uploads.

use std::ops::ControlFlow;
use std::path::Path;

use hs_remote::cloud::{CloudAddress, Object, abandon, push};
use hs_remote::http::{HttpClient, Timeouts};
use hs_remote::{Abandoned, Keyring, PushError, Pushed};

use object_server::{AtEnd, ObjectServer};

/// The one of the program's own tests, which also check signatures.
#[allow(dead_code)]
#[path = "../../headstart/tests/cli/object_server.rs"]
mod object_server;

const PART: u64 = 8 << 20;
const S3: &str = "s3://images/dir/a.hsi";
const AZURE: &str = "az://images/dir/a.hsi";
const ACCOUNT: &str = "me";

/// What a test sends, and where.
struct Scene {
    server: ObjectServer,
    address: &'static str,
    bytes: Vec<u8>,
    name: &'static str,
    replace: bool,
    /// Where uploads are noted.
    folder: tempfile::TempDir,
    /// The reported progress.
    told: Vec<(u64, u64)>,
}

/// Some bytes that repeat nowhere.
fn noise(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    hs_units::Prng::new(len).fill(&mut bytes);
    bytes
}

impl Scene {
    fn new(address: &'static str, len: u64) -> Self {
        Self {
            server: ObjectServer::start(|_| true),
            address,
            bytes: noise(len),
            name: "hs1-00",
            replace: false,
            folder: tempfile::tempdir().expect("a folder"),
            told: Vec::new(),
        }
    }

    fn keyring(&self) -> Keyring {
        let s3 = format!("http://127.0.0.1:{}", self.server.port);
        let azure = format!("{s3}/{ACCOUNT}");
        let variables = [
            ("AWS_ENDPOINT_URL", s3.as_str()),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
            ("AZURE_ENDPOINT", &azure),
            ("AZURE_ALLOW_HTTP", "true"),
        ];
        Keyring::of_environment(variables.map(|(name, value)| (name.into(), value.into())))
    }

    /// Sends it until this many bytes are there.
    fn push_until(&mut self, enough: u64, unfinished: bool) -> Result<Pushed, PushError> {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &self.bytes).expect("written");
        let unfinished = unfinished.then(|| self.folder.path());
        let object = Object {
            file: &file,
            path: Path::new("a.hsi"),
            name: self.name,
            replace: self.replace,
            unfinished,
        };
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        let address = CloudAddress::parse(self.address).expect("an address");
        let mut told = Vec::new();
        let pushed = push(&client, &address, &self.keyring().clouds, object, &mut |done, size| {
            told.push((done, size));
            if done >= enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.told = told;
        pushed
    }

    fn push(&mut self) -> Result<Pushed, PushError> {
        self.push_until(u64::MAX, true)
    }

    fn abandon(&self) -> Abandoned {
        let client = HttpClient::new(Timeouts::default()).expect("a client");
        let address = CloudAddress::parse(self.address).expect("an address");
        abandon(&client, &address, &self.keyring().clouds, Some(self.folder.path())).expect("abandoned")
    }

    /// Where the server has it.
    fn place(&self) -> String {
        let account = if self.address == AZURE { "/me" } else { "" };
        format!("{account}/images/dir/a.hsi")
    }

    /// Asserts that all of it is there, and nothing besides.
    fn is_whole(&self) {
        let place = self.place();
        self.server.with(|state| {
            assert!(state.objects.get(&place).is_some_and(|kept| kept.bytes == self.bytes));
            assert!(state.uploads.is_empty(), "parts are left there");
        });
        assert_eq!(self.notes(), 0);
    }

    fn notes(&self) -> usize {
        std::fs::read_dir(self.folder.path()).expect("listed").count()
    }

    fn uploads(&self) -> usize {
        self.server.with(|state| state.uploads.len())
    }

    /// Requests of this kind.
    fn asked(&self, method: &str) -> usize {
        self.server.with(|state| state.lines.iter().filter(|line| line.starts_with(method)).count())
    }

    fn refuse_from(&self, number: Option<u32>) {
        self.server.with(|state| state.refuse_from = number);
    }
}

fn sent(sent_bytes: u64, resumed_bytes: u64) -> Pushed {
    Pushed { sent_bytes, resumed_bytes, digest: None }
}

#[test]
fn a_small_image_is_one_request_and_carries_its_name_and_type() {
    for (address, key) in [(S3, "x-amz-meta-headstart-name"), (AZURE, "x-ms-meta-headstart_name")] {
        // Up to the size of a part.
        let mut scene = Scene::new(address, PART);
        assert_eq!(scene.push().expect("sent"), sent(PART, 0));
        assert_eq!(scene.told, [(0, PART), (PART, PART)]);
        assert_eq!(scene.asked("PUT"), 1);
        scene.is_whole();
        let kept = scene.server.with(|state| format!("{:?}", state.objects[&scene.place()].headers));
        assert!(kept.contains(&format!("\"{key}\": \"hs1-00\"")), "{kept}");
        // Azure has the type in a header of its own, which the server does not keep.
        assert!(address == AZURE || kept.contains("application/vnd.headstart.image.v1"), "{kept}");

        assert_eq!(scene.push().expect("there"), sent(0, 0));
        assert_eq!((scene.asked("PUT"), scene.told.as_slice()), (1, &[(PART, PART)][..]));
    }
}

#[test]
fn another_object_is_only_replaced_when_that_is_asked_for() {
    let mut scene = Scene::new(S3, 5_000);
    scene.push().expect("sent");
    // Another name with as many bytes, and the same name with fewer.
    for (name, len) in [("hs1-01", 5_000), ("hs1-00", 4_000)] {
        (scene.name, scene.bytes, scene.replace) = (name, noise(len), false);
        assert!(matches!(scene.push(), Err(PushError::Taken { .. })));
        scene.replace = true;
        assert_eq!(scene.push().expect("replaced"), sent(len, 0));
        scene.is_whole();
        (scene.name, scene.bytes) = ("hs1-00", noise(5_000));
        scene.push().expect("replaced");
    }
}

#[test]
fn a_small_image_that_is_interrupted_is_not_sent() {
    let mut scene = Scene::new(S3, 5_000);
    assert!(matches!(scene.push_until(0, true), Err(PushError::Interrupted { is_kept: false, .. })));
    assert_eq!(scene.asked("PUT"), 0);
}

#[test]
fn a_large_image_is_sent_in_parts_of_which_the_last_is_short() {
    for address in [S3, AZURE] {
        let mut scene = Scene::new(address, 2 * PART + 100);
        let size = scene.bytes.len() as u64;
        assert_eq!(scene.push().expect("sent"), sent(size, 0));
        scene.is_whole();
        assert!(scene.told.is_sorted() && scene.told.iter().all(|(_, all)| *all == size));
        assert_eq!((scene.told[0], scene.told.last()), ((0, size), Some(&(size, size))));
        let steps: std::collections::BTreeSet<u64> = scene.told.iter().map(|(done, _)| *done).collect();
        assert_eq!(steps.len(), 4, "{steps:?}");
        assert_eq!(scene.push().expect("there"), sent(0, 0));
    }
}

#[test]
fn a_later_process_goes_on_with_the_parts_that_have_come() {
    let mut scene = Scene::new(S3, 2 * PART + 100);
    let size = scene.bytes.len() as u64;
    scene.refuse_from(Some(3));
    assert!(matches!(scene.push(), Err(PushError::Refused { .. })));
    assert_eq!((scene.uploads(), scene.notes()), (1, 1));
    scene.refuse_from(None);
    assert_eq!(scene.push().expect("sent"), sent(100, 2 * PART));
    assert_eq!(scene.told[..2], [(0, size), (2 * PART, size)]);
    scene.is_whole();
}

#[test]
fn a_later_process_goes_on_with_azures_blocks() {
    let mut scene = Scene::new(AZURE, 2 * PART);
    scene.refuse_from(Some(2));
    assert!(matches!(scene.push(), Err(PushError::Refused { .. })));
    scene.refuse_from(None);
    assert_eq!(scene.push().expect("sent"), sent(PART, PART));
    scene.is_whole();
}

#[test]
fn a_part_is_sent_again_when_the_file_has_changed_and_all_when_the_store_has_other_parts() {
    for is_files in [true, false] {
        let mut scene = Scene::new(S3, 2 * PART + 100);
        let size = scene.bytes.len() as u64;
        scene.refuse_from(Some(3));
        scene.push().expect_err("refused");
        scene.refuse_from(None);
        if is_files {
            scene.bytes[7] ^= 1;
        } else {
            scene.server.with(|state| {
                let (_, parts) = state.uploads.values_mut().next().expect("an upload");
                // As many bytes, and another tag.
                parts.values_mut().next().expect("a part")[7] ^= 1;
            });
        }
        let expected = if is_files { sent(PART + 100, PART) } else { sent(size, 0) };
        assert_eq!(scene.push().expect("sent"), expected, "{is_files}");
        scene.is_whole();
    }
}

#[test]
fn what_the_store_has_forgotten_is_sent_again() {
    // Of S3 the next part is refused, or the end when no part is missing; of Azure always the end.
    for (address, is_missing) in [(S3, true), (S3, false), (AZURE, true), (AZURE, false)] {
        let mut scene = Scene::new(address, 2 * PART);
        let size = scene.bytes.len() as u64;
        if is_missing {
            scene.refuse_from(Some(2));
            scene.push().expect_err("refused");
            scene.refuse_from(None);
        } else {
            let kept = scene.push_until(size, true).expect_err("interrupted");
            assert!(matches!(kept, PushError::Interrupted { is_kept: true, .. }), "{kept:?}");
        }
        assert_eq!(scene.notes(), 1);
        scene.server.with(|state| state.uploads.clear());
        assert_eq!(scene.push().expect("sent"), sent(size, 0), "{address}, {is_missing}");
        scene.is_whole();
    }
}

#[test]
fn an_upload_of_another_image_is_not_continued() {
    let mut scene = Scene::new(S3, 2 * PART);
    let size = scene.bytes.len() as u64;
    let break_off = |scene: &mut Scene| {
        scene.refuse_from(Some(2));
        scene.push().expect_err("refused");
        scene.refuse_from(None);
        assert_eq!(scene.uploads(), 1);
    };
    break_off(&mut scene);
    scene.name = "hs1-01";
    assert_eq!(scene.push().expect("sent"), sent(size, 0), "another name");
    scene.is_whole();

    scene.server.with(|state| state.objects.clear());
    break_off(&mut scene);
    scene.bytes.truncate(PART as usize + 9);
    assert_eq!(scene.push().expect("sent"), sent(PART + 9, 0), "another size");
    scene.is_whole();
}

#[test]
fn what_is_interrupted_is_kept_where_it_is_noted_and_can_be_given_up() {
    let mut scene = Scene::new(S3, 2 * PART);
    assert!(matches!(scene.push_until(0, true), Err(PushError::Interrupted { is_kept: false, .. })));
    let kept = scene.push_until(PART, true).expect_err("interrupted");
    assert!(matches!(kept, PushError::Interrupted { is_kept: true, .. }), "{kept:?}");
    assert_eq!((scene.uploads(), scene.notes()), (1, 1));
    scene.address = "s3://images/dir/b.hsi";
    assert_eq!(scene.abandon(), Abandoned::Nothing, "another place has another note");
    scene.address = S3;
    assert_eq!(scene.abandon(), Abandoned::Removed);
    assert_eq!((scene.uploads(), scene.notes()), (0, 0));
    assert_eq!(scene.abandon(), Abandoned::Nothing);

    let gone = scene.push_until(PART, false).expect_err("interrupted");
    assert!(matches!(gone, PushError::Interrupted { is_kept: false, .. }), "{gone:?}");
    assert_eq!((scene.uploads(), scene.notes()), (0, 0));
}

#[test]
fn azure_cannot_be_told_to_remove_blocks() {
    let mut scene = Scene::new(AZURE, 2 * PART);
    scene.push_until(PART, true).expect_err("interrupted");
    assert_eq!(scene.abandon(), Abandoned::Forgotten);
    assert_eq!((scene.uploads(), scene.notes()), (1, 0));
}

#[test]
fn nothing_is_left_of_what_is_refused_and_not_noted() {
    let mut scene = Scene::new(S3, 2 * PART);
    scene.refuse_from(Some(2));
    assert!(matches!(scene.push_until(u64::MAX, false), Err(PushError::Refused { .. })));
    assert_eq!(scene.uploads(), 0);
    // Nor of an upload of which nothing has come, noted or not.
    scene.refuse_from(Some(1));
    assert!(matches!(scene.push(), Err(PushError::Refused { .. })));
    assert_eq!((scene.uploads(), scene.notes()), (0, 0));
}

#[test]
fn the_end_of_an_upload_may_go_wrong_and_replaces_nothing() {
    for address in [S3, AZURE] {
        let mut scene = Scene::new(address, PART + 1);
        // The answer is lost; and, of S3, the failure is told late, or the store knows no condition.
        for at_end in [AtEnd::Cut, AtEnd::FailsLate, AtEnd::Unconditional] {
            scene.server.with(|state| (state.at_end, state.objects) = (Some(at_end), Default::default()));
            assert_eq!(scene.push().expect("sent"), sent(PART + 1, 0), "{at_end:?}");
            scene.is_whole();
        }
        let place = scene.place();
        scene.server.with(|state| {
            (state.at_end, state.objects) = (Some(AtEnd::AnotherClient), Default::default());
        });
        assert!(matches!(scene.push(), Err(PushError::Taken { .. })));
        assert!(scene.server.with(|state| state.objects[&place].bytes == b"of somebody else"));
        assert_eq!((scene.uploads() == 0, scene.notes()), (address == S3, 0));
        scene.replace = true;
        scene.push().expect("replaced");
        assert!(scene.server.with(|state| state.objects[&place].bytes == scene.bytes));
    }
}
