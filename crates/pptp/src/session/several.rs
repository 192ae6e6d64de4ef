//! How both ends of a link learn that both know of several lines: by Vendor-Specific packets of LCP (RFC 2153).
//!
//! | bytes | field |
//! |---|---|
//! | 4 | code 0, identifier, length: as in each packet of LCP |
//! | 4 | the sender's magic number |
//! | 3 | `02-4d-52`, an OUI that is locally administered |
//! | 1 | kind: 1 asks, 2 agrees |
//! | 1 | version: 1 |
//!
//! A client asks, once the link is up; a server that agrees answers. A peer that knows nothing of it sends a Code-Reject
//! (RFC 1661, section 5.6) or nothing.

use std::time::{Duration, Instant};

use crate::lines::ProbeKey;
use crate::mppe::MasterKey;
use crate::ppp::{Packet, protocol};
use crate::session::link::{Link, LinkOutput, Side};

/// RFC 2153, section 2.
const VENDOR_SPECIFIC: u8 = 0;
/// RFC 1661, section 5.6.
const CODE_REJECT: u8 = 7;
const OUI: [u8; 3] = [0x02, b'M', b'R'];
const ASKS: u8 = 1;
const AGREES: u8 = 2;
const VERSION: u8 = 1;

/// How often a server is asked, and how long an answer is waited for.
const TRIES: u8 = 5;
const REPEAT: Duration = Duration::from_secs(1);

/// Whether both ends know of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Several {
    Unasked,
    Asked {
        /// So many times more.
        left: u8,
        /// Then.
        at: Instant,
    },
    Agreed,
    Refused,
}

impl Several {
    pub(super) const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Asked { at, .. } => Some(at),
            _ => None,
        }
    }
}

impl Link {
    /// The key of probes, where both ends agree to several lines.
    pub(super) fn probe_key(&self) -> Option<ProbeKey> {
        let agreed = self.several == Several::Agreed;
        self.master
            .as_ref()
            .filter(|_| agreed)
            .map(MasterKey::probe_key)
    }

    /// Whether there are keys. Without MPPE there is nothing that a further line could be told by.
    const fn has_keys(&self) -> bool {
        self.encryptor.is_some() && self.master.is_some()
    }

    /// The link is up: a client asks the server, unless it has.
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

    /// Takes a packet of LCP. Returns whether it was one of these, and nothing for the negotiation. A rejection of ours is
    /// for that too.
    pub(super) fn receive_vendor(&mut self, information: &[u8], out: &mut Vec<LinkOutput>) -> bool {
        let Some(packet) = Packet::parse(information).filter(|_| self.settings.lines) else {
            return false;
        };
        if packet.code == CODE_REJECT && packet.data.first() == Some(&VENDOR_SPECIFIC) {
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
