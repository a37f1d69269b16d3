//! The network of a guest of QEMU: flags of `boot` and `resume`.

use clap::Args;
use hs_guest::network::{Forward, Network};

/// Flags for the network of a guest.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NetworkFlags {
    /// Give the guest a network. It reaches what this machine reaches, also this machine's own 127.0.0.1, as
    /// 10.0.2.2. QEMU only.
    ///
    /// The guest has one virtio card on QEMU's user network, with DHCP. Nothing reaches the guest but by
    /// --forward. A saved guest has a card if it was booted with this flag; `resume` connects the card only
    /// with this flag.
    #[arg(long, help_heading = "Guest")]
    pub network: bool,
    /// A port of 127.0.0.1 on this machine that leads to a port of the guest, such as 8080:80. Repeatable.
    ///
    /// TCP, unless udp: stands before it. The guest must have the address that DHCP gives it, 10.0.2.15.
    #[arg(
        long,
        value_name = "[tcp:|udp:]PORT:GUESTPORT",
        requires = "network",
        help_heading = "Guest",
        hide_short_help = true
    )]
    pub forward: Vec<Forward>,
}

impl NetworkFlags {
    /// The forwarded ports of a guest that has a network.
    pub(crate) fn forwards(&self) -> Option<Vec<Forward>> {
        self.network.then(|| self.forward.clone())
    }

    /// What the card of a guest that boots is connected to.
    pub(crate) fn of_boot(&self) -> Option<Network> {
        self.forwards().map(|forwards| Network::Connected { forwards })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        flags: NetworkFlags,
    }

    fn parse(words: &[&str]) -> Result<NetworkFlags, String> {
        let parsed = Words::try_parse_from([&["boot"], words].concat());
        parsed.map(|words| words.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn there_is_no_network_unless_it_is_asked_for() {
        assert_eq!(parse(&[]).unwrap().of_boot(), None);
        assert_eq!(
            parse(&["--network"]).unwrap().of_boot(),
            Some(Network::Connected { forwards: Vec::new() })
        );
        let flags = parse(&["--network", "--forward", "8080:80", "--forward", "udp:5300:53"]).unwrap();
        let forwards = flags.forwards().unwrap();
        assert_eq!(
            forwards.iter().map(Forward::to_string).collect::<Vec<_>>(),
            ["tcp:8080:80", "udp:5300:53"]
        );
    }

    #[test]
    fn a_forward_without_a_network_and_a_wrong_one_are_refused() {
        let refused = parse(&["--forward", "8080:80"]).unwrap_err();
        assert!(refused.contains("--network"), "{refused}");
        let refused = parse(&["--network", "--forward", "80"]).unwrap_err();
        assert!(refused.contains("PORT:GUESTPORT") && refused.contains("8080:80"), "{refused}");
    }
}
