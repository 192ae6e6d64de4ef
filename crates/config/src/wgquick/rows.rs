//! Keys of a `wg-quick` file: the grammar of their values, and how they are written.

use std::net::IpAddr;

use zeroize::Zeroizing;

use super::Parser;
#[cfg(feature = "amnezia")]
use crate::amnezia;
use crate::home::HomeServer;
#[cfg(feature = "postquantum")]
use crate::keys::write;
use crate::keys::{
    OK, Texts, Verdicted, compact, joined, key, number, parsed, shown, some, store, texts, up_to,
    write_texts,
};
use crate::pool::Pool;
#[cfg(feature = "postquantum")]
use crate::postquantum;
use crate::tunnel::{Interface, Peer, Scripts, Table, Tunnel};
#[cfg(not(feature = "amnezia"))]
use crate::types::decimal;
use crate::types::{AllowedIp, Endpoint, Host, InterfaceAddr, Key32};
#[cfg(feature = "amnezia")]
use wireguard::amnezia::KEYS;

/// A key of a `wg-quick` file.
pub(super) struct Row {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether the key's lines add up; a later line of any other key replaces earlier ones.
    pub list: bool,
    /// Whether the key can be left out without a change of the tunnel's destination, peers or keys.
    pub dispensable: bool,
    /// Unsets the value of the key of this name, which `wg-quick` accepts with an empty value, as some programs write it.
    pub clear: Option<Clear>,
}

pub(super) type Clear = fn(&mut Interface, &str);

/// The section of a key, how its value changes the model, and how the model becomes text.
pub(super) enum Kind {
    Interface(
        fn(&mut Interface, &str) -> Verdicted,
        fn(&Interface) -> Texts,
    ),
    /// A key of `[Interface]` that only AmneziaWG knows.
    #[cfg(feature = "amnezia")]
    Amnezia,
    /// A shell command of `[Interface]`.
    Script(fn(&mut Scripts) -> &mut Vec<String>),
    Peer(fn(&mut Peer, &str) -> Verdicted, fn(&Peer) -> Texts),
    /// A key of `[Peer]` that depends on other peers; with the number of its line.
    OfPeers(
        fn(&mut Parser, usize, &str) -> Verdicted,
        fn(&Peer) -> Texts,
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

    /// A key whose value is a shell command.
    const fn script(name: &'static str, place: fn(&mut Scripts) -> &mut Vec<String>) -> Self {
        Self::new(name, Kind::Script(place)).clear(|_, _| {})
    }

    const fn list(mut self) -> Self {
        self.list = true;
        self
    }

    const fn dispensable(mut self) -> Self {
        self.dispensable = true;
        self
    }

    const fn clear(mut self, clear: Clear) -> Self {
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
    Row::new(
        "Address",
        Kind::Interface(address, |it| texts(&it.addresses)),
    )
    .list()
    .clear(|_, _| {}),
    Row::new("DNS", Kind::Interface(dns, shown_dns))
        .list()
        .dispensable()
        .clear(|_, _| {}),
    Row::new("MTU", Kind::Interface(mtu, |it| texts(it.mtu)))
        .dispensable()
        .clear(|it, _| it.mtu = None),
    Row::new("Table", Kind::Interface(table, shown_table)).clear(|it, _| it.table = Table::Auto),
    Row::new(
        "SaveConfig",
        Kind::Interface(save_config, |it| texts(it.save_config.then_some(true))),
    )
    .dispensable(),
    Row::script("PreUp", |scripts| &mut scripts.pre_up),
    Row::script("PostUp", |scripts| &mut scripts.post_up),
    Row::script("PreDown", |scripts| &mut scripts.pre_down),
    Row::script("PostDown", |scripts| &mut scripts.post_down),
    Row::new(
        "ListenPort",
        Kind::Interface(listen_port, |it| texts(it.listen_port)),
    )
    .dispensable(),
    Row::new(
        "FwMark",
        Kind::Interface(fwmark, |it| off_or_text(it.fwmark, |it| format!("{it:#x}"))),
    ),
    Row::new(
        "PrivateKey",
        Kind::Interface(private_key, |it| base64(it.private_key.as_ref())),
    ),
    Row::new(
        "PublicKey",
        Kind::OfPeers(Parser::public_key, |it| base64(Some(&it.public_key))),
    ),
    Row::new(
        "PresharedKey",
        Kind::Peer(
            |it, value| some(&mut it.preshared_key, key(value)),
            |it| base64(it.preshared_key.as_ref()),
        ),
    ),
    Row::new(
        "AllowedIPs",
        Kind::OfPeers(Parser::allowed_ips, |it| joined(&it.allowed_ips)),
    )
    .list(),
    Row::new("Endpoint", Kind::Peer(endpoint, |it| texts(&it.endpoint))),
    Row::new(
        "PersistentKeepalive",
        Kind::Peer(keepalive, |it| {
            off_or_text(it.persistent_keepalive, |it| it.to_string())
        }),
    )
    .dispensable(),
];

/// Keys that a program without AmneziaWG refuses.
#[cfg(not(feature = "amnezia"))]
const AMNEZIA: &[Row] = &[];

/// Keys of AmneziaWG. Amnezia's programs write an empty value for a packet that is not set.
#[cfg(feature = "amnezia")]
const AMNEZIA: &[Row] = &{
    let mut rows = [const { Row::new("", Kind::Amnezia) }; KEYS.len()];
    let mut at = 0;
    while at < KEYS.len() {
        rows[at].name = KEYS[at];
        if let [b'I' | b'J', b'1'..=b'5'] = KEYS[at].as_bytes() {
            rows[at].clear = Some(|it, name| {
                let _ = it.amnezia.set(name, "");
            });
        }
        at += 1;
    }
    rows
};

/// All keys that this program knows.
pub(super) fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(AMNEZIA)
}

/// The key of this name, written in any case.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    all().find(|row| row.name.eq_ignore_ascii_case(name))
}

impl Tunnel {
    /// Text of a `.conf` file that parses to this model. It holds the secrets, and is overwritten when dropped.
    #[must_use]
    pub fn to_conf(&self) -> Zeroizing<String> {
        // Reserve the size first: a string that grows leaves copies of the keys behind.
        let lines = self.lines.to_comments();
        let home = self.home.as_ref().map(HomeServer::to_comments);
        let home = home.unwrap_or_default();
        let pool = self
            .pool
            .as_ref()
            .map(Pool::to_comments)
            .unwrap_or_default();
        let size = self.conf_size() + lines.len() + home.len() + pool.len() + 3;
        let mut out = Zeroizing::new(String::with_capacity(size));
        for comments in [lines.as_str(), &home, &pool] {
            if !comments.is_empty() {
                out.push_str(comments);
                out.push('\n');
            }
        }
        let mut scripts = self.interface.scripts.clone();
        out.push_str("[Interface]\n");
        for Row { name, kind, .. } in all() {
            let values = match kind {
                Kind::Interface(_, show) => show(&self.interface),
                #[cfg(feature = "amnezia")]
                Kind::Amnezia => amnezia::show(&self.interface.amnezia, name),
                Kind::Script(place) => texts(place(&mut scripts)),
                Kind::Peer(..) | Kind::OfPeers(..) => Texts::new(),
            };
            write_texts("", name, values, &mut out);
        }
        for peer in &self.peers {
            out.push_str("\n[Peer]\n");
            write_texts("#! ", "Name", texts(&peer.name), &mut out);
            #[cfg(feature = "postquantum")]
            if let Some(settings) = &peer.post_quantum {
                write(postquantum::KEYS, settings, "#! ", &mut out);
            }
            for Row { name, kind, .. } in all() {
                if let Kind::Peer(_, show) | Kind::OfPeers(_, show) = kind {
                    write_texts("", name, show(peer), &mut out);
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
        // 64 covers an address with its prefix and separator, 640 the fixed lines of a section
        // with the longest name and an endpoint of the longest host name.
        #[cfg(feature = "amnezia")]
        let names = names + amnezia::size(&interface.amnezia);
        512 + names
            + 64 * (interface.addresses.len() + interface.dns.len())
            + 640 * self.peers.len()
            + 64 * self.allowed_ips().count()
    }
}

/// Why another program's key can be ignored without harm; `None` for all other keys.
pub(super) fn harmless(key: &str) -> Option<&'static str> {
    ["IncludedApplications", "ExcludedApplications"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(key))
        .then_some("selects apps on Android; has no effect here")
}

/// True for keys with which AmneziaWG disguises its packets.
#[cfg(not(feature = "amnezia"))]
pub(super) fn is_amnezia(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let numbered = |letters: &str| {
        let digit = key.strip_prefix(|c| letters.contains(c));
        digit.is_some_and(|rest| rest.len() == 1 && decimal(rest).is_some())
    };
    matches!(
        key.as_str(),
        "jc" | "jmin" | "jmax" | "itime" | "headerprotectionkey" | "randomtrailers"
    ) || numbered("shij")
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
        let remark = masked.then(|| format!("{given} is treated as the network {range}"));
        Ok((range, remark))
    })
}

fn address(interface: &mut Interface, value: &str) -> Verdicted {
    for text in words(value) {
        let address: InterfaceAddr = parsed(text)?;
        if !interface.addresses.contains(&address) {
            interface.addresses.push(address);
        }
    }
    OK
}

fn dns(interface: &mut Interface, value: &str) -> Verdicted {
    for text in words(value) {
        if text.contains(':') || text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            let server: IpAddr = text
                .parse()
                .map_err(|_| format!("`{}` is not a name server address", shown(text)))?;
            if !interface.dns.contains(&server) {
                interface.dns.push(server);
            }
            continue;
        }
        // The word goes into the resolver's configuration: only a domain may pass.
        let domain = text.strip_prefix('~').unwrap_or(text);
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        // A leading dash would make it an option of the resolver's program.
        let fits = (1..=253).contains(&domain.len()) && !domain.starts_with('-');
        if !fits || !domain.bytes().all(good) {
            return Err(format!(
                "`{}` is neither an address nor a search domain",
                shown(text)
            ));
        }
        if !interface.dns_search.iter().any(|known| known == text) {
            interface.dns_search.push(text.to_owned());
        }
    }
    OK
}

fn shown_dns(interface: &Interface) -> Texts {
    let mut values = texts(&interface.dns);
    values.extend(texts(&interface.dns_search));
    values
}

fn mtu(interface: &mut Interface, value: &str) -> Verdicted {
    let mtu = up_to(value, 65535).filter(|&mtu: &u32| mtu >= 68);
    interface.mtu = Some(mtu.ok_or("must be a number of bytes from 68 to 65535")?);
    Ok(match interface.mtu {
        Some(..1280) => "below 1280 bytes the tunnel cannot carry IPv6".to_owned(),
        _ => String::new(),
    })
}

fn table(interface: &mut Interface, value: &str) -> Verdicted {
    interface.table = match value.to_ascii_lowercase().as_str() {
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
    };
    OK
}

fn shown_table(interface: &Interface) -> Texts {
    match interface.table {
        Table::Auto => Texts::new(),
        Table::Off => texts(["off"]),
        Table::Id(table) => texts([table]),
    }
}

fn save_config(interface: &mut Interface, value: &str) -> Verdicted {
    let found = ["false", "true"].map(|it| value.eq_ignore_ascii_case(it));
    let found = found.iter().position(|it| *it).map(|it| it == 1);
    store(
        &mut interface.save_config,
        found.ok_or("must be `true` or `false`"),
    )
}

fn listen_port(interface: &mut Interface, value: &str) -> Verdicted {
    let port = up_to(&compact(value), u16::MAX.into());
    let wanted = "must be a number from 0 to 65535; 0 lets the kernel choose";
    some(&mut interface.listen_port, port.ok_or(wanted))
}

fn fwmark(interface: &mut Interface, value: &str) -> Verdicted {
    let mark = off_or(&compact(value), number);
    let wanted = "must be `off` or a number up to 0xffffffff";
    some(&mut interface.fwmark, mark.ok_or(wanted))
}

fn private_key(interface: &mut Interface, value: &str) -> Verdicted {
    let key = Some(key(value)?).filter(|key| !key.is_zero());
    let wanted = "an all-zero key means \"no key\"; make one with `wg genkey`";
    some(&mut interface.private_key, key.ok_or(wanted))
}

fn keepalive(peer: &mut Peer, value: &str) -> Verdicted {
    let value = compact(value);
    let seconds = off_or(&value, crate::keys::keepalive);
    let wanted = "must be `off`, seconds up to 65535, or a range such as `22-30`";
    some(&mut peer.persistent_keepalive, seconds.ok_or(wanted))?;
    Ok(match value.split_once('-') {
        None => String::new(),
        Some((least, _)) => format!("taken as {least}: Millrace keeps to the shortest interval"),
    })
}

fn base64(key: Option<&Key32>) -> Texts {
    key.map(Key32::to_base64).into_iter().collect()
}

/// The text of a number; `off` for 0.
fn off_or_text<T: Default + PartialEq>(number: Option<T>, text: impl Fn(T) -> String) -> Texts {
    texts(number.map(|it| match it == T::default() {
        true => "off".to_owned(),
        false => text(it),
    }))
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
