//! The configurations of docs/SCALING.md, as they stand there.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::registry::{REGISTRY, Registry};
use crate::s3::{self, Store};
use crate::scene::{Ran, START, Scene, has_tools, machine_has, run};
use crate::web::{NGINX, Nginx, remote, run_remote};

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SCALING.md");
    fs::read_to_string(page).expect("the page")
}

/// The first block of the page that is marked with `language`.
pub(crate) fn of_page(language: &str) -> String {
    block(&page(), language)
}

/// The first block of a text that is marked with `language`, or with nothing.
fn block(text: &str, language: &str) -> String {
    let after = text.split("```").skip(1).step_by(2);
    let found = after.filter_map(|block| block.split_once('\n')).find(|(mark, _)| *mark == language);
    found.expect("a block").1.to_owned()
}

/// The commands under a heading of the page, with a root for its image and a tiny program for its large one.
fn commands(heading: &str, name: &str) -> String {
    let page = page();
    let part = page.split(&format!("\n## {heading}\n")).nth(1).expect("a heading").split("\n## ").next();
    let commands = block(part.expect("its text"), "");
    let commands = replaced(&commands, "hs1-6437…", name);
    let commands = replaced(&commands, "python3 -c 'import pandas'", "/bin/cat /etc/motd");
    let commands = replaced(&commands, "headstart push ", "headstart push --upload-state=state ");
    replaced(&commands, "headstart run ", "headstart run --disk-cache=cache ")
}

/// Runs commands as a user types them who has the program in `PATH`.
fn typed(scene: &Scene, commands: &str) -> Ran {
    let bin = scene.folder("bin");
    symlink(env!("CARGO_BIN_EXE_headstart"), scene.path("bin/headstart")).expect("a link");
    let mut path = OsString::from(bin);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let clean = remote(scene, ["help"]);
    let mut shell = Command::new("sh");
    shell.args(["-euc", commands]).current_dir(scene.path(""));
    for (name, value) in clean.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("PATH", path).env("HOME", scene.path("home")).output().expect("a shell").into()
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
    // Another machine: the origin gets no request, and need not even be there.
    export("two");
    assert_eq!(origin.answered().len() as u64, asked);
    drop(origin);
    export("three");
    // A machine that has the whole image only checks that it is the same.
    let before = edge.answered().len();
    export("three");
    let since = edge.wait_answered(before + 1).split_off(before);
    assert!(since.len() == 1 && since[0].0 == 304, "{since:?}");
}

#[test]
fn a_registry_is_set_up_and_used_as_the_page_says() {
    if !has_tools(&[REGISTRY]) || !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("fast.hsi");
    let name = run(["verify", &image]).ok().stdout;
    let config = replaced(&of_page("yaml"), "/var/lib/registry", &scene.folder("registry"));
    let registry = Registry::start_with(&scene, &replaced(&config, "127.0.0.1:5000", "127.0.0.1:0"));
    let commands = commands("A registry", name.lines().last().expect("a name"));
    // It runs already.
    let commands = replaced(&commands, "docker-registry serve config.yml\n", "");
    let ran =
        typed(&scene, &replaced(&commands, "localhost:5000", &format!("localhost:{}", registry.port))).ok();
    assert!(ran.stdout.ends_with("hello from the image\n"), "{ran:?}");
    drop(registry);
    scene.wait_until_clean();
}

#[test]
fn a_store_of_objects_is_used_as_the_page_says() {
    if !machine_has(START) {
        return;
    }
    let scene = Scene::new();
    let image = scene.root("fast.hsi");
    let name = run(["verify", &image]).ok().stdout;
    let store = Store::start(&scene);
    let commands = commands("A store of objects", name.lines().last().expect("a name"));
    let commands = replaced(&commands, "https://s3.example", &store.endpoint);
    let commands = replaced(&commands, "AWS_ACCESS_KEY_ID=…", &format!("AWS_ACCESS_KEY_ID={}", s3::KEY));
    let commands =
        replaced(&commands, "AWS_SECRET_ACCESS_KEY=…", &format!("AWS_SECRET_ACCESS_KEY={}", s3::SECRET));
    let ran = typed(&scene, &commands).ok();
    assert!(ran.stdout.ends_with("hello from the image\n"), "{ran:?}");
    assert!(!ran.stdout.contains(s3::SECRET) && !ran.stderr.contains(s3::SECRET), "{ran:?}");
    drop(store);
    scene.wait_until_clean();
}
