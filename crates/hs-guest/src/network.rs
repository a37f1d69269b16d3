//! The network of a guest of QEMU: one card, on a network that QEMU itself makes (libslirp).
//!
//! ```text
//! guest 10.0.2.15 ─► QEMU ─► connections of QEMU's own, in the network of this machine
//!                    10.0.2.2   the gateway; as a destination this machine's loopback
//!                    10.0.2.3   names, by the first name server of /etc/resolv.conf
//! ```

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU16;
use std::path::Path;
use std::str::FromStr;

use crate::jail::JailEntry;

/// QEMU's name of the network, and of its end of the cable.
pub(crate) const NETWORK: &str = "net";
/// Where QEMU finds the name server.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What QEMU says when it was built without libslirp: from 7.2 on, and before.
const NOT_BUILT: [&str; 2] = ["is not compiled into this binary", "expects a netdev backend type"];
/// What QEMU says when it cannot listen.
const CANNOT_LISTEN: &str = "Could not set up host forwarding rule";

/// What a guest's network card is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// To what this machine reaches.
    Connected {
        /// Ports of this machine that lead to the guest.
        forwards: Vec<Forward>,
    },
    /// To nothing: a saved guest has the card and must keep it.
    Unplugged,
}

impl Network {
    /// True when the guest reaches anything.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    /// The words for the card and its network. They come last, so that every other device stays where it is.
    /// Without a ROM, firmware does not try to start from the network.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let network = match self {
            Self::Connected { forwards } => {
                let forwards = forwards.iter().map(|forward| format!(",hostfwd={}", forward.rule()));
                format!("user,id={NETWORK}{}", forwards.collect::<String>())
            }
            Self::Unplugged => format!("hubport,id={NETWORK},hubid=0"),
        };
        let card = format!("virtio-net-pci,netdev={NETWORK},romfile=");
        ["-netdev".into(), network.into(), "-device".into(), card.into()].into()
    }

    /// What QEMU needs of this machine for it. Where the file is a link, its content is at the usual path.
    pub(crate) fn jail_entries(&self) -> Vec<JailEntry> {
        let file = Path::new(RESOLV_CONF);
        let is_needed = self.is_connected() && file.is_file();
        is_needed.then(|| JailEntry::File(file.to_owned())).into_iter().collect()
    }
}

/// The transport of a forwarded port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of this machine's 127.0.0.1 that leads to a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Its transport.
    pub protocol: Protocol,
    /// The port here.
    pub port: NonZeroU16,
    /// The port in the guest.
    pub guest_port: NonZeroU16,
}

impl Forward {
    /// QEMU's form of it: the guest's address is the first one that its DHCP gives.
    fn rule(self) -> String {
        let Self { protocol, port, guest_port } = self;
        format!("{protocol}:127.0.0.1:{port}-:{guest_port}")
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}:{}", self.protocol, self.port, self.guest_port)
    }
}

/// A word that is no [`Forward`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no forwarded port: give [tcp:|udp:]PORT:GUESTPORT, such as 8080:80, with ports from 1 to 65535"
)]
pub struct NoForward(String);

impl FromStr for Forward {
    type Err = NoForward;

    fn from_str(word: &str) -> Result<Self, NoForward> {
        let (protocol, ports) = match word.split_once(':') {
            Some(("tcp", ports)) => (Protocol::Tcp, ports),
            Some(("udp", ports)) => (Protocol::Udp, ports),
            _ => (Protocol::Tcp, word),
        };
        let number = |text: &str| text.parse::<NonZeroU16>().ok().filter(|_| !text.starts_with('+'));
        let found = ports.split_once(':').and_then(|(here, guest)| number(here).zip(number(guest)));
        let (port, guest_port) = found.ok_or_else(|| NoForward(word.to_owned()))?;
        Ok(Self { protocol, port, guest_port })
    }
}

/// Why the network of a guest that has not started could not be made, from the last lines of its console.
#[must_use]
pub fn trouble(tail: &[String]) -> Option<String> {
    let line = tail.iter().find(|line| line.contains("-netdev user"))?;
    if NOT_BUILT.iter().any(|words| line.contains(words)) {
        return Some(
            "this QEMU has no user network, since it was built without libslirp: install one that has it, or \
             leave out --network"
                .to_owned(),
        );
    }
    let (_, rule) = line.split_once(CANNOT_LISTEN)?;
    Some(format!(
        "QEMU cannot listen there ({}): another program has the port, or it is below 1024, which is for \
         privileged programs; give another --forward",
        rule.trim().trim_matches('\'')
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(network: &Network) -> String {
        network.words().iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_forward_is_two_ports_and_perhaps_a_transport() {
        for (word, rule) in [
            ("8080:80", "tcp:127.0.0.1:8080-:80"),
            ("tcp:2222:22", "tcp:127.0.0.1:2222-:22"),
            ("udp:5300:53", "udp:127.0.0.1:5300-:53"),
            ("65535:1", "tcp:127.0.0.1:65535-:1"),
        ] {
            let forward: Forward = word.parse().unwrap();
            assert_eq!(forward.rule(), rule);
            assert_eq!(forward.to_string().parse(), Ok(forward));
        }
        for word in [
            "",
            "80",
            "80:",
            ":80",
            "0:80",
            "80:0",
            "65536:80",
            "80:65536",
            "sctp:1:2",
            "1:2:3",
            "tcp:1",
            "+1:2",
            "1:+2",
            "1: 2",
            "-1:2",
            "TCP:1:2",
            "127.0.0.1:80:80",
            "tcp:1:2,hostfwd=tcp::3-:4",
            "8080-80",
        ] {
            let refused = word.parse::<Forward>().unwrap_err().to_string();
            assert!(
                refused.contains("PORT:GUESTPORT") && refused.contains(&format!("'{word}'")),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_card_has_no_rom_and_forwards_are_on_the_loopback_alone() {
        let forwards = vec!["8080:80".parse().unwrap(), "udp:5300:53".parse().unwrap()];
        let words = text(&Network::Connected { forwards });
        assert_eq!(
            words,
            "-netdev user,id=net,hostfwd=tcp:127.0.0.1:8080-:80,hostfwd=udp:127.0.0.1:5300-:53 \
             -device virtio-net-pci,netdev=net,romfile="
        );
        let unplugged = text(&Network::Unplugged);
        assert!(unplugged.contains("hubport") && !unplugged.contains("user"), "{unplugged}");
        assert!(unplugged.ends_with("virtio-net-pci,netdev=net,romfile="), "{unplugged}");
        assert!(Network::Unplugged.jail_entries().is_empty());
    }

    #[test]
    fn qemus_complaints_are_explained() {
        let said = |text: &str| {
            trouble(&["SeaBIOS".to_owned(), format!("qemu-system-x86_64: -netdev user,id=net: {text}")])
        };
        for text in [
            "network backend 'user' is not compiled into this binary",
            "Parameter 'type' expects a netdev backend type",
        ] {
            assert!(said(text).is_some_and(|why| why.contains("libslirp")), "{text}");
        }
        let why = said("Could not set up host forwarding rule 'tcp:127.0.0.1:80-:80'").unwrap();
        assert!(why.contains("(tcp:127.0.0.1:80-:80)") && why.contains("--forward"), "{why}");
        assert_eq!(said("something else"), None);
        assert_eq!(trouble(&["a libslirp that is not compiled into this binary".to_owned()]), None);
    }
}
