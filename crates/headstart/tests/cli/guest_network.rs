//! The network of guests of QEMU.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::boots::{assert_nothing_is_in_tmp, boot, kept_console, little_guest};
use crate::qemu_boots::{GUEST, QEMU, install_kernel, linux_guest};
use crate::qemu_kernels::{NETWORK_MODULES, Then, linux, little_kernel};
use crate::scene::{Ran, Scene, has_tools, headstart, machine_has, run, tool};

/// Gets an address, serves files, and says what it got from the host. Then it does what is typed.
const INIT: &str = "#!/bin/sh
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for module in MODULES; do busybox insmod /modules/$module; done
busybox ip link set lo up
busybox ip link set eth0 up
lease() { busybox udhcpc -i eth0 -n -q -f -s /bin/configure; }
lease
busybox httpd -p 80 -h /served
busybox nslookup files.test 10.0.2.3
ask() { echo \"host says $(busybox wget -q -O - http://10.0.2.2:$server/$1)\"; }
other_address() {
    busybox ip address flush dev eth0
    busybox ip link set eth0 down
    busybox ip link set eth0 address 52:54:00:01:02:03
    busybox ip link set eth0 up
    lease
}
ask $forwarded
echo up
while :; do
    printf '# '
    read line || sleep 1
    eval \"$line\"
done
";
const CONFIGURE: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
busybox ip address add $ip/24 dev eth0
busybox ip route add default via $router
";
/// A loopback address of its own, for the one port that names are asked at.
const NAME_SERVER: &str = "127.0.0.77";
/// What it answers.
const ANSWER: [u8; 4] = [192, 0, 2, 7];

/// A server of this test on the host's loopback. Asked for `/PORT`, it asks the guest at that port of the
/// host for a file, and answers with that.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(stream);
        }
    });
    port
}

fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let port = head.split([' ', '/']).find_map(|word| word.parse::<u16>().ok());
    let said = port.map_or_else(|| Ok("no port".to_owned()), fetch).unwrap_or_else(|error| error.to_string());
    let _ = write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len());
}

/// What the guest serves behind this port.
fn fetch(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /word HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().last().unwrap_or_default().to_owned())
}

/// A name server that has one address for every name.
fn name_server() {
    let socket = UdpSocket::bind((NAME_SERVER, 53)).expect("the port of name servers");
    std::thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut message) {
            let mut reply = message[..length].to_vec();
            // An answer, without errors (RFC 1035, section 4.1.1). The question ends with type and class.
            reply[2..4].copy_from_slice(&[0x84, 0]);
            reply[6..12].fill(0);
            if reply[length - 4..length] == [0, 1, 0, 1] {
                reply[7] = 1;
                // The name of the question, type A, class IN, no time to live, four bytes.
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                reply.extend(ANSWER);
            }
            let _ = socket.send_to(&reply, from);
        }
    });
}

/// A port that no program has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// A scene with `own.hsi`, the disk of a guest that uses its network.
fn network_guest() -> Option<Scene> {
    let (scene, _, kernel) = linux_guest()?;
    install_kernel(&scene, &kernel);
    let init = INIT.replace("MODULES", &NETWORK_MODULES.join(" "));
    for (name, content) in [("sbin/init", init.as_str()), ("bin/configure", CONFIGURE)] {
        let path = scene.path("root").join(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("executable");
    }
    let (modules, served) = (scene.folder("root/modules"), scene.folder("root/served"));
    for name in NETWORK_MODULES {
        fs::copy(linux()?.join(name), format!("{modules}/{name}")).expect("a module");
    }
    fs::write(format!("{served}/word"), "a word of the guest\n").expect("written");
    run(["build", &scene.arg("root"), "-o", &scene.arg("own.hsi"), "--free", "64M", "--codec", "lz4:0"]).ok();
    Some(scene)
}

/// The program on a machine whose `/etc/resolv.conf` is a link to a file that names our server.
fn with_name_server(scene: &Scene, words: &[&str]) -> Ran {
    let etc = scene.arg("etc");
    if !scene.path("etc").exists() {
        tool("cp", &["-a", "/etc", &etc]);
        fs::write(scene.path("names"), format!("nameserver {NAME_SERVER}\n")).expect("written");
        fs::remove_file(scene.path("etc/resolv.conf")).expect("removed");
        symlink(scene.path("names"), scene.path("etc/resolv.conf")).expect("a link");
    }
    let command = headstart(words);
    let ran = Command::new("unshare")
        .args(["-m", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\"", &etc])
        .arg(command.get_program())
        .args(command.get_args())
        .env("TMPDIR", scene.path("tmp"))
        .stdin(Stdio::null())
        .output();
    Ran::from(ran.expect("the program starts"))
}

#[test]
fn a_guest_reaches_the_host_and_is_reached_also_when_it_goes_on() {
    if !has_tools(&["unshare", "mount", "cp"]) {
        return;
    }
    let Some(scene) = network_guest() else { return };
    let (disk, saved, console) = (scene.arg("own.hsi"), scene.arg("saved.hsi"), scene.arg("console"));
    let said = || fs::read_to_string(&console).expect("the console").replace('\r', "");
    name_server();
    let (server, port) = (server(), free_port());
    let (forward, udp) = (format!("{port}:80"), format!("udp:{port}:7"));
    let tells = [format!("server={server}"), format!("forwarded={port}")];
    let flags = ["boot", &disk, "--ready", "^up$", "--console", &console, "--snapshot-out", &saved];
    let network =
        ["--network", "--forward", &forward, "--forward", &udp, "--append", &tells[0], "--append", &tells[1]];
    with_name_server(&scene, &[&flags[..], &QEMU, &network].concat()).ok();
    assert!(said().contains("host says a word of the guest"), "{}", said());
    assert!(said().contains("192.0.2.7"), "{}", said());

    // Another QEMU and another forward; the guest's hardware address is new, as the agent makes it. The lease
    // of the other one was not saved.
    let port = free_port();
    let forward = format!("{port}:80");
    let typed = format!(
        "ask {port}; other_address; ask {port}; echo carrier $(busybox cat /sys/class/net/eth0/carrier)"
    );
    let flags = ["resume", &saved, "--type", &typed, "--ready", "^carrier [01]", "--console", &console];
    with_name_server(&scene, &[&flags[..], &["--network", "--forward", &forward]].concat()).ok();
    assert_eq!(said().matches("host says a word of the guest").count(), 2, "{}", said());
    assert!(said().contains("carrier 1") && said().contains("10.0.2.15 obtained"), "{}", said());

    // Without a network, its card is not connected.
    let alone = ["resume", &saved, "--type", "echo carrier $(busybox cat /sys/class/net/eth0/carrier)"];
    let flags = [&alone[..], &["--ready", "^carrier [01]", "--console", &console]].concat();
    with_name_server(&scene, &flags).ok();
    assert!(said().contains("carrier 0"), "{}", said());
    run([&alone[..], &["--forward", &forward]].concat()).fails(2, &["--network"]);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}

/// A QEMU without libslirp: what version 7.2 says then.
const WITHOUT_SLIRP: &str = "
#include <stdio.h>
int main(void) {
    puts(\"qemu-system-x86_64: -netdev user,id=net: network backend 'user' is not compiled into this binary\");
    return 1;
}
";

#[test]
fn a_network_that_cannot_be_made_is_explained() {
    if !machine_has(GUEST) || !has_tools(&["cc"]) {
        return;
    }
    let (scene, image) = little_guest();
    little_kernel(&scene.path("up"), "up\n", Then::Hang);
    let up = scene.arg("up");
    let flags = [&QEMU[..], &["--kernel", &up, "--ready", "^up$", "--network"]].concat();
    boot(&scene, &image, &flags).ok();

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let ran = boot(&scene, &image, &[&flags[..], &["--forward", &format!("{port}:80")]].concat());
    ran.fails(1, &[&format!("cannot listen there (tcp:127.0.0.1:{port}-:80)"), "--forward"]);
    kept_console(&scene, &ran);

    let bin = scene.folder("bin");
    fs::write(scene.path("qemu.c"), WITHOUT_SLIRP).expect("written");
    tool("cc", &["-o", &format!("{bin}/qemu-system-x86_64"), &scene.arg("qemu.c")]);
    let words = [&["boot", &image], &flags[..]].concat();
    let ran = headstart(words).env("PATH", &bin).env("TMPDIR", scene.path("tmp")).output();
    let ran = Ran::from(ran.expect("the program starts"));
    ran.fails(1, &["no user network", "libslirp", "--network"]);
    kept_console(&scene, &ran);
    scene.wait_until_clean();
    assert_nothing_is_in_tmp(&scene);
}
