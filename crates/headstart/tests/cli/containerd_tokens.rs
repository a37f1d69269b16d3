//! Containers of a registry that wants tokens, which expire while containers read.

use std::fs;
use std::path::PathBuf;

use crate::containerd::{Containers, OK, convert, has_sum, sum_of_data, with_registry};
use crate::containerd_registry::unmounted;
use crate::registry::Registry;
use crate::scene::{Scene, has_tools, wait_until};
use crate::service::server_of;
use crate::tokens::{self, Tokens};

/// Far more than what comes with the first token.
const DATA_BYTES: usize = 24 << 20;
const TOKEN_SECONDS: u32 = 5;
/// What is not read for a container does not come.
const FLAGS: [&str; 4] = ["--disk-cache", "none", "--prefetch", "off"];
/// Reads what has not come yet.
const A_LITTLE: &str = "set -o pipefail; busybox tail -c 65536 /data | md5sum";

/// A container's image and its conversion, in a registry that wants tokens.
fn with_tokens() -> Option<(Scene, PathBuf, Registry, Tokens, String)> {
    if !has_tools(tokens::TOOLS) {
        return None;
    }
    let (scene, layout, registry, image) = with_registry(DATA_BYTES)?;
    convert(&scene, &image);
    let tokens = Tokens::start(&scene, TOKEN_SECONDS);
    let registry = registry.again_with_tokens(&scene, &tokens);
    Some((scene, layout, registry, tokens, image))
}

/// Requests of servers whose token the registry has refused.
fn refused(scene: &Scene) -> usize {
    let log = fs::read_to_string(scene.path("registry.log")).expect("a log");
    let is_refused =
        |line: &&str| ["/blobs/", "\" 401 ", "\"headstart/"].iter().all(|part| line.contains(part));
    log.lines().filter(is_refused).count()
}

#[test]
fn a_server_whose_token_has_expired_gets_another_and_waits_for_one() {
    let Some((scene, layout, registry, mut tokens, image)) = with_tokens() else { return };
    let check = has_sum(&sum_of_data(&scene, &layout));
    let containers = Containers::start(&scene, &FLAGS);
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    assert_eq!(containers.mounted().len(), 1, "{}", containers.log());
    let one = containers.id("one");
    let command = [&image, &one, "sh", "-c", A_LITTLE];
    let create = [&["container", "create", "--snapshotter", "headstart", "--"], &command[..]].concat();
    containers.ctr(&create);
    tokens.wait_until_expired(registry.port);
    let start = || containers.tried(&["task", "start", &one]).ok();
    assert_eq!(refused(&scene), 0);
    start();
    wait_until("the registry has told of what it refused", || refused(&scene) > 0);
    // The token server is away when the next token is wanted.
    tokens.wait_until_expired(registry.port);
    tokens.kill();
    let retries = || server_of(&containers.disk())["store_retries"].as_u64().expect("a number");
    let before = retries();
    let (mut reading, _stdout) = containers.begin(&image, "two", &[], &["sh", "-c", &check]);
    wait_until("the server tries again", || retries() > before);
    assert_eq!(reading.try_wait().expect("asked"), None);
    tokens.again();
    assert!(reading.wait().expect("it ends").success(), "{}", containers.log());
    // A container that was made with a token that has expired, on a machine that has none.
    tokens.wait_until_expired(registry.port);
    unmounted(&containers);
    start();
    assert_eq!(containers.mounted().len(), 1, "{}", containers.log());
    containers.ctr(&["container", "rm", &one]);
    drop((registry, tokens));
    containers.end(&[&image]);
}

#[test]
fn a_token_server_that_stays_away_is_an_error_and_reads_go_on_when_it_is_back() {
    let Some((scene, layout, registry, mut tokens, image)) = with_tokens() else { return };
    let check = has_sum(&sum_of_data(&scene, &layout));
    let containers = Containers::start(&scene, &[&FLAGS[..], &["--read-timeout", "5"]].concat());
    assert_eq!(containers.pull(&image).code, OK, "{}", containers.log());
    // What a shell reads is there.
    containers.run(&image, "one", &["sh", "-c", "busybox head -c 1 /data"]).ok();
    tokens.wait_until_expired(registry.port);
    tokens.kill();
    let ran = containers.run(&image, "two", &["sh", "-c", &check]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    let server = server_of(&containers.disk());
    assert!(server["store_errors"].as_u64() > Some(0), "{server}");
    tokens.again();
    // A request that was under way may pause for some seconds more.
    wait_until("reads go on", || containers.run(&image, "three", &["sh", "-c", &check]).code == Some(0));
    drop((registry, tokens));
    containers.end(&[&image]);
}
