//! Several servers for the peer of a WireGuard tunnel: if one does not answer, the tunnel calls the next.
//!
//! The section stands in comments of the tunnel's file. Other programs skip it, and use the `[Peer]` alone:
//!
//! ```text
//! #! [Pool]
//! #! Use = nl, se-sto-*
//! #! Choose = fastest
//! #! Server = nl-ams-001 192.0.2.4:51820 xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
//! #! Server = se-sto-002 se2.example:51820 TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=
//! ```

use crate::clients::is_name;
use crate::keys::{self, Key, OK, Verdicted, joined, shown, store, texts};
use crate::pattern;
use crate::tunnel::{Peer, Tunnel};
use crate::types::{Endpoint, Key32};
use zeroize::Zeroizing;

/// Maximum number of servers in a pool.
pub const SERVERS_MAX: usize = 1000;

/// Maximum number of patterns of `Use`.
const PATTERNS_MAX: usize = 16;

/// Keys of `[Pool]`.
pub(crate) const KEYS: &[Key<Pool>] = &[
    Key {
        name: "Use",
        set: |pool, value| store(&mut pool.wanted, patterns(value)),
        show: |pool| joined(&pool.wanted),
    },
    Key {
        name: "Choose",
        set: |pool, value| {
            let choose = Choose::ALL.into_iter().find(|it| it.as_str() == value);
            let wanted = "must be `order`, `random` or `fastest`";
            store(&mut pool.choose, choose.ok_or(wanted))
        },
        show: |pool| {
            let other = pool.choose != Choose::default();
            texts(other.then_some(pool.choose.as_str()))
        },
    },
    Key {
        name: SERVER,
        set: add_server,
        show: |pool| pool.servers.iter().map(shown_server).collect(),
    },
];

/// The key that may be given again.
pub(crate) const SERVER: &str = "Server";

/// The `[Pool]` section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pool {
    /// Patterns of `Use`: the names of the servers that may be called. Empty for all servers.
    pub wanted: Vec<String>,
    /// Which server is called first.
    pub choose: Choose,
    /// The servers, in the file's order; no two have the same name.
    pub servers: Vec<Server>,
}

/// One server of a pool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Server {
    /// Name for logs and patterns.
    pub name: String,
    /// Address or host name, with the port.
    pub endpoint: Endpoint,
    /// The server's public key; `None` for that of the `[Peer]`.
    pub public_key: Option<Key32>,
}

/// Which server of a pool is called first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Choose {
    /// The first of the file.
    #[default]
    Order,
    /// Any.
    Random,
    /// Several at once; the first that answers is used.
    Fastest,
}

impl Choose {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Order, Self::Random, Self::Fastest];

    /// The value's name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Random => "random",
            Self::Fastest => "fastest",
        }
    }
}

impl Pool {
    /// The section's text, as comments.
    #[must_use]
    pub fn to_comments(&self) -> String {
        let mut out = "#! [Pool]\n".to_owned();
        keys::write(KEYS, self, "#! ", &mut out);
        out
    }

    /// Whether a server of this name may be called.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|it| fits(it, name))
    }

    /// The servers that may be called for this `[Peer]`, each with its key. If no `Server` names the peer's own
    /// endpoint, that comes first, unless `Use` chooses by name.
    fn servers_of(&self, peer: &Peer) -> Vec<Server> {
        let own = peer.endpoint.iter().map(|endpoint| Server {
            name: endpoint.to_string(),
            endpoint: endpoint.clone(),
            public_key: Some(peer.public_key.clone()),
        });
        let listed = self.servers.iter().filter(|it| self.uses(&it.name));
        let listed = listed.map(|it| Server {
            public_key: it
                .public_key
                .clone()
                .or_else(|| Some(peer.public_key.clone())),
            ..it.clone()
        });
        let same = |it: &Server| peer.endpoint.as_ref() == Some(&it.endpoint);
        let has_own = !self.wanted.is_empty() || self.servers.iter().any(same);
        own.filter(|_| !has_own).chain(listed).collect()
    }

    /// The reason why a tunnel cannot use the pool, if there is one.
    pub(crate) fn fault(&self, tunnel: &Tunnel) -> Option<&'static str> {
        let [peer] = &tunnel.peers[..] else {
            return Some("a pool needs exactly one [Peer]");
        };
        if peer.endpoint.is_none() {
            Some("a pool needs an Endpoint in the [Peer], for the first server")
        } else if tunnel.interface.save_config {
            Some("SaveConfig would replace the [Peer] by the server in use; remove one of the two")
        } else if self.servers_of(peer).is_empty() {
            Some("the pool has no Server that `Use` names")
        } else {
            None
        }
    }
}

impl Tunnel {
    /// The servers that the tunnel may call, if it has a pool: each with its key, the first to call first.
    #[must_use]
    pub fn servers(&self) -> Vec<Server> {
        let pool = self.pool.as_ref().zip(self.peers.first());
        pool.map_or_else(Vec::new, |(pool, peer)| pool.servers_of(peer))
    }
}

/// Whether a server's name fits a pattern, in any case: `*` stands for any text. A pattern without `*` is the whole
/// name, or the [country] in it.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let (wanted, lower) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    pattern::fits(&wanted, &lower) || country(&lower) == wanted
}

/// The country in a server's name: the letters at its beginning, as in `nl-ams-001`, `us512.example.com` and
/// `netherlands`.
#[must_use]
pub fn country(name: &str) -> &str {
    let letters = name.bytes().take_while(u8::is_ascii_alphabetic).count();
    &name[..letters]
}

/// Whether `text` is a pattern for names.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    let text = text.replace('*', "");
    text.is_empty() || is_name(&format!("a{text}"))
}

fn patterns(value: &str) -> Result<Vec<String>, String> {
    let items = value.split(',').map(str::trim).filter(|it| !it.is_empty());
    let items: Vec<String> = items.map(str::to_owned).collect();
    if let Some(wrong) = items.iter().find(|it| !is_pattern(it)) {
        let wrong = shown(wrong);
        return Err(format!(
            "`{wrong}` is not a server's name, a country or a pattern such as `nl-*`"
        ));
    }
    match items.len() <= PATTERNS_MAX {
        true => Ok(items),
        false => Err(format!("more than {PATTERNS_MAX} patterns")),
    }
}

fn add_server(pool: &mut Pool, value: &str) -> Verdicted {
    let mut words = value.split_whitespace();
    let (Some(name), Some(endpoint), key, None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("must be `NAME ENDPOINT` or `NAME ENDPOINT PUBLICKEY`".to_owned());
    };
    if !is_name(name) {
        return Err(format!(
            "`{}` is not a name: at most 63 letters, digits, `-`, `_` and `.`",
            shown(name)
        ));
    }
    if pool.servers.iter().any(|it| it.name == name) {
        return Err(format!("a second server `{name}`; rename one"));
    }
    if pool.servers.len() == SERVERS_MAX {
        return Err(format!("more than {SERVERS_MAX} servers"));
    }
    let endpoint =
        Endpoint::from_wg(endpoint).map_err(|why| format!("`{}`: {why}", shown(endpoint)))?;
    let public_key = key.map(keys::key).transpose()?;
    if public_key.as_ref().is_some_and(Key32::is_zero) {
        return Err("an all-zero key is not a public key".to_owned());
    }
    pool.servers.push(Server {
        name: name.to_owned(),
        endpoint,
        public_key,
    });
    OK
}

fn shown_server(server: &Server) -> Zeroizing<String> {
    let key = server.public_key.as_ref().map(Key32::to_base64);
    let key = key.as_ref().map_or("", |it| it.as_str());
    let text = format!("{} {} {key}", server.name, server.endpoint);
    Zeroizing::new(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::Permissions;
    use crate::wgquick;

    const KEY: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    /// A tunnel with these lines of the pool and of `[Peer]`, or its faults.
    fn read(pool: &str, peer: &str) -> Result<Tunnel, String> {
        let text = format!(
            "#! [Pool]\n{pool}\n[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n[Peer]\n\
            PublicKey = {KEY}\n{peer}"
        );
        let import = wgquick::parse(&text, "a.conf", Permissions::NONE);
        let report = import.report.clone();
        let refused = report.with(crate::report::Verdict::Refused);
        let refused: Vec<String> = refused.map(|it| it.reason.clone()).collect();
        match import.into_tunnel() {
            Ok((tunnel, _)) if refused.is_empty() => Ok(tunnel),
            _ => Err(refused.join("; ")),
        }
    }

    fn names(tunnel: &Tunnel) -> Vec<String> {
        tunnel.servers().into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn a_pool_is_read_and_written_again() {
        let other = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";
        let text = format!(
            "#! Use = nl-*, se\n#! Choose = fastest\n#! Server = nl-1 192.0.2.4:1\n#! Server = se-1 a.example:2 {other}\n\
            #! Server = us-1 [2001:db8::1]:3"
        );
        let tunnel = read(&text, "Endpoint = 192.0.2.4:1\n").unwrap();
        let pool = tunnel.pool.clone().unwrap();
        assert_eq!(pool.choose, Choose::Fastest);
        assert_eq!(pool.to_comments(), format!("#! [Pool]\n{text}\n"));
        assert_eq!(names(&tunnel), ["nl-1", "se-1"]);
        let keys = tunnel.servers().into_iter().map(|it| it.public_key);
        let keys: Vec<String> = keys.map(|it| it.unwrap().to_base64().to_string()).collect();
        assert_eq!(keys, [KEY, other]);
        let again = tunnel.to_conf();
        let again = wgquick::parse(&again, "a.conf", Permissions::NONE);
        assert_eq!(again.into_tunnel().unwrap().0, tunnel);
    }

    #[test]
    fn the_peers_own_endpoint_is_the_first_server() {
        let own = "Endpoint = 192.0.2.1:1\n";
        let tunnel = read("#! Server = b 192.0.2.2:1", own).unwrap();
        assert_eq!(names(&tunnel), ["192.0.2.1:1", "b"]);
        assert_eq!(tunnel.called(), 2, "a relay would forward to one only");
        let named = read("#! Server = b 192.0.2.2:1\n#! Server = a 192.0.2.1:1", own);
        assert_eq!(names(&named.unwrap()), ["b", "a"]);
        let chosen = read("#! Use = b\n#! Server = b 192.0.2.2:1", own);
        assert_eq!(names(&chosen.unwrap()), ["b"]);
        assert_eq!(names(&read("", own).unwrap()), ["192.0.2.1:1"]);
    }

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, fitting) in [
            ("nl-*", "nl-ams-001", true),
            ("nl-*", "NL-ams", true),
            ("nl-*", "nlx", false),
            ("nl", "nl-ams-001", true),
            ("nl", "nl843.example.com", true),
            ("nl", "nl", true),
            ("nl", "nlx-1", false),
            ("netherlands", "netherlands", true),
            ("*ams*", "nl-ams-001", true),
            ("*-001", "nl-ams-001", true),
            ("*-001", "nl-ams-0012", false),
            ("n*-*-0*1", "nl-ams-001", true),
            ("a*a", "a", false),
            ("a*ba*a", "aba", false),
            ("*", "anything", true),
        ] {
            assert_eq!(fits(pattern, name), fitting, "{pattern} {name}");
        }
    }

    #[test]
    fn faults_are_told() {
        let own = "Endpoint = 192.0.2.1:1\n";
        for (pool, peer, words) in [
            ("#! Server = a", own, "NAME ENDPOINT"),
            ("#! Server = a 192.0.2.1:1 k k", own, "NAME ENDPOINT"),
            ("#! Server = a 192.0.2.1", own, "port"),
            ("#! Server = ../a 192.0.2.1:1", own, "not a name"),
            ("#! Server = a 192.0.2.1:1 short", own, "key"),
            (
                "#! Server = a 192.0.2.1:1\n#! Server = a 192.0.2.2:1",
                own,
                "second server",
            ),
            ("#! Choose = best", own, "fastest"),
            ("#! Choose = order\n#! Choose = order", own, "set twice"),
            ("#! Use = a b", own, "pattern"),
            ("#! Use = a\n#! Server = b 192.0.2.1:1", own, "`Use` names"),
            ("#! [Pool]", own, "second [Pool]"),
            ("#! Server = b 192.0.2.1:1", "", "needs an Endpoint"),
            (
                "#! Server = b 192.0.2.1:1",
                "Endpoint = 192.0.2.1:1\n[Peer]\nPublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\n",
                "exactly one [Peer]",
            ),
            (
                "#! Server = b 192.0.2.1:1\n[Interface]\nSaveConfig = true",
                own,
                "SaveConfig",
            ),
            (
                "#! Server = b 192.0.2.2:1\n#! [Uplink]\n#! Name = a\n#! Relay = 192.0.2.3:1\n\
                #! RelayKey = YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
                own,
                "forwards to only one peer",
            ),
        ] {
            let faults = read(pool, peer).unwrap_err();
            assert!(faults.contains(words), "{pool}: {faults}");
        }
    }
}
