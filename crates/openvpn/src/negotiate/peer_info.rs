//! Peer info: lines of `NAME=value` that a side sends beside its keys.

use core::fmt::Write as _;

/// The bits of `IV_PROTO`: what a side can do that older ones cannot.
///
/// A server of version 2.4 only looks whether the number is at least 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IvProto(pub u32);

impl IvProto {
    /// Data packets with a peer id.
    pub const DATA_V2: Self = Self(1 << 1);
    /// The client takes its options without asking.
    pub const REQUEST_PUSH: Self = Self(1 << 2);
    /// Data keys from the TLS exporter.
    pub const TLS_KEY_EXPORT: Self = Self(1 << 3);
    /// Words in `AUTH_PENDING`.
    pub const AUTH_PENDING_KW: Self = Self(1 << 4);
    /// Negotiates ciphers without being a client or a server, peer to peer.
    pub const NCP_P2P: Self = Self(1 << 5);
    /// `EXIT` in the control channel, and `protocol-flags` in what is pushed.
    pub const CC_EXIT_NOTIFY: Self = Self(1 << 7);
    /// `AUTH_FAILED,TEMP`.
    pub const AUTH_FAIL_TEMP: Self = Self(1 << 8);
    /// Renegotiations wrapped by keys from the exporter.
    pub const DYN_TLS_CRYPT: Self = Self(1 << 9);
    /// The epoch format of data packets.
    pub const DATA_EPOCH: Self = Self(1 << 10);
    /// The `dns` option.
    pub const DNS_OPTION_V2: Self = Self(1 << 11);

    /// The bits that our client sets, and with `epoch` the bit of the epoch format.
    #[must_use]
    pub fn client(epoch: bool) -> Self {
        let bits = Self::DATA_V2
            .with(Self::REQUEST_PUSH)
            .with(Self::TLS_KEY_EXPORT)
            .with(Self::AUTH_PENDING_KW)
            .with(Self::CC_EXIT_NOTIFY)
            .with(Self::AUTH_FAIL_TEMP)
            .with(Self::DYN_TLS_CRYPT)
            .with(Self::DNS_OPTION_V2);
        if epoch {
            bits.with(Self::DATA_EPOCH)
        } else {
            bits
        }
    }

    /// The bits of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Maximum number of lines kept from a peer.
const MAX_LINES: usize = 64;
/// Longest line that is kept, in bytes.
const MAX_LINE: usize = 512;

/// The lines of one side.
///
/// Names are letters, digits and underscores; values are printable. Lines of any other shape are left out, so that a
/// name can become the name of an environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerInfo {
    lines: Vec<(String, String)>,
}

impl PeerInfo {
    /// Reads what a peer sent. It never fails: malformed lines are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for line in text.lines() {
            if info.lines.len() == MAX_LINES {
                break;
            }
            if let Some((name, value)) = line.split_once('=') {
                info.set(name, value);
            }
        }
        info
    }

    /// Adds a line, or replaces its value. A line that no peer would accept is left out. Returns whether the line was
    /// set.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        let named = |it: u8| it.is_ascii_alphanumeric() || it == b'_';
        let usable = !name.is_empty()
            && name.bytes().all(named)
            && !value.chars().any(char::is_control)
            && name.len() + value.len() < MAX_LINE;
        if usable {
            match self.lines.iter_mut().find(|(it, _)| it == name) {
                Some((_, old)) => value.clone_into(old),
                None => self.lines.push((name.to_owned(), value.to_owned())),
            }
        }
        usable
    }

    /// The value behind a name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.iter().find(|(it, _)| *it == name).map(|(_, it)| it)
    }

    /// All lines, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The bits of `IV_PROTO`; no bits if the line is missing.
    #[must_use]
    pub fn proto(&self) -> IvProto {
        IvProto(self.number("IV_PROTO").unwrap_or(0))
    }

    /// `IV_CIPHERS`, the names of the ciphers that the peer accepts.
    #[must_use]
    pub fn ciphers(&self) -> Option<&str> {
        self.value("IV_CIPHERS")
    }

    /// Whether the peer takes the cipher that it is told: `IV_CIPHERS` (2.5), or `IV_NCP` of at least 2 (2.4).
    #[must_use]
    pub fn negotiates_cipher(&self) -> bool {
        self.ciphers().is_some() || self.ncp() >= 2
    }

    /// `IV_NCP`: at 2 the peer accepts AES-256-GCM and AES-128-GCM.
    #[must_use]
    pub fn ncp(&self) -> u32 {
        self.number("IV_NCP").unwrap_or(0)
    }

    /// `IV_MTU`: the largest packet that the peer's interface can be set to, in bytes.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        self.number("IV_MTU")
    }

    /// Whether the line is there with the value 1.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.value(name) == Some("1")
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.value(name)?.trim().parse().ok()
    }

    /// The text to send.
    #[must_use]
    pub fn emit(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.lines {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_stock_sends() {
        let text = "IV_VER=2.6.14\nIV_PLAT=linux\nIV_TCPNL=1\nIV_MTU=1600\nIV_NCP=2\n\
            IV_CIPHERS=AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305\nIV_PROTO=990\nIV_LZO_STUB=1\n\
            IV_COMP_STUB=1\nIV_COMP_STUBv2=1\n";
        let info = PeerInfo::parse(text);
        assert_eq!(info.emit(), text);
        assert_eq!(info.value("IV_VER"), Some("2.6.14"));
        assert_eq!(info.mtu(), Some(1600));
        assert!(info.flag("IV_TCPNL") && info.negotiates_cipher() && info.flag("IV_COMP_STUBv2"));
        let proto = info.proto();
        for bit in [
            IvProto::DATA_V2,
            IvProto::REQUEST_PUSH,
            IvProto::TLS_KEY_EXPORT,
            IvProto::AUTH_PENDING_KW,
            IvProto::CC_EXIT_NOTIFY,
            IvProto::AUTH_FAIL_TEMP,
            IvProto::DYN_TLS_CRYPT,
        ] {
            assert!(proto.has(bit), "{bit:?}");
        }
        assert!(!proto.has(IvProto::DATA_EPOCH) && !proto.has(IvProto::NCP_P2P));
    }

    #[test]
    fn our_own_bits() {
        assert_eq!(
            IvProto::client(false).0,
            2 | 4 | 8 | 16 | 128 | 256 | 512 | 2048
        );
        assert_eq!(IvProto::client(true).0, IvProto::client(false).0 | 1024);
    }

    #[test]
    fn hostile_lines_are_left_out() {
        let info =
            PeerInfo::parse("IV_VER=1\nPATH=/tmp\n=x\nIV PLAT=linux\nIV_X=a\x1b[2J\nnothing");
        // The name is checked where environment variables are made of it; its shape is what counts here.
        let names: Vec<&str> = info.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["IV_VER", "PATH"]);
        let many: String = (0..1000).map(|it| format!("UV_{it}=x\n")).collect();
        assert_eq!(PeerInfo::parse(&many).iter().count(), MAX_LINES);
        assert_eq!(PeerInfo::parse("IV_PROTO=99999999999").proto(), IvProto(0));
    }
}
