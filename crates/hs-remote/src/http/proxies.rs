//! Which proxy the requests to a server go through: [`Proxies`].
//!
//! The HTTP library reads the same variables. Its `no_proxy` knows no ports, no brackets around addresses of
//! version 6 and no white space between entries, and its `*` means names only.

use std::net::IpAddr;

use url::{Host, Url};

/// The proxies that the environment names, and the servers that are asked without one.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    direct: Vec<DirectServers>,
}

/// Servers of one entry of `no_proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DirectServers {
    /// `*`
    All,
    /// Addresses that have these leading bits, at this port or any.
    Network { address: IpAddr, bits: u8, port: Option<u16> },
    /// This domain and those below it, at this port or any.
    Domain { name: String, port: Option<u16> },
}

impl Proxies {
    /// Of these variables: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, where the same name in
    /// upper case goes before. An empty variable counts as none.
    pub(super) fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        // What a web server starts has a request's `Proxy:` header as HTTP_PROXY (httpoxy.org).
        if variable("REQUEST_METHOD").is_some() {
            return Self::default();
        }
        let either = |name: &str| {
            let found = [name.to_uppercase(), name.to_owned()].into_iter().find_map(|name| {
                variable(&name).filter(|value| !value.trim().is_empty()).map(|value| (name, value))
            });
            found.unwrap_or_default()
        };
        let proxy = |scheme: &str| {
            let (name, value) = either(scheme);
            let url = parse_proxy(value.trim());
            if url.is_none() && !value.is_empty() {
                // The value may have a password in it.
                log::warn!("{name} is no address of a proxy (http://HOST:PORT), and is ignored");
            }
            url
        };
        let all = proxy("all_proxy");
        Self {
            http: proxy("http_proxy").or_else(|| all.clone()),
            https: proxy("https_proxy").or(all),
            direct: parse_no_proxy(&either("no_proxy").1),
        }
    }

    /// Whether there is any.
    pub(super) const fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// The proxy for requests to the server of this address.
    pub(super) fn of(&self, url: &Url) -> Option<&Url> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.direct.iter().any(|servers| servers.have(url)))
    }
}

/// A proxy's address; without a scheme it is `http`.
fn parse_proxy(text: &str) -> Option<Url> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    Url::parse(&text).ok().filter(Url::has_host)
}

/// The entries of `no_proxy`, between commas or white space.
fn parse_no_proxy(list: &str) -> Vec<DirectServers> {
    let entries = list.split(|letter: char| letter == ',' || letter.is_whitespace());
    entries.filter(|entry| !entry.is_empty()).filter_map(DirectServers::parse).collect()
}

impl DirectServers {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = entry.split_once('/') {
            let address: IpAddr = without_brackets(address).parse().ok()?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address))?;
            return Some(Self::Network { address, bits, port: None });
        }
        // An address of version 6 without brackets has colons, and no port.
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
                (host, Some(port.parse().ok()?))
            }
            _ => (entry, None),
        };
        if let Ok(address) = without_brackets(host).parse::<IpAddr>() {
            return Some(Self::Network { address, bits: width(address), port });
        }
        let name = host.strip_prefix('*').unwrap_or(host);
        let name = name.strip_prefix('.').unwrap_or(name);
        match Host::parse(name).ok()? {
            Host::Domain(name) => Some(Self::Domain { name: name.trim_end_matches('.').to_owned(), port }),
            Host::Ipv4(address) => Some(Self::Network { address: address.into(), bits: 32, port }),
            Host::Ipv6(address) => Some(Self::Network { address: address.into(), bits: 128, port }),
        }
    }

    /// Whether the server of this address is one of them.
    fn have(&self, url: &Url) -> bool {
        let at = |port: &Option<u16>| port.is_none() || *port == url.port_or_known_default();
        match (self, url.host()) {
            (Self::All, _) => true,
            (Self::Network { address, bits, port }, Some(Host::Ipv4(host))) => {
                at(port) && is_within(host.into(), *address, *bits)
            }
            (Self::Network { address, bits, port }, Some(Host::Ipv6(host))) => {
                at(port) && is_within(host.into(), *address, *bits)
            }
            (Self::Domain { name, port }, Some(Host::Domain(host))) => {
                let above = host.trim_end_matches('.').strip_suffix(name.as_str());
                at(port) && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
            _ => false,
        }
    }
}

fn without_brackets(text: &str) -> &str {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text)
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether the leading `bits` of both are equal. An IPv4 address that is written as one of version 6
/// (`::ffff:10.0.0.1`) is the same one.
fn is_within(host: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (host.to_canonical(), network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            let differ = u32::from(host) ^ u32::from(network);
            differ.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
        }
        (_, IpAddr::V6(network)) => {
            let host = match host {
                IpAddr::V4(host) => host.to_ipv6_mapped(),
                IpAddr::V6(host) => host,
            };
            let differ = u128::from(host) ^ u128::from(network);
            differ.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies<'a>(variables: &'a [(&'a str, &'a str)]) -> Proxies {
        Proxies::of_environment(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn proxy(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.of(&Url::parse(url).expect("an address")).map(ToString::to_string)
    }

    #[test]
    fn no_proxy_in_each_of_its_forms() {
        // The list, servers that are asked directly, and servers that are not.
        #[rustfmt::skip]
        let table: &[(&str, &[&str], &[&str])] = &[
            ("", &[], &["http://a.example/", "http://10.0.0.1/"]),
            (" , ,", &[], &["http://a.example/"]),
            ("*", &["http://a.example/", "https://10.0.0.1/", "http://[::1]:80/"], &[]),
            ("a, *", &["http://b.example/"], &[]),
            ("host", &["http://host/", "https://HOST:8443/", "http://x.host/", "http://host./"],
                &["http://ghost/", "http://hosts/", "http://host.example/"]),
            ("example.com", &["http://example.com/", "http://a.b.example.com/", "http://Example.COM/"],
                &["http://notexample.com/", "http://example.com.evil.org/", "http://com/"]),
            (".example.com", &["http://example.com/", "http://a.example.com/"], &["http://notexample.com/"]),
            ("*.example.com", &["http://example.com/", "http://a.example.com/"], &["http://notexample.com/"]),
            ("EXAMPLE.com.", &["http://a.example.com/"], &["http://example.org/"]),
            ("bücher.example", &["http://xn--bcher-kva.example/", "http://bücher.example/"], &[]),
            ("host:8080", &["http://host:8080/"], &["http://host/", "http://host:8081/"]),
            ("host:80", &["http://host/", "http://a.host/"], &["https://host/"]),
            ("host:443", &["https://host/"], &["http://host/"]),
            ("localhost", &["http://localhost:5000/"], &["http://127.0.0.1:5000/", "http://localhosts/"]),
            ("10.0.0.1", &["http://10.0.0.1/", "http://[::ffff:10.0.0.1]/"], &["http://10.0.0.11/", "http://1.10.0.0/"]),
            ("10.0.0.1:81", &["http://10.0.0.1:81/"], &["http://10.0.0.1/"]),
            ("::1", &["http://[::1]/", "http://[0:0::1]:5000/"], &["http://[::2]/", "http://0.0.0.1/"]),
            ("[::1]", &["http://[::1]/", "http://[::1]:5000/"], &["http://[::11]/"]),
            ("[::1]:5000", &["http://[::1]:5000/"], &["http://[::1]/"]),
            ("10.0.0.0/8", &["http://10.255.1.2/"], &["http://11.0.0.1/", "http://ten.example/"]),
            ("10.1.2.3/32,192.168.0.0/23", &["http://10.1.2.3/", "http://192.168.1.9/"],
                &["http://10.1.2.2/", "http://192.168.2.9/"]),
            ("0.0.0.0/0", &["http://8.8.8.8/"], &["http://[2001::1]/"]),
            ("2001:db8::/32", &["http://[2001:db8:ffff::1]/"], &["http://[2001:db9::1]/", "http://32.1.13.184/"]),
            ("[fe80::]/10", &["http://[fe80::1]/", "http://[febf::1]/"], &["http://[fec0::1]/"]),
            ("::/0", &["http://[2001::1]/", "http://1.2.3.4/"], &["http://a.example/"]),
            ("a.example b.example\tc.example,\n d.example",
                &["http://a.example/", "http://b.example/", "http://c.example/", "http://d.example/"], &[]),
            ("10.0.0.0/33,10.0.0.0/x,host:port,[::1,//,a b", &["http://a/", "http://b/"],
                &["http://10.0.0.1/", "http://host/", "http://[::1]/"]),
        ];
        for (list, direct, others) in table {
            for name in ["no_proxy", "NO_PROXY"] {
                let set = proxies(&[("all_proxy", "http://proxy:3128"), (name, list)]);
                for url in *direct {
                    assert_eq!(proxy(&set, url), None, "{list}: {url}");
                }
                for url in *others {
                    assert!(proxy(&set, url).is_some(), "{list}: {url}");
                }
            }
        }
    }

    #[test]
    fn proxies_of_the_environment() {
        let (plain, secure) = ("http://a.example/", "https://a.example/");
        for (variables, http, https) in [
            (&[][..], None, None),
            (&[("http_proxy", "p:1")], Some("http://p:1/"), None),
            (&[("HTTPS_PROXY", "https://p:1")], None, Some("https://p:1/")),
            (&[("all_proxy", "http://q"), ("http_proxy", "http://p")], Some("http://p/"), Some("http://q/")),
            (&[("HTTP_PROXY", "http://up"), ("http_proxy", "http://low")], Some("http://up/"), None),
            (&[("HTTP_PROXY", " "), ("http_proxy", "http://low")], Some("http://low/"), None),
            (&[("http_proxy", "http://me:p%40ss@p:1")], Some("http://me:p%40ss@p:1/"), None),
            (&[("http_proxy", "http://")], None, None),
            (&[("HTTP_PROXY", "http://evil"), ("REQUEST_METHOD", "GET")], None, None),
        ] {
            let set = proxies(variables);
            assert_eq!((proxy(&set, plain).as_deref(), proxy(&set, secure).as_deref()), (http, https));
            assert_eq!(set.is_empty(), http.is_none() && https.is_none());
        }
    }
}
