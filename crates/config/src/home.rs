//! Settings of a server at home besides its protocol: the endpoint for its clients, the networks that they may reach,
//! and how their packets leave.
//!
//! The section stands in comments of the server's file, which other programs skip:
//!
//! ```text
//! #! [Server]
//! #! Endpoint = home.example.org:51820
//! #! LAN = 192.168.1.0/24
//! #! DNS = 192.168.1.1
//! #! Masquerade = yes
//! #! Keepalive = 10
//! ```

use std::net::IpAddr;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::clients;
use crate::keys::{self, Key, joined, some, store, texts};
use crate::types::{AllowedIp, Endpoint};

/// Describes what a `[Server]` section does to the machine.
pub const ROUTES: &str =
    "this machine forwards the packets of its peers, and masquerades them unless `Masquerade = no`";

/// Why a `[Server]` section needs a permission.
pub(crate) const CALLS_TOO: &str = "a peer in this file has an Endpoint, so this machine would become a router for \
                                    that peer and forward and masquerade its packets; permit that with \
                                    --allow-forwarding, or remove the section";

/// Maximum number of networks, and of name servers, of a section.
pub const NETWORKS_MAX: usize = 16;

/// Keys of `[Server]`.
pub(crate) const KEYS: &[Key<HomeServer>] = &[
    Key {
        name: "Endpoint",
        set: |home, value| {
            let endpoint = Endpoint::from_str(value);
            some(&mut home.endpoint, endpoint.map_err(|e| e.to_string()))
        },
        show: |home| texts(&home.endpoint),
    },
    Key {
        name: "LAN",
        set: |home, value| store(&mut home.lan, list(value)),
        show: |home| joined(&home.lan),
    },
    Key {
        name: "DNS",
        set: |home, value| store(&mut home.dns, list(value)),
        show: |home| joined(&home.dns),
    },
    Key {
        name: "Masquerade",
        set: |home, value| {
            let mode = Masquerading::ALL
                .into_iter()
                .find(|it| it.as_str() == value);
            let wanted = "must be `yes`, `internet` or `no`";
            store(&mut home.masquerade, mode.ok_or(wanted))
        },
        show: |home| texts([home.masquerade.as_str()]),
    },
    Key {
        name: "Keepalive",
        set: |home, value| {
            let seconds = match value {
                "off" => Some(0),
                seconds => seconds.parse().ok(),
            };
            let wanted = "must be `off` or a number of seconds up to 65535";
            some(&mut home.keepalive, seconds.ok_or(wanted))
        },
        show: |home| {
            texts(home.keepalive.map(|it| match it {
                0 => "off".to_owned(),
                seconds => seconds.to_string(),
            }))
        },
    },
];

/// Seconds between keepalive packets of clients, if the server's file does not say.
pub const KEEPALIVE: u16 = 25;

/// The `[Server]` section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HomeServer {
    /// The endpoint that client files get.
    pub endpoint: Option<Endpoint>,
    /// The networks at home.
    pub lan: Vec<AllowedIp>,
    /// Name servers for clients.
    pub dns: Vec<IpAddr>,
    /// The client packets that leave with the server's own address. All packets are forwarded in any case.
    pub masquerade: Masquerading,
    /// `PersistentKeepalive` in the files of WireGuard clients, in seconds, 0 for none; `None` for [`KEEPALIVE`].
    pub keepalive: Option<u16>,
}

impl HomeServer {
    /// Whether packets of clients leave with the server's own address, and the networks to which they do not.
    #[must_use]
    pub fn masquerading(&self) -> (bool, Vec<(IpAddr, u8)>) {
        let lan = self.lan.iter().map(|it| (it.addr(), it.prefix()));
        match self.masquerade {
            Masquerading::Yes => (true, Vec::new()),
            Masquerading::Internet => (true, lan.collect()),
            Masquerading::No => (false, Vec::new()),
        }
    }
}

/// Which client packets leave with the server's own address.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Masquerading {
    /// All packets: works even if the hosts at home have no route back to the clients.
    #[default]
    Yes,
    /// Packets to anywhere but the home networks, whose hosts need a route back: they have one if the server is their
    /// router.
    Internet,
    /// No packets.
    No,
}

impl Masquerading {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Yes, Self::Internet, Self::No];

    /// The value's name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Internet => "internet",
            Self::No => "no",
        }
    }
}

impl HomeServer {
    /// The section's text, as comments.
    #[must_use]
    pub fn to_comments(&self) -> String {
        let mut out = "#! [Server]\n".to_owned();
        keys::write(KEYS, self, "#! ", &mut out);
        out
    }
}

/// The text of a server's file whose `[Server]` section has this value of a key, or no such line for an empty value;
/// `None` if it has no such section. All else stays as it is.
#[must_use]
pub fn with_key(text: &str, key: &str, value: &str) -> Option<Zeroizing<String>> {
    let line = match value.is_empty() {
        true => String::new(),
        false => format!("#! {key} = {value}\n"),
    };
    let (mut inside, mut at, mut place) = (false, 0, None);
    for old in text.split_inclusive('\n') {
        let range = at..at + old.len();
        at = range.end;
        let comment = old.trim().strip_prefix("#!").map(str::trim);
        match comment {
            Some(head) if head.starts_with('[') => {
                inside = head.eq_ignore_ascii_case("[Server]");
                if inside && place.is_none() {
                    place = Some(at..at);
                }
            }
            Some(setting) if inside => {
                let name = setting.split('=').next().unwrap_or_default();
                if name.trim().eq_ignore_ascii_case(key) {
                    place = Some(range);
                    break;
                }
            }
            None if old.trim_start().starts_with('[') => inside = false,
            _ => {}
        }
    }
    let place = place?;
    let (before, after) = (&text[..place.start], &text[place.end..]);
    let gap = if before.ends_with('\n') { "" } else { "\n" };
    Some(clients::joined(&[before, gap, &line, after]))
}

fn list<T: FromStr<Err: std::fmt::Display>>(value: &str) -> Result<Vec<T>, String> {
    let items = value.split(',').map(str::trim).filter(|it| !it.is_empty());
    let items: Result<Vec<T>, String> = items
        .map(|it| it.parse().map_err(|e| format!("{}: {e}", keys::shown(it))))
        .collect();
    let items = items?;
    match items.len() <= NETWORKS_MAX {
        true => Ok(items),
        false => Err(format!("more than {NETWORKS_MAX} networks")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Found, Sections};

    fn read(text: &str) -> (Option<HomeServer>, Vec<String>) {
        let mut sections = Sections::default();
        let mut faults = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.strip_prefix("#!").unwrap_or(line);
            if let Found::Fault(key, reason) = sections.comment(number, comment) {
                faults.push(format!("{key}: {reason}"));
            }
        }
        (sections.finish(false, 0).home, faults)
    }

    #[test]
    fn a_section_is_read_and_written_again() {
        let text = "#! [Server]\n#! Endpoint = home.example.org:51820\n#! LAN = 192.168.1.0/24, fd00:1::/64\n\
            #! DNS = 192.168.1.1\n#! Masquerade = internet\n#! Keepalive = 10\n";
        let (home, faults) = read(text);
        assert_eq!(faults, [""; 0]);
        let home = home.unwrap();
        assert_eq!(home.lan.len(), 2);
        assert_eq!(home.masquerade, Masquerading::Internet);
        assert_eq!(home.to_comments(), text);
        assert_eq!(read("#! a comment").0, None);
        let bare = read("#! [Server]").0.unwrap();
        assert_eq!(bare.masquerade, Masquerading::Yes);
    }

    #[test]
    fn a_key_changes_in_its_section_only() {
        let text = "[Interface]\nPrivateKey = k\n#! Endpoint = x\n#! [server]\n#! LAN = a\n#!endpoint=old\r\n# end\n\
            [Peer]\n#! Endpoint = y\n#! [Uplinks]\n#! LAN = b";
        let with = |key, value| with_key(text, key, value).unwrap().to_string();
        let wanted = text.replace("#!endpoint=old\r\n", "#! Endpoint = new:1\n");
        assert_eq!(with("Endpoint", "new:1"), wanted);
        assert_eq!(with("LAN", "c"), text.replace("LAN = a", "LAN = c"));
        let added = text.replace("[server]\n", "[server]\n#! DNS = d\n");
        assert_eq!(with("DNS", "d"), added);
        assert_eq!(
            with_key("#! [Server]", "LAN", "a").unwrap().as_str(),
            "#! [Server]\n#! LAN = a\n"
        );
        assert!(with_key("[Interface]\n#! Endpoint = x\n", "Endpoint", "y").is_none());
    }

    #[test]
    fn faults_are_told() {
        for (line, words) in [
            ("Endpoint = home", "port"),
            ("LAN = 192.168.1.0/33", "32"),
            ("Masquerade = maybe", "internet"),
            ("Lam = 1", "LAN"),
            ("DNS = a\u{1b}", "\\u{1b}"),
            ("Keepalive = 65536", "65535"),
        ] {
            let (_, faults) = read(&format!("#! [Server]\n#! {line}\n"));
            assert_eq!(faults.len(), 1, "{line}");
            assert!(faults[0].contains(words), "{line}: {faults:?}");
        }
        let (_, faults) =
            read("#! [Server]\n#! LAN = fd00::/64\n#! [Server]\n#! LAN = fd00::/64\n");
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
}
