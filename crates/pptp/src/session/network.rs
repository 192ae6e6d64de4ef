//! The network phase of a link: encryption first, if it is required, then addresses (RFC 1661, section 3.6; RFC 1962),
//! and the link's MTU.

use std::time::{Duration, Instant};

use crate::gre::MAX_HEADER_LEN;
use crate::mppe::{Decryptor, Encryptor, KeyLength, OVERHEAD};
use crate::ppp::{
    Ccp, Failure, MppeBits, Negotiation, Packet, RESET_ACK, RESET_REQUEST, Signal, code, protocol,
};
use crate::session::link::{Link, LinkOutput, Phase, Several, Side};
use crate::session::output::{DownReason, Protection, Up};

/// Time between Reset-Requests.
const RESET_REPEAT: Duration = Duration::from_secs(1);

impl Link {
    /// Starts the network phase after the login.
    pub(super) fn network_up(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.phase = Phase::Network;
        let Some((bits, stateful)) = self.settings.encryption.bits() else {
            self.open_ip(now, out);
            return;
        };
        if self.master.is_none() {
            self.fail(DownReason::NoEncryption(Failure::NoAgreement), now, out);
            return;
        }
        let mut ccp = Negotiation::new(Ccp::new(bits, stateful), self.settings.timing);
        let mut signals = Vec::new();
        ccp.open(now, &mut signals);
        self.ccp = Some(ccp);
        self.ccp_signals(signals, now, out);
        if let Some(packet) = self.early.take() {
            self.receive_ccp(&packet, now, out);
        }
    }

    /// Resets everything above LCP, because LCP is down.
    pub(super) fn network_down(&mut self, now: Instant) {
        self.mtu = 0;
        self.login = None;
        self.authenticator = None;
        self.master = None;
        self.keyed = false;
        self.ccp = None;
        self.ccp_ack = None;
        self.early = None;
        self.close_encryption();
        self.several = Several::Unasked;
        self.echo = None;
        self.framing = crate::ppp::Framing::default();
        self.ipcp.lower_down(now, &mut Vec::new());
    }

    fn close_encryption(&mut self) {
        self.encryptor = None;
        self.decryptor = None;
        self.reset = None;
        self.failing = None;
        self.opened = false;
    }

    /// Whether the required encryption is in place.
    pub(super) fn is_protected(&self) -> bool {
        self.settings.encryption.bits().is_none()
            || (self.encryptor.is_some() && self.ccp_ack.is_none())
    }

    fn open_ip(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        let mut signals = Vec::new();
        self.ipcp.open(now, &mut signals);
        self.ipcp_signals(signals, now, out);
        if let Some(packet) = self.early.take() {
            self.receive_ipcp(&packet, now, out);
        }
    }

    pub(super) fn expire_network(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if self.ccp_ack.as_ref().is_some_and(|(due, _)| *due <= now)
            && let Some((_, packet)) = self.ccp_ack.take()
        {
            self.send(protocol::CCP, &packet, out);
            self.begin_protected(now, out);
        }
        let mut signals = Vec::new();
        if let Some(ccp) = &mut self.ccp {
            ccp.expire(now, &mut signals);
        }
        self.ccp_signals(core::mem::take(&mut signals), now, out);
        self.ipcp.expire(now, &mut signals);
        self.ipcp_signals(signals, now, out);
        if self.reset.is_some_and(|due| due <= now) {
            self.reset = None;
            if self.decryptor.as_ref().is_some_and(Decryptor::is_broken) {
                self.request_reset(now, out);
            }
        }
    }

    pub(super) fn receive_ccp(
        &mut self,
        information: &[u8],
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        let mut signals = Vec::new();
        let Some(ccp) = &mut self.ccp else {
            return;
        };
        let extra = ccp.receive(information, now, &mut signals);
        // Only the packet that follows a Reset-Ack matters, so the Reset-Ack is ignored.
        if let Some(Packet {
            code: RESET_REQUEST,
            id,
            ..
        }) = extra
        {
            self.counters.resets += 1;
            let style = self.decryptor.as_ref().map(Decryptor::style);
            if let Some(encryptor) = &mut self.encryptor {
                encryptor.reset(style.unwrap_or_default());
            }
            let ack = self.packet(RESET_ACK, id, &[]);
            self.send(protocol::CCP, &ack, out);
        }
        self.ccp_signals(signals, now, out);
    }

    pub(super) fn request_reset(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        self.counters.resets += 1;
        self.id = self.id.wrapping_add(1);
        let request = self.packet(RESET_REQUEST, self.id, &[]);
        self.send(protocol::CCP, &request, out);
        self.reset = Some(now + RESET_REPEAT);
    }

    pub(super) fn ccp_signals(
        &mut self,
        signals: Vec<Signal>,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        for signal in signals {
            match signal {
                Signal::Send(packet) => {
                    let delay = self.settings.ccp_ack_delay;
                    if packet.first() == Some(&code::CONFIGURE_ACK) && !delay.is_zero() {
                        let due = self.ccp_ack.take().map_or(now + delay, |(due, _)| due);
                        self.ccp_ack = Some((due, packet));
                    } else {
                        self.send(protocol::CCP, &packet, out);
                    }
                }
                // Encrypting other packets with the same keys would reveal both to an eavesdropper.
                Signal::Up if self.keyed => {
                    self.fail(DownReason::KeysUsed, now, out);
                    return;
                }
                Signal::Up => {
                    self.make_keys();
                    self.begin_protected(now, out);
                }
                Signal::Down => {
                    self.mtu = 0;
                    self.ccp_ack = None;
                    self.close_encryption();
                }
                Signal::Finished(failure) => {
                    self.fail(DownReason::NoEncryption(failure), now, out);
                }
            }
        }
    }

    fn make_keys(&mut self) {
        let (Some(ccp), Some(master)) = (&self.ccp, &self.master) else {
            return;
        };
        self.keyed = true;
        let client = matches!(self.side, Side::Client { .. });
        let start = |bits, from_client| master.start_key(from_client, key_length(bits));
        let (send, receive) = (ccp.layer().send(), ccp.layer().receive());
        let stateless = |bits: MppeBits| bits.has(MppeBits::STATELESS);
        self.encryptor = Some(Encryptor::new(start(send, client), stateless(send)));
        self.decryptor = Some(Decryptor::new(start(receive, !client), stateless(receive)));
    }

    /// Begins IP negotiation if encryption is in place, also after the peer renegotiated it.
    fn begin_protected(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if !self.is_protected() {
            return;
        }
        if self.ipcp.is_open() {
            self.report_up(now, out);
        } else {
            self.open_ip(now, out);
        }
    }

    pub(super) fn receive_ipcp(
        &mut self,
        information: &[u8],
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        if !self.is_protected() && !self.ipcp.is_open() {
            self.early = Some(information.to_vec());
            return;
        }
        let mut signals = Vec::new();
        self.ipcp.receive(information, now, &mut signals);
        self.ipcp_signals(signals, now, out);
    }

    pub(super) fn ipcp_signals(
        &mut self,
        signals: Vec<Signal>,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) {
        for signal in signals {
            match signal {
                Signal::Send(packet) => self.send(protocol::IPCP, &packet, out),
                Signal::Up => self.report_up(now, out),
                Signal::Down => self.mtu = 0,
                Signal::Finished(failure) => self.fail(DownReason::Ipcp(failure), now, out),
            }
        }
    }

    fn report_up(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        if !self.is_protected() {
            return;
        }
        let lcp = self.lcp.layer();
        let mru = lcp.peer().mru.min(lcp.ours().mru);
        self.mtu = mtu(self.settings.path_mtu, mru, self.encryptor.is_some()).max(1);
        let protection = self.ccp.as_ref().map(|ccp| {
            let bits = ccp.layer().send();
            Protection {
                key: key_length(bits),
                stateless: bits.has(MppeBits::STATELESS),
            }
        });
        let ipcp = self.ipcp.layer();
        out.push(LinkOutput::Up(Up {
            address: ipcp.address(),
            peer: ipcp.peer(),
            dns: ipcp.dns(),
            mtu: self.mtu,
            protection,
            user: self.user.clone(),
        }));
        self.offer_lines(now, out);
    }
}

fn key_length(bits: MppeBits) -> KeyLength {
    if bits.has(MppeBits::KEY_128) {
        KeyLength::Bits128
    } else if bits.has(MppeBits::KEY_56) {
        KeyLength::Bits56
    } else {
        KeyLength::Bits40
    }
}

/// Bytes of an outer IPv4 header.
const OUTER: u16 = 20;

/// The longest inner packet in bytes. It must fit an outer IP packet of `path` bytes after IP, GRE with both numbers
/// and an unshortened frame, and the smaller `mru` of both ends (RFC 1661, section 6.1). Encryption costs 4 bytes of
/// the information field.
#[must_use]
pub fn mtu(path: u16, mru: u16, encrypted: bool) -> u16 {
    // The headers are a few bytes long, so the casts are exact.
    let around = OUTER + MAX_HEADER_LEN as u16 + 4;
    let inside = if encrypted { OVERHEAD as u16 } else { 0 };
    path.saturating_sub(around).min(mru).saturating_sub(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_ethernet_the_path_decides_between_stock_peers() {
        // 20 IP, 16 GRE, 4 PPP, 2 MPPE, 2 inner protocol.
        assert_eq!(mtu(1500, 1500, true), 1456);
        assert_eq!(mtu(1500, 1500, false), 1460);
    }

    #[test]
    fn the_smaller_mru_decides_where_the_path_does_not() {
        assert_eq!(mtu(1500, 1400, true), 1396);
        assert_eq!(mtu(0, 1400, true), 0);
    }
}
