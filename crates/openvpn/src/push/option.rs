//! The single options of a push reply, their words as OpenVPN's files have them, and their bounds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Why an option of the server was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No server may set this.
    #[error("a server may not set it")]
    NotPullable,
    /// The words behind the option are wrong.
    #[error("it needs {0}")]
    Malformed(&'static str),
    /// A number is out of its bounds.
    #[error("it must be from {min} to {max}")]
    OutOfRange {
        /// Smallest allowed value.
        min: u32,
        /// Largest allowed value.
        max: u32,
    },
    /// The server pushed more options of this kind than make sense.
    #[error("the server pushed more than {0} such options")]
    TooMany(usize),
    /// `route-nopull` is set.
    #[error("route-nopull is set")]
    NoPull,
    /// A `pull-filter` excludes the option.
    #[error("a pull-filter ignores it")]
    Filtered,
    /// The option is for other systems, or changes nothing here.
    #[error("it has no effect here")]
    NoEffect,
}

/// How clients' interfaces get their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// A network of four addresses for each client.
    #[default]
    Net30,
    /// Two addresses that need no common network.
    P2p,
    /// One network for all.
    Subnet,
}

impl Topology {
    /// All topologies.
    pub const ALL: [Self; 3] = [Self::Subnet, Self::Net30, Self::P2p];

    /// The topology's name in files and pushed options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Net30 => "net30",
            Self::P2p => "p2p",
            Self::Subnet => "subnet",
        }
    }
}

/// `ifconfig LOCAL SECOND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ifconfig {
    /// Address of this end.
    pub local: Ipv4Addr,
    /// The peer's address, or the netmask with [`Topology::Subnet`].
    pub second: Ipv4Addr,
}

/// `ifconfig-ipv6 LOCAL/BITS [REMOTE]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfconfigV6 {
    /// Address of this end.
    pub local: Ipv6Addr,
    /// Length of the prefix, in bits.
    pub bits: u8,
    /// The peer's address, which becomes the gateway of IPv6 routes.
    pub remote: Option<Ipv6Addr>,
}

/// A place in a route: an address, a name, or a word that stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `vpn_gateway`, or an omitted word: the other end of the tunnel.
    VpnGateway,
    /// `net_gateway`: the gateway of the default route before the tunnel.
    NetGateway,
    /// `remote_host`: the server's outer address.
    RemoteHost,
    /// An address.
    Address(IpAddr),
    /// A name to resolve when the route is set. Only files may have names: a server could make a client ask any name
    /// server for anything.
    Name(String),
}

/// `route NETWORK [NETMASK] [GATEWAY] [METRIC]`, or `route-ipv6 NETWORK/BITS [GATEWAY] [METRIC]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// IPv6.
    pub v6: bool,
    /// Destination network.
    pub network: Place,
    /// Length of the prefix, in bits.
    pub bits: u8,
    /// The gateway; `None` for that of `route-gateway` or the tunnel.
    pub gateway: Option<Place>,
    /// The metric; `None` for that of `route-metric`.
    pub metric: Option<u32>,
    /// The server pushed the route.
    pub pushed: bool,
}

/// `redirect-gateway` and `redirect-private`, whose flags add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// True for `redirect-gateway`: the default route goes through the tunnel. False if only `redirect-private` is
    /// given.
    pub gateway: bool,
    /// IPv4 is redirected: true unless `!ipv4`.
    pub ipv4: bool,
    /// `ipv6`: IPv6 is redirected too.
    pub ipv6: bool,
    /// `local`: the server is on the same subnet and needs no route of its own.
    pub local: bool,
    /// `autolocal`: find out whether the server is on the same subnet.
    pub autolocal: bool,
    /// `def1`: two half-size routes instead of the default route.
    pub def1: bool,
    /// `bypass-dhcp`: a route past the tunnel to the DHCP server.
    pub bypass_dhcp: bool,
    /// `bypass-dns`: a route past the tunnel to the name servers.
    pub bypass_dns: bool,
    /// `block-local`: the local network is cut off while the tunnel is up.
    pub block_local: bool,
}

/// The place of a flag in a [`Redirect`].
type Flag = fn(&mut Redirect) -> &mut bool;

impl Redirect {
    /// The words of both options; one that begins with `!` clears its flag.
    pub const FLAGS: [(&'static str, Flag); 8] = [
        ("def1", |it| &mut it.def1),
        ("ipv6", |it| &mut it.ipv6),
        ("!ipv4", |it| &mut it.ipv4),
        ("local", |it| &mut it.local),
        ("autolocal", |it| &mut it.autolocal),
        ("bypass-dhcp", |it| &mut it.bypass_dhcp),
        ("bypass-dns", |it| &mut it.bypass_dns),
        ("block-local", |it| &mut it.block_local),
    ];

    pub(super) fn parse(words: &[String], gateway: bool) -> Option<Self> {
        let mut redirect = Self {
            gateway,
            ipv4: true,
            ..Self::default()
        };
        for word in words {
            let (name, flag) = Self::FLAGS.iter().find(|(name, _)| name == word)?;
            *flag(&mut redirect) = !name.starts_with('!');
        }
        Some(redirect)
    }
}

/// The framing that `comp-lzo` or `compress` requests. Nothing is ever compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compression {
    /// `comp-lzo`, with the word behind it: `no`, `yes`, `adaptive`, or nothing.
    CompLzo(Option<String>),
    /// `compress`, with the word behind it: `lzo`, `lz4`, `lz4-v2`, `stub`, `stub-v2`, `migrate`, or nothing.
    Compress(Option<String>),
}

/// The `dns` options and those of `dhcp-option` that other systems need for name servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushedDns {
    /// `dhcp-option DNS` and `DNS6`.
    pub servers: Vec<IpAddr>,
    /// `dhcp-option DOMAIN` and `ADAPTER_DOMAIN_SUFFIX`: the last one counts.
    pub domain: Option<String>,
    /// `dhcp-option DOMAIN-SEARCH` and `dns search-domains`.
    pub search: Vec<String>,
    /// `dns`.
    pub options: DnsOptions,
    /// The words behind every accepted `dhcp-option`, in the server's order: for scripts.
    pub lines: Vec<String>,
}

/// Maximum number of `dhcp-option`s that scripts get.
const LINES_MAX: usize = 64;

/// `dns`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DnsOptions {
    /// `dns server N …` by priority: the lowest number first.
    pub servers: Vec<(i8, DnsServer)>,
    /// `dns search-domains`.
    pub search_domains: Vec<String>,
}

impl DnsOptions {
    /// The server of a priority. Adds one without addresses if it is missing.
    pub fn server(&mut self, priority: i8) -> &mut DnsServer {
        let at = self.servers.partition_point(|(of, _)| *of < priority);
        if self.servers.get(at).is_none_or(|(of, _)| *of != priority) {
            self.servers.insert(at, (priority, DnsServer::default()));
        }
        &mut self.servers[at].1
    }
}

/// `dns server N`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DnsServer {
    /// `address`: up to 8; port 0 means the transport's default.
    pub addresses: Vec<SocketAddr>,
    /// `resolve-domains`: only these domains are asked of this server.
    pub resolve_domains: Vec<String>,
    /// `dnssec`.
    pub dnssec: Dnssec,
    /// `transport`.
    pub transport: DnsTransport,
    /// `sni`: the server's name in TLS.
    pub sni: Option<String>,
}

/// `dns server N dnssec`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Dnssec {
    /// The option is absent.
    #[default]
    Unset,
    /// `yes`.
    Yes,
    /// `optional`.
    Optional,
    /// `no`.
    No,
}

impl Dnssec {
    /// The words of the option.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("yes", Self::Yes),
        ("optional", Self::Optional),
        ("no", Self::No),
    ];
}

/// `dns server N transport`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DnsTransport {
    /// `plain`, the default.
    #[default]
    Plain,
    /// `DoT`.
    Tls,
    /// `DoH`.
    Https,
}

impl DnsTransport {
    /// The words of the option.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("plain", Self::Plain),
        ("DoT", Self::Tls),
        ("DoH", Self::Https),
    ];
}

/// Reads a number between bounds.
pub(super) fn number(word: Option<&String>, min: u32, max: u32) -> Result<u32, Refusal> {
    let word = word.ok_or(Refusal::Malformed("a number"))?;
    if word.is_empty() || !word.bytes().all(|it| it.is_ascii_digit()) {
        return Err(Refusal::Malformed("a number"));
    }
    // Digits only: what does not fit is too large.
    match word.parse() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(Refusal::OutOfRange { min, max }),
    }
}

/// Seconds, at most a day: a longer time would in effect switch the timer off.
pub(super) fn seconds(word: Option<&String>) -> Result<Duration, Refusal> {
    Ok(Duration::from_secs(number(word, 0, 24 * 3600)?.into()))
}

/// Checks a name that is safe to hand on: letters, digits, `.`, `-` and `_`. A `-` in front is refused, as a program
/// could take the name for an option.
fn domain(word: &str) -> Result<String, Refusal> {
    let fits = |it: u8| it.is_ascii_alphanumeric() || b".-_".contains(&it);
    if word.is_empty() || word.len() > 253 || word.starts_with('-') || !word.bytes().all(fits) {
        return Err(Refusal::Malformed("a domain name"));
    }
    Ok(word.to_owned())
}

/// Whether a word has nothing that a shell would act on.
fn is_plain(word: &str) -> bool {
    let fits = |it: u8| it.is_ascii_alphanumeric() || b".:-_/".contains(&it);
    !word.is_empty() && !word.starts_with('-') && word.bytes().all(fits)
}

pub(super) fn address<A: core::str::FromStr>(word: &str) -> Result<A, Refusal> {
    word.parse()
        .map_err(|_| Refusal::Malformed("an IP address"))
}

pub(super) fn route4(words: &[String]) -> Result<Route, Refusal> {
    const SHAPE: Refusal =
        Refusal::Malformed("a network, optionally followed by netmask, gateway and metric");
    if words.is_empty() || words.len() > 4 {
        return Err(SHAPE);
    }
    let word = |at: usize| words.get(at).filter(|it| *it != "default");
    let mask: Ipv4Addr = word(1).map_or(Ok(Ipv4Addr::BROADCAST), |it| address(it))?;
    let bits = mask.to_bits().leading_ones();
    if bits + mask.to_bits().trailing_zeros() < 32 {
        return Err(Refusal::Malformed(
            "a netmask whose one bits all come first",
        ));
    }
    Ok(Route {
        v6: false,
        network: target::<Ipv4Addr>(&words[0])?,
        // At most 32.
        bits: bits as u8,
        gateway: word(2).map(|it| target::<Ipv4Addr>(it)).transpose()?,
        metric: word(3)
            .map(|it| number(Some(it), 0, i32::MAX as u32))
            .transpose()?,
        pushed: true,
    })
}

pub(super) fn route6(words: &[String]) -> Result<Route, Refusal> {
    const SHAPE: Refusal =
        Refusal::Malformed("a network with its prefix, optionally followed by gateway and metric");
    if words.is_empty() || words.len() > 3 {
        return Err(SHAPE);
    }
    let (network, bits) = prefixed(&words[0])?;
    let word = |at: usize| words.get(at).filter(|it| *it != "default");
    Ok(Route {
        v6: true,
        network: Place::Address(network.into()),
        bits,
        gateway: word(1).map(|it| target::<Ipv6Addr>(it)).transpose()?,
        metric: word(2)
            .map(|it| number(Some(it), 0, i32::MAX as u32))
            .transpose()?,
        pushed: true,
    })
}

pub(super) fn prefixed(word: &str) -> Result<(Ipv6Addr, u8), Refusal> {
    let (network, prefix) = word.split_once('/').unwrap_or((word, "128"));
    let prefix = prefix.parse().ok().filter(|it| *it <= 128);
    Ok((
        address(network)?,
        prefix.ok_or(Refusal::Malformed("a prefix of at most 128 bits"))?,
    ))
}

/// Reads an address or a keyword. Names are not looked up: a server could make us ask any name server for anything.
fn target<A: core::str::FromStr + Into<IpAddr>>(word: &str) -> Result<Place, Refusal> {
    Ok(match word {
        "vpn_gateway" => Place::VpnGateway,
        "net_gateway" | "net_gateway_ipv6" => Place::NetGateway,
        "remote_host" => Place::RemoteHost,
        _ => Place::Address(address::<A>(word)?.into()),
    })
}

impl PushedDns {
    /// Takes `dhcp-option`. Options for other things than names only go to scripts.
    pub(super) fn dhcp(&mut self, words: &[String]) -> Result<(), Refusal> {
        let [kind, value, ..] = words else {
            return Err(Refusal::Malformed("a type and a value"));
        };
        match &**kind {
            "DNS" | "DNS6" => bounded(&mut self.servers, address(value)?, 8)?,
            "DOMAIN" | "ADAPTER_DOMAIN_SUFFIX" => self.domain = Some(domain(value)?),
            "DOMAIN-SEARCH" => bounded(&mut self.search, domain(value)?, 16)?,
            // Scripts may put the words into commands.
            _ if !words.iter().all(|it| is_plain(it)) => return Err(Refusal::NoEffect),
            _ => {}
        }
        let told = match &**kind {
            // Only the kind and the value were judged.
            "DNS" | "DNS6" | "DOMAIN" | "ADAPTER_DOMAIN_SUFFIX" | "DOMAIN-SEARCH" => &words[..2],
            _ => words,
        };
        bounded(&mut self.lines, told.join(" "), LINES_MAX)
    }

    /// Takes `dns`.
    pub(super) fn dns(&mut self, words: &[String]) -> Result<(), Refusal> {
        match words {
            [kind, names @ ..] if kind == "search-domains" && !names.is_empty() => {
                for name in names {
                    let name = domain(name)?;
                    bounded(&mut self.search, name.clone(), 16)?;
                    bounded(&mut self.options.search_domains, name, 16)?;
                }
                Ok(())
            }
            [kind, priority, what, values @ ..] if kind == "server" && !values.is_empty() => {
                let priority = priority.parse();
                let priority =
                    priority.map_err(|_| Refusal::Malformed("a priority from -128 to 127"))?;
                self.server(priority)?.set(what, values)
            }
            _ => Err(Refusal::Malformed(
                "search-domains or server, each with its arguments",
            )),
        }
    }

    fn server(&mut self, priority: i8) -> Result<&mut DnsServer, Refusal> {
        let servers = &self.options.servers;
        if servers.len() >= 8 && servers.iter().all(|(of, _)| *of != priority) {
            return Err(Refusal::TooMany(8));
        }
        Ok(self.options.server(priority))
    }

    /// Whether anything is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl DnsServer {
    fn set(&mut self, what: &str, values: &[String]) -> Result<(), Refusal> {
        match what {
            "address" => {
                for value in values {
                    let plain = value.trim_start_matches('[').trim_end_matches(']');
                    let address = match plain.parse::<IpAddr>() {
                        Ok(ip) => SocketAddr::new(ip, 0),
                        Err(_) => address(value)?,
                    };
                    bounded(&mut self.addresses, address, 8)?;
                }
            }
            "resolve-domains" => {
                for value in values {
                    bounded(&mut self.resolve_domains, domain(value)?, 16)?;
                }
            }
            "dnssec" => self.dnssec = one_of(values, &Dnssec::WORDS)?,
            "transport" => self.transport = one_of(values, &DnsTransport::WORDS)?,
            "sni" => self.sni = Some(domain(&values[0])?),
            _ => {
                return Err(Refusal::Malformed(
                    "address, resolve-domains, dnssec, transport or sni",
                ));
            }
        }
        Ok(())
    }
}

/// The meaning of an option's only value, one of the known words.
fn one_of<T: Copy>(values: &[String], words: &[(&str, T)]) -> Result<T, Refusal> {
    let known = |value: &str| words.iter().find(|(word, _)| *word == value);
    match values {
        [value] => known(value).map(|(_, meaning)| *meaning),
        _ => None,
    }
    .ok_or(Refusal::Malformed("one of the known words"))
}

pub(super) fn bounded<T>(list: &mut Vec<T>, value: T, max: usize) -> Result<(), Refusal> {
    if list.len() >= max {
        return Err(Refusal::TooMany(max));
    }
    list.push(value);
    Ok(())
}

/// Maximum number of words of one option.
const MAX_WORDS: usize = 16;

/// The words, or `None` where a quote is not closed, a backslash ends the line or there are too many words.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = line.trim().chars().peekable();
    while chars.peek().is_some() {
        while chars.next_if(|it| it.is_ascii_whitespace()).is_some() {}
        let mut word = String::new();
        let mut quote = None;
        let mut any = false;
        loop {
            match (chars.next(), quote) {
                (None, None) => break,
                (None, Some(_)) => return None,
                (Some(it), Some(end)) if it == end => quote = None,
                // Single quotes protect everything.
                (Some('\\'), it) if it != Some('\'') => word.push(chars.next()?),
                (Some(it), None) if it.is_ascii_whitespace() => break,
                (Some(it @ ('"' | '\'')), None) => {
                    quote = Some(it);
                    any = true;
                }
                (Some(it), _) => word.push(it),
            }
        }
        if any || !word.is_empty() {
            words.push(word);
        }
        if words.len() > MAX_WORDS {
            return None;
        }
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_are_those_of_a_file() {
        let read = |line| words(line).unwrap();
        assert_eq!(
            read("route 10.0.0.0  255.0.0.0 "),
            ["route", "10.0.0.0", "255.0.0.0"]
        );
        assert_eq!(
            read(r#"echo "two words" 'a\b' c\ d "" "#),
            ["echo", "two words", r"a\b", "c d", ""]
        );
        assert_eq!(read(r#"echo "a\"b""#), ["echo", "a\"b"]);
        assert_eq!(read(""), Vec::<String>::new());
        assert_eq!(words(r#"echo "open"#), None);
        assert_eq!(words(r"echo \"), None);
        assert_eq!(words(&"a ".repeat(17)), None);
    }
}
