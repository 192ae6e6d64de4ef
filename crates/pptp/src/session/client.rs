//! A client: one control connection with one call, and its lines.

use core::ops::Range;
use std::time::Instant;

use crate::control::{CallEnd, CloseReason, Connection, Event, Role, StopReason};
use crate::gre::Tunnel;
use crate::lines::{Answered, LEN, Prober, SILENT, UNANSWERED, ends_at, outlives};
use crate::ppp::IpcpSettings;
use crate::session::link::{Link, LinkOutput, Side};
use crate::session::output::{DownReason, SendError};
use crate::session::settings::{ClientSettings, Entropy, StartError};

/// Maximum number of packets kept until the call is up.
const MAX_EARLY: usize = 4;

/// A PPTP client without sockets; see the crate's documentation.
///
/// The caller makes a TCP connection to port 1723 and opens a raw GRE socket *before* it creates this. The server's
/// first GRE packet may arrive before its TCP reply.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    entropy: Entropy,
    connection: Connection,
    call_id: u16,
    call: Option<Link>,
    /// GRE packets that arrived before the TCP reply that opens the call.
    early: Vec<Vec<u8>>,
    /// Whether `Down` was reported.
    down: bool,
    prober: Option<Prober>,
    /// When the control connection was lost, if the call continues.
    lost: Option<Instant>,
    outputs: Vec<LinkOutput>,
}

impl Client {
    /// Creates a client for a new TCP connection.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn new(
        settings: ClientSettings,
        entropy: Entropy,
        now: Instant,
    ) -> Result<Self, StartError> {
        settings.common.check()?;
        let connection = Connection::new(Role::Client, settings.common.control.clone(), now);
        Ok(Self {
            // A random ID makes collisions unlikely between lines of a host, or hosts behind a NAT.
            call_id: u16::from_le_bytes(entropy.bytes()),
            settings,
            entropy,
            connection,
            call: None,
            early: Vec::new(),
            down: false,
            prober: None,
            lost: None,
            outputs: Vec::new(),
        })
    }

    /// Bytes to send on the TCP connection. Check this after every call.
    #[must_use]
    pub fn transmit(&self) -> &[u8] {
        self.connection.transmit()
    }

    /// Records that TCP has taken the first `len` bytes of [`transmit`](Self::transmit).
    pub fn transmitted(&mut self, len: usize) {
        self.connection.transmitted(len);
    }

    /// Takes bytes received on the TCP connection.
    pub fn receive_control(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<LinkOutput>) {
        self.connection.receive(bytes, now);
        self.events(now, out);
    }

    /// Records that the TCP connection has ended.
    pub fn control_ended(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.connection.stream_ended();
        self.events(now, out);
    }

    /// Takes the payload of an IP packet of protocol 47 from the server. Returns the range of the decrypted inner
    /// packet. Its addresses are not checked.
    pub fn receive_gre(
        &mut self,
        packet: &mut [u8],
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) -> Option<Range<usize>> {
        let Some(call) = &mut self.call else {
            if !self.down && self.early.len() < MAX_EARLY {
                self.early.push(packet.to_vec());
            }
            return None;
        };
        let inner = call.receive(packet, now, None, &mut self.outputs);
        if !self.outputs.is_empty() {
            self.link_outputs(now, out);
        }
        inner
    }

    /// Appends the payload of an IP packet of protocol 47 that carries `packet` to `out`.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        let call = self.call.as_mut().ok_or(SendError::NotUp)?;
        call.send_inner(packet, out)
    }

    /// Ends the call and the connection, and tells the server.
    pub fn stop(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if let Some(call) = &mut self.call {
            call.stop(now, &mut self.outputs);
            self.link_outputs(now, out);
        }
        self.end(DownReason::Local, now, out);
        self.events(now, out);
    }

    /// When [`expire`](Self::expire) must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let call = self.call.as_ref().and_then(Link::deadline);
        [self.connection.deadline(), call, self.silent_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles timers that are due. An early call does nothing.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.connection.expire(now);
        self.events(now, out);
        if let Some(call) = &mut self.call {
            call.expire(now, None, &mut self.outputs);
            self.link_outputs(now, out);
        }
        self.expire_lines(now, out);
    }

    /// Whether the control connection has ended; once everything is transmitted, TCP can be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.connection.is_closed()
    }

    /// Our call ID, which the server writes into each GRE packet.
    #[must_use]
    pub const fn call_id(&self) -> u16 {
        self.call_id
    }

    /// The call, once there is one.
    #[must_use]
    pub const fn call(&self) -> Option<&Link> {
        self.call.as_ref()
    }

    fn events(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established(_) => {
                    // No other call is open, so this cannot fail.
                    self.connection.open_call(self.call_id, now);
                }
                Event::CallUp { peer_call_id, .. } => self.call_up(peer_call_id, now, out),
                Event::CallDown { end, .. } => {
                    let reason = match end {
                        CallEnd::ConnectionClosed => continue,
                        // The server has seen no more than we have, and its reason says less, so the link's reason is
                        // better.
                        CallEnd::Disconnected { .. } => self
                            .call
                            .as_ref()
                            .and_then(Link::likely_reason)
                            .unwrap_or(DownReason::Call(end)),
                        other => DownReason::Call(other),
                    };
                    self.end(reason, now, out);
                }
                Event::Closed(reason) => self.closed(reason, now, out),
                Event::CallRequested { .. } => {}
            }
        }
    }

    fn call_up(&mut self, peer_call_id: u16, now: Instant, out: &mut Vec<LinkOutput>) {
        self.connection.set_link_info(self.call_id);
        let settings = &self.settings;
        let side = Side::Client {
            user: settings.user.clone(),
            password: settings.password.clone(),
        };
        let ip = IpcpSettings {
            address: settings.address,
            ask_dns: settings.ask_dns,
            ..IpcpSettings::default()
        };
        let link = settings.common.link.clone();
        let window = settings.common.control.window;
        let tunnel = Tunnel::new(self.call_id, peer_call_id, window);
        let mut call = Link::new(side, link, ip, self.entropy.clone(), tunnel);
        call.start(now, &mut self.outputs);
        for mut packet in core::mem::take(&mut self.early) {
            // The link is not up, so these packets contain no inner packets.
            let _ = call.receive(&mut packet, now, None, &mut self.outputs);
        }
        self.call = Some(call);
        self.link_outputs(now, out);
    }

    fn link_outputs(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        let mut outputs = core::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                LinkOutput::Lines(agreed) => self.agreed(agreed, out),
                LinkOutput::Down(reason) => self.end(reason, now, out),
                other => out.push(other),
            }
        }
        // The buffer is kept for reuse.
        self.outputs = outputs;
    }

    fn end(&mut self, reason: DownReason, now: Instant, out: &mut Vec<LinkOutput>) {
        if !self.down {
            self.down = true;
            out.push(LinkOutput::Down(reason));
        }
        self.call = None;
        self.prober = None;
        self.lost = None;
        self.early = Vec::new();
        if self.connection.is_established() {
            // The server may have forgotten the call.
            self.connection.clear_call(self.call_id, now);
        }
        self.connection.stop(StopReason::None, now);
    }

    /// A probe for a line, as the payload of an IP packet of protocol 47: see [`Prober::probe`]. `None` unless the
    /// server agrees to several lines.
    pub fn probe(&mut self, line: u8, used: u8, lines: u16) -> Option<[u8; LEN]> {
        self.prober.as_mut()?.probe(line, used, lines)
    }

    /// Takes a packet that [looks like](crate::lines::is_probe) the answer to a probe. `None` if it is not one.
    pub fn answered(&mut self, packet: &[u8], now: Instant) -> Option<Answered> {
        self.prober.as_mut()?.answered(packet, now)
    }

    /// Whether the server agrees to several lines.
    #[must_use]
    pub const fn has_lines(&self) -> bool {
        self.prober.is_some()
    }

    /// Sends an Echo-Request to check that the server is alive (RFC 1661, section 5.8).
    pub fn ask_echo(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if let Some(call) = self.call.as_mut().filter(|call| call.is_up()) {
            call.ask_echo(&mut self.outputs);
            self.link_outputs(now, out);
        }
    }

    fn agreed(&mut self, agreed: bool, out: &mut Vec<LinkOutput>) {
        let probes = self.call.as_ref().and_then(Link::probes);
        self.prober = probes.map(|(key, ours, theirs)| Prober::new(key, ours, theirs));
        out.push(LinkOutput::Lines(agreed));
    }

    /// Handles the end of the control connection.
    fn closed(&mut self, reason: CloseReason, now: Instant, out: &mut Vec<LinkOutput>) {
        let heard = self.prober.as_ref().and_then(Prober::heard);
        let works = heard.is_some_and(|heard| now < heard + SILENT);
        if works && outlives(&reason) && !self.down {
            self.lost = Some(now);
            out.push(LinkOutput::ControlLost(reason));
        } else {
            self.end(DownReason::Control(reason), now, out);
        }
    }

    /// When a call without a control connection ends, if no answer arrives.
    fn silent_at(&self) -> Option<Instant> {
        let heard = self.prober.as_ref().and_then(Prober::heard);
        self.lost.map(|lost| ends_at(lost, heard, UNANSWERED))
    }

    fn expire_lines(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.end(DownReason::Silent, now, out);
        }
    }
}
