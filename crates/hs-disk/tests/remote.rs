//! A disk in an image on a web server: many requests under way, and a server that misbehaves.

#[path = "../../hs-build/tests/image/sample.rs"]
mod sample;
mod served;
mod web;

use std::sync::Arc;

use hs_disk::{DiskOptions, ReadOptions, ServedDisk};
use hs_image::{Image, OpenOptions};
use hs_store::{DiskCache, Store, contract};
use hs_units::Prng;

use sample::{Bench, fast_build};
use served::{answered, ask, disk_with, reads};
use web::{Manner, Web};

const WINDOW: u64 = 16_384;
const WINDOWS: u64 = 200;

fn bench() -> Bench {
    let mut content = vec![0; (WINDOWS * WINDOW) as usize];
    Prng::new(7).fill(&mut content);
    let bench = Bench::new(content);
    bench.build("cold", &fast_build(WINDOW, 1));
    bench
}

fn alone() -> ReadOptions {
    ReadOptions { read_ahead_bytes: 0, ..reads(8, 8 << 20) }
}

fn served(web: &Web) -> Arc<ServedDisk> {
    disk_with(&Arc::new(Image::open(Arc::new(web.open())).expect("an image")), alone())
}

/// Reads each of these windows, all at once, and compares them with the disk.
fn check(disk: &ServedDisk, bench: &Bench, windows: impl Iterator<Item = u64>) {
    let asked: Vec<_> = windows.map(|window| (window, ask(disk, window * WINDOW, WINDOW))).collect();
    for (window, answer) in asked {
        let bytes = answered(&answer).expect("read in the end");
        assert!(bytes == bench.disk[(window * WINDOW) as usize..][..WINDOW as usize], "window {window}");
    }
}

#[test]
fn a_file_on_a_server_keeps_the_contract_of_stores() {
    let model = contract::noise(300_000, 3);
    contract::check_filled(&Web::serve(model.clone()).open(), &model);
}

#[test]
fn reads_survive_a_server_that_is_silent_or_cuts_or_sends_other_bytes() {
    let bench = bench();
    let web = Web::serve(bench.bytes("cold"));
    for manner in [Manner::Held, Manner::Cut(1_000), Manner::Elsewhere] {
        let disk = served(&web);
        web.behave(manner);
        let before = web.came();
        let asked: Vec<_> =
            (0..WINDOWS).step_by(20).map(|window| (window, ask(&disk, window * WINDOW, WINDOW))).collect();
        web.wait_until_came(before + 12);
        web.behave(Manner::After(0));
        for (window, answer) in asked {
            let bytes = answered(&answer).expect("read in the end");
            assert!(bytes == bench.disk[(window * WINDOW) as usize..][..WINDOW as usize], "window {window}");
        }
    }
    let disk = served(&web);
    web.behave(Manner::Gone);
    let answer = answered(&ask(&disk, 4 * WINDOW, WINDOW)).expect_err("the file is gone");
    assert!(!answer.is_closed(), "{answer}");
    // Also those that wait for a request that fails are answered, and the next request is made.
    web.behave(Manner::After(0));
    check(&disk, &bench, 0..WINDOWS);
}

#[test]
fn closing_ends_what_is_under_way() {
    let bench = bench();
    let web = Web::serve(bench.bytes("cold"));
    let disk = disk_with(&Arc::new(Image::open(Arc::new(web.open_patiently())).expect("an image")), alone());
    check(&disk, &bench, 0..1);
    web.behave(Manner::Held);
    let answers: Vec<_> = (1..60).map(|window| ask(&disk, window * WINDOW, WINDOW)).collect();
    web.wait_for_requests(8);
    disk.close();
    for answer in &answers {
        // Neighbours may have come with what was read before.
        let Err(error) = answered(answer) else { continue };
        assert!(error.is_closed(), "{error}: {error:?}");
    }
    let weak = Arc::downgrade(disk.image());
    drop(disk);
    assert!(weak.upgrade().is_none(), "nothing is left behind");
    web.behave(Manner::After(0));
}

#[test]
fn what_comes_is_kept_on_disk_and_read_from_there() {
    let bench = bench();
    let web = Web::serve(bench.bytes("cold"));
    let folder = bench.path("cache");
    for round in 0..2 {
        let cache = DiskCache::open(&folder, 64 << 20).expect("a cache");
        let image = OpenOptions { cache: Some(cache), ..OpenOptions::default() };
        let options = DiskOptions { image, read: alone(), ..DiskOptions::default() };
        let store: Arc<dyn Store> = Arc::new(web.open());
        let disk = ServedDisk::open(store, &options, None).expect("an image");
        let before = web.came();
        // The second time half is there, chunk by chunk, and neighbours of it are fetched.
        check(&disk, &bench, (0..WINDOWS).filter(|window| round == 1 || window % 2 == 0));
        assert!(web.came() > before);
        check(&disk, &bench, (0..WINDOWS).filter(|window| round == 1 || window % 2 == 0));
    }
    let cache = DiskCache::open(&folder, 64 << 20).expect("a cache");
    let image = OpenOptions { cache: Some(Arc::clone(&cache)), ..OpenOptions::default() };
    let options = DiskOptions { image, read: alone(), ..DiskOptions::default() };
    let disk = ServedDisk::open(Arc::new(web.open()), &options, None).expect("an image");
    let before = web.came();
    check(&disk, &bench, 0..WINDOWS);
    assert_eq!(web.came(), before, "everything is on disk");
    assert_eq!(cache.counts().spoiled, 0);
}
