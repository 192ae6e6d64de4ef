//! The destination of packets for an address.

use crate::key::SendKey;
use crate::peer::Peer;
use crate::peer_line::PeerLine;
use crate::stream::Stream;
use crate::ways::{Plan, Way};
use netio::udp::Endpoint;
use plane::{LineId, Wire};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// The peer, endpoint and key of packets for an address, as of now.
pub(super) struct Destination {
    pub(super) address: Option<IpAddr>,
    pub(super) peer: Arc<Peer>,
    pub(super) line: LineId,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) stream: Option<Arc<Stream>>,
    /// The key; `None` without a session, or with an expired one.
    pub(super) key: Option<Arc<SendKey>>,
    /// How packets are spread over several lines; `None` for one line.
    pub(super) plan: Option<Arc<Plan>>,
}

impl Destination {
    pub(super) fn new(
        address: Option<IpAddr>,
        peer: Arc<Peer>,
        now: Instant,
        ways: &mut Vec<Way>,
    ) -> Self {
        let key = peer.send_key.load_full().filter(|key| key.alive(now));
        let id = peer.lines.used_id();
        let line = peer.lines.get(id);
        let plan = peer.lines.plan();
        let mut to = Self {
            address,
            line: id,
            endpoint: line.and_then(PeerLine::endpoint),
            stream: line.and_then(|line| line.stream.load_full()),
            key,
            plan: plan.filter(|plan| plan.collect(&peer.lines, ways)),
            peer,
        };
        if to.plan.is_some()
            && to.endpoint.is_none()
            && let Some(way) = ways.first()
        {
            (to.line, to.endpoint) = (way.line, Some(way.endpoint));
        }
        to
    }

    /// Narrows the destination to one line, whichever lines are in use.
    pub(super) fn only_by(mut self, line: LineId) -> Self {
        let known = self.peer.lines.get(line);
        self.endpoint = known.and_then(PeerLine::endpoint);
        self.stream = known.and_then(|known| known.stream.load_full());
        self.line = line;
        self.plan = None;
        self
    }

    /// Whether a datagram is the tunnel's own, on any of the destination's ways.
    pub(super) fn loops<W: Wire>(
        &self,
        wire: &W,
        ways: &[Way],
        datagram: &[u8],
        to: SocketAddr,
    ) -> bool {
        let (Some(key), Some(endpoint)) = (&self.key, &self.endpoint) else {
            return false;
        };
        let loops = |endpoint| wire.loops(datagram, to, key.index, endpoint);
        loops(endpoint) || (self.plan.is_some() && ways.iter().any(|way| loops(&way.endpoint)))
    }
}
