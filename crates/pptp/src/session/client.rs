//! A client: one control connection with one call.

use core::ops::Range;
use std::time::Instant;

use crate::control::{CallEnd, CloseReason, Connection, Event, Role, StopReason};
use crate::gre::Tunnel;
use crate::lines::Prober;
use crate::ppp::IpcpSettings;
use crate::session::account::Entropy;
use crate::session::call::Call;
use crate::session::link::{Link, LinkOutput, Side};
use crate::session::output::{DownReason, Ipv6Up, SendError, Up};
use crate::session::settings::{ClientSettings, StartError};

mod lines;

/// Packets that are kept until the call is up.
const MAX_EARLY: usize = 4;

/// The wishes of a client, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOutput {
    /// Send this as the payload of an IP packet of protocol 47 to the server.
    Gre(Vec<u8>),
    /// Packets can be sent. Comes again if the server has negotiated anew.
    Up(Up),
    /// So can packets of IPv6.
    Ipv6Up(Ipv6Up),
    /// The server agrees to several lines, or does not: [`Client::probe`]. Comes after `Up`, where they are asked for.
    Lines(bool),
    /// The server has answered [`Client::ask_echo`].
    Echoed,
    /// The control connection has ended, and the call goes on by its lines.
    ControlLost(CloseReason),
    /// It is over. What [`Client::transmit`] holds is still to be sent, and [`Client::is_finished`] says when the TCP
    /// connection can be closed.
    Down(DownReason),
}

/// A client.
///
/// The caller makes a TCP connection to port 1723 and opens a raw socket for GRE *before* it makes this, as the server
/// may be quicker than the reply.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    entropy: Entropy,
    connection: Connection,
    call_id: u16,
    call: Option<Call>,
    /// Packets that came before the reply that opens the call: they take another way than TCP.
    early: Vec<Vec<u8>>,
    /// Whether `Down` was said.
    down: bool,
    prober: Option<Prober>,
    /// When the control connection was lost, if the call has gone on.
    lost: Option<Instant>,
    outputs: Vec<LinkOutput>,
}

impl Client {
    /// A client whose TCP connection has just been made.
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
            // Two lines of one host, or two hosts behind one NAT, should differ.
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

    /// Bytes for the TCP connection. To be looked at after every call.
    #[must_use]
    pub fn transmit(&self) -> &[u8] {
        self.connection.transmit()
    }

    /// TCP has taken the first `len` bytes of [`transmit`](Self::transmit).
    pub fn transmitted(&mut self, len: usize) {
        self.connection.transmitted(len);
    }

    /// Takes bytes of the TCP connection.
    pub fn receive_control(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<ClientOutput>) {
        self.connection.receive(bytes, now);
        self.events(now, out);
    }

    /// The TCP connection has ended.
    pub fn control_ended(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        self.connection.stream_ended();
        self.events(now, out);
    }

    /// Takes the payload of an IP packet of protocol 47 from the server. What comes back is the place of an inner packet,
    /// decrypted, in it. Its addresses are whatever the server says.
    pub fn receive_gre(
        &mut self,
        packet: &mut [u8],
        now: Instant,
        out: &mut Vec<ClientOutput>,
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
    pub fn send(
        &mut self,
        packet: &[u8],
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        let call = self.call.as_mut().ok_or(SendError::NotUp)?;
        call.send(packet, now, out)
    }

    /// Ends everything, and tells the server.
    pub fn stop(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        if let Some(call) = &mut self.call {
            call.stop(now, &mut self.outputs);
            self.link_outputs(now, out);
        }
        self.end(DownReason::Local, now, out);
        self.events(now, out);
    }

    /// When [`expire`](Self::expire) has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let call = self.call.as_ref().and_then(Call::deadline);
        [self.connection.deadline(), call, self.silent_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due. Calling it early does nothing.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        self.connection.expire(now);
        self.events(now, out);
        if let Some(call) = &mut self.call {
            call.expire(now, None, &mut self.outputs);
            self.link_outputs(now, out);
        }
        self.expire_lines(now, out);
    }

    /// Whether the control connection has ended: once everything is transmitted, TCP can be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.connection.is_closed()
    }

    /// Our call ID, which the server writes into each packet of GRE.
    #[must_use]
    pub const fn call_id(&self) -> u16 {
        self.call_id
    }

    /// The call, once there is one.
    #[must_use]
    pub const fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    /// The control connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    fn events(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established(_) => {
                    // Nothing else is open yet, so there is room.
                    let _ = self.connection.open_call(self.call_id, now);
                }
                Event::CallUp {
                    peer_call_id,
                    window,
                    ..
                } => {
                    self.call_up(peer_call_id, window, now, out);
                }
                Event::CallDown { end, .. } => {
                    let reason = match end {
                        CallEnd::ConnectionClosed => continue,
                        // The server has seen no more of it than we have, and says less.
                        CallEnd::Disconnected { .. } => self
                            .call
                            .as_ref()
                            .and_then(Call::likely_reason)
                            .unwrap_or(DownReason::Call(end)),
                        other => DownReason::Call(other),
                    };
                    self.end(reason, now, out);
                }
                Event::Closed(reason) => self.closed(reason, now, out),
                Event::CallRequested(_) | Event::LinkInfo(_) => {}
            }
        }
    }

    fn call_up(
        &mut self,
        peer_call_id: u16,
        peer_window: u16,
        now: Instant,
        out: &mut Vec<ClientOutput>,
    ) {
        // The call was reported to be up.
        let _ = self.connection.set_link_info(self.call_id);
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
        let link = Link::new(side, link, ip, self.entropy.clone());
        let window = settings.common.control.window;
        let tunnel = Tunnel::new(self.call_id, peer_call_id, window, peer_window);
        let mut call = Call::new(tunnel, link);
        call.start(now, &mut self.outputs);
        for mut packet in core::mem::take(&mut self.early) {
            // No data can be among them: the link is not up.
            let _ = call.receive(&mut packet, now, None, &mut self.outputs);
        }
        self.call = Some(call);
        self.link_outputs(now, out);
    }

    fn link_outputs(&mut self, now: Instant, out: &mut Vec<ClientOutput>) {
        let mut outputs = core::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                LinkOutput::Frame(packet) => out.push(ClientOutput::Gre(packet)),
                // A server's.
                LinkOutput::LoggedIn => {}
                LinkOutput::Up(up) => out.push(ClientOutput::Up(up)),
                LinkOutput::Ipv6Up(up) => out.push(ClientOutput::Ipv6Up(up)),
                LinkOutput::Lines(agreed) => self.agreed(agreed, out),
                LinkOutput::Echoed => out.push(ClientOutput::Echoed),
                LinkOutput::Down(reason) => self.end(reason, now, out),
            }
        }
        // Its memory is used again.
        self.outputs = outputs;
    }

    fn end(&mut self, reason: DownReason, now: Instant, out: &mut Vec<ClientOutput>) {
        if !self.down {
            self.down = true;
            out.push(ClientOutput::Down(reason));
        }
        self.call = None;
        self.prober = None;
        self.lost = None;
        self.early = Vec::new();
        if self.connection.is_established() {
            // The server may not know the call any more.
            let _ = self.connection.clear_call(self.call_id, now);
        }
        self.connection.stop(StopReason::None, now);
    }
}
