//! One call: a PPP link, and the GRE tunnel that carries it.

use core::ops::Range;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::gre::{self, Tunnel};
use crate::lines::ProbeKey;
use crate::mschap::user_without_domain;
use crate::session::authenticator::Door;
use crate::session::link::{Link, LinkCounters, LinkOutput};
use crate::session::output::{DownReason, SendError};

/// Actions of a call: a [`LinkOutput`] whose frames are GRE packets.
pub(super) type CallOutput = LinkOutput;

/// A link and its tunnel.
#[derive(Debug)]
pub struct Call {
    tunnel: Tunnel,
    link: Link,
    /// The link's outputs before they are wrapped in GRE; empty between method calls.
    outputs: Vec<LinkOutput>,
    started: bool,
}

impl Call {
    pub(super) const fn new(tunnel: Tunnel, link: Link) -> Self {
        Self {
            tunnel,
            link,
            outputs: Vec::new(),
            started: false,
        }
    }

    pub(super) const fn is_started(&self) -> bool {
        self.started
    }

    pub(super) fn start(&mut self, now: Instant, out: &mut Vec<CallOutput>) {
        self.started = true;
        self.link.start(now, &mut self.outputs);
        self.wrap(out);
    }

    /// Assigns an address to a client that has logged in.
    pub(super) fn admit(&mut self, client: Ipv4Addr, now: Instant, out: &mut Vec<CallOutput>) {
        self.link.admit(client, now, &mut self.outputs);
        self.wrap(out);
    }

    /// Ends the link for a reason that the peer is told.
    pub(super) fn fail(&mut self, reason: DownReason, now: Instant, out: &mut Vec<CallOutput>) {
        self.link.fail(reason, now, &mut self.outputs);
        self.wrap(out);
    }

    pub(super) fn stop(&mut self, now: Instant, out: &mut Vec<CallOutput>) {
        self.link.stop(now, &mut self.outputs);
        self.wrap(out);
    }

    /// Takes the payload of an IP packet of protocol 47. Returns the range of the decrypted inner packet.
    pub(super) fn receive(
        &mut self,
        packet: &mut [u8],
        now: Instant,
        door: Option<&mut Door<'_>>,
        out: &mut Vec<CallOutput>,
    ) -> Option<Range<usize>> {
        let received = self.tunnel.receive(packet, now)?;
        let start = received.payload.start;
        let frame = &mut packet[received.payload];
        let number = received.number;
        let outputs = &mut self.outputs;
        let inner = self
            .link
            .receive(number, received.late, frame, now, door, outputs);
        self.wrap(out);
        self.acknowledge(now, out);
        inner.map(|inner| start + inner.start..start + inner.end)
    }

    /// Appends the payload of an IP packet of protocol 47 that carries `packet`.
    pub(super) fn send(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        let len = self.link.frame_len(packet)?;
        let (header, header_len) = self.tunnel.header(len);
        out.extend_from_slice(&header[..header_len]);
        self.link.seal(packet, out)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.link.deadline(), self.tunnel.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn expire(
        &mut self,
        now: Instant,
        door: Option<&mut Door<'_>>,
        out: &mut Vec<CallOutput>,
    ) {
        self.link.expire(now, door, &mut self.outputs);
        self.wrap(out);
        self.acknowledge(now, out);
    }

    /// The counters of GRE.
    #[must_use]
    pub const fn tunnel_counters(&self) -> &gre::Counters {
        self.tunnel.counters()
    }

    /// The counters of the link.
    #[must_use]
    pub const fn link_counters(&self) -> &LinkCounters {
        self.link.counters()
    }

    /// For probes, if both ends agree to several lines: the key, our call ID and the peer's.
    pub(super) fn probes(&self) -> Option<(ProbeKey, u16, u16)> {
        let (call_id, peer_call_id) = self.tunnel.call_ids();
        Some((self.link.probe_key()?, call_id, peer_call_id))
    }

    /// When the peer was last heard, the silence before an Echo-Request, and the silence before the call ends.
    #[must_use]
    pub fn heard(&self) -> Option<(Instant, Duration, Duration)> {
        let settings = &self.link.settings;
        let (interval, asked) = (settings.echo_interval, u32::from(settings.echo_failures));
        let heard = self.link.heard?;
        Some((heard, interval, interval * (asked + 1)))
    }

    /// Sends an Echo-Request to check that the peer is alive.
    pub(super) fn ask_echo(&mut self, out: &mut Vec<CallOutput>) {
        self.link.ask_echo(&mut self.outputs);
        self.wrap(out);
    }

    /// Whether packets can be sent.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// The account of the logged-in client, without a domain.
    pub(super) fn account(&self) -> Option<&[u8]> {
        self.link
            .user
            .as_deref()
            .map(|it| user_without_domain(it.as_bytes()))
    }

    pub(super) fn likely_reason(&self) -> Option<DownReason> {
        self.link.likely_reason()
    }

    /// Whether the link has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.link.is_dead()
    }

    fn acknowledge(&mut self, now: Instant, out: &mut Vec<CallOutput>) {
        if let Some((header, len)) = self.tunnel.expire(now) {
            out.push(CallOutput::Frame(header[..len].to_vec()));
        }
    }

    fn wrap(&mut self, out: &mut Vec<CallOutput>) {
        for output in self.outputs.drain(..) {
            out.push(match output {
                LinkOutput::Frame(frame) => {
                    // A control frame answers the contents of one packet, so it fits 16 bits.
                    let len = u16::try_from(frame.len()).unwrap_or(u16::MAX);
                    let (header, header_len) = self.tunnel.header(len);
                    LinkOutput::Frame([&header[..header_len], &frame[..usize::from(len)]].concat())
                }
                other => other,
            });
        }
    }
}
