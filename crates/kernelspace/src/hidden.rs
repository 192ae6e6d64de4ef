//! The kernel's side of a tunnel whose visible interface is a TUN: a hidden interface, to which the TUN's packets are
//! redirected, and a second socket of the tunnel's UDP port.
//!
//! Addresses, routes and filters know only the TUN. A packet that leaves through it goes on through the hidden interface,
//! and packets that the hidden interface has opened enter by the TUN.

use super::interface;
use super::kernel::Linux;
use super::moving::KernelSide;
use super::plane::Plane;
use super::wish::Wish;
use super::{AnyPlane, StartError};
use engine::Sockets;
use netio::netlink::{Netlink, NetlinkError, Redirection};
use netio::udp::{Family, SharedPort};
use openvpn::data::wire::{Head, Opcode};
use plane::{Control, Line, LineId, Notice, PeerId, StreamId, Transports};
use std::sync::Arc;

/// The beginning of a hidden interface's name; the index of the TUN follows.
const NAME: &str = "mrk";

/// The hidden side on Linux.
pub(crate) struct Hidden {
    tun: u32,
    control: Arc<dyn Control>,
    netlink: Netlink,
    /// The ports of the sockets in user space.
    ports: Vec<SharedPort>,
    /// The hidden interface and its sockets, while there is one.
    side: Option<(u32, Arc<Sockets>)>,
    /// This program has added clsact to the TUN.
    clsact: bool,
    /// Takes the privileges of new threads away.
    confine: fn(),
}

impl Hidden {
    /// The side of the TUN with this index. `control` and `wish` hear of its end.
    ///
    /// # Errors
    /// Descriptor limits.
    pub(crate) fn new(
        tun: u32,
        control: Arc<dyn Control>,
        wish: Arc<Wish>,
        confine: fn(),
    ) -> Result<Self, NetlinkError> {
        Ok(Self {
            tun,
            control: Arc::new(Reports { control, wish }),
            netlink: Netlink::open()?,
            ports: Vec::new(),
            side: None,
            clsact: false,
            confine,
        })
    }

    /// Makes the hidden interface and removes it, as a start could do it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn try_out(&mut self) -> Result<(), StartError> {
        let started = self.start().map(drop);
        self.end();
        started
    }

    fn start(&mut self) -> Result<Plane<Linux>, StartError> {
        self.clsact |= self.netlink.add_clsact(self.tun)?;
        let io = |what| move |source| StartError::Io { what, source };
        let name = format!("{NAME}{}", self.tun);
        let (plane, index) = interface::start_one(&name, Arc::clone(&self.control))?;
        let mut sockets = Sockets::default();
        for port in &self.ports {
            let second = port.second().map_err(|error| StartError::Io {
                what: "second socket",
                source: std::io::Error::other(error),
            })?;
            match second.family() {
                Family::V4 => sockets.v4 = Some(second),
                Family::V6 => sockets.v6 = Some(second),
            }
        }
        plane
            .open_line(LineId::FIRST, sockets)
            .map_err(io("sockets"))?;
        let mtu = self.netlink.mtu(self.tun)?;
        self.netlink.set_mtu(index, mtu)?;
        let _ = self.netlink.set_no_link_local(index);
        self.netlink.add_clsact(index)?;
        self.netlink
            .redirect(index, self.tun, Redirection::Entering)?;
        self.side = Some((index, plane.sockets()));
        Ok(plane)
    }

    fn index(&self) -> u32 {
        self.side.as_ref().map_or(0, |(index, _)| *index)
    }
}

impl KernelSide<AnyPlane> for Hidden {
    fn set_sockets(&mut self, sockets: Option<&Sockets>) {
        let sockets = sockets.into_iter().flat_map(Sockets::iter);
        self.ports = sockets.filter_map(|it| it.shared_port().cloned()).collect();
    }

    fn can_begin(&self) -> bool {
        !self.ports.is_empty()
    }

    fn disable_gro(&mut self, disable: bool) {
        self.ports.iter().for_each(|port| port.disable_gro(disable));
    }

    fn is_gro_disabled(&self) -> bool {
        self.ports.iter().all(SharedPort::is_gro_disabled)
    }

    fn begin(&mut self) -> Result<Box<AnyPlane>, String> {
        let started = self.start();
        match started {
            Ok(plane) => {
                (self.confine)();
                Ok(Box::new(plane))
            }
            Err(error) => {
                self.end();
                Err(error.to_string())
            }
        }
    }

    /// An interface that comes up while it has a carrier, which its peer gives it, sends at once.
    fn come_up(&mut self) -> Result<(), String> {
        let index = self.index();
        self.netlink
            .set_up(index)
            .map_err(|error| error.to_string())
    }

    fn steer(&mut self, key_ids: &[u8]) -> Result<(), String> {
        let head = |key_id: &u8| {
            let (opcode, key_id) = (Opcode::DataV2, *key_id);
            Head { opcode, key_id }.emit()
        };
        let heads: Vec<u8> = key_ids.iter().map(head).collect();
        let Some((_, sockets)) = &self.side else {
            return Ok(());
        };
        let steered = sockets.iter().try_for_each(|it| it.steer(&heads));
        steered.map_err(|error| format!("cannot divide the UDP port: {error}"))
    }

    fn redirect_to_kernel(&mut self, to_kernel: bool) -> Result<(), String> {
        let (tun, index) = (self.tun, self.index());
        let redirected = match to_kernel {
            true => self.netlink.redirect(tun, index, Redirection::Leaving),
            false => self.netlink.end_redirection(tun, Redirection::Leaving),
        };
        redirected.map_err(|error| error.to_string())
    }

    fn end(&mut self) {
        self.side = None;
        if std::mem::take(&mut self.clsact)
            && let Err(error) = self.netlink.remove_clsact(self.tun)
        {
            log::debug!("{error}");
        }
    }
}

/// Passes on the hidden interface's reports. Its end is not the end of the TUN.
struct Reports {
    control: Arc<dyn Control>,
    wish: Arc<Wish>,
}

impl Control for Reports {
    fn datagram(&self, from: Line, bytes: &[u8]) -> bool {
        self.control.datagram(from, bytes)
    }

    fn notify(&self, peer: PeerId, notice: Notice) {
        if notice == Notice::Failed {
            self.wish.refuse("the kernel's data plane failed");
        }
        self.control.notify(peer, notice);
    }

    fn stream_closed(&self, stream: StreamId) {
        self.control.stream_closed(stream);
    }

    fn device_gone(&self) {
        self.notify(super::moving::PEER, Notice::Failed);
    }
}
