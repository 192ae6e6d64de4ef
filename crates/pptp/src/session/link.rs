//! One PPP link: LCP, a login, CCP and IPCP (RFC 1661, section 3).

use std::net::Ipv4Addr;
use std::time::Instant;

use crate::mppe::{Decryptor, Encryptor, MasterKey};
use crate::mschap::Password;
use crate::ppp::{
    Auth, Ccp, Failure, Framing, Ipcp, IpcpSettings, Lcp, LcpSettings, Negotiation, Signal, State,
    lcp_code, protocol,
};
use crate::session::authenticator::{self, Authenticator, Door};
use crate::session::login::{self, Login};
use crate::session::output::{DownReason, LoginError, Up};
use crate::session::settings::{Entropy, LinkSettings};

/// Actions that a link requests from its caller, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    /// Send this frame to the peer.
    Frame(Vec<u8>),
    /// A client has logged in to this server. The caller must admit it with an address, or end the link.
    LoggedIn,
    /// The link carries packets; repeated if the peer renegotiates.
    Up(Up),
    /// Whether the peer agrees to several lines. Follows `Up` if several are requested.
    Lines(bool),
    /// The peer has answered an Echo-Request.
    Echoed,
    /// The link has ended for good.
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
    /// The last IPCP packet that arrived before CCP was open.
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
        let mut signals = Vec::new();
        self.lcp.open(now, &mut signals);
        self.lcp_signals(signals, now, out);
    }

    /// Ends the link and tells the peer.
    pub fn stop(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.fail(DownReason::Local, now, out);
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Whether packets can be sent.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.mtu > 0
    }

    /// Whether the link has ended.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
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
        let step = self.login.as_mut().and_then(|login| login.expire(now));
        self.login_step(step, now, out);
        let authenticator = self.authenticator.as_mut().zip(door);
        let step = authenticator.and_then(|(auth, door)| auth.expire(now, door));
        self.authenticator_step(step, now, out);
        if self.phase == Phase::Dead {
            return;
        }
        self.expire_network(now, out);
        self.expire_several(now, out);
        self.expire_echo(now, out);
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

    /// Notes a sign of life from the peer.
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
                self.authenticator_step(step, now, out);
            }
        }
    }

    pub(super) fn login_step(
        &mut self,
        step: Option<login::Step>,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        let auth = self.login.as_ref().map_or(Auth::MsChapV2, Login::auth);
        match step {
            None => {}
            Some(login::Step::Send(packet)) => self.send(auth.protocol(), &packet, out),
            Some(login::Step::Done(key)) => {
                self.master = key;
                self.network_up(now, out);
            }
            Some(login::Step::Failed(error)) => self.fail(DownReason::Login(error), now, out),
        }
    }

    pub(super) fn authenticator_step(
        &mut self,
        step: Option<authenticator::Step>,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        let auth = self.authenticator.as_ref();
        let auth = auth.map_or(Auth::MsChapV2, Authenticator::auth);
        match step {
            None => {}
            Some(authenticator::Step::Send(packet)) => self.send(auth.protocol(), &packet, out),
            Some(authenticator::Step::Done(packet, user, key)) => {
                self.send(auth.protocol(), &packet, out);
                self.user = Some(user);
                self.master = key;
                out.push(LinkOutput::LoggedIn);
            }
            Some(authenticator::Step::Failed(packet, error)) => {
                if let Some(packet) = packet {
                    self.send(auth.protocol(), &packet, out);
                }
                self.fail(DownReason::Login(error), now, out);
            }
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
    pub(super) fn send(&self, protocol: u16, packet: &[u8], out: &mut Vec<LinkOutput>) {
        let mut frame = Vec::with_capacity(4 + packet.len());
        self.framing.write(protocol, &mut frame);
        frame.extend_from_slice(packet);
        out.push(LinkOutput::Frame(frame));
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
