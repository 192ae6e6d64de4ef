//! A connected client, from its first keys until it is gone.

use super::client::Step;
use super::{Cx, Figures, Job, Machine, line, peer};
use config::openvpn::Command;
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, Session};
use openvpn_host::scripts::environment::Environment;
use openvpn_host::scripts::{Hook, Learned, learn_address_arguments};
use plane::RouteChange;
use std::net::IpAddr;
use std::time::Duration;

impl Machine<'_> {
    /// Handles a client's first keys: its networks are routed to it from now on.
    pub(super) fn connected(&mut self, cx: &mut Cx<'_>, id: ClientId) {
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
        cx.plane.change_routes(&routes.collect::<Vec<_>>());
        let first = client.networks.first().map(|(ip, _)| ip.to_string());
        cx.host.announce(&format!(
            "MULTI: primary virtual IP for {}: {}",
            client.who().label,
            first.unwrap_or_default()
        ));
        let networks = client.networks.clone();
        let (name, environment) = (client.common_name.clone(), client.environment.clone());
        self.tell_learned(cx, &environment, Learned::Add(&name), &networks);
        if inactive.is_some() || timeout.is_some() {
            self.with(cx, id, |session, _, _| session.limit(inactive, timeout));
        }
        let server = config.server();
        let keep_alive = self.listener.session(id).map(Session::keep_alive);
        if let Some((ping, silence)) = keep_alive {
            cx.plane.keep_alive(peer(id), ping, silence);
        }
        if let Some(persist) = server.and_then(|s| s.pool_persist.as_ref())
            && persist.seconds > 0
            && self.persist_at.is_none()
        {
            self.persist_at = Some(cx.now.monotonic + Duration::from_secs(persist.seconds.into()));
        }
    }

    /// Runs `learn-address` for each of a client's networks.
    pub(super) fn tell_learned(
        &mut self,
        cx: &mut Cx<'_>,
        environment: &Environment,
        learned: Learned<'_>,
        networks: &[(IpAddr, u8)],
    ) {
        for (ip, bits) in networks {
            let whole = if ip.is_ipv4() { 32 } else { 128 };
            let address = match *bits == whole {
                true => ip.to_string(),
                false => format!("{ip}/{bits}"),
            };
            let arguments = learn_address_arguments(learned, &address);
            let command = self.config.scripts.learn_address.as_ref();
            self.tell(cx, Hook::LearnAddress, command, arguments, environment);
        }
    }

    /// Runs a notification script, if there is one, on another thread; its result changes nothing.
    fn tell(
        &mut self,
        cx: &mut Cx<'_>,
        hook: Hook,
        command: Option<&Command>,
        arguments: Vec<String>,
        environment: &Environment,
    ) {
        let Some(command) = command else { return };
        let script = self.hooks.invocation(hook, command, arguments, environment);
        let script = script.map_err(|error| error.to_string());
        let started = script.and_then(|script| self.start(cx, None, Job::Tell(script)));
        if let Err(error) = started {
            line!(cx, Warn, "WARNING: {error}");
        }
    }

    /// Removes a client whose session has ended.
    pub(super) fn gone(&mut self, cx: &mut Cx<'_>, id: ClientId, reason: &CloseReason) {
        self.defer(cx, id, None);
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let mut client = *client;
        let refusal = reason.refusal();
        refusal.into_iter().for_each(|it| self.refusals.count(it));
        match client.announced || refusal.is_some() {
            true => cx.host.announce(&reason.to_string()),
            false => line!(cx, Info, "{reason}"),
        }
        let key = client.key(id);
        cx.host.cancel_handshake(key);
        self.jobs.retain(|job, whose| {
            let theirs = *whose == key;
            if theirs {
                cx.host.cancel(*job);
            }
            !theirs
        });
        if let Some(stream) = client.from.connection
            && self.connections.remove(stream).is_some()
        {
            cx.host.remove_stream(stream);
        }
        let command = self.config.scripts.client_disconnect.as_ref();
        // The kernel's data plane has to be asked for the figures.
        let asked = client.announced && command.is_some();
        let state = asked.then(|| client.channel.look(cx.plane, peer(id)));
        cx.plane.remove_peer(peer(id));
        if let (Some(lease), Some(pool)) = (client.lease.take(), &mut self.pool) {
            pool.release(lease.place);
        }
        if !client.announced {
            return;
        }
        let networks = std::mem::take(&mut client.networks);
        self.tell_learned(cx, &client.environment, Learned::Delete, &networks);
        let figures = Figures::new(&state.unwrap_or_default(), &client.control);
        let lasted = cx.now.wall.duration_since(client.since);
        let environment = &mut client.environment;
        environment.set_traffic(figures.received, figures.sent, lasted.unwrap_or_default());
        self.tell(cx, Hook::ClientDisconnect, command, Vec::new(), environment);
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
