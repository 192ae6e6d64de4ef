//! A connected client, from its first keys until it is gone.

use super::client::Step;
use super::{Departed, Effect, Figures, Job, Look, Machine, PlaneCall, line, peer};
use crate::openvpn::policy::environment::Environment;
use crate::openvpn::policy::scripts::{Hook, Invocation, Learned, learn_address_arguments};
use config::openvpn::Command;
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, Session};
use plane::{PeerState, RouteChange};
use std::net::IpAddr;
use std::time::Duration;

impl Machine<'_> {
    /// Handles a client's first keys: its networks are routed to it from now on.
    pub(super) fn connected(&mut self, id: ClientId) {
        let config = self.config;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.step = Step::In;
        client.announced = true;
        let seconds = |n: u32| Duration::from_secs(n.into());
        let inactive = client.settings.inactive;
        let inactive = inactive.map(|(n, bytes)| (seconds(n), bytes));
        let timeout = client.settings.session_timeout.map(seconds);
        let routes = client.networks.iter().map(|network| add(id, *network));
        self.out
            .push(Effect::Plane(PlaneCall::ChangeRoutes(routes.collect())));
        line!(
            self,
            Info,
            "MULTI: primary virtual IP for {}: {}",
            client.who().label,
            client
                .networks
                .first()
                .map(|(ip, _)| ip.to_string())
                .unwrap_or_default()
        );
        if let Some(command) = &config.scripts.learn_address {
            let networks = client.networks.clone();
            let name = client.common_name.clone();
            let environment = client.environment.clone();
            for network in networks {
                self.tell_learned(command, &environment, Learned::Add(&name), network);
            }
        }
        if inactive.is_some() || timeout.is_some() {
            self.with(id, |session, _, _| session.limit(inactive, timeout));
        }
        let server = config.server();
        let keep_alive = self.listener.session(id).map(Session::keep_alive);
        if let Some((ping, silence)) = keep_alive {
            self.plane(PlaneCall::KeepAlive(peer(id), ping, silence));
        }
        if let Some(persist) = server.and_then(|s| s.pool_persist.as_ref())
            && persist.seconds > 0
            && self.persist_at.is_none()
        {
            self.persist_at = Some(self.now.instant + Duration::from_secs(persist.seconds.into()));
        }
    }

    pub(super) fn tell_learned(
        &mut self,
        command: &Command,
        environment: &Environment,
        learned: Learned<'_>,
        (ip, bits): (IpAddr, u8),
    ) {
        let whole = if ip.is_ipv4() { 32 } else { 128 };
        let address = if bits == whole {
            ip.to_string()
        } else {
            format!("{ip}/{bits}")
        };
        let arguments = learn_address_arguments(learned, &address);
        match self
            .hooks
            .invocation(Hook::LearnAddress, command, arguments, environment)
        {
            Ok(invocation) => self.tell(invocation),
            Err(error) => line!(self, Warn, "WARNING: {error}"),
        }
    }

    /// Runs a notification script on another thread; its result changes nothing.
    fn tell(&mut self, invocation: Invocation) {
        self.start(None, Job::Tell(invocation));
    }

    /// Removes a client whose session has ended.
    pub(super) fn gone(&mut self, id: ClientId, reason: &CloseReason) {
        self.defer(id, None);
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let mut client = *client;
        if let Some(refusal) = reason.refusal() {
            self.refusals.count(refusal);
        }
        line!(self, Info, "{reason}");
        let key = client.key(id);
        self.out.push(Effect::CancelHandshake(key));
        self.jobs.retain(|job, whose| {
            let theirs = *whose == key;
            if theirs {
                self.out.push(Effect::CancelJob(*job));
            }
            !theirs
        });
        if let Some(stream) = client.from.connection
            && self.connections.remove(stream).is_some()
        {
            self.plane(PlaneCall::RemoveStream(stream));
        }
        let config = self.config;
        let told = config.scripts.client_disconnect.is_some() && client.announced;
        if told {
            self.plane(PlaneCall::Peer(key, Look::Bytes));
        }
        self.plane(PlaneCall::RemovePeer(peer(id)));
        if let (Some(lease), Some(pool)) = (client.lease.take(), &mut self.pool) {
            pool.release(lease.place);
        }
        if !client.announced {
            return;
        }
        if let Some(command) = &config.scripts.learn_address {
            for network in std::mem::take(&mut client.networks) {
                self.tell_learned(command, &client.environment, Learned::Delete, network);
            }
        }
        if told {
            let lasted = self.now.system.duration_since(client.since);
            let departed = Departed {
                environment: client.environment,
                lasted: lasted.unwrap_or_default(),
                control: client.control,
            };
            self.departed.insert(client.number, departed);
        }
    }

    /// Handles a departed client's final byte counts from the data plane.
    pub(super) fn removed(&mut self, number: u64, state: &PeerState) {
        let (Some(mut departed), Some(command)) = (
            self.departed.remove(&number),
            &self.config.scripts.client_disconnect,
        ) else {
            return;
        };
        let figures = Figures::new(state, &departed.control);
        let environment = &mut departed.environment;
        environment.set_traffic(figures.received, figures.sent, departed.lasted);
        match self
            .hooks
            .invocation(Hook::ClientDisconnect, command, Vec::new(), environment)
        {
            Ok(invocation) => self.tell(invocation),
            Err(error) => line!(self, Warn, "WARNING: {error}"),
        }
    }
}

/// Returns the route that leads a network to a client.
pub(super) const fn add(id: ClientId, (address, len): (IpAddr, u8)) -> RouteChange {
    let peer = peer(id);
    RouteChange::Add { address, len, peer }
}

/// Returns the removal of a network's route to a client.
pub(super) const fn remove(id: ClientId, (address, len): (IpAddr, u8)) -> RouteChange {
    let peer = peer(id);
    RouteChange::Remove { address, len, peer }
}
