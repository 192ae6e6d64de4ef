//! Status of a server, and the `kill` commands.

use super::Executor;
use super::network::Set;
use crate::openvpn::management::Victim;
use crate::openvpn::monitoring::{Monitored, Status};
use crate::openvpn::server::machine::{Event, Now};
use crate::status::{Status as Document, dataplane};
use plane::LineId;

impl Monitored for Executor<'_> {
    fn status(&self) -> Status {
        let state = |id| self.peer_state(id);
        let mut status = self.machine.status(state, Now::read());
        status.kernel_data_plane = self.context.kernel;
        Status::Server(status)
    }

    fn document(&self) -> Document {
        let config = self.machine.config();
        let network = &config.network;
        let v4 = network.ifconfig.map(|i| i.local.to_string());
        let v6 = network.ifconfig_v6.map(|i| i.local.to_string());
        let statistics = self.plane.statistics();
        let mut refused = self.machine.refused();
        let connections = self.machine.connections().turned_away() + self.listeners.turned_away();
        refused.insert("connection_limit".to_owned(), connections);
        let lines = |id| self.plane.peer_lines(id);
        let peers = self.machine.peers(|id| self.peer_state(id), lines);
        Document {
            role: Some("server".to_owned()),
            listen_port: self.plane.port(LineId::FIRST).unwrap_or(0),
            listen_tcp: self.listeners.ports(),
            fwmark: config.sockets.mark.unwrap_or(0),
            bound_device: config.sockets.device.clone(),
            mtu: self.plane.mtu() as u32,
            workers: statistics.workers,
            addresses: v4.into_iter().chain(v6).collect(),
            peers,
            refused,
            warnings: self.set.as_ref().map_or_else(Vec::new, Set::warnings),
            dataplane: dataplane(statistics),
            ..Document::default()
        }
    }

    fn kill(&mut self, victim: &Victim) -> usize {
        let count = self.machine.matching(victim).len();
        self.tell(Event::Kill(victim.clone()));
        count
    }

    fn kill_client(&mut self, number: u64) -> bool {
        let found = self.machine.has_client(number);
        self.tell(Event::KillClient(number));
        found
    }
}
