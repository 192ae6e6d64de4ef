//! Keys of a `wg-quick` file: the grammar of their values, and how they are written.

use std::net::IpAddr;

use zeroize::Zeroizing;

use super::Parser;
use crate::home::HomeServer;
use crate::keys::{OK, Put, Verdicted, compact, key, line, number, parsed, shown, up_to};
use crate::tunnel::{Interface, Peer, Scripts, Table, Tunnel};
use crate::types::{AllowedIp, Endpoint, Host, InterfaceAddr, decimal};

/// A key of a `wg-quick` file.
pub(super) struct Row {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether its lines add up; a later line of any other key replaces earlier ones.
    pub list: bool,
    /// Whether it can be left out without a change of the tunnel's destination, peers or keys.
    pub dispensable: bool,
    /// Unsets the value, for a key that `wg-quick` accepts with an empty value, as some programs write it.
    pub clear: Option<fn(&mut Interface)>,
}

/// The section of a key, how its value changes the model, and how the model becomes text.
pub(super) enum Kind {
    Interface(
        fn(&mut Interface, &str) -> Verdicted,
        fn(&Interface, &mut Put<'_>),
    ),
    /// A shell command of `[Interface]`.
    Script(fn(&mut Scripts) -> &mut Vec<String>),
    Peer(fn(&mut Peer, &str) -> Verdicted, fn(&Peer, &mut Put<'_>)),
    /// A key of `[Peer]` that depends on other peers; with the number of its line.
    OfPeers(
        fn(&mut Parser, usize, &str) -> Verdicted,
        fn(&Peer, &mut Put<'_>),
    ),
}

impl Row {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            list: false,
            dispensable: false,
            clear: None,
        }
    }

    const fn interface(
        name: &'static str,
        set: fn(&mut Interface, &str) -> Verdicted,
        show: fn(&Interface, &mut Put<'_>),
    ) -> Self {
        Self::new(name, Kind::Interface(set, show))
    }

    /// A key whose value is a shell command.
    const fn script(name: &'static str, place: fn(&mut Scripts) -> &mut Vec<String>) -> Self {
        Self::new(name, Kind::Script(place)).clear(|_| {})
    }

    const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    const fn dispensable(mut self) -> Self {
        self.dispensable = true;
        self
    }

    const fn clear(mut self, clear: fn(&mut Interface)) -> Self {
        self.clear = Some(clear);
        self
    }

    /// Whether the key belongs into `[Peer]`.
    pub(super) const fn is_of_peer(&self) -> bool {
        matches!(self.kind, Kind::Peer(..) | Kind::OfPeers(..))
    }
}

/// All keys, in the order in which they are written.
pub(super) const ROWS: &[Row] = &[
    Row::interface(
        "Address",
        |interface, value| {
            for text in words(value) {
                let address: InterfaceAddr = parsed(text)?;
                if !interface.addresses.contains(&address) {
                    interface.addresses.push(address);
                }
            }
            OK
        },
        |interface, put| interface.addresses.iter().for_each(|it| put(it)),
    )
    .list()
    .clear(|_| {}),
    Row::interface(
        "DNS",
        |interface, value| {
            words(value).try_for_each(|text| dns(interface, text))?;
            OK
        },
        |interface, put| {
            interface.dns.iter().for_each(|it| put(it));
            interface.dns_search.iter().for_each(|it| put(it));
        },
    )
    .list()
    .dispensable()
    .clear(|_| {}),
    Row::interface(
        "MTU",
        |interface, value| {
            let mtu = up_to(value, 65535).filter(|&mtu: &u32| mtu >= 68);
            interface.mtu = Some(mtu.ok_or("must be a number of bytes from 68 to 65535")?);
            Ok(match interface.mtu {
                Some(..1280) => "below 1280 bytes there is no IPv6 inside the tunnel".to_owned(),
                _ => String::new(),
            })
        },
        |interface, put| interface.mtu.iter().for_each(|it| put(it)),
    )
    .dispensable()
    .clear(|interface| interface.mtu = None),
    Row::interface(
        "Table",
        |interface, value| {
            interface.table = table(value)?;
            OK
        },
        |interface, put| match interface.table {
            Table::Auto => {}
            Table::Off => put(&"off"),
            Table::Id(table) => put(&table),
        },
    )
    .clear(|interface| interface.table = Table::Auto),
    Row::interface(
        "SaveConfig",
        |interface, value| {
            interface.save_config = match value {
                _ if value.eq_ignore_ascii_case("true") => true,
                _ if value.eq_ignore_ascii_case("false") => false,
                _ => return Err("must be `true` or `false`".to_owned()),
            };
            OK
        },
        |interface, put| {
            interface
                .save_config
                .then_some("true")
                .iter()
                .for_each(|it| put(it))
        },
    )
    .dispensable(),
    Row::script("PreUp", |scripts| &mut scripts.pre_up),
    Row::script("PostUp", |scripts| &mut scripts.post_up),
    Row::script("PreDown", |scripts| &mut scripts.pre_down),
    Row::script("PostDown", |scripts| &mut scripts.post_down),
    Row::interface(
        "ListenPort",
        |interface, value| {
            let port = up_to(&compact(value), u16::MAX.into());
            let wanted = "must be a number from 0 to 65535; 0 lets the kernel choose";
            interface.listen_port = Some(port.ok_or(wanted)?);
            OK
        },
        |interface, put| interface.listen_port.iter().for_each(|it| put(it)),
    )
    .dispensable(),
    Row::interface(
        "FwMark",
        |interface, value| {
            let mark = off_or(&compact(value), number);
            interface.fwmark = Some(mark.ok_or("must be `off` or a number up to 0xffffffff")?);
            OK
        },
        |interface, put| match interface.fwmark {
            None => {}
            Some(0) => put(&"off"),
            Some(mark) => put(&format!("{mark:#x}")),
        },
    ),
    Row::interface(
        "PrivateKey",
        |interface, value| {
            let key = key(value)?;
            if key.is_zero() {
                return Err("an all-zero key is none; `wg genkey` makes one".to_owned());
            }
            interface.private_key = Some(key);
            OK
        },
        |interface, put| {
            let key = interface.private_key.iter();
            key.for_each(|it| put(&it.to_base64().as_str()));
        },
    ),
    Row::new(
        "PublicKey",
        Kind::OfPeers(
            |parser, _, value| parser.public_key(value),
            |peer, put| put(&peer.public_key.to_base64().as_str()),
        ),
    ),
    Row::new(
        "PresharedKey",
        Kind::Peer(
            |peer, value| {
                peer.preshared_key = Some(key(value)?);
                OK
            },
            |peer, put| {
                let key = peer.preshared_key.iter();
                key.for_each(|it| put(&it.to_base64().as_str()));
            },
        ),
    ),
    Row::new(
        "AllowedIPs",
        Kind::OfPeers(Parser::allowed_ips, |peer, put| {
            let ranges: Vec<String> = peer.allowed_ips.iter().map(ToString::to_string).collect();
            if !ranges.is_empty() {
                put(&ranges.join(", "));
            }
        }),
    )
    .list(),
    Row::new(
        "Endpoint",
        Kind::Peer(endpoint, |peer, put| {
            peer.endpoint.iter().for_each(|it| put(it));
        }),
    ),
    Row::new(
        "PersistentKeepalive",
        Kind::Peer(
            |peer, value| {
                let seconds = off_or(&compact(value), |text| up_to(text, u16::MAX.into()));
                let wanted = "must be `off` or a number of seconds up to 65535";
                peer.persistent_keepalive = Some(seconds.ok_or(wanted)?);
                OK
            },
            |peer, put| match peer.persistent_keepalive {
                None => {}
                Some(0) => put(&"off"),
                Some(seconds) => put(&seconds),
            },
        ),
    )
    .dispensable(),
];

/// The key of this name, written in any case.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

impl Tunnel {
    /// Text of a `.conf` file that parses to this model. It holds the secrets, and is overwritten when dropped.
    #[must_use]
    pub fn to_conf(&self) -> Zeroizing<String> {
        // Reserve the size first: a string that grows leaves copies of the keys behind.
        let lines = self.lines.to_comments();
        let home = self.home.as_ref().map(HomeServer::to_comments);
        let home = home.unwrap_or_default();
        let size = self.conf_size() + lines.len() + home.len() + 2;
        let mut out = Zeroizing::new(String::with_capacity(size));
        for comments in [lines.as_str(), &home] {
            if !comments.is_empty() {
                out.push_str(comments);
                out.push('\n');
            }
        }
        let mut scripts = self.interface.scripts.clone();
        out.push_str("[Interface]\n");
        for Row { name, kind, .. } in ROWS {
            match kind {
                Kind::Interface(_, show) => show(&self.interface, &mut line(name, &mut out)),
                Kind::Script(place) => {
                    place(&mut scripts)
                        .iter()
                        .for_each(|it| line(name, &mut out)(it));
                }
                Kind::Peer(..) | Kind::OfPeers(..) => {}
            }
        }
        for peer in &self.peers {
            out.push_str("\n[Peer]\n");
            for Row { name, kind, .. } in ROWS {
                if let Kind::Peer(_, show) | Kind::OfPeers(_, show) = kind {
                    show(peer, &mut line(name, &mut out));
                }
            }
        }
        out
    }

    /// Upper bound of the length of [`Tunnel::to_conf`].
    fn conf_size(&self) -> usize {
        let interface = &self.interface;
        let scripts = &interface.scripts;
        let up = scripts.pre_up.iter().chain(&scripts.post_up);
        let scripts = up.chain(&scripts.pre_down).chain(&scripts.post_down);
        let texts = interface.dns_search.iter().chain(scripts);
        let names: usize = texts.map(|text| text.len() + 16).sum();
        // 64 covers an address with its prefix and separator, 512 the fixed lines of a section
        // with an endpoint of the longest host name.
        512 + names
            + 64 * (interface.addresses.len() + interface.dns.len())
            + 512 * self.peers.len()
            + 64 * self.allowed_ips().count()
    }
}

/// Why another program's key can be ignored without harm; `None` for all other keys.
pub(super) fn harmless(key: &str) -> Option<&'static str> {
    ["IncludedApplications", "ExcludedApplications"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(key))
        .then_some("chooses apps on Android; there are none here")
}

/// True for keys with which AmneziaWG disguises its packets.
pub(super) fn is_amnezia(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let numbered = |letters: &str| {
        let digit = key.strip_prefix(|c| letters.contains(c));
        digit.is_some_and(|rest| rest.len() == 1 && decimal(rest).is_some())
    };
    matches!(key.as_str(), "jc" | "jmin" | "jmax" | "itime") || numbered("shij")
}

fn endpoint(peer: &mut Peer, value: &str) -> Verdicted {
    let text = compact(value);
    let endpoint = Endpoint::from_wg(&text);
    let endpoint = endpoint.map_err(|why| format!("`{}`: {why}", shown(&text)))?;
    let is_v6 = matches!(endpoint.host, Host::Ip(IpAddr::V6(_)) | Host::Scoped(..));
    let remark = match endpoint.host {
        Host::Name(_) => "the name is looked up when the tunnel comes up".to_owned(),
        _ if is_v6 && !text.starts_with('[') => format!("taken as {endpoint}, as `wg` does"),
        _ => String::new(),
    };
    peer.endpoint = Some(endpoint);
    Ok(remark)
}

/// Parses the ranges of an `AllowedIPs` line, each with a remark if it was changed.
pub(super) fn ranges(
    value: &str,
) -> impl Iterator<Item = Result<(AllowedIp, Option<String>), String>> + '_ {
    value.split(',').map(|text| {
        let text = compact(text);
        if text.is_empty() {
            return Err("an empty entry between commas; remove a comma".to_owned());
        }
        if text.starts_with(['+', '-']) {
            return Err(format!(
                "`{}`: `+` and `-` change a running interface; a file holds plain ranges",
                shown(&text)
            ));
        }
        let range: AllowedIp = parsed(&text)?;
        let given: InterfaceAddr = parsed(&text)?;
        let masked = given.addr != range.addr();
        let remark = masked.then(|| format!("{given} is taken as the network {range}"));
        Ok((range, remark))
    })
}

fn dns(interface: &mut Interface, text: &str) -> Result<(), String> {
    let is_address = text.contains(':') || text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_address {
        let server: IpAddr = text
            .parse()
            .map_err(|_| format!("`{}` is no address of a name server", shown(text)))?;
        if !interface.dns.contains(&server) {
            interface.dns.push(server);
        }
        return Ok(());
    }
    // The word goes into the resolver's configuration: only a domain may pass.
    let domain = text.strip_prefix('~').unwrap_or(text);
    let fits = (1..=253).contains(&domain.len())
        // A leading dash would make it an option of the resolver's program.
        && !domain.starts_with('-')
        && domain
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !fits {
        return Err(format!(
            "`{}` is neither an address nor a search domain",
            shown(text)
        ));
    }
    if !interface.dns_search.iter().any(|known| known == text) {
        interface.dns_search.push(text.to_owned());
    }
    Ok(())
}

fn table(value: &str) -> Result<Table, String> {
    Ok(match value.to_ascii_lowercase().as_str() {
        "auto" => Table::Auto,
        "off" => Table::Off,
        // Table names that every kernel knows; others depend on /etc/iproute2.
        "local" => Table::Id(255),
        "main" => Table::Id(254),
        "default" => Table::Id(253),
        text => number(text)
            .filter(|&id| id != 0)
            .map(Table::Id)
            .ok_or("must be `auto`, `off` or the number of a routing table")?,
    })
}

/// Entries of a list, separated by commas or white space.
fn words(value: &str) -> impl Iterator<Item = &str> {
    let separator = |c: char| c == ',' || c.is_whitespace();
    value.split(separator).filter(|word| !word.is_empty())
}

fn off_or<T: From<u8>>(text: &str, number: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    if text.eq_ignore_ascii_case("off") {
        return Some(0.into());
    }
    number(text)
}
