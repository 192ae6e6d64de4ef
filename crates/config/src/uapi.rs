//! The cross-platform userspace protocol (UAPI), by which `wg` talks to a userspace WireGuard over its UNIX socket.
//! See <https://www.wireguard.com/xplatform/>.
//!
//! A connection carries requests. Each is a run of `key=value` lines, ended by an empty line: `get=1`, answered with
//! [`write_get`], or `set=1` and settings, answered with [`write_errno`]. [`Requests`] reads them with bounded
//! memory.

use thiserror::Error;

use crate::types::{AllowedIp, Endpoint, Host, Key32, decimal};

mod requests;
mod write;

pub use requests::Requests;
pub use write::{DeviceState, PeerState, write_errno, write_get};

/// Longest accepted line, in bytes. The longest that `wg` writes is `preshared_key=` and 64 digits; AmneziaWG has packets
/// in hexadecimal.
pub const LINE_MAX: usize = if cfg!(feature = "amnezia") { 8192 } else { 256 };

/// Maximum number of peers in one request.
pub const PEERS_MAX: usize = 1 << 16;

/// Maximum number of allowed-ips lines in one request, over all peers.
pub const ALLOWED_IPS_MAX: usize = 1 << 20;

const EIO: i32 = 5;
const E2BIG: i32 = 7;
const EINVAL: i32 = 22;
const EPROTO: i32 = 71;

/// A client's request.
#[derive(Debug)]
pub enum Request {
    /// `get=1`: return all settings and counters, with [`write_get`].
    Get,
    /// `set=1`: apply the settings, then answer with [`write_errno`].
    Set(SetDevice),
}

/// Settings of one `set=1` request. A `None` or empty field leaves its setting unchanged.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetDevice {
    /// The interface's private key; the all-zero key removes it.
    pub private_key: Option<Key32>,
    /// UDP port to listen on; 0 lets the kernel choose one.
    pub listen_port: Option<u16>,
    /// Firewall mark of outgoing datagrams; 0 means no mark.
    pub fwmark: Option<u32>,
    /// Remove all existing peers before `peers` are applied.
    pub replace_peers: bool,
    /// Changes to peers, to be applied in this order; a key may come more than once.
    pub peers: Vec<SetPeer>,
    /// Changes to AmneziaWG's settings.
    #[cfg(feature = "amnezia")]
    pub amnezia: crate::amnezia::Change,
}

/// Settings of one peer in a [`SetDevice`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SetPeer {
    /// The peer's public key. The peer is created if it does not exist.
    pub public_key: Key32,
    /// Remove the peer and ignore all other fields.
    pub remove: bool,
    /// Ignore this peer unless it exists already.
    pub update_only: bool,
    /// Preshared key; the all-zero key removes it.
    pub preshared_key: Option<Key32>,
    /// The peer's endpoint; never a [`Host::Name`].
    pub endpoint: Option<Endpoint>,
    /// Seconds between keepalives; 0 switches them off.
    pub persistent_keepalive: Option<u16>,
    /// Remove all ranges of the peer before `allowed_ips` are applied.
    pub replace_allowed_ips: bool,
    /// Changes to the peer's ranges, to be applied in this order.
    pub allowed_ips: Vec<AllowedIpChange>,
    /// The public key of a peer that this one replaces at its first handshake; no line of the protocol sets it.
    pub replaces: Option<Box<Key32>>,
    /// Post-quantum keys with the peer; no line of the protocol sets them.
    #[cfg(feature = "postquantum")]
    pub post_quantum: Option<crate::postquantum::PostQuantum>,
}

/// One `allowed_ip` line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AllowedIpChange {
    /// Assigns the range to this peer, and takes it from the peer that had it.
    Add(AllowedIp),
    /// Removes the range if this peer has it (`allowed_ip=-10.0.0.0/8`).
    Remove(AllowedIp),
}

/// Why a request was refused. The text never repeats a value: it may be a secret.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line} of the request: {message}")]
pub struct UapiError {
    /// The error number to answer with, positive as in `errno.h`.
    pub errno: i32,
    /// Line of the request, counted from 1.
    pub line: usize,
    /// The fault.
    pub message: String,
}

/// Collects the lines of one `set=1` request. Nothing is applied until the whole request is valid, so that a mistake
/// in the last line leaves the interface unchanged.
#[derive(Debug, Default)]
pub struct SetParser {
    device: SetDevice,
    line: usize,
    allowed_ips: usize,
}

impl SetParser {
    /// Takes one line, without its line feed. Do not pass the empty line that ends the request.
    ///
    /// # Errors
    /// [`UapiError`] with `EPROTO` when it is not of the form `key=value`, `E2BIG` above the limits, and `EINVAL` for
    /// every other fault. The parser must not be used after an error.
    pub fn line(&mut self, line: &str) -> Result<(), UapiError> {
        self.line += 1;
        let Some((key, value)) = line.split_once('=') else {
            return Err(self.error(EPROTO, "the line is not of the form key=value".to_owned()));
        };
        if key == "public_key" {
            return self.add_peer(value);
        }
        let known = match self.device.peers.last_mut() {
            None => device_line(&mut self.device, key, value),
            Some(peer) => {
                if key == "allowed_ip" {
                    self.allowed_ips += 1;
                }
                peer_line(peer, key, value)
            }
        };
        known.map_err(|why| self.error(EINVAL, why))?;
        if self.allowed_ips > ALLOWED_IPS_MAX {
            let why = format!("more than {ALLOWED_IPS_MAX} allowed-ips in one request");
            return Err(self.error(E2BIG, why));
        }
        Ok(())
    }

    /// Ends the parse and returns the collected settings.
    #[must_use]
    pub fn finish(self) -> SetDevice {
        self.device
    }

    fn add_peer(&mut self, value: &str) -> Result<(), UapiError> {
        if self.device.peers.len() == PEERS_MAX {
            let why = format!("more than {PEERS_MAX} peers in one request");
            return Err(self.error(E2BIG, why));
        }
        let public_key = Key32::from_hex(value)
            .map_err(|why| self.error(EINVAL, format!("public_key: {why}")))?;
        self.device.peers.push(SetPeer {
            public_key,
            ..SetPeer::default()
        });
        Ok(())
    }

    const fn error(&self, errno: i32, message: String) -> UapiError {
        UapiError {
            errno,
            line: self.line,
            message,
        }
    }
}

fn device_line(device: &mut SetDevice, key: &str, value: &str) -> Result<(), String> {
    match key {
        "private_key" => device.private_key = Some(hex_key(key, value)?),
        "listen_port" => device.listen_port = Some(number(key, value)?),
        "fwmark" => device.fwmark = Some(number(key, value)?),
        "replace_peers" => device.replace_peers = only_true(key, value)?,
        "protocol_version" => version(value)?,
        #[cfg(feature = "amnezia")]
        _ if device.amnezia.takes(key, value)? => {}
        _ => return Err(unknown_key(key, "interface")),
    }
    Ok(())
}

fn peer_line(peer: &mut SetPeer, key: &str, value: &str) -> Result<(), String> {
    match key {
        "remove" => peer.remove = only_true(key, value)?,
        "update_only" => peer.update_only = only_true(key, value)?,
        "preshared_key" => peer.preshared_key = Some(hex_key(key, value)?),
        "endpoint" => {
            let endpoint: Endpoint = value.parse().map_err(|why| format!("{key}: {why}"))?;
            if matches!(endpoint.host, Host::Name(_)) {
                return Err(format!("{key}: must be an address, not a name"));
            }
            peer.endpoint = Some(endpoint);
        }
        "persistent_keepalive_interval" => {
            let seconds = crate::keys::keepalive(value)
                .ok_or_else(|| format!("{key}: not a decimal number or range of seconds"))?;
            peer.persistent_keepalive = Some(seconds);
        }
        "replace_allowed_ips" => {
            peer.replace_allowed_ips = only_true(key, value)?;
            // The flag also drops ranges given earlier in the same request.
            peer.allowed_ips.clear();
        }
        "allowed_ip" => {
            let (range, removed) = match value.strip_prefix('-') {
                Some(range) => (range, true),
                None => (value, false),
            };
            if !range.contains('/') {
                return Err(format!("{key}: the prefix length is missing"));
            }
            let range: AllowedIp = range.parse().map_err(|why| format!("{key}: {why}"))?;
            peer.allowed_ips.push(if removed {
                AllowedIpChange::Remove(range)
            } else {
                AllowedIpChange::Add(range)
            });
        }
        "protocol_version" => version(value)?,
        _ => return Err(unknown_key(key, "peer")),
    }
    Ok(())
}

fn hex_key(key: &str, value: &str) -> Result<Key32, String> {
    Key32::from_hex(value).map_err(|why| format!("{key}: {why}"))
}

fn number<N: TryFrom<u64>>(key: &str, value: &str) -> Result<N, String> {
    decimal(value)
        .and_then(|n| N::try_from(n).ok())
        .ok_or_else(|| format!("{key}: not a decimal number in its range"))
}

fn only_true(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "true" => Ok(true),
        _ => Err(format!("{key}: the only valid value is true")),
    }
}

fn version(value: &str) -> Result<(), String> {
    match value {
        "1" => Ok(()),
        _ => Err("protocol_version: the only known version is 1".to_owned()),
    }
}

fn unknown_key(key: &str, place: &str) -> String {
    let shown: String = key.chars().take(32).collect();
    format!("unknown {place} key `{}`", crate::shown(&shown))
}
