//! The settings of port forwarding: ports that a provider's gateway forwards through a tunnel to devices of the LAN.
//!
//! ```toml
//! [[forward]]
//! through = "mr-us"
//! to = "192.168.1.20"            # or a hardware address or name that has a lease
//! port = "any"                   # the provider's choice; or a port of the device
//! protocols = ["udp", "tcp"]
//! gateway = "10.2.0.1"           # left out: the tunnel's own address with 1 as its last number
//! ```

use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::policy::{Domain, Mac};
use crate::settings::reader::{
    TomlRow, parsed, places, put, set_toml, tables, text_of, unknown, word, words,
};
use crate::settings::{Origin, SettingsError};
use crate::types::is_ifname;

/// Default path of the settings.
pub const DEFAULT_PATH: &str = "/etc/millrace/forward.toml";

/// Maximum number of forwards.
pub const FORWARDS_MAX: usize = 8;

/// A transport protocol that has ports.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Protocol {
    /// Name of the protocol, in settings and for `nft`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// The device that a port leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum To {
    /// Its address.
    Address(Ipv4Addr),
    /// Its hardware address, which has a lease.
    Mac(Mac),
    /// Its name, which has a lease.
    Lease(String),
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Lease(name) => f.write_str(name),
        }
    }
}

/// A forwarded port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Forward {
    /// The tunnel's device.
    pub through: String,
    /// The device that gets the packets.
    pub to: To,
    /// The port on which the device listens; `None` if it listens on the port that the provider chooses.
    pub port: Option<u16>,
    /// UDP, TCP or both, without duplicates, UDP first.
    pub protocols: Vec<Protocol>,
    /// The provider's gateway; `None` for the tunnel's own address with 1 as its last number.
    pub gateway: Option<Ipv4Addr>,
}

const DEVICE: &str = "the name of a tunnel's device, such as \"mr-us\"";
const TO: &str = "an IPv4 address, a hardware address, or the name of a lease";
const PORT: &str = "\"any\" or a port from 1 to 65535";
const PROTOCOLS: &str = "[\"udp\"], [\"tcp\"] or [\"udp\", \"tcp\"]";
const GATEWAY: &str = "an IPv4 address, such as \"10.2.0.1\"";

const ROWS: &[TomlRow<Draft>] = &[
    ("through", DEVICE, |it, v| {
        let name = word(v).filter(|it| is_ifname(it) && *it != "lo");
        put(&mut it.through, name.map(|it| Some(it.to_owned())))
    }),
    ("to", TO, |it, v| {
        put(&mut it.to, word(v).and_then(to).map(Some))
    }),
    ("port", PORT, |it, v| put(&mut it.port, port(v))),
    ("protocols", PROTOCOLS, |it, v| {
        put(&mut it.protocols, protocols(v))
    }),
    ("gateway", GATEWAY, |it, v| {
        put(&mut it.gateway, word(v).and_then(address).map(Some))
    }),
];

/// A forward while its table is read.
struct Draft {
    through: Option<String>,
    to: Option<To>,
    port: Option<u16>,
    protocols: Vec<Protocol>,
    gateway: Option<Ipv4Addr>,
}

/// Reads the forwards of a file.
///
/// # Errors
/// [`SettingsError::Read`], [`SettingsError::TooLarge`], and the errors of [`from_toml`].
pub fn read(path: &Path) -> Result<Vec<Forward>, SettingsError> {
    from_toml(&text_of(path)?, path)
}

/// Reads forwards from TOML text; `path` only names it in errors.
///
/// # Errors
/// [`SettingsError::Syntax`], [`SettingsError::Unknown`], [`SettingsError::Value`] or [`SettingsError::Entry`], each
/// with the line.
pub fn from_toml(text: &str, path: &Path) -> Result<Vec<Forward>, SettingsError> {
    let forwards = listed(text, path)?;
    match forwards.is_empty() {
        true => Err(SettingsError::Entry {
            origin: places(text, path)(0),
            words: "no port is forwarded; begin an entry with [[forward]]".to_owned(),
        }),
        false => Ok(forwards),
    }
}

/// Reads the settings like [`from_toml`]; the text may have no forward.
///
/// # Errors
/// The errors of [`from_toml`], except for an empty list.
pub fn listed(text: &str, path: &Path) -> Result<Vec<Forward>, SettingsError> {
    let place = places(text, path);
    let root = parsed(text, &place)?;
    let mut forwards: Vec<Forward> = Vec::new();
    for (key, value) in root.get_ref() {
        let (name, origin) = (key.get_ref().as_ref(), place(key.span().start));
        let Some(tables) = tables(value.get_ref()).filter(|_| name == "forward") else {
            return Err(unknown(name, &["[[forward]]"], origin));
        };
        for (begin, table) in tables {
            let forward = finished(read_table(table, &place)?, &forwards);
            let origin = place(begin);
            forwards.push(forward.map_err(|words| SettingsError::Entry { origin, words })?);
        }
    }
    Ok(forwards)
}

fn read_table(
    table: &DeTable<'_>,
    place: &dyn Fn(usize) -> Origin,
) -> Result<Draft, SettingsError> {
    let mut draft = Draft {
        through: None,
        to: None,
        port: None,
        protocols: vec![Protocol::Udp, Protocol::Tcp],
        gateway: None,
    };
    for (key, value) in table {
        let origin = place(key.span().start);
        set_toml(ROWS, &mut draft, key.get_ref(), value.get_ref(), origin)?;
    }
    Ok(draft)
}

fn finished(draft: Draft, before: &[Forward]) -> Result<Forward, String> {
    let (Some(through), Some(to)) = (draft.through, draft.to) else {
        return Err(
            "a forward needs `through`, a tunnel's device, and `to`, a device of the LAN"
                .to_owned(),
        );
    };
    if before.len() >= FORWARDS_MAX {
        return Err(format!("more than {FORWARDS_MAX} forwards; remove some"));
    }
    // A gateway knows a mapping by the tunnel's address and this port, and not by the device of the LAN.
    let is_alike = |it: &&Forward| it.through == through && it.port == draft.port;
    if before.iter().any(|it| is_alike(&it)) {
        return Err(format!(
            "another forward through {through} has the same port; choose another one"
        ));
    }
    Ok(Forward {
        through,
        to,
        port: draft.port,
        protocols: draft.protocols,
        gateway: draft.gateway,
    })
}

/// An address that one device may have.
fn address(word: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = word.parse().ok()?;
    let is_one = !address.is_unspecified()
        && !address.is_multicast()
        && !address.is_broadcast()
        && !address.is_loopback();
    is_one.then_some(address)
}

fn to(word: &str) -> Option<To> {
    if word.parse::<Ipv4Addr>().is_ok() {
        return address(word).map(To::Address);
    }
    let name = || Domain::new(word).map(|_| To::Lease(word.to_ascii_lowercase()));
    Mac::new(word).map(To::Mac).or_else(name)
}

fn port(value: &DeValue<'_>) -> Option<Option<u16>> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => {
            let port = number.as_str().parse().ok();
            port.filter(|it| *it != 0).map(Some)
        }
        value => (word(value)? == "any").then_some(None),
    }
}

fn protocols(value: &DeValue<'_>) -> Option<Vec<Protocol>> {
    let protocol = |word| match word {
        "udp" => Some(Protocol::Udp),
        "tcp" => Some(Protocol::Tcp),
        _ => None,
    };
    let words = words(value, 2)?.into_iter().map(protocol);
    let mut all = words.collect::<Option<Vec<_>>>()?;
    all.sort_unstable();
    all.dedup();
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwards(text: &str) -> Result<Vec<Forward>, String> {
        from_toml(text, Path::new("f.toml")).map_err(|it| it.to_string())
    }

    #[test]
    fn forwards_have_defaults() {
        let found = forwards(
            "[[forward]]\nthrough = \"mr-us\"\nto = \"192.168.1.20\"\n\
             [[forward]]\nthrough = \"mr-us\"\nto = \"Console\"\nport = 51413\nprotocols = [\"tcp\", \"tcp\"]\n\
             gateway = \"10.2.0.1\"\n\
             [[forward]]\nthrough = \"mr-nl\"\nto = \"02:00:5e:10:00:01\"\nport = \"any\"\n",
        )
        .unwrap();
        let first = Forward {
            through: "mr-us".to_owned(),
            to: To::Address([192, 168, 1, 20].into()),
            port: None,
            protocols: vec![Protocol::Udp, Protocol::Tcp],
            gateway: None,
        };
        let second = Forward {
            to: To::Lease("console".to_owned()),
            port: Some(51413),
            protocols: vec![Protocol::Tcp],
            gateway: Some([10, 2, 0, 1].into()),
            ..first.clone()
        };
        let third = Forward {
            through: "mr-nl".to_owned(),
            to: To::Mac(Mac([2, 0, 0x5e, 0x10, 0, 1])),
            ..first.clone()
        };
        assert_eq!(found, [first, second, third]);
    }

    #[test]
    fn each_fault_is_told_with_its_line_and_remedy() {
        let of = |more: &str| format!("[[forward]]\nthrough = \"a\"\nto = \"10.0.0.9\"\n{more}");
        let many: String = (1..=9)
            .map(|port| of(&format!("port = {port}\n")))
            .collect();
        for (text, wanted) in [
            (
                "".to_owned(),
                "f.toml:1: no port is forwarded; begin an entry with [[forward]]",
            ),
            (
                "[forward]\n".to_owned(),
                "f.toml:1: unknown setting `forward`",
            ),
            (
                "[[forward]]\nto = \"10.0.0.9\"\n".to_owned(),
                "f.toml:1: a forward needs `through`",
            ),
            (
                "[[forward]]\nthrough = \"a\"\n".to_owned(),
                "f.toml:1: a forward needs `through`",
            ),
            (of("port = 0\n"), "f.toml:4: port cannot be 0"),
            (of("port = 65536\n"), "f.toml:4: port cannot be 65536"),
            (of("port = \"some\"\n"), "f.toml:4: port cannot be"),
            (of("protocols = []\n"), "f.toml:4: protocols cannot be"),
            (
                of("protocols = [\"icmp\"]\n"),
                "f.toml:4: protocols cannot be",
            ),
            (of("gateway = \"fd00::1\"\n"), "f.toml:4: gateway cannot be"),
            (
                of("gateway = \"224.0.0.1\"\n"),
                "f.toml:4: gateway cannot be",
            ),
            (
                "[[forward]]\nthrough = \"lo\"\n".to_owned(),
                "f.toml:2: through cannot be",
            ),
            (
                "[[forward]]\nto = \"127.0.0.1\"\n".to_owned(),
                "f.toml:2: to cannot be",
            ),
            (
                "[[forward]]\nto = \"a b\"\n".to_owned(),
                "f.toml:2: to cannot be",
            ),
            (
                of(&of("")),
                "f.toml:4: another forward through a has the same port",
            ),
            (many, "f.toml:33: more than 8 forwards; remove some"),
        ] {
            let error = forwards(&text).unwrap_err();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
    }
}
