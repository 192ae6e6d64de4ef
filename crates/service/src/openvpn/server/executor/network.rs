//! Host side of a server's tunnel: its own address, and routes to its clients.

use super::host::ThisHost;
use config::openvpn::{Command, Network};
use openvpn_host::management::Told;
use openvpn_host::network::{Inside, InsideError, Surroundings, TunnelNetwork, route_names};
use openvpn_host::scripts::environment::Environment;
use openvpn_host::scripts::variables::describe_routes;
use openvpn_host::scripts::{Hook, device_arguments};

/// Settings in force, and the script variables for them.
pub(super) struct Set {
    pub(super) inside: Inside,
    environment: Environment,
}

impl ThisHost<'_> {
    /// Sets the interface's addresses and routes, and runs the scripts for it. Returns the interface's variables for
    /// clients' scripts.
    pub(super) fn bring_up(&mut self) -> Result<Environment, Box<dyn std::error::Error>> {
        if self.link.index == 0 {
            return Ok(Environment::default());
        }
        let config = &self.context.config;
        let mut inside = self.planned(&config.network)?;
        if let Some(manager) = &self.context.manager {
            inside = inside.managed_by(manager);
        }
        inside.set_interface(config.scripts.up.is_some())?;
        let mut environment = self.hooks.base.clone();
        environment.set_device(&self.link.name, self.mtu, "init");
        let network = &config.network;
        environment.set_addresses(self.topology, network.ifconfig, network.ifconfig_v6);
        describe_routes(&mut environment, &inside.network, &inside.facts);
        let script = config.scripts.up.as_ref();
        self.hooks
            .run(Hook::Up, script, self.arguments("init"), &environment)?;
        match inside.set_routes() {
            // The manager has the settings; the rest is retried when the host's network changes.
            Err(InsideError::Managed(error)) => log::warn!("{}: {error}", self.link.name),
            other => other?,
        }
        let told = Told::UpDown(true, environment.clone());
        self.context.monitoring.borrow_mut().tell(&told);
        let script = config.scripts.route_up.as_ref();
        self.hooks.tell(Hook::RouteUp, script, [], &environment);
        self.set = Some(Set {
            inside,
            environment: environment.clone(),
        });
        Ok(environment)
    }

    /// Sets the routes of this configuration and removes those no longer configured; the others stay.
    pub(super) fn set_routes(&mut self, network: &Network) -> Result<(), InsideError> {
        let Some(mut set) = self.set.take() else {
            return Ok(());
        };
        let wanted = self.planned(network);
        let changed = wanted.and_then(|wanted| set.inside.change_routes(&wanted));
        self.set = Some(set);
        changed
    }

    /// Plans the configured network. Looks up names in routes; a signal leaves the remaining names out.
    fn planned(&self, network: &Network) -> Result<Inside, InsideError> {
        let around = Surroundings {
            ifname: &self.link.name,
            remote: None,
            mark: self.context.config.sockets.mark.unwrap_or(0),
        };
        let network = TunnelNetwork::merge(network, self.mtu, None)?;
        let names: Vec<String> = network.names().map(str::to_owned).collect();
        Inside::of(network, &route_names(&names, &self.context.stop()), around)
    }

    /// Adapts the settings after a change of the host's network.
    pub(super) fn follow(&mut self) {
        if let Some(set) = &mut self.set
            && let Err(error) = set.inside.follow()
        {
            log::warn!("{}: {error}", self.link.name);
        }
    }

    /// Undoes the settings and runs the scripts for their end.
    pub(super) fn undo(&mut self) {
        let Some(mut set) = self.set.take() else {
            return;
        };
        let scripts = &self.context.config.scripts;
        set.environment.set("signal", "sigterm");
        let told = Told::UpDown(false, set.environment.clone());
        self.context.monitoring.borrow_mut().tell(&told);
        let run = |hook, script: &Option<Command>| {
            let arguments = self.arguments("init");
            self.hooks
                .tell(hook, script.as_ref(), arguments, &set.environment);
        };
        run(Hook::RoutePreDown, &scripts.route_pre_down);
        if scripts.down_pre {
            run(Hook::Down, &scripts.down);
        }
        set.inside.undo();
        if !scripts.down_pre {
            run(Hook::Down, &scripts.down);
        }
    }

    fn arguments(&self, context: &str) -> [String; 6] {
        let ifconfig = self.context.config.network.ifconfig;
        device_arguments(
            &self.link.name,
            self.mtu,
            ifconfig.map(|i| i.local),
            ifconfig.map(|i| i.second),
            context,
        )
    }
}
