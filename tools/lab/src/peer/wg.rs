//! Reads and writes the text formats of the `wg` tool.

use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Host, LabError, tools};

/// A private key and its public key, in base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The private key.
    pub private: String,
    /// The public key.
    pub public: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// Has `wg` generate a key pair.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `wg`.
    pub fn generate(host: &Host) -> Result<Self, LabError> {
        let wg = tools::find("wg")?;
        let private = host.command(&wg).arg("genkey").output()?.trim().to_owned();
        let public = host
            .command(&wg)
            .arg("pubkey")
            .output_with_input(&private)?
            .trim()
            .to_owned();
        Ok(Self { private, public })
    }
}

/// A preshared key, in base64.
#[derive(Clone, PartialEq, Eq)]
pub struct PresharedKey(pub String);

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

impl PresharedKey {
    /// Has `wg` generate a preshared key.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `wg`.
    pub fn generate(host: &Host) -> Result<Self, LabError> {
        let key = host.command(tools::find("wg")?).arg("genpsk").output()?;
        Ok(Self(key.trim().to_owned()))
    }
}

/// The configuration of an interface for `wg setconf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgInterface {
    /// The interface's keys.
    pub keys: Keys,
    /// The port at which the interface listens; `None` lets the program choose.
    pub listen_port: Option<u16>,
    /// The firewall mark of packets that the program sends.
    pub fwmark: Option<u32>,
    /// The interface's peers.
    pub peers: Vec<WgPeer>,
}

/// A peer of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgPeer {
    /// The peer's public key, in base64.
    pub public_key: String,
    /// The preshared key for this peer.
    pub preshared_key: Option<PresharedKey>,
    /// The peer's endpoint, if it is known in advance.
    pub endpoint: Option<SocketAddr>,
    /// The inner addresses that belong to the peer.
    pub allowed_ips: Vec<(IpAddr, u8)>,
    /// Seconds between keepalives.
    pub persistent_keepalive: Option<u16>,
}

impl WgPeer {
    /// A peer with this key.
    pub fn new(public_key: &str) -> Self {
        Self {
            public_key: public_key.to_owned(),
            preshared_key: None,
            endpoint: None,
            allowed_ips: Vec::new(),
            persistent_keepalive: None,
        }
    }

    /// Sets the peer's endpoint.
    #[must_use]
    pub fn at(mut self, endpoint: SocketAddr) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// Adds another network behind the peer.
    #[must_use]
    pub fn allow(mut self, ip: IpAddr, prefix: u8) -> Self {
        self.allowed_ips.push((ip, prefix));
        self
    }
}

impl WgInterface {
    /// Writes the file for `wg setconf`.
    pub fn file(&self) -> String {
        let mut text = format!("[Interface]\nPrivateKey = {}\n", self.keys.private);
        // Writing to a String does not fail.
        if let Some(port) = self.listen_port {
            let _ = writeln!(text, "ListenPort = {port}");
        }
        if let Some(mark) = self.fwmark {
            let _ = writeln!(text, "FwMark = {mark:#x}");
        }
        for peer in &self.peers {
            let _ = writeln!(text, "\n[Peer]\nPublicKey = {}", peer.public_key);
            if let Some(PresharedKey(key)) = &peer.preshared_key {
                let _ = writeln!(text, "PresharedKey = {key}");
            }
            if let Some(endpoint) = peer.endpoint {
                let _ = writeln!(text, "Endpoint = {endpoint}");
            }
            for (ip, prefix) in &peer.allowed_ips {
                let _ = writeln!(text, "AllowedIPs = {ip}/{prefix}");
            }
            if let Some(seconds) = peer.persistent_keepalive {
                let _ = writeln!(text, "PersistentKeepalive = {seconds}");
            }
        }
        text
    }
}

/// The output of `wg show` about an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WgStatus {
    /// The interface's public key.
    pub public_key: String,
    /// The port at which the interface listens.
    pub listen_port: u16,
    /// The firewall mark, 0 if off.
    pub fwmark: u32,
    /// The interface's peers, in the program's order.
    pub peers: Vec<PeerStatus>,
}

/// The output of `wg show` about a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The peer's public key.
    pub public_key: String,
    /// Whether the peer has a preshared key.
    pub preshared: bool,
    /// The address from which the peer was last heard.
    pub endpoint: Option<SocketAddr>,
    /// The peer's allowed IPs, as `wg` writes them.
    pub allowed_ips: Vec<String>,
    /// Time of the last handshake.
    pub latest_handshake: Option<SystemTime>,
    /// Bytes received from the peer, headers included.
    pub received: u64,
    /// Bytes sent to the peer, headers included.
    pub sent: u64,
    /// Seconds between keepalives.
    pub persistent_keepalive: Option<u16>,
}

impl WgStatus {
    /// Returns the peer with this key.
    pub fn peer(&self, public_key: &str) -> Option<&PeerStatus> {
        self.peers.iter().find(|peer| peer.public_key == public_key)
    }

    /// Parses the output of `wg show IFNAME dump`: one line for the interface, then one for each peer, with fields
    /// separated by tabs.
    pub(crate) fn parse(dump: &str) -> Option<Self> {
        let mut lines = dump.lines();
        let interface: Vec<&str> = lines.next()?.split('\t').collect();
        let &[_, public_key, port, mark] = interface.as_slice() else {
            return None;
        };
        Some(Self {
            public_key: public_key.to_owned(),
            listen_port: port.parse().ok()?,
            fwmark: match mark.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => 0,
            },
            peers: lines.map(parse_peer).collect::<Option<_>>()?,
        })
    }
}

fn parse_peer(line: &str) -> Option<PeerStatus> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[
        key,
        psk,
        endpoint,
        allowed,
        handshake,
        received,
        sent,
        keepalive,
    ] = fields.as_slice()
    else {
        return None;
    };
    let seconds: u64 = handshake.parse().ok()?;
    Some(PeerStatus {
        public_key: key.to_owned(),
        preshared: psk != "(none)",
        endpoint: endpoint.parse().ok(),
        allowed_ips: match allowed {
            "(none)" => Vec::new(),
            list => list.split(',').map(str::to_owned).collect(),
        },
        latest_handshake: (seconds > 0).then(|| UNIX_EPOCH + Duration::from_secs(seconds)),
        received: received.parse().ok()?,
        sent: sent.parse().ok()?,
        persistent_keepalive: keepalive.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_is_read_field_by_field() {
        let dump = "priv\tpub\t51820\t0xca6c\n\
            peer1\t(none)\t192.0.2.1:51820\t10.0.0.0/24,fd00::/64\t1700000000\t1372\t1428\t25\n\
            peer2\tpsk\t(none)\t(none)\t0\t0\t0\toff\n";
        let status = WgStatus::parse(dump).unwrap();
        assert_eq!((status.listen_port, status.fwmark), (51_820, 0xca6c));
        let peer = status.peer("peer1").unwrap();
        assert_eq!((peer.received, peer.sent), (1372, 1428));
        assert_eq!(peer.allowed_ips.len(), 2);
        assert_eq!(peer.persistent_keepalive, Some(25));
        let peer = status.peer("peer2").unwrap();
        assert!(peer.preshared && peer.latest_handshake.is_none() && peer.endpoint.is_none());
        assert_eq!(WgStatus::parse("too\tshort"), None);
    }

    #[test]
    fn secrets_are_not_printed() {
        let keys = Keys {
            private: "secret".to_owned(),
            public: "known".to_owned(),
        };
        let psk = PresharedKey("secret".to_owned());
        assert!(!format!("{keys:?}{psk:?}").contains("secret"));
    }
}
