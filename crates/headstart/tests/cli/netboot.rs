//! Machines that get everything from a web server: their firmware asks for the boot loader, which asks for
//! kernel and initramfs; the root is an image at an address. And the network of dracut.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::live::{NET, SUM, live};
use crate::machine::Machine;
use crate::registry::{REGISTRY, Registry};
use crate::scene::{Scene, has_tools, machine_has, run, tool, wait_until};
use crate::web::{NGINX, Nginx};

const DNSMASQ: &str = "/usr/sbin/dnsmasq";
/// This machine, as its guests see it.
const SERVER: &str = "10.88.0.1";
/// As in docs/NETBOOT.md, with names of servers.
const DHCP: &str = "\
no-resolv
no-hosts
address=/boot.example/10.88.0.1
interface=tap0
bind-interfaces
dhcp-range=10.88.0.10,10.88.0.200,1h
dhcp-vendorclass=set:http,HTTPClient
dhcp-option-force=tag:http,option:vendor-class,HTTPClient
dhcp-boot=tag:http,http://10.88.0.1/boot.efi
dhcp-option=tag:http,option:dns-server
";
const EARLY: &str = "net_bootp\nconfigfile (http,$net_default_server)/grub.cfg\n";
const LOADER: [&str; 6] = ["efinet", "http", "linux", "normal", "configfile", "serial"];

/// A network of its own, with a tap device for one machine, and DHCP.
struct Network {
    name: String,
    dhcp: Option<Child>,
}

impl Network {
    fn new(scene: &Scene) -> Self {
        let name = format!("headstart-test-{}", std::process::id());
        tool("ip", &["netns", "add", &name]);
        let mut network = Self { name, dhcp: None };
        for words in [
            "link set lo up".to_owned(),
            "tuntap add dev tap0 mode tap".to_owned(),
            format!("address add {SERVER}/24 dev tap0"),
            "link set tap0 up".to_owned(),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            tool("ip", &[&["-n", &network.name][..], &words].concat());
        }
        let leases = format!("--dhcp-leasefile={}", scene.arg("leases"));
        fs::write(scene.path("dnsmasq.conf"), DHCP).expect("written");
        let flags = ["-k", "-C", &scene.arg("dnsmasq.conf"), "--pid-file", &leases, "--user=root"];
        let said = fs::File::create(scene.path("dnsmasq")).expect("a file");
        let dhcp =
            network.inside(DNSMASQ).args(flags).args(["--log-facility=-", "--log-dhcp"]).stderr(said).spawn();
        network.dhcp = Some(dhcp.expect("dnsmasq starts"));
        wait_until("there is DHCP", || {
            fs::read_to_string(scene.path("dnsmasq")).is_ok_and(|said| said.contains("DHCP, IP range"))
        });
        network
    }

    /// A program in this network.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        // `ip netns exec` becomes the program.
        command.args(["netns", "exec", &self.name, program]).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// A socket that listens there.
    fn listen(&self) -> TcpListener {
        let namespace = fs::File::open(Path::new("/run/netns").join(&self.name)).expect("a namespace");
        // Only this thread moves.
        let listening = std::thread::spawn(move || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
                .expect("moved");
            TcpListener::bind((SERVER, 80)).expect("a free port")
        });
        listening.join().expect("it listens")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(dhcp) = &mut self.dhcp {
            let _ = dhcp.kill();
            let _ = dhcp.wait();
        }
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

#[test]
fn firmware_gets_everything_over_http() {
    let Some(live) = live() else { return };
    if !machine_has(&[NGINX, DNSMASQ, "/usr/lib/grub/x86_64-efi/http.mod", "/dev/net/tun"]) {
        return;
    }
    let scene = Scene::new();
    scene.folder("www");
    for (name, file) in [("root.hsi", "root.hsi"), ("vmlinuz", "vmlinuz"), ("initrd.img", "network.img")] {
        std::os::unix::fs::symlink(live.folder.join(file), scene.path(&format!("www/{name}")))
            .expect("a link");
    }
    let (early, loader) = (scene.arg("early.cfg"), scene.arg("www/boot.efi"));
    fs::write(&early, EARLY).expect("written");
    let flags = ["-O", "x86_64-efi", "-p", "/", "-c", &early, "-o", &loader];
    tool("grub-mkimage", &[&flags[..], &LOADER].concat());
    let root = format!("root=headstart:http://boot.example/root.hsi#{}", live.name);
    let menu =
        format!("linux /vmlinuz console=ttyS0 no_timer_check ip=dhcp {root}\ninitrd /initrd.img\nboot\n");
    fs::write(scene.path("www/grub.cfg"), menu).expect("written");
    let network = Network::new(&scene);
    let _nginx = Nginx::start_on(&scene, network.listen(), "");
    let variables = scene.arg("variables");
    fs::copy("/usr/share/OVMF/OVMF_VARS_4M.fd", &variables).expect("copied");
    let variables = format!("if=pflash,format=raw,file={variables}");
    let code = "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd";
    let firmware = ["-drive", code, "-drive", &variables];
    // PXE would be tried first, and waits for an answer.
    let http = ["4", "6"].map(|version| format!("name=opt/org.tianocore/IPv{version}PXESupport,string=n"));
    let http = ["-fw_cfg", &http[0], "-fw_cfg", &http[1]];
    // Without the card's own ROM, which is an iPXE.
    let card = "virtio-net-pci,netdev=net,romfile=,bootindex=1";
    let card = ["-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no", "-device", card];
    let qemu = network.inside("qemu-system-x86_64");
    let mut machine = Machine::start_by(qemu, "768M", [&firmware[..], &http, &card].concat());
    machine.log_in();
    assert!(machine.ran("cat /proc/mounts").contains("headstart / overlay"));
    assert!(machine.ran("ls /sys/firmware/efi").contains("systab"));
    assert_eq!(machine.ran(SUM).trim(), live.sum());
}

#[test]
fn dracut_brings_the_network_for_a_root_in_a_registry() {
    let Some(live) = live() else { return };
    if !has_tools(&[REGISTRY]) {
        return;
    }
    let scene = Scene::new();
    let registry = Registry::start(&scene, false);
    run(["push", &live.file("root.hsi"), &registry.url("debian:live")]).ok();
    let initrd = live.network_initrd_of_dracut(&scene);
    let net = [&NET[..], &["-m", "768M"]].concat();
    // `ip=dhcp` is what dracut does without it.
    let place = format!("oci+http://10.0.2.2:{}/debian", registry.port);
    // There is none by this name: the machine says so and gives a shell.
    let mut machine = live.start_with(&initrd, &format!("root=headstart:{place}:no#{}", live.name), &net);
    let said = machine.wait_for_any(&["Press Enter for maintenance", "login: "]);
    assert!(said.contains("the server answered 404"), "{said}");
    drop(machine);
    let root = format!("root=headstart:{place}:live#{}", live.name);
    let mut machine = live.start_with(&initrd, &root, &net);
    machine.log_in();
    assert!(machine.ran("cat /proc/mounts").contains("headstart / overlay"));
    assert_eq!(machine.ran(SUM).trim(), live.sum());
    assert_eq!(machine.ran("systemctl is-system-running --wait").trim(), "running");
}
