//! Negotiates the use of several lines between both ends of a link, with Vendor-Specific packets of LCP (RFC 2153).
//!
//! | bytes | field |
//! |---|---|
//! | 4 | code 0, identifier, length: as in each packet of LCP |
//! | 4 | the sender's magic number |
//! | 3 | `02-4d-52`, an OUI that is locally administered |
//! | 1 | kind: 1 asks, 2 agrees |
//! | 1 | version: 1 |
//!
//! A client asks once the link is up; a server that agrees answers. Other peers send a Code-Reject (RFC 1661, section
//! 5.6) or no answer.

use std::time::{Duration, Instant};

use crate::lines::ProbeKey;
use crate::mppe::MasterKey;
use crate::ppp::{Packet, code, protocol};
use crate::session::link::{Link, LinkOutput, Several, Side};

/// Code of Vendor-Specific packets (RFC 2153, section 2).
const VENDOR_SPECIFIC: u8 = 0;
const OUI: [u8; 3] = [0x02, b'M', b'R'];
const ASKS: u8 = 1;
const AGREES: u8 = 2;
const VERSION: u8 = 1;

/// How many times a client asks, and how long it waits for each answer.
const TRIES: u8 = 5;
const REPEAT: Duration = Duration::from_secs(1);

impl Link {
    /// The key of probes, if both ends agree to several lines.
    pub(super) fn probe_key(&self) -> Option<ProbeKey> {
        let agreed = self.several == Several::Agreed;
        self.master
            .as_ref()
            .filter(|_| agreed)
            .map(MasterKey::probe_key)
    }

    /// Whether there are keys. Without MPPE no key could authenticate further lines.
    const fn has_keys(&self) -> bool {
        self.encryptor.is_some() && self.master.is_some()
    }

    /// Asks the server once the link is up, if this is a client that has not asked yet.
    pub(super) fn offer_lines(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        let asks = self.settings.lines && matches!(self.side, Side::Client { .. });
        if !asks || self.several != Several::Unasked {
            return;
        }
        if self.has_keys() {
            self.several = Several::Asked {
                left: TRIES,
                at: now,
            };
            self.expire_several(now, out);
        } else {
            self.several = Several::Refused;
            out.push(LinkOutput::Lines(false));
        }
    }

    pub(super) fn expire_several(&mut self, now: Instant, out: &mut Vec<LinkOutput>) {
        let Several::Asked { left, at } = self.several else {
            return;
        };
        if at > now {
            return;
        }
        match left.checked_sub(1) {
            None => self.refused_lines(out),
            Some(left) => {
                let at = now + REPEAT;
                self.several = Several::Asked { left, at };
                self.send_vendor(ASKS, out);
            }
        }
    }

    fn refused_lines(&mut self, out: &mut Vec<LinkOutput>) {
        if let Several::Asked { .. } = self.several {
            self.several = Several::Refused;
            out.push(LinkOutput::Lines(false));
        }
    }

    fn send_vendor(&mut self, kind: u8, out: &mut Vec<LinkOutput>) {
        self.id = self.id.wrapping_add(1);
        let magic = self.lcp.layer().ours().magic.to_be_bytes();
        let data = [&magic[..], &OUI, &[kind, VERSION]].concat();
        let packet = self.packet(VENDOR_SPECIFIC, self.id, &data);
        self.send(protocol::LCP, &packet, out);
    }

    /// Takes an LCP packet. Returns whether it was a packet of this extension, including a rejection of ours; the
    /// negotiation must ignore it then.
    pub(super) fn receive_vendor(&mut self, information: &[u8], out: &mut Vec<LinkOutput>) -> bool {
        let Some(packet) = Packet::parse(information).filter(|_| self.settings.lines) else {
            return false;
        };
        if packet.code == code::CODE_REJECT && packet.data.first() == Some(&VENDOR_SPECIFIC) {
            self.refused_lines(out);
        }
        if packet.code != VENDOR_SPECIFIC || !self.lcp.is_open() {
            return false;
        }
        let said = packet
            .data
            .get(4..)
            .and_then(|rest| rest.strip_prefix(&OUI));
        let Some([kind, version, ..]) = said.filter(|_| self.is_up() && self.has_keys()) else {
            self.counters.unexpected += 1;
            return true;
        };
        match (&self.side, *kind, *version) {
            (Side::Server { .. }, ASKS, VERSION) => {
                self.send_vendor(AGREES, out);
                if self.several != Several::Agreed {
                    self.several = Several::Agreed;
                    out.push(LinkOutput::Lines(true));
                }
            }
            (Side::Client { .. }, AGREES, VERSION) if self.several != Several::Agreed => {
                self.several = Several::Agreed;
                out.push(LinkOutput::Lines(true));
            }
            _ => self.counters.unexpected += 1,
        }
        true
    }
}
