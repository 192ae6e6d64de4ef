//! A peer in the status document, and a client's whole document.

use super::client::Client;
use super::conduit::{Conduit, Way};
use super::network::Inside;
use crate::status::{PeerStatus, Status, dataplane};
use openvpn::session::Session;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

fn unix(at: SystemTime) -> Option<u64> {
    Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// What the document says of a peer whose session this is. `since` is when it began.
pub(super) fn peer(conduit: &Conduit, session: Option<&Session>, since: SystemTime) -> PeerStatus {
    let cipher = session
        .and_then(Session::data_channel)
        .map(|(cipher, _)| cipher.name());
    let handshake = conduit.installed();
    let transport = match conduit.way() {
        Way::Stream(_) => "tcp",
        Way::Datagrams(_) => "udp",
    };
    PeerStatus {
        endpoint: Some(canonical(
            conduit
                .peer
                .endpoint()
                .map_or_else(|| conduit.way().addr(), |endpoint| endpoint.addr),
        )),
        last_handshake_unix: handshake.and_then(|(at, _)| unix(at)),
        latest_handshake_age: handshake.map(|(_, at)| at.elapsed().as_secs()),
        rx_bytes: conduit.received(),
        tx_bytes: conduit.sent(),
        transport: Some(transport.to_owned()),
        cipher: cipher.map(str::to_owned),
        crypto_backend: cipher.map(|name| crate::backends::kind(name).name().to_owned()),
        backend: conduit.cipher().map(|(_, backend)| backend.to_owned()),
        connected_unix: unix(since),
        ..PeerStatus::default()
    }
}

fn canonical(addr: SocketAddr) -> String {
    SocketAddr::new(addr.ip().to_canonical(), addr.port()).to_string()
}

impl Client<'_> {
    /// A client's document: of the interface, and of the server where there is a session.
    pub(super) fn document(&self, server: Option<PeerStatus>) -> Status {
        let inside = self.inside();
        let (v4, v6) = inside.map(Inside::addresses).unwrap_or_default();
        let addresses = [v4.map(IpAddr::V4), v6.map(IpAddr::V6)];
        let mut status = Status {
            role: Some("client".to_owned()),
            state: Some(
                if self.is_connected {
                    "connected"
                } else {
                    "connecting"
                }
                .to_owned(),
            ),
            addresses: addresses.iter().flatten().map(IpAddr::to_string).collect(),
            peers: server.into_iter().collect(),
            refused: self.refusals.to_map(),
            ..Status::default()
        };
        if let Some((tunnel, _)) = &self.device {
            status.mtu = tunnel.mtu() as u32;
            status.workers = tunnel.workers();
            status.dataplane = dataplane(tunnel);
        }
        status
    }
}
