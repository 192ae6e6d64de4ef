//! Writes the answers to requests.

use std::io::{self, Write};

use crate::types::{AllowedIp, Endpoint, Key32};

/// The interface's own part of the answer to `get=1`.
#[derive(Clone, Debug, Default)]
pub struct DeviceState {
    /// Private key, if one is set.
    pub private_key: Option<Key32>,
    /// The UDP port in use; 0 if none is.
    pub listen_port: u16,
    /// Firewall mark of outgoing datagrams; 0 means no mark.
    pub fwmark: u32,
    /// AmneziaWG's settings.
    #[cfg(feature = "amnezia")]
    pub amnezia: wireguard::amnezia::Settings,
}

/// One peer's part of the answer to `get=1`.
#[derive(Clone, Debug, Default)]
pub struct PeerState {
    /// The peer's public key.
    pub public_key: Key32,
    /// Preshared key, if one is set.
    pub preshared_key: Option<Key32>,
    /// The peer's endpoint, if known; never a [`Host::Name`](crate::types::Host::Name).
    pub endpoint: Option<Endpoint>,
    /// Seconds (since 1970) and nanoseconds of the last handshake; zeros when there was none.
    pub last_handshake: (u64, u32),
    /// Bytes of authenticated datagrams received.
    pub rx_bytes: u64,
    /// Bytes of datagrams sent.
    pub tx_bytes: u64,
    /// Seconds between keepalives; 0 when they are off.
    pub persistent_keepalive: u16,
    /// The peer's ranges.
    pub allowed_ips: Vec<AllowedIp>,
}

/// Writes the whole answer to `get=1`, `errno=0` and the empty line included.
///
/// Peers come from an iterator, so that memory holds neither the whole text nor the state of thousands; `out` should
/// be buffered.
///
/// # Errors
/// The errors of `out`.
pub fn write_get(
    out: &mut impl Write,
    device: &DeviceState,
    peers: impl IntoIterator<Item = PeerState>,
) -> io::Result<()> {
    if let Some(key) = &device.private_key {
        writeln!(out, "private_key={}", key.to_hex().as_str())?;
    }
    if device.listen_port != 0 {
        writeln!(out, "listen_port={}", device.listen_port)?;
    }
    if device.fwmark != 0 {
        writeln!(out, "fwmark={}", device.fwmark)?;
    }
    #[cfg(feature = "amnezia")]
    crate::amnezia::write(out, &device.amnezia)?;
    for peer in peers {
        write_peer(out, &peer)?;
    }
    write_errno(out, 0)
}

fn write_peer(out: &mut impl Write, peer: &PeerState) -> io::Result<()> {
    writeln!(out, "public_key={}", peer.public_key.to_hex().as_str())?;
    let preshared = peer.preshared_key.clone().unwrap_or_default();
    writeln!(out, "preshared_key={}", preshared.to_hex().as_str())?;
    writeln!(out, "protocol_version=1")?;
    if let Some(endpoint) = &peer.endpoint {
        writeln!(out, "endpoint={endpoint}")?;
    }
    writeln!(out, "last_handshake_time_sec={}", peer.last_handshake.0)?;
    writeln!(out, "last_handshake_time_nsec={}", peer.last_handshake.1)?;
    writeln!(out, "tx_bytes={}", peer.tx_bytes)?;
    writeln!(out, "rx_bytes={}", peer.rx_bytes)?;
    let keepalive = peer.persistent_keepalive;
    writeln!(out, "persistent_keepalive_interval={keepalive}")?;
    for range in &peer.allowed_ips {
        writeln!(out, "allowed_ip={range}")?;
    }
    Ok(())
}

/// Writes the end of an answer: `errno=` and the empty line. `errno` is 0 or positive as in `errno.h`; it is sent
/// negated, as `wg` expects after a `set=1`.
///
/// # Errors
/// The errors of `out`.
pub fn write_errno(out: &mut impl Write, errno: i32) -> io::Result<()> {
    write!(out, "errno={}\n\n", -i64::from(errno))
}
