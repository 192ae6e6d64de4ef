//! A client that has its keys, until it is gone.

use super::super::conduit::Way;
use super::super::policy::environment::Environment;
use super::super::policy::scripts::{Hook, Invocation, Learned, learn_address_arguments};
use super::Server;
use super::jobs::Done;
use super::served::Step;
use config::openvpn::Command;
use openvpn::server::ClientId;
use openvpn::session::CloseReason;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Server<'_> {
    /// The client has its keys: it is reachable from now on.
    pub(super) fn came_in(&mut self, id: ClientId) {
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
        for (ip, bits) in &client.networks {
            self.routes
                .insert(*ip, *bits, Arc::clone(&client.conduit.peer));
        }
        self.tunnel.set_routes(self.routes.clone());
        log::info!(
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
        if let Some(persist) = server.and_then(|s| s.pool_persist.as_ref())
            && persist.seconds > 0
            && self.persist_at.is_none()
        {
            self.persist_at = Some(Instant::now() + Duration::from_secs(persist.seconds.into()));
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
            Err(error) => log::warn!("WARNING: {error}"),
        }
    }

    /// Runs a script that is only told something, on another thread.
    fn tell(&mut self, invocation: Invocation) {
        if let Err(busy) = self
            .background
            .submit(None, move || Done::Told(invocation.run_well()))
        {
            log::warn!("WARNING: {busy}");
        }
    }

    /// The session is over: nothing of the client stays.
    pub(super) fn gone(&mut self, id: ClientId, reason: &CloseReason) {
        let Some(mut client) = self.clients.remove(&id) else {
            return;
        };
        if let Some(refusal) = reason.refusal() {
            self.refusals.count(refusal);
        }
        log::info!("{reason}");
        self.jobs.retain(|job, whose| {
            let theirs = *whose == (id, client.number);
            if theirs {
                self.background.cancel(*job);
            }
            !theirs
        });
        if let Way::Stream(stream) = client.conduit.way() {
            self.streams.remove(stream.id());
        }
        let config = self.config;
        let (received, sent) = (client.conduit.received(), client.conduit.sent());
        client.conduit.clear(&self.tunnel);
        let mine = Arc::clone(&client.conduit.peer);
        for (ip, bits) in &client.networks {
            self.routes
                .remove_if(*ip, *bits, |peer| Arc::ptr_eq(peer, &mine));
        }
        self.tunnel.set_routes(self.routes.clone());
        if let (Some(lease), Some(pool)) = (client.lease, &mut self.pool) {
            pool.release(lease.place);
        }
        if !client.announced {
            return;
        }
        if let Some(command) = &config.scripts.learn_address {
            for network in client.networks.clone() {
                self.tell_learned(command, &client.environment, Learned::Delete, network);
            }
        }
        if let Some(command) = &config.scripts.client_disconnect {
            let lasted = client.since.elapsed().unwrap_or_default();
            client.environment.set_traffic(received, sent, lasted);
            match self.hooks.invocation(
                Hook::ClientDisconnect,
                command,
                Vec::new(),
                &client.environment,
            ) {
                Ok(invocation) => self.tell(invocation),
                Err(error) => log::warn!("WARNING: {error}"),
            }
        }
    }
}
