//! Redirections: every packet that leaves or enters an interface goes to another one instead (tc(8): clsact, u32,
//! mirred).

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use super::request::Body;
use super::{Netlink, NetlinkError};

/// Bytes of `struct tcmsg`.
const HEADER_SIZE: usize = 20;

// Message types of linux/rtnetlink.h.
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;

// Handles of linux/pkt_sched.h: the queueing discipline that only carries filters, and its two places.
const TC_H_CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const AT_INGRESS: u32 = 0xffff_fff2;
const AT_EGRESS: u32 = 0xffff_fff3;

// Attributes of linux/rtnetlink.h, and within TCA_OPTIONS those of linux/pkt_cls.h.
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;

/// No other filter is asked after this one (`TC_U32_TERMINAL`).
const TERMINAL: u8 = 1;
/// The packet is ours (`TC_ACT_STOLEN`).
const STOLEN: u32 = 4;
// Actions of linux/tc_act/tc_mirred.h.
const TCA_EGRESS_REDIR: u32 = 1;
const TCA_INGRESS_REDIR: u32 = 3;

/// Priority of the filters, by which they are found again. No other program has a reason to use this number.
const PRIORITY: u32 = 0x4d72;
/// Number of the filter within its hash table. The kernel refuses a second one.
const NODE: u32 = 0x7a1;
/// All protocols (`ETH_P_ALL`), in network order.
const ALL: u16 = 3u16.to_be();

/// The direction in which packets pass both interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// Packets that leave one interface leave through the other.
    Leaving,
    /// Packets that enter by one interface enter by the other.
    Entering,
}

impl Netlink {
    /// Makes an interface ready for redirections. Returns whether this call has changed it, so that
    /// [`remove_clsact`](Self::remove_clsact) can undo that.
    ///
    /// # Errors
    /// The kernel lacks clsact, or the interface has a queueing discipline `ingress` (such as SQM's) in its place.
    pub fn add_clsact(&mut self, index: u32) -> Result<bool, NetlinkError> {
        let mut add = |flags| {
            self.change(
                RTM_NEWQDISC,
                &clsact(index),
                flags,
                "add clsact to interface",
                format_args!("number {index}"),
            )
        };
        let made = match add(NLM_F_CREATE | NLM_F_EXCL) {
            // The kernel refuses this one if the existing queueing discipline is of another kind.
            Err(error) if error.is_exists() => add(NLM_F_CREATE).map(|()| false),
            added => added.map(|()| true),
        };
        made.map_err(|error| error.about(self.label(index)))
    }

    /// Removes the place for redirections from an interface, and all filters in it.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_clsact(&mut self, index: u32) -> Result<(), NetlinkError> {
        let removed = self.change(
            RTM_DELQDISC,
            &clsact(index),
            0,
            "remove clsact from interface",
            format_args!("number {index}"),
        );
        removed.map_err(|error| error.about(self.label(index)))
    }

    /// Redirects all packets of the interface `from`, which [is ready](Self::add_clsact), to the interface `to`. Packets
    /// see the redirection whole or not at all. A second call adds nothing.
    ///
    /// # Errors
    /// The kernel lacks u32 or mirred, or has another kind of filter with this priority there.
    pub fn redirect(&mut self, from: u32, to: u32, which: Redirection) -> Result<(), NetlinkError> {
        let mut action = Body::attributes();
        action.push_text(TCA_ACT_KIND, "mirred");
        let parameters = Body::attributes().with(TCA_MIRRED_PARMS, &mirred(to, which));
        action.push_body(TCA_ACT_OPTIONS, &parameters);
        let mut actions = Body::attributes();
        // Actions are numbered from 1.
        actions.push_body(1, &action);
        let mut options = Body::attributes().with(TCA_U32_SEL, &everything());
        options.push_body(TCA_U32_ACT, &actions);
        let mut filter = filter(from, NODE, which);
        filter.push_body(TCA_OPTIONS, &options);
        let added = self.change(
            RTM_NEWTFILTER,
            &filter,
            NLM_F_CREATE | NLM_F_EXCL,
            "redirect the packets of interface",
            format_args!("number {from}"),
        );
        match added {
            Err(error) if !(error.is_exists() || error.errno() == Some(libc::ENOSPC)) => {
                Err(error.about(self.label(from)))
            }
            _ => Ok(()),
        }
    }

    /// Ends a redirection.
    ///
    /// # Errors
    /// [`NetlinkError::is_not_found`] if there is none.
    pub fn end_redirection(&mut self, from: u32, which: Redirection) -> Result<(), NetlinkError> {
        let ended = self.change(
            RTM_DELTFILTER,
            &filter(from, 0, which),
            0,
            "stop redirecting the packets of interface",
            format_args!("number {from}"),
        );
        ended.map_err(|error| error.about(self.label(from)))
    }
}

fn header(index: u32, handle: u32, parent: u32, info: u32) -> Body {
    let mut header = [0; HEADER_SIZE];
    for (place, number) in [(4, index), (8, handle), (12, parent), (16, info)] {
        header[place..place + 4].copy_from_slice(&number.to_ne_bytes());
    }
    Body::new(&header)
}

fn clsact(index: u32) -> Body {
    let mut qdisc = header(index, CLSACT_HANDLE, TC_H_CLSACT, 0);
    qdisc.push_text(TCA_KIND, "clsact");
    qdisc
}

/// A message about our filter at one place of an interface, or with node 0 about all of our priority.
fn filter(index: u32, node: u32, which: Redirection) -> Body {
    let parent = match which {
        Redirection::Leaving => AT_EGRESS,
        Redirection::Entering => AT_INGRESS,
    };
    let mut body = header(index, node, parent, PRIORITY << 16 | u32::from(ALL));
    body.push_text(TCA_KIND, "u32");
    body
}

/// `struct tc_u32_sel` with one key, which all packets match: no bit of their first four bytes is compared.
fn everything() -> [u8; 32] {
    let mut selector = [0; 32];
    selector[0] = TERMINAL;
    // The number of keys.
    selector[2] = 1;
    selector
}

/// `struct tc_mirred`: five numbers that every action has, what to do, and the interface.
fn mirred(to: u32, which: Redirection) -> [u8; 28] {
    let what = match which {
        Redirection::Leaving => TCA_EGRESS_REDIR,
        Redirection::Entering => TCA_INGRESS_REDIR,
    };
    let mut bytes = [0; 28];
    for (place, number) in [(8, STOLEN), (20, what), (24, to)] {
        bytes[place..place + 4].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_where_and_what() {
        let filter = filter(9, NODE, Redirection::Leaving);
        let words = [
            &[0; 4][..],
            &9u32.to_ne_bytes(),
            &0x7a1u32.to_ne_bytes(),
            &0xffff_fff3u32.to_ne_bytes(),
            &(0x4d72 << 16 | u32::from(3u16.to_be())).to_ne_bytes(),
            &8u16.to_ne_bytes(),
            &1u16.to_ne_bytes(),
            b"u32\0",
        ];
        assert_eq!(filter.payload(), words.concat());
        let action = mirred(5, Redirection::Entering);
        assert_eq!(action[8..12], 4u32.to_ne_bytes());
        assert_eq!(action[20..24], 3u32.to_ne_bytes());
        assert_eq!(action[24..], 5u32.to_ne_bytes());
    }
}
