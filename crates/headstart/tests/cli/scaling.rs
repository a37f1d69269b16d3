//! The configurations of docs/SCALING.md, as they stand there.

use std::fs;
use std::path::Path;

use crate::scene::{Scene, machine_has, run};
use crate::web::{NGINX, Nginx, run_remote};

/// The first block of the page that is marked with `language`.
pub(crate) fn of_page(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SCALING.md");
    let text = fs::read_to_string(page).expect("the page");
    let block = text.split(&format!("```{language}\n")).nth(1).expect("a block").split("```").next();
    block.expect("its end").to_owned()
}

/// Puts `new` for `old`, which must stand there.
pub(crate) fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "no '{old}' on the page");
    text.replace(old, new)
}

#[test]
fn nginx_with_slices_is_one_client_to_its_origin() {
    if !machine_has(&[NGINX]) {
        return;
    }
    let scene = Scene::new();
    fs::create_dir_all(scene.path("www")).expect("a folder");
    // Several slices.
    let disk = scene.image("www/a.hsi", 2500, 91);
    let size = fs::metadata(scene.path("www/a.hsi")).expect("an image").len();
    let name = run(["verify", &scene.arg("www/a.hsi")]).ok().stdout;
    let name = name.lines().last().expect("a name");
    let origin = Nginx::start(&scene, "");
    let page = of_page("nginx");
    let page = replaced(&page, "/var/cache/nginx/images", &scene.arg("slices"));
    let page = replaced(&page, "http://127.0.0.1:8081", &format!("http://127.0.0.1:{}", origin.port));
    let edge =
        Nginx::start_with(&scene, |port| replaced(&page, "listen 8080", &format!("listen 127.0.0.1:{port}")));
    let url = format!("{}#{name}", edge.url("a.hsi"));
    let export = |cache: &str| {
        let _ = fs::remove_file(scene.path("out.raw"));
        let flag = format!("--disk-cache={cache}");
        run_remote(&scene, &["export", &url, "-o", "out.raw", "--format", "raw", &flag]).ok();
        assert!(fs::read(scene.path("out.raw")).expect("exported") == disk);
    };
    export("one");
    let asked = origin.answered().len() as u64;
    assert!(asked <= size.div_ceil(1 << 20) + 2, "{:?}", origin.answered());
    // Another machine: the origin hears nothing of it, and need not even be there.
    export("two");
    assert_eq!(origin.answered().len() as u64, asked);
    drop(origin);
    export("three");
    // One that has it all asks whether it is the same.
    let before = edge.answered().len();
    export("three");
    let since = edge.wait_answered(before + 1).split_off(before);
    assert!(since.len() == 1 && since[0].0 == 304, "{since:?}");
}
