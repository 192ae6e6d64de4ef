//! Network settings of a client's tunnel, and the scripts before and after them.

use super::Machine;
use super::connection::Connection;
use crate::openvpn::client::host::{Cx, Told};
use config::openvpn::{Command, Ifconfig};
use openvpn::push::PushReply;
use openvpn_host::network::TunnelNetwork;
use openvpn_host::scripts::environment::Environment;
use openvpn_host::scripts::{Hook, device_arguments};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Network settings that the interface will get.
pub(super) struct Incoming {
    /// Number of the plan request.
    pub(super) number: u64,
    pub(super) reply: Box<PushReply>,
    /// The tunnel's MTU in bytes.
    pub(super) mtu: u16,
    pub(super) route_delay: Duration,
}

/// Network settings in force, and their script environment.
pub(super) struct TunnelState {
    /// `None` with `dev null`.
    pub(super) network: Option<TunnelNetwork>,
    pub(super) environment: Environment,
    pub(super) ifconfig: Option<Ifconfig>,
    pub(super) ifname: String,
    pub(super) mtu: u16,
    /// `up` has run; without it no script is told of the end.
    pub(super) is_ready: bool,
    pub(super) routes: Routes,
}

/// Progress of the routes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Routes {
    /// The routes are due at this time (`route-delay`); `None` before `up` has run.
    At(Option<Instant>),
    /// The executor is setting the routes.
    Asked,
    /// `route-up` is running.
    Script,
    /// The routes are set and `route-up` has run.
    Set,
}

impl TunnelState {
    /// Whether the routes are set and `route-up` has run.
    pub(super) fn is_complete(&self) -> bool {
        self.routes == Routes::Set
    }

    /// When the routes are due.
    pub(super) fn routes_at(&self) -> Option<Instant> {
        match self.routes {
            Routes::At(at) => at,
            _ => None,
        }
    }

    /// The interface's address of each family.
    pub(super) fn addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let mut found = (None, None);
        for address in self.network.iter().flat_map(|it| &it.addresses) {
            match address.addr {
                IpAddr::V4(addr) => found.0 = found.0.or(Some(addr)),
                IpAddr::V6(addr) => found.1 = found.1.or(Some(addr)),
            }
        }
        found
    }
}

impl Machine<'_> {
    /// Sets the routes if `route-delay` is over. Returns whether they are being set.
    pub(super) fn set_late_routes(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(network) = &mut self.network else {
            return false;
        };
        let due = network.routes_at().is_some_and(|at| cx.now.monotonic >= at);
        if due {
            network.routes = Routes::Asked;
            cx.step(|host| host.set_routes());
        }
        due
    }

    /// Handles routes that are set: runs `route-up`.
    pub(super) fn routes_set(&mut self, it: &mut Connection, cx: &mut Cx<'_>) {
        let asked = |network: &&mut TunnelState| network.routes == Routes::Asked;
        let Some(network) = self.network.as_mut().filter(asked) else {
            return;
        };
        network.routes = Routes::Set;
        let environment = network.environment.clone();
        cx.tell(Told::UpDown(true, environment.clone()));
        let script = self.config.scripts.route_up.as_ref();
        let runs = self.run_script(Hook::RouteUp, script, [], &environment, cx);
        if let (true, Some(network)) = (runs, &mut self.network) {
            network.routes = Routes::Script;
        }
        // Continues the steps that waited for the routes.
        self.interface_done(it, cx);
        self.announce(it, cx);
    }

    /// Runs a script whose failure is ignored. Returns whether it runs.
    pub(super) fn run_script(
        &self,
        hook: Hook,
        script: Option<&Command>,
        arguments: impl IntoIterator<Item = String>,
        environment: &Environment,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(script) = script else { return false };
        match self.hooks.invocation(hook, script, arguments, environment) {
            Ok(program) => {
                cx.run_script(hook, program);
                true
            }
            Err(error) => {
                cx.warn(format!("WARNING: {error}"));
                false
            }
        }
    }

    /// Undoes the settings of a session that ended before `up`; no script is told.
    pub(super) fn drop_unfinished_network(&mut self, cx: &mut Cx<'_>) {
        if self.network.as_ref().is_some_and(|it| !it.is_ready) {
            self.network = None;
            cx.later(|host| host.undo());
        }
    }

    /// At the end of a connection, removes incomplete settings even with `persist-tun`.
    pub(super) fn drop_broken_network(&mut self, cx: &mut Cx<'_>) {
        self.drop_unfinished_network(cx);
        let network = self.network.as_ref();
        if network.is_some_and(|it| it.routes == Routes::Asked) {
            self.take_down("restart", true, cx);
        }
    }

    /// Runs the scripts for the end of the settings. `context` is `init` at the end of the process, otherwise
    /// `restart`. With `undo` the settings are undone now; otherwise others are about to replace them.
    pub(super) fn take_down(&mut self, context: &str, undo: bool, cx: &mut Cx<'_>) {
        self.drop_unfinished_network(cx);
        let Some(mut state) = self.network.take() else {
            return;
        };
        let scripts = &self.config.scripts;
        let environment = &mut state.environment;
        environment.set("script_context", context);
        let signal = if context == "init" {
            "sigterm"
        } else {
            "sigusr1"
        };
        environment.set("signal", signal);
        cx.tell(Told::UpDown(false, environment.clone()));
        let arguments = || {
            device_arguments(
                &state.ifname,
                state.mtu,
                state.ifconfig.map(|i| i.local),
                state.ifconfig.map(|i| i.second),
                context,
            )
        };
        let environment = &state.environment;
        let script = scripts.route_pre_down.as_ref();
        self.run_script(Hook::RoutePreDown, script, arguments(), environment, cx);
        let down = scripts.down.as_ref();
        if scripts.down_pre {
            self.run_script(Hook::Down, down, arguments(), environment, cx);
        }
        if undo {
            cx.later(|host| host.undo());
        }
        if !scripts.down_pre {
            self.run_script(Hook::Down, down, arguments(), environment, cx);
        }
    }
}
