//! One peer in the status document.

use crate::now::Now;
use crate::status::{PeerStatus, expected_within};
use openvpn::session::{ControlTraffic, Session};
use plane::PeerState;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Facts about a peer besides its session.
pub(super) struct Known<'a> {
    /// The peer's address, unless the data plane heard it elsewhere.
    pub address: SocketAddr,
    /// The peer is connected over TCP.
    pub stream: bool,
    /// When the newest keys were installed.
    pub renewed: Option<Now>,
    /// Implementation that encrypts with those keys.
    pub backend: Option<&'static str>,
    /// The data plane's state of the peer.
    pub state: &'a PeerState,
    /// Bytes of its control packets.
    pub control: &'a ControlTraffic,
}

fn unix(at: SystemTime) -> Option<u64> {
    Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Returns the status of the peer with this session. `since` is when the session began.
pub(super) fn peer(known: &Known<'_>, session: Option<&Session>, since: SystemTime) -> PeerStatus {
    let cipher = session
        .and_then(Session::data_channel)
        .map(|(cipher, _)| cipher.name());
    let line = known.state.line;
    let address = line.map_or(known.address, |line| line.endpoint.addr);
    let now = Instant::now();
    let mut status = PeerStatus {
        endpoint: Some(canonical(address)),
        last_handshake_unix: known.renewed.and_then(|at| unix(at.wall)),
        latest_handshake_age: known.renewed.map(|at| at.monotonic.elapsed().as_secs()),
        rx_bytes: known.state.rx_bytes + known.control.received(),
        tx_bytes: known.state.tx_bytes + known.control.sent(),
        transport: Some(if known.stream { "tcp" } else { "udp" }.to_owned()),
        cipher: cipher.map(str::to_owned),
        crypto_backend: cipher.map(|name| crate::backends::kind(name).name().to_owned()),
        backend: known.backend.map(str::to_owned),
        connected_unix: unix(since),
        ..PeerStatus::default()
    };
    let data = match known.state.guarded {
        true => known.state.heard,
        false => known.state.times.last_received,
    };
    let control = session.and_then(Session::control_received);
    let (ping, limit) = session.map(Session::keep_alive).unwrap_or_default();
    // The kernel detects silence by itself and does not report when a ping came.
    let within = expected_within(ping, limit).filter(|_| !known.state.guarded);
    status.set_heard(data.max(control), within, now);
    status
}

fn canonical(addr: SocketAddr) -> String {
    SocketAddr::new(addr.ip().to_canonical(), addr.port()).to_string()
}
