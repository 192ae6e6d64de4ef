//! The MTU of a tunnel's interface: its value and reason, and how it follows the uplink.

use netio::netlink::NetlinkError;

use crate::facts::Facts;
use crate::system::System;
use crate::want::{Mtu, Want};

/// Minimum MTU of IPv6, in bytes: below it the kernel removes IPv6 from an interface (RFC 8200, section 5).
pub(crate) const IPV6_MTU_MIN: u32 = 1280;

/// Minimum and maximum MTU of an IPv4 interface in bytes.
const MTU_RANGE: (u32, u32) = (68, 65535);

/// MTU assumed for an unknown uplink, in bytes.
const MTU_USUAL: u32 = 1500;

/// The MTU that an interface should have, and why.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TunnelMtu {
    /// The MTU, in bytes.
    pub bytes: u32,
    /// Reason for the MTU, in words.
    pub reason: String,
    /// The configuration sets the MTU; it is not derived.
    configured: bool,
    /// A path is known from which the MTU is derived.
    known: bool,
    /// The smallest and the largest MTU that are possible without probes, in bytes.
    range: (u32, u32),
}

impl TunnelMtu {
    /// The MTU for the tunnel of `want` on the host of `facts`.
    #[must_use]
    pub fn new(want: &Want, facts: &Facts) -> Self {
        let overhead = match want.mtu {
            Mtu::Exact(bytes) => {
                return Self {
                    bytes,
                    reason: "as configured".to_owned(),
                    configured: true,
                    known: true,
                    range: (bytes, bytes),
                };
            }
            Mtu::Path { overhead } => overhead,
        };
        let ways = facts.endpoints.iter();
        let ways = ways.filter_map(|way| Some((Some(way.addr), way.mtu.as_ref()?)));
        // The widest, as wg-quick chooses: path MTU discovery handles the narrow ones.
        let widest = ways.max_by_key(|(_, line)| line.bytes());
        let line = widest.or_else(|| Some((None, facts.default_line.as_ref()?)));
        let outer = line.map_or(MTU_USUAL, |(_, line)| line.bytes());
        let bytes = outer.saturating_sub(overhead);
        let mut reason = match line {
            None => format!("no uplink is known: {outer} less {overhead}"),
            Some((addr, line)) if outer < line.mtu => {
                let to = addr.map_or_else(|| "anywhere".to_owned(), |addr| addr.to_string());
                format!(
                    "path MTU to {to} through {} {outer} less {overhead}",
                    line.device
                )
            }
            Some((_, line)) => format!("{} {outer} less {overhead}", line.device),
        };
        let v6 = facts.ipv6 && want.has_v6();
        let least = if v6 { IPV6_MTU_MIN } else { MTU_RANGE.0 };
        if v6 && bytes < least {
            reason = format!("the minimum for IPv6; {reason} would be {bytes}");
        }
        let most = bytes.clamp(least, MTU_RANGE.1);
        let mut bytes = most;
        if let Some(path) = want.probed.filter(|path| path.bytes < most) {
            bytes = path.bytes.max(least);
            reason = format!(
                "path to {} carries {} less {}, probed",
                path.to,
                path.bytes + path.overhead,
                path.overhead
            );
        }
        Self {
            bytes,
            reason,
            configured: false,
            known: line.is_some(),
            range: (least, most),
        }
    }

    /// The smallest and largest possible MTU, in bytes, as far as is known without probes. `None` if the MTU is not
    /// derived or no uplink is known.
    #[must_use]
    pub fn range(&self) -> Option<(u32, u32)> {
        (self.known && !self.configured).then_some(self.range)
    }

    /// Why an interface has an MTU of `bytes`, in words. The last value set was this one.
    #[must_use]
    pub fn why(&self, bytes: u32) -> String {
        if bytes == self.bytes {
            return self.reason.clone();
        }
        let Self {
            bytes: own, reason, ..
        } = self;
        format!("set by another program; would be {own}: {reason}")
    }
}

/// The decision about an MTU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Decision {
    Set,
    Keep,
    /// Leaves the MTU alone: another program has set it.
    Leave,
}

/// Keeps the MTU of a tunnel's interface what the uplink needs. A value that another program sets stays until that
/// program restores the old one.
#[derive(Debug, Default)]
pub struct MtuFollower {
    /// The value that was wanted last.
    wanted: TunnelMtu,
    /// The value that was set last, in bytes; 0 before.
    set: u32,
    /// The last value that was reported as another program's.
    told: Option<u32>,
}

impl MtuFollower {
    /// The value that was wanted last.
    #[must_use]
    pub fn wanted(&self) -> &TunnelMtu {
        &self.wanted
    }

    /// Updates the interface's MTU. Call it whenever something has changed that `facts` were gathered from.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses the MTU.
    pub fn follow(
        &mut self,
        want: &Want,
        facts: &Facts,
        system: &mut dyn System,
    ) -> Result<(), NetlinkError> {
        let ifname = &facts.interface;
        let wanted = TunnelMtu::new(want, facts);
        let dev = system.index_of(ifname)?;
        let (_, now) = system.device(dev)?;
        let decision = self.decide(&wanted, now);
        if decision == Decision::Set {
            system.set_mtu(dev, wanted.bytes)?;
            log::info!(
                "{ifname}: the MTU is {} ({}), and was {now}",
                wanted.bytes,
                wanted.reason
            );
        }
        if decision == Decision::Leave && self.told.replace(now) != Some(now) {
            log::warn!(
                "{ifname}: another program has set the MTU to {now}, which is kept; Millrace would set {} ({})",
                wanted.bytes,
                wanted.reason
            );
        }
        match decision {
            Decision::Set => (self.set, self.told) = (wanted.bytes, None),
            Decision::Keep => (self.set, self.told) = (now, None),
            Decision::Leave => {}
        }
        if wanted.known || self.set == 0 {
            self.wanted = wanted;
        }
        Ok(())
    }

    /// Starts with the MTU of these facts, which has been set already.
    pub fn begin(&mut self, want: &Want, facts: &Facts) {
        self.wanted = TunnelMtu::new(want, facts);
        self.set = self.wanted.bytes;
    }

    fn decide(&self, wanted: &TunnelMtu, now: u32) -> Decision {
        let first = self.set == 0;
        // The owner has changed the setting.
        let written = wanted.configured != self.wanted.configured
            || (wanted.configured && wanted.bytes != self.wanted.bytes);
        if now == wanted.bytes {
            Decision::Keep
        } else if first || written {
            Decision::Set
        } else if now != self.set {
            Decision::Leave
        } else if wanted.known {
            Decision::Set
        } else {
            // The uplink is down, and may come back.
            Decision::Keep
        }
    }
}

#[cfg(test)]
mod tests;
