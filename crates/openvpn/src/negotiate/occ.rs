//! The option string ("OCC") that both sides compare, and that old peers take the cipher from.

use super::Cipher;
use crate::role::Role;
use crypto::Digest;

/// How packets travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Packets travel in datagrams.
    #[default]
    Udp,
    /// Packets travel in a stream, in order and without loss.
    Tcp,
}

impl Transport {
    /// Whether packets come in a stream, in order and without loss.
    #[must_use]
    pub fn is_stream(self) -> bool {
        self == Self::Tcp
    }

    /// The transport's word in the option string. As in stock, IPv6 has the same word: old peers would complain.
    fn word(self, role: Role) -> &'static str {
        match (self, role) {
            (Self::Udp, _) => "UDPv4",
            (Self::Tcp, Role::Client) => "TCPv4_CLIENT",
            (Self::Tcp, Role::Server) => "TCPv4_SERVER",
        }
    }
}

/// The parts of the option string.
#[derive(Clone, Debug)]
pub struct OccOptions {
    /// The word behind `dev-type`: `tun`, or `null`.
    pub dev_type: &'static str,
    /// `tun-mtu` in bytes.
    pub tun_mtu: u32,
    /// The transport.
    pub transport: Transport,
    /// There is compression framing of any version, compressing or not.
    pub comp_lzo: bool,
    /// The compression framing puts a byte in front of every packet, as all but version 2 do.
    pub comp_byte: bool,
    /// `fragment` is on.
    pub fragment: bool,
    /// `key-direction` of the tls-auth key.
    pub key_direction: Option<bool>,
    /// The configured cipher, used where none is negotiated; BF-CBC if none is configured.
    pub cipher: Cipher,
    /// Whether `data-ciphers` has that cipher. The string mentions it only then, as it is accepted only then.
    pub cipher_allowed: bool,
    /// `auth`.
    pub auth: Digest,
    /// The control channel is wrapped by tls-auth. (tls-crypt is not mentioned.)
    pub tls_auth: bool,
}

impl OccOptions {
    /// The string that we send in this role.
    #[must_use]
    pub fn local(&self, role: Role) -> String {
        self.text(role, self.key_direction)
    }

    /// The string that we expect, in this role, from a peer whose settings fit.
    #[must_use]
    pub fn expected(&self, role: Role) -> String {
        self.text(role.peer(), self.key_direction.map(|it| !it))
    }

    fn text(&self, role: Role, direction: Option<bool>) -> String {
        let mut words = vec![
            "V4".to_owned(),
            format!("dev-type {}", self.dev_type),
            format!("link-mtu {}", self.link_mtu()),
            format!("tun-mtu {}", self.tun_mtu),
            format!("proto {}", self.transport.word(role)),
        ];
        let mut add = |word: &str, wanted: bool| {
            if wanted {
                words.push(word.to_owned());
            }
        };
        add("comp-lzo", self.comp_lzo);
        add("mtu-dynamic", self.fragment);
        add("keydir 0", direction == Some(false));
        add("keydir 1", direction == Some(true));
        // Stock does not mention the cipher `none`.
        let mentioned = self.cipher_allowed && self.cipher != Cipher::None;
        add(&format!("cipher {}", self.cipher.name()), mentioned);
        // An AEAD cipher takes no digest.
        let digest = match self.auth {
            Digest::None => "[null-digest]",
            _ if self.cipher.is_aead() => "[null-digest]",
            digest => digest.name(),
        };
        add(&format!("auth {digest}"), true);
        add(&format!("keysize {}", 8 * self.cipher.key_len()), true);
        add("tls-auth", self.tls_auth);
        add("key-method 2", true);
        add("tls-client", role == Role::Client);
        add("tls-server", role == Role::Server);
        words.join(",")
    }

    /// The largest datagram by the arithmetic of this string, in bytes: without peer id, with the longest padding.
    fn link_mtu(&self) -> u32 {
        let (opcode, packet_id) = (1, 4);
        let crypto = if self.cipher.is_aead() {
            let block = if self.cipher == Cipher::ChaCha20Poly1305 {
                1
            } else {
                16
            };
            // Tag, IV and a block of padding, though neither IV nor padding is sent.
            16 + 12 + block
        } else {
            // The digest is at most 64 bytes, a block at most 16.
            self.auth.len() as u32 + (self.cipher.iv_len() as u32 * 2)
        };
        self.tun_mtu
            + opcode
            + packet_id
            + crypto
            + u32::from(self.comp_byte)
            + if self.fragment { 4 } else { 0 }
            + if self.transport.is_stream() { 2 } else { 0 }
    }
}

/// The value of a word in a peer's string, for example of `cipher`. `[null-cipher]` and `[null-digest]` become `none`.
#[must_use]
pub fn value<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split(',')
        .find_map(|it| it.strip_prefix(word)?.strip_prefix(' '))
        .map(|it| {
            if it == "[null-cipher]" || it == "[null-digest]" {
                "none"
            } else {
                it
            }
        })
}

/// Begins the difference by which a client frames packets and its server does not: each drops the other's packets, unless
/// the server pushes another framing.
pub const ONLY_FRAMED_HERE: &str = "'comp-lzo' is present in local config";

/// Differences between the peer's string and what was expected, in words for the log. None of them ends the session.
///
/// Words that are negotiated in another way, or follow from such words, are left out.
#[must_use]
pub fn differences(expected: &str, peer: &str) -> Vec<String> {
    const NEGOTIATED: [&str; 6] = ["V4", "V0 UNDEF", "link-mtu", "cipher", "keysize", "proto"];
    let told = |it: &&str| !NEGOTIATED.iter().any(|word| it.starts_with(word));
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (
        expected.split(',').filter(told).collect(),
        peer.split(',').filter(told).collect(),
    );
    let mut found = Vec::new();
    for word in &ours {
        let name = word.split(' ').next().unwrap_or(word);
        if theirs.contains(word) || (name == "auth" && aead(peer)) {
            continue;
        }
        match theirs.iter().find(|it| it.split(' ').next() == Some(name)) {
            Some(other) => found.push(format!(
                "'{name}' is used inconsistently, expected='{word}', remote='{other}'"
            )),
            None => found.push(format!(
                "'{name}' is present in local config but missing in remote config, local='{word}'"
            )),
        }
    }
    for word in &theirs {
        let name = word.split(' ').next().unwrap_or(word);
        if !ours.iter().any(|it| it.split(' ').next() == Some(name)) {
            found.push(format!(
                "'{name}' is present in remote config but missing in local config, remote='{word}'"
            ));
        }
    }
    found
}

fn aead(text: &str) -> bool {
    value(text, "auth") == Some("none")
        || value(text, "cipher")
            .and_then(Cipher::from_name)
            .is_some_and(Cipher::is_aead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(cipher: Cipher, auth: Digest) -> OccOptions {
        OccOptions {
            dev_type: "null",
            tun_mtu: 1500,
            transport: Transport::Udp,
            comp_lzo: false,
            comp_byte: false,
            fragment: false,
            key_direction: None,
            cipher,
            cipher_allowed: true,
            auth,
            tls_auth: false,
        }
    }

    /// OpenVPN 2.6.14 prints these at `--verb 7` for these settings.
    #[test]
    fn strings_are_those_of_stock() {
        let sha1 = Digest::Sha1;
        let cbc = options(Cipher::Aes256Cbc, Digest::Sha256);
        assert_eq!(
            cbc.local(Role::Client),
            "V4,dev-type null,link-mtu 1569,tun-mtu 1500,proto UDPv4,cipher AES-256-CBC,auth SHA256,keysize 256,\
             key-method 2,tls-client"
        );
        assert_eq!(
            cbc.expected(Role::Client),
            "V4,dev-type null,link-mtu 1569,tun-mtu 1500,proto UDPv4,cipher AES-256-CBC,auth SHA256,keysize 256,\
             key-method 2,tls-server"
        );
        let framed = OccOptions {
            comp_lzo: true,
            comp_byte: true,
            fragment: true,
            ..options(Cipher::Aes256Gcm, sha1)
        };
        assert_eq!(
            framed.local(Role::Client),
            "V4,dev-type null,link-mtu 1554,tun-mtu 1500,proto UDPv4,comp-lzo,mtu-dynamic,cipher AES-256-GCM,\
             auth [null-digest],keysize 256,key-method 2,tls-client"
        );
        let none = options(Cipher::None, sha1);
        assert_eq!(
            none.local(Role::Client),
            "V4,dev-type null,link-mtu 1525,tun-mtu 1500,proto UDPv4,auth SHA1,keysize 0,key-method 2,tls-client"
        );
        let unset = OccOptions {
            cipher_allowed: false,
            ..options(Cipher::BlowfishCbc, sha1)
        };
        assert_eq!(
            unset.local(Role::Client),
            "V4,dev-type null,link-mtu 1541,tun-mtu 1500,proto UDPv4,auth SHA1,keysize 128,key-method 2,tls-client"
        );
        let tcp = OccOptions {
            transport: Transport::Tcp,
            ..options(Cipher::ChaCha20Poly1305, sha1)
        };
        assert_eq!(
            tcp.expected(Role::Client),
            "V4,dev-type null,link-mtu 1536,tun-mtu 1500,proto TCPv4_SERVER,cipher CHACHA20-POLY1305,\
             auth [null-digest],keysize 256,key-method 2,tls-server"
        );
        let plain = options(Cipher::Aes256Cbc, Digest::None);
        assert!(plain.local(Role::Server).contains("link-mtu 1537,"));
    }

    #[test]
    fn directions_are_opposite() {
        let options = OccOptions {
            key_direction: Some(true),
            tls_auth: true,
            ..options(Cipher::Aes256Gcm, Digest::None)
        };
        assert!(options.local(Role::Client).contains(",keydir 1,"));
        assert!(options.expected(Role::Client).contains(",keydir 0,"));
        assert!(
            options
                .local(Role::Client)
                .contains(",keysize 256,tls-auth,")
        );
    }

    #[test]
    fn words_are_found() {
        let text = "V4,dev-type tun,comp-lzo,cipher [null-cipher],auth SHA1,keysize 0";
        assert_eq!(value(text, "cipher"), Some("none"));
        assert_eq!(value(text, "auth"), Some("SHA1"));
        assert_eq!(value(text, "key"), None);
        assert_eq!(value("", "cipher"), None);
    }

    #[test]
    fn differences_are_told_in_words() {
        let ours = options(Cipher::Aes256Cbc, Digest::Sha1).expected(Role::Client);
        let fits = options(Cipher::Aes256Cbc, Digest::Sha1).local(Role::Server);
        assert!(differences(&ours, &fits).is_empty());
        let theirs = OccOptions {
            comp_lzo: true,
            comp_byte: true,
            ..options(Cipher::Aes256Cbc, Digest::Sha256)
        };
        let found = differences(&ours, &theirs.local(Role::Server));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("'auth'") && found[1].contains("'comp-lzo'"));
    }
}
