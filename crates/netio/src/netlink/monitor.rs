//! News from the kernel: links, addresses, routes and rules that change.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::{BUFFER_SIZE, ChainsWatch, NetlinkError, link, messages, receive};
use crate::poll::Poller;

// Multicast groups as the bits of sockaddr_nl, linux/rtnetlink.h.
const RTMGRP_LINK: u32 = 0x1;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV4_RULE: u32 = 0x80;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;
/// Of this one the header has only the number, `RTNLGRP_IPV6_RULE`, 19.
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

/// The events that a monitor wants to hear about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Interfaces: made, changed, deleted.
    pub links: bool,
    /// Addresses of interfaces.
    pub addresses: bool,
    /// Routes. A router with a full table hears a lot.
    pub routes: bool,
    /// Rules, which table decides about which packets.
    pub rules: bool,
}

impl Watch {
    /// Everything.
    pub const ALL: Self = Self {
        links: true,
        addresses: true,
        routes: true,
        rules: true,
    };
    /// Only interfaces.
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

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An interface is gone from the namespace: deleted, or moved to another one.
    LinkDeleted {
        /// Its index.
        index: u32,
        /// Its name.
        name: String,
    },
    /// An interface is new or has changed.
    LinkChanged {
        /// Its index.
        index: u32,
        /// Its name.
        name: String,
        /// Whether it is administratively up.
        up: bool,
        /// Whether it also has a carrier.
        running: bool,
        /// Its MTU, in bytes.
        mtu: u32,
    },
    /// An address was added or removed.
    AddressChanged,
    /// A route was added or removed.
    RouteChanged,
    /// A rule was added or removed.
    RuleChanged,
    /// The packet filter's table that is followed has changed, or is gone.
    TableChanged,
    /// More happened than the socket could hold: the caller must read the state anew.
    Overrun,
}

/// A socket that hears about changes in the namespace it was opened in.
///
/// Its descriptor becomes readable when there is news; [`Monitor::next`] never blocks.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Box<[u8]>,
    /// The part of `buffer` not handed out yet.
    pending: std::ops::Range<usize>,
    /// Socket for the tables of the packet filter, and the set of both descriptors.
    table: Option<(ChainsWatch, Poller)>,
}

impl Monitor {
    /// Listens to what `watch` names, in the network namespace of the current thread. What happens
    /// after this call is heard: read the state after it, not before.
    ///
    /// # Errors
    /// [`NetlinkError::Open`].
    pub fn open(watch: Watch) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(NetlinkError::Open)?;
        socket
            .bind(&SocketAddr::new(0, watch.groups()))
            .map_err(NetlinkError::Open)?;
        socket.set_non_blocking(true).map_err(NetlinkError::Open)?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
            pending: 0..0,
            table: None,
        })
    }

    /// Listens to changes of tables of the packet filter, too, as [`ChainsWatch::open`]. The descriptor is another afterwards.
    ///
    /// # Errors
    /// [`NetlinkError::Open`], for a kernel without nftables, too.
    pub fn follow_table(&mut self, table: &str) -> Result<(), NetlinkError> {
        let chains = ChainsWatch::open(table)?;
        let both = Poller::new().map_err(NetlinkError::Open)?;
        both.add(self.socket.as_fd(), 0)
            .map_err(NetlinkError::Open)?;
        both.add(&chains, 1).map_err(NetlinkError::Open)?;
        self.table = Some((chains, both));
        Ok(())
    }

    /// The next piece of news, or nothing if there is none at the moment.
    ///
    /// # Errors
    /// [`NetlinkError::Socket`] if the socket fails.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that ends is over; this one goes on when there is more news"
    )]
    pub fn next(&mut self) -> Result<Option<Event>, NetlinkError> {
        loop {
            while let Some((event, used)) = self.pending_event() {
                self.pending.start = (self.pending.start + used).min(self.pending.end);
                if event.is_some() {
                    return Ok(event);
                }
            }
            self.pending = match receive(&self.socket, &mut self.buffer) {
                Ok(length) => 0..length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let table = self.table.as_mut();
                    let changed = table.map_or(Ok(false), |(chains, _)| chains.changed())?;
                    return Ok(changed.then_some(Event::TableChanged));
                }
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS)
                        || error.kind() == io::ErrorKind::InvalidData =>
                {
                    return Ok(Some(Event::Overrun));
                }
                Err(error) => {
                    return Err(NetlinkError::Socket {
                        operation: "follow",
                        object: "changes of links, addresses, routes and rules".to_owned(),
                        error,
                    });
                }
            };
        }
    }

    /// Reads one message of the pending bytes: the event if it is one, and the bytes it took.
    fn pending_event(&self) -> Option<(Option<Event>, usize)> {
        let bytes = self.buffer.get(self.pending.clone())?;
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
            // A bridge tells of a port that leaves it with the same message, family AF_BRIDGE.
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
            None => self.socket.as_fd(),
        }
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
