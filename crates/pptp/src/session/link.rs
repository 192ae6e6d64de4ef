//! One PPP link: LCP, a login, CCP and IPCP (RFC 1661, section 3), and the GRE tunnel that carries it.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::control::CloseReason;
use crate::gre::{self, Tunnel};
use crate::lines::ProbeKey;
use crate::mppe::{Decryptor, Encryptor, MasterKey};
use crate::mschap::Password;
use crate::ppp::{
    Auth, Ccp, Failure, Framing, Ipcp, IpcpSettings, Lcp, LcpSettings, Negotiation, Signal, State,
    lcp_code, protocol,
};
use crate::session::authenticator::{Authenticator, Door};
use crate::session::login::{Login, Step};
use crate::session::output::{DownReason, LoginError, Up};
use crate::session::settings::{Entropy, LinkSettings};

/// Actions that a client or a link requests from its caller, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    /// Send this to the peer as the payload of an IP packet of protocol 47.
    Gre(Vec<u8>),
    /// A client has logged in to this server. The caller must admit it with an address, or end the link. No
    /// [`Client`](crate::session::Client) reports this.
    LoggedIn,
    /// The link carries packets; repeated if the peer renegotiates.
    Up(Up),
    /// Whether the peer agrees to several lines; if so, use [`Client::probe`](crate::session::Client::probe). Follows
    /// `Up` if several are requested.
    Lines(bool),
    /// The peer has answered an Echo-Request.
    Echoed,
    /// A client's control connection has ended, but the call continues over its lines.
    ControlLost(CloseReason),
    /// The link has ended for good. A client's caller still sends the bytes of
    /// [`Client::transmit`](crate::session::Client::transmit), and may close TCP once
    /// [`Client::is_finished`](crate::session::Client::is_finished).
    Down(DownReason),
}

/// Counters of one link's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Inner packets received.
    pub packets: u64,
    /// Frames without a protocol, or with one not valid in this phase of the link.
    pub unexpected: u64,
    /// Frames of unsupported protocols, which were rejected.
    pub rejected: u64,
    /// Packets that arrived unencrypted although encryption is required.
    pub unencrypted: u64,
    /// Encrypted packets that arrived too late, or twice.
    pub late: u64,
    /// Encrypted packets that could not be decrypted.
    pub undecryptable: u64,
    /// Reset-Requests sent by both ends.
    pub resets: u64,
}

/// Which end of the link this is.
pub(super) enum Side {
    Client { user: String, password: Password },
    Server { name: String },
}

/// Phase of the link (RFC 1661, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Establish,
    Authenticate,
    Network,
    Dead,
}

/// Whether both ends agreed to several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Several {
    Unasked,
    Asked {
        /// Tries left.
        left: u8,
        /// Time of the next try.
        at: Instant,
    },
    Agreed,
    Refused,
}

impl Several {
    const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Asked { at, .. } => Some(at),
            _ => None,
        }
    }
}

/// One link, either the client's or the server's end.
pub struct Link {
    pub(super) tunnel: Tunnel,
    pub(super) started: bool,
    pub(super) side: Side,
    pub(super) settings: LinkSettings,
    pub(super) entropy: Entropy,
    pub(super) phase: Phase,
    pub(super) lcp: Negotiation<Lcp>,
    pub(super) login: Option<Login>,
    pub(super) authenticator: Option<Authenticator>,
    /// The user who logged in, at a server.
    pub(super) user: Option<String>,
    pub(super) master: Option<MasterKey>,
    /// Whether the login's keys are in use.
    pub(super) keyed: bool,
    pub(super) ccp: Option<Negotiation<Ccp>>,
    /// A delayed Configure-Ack of CCP, and when to send it. Encryption starts after it.
    pub(super) ccp_ack: Option<(Instant, Vec<u8>)>,
    pub(super) ip: IpcpSettings,
    pub(super) ipcp: Negotiation<Ipcp>,
    /// The last packet that arrived too early: one of CCP before a server has assigned an address, or one of IPCP before
    /// CCP was open.
    pub(super) early: Option<Vec<u8>>,
    pub(super) encryptor: Option<Encryptor>,
    pub(super) decryptor: Option<Decryptor>,
    pub(super) framing: Framing,
    /// The longest inner packet in bytes; 0 while the link is not up.
    pub(super) mtu: u16,
    pub(super) heard: Option<Instant>,
    pub(super) id: u8,
    pub(super) echo: Option<Instant>,
    pub(super) echoes: u8,
    /// When to repeat a Reset-Request.
    pub(super) reset: Option<Instant>,
    /// Since when packets failed to decrypt, and how many in a row.
    pub(super) failing: Option<(Instant, u32)>,
    /// Whether a packet was decrypted with the current keys.
    pub(super) opened: bool,
    pub(super) several: Several,
    pub(super) counters: LinkCounters,
}

impl Link {
    pub(super) fn new(
        side: Side,
        settings: LinkSettings,
        ip: IpcpSettings,
        entropy: Entropy,
        tunnel: Tunnel,
    ) -> Self {
        let client = matches!(side, Side::Client { .. });
        let auth = settings.auth.clone();
        let (require, accept) = if client {
            (Vec::new(), auth)
        } else {
            (auth, Vec::new())
        };
        let lcp = Lcp::new(LcpSettings {
            mru: settings.mru,
            require,
            accept,
            seed: entropy.number(),
        });
        let timing = settings.timing;
        Self {
            tunnel,
            started: false,
            side,
            phase: Phase::Establish,
            lcp: Negotiation::new(lcp, timing),
            login: None,
            authenticator: None,
            user: None,
            master: None,
            keyed: false,
            ccp: None,
            ccp_ack: None,
            ip,
            ipcp: Negotiation::new(Ipcp::new(ip), timing),
            early: None,
            encryptor: None,
            decryptor: None,
            framing: Framing::default(),
            mtu: 0,
            heard: None,
            id: 0,
            echo: None,
            echoes: 0,
            reset: None,
            failing: None,
            opened: false,
            several: Several::Unasked,
            counters: LinkCounters::default(),
            settings,
            entropy,
        }
    }

    /// Starts the link, because GRE packets may flow.
    pub fn start(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.started = true;
        let mut signals = Vec::new();
        self.lcp.open(now, &mut signals);
        self.lcp_signals(signals, now, out);
    }

    /// Ends the link and tells the peer.
    pub fn stop(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.fail(DownReason::Local, now, out);
    }

    /// Counters of the link.
    #[must_use]
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Whether packets can be sent.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.mtu > 0
    }

    /// The counters of GRE.
    #[must_use]
    pub const fn tunnel_counters(&self) -> &gre::Counters {
        self.tunnel.counters()
    }

    /// The key, our call ID and the peer's for probes, if both ends agree to several lines.
    pub(super) fn probes(&self) -> Option<(ProbeKey, u16, u16)> {
        let (call_id, peer_call_id) = self.tunnel.call_ids();
        Some((self.probe_key()?, call_id, peer_call_id))
    }

    /// When the peer was last heard, the silence before an Echo-Request, and the silence before the call ends.
    #[must_use]
    pub fn heard(&self) -> Option<(Instant, Duration, Duration)> {
        let interval = self.settings.echo_interval;
        let asked = u32::from(self.settings.echo_failures);
        Some((self.heard?, interval, interval * (asked + 1)))
    }

    /// The likely reason why the other end has ended its call.
    pub(super) fn likely_reason(&self) -> Option<DownReason> {
        if self.heard.is_none() {
            return Some(DownReason::NoGre);
        }
        self.lcp.failure().cloned().map(DownReason::Lcp)
    }

    /// When [`expire`](Self::expire) must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.phase == Phase::Dead {
            return None;
        }
        [
            self.lcp.deadline(),
            self.login.as_ref().and_then(Login::deadline),
            self.authenticator
                .as_ref()
                .and_then(Authenticator::deadline),
            self.ccp.as_ref().and_then(Negotiation::deadline),
            self.ccp_ack.as_ref().map(|(due, _)| *due),
            self.ipcp.deadline(),
            self.echo,
            self.reset,
            self.several.deadline(),
            self.tunnel.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles timers that are due. An early call does nothing.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        door: Option<&mut Door<'_>>,
        out: &mut Vec<LinkOutput>,
    ) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let mut signals = Vec::new();
        self.lcp.expire(now, &mut signals);
        self.lcp_signals(signals, now, out);
        let authenticator = self.authenticator.as_mut().zip(door);
        let step = match (&mut self.login, authenticator) {
            (Some(login), _) => login.expire(now),
            (None, Some((authenticator, door))) => authenticator.expire(now, door),
            (None, None) => None,
        };
        self.login_step(step, now, out);
        if self.phase == Phase::Dead {
            return;
        }
        self.expire_network(now, out);
        self.expire_several(now, out);
        self.expire_echo(now, out);
        self.acknowledge(now, out);
    }

    /// Sends an acknowledgement by itself, if one is due.
    pub(super) fn acknowledge(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if let Some((header, len)) = self.tunnel.expire(now) {
            out.push(LinkOutput::Gre(header[..len].to_vec()));
        }
    }

    fn expire_echo(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if self.phase == Phase::Dead || self.echo.is_none_or(|due| due > now) {
            return;
        }
        if self.echoes >= self.settings.echo_failures {
            self.fail(DownReason::EchoTimeOut, now, out);
            return;
        }
        self.echoes += 1;
        self.echo = Some(now + self.settings.echo_interval);
        self.ask_echo(out);
    }

    /// Sends an Echo-Request to check that the peer is alive.
    pub(super) fn ask_echo(&mut self, out: &mut Vec<LinkOutput>) {
        self.id = self.id.wrapping_add(1);
        let magic = self.lcp.layer().ours().magic.to_be_bytes();
        let request = self.packet(lcp_code::ECHO_REQUEST, self.id, &magic);
        self.send(protocol::LCP, &request, out);
    }

    /// Records a sign of life from the peer.
    pub(super) fn alive(&mut self, now: Instant) {
        self.heard = Some(now);
        self.echoes = 0;
        if self.echo.is_some() {
            self.echo = Some(now + self.settings.echo_interval);
        }
    }

    pub(super) fn lcp_signals(
        &mut self,
        signals: Vec<Signal>,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        let mut end = None;
        for signal in signals {
            match signal {
                Signal::Send(packet) => self.send(protocol::LCP, &packet, out),
                Signal::Up => self.lcp_up(now, out),
                Signal::Down => {
                    self.network_down(now);
                    self.phase = Phase::Establish;
                    if matches!(self.lcp.state(), State::Stopping | State::Closing) {
                        let failure = self.lcp.failure().cloned();
                        let failure = failure.unwrap_or(Failure::Rejected);
                        end = Some(DownReason::Lcp(failure));
                    }
                }
                Signal::Finished(Failure::NoAnswer) if self.heard.is_none() => {
                    end = Some(DownReason::NoGre);
                }
                Signal::Finished(failure) => end = Some(DownReason::Lcp(failure)),
            }
        }
        // The link ends last, so that messages to the peer come first.
        if let Some(reason) = end {
            self.die(reason, out);
        }
    }

    fn lcp_up(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        let peer = *self.lcp.layer().peer();
        self.framing = Framing {
            acfc: peer.acfc,
            pfc: peer.pfc,
        };
        self.phase = Phase::Authenticate;
        self.echoes = 0;
        self.echo = Some(now + self.settings.echo_interval);
        let until = now + self.settings.login_timeout;
        match &self.side {
            Side::Client { user, password } => match peer.auth {
                Some(auth) => {
                    let mut login = Login::new(auth, user.clone(), password.clone(), until);
                    let step = login.start(now);
                    self.login = Some(login);
                    self.login_step(step, now, out);
                }
                None if self.settings.encryption.bits().is_some() => {
                    self.fail(DownReason::NoLogin, now, out);
                }
                None => self.network_up(now, out),
            },
            Side::Server { name } => {
                // A server always requires a login, because LCP does not open without one.
                let auth = self.lcp.layer().ours().auth.unwrap_or(Auth::MsChapV2);
                let name = name.clone();
                let mut authenticator = Authenticator::new(auth, name, until, &self.entropy);
                let step = authenticator.start(now);
                self.authenticator = Some(authenticator);
                self.login_step(step, now, out);
            }
        }
    }

    /// Carries out a step of the login, at either end.
    pub(super) fn login_step(
        &mut self,
        step: Option<Step>,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        let server = || self.authenticator.as_ref().map(Authenticator::auth);
        let auth = self.login.as_ref().map(Login::auth).or_else(server);
        let Some((step, auth)) = step.zip(auth) else {
            return;
        };
        let (answer, result) = match step {
            Step::Send(packet) => return self.send(auth.protocol(), &packet, out),
            Step::Done { answer, user, key } => (answer, Ok((user, key))),
            Step::Failed(answer, error) => (answer, Err(error)),
        };
        if let Some(packet) = answer {
            self.send(auth.protocol(), &packet, out);
        }
        match result {
            Ok((user, key)) => {
                self.master = key;
                self.user = user;
                match self.side {
                    Side::Client { .. } => self.network_up(now, out),
                    Side::Server { .. } => out.push(LinkOutput::LoggedIn),
                }
            }
            Err(error) => self.fail(DownReason::Login(error), now, out),
        }
    }

    /// Assigns an address to a client that has logged in.
    pub(super) fn admit(&mut self, client: Ipv4Addr, now: Instant, out: &mut Vec<LinkOutput>) {
        if self.phase != Phase::Authenticate {
            return;
        }
        let ip = IpcpSettings {
            peer: Some(client),
            ..self.ip
        };
        self.ipcp = Negotiation::new(Ipcp::new(ip), self.settings.timing);
        self.network_up(now, out);
    }

    /// Ends the link for a reason that the peer is told.
    pub(super) fn fail(&mut self, reason: DownReason, now: Instant, out: &mut Vec<LinkOutput>) {
        if self.phase == Phase::Dead {
            return;
        }
        let text = match &reason {
            DownReason::Login(LoginError::Denied) => "access denied",
            DownReason::NoEncryption(_) | DownReason::NoLogin => "encryption is required",
            DownReason::Ipcp(_) | DownReason::NoAddress => "no address",
            _ => "",
        };
        let mut signals = Vec::new();
        self.lcp.close(text, now, &mut signals);
        for signal in signals {
            if let Signal::Send(packet) = signal {
                self.send(protocol::LCP, &packet, out);
            }
        }
        self.die(reason, out);
    }

    fn die(&mut self, reason: DownReason, out: &mut Vec<LinkOutput>) {
        if self.phase == Phase::Dead {
            return;
        }
        self.phase = Phase::Dead;
        self.mtu = 0;
        self.encryptor = None;
        self.decryptor = None;
        self.master = None;
        self.login = None;
        self.authenticator = None;
        out.push(LinkOutput::Down(reason));
    }

    /// Sends a packet of a control protocol.
    pub(super) fn send(&mut self, protocol: u16, packet: &[u8], out: &mut Vec<LinkOutput>) {
        let (head, head_len) = self.framing.header(protocol);
        // A control packet answers the contents of one packet, so it fits 16 bits.
        let len = u16::try_from(head_len + packet.len()).unwrap_or(u16::MAX);
        let (header, header_len) = self.tunnel.header(len);
        let packet = &packet[..usize::from(len) - head_len];
        let parts = [&header[..header_len], &head[..head_len], packet];
        out.push(LinkOutput::Gre(parts.concat()));
    }

    pub(super) fn packet(&self, code: u8, id: u8, data: &[u8]) -> Vec<u8> {
        crate::ppp::Packet { code, id, data }.to_vec()
    }
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link")
            .field("phase", &self.phase)
            .field("lcp", &self.lcp.state())
            .field("ccp", &self.ccp.as_ref().map(Negotiation::state))
            .field("ipcp", &self.ipcp.state())
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}
