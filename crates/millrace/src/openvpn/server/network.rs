//! Stand-in until the real one is there (owner: NET, who replaces this file).
use super::Server;
use netio::netlink::Netlink;
use config::openvpn::Topology;
impl Server<'_> {
    pub(super) fn bring_up(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        if self.link.index == 0 { return Ok(()); }
        let mut n = Netlink::open()?;
        let net = &self.context.config.network;
        if let Some(i) = net.ifconfig {
            let p = if self.side.topology == Topology::Subnet { i.second.to_bits().leading_ones() as u8 } else { 32 };
            n.add_address(self.link.index, i.local.into(), p)?;
        }
        if let Some(i) = net.ifconfig_v6 { n.add_address(self.link.index, i.local.into(), i.bits)?; }
        n.set_up(self.link.index)?;
        if self.side.topology != Topology::Subnet && let Some(pool) = self.context.config.server().and_then(|s| s.pool) {
            let _ = n.add_route(&netio::netlink::Route::new(pool.start.into(), 24).dev(self.link.index));
        }
        Ok(())
    }
    pub(super) fn take_down(&mut self) {}
}
