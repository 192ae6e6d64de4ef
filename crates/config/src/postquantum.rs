//! Post-quantum keys of a peer, as a file sets them.
//!
//! The keys stand in comments of a `[Peer]` section, which other programs skip:
//!
//! ```text
//! #! PostQuantum = require
//! #! PostQuantumAddress = 10.7.0.1:51819
//! ```

use std::net::{IpAddr, SocketAddr};

use crate::keys::{Key, Verdicted, parsed, shown, some, store, texts};
use crate::text::{meant, suggest};
use crate::tunnel::Peer;

/// Default UDP port of the exchange inside the tunnel, the same at both ends.
pub const PORT: u16 = 51_819;

/// Keys of a peer.
pub(crate) const KEYS: &[Key<PostQuantum>] = &[
    Key {
        name: "PostQuantum",
        set: |it, value| {
            let policy = Policy::ALL.into_iter().find(|it| it.as_str() == value);
            let wanted = "must be `off`, `prefer` or `require`";
            store(&mut it.policy, policy.ok_or(wanted))?;
            let remark = match it.policy {
                Policy::Require => "no packet passes until the peer takes part in the exchange",
                Policy::Off | Policy::Prefer => "",
            };
            Ok(remark.to_owned())
        },
        show: |it| texts((it.policy != Policy::Off).then_some(it.policy.as_str())),
    },
    Key {
        name: "PostQuantumAddress",
        set: |it, value| {
            let target = match value.parse::<IpAddr>() {
                Ok(addr) => Ok(SocketAddr::new(addr, PORT)),
                Err(_) => parsed::<SocketAddr>(value),
            };
            let fits = |it: &SocketAddr| !it.ip().is_unspecified() && it.port() != 0;
            let wanted = "must be the peer's address in the tunnel, such as 10.7.0.1, with or without a port";
            some(&mut it.target, target.ok().filter(fits).ok_or(wanted))
        },
        show: |it| texts(it.target),
    },
];

/// When packets may travel without a post-quantum key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Policy {
    /// Always: there is no exchange.
    #[default]
    Off,
    /// Until an exchange succeeds, and whenever one fails.
    Prefer,
    /// Never: a session without such a key carries only the exchange.
    Require,
}

impl Policy {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Off, Self::Prefer, Self::Require];

    /// The value's name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Prefer => "prefer",
            Self::Require => "require",
        }
    }
}

/// Settings of one peer. The default is off.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PostQuantum {
    /// When packets may travel without a post-quantum key.
    pub policy: Policy,
    /// The peer's address in the tunnel, and the UDP port of the exchange at both ends; `None` for the usual ones.
    pub target: Option<SocketAddr>,
}

impl Peer {
    /// Whether packets to and from this peer need a post-quantum key.
    #[must_use]
    pub fn requires_post_quantum(&self) -> bool {
        let settings = self.post_quantum.as_deref();
        settings.is_some_and(|it| it.policy == Policy::Require)
    }
}

/// A key of [`KEYS`] with its value, or a misspelt key with a suggestion.
pub(crate) type Found<'a> = Result<(&'static Key<PostQuantum>, &'a str), (String, String)>;

/// Looks for a key of [`KEYS`] in the text behind a `#!`.
pub(crate) fn find(comment: &str) -> Option<Found<'_>> {
    let (name, value) = comment.split_once('=')?;
    let name = name.trim();
    if let Some(key) = KEYS.iter().find(|it| it.name.eq_ignore_ascii_case(name)) {
        return Some(Ok((key, value.trim())));
    }
    // `meant` compares in lower case.
    meant(name, &["postquantum", "postquantumaddress"])?;
    let known = crate::keys::names(KEYS);
    Some(Err((
        shown(name),
        format!("unknown key; {}", suggest(name, &known)),
    )))
}

/// Whether this is the name of a key of [`KEYS`], in any case.
pub(crate) fn is_key(name: &str) -> bool {
    KEYS.iter().any(|it| it.name.eq_ignore_ascii_case(name))
}

/// Sets a peer's value. Returns a remark, or the fault of the value.
pub(crate) fn set(peer: &mut Peer, key: &Key<PostQuantum>, value: &str) -> Verdicted {
    let settings = peer.post_quantum.get_or_insert_default();
    let outcome = (key.set)(settings, value);
    if **settings == PostQuantum::default() {
        peer.post_quantum = None;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::Permissions;
    use crate::report::{Report, Verdict};
    use crate::wgquick;

    const HEAD: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";
    const PEER: &str = "[Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n";

    /// The settings of the peer, and the report; no settings for a refused file.
    fn read(text: &str) -> (Option<PostQuantum>, Report) {
        let import = wgquick::parse(text, "wg0.conf", Permissions::NONE);
        let report = import.report.clone();
        let tunnel = import.into_tunnel().ok().map(|(tunnel, _)| tunnel);
        let settings = tunnel.map(|it| it.peers[0].post_quantum.as_deref().copied());
        (settings.map(Option::unwrap_or_default), report)
    }

    #[test]
    fn comments_of_a_peer_set_the_policy_and_the_address() {
        for (comments, policy, target) in [
            ("", Policy::Off, None),
            ("# PostQuantum = require", Policy::Off, None),
            ("#! PostQuantum = off", Policy::Off, None),
            ("#!postquantum=prefer", Policy::Prefer, None),
            (
                "#! PostQuantum = require\n#! PostQuantum = off",
                Policy::Off,
                None,
            ),
            (
                "#! PostQuantum = require\n#! PostQuantumAddress = 10.7.0.1",
                Policy::Require,
                Some(([10, 7, 0, 1], PORT).into()),
            ),
            (
                "#! PostQuantumAddress = [fd00:7::1]:9",
                Policy::Off,
                Some("[fd00:7::1]:9".parse().unwrap()),
            ),
        ] {
            let (settings, report) = read(&format!("{HEAD}{PEER}{comments}\n"));
            assert_eq!(settings, Some(PostQuantum { policy, target }), "{comments}");
            assert!(report.is_clean(), "{report:?}");
        }
    }

    #[test]
    fn a_faulty_key_refuses_the_tunnel() {
        for (comment, words) in [
            ("PostQuantum = yes", "`require`"),
            ("PostQuantum =", "`require`"),
            ("PostQantum = require", "PostQuantum"),
            ("PostQuantumAdress = 10.7.0.1", "PostQuantumAddress"),
            ("PostQuantumAddress = vpn.example", "10.7.0.1"),
            ("PostQuantumAddress = 10.7.0.1:0", "10.7.0.1"),
            ("PostQuantumAddress = ::", "10.7.0.1"),
        ] {
            let (settings, report) = read(&format!("{HEAD}{PEER}#! {comment}\n"));
            assert_eq!(settings, None, "{comment}");
            let refused = |it: &&crate::report::Entry| it.verdict == Verdict::Refused;
            let refused: Vec<_> = report.entries.iter().filter(refused).collect();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].reason.contains(words), "{refused:?}");
        }
        let bare = format!("{HEAD}{PEER}PostQuantum = require\n");
        assert_eq!(read(&bare).0, None, "a key that is no comment");
        let misplaced = format!("{HEAD}#! PostQuantum = require\n{PEER}");
        assert_eq!(read(&misplaced).0, None);
    }
}
