//! Stand-in until the real one is there (owner: NET, who replaces this file).
use super::Client;
use config::openvpn::Connection;
use openvpn::push::{PushReply, Topology};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use netio::netlink::Netlink;
pub(crate) struct Inside { addr: Option<(Ipv4Addr, u8, Ipv4Addr, Topology)>, v6: Option<(std::net::Ipv6Addr,u8)>, mtu: u16 }
impl Inside {
    pub(crate) fn plan(_: &Client<'_>, _: &Connection, reply: &PushReply, mtu: u16, _: SocketAddr) -> Result<Self, Box<dyn std::error::Error>> {
        let addr = reply.ifconfig.map(|(l, r)| { let t = reply.topology.unwrap_or_default(); let p = if t == Topology::Subnet { r.to_bits().leading_ones() as u8 } else { 32 }; (l, p, r, t) });
        Ok(Self { addr, v6: reply.ifconfig_ipv6.map(|i| (i.local, i.prefix)), mtu })
    }
    pub(crate) fn address(&self) -> Option<Ipv4Addr> { self.addr.map(|a| a.0) }
    pub(crate) fn follow(&mut self, _: SocketAddr) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
}
impl Client<'_> {
    pub(crate) fn bring_up(&mut self, inside: Inside, _remote: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
        if let Some((_, link)) = &self.device && link.index != 0 {
            let mut n = Netlink::open()?;
            n.set_mtu(link.index, inside.mtu.into())?;
            if let Some((l, p, _, _)) = inside.addr { n.add_address(link.index, l.into(), p)?; }
            if let Some((l, p)) = inside.v6 { n.add_address(link.index, IpAddr::V6(l), p)?; }
            n.set_up(link.index)?;
        }
        self.inside = Some(inside);
        Ok(())
    }
    pub(crate) fn take_down(&mut self, _context: &str) { self.inside = None; }
    pub(crate) fn keep_token(&mut self, _token: &str) {}
}
