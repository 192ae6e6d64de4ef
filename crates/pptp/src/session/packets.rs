//! Received frames and sent packets of a link.

use core::ops::Range;
use std::time::{Duration, Instant};

use crate::mppe::{HEADER_LEN, OVERHEAD, OpenError};
use crate::ppp::{Packet, Signal, lcp_code, parse_frame, protocol};
use crate::session::authenticator::Door;
use crate::session::link::{Link, LinkOutput, Phase};
use crate::session::output::{DownReason, SendError};

/// Consecutive decryption failures, and their duration, after which the link counts as out of step.
const MAX_FAILING: (u32, Duration) = (64, Duration::from_secs(3));
/// Maximum number of bytes of a rejected frame that the reject returns.
const MAX_REJECTED: usize = 64;

impl Link {
    /// Takes the payload of an IP packet of protocol 47. Returns the range of the decrypted inner packet.
    pub(super) fn receive(
        &mut self,
        packet: &mut [u8],
        now: Instant,
        door: Option<&mut Door<'_>>,
        out: &mut Vec<LinkOutput>,
    ) -> Option<Range<usize>> {
        let received = self.tunnel.receive(packet, now)?;
        let start = received.payload.start;
        let frame = &mut packet[received.payload];
        let inner = self.receive_frame(received.number, received.late, frame, now, door, out);
        self.acknowledge(now, out);
        inner.map(|inner| start + inner.start..start + inner.end)
    }

    /// Takes a frame. `number` is its GRE number; `late` if a higher number came before. Returns the range of the
    /// decrypted inner packet in the frame.
    fn receive_frame(
        &mut self,
        number: u64,
        late: bool,
        frame: &mut [u8],
        now: Instant,
        door: Option<&mut Door<'_>>,
        out: &mut Vec<LinkOutput>,
    ) -> Option<Range<usize>> {
        if self.phase == Phase::Dead {
            return None;
        }
        self.alive(now);
        let Some((number_of_protocol, start)) = parse_frame(frame) else {
            self.counters.unexpected += 1;
            return None;
        };
        if number_of_protocol != protocol::MPPE
            && !late
            && let Some(decryptor) = &mut self.decryptor
        {
            decryptor.unencrypted();
        }
        match number_of_protocol {
            protocol::MPPE => return self.receive_encrypted(number, late, frame, start, now, out),
            protocol::IPV4 | protocol::IPV6 => {
                return self.receive_plain(number_of_protocol, start..frame.len());
            }
            _ => {}
        }
        let information = &frame[start..];
        if late && needs_order(number_of_protocol, information) {
            self.counters.late += 1;
            return None;
        }
        self.receive_control(number_of_protocol, information, now, door, out);
        None
    }

    fn receive_control(
        &mut self,
        number: u16,
        information: &[u8],
        now: Instant,
        door: Option<&mut Door<'_>>,
        out: &mut Vec<LinkOutput>,
    ) {
        match (number, self.phase) {
            (protocol::LCP, _) => self.receive_lcp(information, now, out),
            (_, Phase::Establish | Phase::Dead) => self.counters.unexpected += 1,
            (protocol::PAP | protocol::CHAP, _) => {
                let authenticator = self.authenticator.as_mut().zip(door);
                let step = match (&mut self.login, authenticator) {
                    (Some(login), _) if login.auth().protocol() == number => {
                        login.receive(information, now, &self.entropy)
                    }
                    (None, Some((it, door))) if it.auth().protocol() == number => {
                        it.receive(information, now, door)
                    }
                    _ => None,
                };
                self.login_step(step, now, out);
            }
            // The client is ahead of this server, which has not assigned an address yet.
            (protocol::CCP, Phase::Authenticate)
                if self.user.is_some() && self.settings.encryption.bits().is_some() =>
            {
                self.early = Some(information.to_vec());
            }
            // The peer may be ahead of us, because the answer to our login was lost. The peer will ask again.
            (_, Phase::Authenticate) => self.counters.unexpected += 1,
            (protocol::CCP, _) if self.ccp.is_some() => self.receive_ccp(information, now, out),
            (protocol::IPCP, _) => self.receive_ipcp(information, now, out),
            (_, Phase::Network) => self.reject(number, information, out),
        }
    }

    /// Sends a Protocol-Reject (RFC 1661, section 5.7).
    fn reject(&mut self, number: u16, information: &[u8], out: &mut Vec<LinkOutput>) {
        self.counters.rejected += 1;
        self.id = self.id.wrapping_add(1);
        let mut data = number.to_be_bytes().to_vec();
        data.extend_from_slice(&information[..information.len().min(MAX_REJECTED)]);
        let packet = self.packet(lcp_code::PROTOCOL_REJECT, self.id, &data);
        self.send(protocol::LCP, &packet, out);
    }

    fn receive_lcp(&mut self, information: &[u8], now: Instant, out: &mut Vec<LinkOutput>) {
        if self.receive_vendor(information, out) {
            return;
        }
        let mut signals = Vec::new();
        let extra = self.lcp.receive(information, now, &mut signals);
        match extra {
            Some(Packet {
                code: lcp_code::ECHO_REQUEST,
                id,
                data,
            }) => {
                // The reply has our magic number and the rest of the request (RFC 1661, section 5.8). A request with
                // our own magic number shows a loop.
                let magic = self.lcp.layer().ours().magic.to_be_bytes();
                if let Some((theirs, rest)) = data.split_first_chunk()
                    && (*theirs != magic || magic == [0; 4])
                {
                    let data = [&magic, rest].concat();
                    let reply = self.packet(lcp_code::ECHO_REPLY, id, &data);
                    self.send(protocol::LCP, &reply, out);
                }
            }
            Some(Packet {
                code: lcp_code::PROTOCOL_REJECT,
                data,
                ..
            }) => {
                if let Some((&number, _)) = data.split_first_chunk() {
                    self.rejected(u16::from_be_bytes(number), now, out);
                }
            }
            Some(Packet {
                code: lcp_code::ECHO_REPLY,
                ..
            }) => out.push(LinkOutput::Echoed),
            // These packets need no answer.
            Some(_) | None => {}
        }
        self.lcp_signals(signals, now, out);
    }

    /// Handles the peer's rejection of a protocol.
    fn rejected(&mut self, number: u16, now: Instant, out: &mut Vec<LinkOutput>) {
        let mut signals: Vec<Signal> = Vec::new();
        match number {
            protocol::CCP => {
                if let Some(ccp) = &mut self.ccp {
                    ccp.protocol_rejected(now, &mut signals);
                }
                self.ccp_signals(signals, now, out);
            }
            protocol::IPCP => {
                self.ipcp.protocol_rejected(now, &mut signals);
                self.ipcp_signals(signals, now, out);
            }
            protocol::MPPE if self.encryptor.is_some() => {
                self.fail(DownReason::MppeRejected, now, out);
            }
            _ => self.counters.unexpected += 1,
        }
    }

    fn receive_encrypted(
        &mut self,
        number: u64,
        late: bool,
        frame: &mut [u8],
        start: usize,
        now: Instant,
        out: &mut Vec<LinkOutput>,
    ) -> Option<Range<usize>> {
        let Some(decryptor) = &mut self.decryptor else {
            self.counters.unexpected += 1;
            return None;
        };
        match decryptor.open(number, late, &mut frame[start..]) {
            Ok(()) => {
                self.failing = None;
                self.opened = true;
                let inner = start + HEADER_LEN;
                let (number, at) = parse_frame(&frame[inner..])?;
                if !self.carries(number) {
                    self.counters.unexpected += 1;
                    return None;
                }
                self.counters.packets += 1;
                Some(inner + at..frame.len())
            }
            Err(OpenError::Late | OpenError::Duplicate) => {
                self.counters.late += 1;
                None
            }
            Err(error) => {
                self.counters.undecryptable += 1;
                // A garbled packet after good ones is probably forged; differing keys are less likely.
                let forged = error == OpenError::Garbled && self.opened && !decryptor.is_broken();
                let (since, count) = self.failing.unwrap_or((now, 0));
                if !forged {
                    self.failing = Some((since, count.saturating_add(1)));
                }
                if error == OpenError::Lost && decryptor.is_broken() {
                    self.request_reset(now, out);
                }
                let (most, long) = MAX_FAILING;
                if count >= most && now.saturating_duration_since(since) >= long {
                    self.fail(DownReason::OutOfStep, now, out);
                }
                None
            }
        }
    }

    fn receive_plain(&mut self, number: u16, place: Range<usize>) -> Option<Range<usize>> {
        if self.settings.encryption.bits().is_some() {
            self.counters.unencrypted += 1;
            None
        } else if self.carries(number) {
            self.counters.packets += 1;
            Some(place)
        } else {
            self.counters.unexpected += 1;
            None
        }
    }

    /// Whether the network protocol with this number was negotiated.
    fn carries(&self, number: u16) -> bool {
        number == protocol::IPV4 && self.ipcp.is_open()
    }

    /// Appends the payload of an IP packet of protocol 47 that carries an inner packet.
    pub(super) fn send_inner(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        self.check_outbound(packet)?;
        let (number, more) = match self.encryptor {
            Some(_) => (protocol::MPPE, OVERHEAD),
            None => (protocol::IPV4, 0),
        };
        let (head, head_len) = self.framing.header(number);
        let len = u16::try_from(head_len + more + packet.len());
        let len = len.map_err(|_| SendError::TooLong(self.mtu))?;
        let (header, header_len) = self.tunnel.header(len);
        out.extend_from_slice(&header[..header_len]);
        out.extend_from_slice(&head[..head_len]);
        let Some(encryptor) = &mut self.encryptor else {
            out.extend_from_slice(packet);
            return Ok(());
        };
        let header = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        let inner = out.len();
        out.extend_from_slice(&protocol::IPV4.to_be_bytes());
        out.extend_from_slice(packet);
        let bytes = encryptor.seal(&mut out[inner..]);
        out[header..inner].copy_from_slice(&bytes);
        Ok(())
    }

    fn check_outbound(&self, packet: &[u8]) -> Result<(), SendError> {
        if !self.is_up() || !self.is_protected() {
            return Err(SendError::NotUp);
        }
        if packet.first().is_none_or(|first| first >> 4 != 4) || !self.ipcp.is_open() {
            return Err(SendError::Protocol);
        }
        if packet.len() > usize::from(self.mtu) {
            return Err(SendError::TooLong(self.mtu));
        }
        Ok(())
    }
}

/// Whether a delayed packet would be misunderstood after a later one. PPP does not expect reordering: an old request
/// restarts a negotiation. Answers have identifiers, and echoes and resets are harmless.
fn needs_order(number: u16, information: &[u8]) -> bool {
    let negotiates = matches!(number, protocol::LCP | protocol::CCP | protocol::IPCP);
    negotiates && matches!(information.first(), Some(1 | 5..=8))
}
