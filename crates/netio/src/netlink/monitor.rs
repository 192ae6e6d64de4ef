//! Events from the kernel: links, addresses, routes and rules that change.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::protocols::NETLINK_ROUTE;

use super::{ChainsWatch, Follower, NetlinkError, News, link, messages};
use crate::poll::Poller;

// Multicast groups as the bits of sockaddr_nl, linux/rtnetlink.h.
const RTMGRP_LINK: u32 = 0x1;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV4_RULE: u32 = 0x80;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;
/// The header defines only this group's number, `RTNLGRP_IPV6_RULE`, 19.
const RTMGRP_IPV6_RULE: u32 = 1 << 18;

// Message types, linux/rtnetlink.h.
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;

/// The events that a monitor reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Interfaces: made, changed, deleted.
    pub links: bool,
    /// Addresses of interfaces.
    pub addresses: bool,
    /// Routes. A router with a full table reports many.
    pub routes: bool,
    /// Report changes of routing rules.
    pub rules: bool,
}

impl Watch {
    /// Watch everything.
    pub const ALL: Self = Self {
        links: true,
        addresses: true,
        routes: true,
        rules: true,
    };
    /// Only events about interfaces.
    pub const LINKS: Self = Self {
        links: true,
        addresses: false,
        routes: false,
        rules: false,
    };

    fn groups(self) -> u32 {
        let mut groups = 0;
        if self.links {
            groups |= RTMGRP_LINK;
        }
        if self.addresses {
            groups |= RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
        }
        if self.routes {
            groups |= RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
        }
        if self.rules {
            groups |= RTMGRP_IPV4_RULE | RTMGRP_IPV6_RULE;
        }
        groups
    }
}

/// Change that the kernel reports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An interface no longer exists in the namespace: deleted, or moved to another one.
    LinkDeleted {
        /// Index of the interface.
        index: u32,
        /// Name of the interface.
        name: String,
    },
    /// An interface is new or has changed.
    LinkChanged {
        /// Index of the interface.
        index: u32,
        /// Name of the interface.
        name: String,
        /// Whether the interface is administratively up.
        up: bool,
        /// Whether the interface also has a carrier.
        running: bool,
        /// MTU of the interface, in bytes.
        mtu: u32,
    },
    /// An address was added or removed.
    AddressChanged,
    /// A route was added or removed.
    RouteChanged,
    /// A rule was added or removed.
    RuleChanged,
    /// The followed nftables table has changed or been deleted.
    TableChanged,
    /// The socket has lost events: the caller must read the state again.
    Overrun,
}

/// A socket that reports changes in the namespace that it was opened in.
///
/// The monitor's descriptor becomes readable when an event waits; [`Monitor::next`] never blocks.
#[derive(Debug)]
pub struct Monitor {
    follower: Follower,
    /// The part of the follower's buffer that is still to be parsed.
    pending: std::ops::Range<usize>,
    /// Socket for the packet filter's tables, and the poll set of both descriptors.
    table: Option<(ChainsWatch, Poller)>,
}

impl Monitor {
    /// Listens to the events of `watch`, in the network namespace of the current thread. Changes after this call are
    /// reported: read the state after it, not before.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open(watch: Watch) -> Result<Self, NetlinkError> {
        let subject = "changes of links, addresses, routes and rules";
        Ok(Self {
            follower: Follower::open(NETLINK_ROUTE, watch.groups(), subject)?,
            pending: 0..0,
            table: None,
        })
    }

    /// Also listens to changes of packet filter tables, as [`ChainsWatch::open`] does. The monitor's descriptor
    /// changes.
    ///
    /// # Errors
    /// [`NetlinkError::Open`], also for a kernel without nftables.
    pub fn follow_table(&mut self, table: &str) -> Result<(), NetlinkError> {
        let chains = ChainsWatch::open(table)?;
        let both = Poller::new().map_err(NetlinkError::Open)?;
        both.add(self.follower.socket.as_fd(), 0)
            .map_err(NetlinkError::Open)?;
        both.add(&chains, 1).map_err(NetlinkError::Open)?;
        self.table = Some((chains, both));
        Ok(())
    }

    /// The next event; `None` if none waits.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket fails.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator does not resume after `None`, but this one does"
    )]
    pub fn next(&mut self) -> Result<Option<Event>, NetlinkError> {
        loop {
            while let Some((event, used)) = self.pending_event() {
                self.pending.start = (self.pending.start + used).min(self.pending.end);
                if event.is_some() {
                    return Ok(event);
                }
            }
            self.pending = match self.follower.receive()? {
                News::Messages(bytes) => 0..bytes.len(),
                News::None => {
                    let table = self.table.as_mut();
                    let changed = table.map_or(Ok(false), |(chains, _)| chains.changed())?;
                    return Ok(changed.then_some(Event::TableChanged));
                }
                News::Lost => return Ok(Some(Event::Overrun)),
            };
        }
    }

    /// Reads one message of the pending bytes: its event, if any, and its length in bytes.
    fn pending_event(&self) -> Option<(Option<Event>, usize)> {
        let bytes = self.follower.buffer.get(self.pending.clone())?;
        let Ok(message) = messages(bytes).next()? else {
            return Some((None, bytes.len()));
        };
        let used = (message.length() as usize).next_multiple_of(4);
        let event = match message.message_type() {
            RTM_NEWLINK => link::parse(message.payload()).map(|link| Event::LinkChanged {
                index: link.index,
                name: link.name,
                up: link.up,
                running: link.running,
                mtu: link.mtu,
            }),
            // The kernel sends the same message, with family AF_BRIDGE, when a port leaves a bridge.
            RTM_DELLINK if message.payload().first() == Some(&0) => link::parse(message.payload())
                .map(|link| Event::LinkDeleted {
                    index: link.index,
                    name: link.name,
                }),
            RTM_NEWADDR | RTM_DELADDR => Some(Event::AddressChanged),
            RTM_NEWROUTE | RTM_DELROUTE => Some(Event::RouteChanged),
            RTM_NEWRULE | RTM_DELRULE => Some(Event::RuleChanged),
            _ => None,
        };
        Some((event, used))
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.table {
            Some((_, both)) => both.as_fd(),
            None => self.follower.socket.as_fd(),
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.follower.socket.as_raw_fd()
    }
}
