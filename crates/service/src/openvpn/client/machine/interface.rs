//! Applies a server's pushed options to the interface.

use super::Machine;
use super::connection::Connection;
use super::environment::{describe, ifconfig};
use super::network::{Incoming, Routes, TunnelState};
use crate::openvpn::client::event::Planned;
use crate::openvpn::client::host::{Cx, Told};
#[cfg(feature = "kernel")]
use crate::openvpn::kernel_plane;
use openvpn::push::{PushReply, Refusal};
use openvpn_host::management::State;
use openvpn_host::network::{HostFacts, TunnelNetwork};
use openvpn_host::scripts::{Hook, device_arguments};
use openvpn_host::{sizes, terms};
use std::time::Duration;

/// Maximum number of filtered options that the log line names.
const LEFT_OUT_MAX: usize = 8;

impl Machine<'_> {
    /// Handles the server's options: packets get their new shape and the interface gets its addresses.
    pub(super) fn pushed(&mut self, it: &mut Connection, reply: Box<PushReply>, cx: &mut Cx<'_>) {
        let mut left_out = Vec::new();
        for (option, why) in &reply.refused {
            match why {
                // Servers push options for other systems to everyone.
                Refusal::NoEffect => cx.debug(format!("pushed option '{option}': {why}")),
                // The user requested the filter.
                Refusal::Filtered | Refusal::NoPull => {
                    cx.info(format!("pushed option '{option}' is ignored: {why}"));
                    left_out.push(option.as_str());
                }
                _ => cx.warn(format!("pushed option '{option}' is ignored: {why}")),
            }
        }
        if !left_out.is_empty() {
            let more = left_out.len().saturating_sub(LEFT_OUT_MAX);
            left_out.truncate(LEFT_OUT_MAX);
            let mut words = format!(
                "pushed options ignored, as the file says: {}",
                left_out.join(", ")
            );
            if more > 0 {
                words += &format!(" and {more} more");
            }
            cx.say(log::Level::Info, words);
        }
        for text in &reply.echo {
            cx.info(format!("ECHO:{text}"));
            cx.tell(Told::Echo(text.clone()));
        }
        if let Some(user) = &reply.auth_token_user {
            self.logins.set_token_user(user);
        }
        let (config, connection) = (self.config, &it.target.connection);
        let mtu = reply
            .tun_mtu
            .and_then(|mtu| u16::try_from(mtu).ok())
            .unwrap_or_else(|| terms::tun_mtu(connection));
        let framing = match &reply.compression {
            Some(pushed) => sizes::pushed(pushed),
            None => config.data.framing,
        };
        #[cfg(feature = "kernel")]
        if self.mover.can_move() {
            let agreed = it.session.data_channel();
            let refused = kernel_plane::refused_push(&reply, agreed, framing, connection, mtu);
            refused.inspect(|why| self.mover.refuse_move(why));
        }
        if let Some(agreed) = it.session.data_channel() {
            match sizes::shape(config, connection, agreed, framing, mtu, it.remote) {
                Ok(shape) => it.channel.shape = shape,
                Err(why) => return it.fail(why.to_string()),
            }
        }
        cx.plane(|plane| plane.set_mtu(mtu.into()));
        // Otherwise the lines set the rate.
        if !config.lines.shape {
            let bytes = reply.shaper.or(config.sockets.shaper);
            cx.plane(|plane| plane.set_rate(bytes.map(|it| u64::from(it) * 8)));
        } else if reply.shaper.is_some() {
            cx.warn("pushed option 'shaper' is ignored: the file sets the uplinks' rates");
        }
        cx.state(State::AssignIp, "");
        // The destination of outer packets, server or proxy, must stay outside the tunnel.
        let remote = it.target.remote;
        let number = self.request();
        it.incoming = Some(Incoming {
            number,
            reply: reply.clone(),
            mtu,
            route_delay: Duration::ZERO,
        });
        if config.device.null {
            // Scripts also run for a session without an interface.
            self.take_down("restart", false, cx);
            self.interface_ready(it, None, cx);
        } else {
            cx.step(move |host| host.plan(number, &reply, mtu, remote.ip()));
        }
    }

    /// Handles the planned interface settings.
    pub(super) fn planned(
        &mut self,
        it: &mut Connection,
        number: u64,
        planned: Result<Planned, String>,
        cx: &mut Cx<'_>,
    ) {
        // Ignores a late answer to an earlier request.
        let Some(incoming) = it.incoming.as_mut().filter(|it| it.number == number) else {
            return;
        };
        let Planned { alike, route_delay } = match planned {
            Ok(planned) => planned,
            Err(error) => return it.fail(error),
        };
        incoming.route_delay = route_delay;
        if alike && self.network.is_some() {
            let ifname = self.ifname.as_deref().unwrap_or_default();
            cx.info(format!("Preserving previous TUN/TAP instance: {ifname}"));
            return self.interface_done(it, cx);
        }
        self.take_down("restart", false, cx);
        // An `up` script sets the name servers itself.
        let no_dns = self.config.scripts.up.is_some() || self.no_dns;
        cx.step(move |host| host.set_interface(no_dns));
    }

    /// Handles the end of setting the interface's addresses.
    pub(super) fn interface_set(
        &mut self,
        it: &mut Connection,
        set: (TunnelNetwork, HostFacts),
        cx: &mut Cx<'_>,
    ) {
        if it.incoming.is_some() {
            self.interface_ready(it, Some(set), cx);
        }
    }

    fn interface_ready(
        &mut self,
        it: &mut Connection,
        set: Option<(TunnelNetwork, HostFacts)>,
        cx: &mut Cx<'_>,
    ) {
        let Some(incoming) = &it.incoming else { return };
        let config = self.config;
        cx.state(State::AddRoutes, "");
        let ifname = self.ifname.clone().unwrap_or_default();
        let context = if self.restarted { "restart" } else { "init" };
        let mtu = incoming.mtu;
        let ifconfig = ifconfig(&incoming.reply, config.network.ifconfig);
        let mut environment = self.environment_of(it);
        environment.set_device(&ifname, mtu, context);
        describe(
            &mut environment,
            &incoming.reply,
            set.as_ref(),
            ifconfig,
            &config.network,
        );
        self.network = Some(TunnelState {
            network: set.map(|(network, _)| network),
            environment: environment.clone(),
            ifconfig,
            ifname: ifname.clone(),
            mtu,
            is_ready: false,
            routes: Routes::At(None),
        });
        self.keep_relays_outside(cx);
        let runs = context == "init" || config.scripts.up_restart || !config.service.persist_tun;
        if let Some(script) = config.scripts.up.as_ref().filter(|_| runs) {
            let arguments = device_arguments(
                &ifname,
                mtu,
                ifconfig.map(|i| i.local),
                ifconfig.map(|i| i.second),
                context,
            );
            match self
                .hooks
                .invocation(Hook::Up, script, arguments, &environment)
            {
                // The script's end continues from here.
                Ok(program) => {
                    self.up_runs = true;
                    cx.run_script(Hook::Up, program);
                }
                Err(error) => it.fail(error.to_string()),
            }
            return;
        }
        self.up_is_done(it, cx);
    }

    /// Handles the end of `up`: the routes are next.
    fn up_is_done(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        let (Some(incoming), Some(network)) = (&it.incoming, &mut self.network) else {
            return;
        };
        network.is_ready = true;
        network.routes = Routes::At(Some(cx.now.monotonic + incoming.route_delay));
        // A connection that has ended waited only to run `down`.
        if it.end.is_none() && !self.set_late_routes(cx) {
            self.interface_done(it, cx);
        }
    }

    /// Ends the wait for the pushed network settings; the first time, drops privileges.
    pub(super) fn interface_done(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        it.incoming = None;
        if !std::mem::replace(&mut self.unprivileged, true) {
            cx.step(|host| host.drop_privileges());
        }
    }

    pub(super) fn script_finished(
        &mut self,
        hook: Hook,
        result: Result<(), String>,
        cx: &mut Cx<'_>,
    ) {
        if hook == Hook::Up {
            self.up_runs = false;
        }
        if let (true, Err(error)) = (hook != Hook::Up, &result) {
            cx.warn(format!("WARNING: {error}"));
        }
        if hook == Hook::RouteUp
            && let Some(network) = &mut self.network
            && network.routes == Routes::Script
        {
            network.routes = Routes::Set;
        }
        self.with_connection(cx, |machine, it, cx| {
            let waits = machine.network.as_ref().is_some_and(|it| !it.is_ready);
            match (hook, result) {
                (Hook::Up, Ok(())) if waits => machine.up_is_done(it, cx),
                (Hook::Up, Err(error)) if waits => return it.fail(error),
                _ => {}
            }
            machine.perform(it, cx);
            machine.announce(it, cx);
        });
    }

    /// Takes down the settings of a deleted interface, with or without `persist-tun`.
    pub(super) fn leave_interface(&mut self, cx: &mut Cx<'_>) {
        if std::mem::take(&mut self.is_gone) && self.ifname.take().is_some() {
            self.take_down("restart", true, cx);
            self.close_interface(cx);
        }
    }
}
