//! A tree is built again, its channel moves on, and a machine with the old image fetches what is new.

use std::fs;

use hs_units::Prng;
use serde_json::Value;

use crate::images::write_profile;
use crate::scene::{Ran, Scene, machine_has, run};
use crate::web::{NGINX, Nginx, run_remote};

const BLOCK: usize = 4096;
const CHANGED_BYTES: usize = 200_000;

/// A tree of 300 small files and a large one.
fn tree(scene: &Scene) -> Prng {
    let mut random = Prng::new(76);
    for number in 0..300 {
        let folder = scene.path(&format!("tree/folder{}", number % 10));
        fs::create_dir_all(&folder).expect("a folder");
        write(scene, &format!("folder{}/{number}", number % 10), 3 * BLOCK - 5, &mut random);
    }
    write(scene, "large", 4 << 20, &mut random);
    random
}

fn write(scene: &Scene, name: &str, len: usize, random: &mut Prng) {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    fs::write(scene.path(&format!("tree/{name}")), bytes).expect("written");
}

fn build(scene: &Scene, image: &str, more: &[&str]) -> Value {
    let (tree, image) = (scene.arg("tree"), scene.arg(image));
    let words = ["-q", "build", &tree, "-o", &image, "--json"];
    run(words.iter().chain(more)).ok().json()
}

/// The disk of an image.
fn disk(scene: &Scene, image: &str) -> Vec<u8> {
    run(["-q", "export", &scene.arg(image), "-o", &scene.arg("raw"), "--format", "raw", "--force"]).ok();
    fs::read(scene.path("raw")).expect("exported")
}

/// `www/v1.hsi`, with every fourth block of the small files hot, and `www/v2.hsi`, like it, with a few
/// changes.
fn two_versions(scene: &Scene) {
    let mut random = tree(scene);
    fs::create_dir(scene.path("www")).expect("a folder");
    build(scene, "cold.hsi", &["--codec", "zstd:3"]);
    let cold = disk(scene, "cold.hsi");
    let hot =
        (0..cold.len() / BLOCK).filter(|lba| cold[lba * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0));
    let hot: Vec<u64> = hot.take(700).step_by(4).map(|lba| lba as u64).collect();
    write_profile(scene, "start.hsp", "cold.hsi", &cold, hot.into_iter());
    let words = [scene.arg("cold.hsi"), scene.arg("start.hsp"), scene.arg("www/v1.hsi")];
    run(["-q", "optimize", &words[0], "-p", &words[1], "-o", &words[2], "--max-chunk", "32K"]).ok();
    write(scene, "folder3/new", CHANGED_BYTES / 2, &mut random);
    write(scene, "folder4/4", CHANGED_BYTES / 2, &mut random);
    fs::remove_file(scene.path("tree/folder5/5")).expect("removed");
    let built = build(scene, "www/v2.hsi", &["--like", &scene.arg("www/v1.hsi"), "--codec", "zstd:9"]);
    assert!(built["hot_bytes"].as_u64() > Some(160 * BLOCK as u64), "{built}");
    run(["verify", &scene.arg("www/v2.hsi")]).ok();
}

const CACHE: &str = "--disk-cache=cache";

/// A web server, and the address of a channel of it with a new key.
fn channel(scene: &Scene) -> (Nginx, String) {
    let key = run(["keygen", &scene.arg("k")]).ok().stdout.trim().to_owned();
    let nginx = Nginx::start(scene, "");
    let address = format!("{}{key}", nginx.url("stable.minisig"));
    (nginx, address)
}

/// Points the channel to an image.
fn publish(scene: &Scene, image: &str, date: &str) {
    let (image, secret) = (scene.arg(&format!("www/{image}")), scene.arg("k.key"));
    run(["sign", &image, "--key", &secret, "--channel", "stable", "--date", date]).ok();
}

#[test]
fn a_channel_that_moves_on_brings_only_what_is_new() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    two_versions(&scene);
    let (nginx, address) = channel(&scene);
    let publish = |image: &str, date: &str| publish(&scene, image, date);
    let fill = || run_remote(&scene, &["cache", "fill", &address, "--json", CACHE]).ok().json();
    let moved = || nginx.answered().iter().map(|(_, bytes, _)| bytes).sum::<u64>();
    publish("v1.hsi", "2026-01-01");
    let first = fill();
    assert!(first["fetched_bytes"].as_u64() > Some(5 << 20), "{first}");
    let before = moved();

    publish("v2.hsi", "2026-01-02");
    let second = fill();
    let name = run(["verify", &scene.arg("www/v2.hsi")]).ok().stdout;
    assert_eq!(second["name"].as_str(), name.lines().last());
    // The new bytes are noise. Beside them come windows of tables and folders, hot chunks with blocks of
    // these, and the tables of the image.
    let bound = CHANGED_BYTES as u64 * 115 / 100 + (160 << 10);
    assert!(second["fetched_bytes"].as_u64() < Some(bound), "{second}");
    assert!(moved() - before < bound + (64 << 10), "{} bytes moved", moved() - before);

    // All of it is there before anything is switched to it.
    drop(nginx);
    let out = ["-o", "out.raw", "--format", "raw", "--offline"];
    run_remote(&scene, &[&["export", &address, CACHE][..], &out].concat()).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk(&scene, "www/v2.hsi"));
}

/// What machines recorded gives the image of the channel another hot region; the rest of it they have.
#[test]
fn profiles_of_a_fleet_improve_what_is_published() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    two_versions(&scene);
    let (nginx, address) = channel(&scene);
    let publish = |image: &str, date: &str| publish(&scene, image, date);
    let fill = || run_remote(&scene, &["cache", "fill", &address, "--json", CACHE]).ok().json();
    publish("v1.hsi", "2026-01-01");
    let first = fill();

    // Two machines start something else: of the first blocks of the large file each reads most.
    let disk = disk(&scene, "www/v1.hsi");
    let large = fs::read(scene.path("tree/large")).expect("the file");
    let large = hs_testing::place(&disk, &large[..BLOCK]).expect("it is there") / BLOCK;
    let profiles = [3, 5].map(|left_out| {
        let name = format!("of-{left_out}.hsp");
        let read = (0..60).filter(|block| block % left_out != 0).map(|block| (large + block) as u64);
        write_profile(&scene, &name, "www/v1.hsi", &disk, read);
        scene.arg(&name)
    });
    let (v1, better) = (scene.arg("www/v1.hsi"), scene.arg("www/better.hsi"));
    let words = ["-q", "optimize", &v1, "-p", &profiles[0], "-p", &profiles[1], "-o", &better, "--variants"];
    run(words.iter().chain(&["--max-chunk", "32K"])).ok();
    publish("better.hsi", "2026-01-02");
    let second = fill();
    let about = |image: &str| run(["inspect", "--json", image]).ok().json();
    assert_eq!(second["name"], about(&better)["image_digest"]);
    assert_eq!(about(&v1)["cold_digest"], about(&better)["cold_digest"]);
    // No chunk of the disk comes again, nor of the hot region those that stay: only the large file's blocks
    // beside the tables.
    let number = |value: &Value| value.as_u64().expect("a number");
    let bound = (60 * BLOCK + (16 << 10)) as u64;
    assert!(number(&second["fetched_bytes"]) < bound, "{second}");
    assert!(number(&second["kept_bytes"]) >= number(&first["fetched_bytes"]) - bound, "{second}");
    let hot = &about(&better)["hot_segments"][0]["hot_bytes"];
    assert!(number(hot) >= 220 * BLOCK as u64, "{hot}");
    // It starts from the new one without the network.
    drop(nginx);
    let out = ["-o", "out.raw", "--format", "raw", "--offline"];
    run_remote(&scene, &[&["export", &address, CACHE][..], &out].concat()).ok();
    assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
}

/// Its pointer is there before its image, or before all of it.
#[test]
fn a_channel_is_followed_when_its_image_is_there() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    fs::create_dir(scene.path("www")).expect("a folder");
    let key = run(["keygen", &scene.arg("k")]).ok().stdout.trim().to_owned();
    let nginx = Nginx::start(&scene, "");
    let address = format!("{}{key}", nginx.url("stable.minisig"));
    let [one, two] = [("one.hsi", 1), ("two.hsi", 2)].map(|(name, seed)| {
        scene.image(name, 40, seed);
        run(["verify", &scene.arg(name)]).ok().stdout.lines().last().expect("a name").to_owned()
    });
    let sign = |image: &str, date: &str| {
        let (image, secret, out) = (scene.arg(image), scene.arg("k.key"), scene.arg("www/stable.minisig"));
        run(["sign", &image, "--key", &secret, "--channel", "stable", "--date", date]).ok();
        fs::rename(scene.path("stable.minisig"), out).expect("published");
    };
    let with_cache = |cache: &str, more: &[&str]| {
        let words = ["inspect", &address, "--channel-state=state", cache];
        run_remote(&scene, &[&words[..], more].concat())
    };
    let inspect = |more: &[&str]| with_cache("--disk-cache=cache", more);
    let stays = |ran: &Ran| {
        let told: Vec<_> = ran.stderr.lines().filter(|line| line.contains("stays")).collect();
        let names = [&two[..], &one[..], "2026-01-02", "2026-01-01"];
        assert!(told.len() == 1 && names.iter().all(|name| told[0].contains(name)), "{ran:?}");
        assert!(ran.stdout.contains(&one), "{ran:?}");
    };
    // The first one has nothing that could stay.
    sign("one.hsi", "2026-01-01");
    inspect(&[]).fails(1, &["one.hsi", "404"]);
    fs::copy(scene.path("one.hsi"), scene.path("www/one.hsi")).expect("published");
    assert!(inspect(&[]).ok().stdout.contains(&one));

    sign("two.hsi", "2026-01-02");
    for _ in 0..2 {
        stays(&inspect(&[]).ok());
    }
    assert!(inspect(&["--offline"]).ok().stdout.contains(&one));
    let whole = fs::read(scene.path("two.hsi")).expect("the image");
    fs::write(scene.path("www/two.hsi"), &whole[..whole.len() - 1]).expect("published in part");
    stays(&inspect(&[]).ok());
    // Under the name of the image that it replaces.
    fs::copy(scene.path("one.hsi"), scene.path("www/two.hsi")).expect("the old one");
    stays(&inspect(&[]).ok());

    fs::write(scene.path("www/two.hsi"), &whole).expect("published");
    let ran = inspect(&[]).ok();
    assert!(ran.stdout.contains(&two) && !ran.stderr.contains("stays"), "{ran:?}");
    // What was followed once is not left again.
    fs::remove_file(scene.path("www/two.hsi")).expect("removed");
    with_cache("--disk-cache=none", &[]).fails(1, &["two.hsi", "404"]);
}

#[test]
fn only_an_image_of_a_tree_is_a_model_for_a_tree() {
    let scene = Scene::new();
    fs::create_dir(scene.path("tree")).expect("a folder");
    scene.image("disk.hsi", 40, 1);
    let words = ["build", &scene.arg("tree"), "-o", &scene.arg("a.hsi"), "--like", &scene.arg("disk.hsi")];
    run(words).fails(1, &["disk.hsi: this cannot be laid out like its disk"]);
    assert!(!scene.path("a.hsi").exists());
}

#[test]
fn a_delta_keeps_places_too() {
    let scene = Scene::new();
    two_versions(&scene);
    build(&scene, "delta.hsi", &["--base", &scene.arg("www/v1.hsi")]);
    let delta = fs::metadata(scene.path("delta.hsi")).expect("built").len();
    assert!(delta < CHANGED_BYTES as u64 * 115 / 100 + (64 << 10), "{delta} bytes");
    assert!(disk(&scene, "www/v2.hsi").len() > 5 << 20);
    run(["verify", &scene.arg("delta.hsi"), "--base", &scene.arg("www/v1.hsi")]).ok();
}
