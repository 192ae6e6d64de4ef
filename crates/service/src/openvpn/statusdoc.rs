//! The status document: one peer, and what clients and servers have alike.

use super::context::Context;
use crate::openvpn::channel::{Channel, Plane};
use crate::status::{PeerStatus, Status, dataplane, expected_within};
use openvpn::session::Session;
use openvpn_host::network::Inside;
use openvpn_host::status_file::real_address;
use openvpn_host::timestamp::unix;
use plane::{PeerState, Statistics};
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

/// Returns the status of a peer at this address, unless the data plane heard it elsewhere. `state` is the data plane's,
/// `since` is when the session began.
pub(super) fn peer(
    channel: &Channel,
    address: SocketAddr,
    state: &PeerState,
    session: &Session,
    since: SystemTime,
) -> PeerStatus {
    let cipher = session.data_channel().map(|(cipher, _)| cipher.name());
    let address = state.line.map_or(address, |line| line.endpoint.addr);
    let control = session.control_traffic();
    let now = Instant::now();
    let mut status = PeerStatus {
        endpoint: Some(real_address(address)),
        last_handshake_unix: channel.renewed.map(|at| unix(at.wall)),
        latest_handshake_age: channel.renewed.map(|at| at.monotonic.elapsed().as_secs()),
        rx_bytes: state.rx_bytes + control.received(),
        tx_bytes: state.tx_bytes + control.sent(),
        transport: Some(if channel.shape.stream { "tcp" } else { "udp" }.to_owned()),
        cipher: cipher.map(str::to_owned),
        crypto_backend: cipher.map(|name| crate::backends::kind(name).name().to_owned()),
        backend: channel.cipher.map(|it| it.backend.to_owned()),
        #[cfg(feature = "postquantum")]
        key_exchange: session.key_exchange().map(|(name, _)| name.to_owned()),
        #[cfg(feature = "postquantum")]
        post_quantum: session.key_exchange().map(|(_, is_hybrid)| is_hybrid),
        connected_unix: Some(unix(since)),
        expires_unix: session.certificate().and_then(|it| it.ends()).map(unix),
        ..PeerStatus::default()
    };
    let data = match state.guarded {
        true => state.heard,
        false => state.times.last_received,
    };
    let (ping, limit) = session.keep_alive();
    // The kernel detects silence by itself and does not report when a ping came.
    let within = expected_within(ping, limit).filter(|_| !state.guarded);
    status.set_heard(data.max(session.control_received()), within, now);
    status
}

/// When a tunnel's certificates and revocation lists end. A program without servers leaves it empty, to stay small.
#[derive(Default)]
pub(super) struct Expiry {
    /// The earliest end, in seconds since 1970.
    pub(super) earliest_unix: Option<u64>,
    /// Warnings of those that end soon.
    pub(super) warnings: Vec<String>,
}

/// Returns the document of a tunnel, with what clients and servers have alike.
pub(super) fn document(
    context: &Context,
    plane: Option<&Plane>,
    inside: Option<&Inside>,
    expiry: Expiry,
) -> Status {
    let config = &context.config;
    let statistics = plane.map(|plane| statistics(context, plane));
    let mut warnings = inside.map_or_else(Vec::new, Inside::warnings);
    warnings.extend(expiry.warnings);
    Status {
        fwmark: config.sockets.mark.unwrap_or(0),
        bound_device: config.sockets.device.clone(),
        warnings,
        expires_unix: expiry.earliest_unix,
        mtu: plane.map_or(0, |plane| plane.mtu() as u32),
        workers: statistics.as_ref().map_or(0, |it| it.workers),
        dataplane: statistics.map(dataplane).unwrap_or_default(),
        ..Status::default()
    }
}

/// The data plane's statistics, with the reason if `auto` chose it.
fn statistics(context: &Context, plane: &Plane) -> Statistics {
    let statistics = plane.statistics();
    #[cfg(feature = "kernel")]
    if let Some((name, state)) = context.mover.rung() {
        let mut statistics = statistics;
        statistics.rungs.retain(|(rung, _)| *rung != name);
        statistics.rungs.push((name, state));
        return statistics;
    }
    #[cfg(not(feature = "kernel"))]
    let _ = context;
    statistics
}
