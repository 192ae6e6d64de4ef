//! With what a client that may come in does so: its file, its script, its addresses.

use super::super::policy::clients::{self, Addresses};
use super::super::policy::connect_script::{self, ConnectScriptError, Connected};
use super::super::policy::log_lines;
use super::super::policy::scripts::Hook;
use super::super::policy::timestamp::Clock;
use super::super::policy::variables::PoolFacts;
use super::Server;
use super::jobs::Done;
use super::served::{Deferred, Served, Step};
use config::openvpn::{ClientSettings, Framing as Configured, parse_client_settings};
use openvpn::data::framing::Framing;
use openvpn::message::{Advance, AuthFailed, AuthFailedKind};
use openvpn::negotiate::IvProto;
use openvpn::push::PushOptions;
use openvpn::server::{ClientId, Source};
use openvpn::session::CloseReason;
use std::net::IpAddr;
use std::time::SystemTime;

impl Server<'_> {
    /// The client is authenticated and waits for its options.
    pub(super) fn settle(&mut self, id: ClientId) {
        let config = self.config;
        let Some(server) = config.server() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.environment.set_peer("trusted", client.from);
        client
            .environment
            .set_connected(SystemTime::now(), &Clock::system());
        log::info!(
            "[{}] Peer Connection Initiated with {}",
            client.common_name,
            log_lines::outer(client.from)
        );
        let name = client.common_name.clone();
        // Whoever comes again is the same one: the earlier session is over.
        if !server.duplicate_cn {
            let earlier: Vec<ClientId> = self
                .clients
                .iter()
                .filter(|(other, c)| {
                    **other != id
                        && c.common_name == name
                        && matches!(c.step, Step::Settled | Step::In)
                })
                .map(|(other, _)| *other)
                .collect();
            for other in earlier {
                log::info!(
                    "MULTI: new connection by client '{name}' will cause previous active sessions by this client to be dropped. Remember to use the --duplicate-cn option if you want multiple clients using the same certificate or username to concurrently connect."
                );
                self.with(other, |session, _, out| {
                    session.close(CloseReason::Replaced, out);
                });
            }
        }
        let inside = |(other, c): &(&ClientId, &Served)| {
            **other != id && matches!(c.step, Step::Settled | Step::In)
        };
        if self.clients.iter().filter(inside).count() >= server.max_clients as usize {
            return self.refuse_for_now(
                id,
                "MULTI: new incoming connection would exceed maximum number of clients",
            );
        }
        let settings = match self.own_settings(&name) {
            Ok(settings) => settings,
            Err(why) => return self.refuse(id, why),
        };
        self.address(id, settings);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let Some(command) = &config.scripts.client_connect else {
            return self.admit(id);
        };
        let invocation = match self.hooks.invocation(
            Hook::ClientConnect,
            command,
            Vec::new(),
            &client.environment,
        ) {
            Ok(invocation) => invocation,
            Err(error) => {
                log::warn!("{error}");
                return self.refuse(id, "client-connect cannot be run");
            }
        };
        client.step = Step::Settled;
        let (number, source) = (client.number, Some(Source::from(client.from)));
        let directory = self.script_directory();
        match self.background.submit(source, move || {
            Done::Settled(connect_script::run(invocation, &directory))
        }) {
            Ok(job) => {
                self.jobs.insert(job, (id, number));
            }
            Err(busy) => self.refuse_for_now(id, &busy.to_string()),
        }
    }

    pub(super) fn settled(&mut self, id: ClientId, outcome: Result<Connected, ConnectScriptError>) {
        match outcome {
            Ok(Connected::Settings(text)) => {
                let (more, report) = parse_client_settings(&text, "client-connect");
                for entry in report
                    .entries
                    .iter()
                    .filter(|e| e.verdict != config::report::Verdict::Honoured)
                {
                    log::warn!("{}", report.describe(entry));
                }
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                client.scripted = more.clone();
                let settings = clients::merge(std::mem::take(&mut client.settings), more);
                if settings.disable {
                    return self.refuse(id, "it is disabled by client-connect");
                }
                self.address(id, settings);
                self.admit(id);
            }
            Ok(Connected::Deferred(files)) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.deferred = Some(Deferred::Settings(files));
                }
            }
            Err(error) => {
                log::warn!("{error}");
                self.refuse(id, "client-connect refused it");
            }
        }
    }

    /// What the files of `client-config-dir` say of a client, or why it is not let in.
    pub(super) fn own_settings(&self, name: &str) -> Result<ClientSettings, &'static str> {
        let mut settings = ClientSettings::default();
        let server = self.config.server();
        let Some(directory) = server.and_then(|it| it.client_config_dir.as_ref()) else {
            return Ok(settings);
        };
        let directory = self.config.path(directory);
        if server.is_some_and(|it| it.ccd_exclusive) && !clients::has_own_file(&directory, name) {
            return Err("no file in client-config-dir, and ccd-exclusive is set");
        }
        match clients::file(&directory, name) {
            Ok(None) => {}
            Ok(Some((path, text))) => {
                let (read, report) = parse_client_settings(&text, &path.display().to_string());
                for entry in report
                    .entries
                    .iter()
                    .filter(|e| e.verdict != config::report::Verdict::Honoured)
                {
                    log::warn!("{}", report.describe(entry));
                }
                settings = read;
            }
            Err(error) => {
                log::warn!("client-config-dir: {error}");
                return Err("its file in client-config-dir cannot be read");
            }
        }
        if settings.disable {
            return Err("it is disabled by its file in client-config-dir");
        }
        Ok(settings)
    }

    /// The networks behind a client with these settings, its own addresses first; those beyond `max-routes-per-client`
    /// are left out.
    pub(super) fn networks_of(
        &self,
        settings: &ClientSettings,
        addresses: &Addresses,
    ) -> Vec<(IpAddr, u8)> {
        let mut networks = clients::inner_networks(settings, addresses);
        let Some(server) = self.config.server() else {
            return networks;
        };
        let most = settings.max_routes.unwrap_or(server.max_routes_per_client);
        let own = networks.len() - settings.iroutes.len() - settings.iroutes_v6.len();
        let most = own + most as usize;
        if networks.len() > most {
            log::warn!(
                "more routes than max-routes-per-client allows; the last {} are left out",
                networks.len() - most
            );
            networks.truncate(most);
        }
        networks
    }

    /// Gives the client its addresses.
    fn address(&mut self, id: ClientId, settings: ClientSettings) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if let Some(pool) = &mut self.pool {
            match (client.lease, clients::needs_lease(&settings)) {
                (None, true) => client.lease = pool.acquire(Some(&client.common_name)),
                (Some(lease), false) => {
                    pool.forget(lease.place);
                    client.lease = None;
                }
                _ => {}
            }
            if client.lease.is_none() && clients::needs_lease(&settings) {
                log::warn!("no free address in the pool");
            }
        }
        client.addresses = Addresses::new(&self.side, &settings, client.lease.as_ref());
        let constraint = self.config.server();
        let constraint = constraint.and_then(|it| it.ifconfig_push_constraint);
        if let (Some((network, netmask)), Some(address)) = (constraint, client.addresses.ifconfig)
            && (address.local & netmask) != (network & netmask)
        {
            log::warn!(
                "its address {} is not in {network} {netmask}, as ifconfig-push-constraint wants",
                address.local
            );
        }
        client.environment.set_pool(
            self.side.topology,
            &PoolFacts {
                ifconfig: client.addresses.ifconfig,
                ifconfig_v6: client.addresses.ifconfig_v6,
            },
        );
        let addresses = client.addresses;
        let networks = self.networks_of(&settings, &addresses);
        if let Some(client) = self.clients.get_mut(&id) {
            client.networks = networks;
            client.settings = settings;
        }
    }

    /// Everything is known: the client gets its options, and its keys.
    fn admit(&mut self, id: ClientId) {
        let config = self.config;
        let Some(server) = config.server() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let mut options = clients::push_options(&server.push, &client.settings, &client.addresses);
        client.options.clone_from(&options);
        if config.data.migrate
            && let Some(session) = self.listener.session(id)
        {
            let old = session
                .peer_options()
                .is_some_and(|o| o.split(',').any(|w| w == "comp-lzo"));
            let can = |flag| session.peer_info().is_some_and(|info| info.flag(flag));
            client.framing = if old && can("IV_COMP_STUBv2") {
                options.push("compress stub-v2".to_owned());
                Framing::V2
            } else if old && can("IV_LZO_STUB") {
                options.push("comp-lzo no".to_owned());
                Framing::Lzo
            } else if old {
                Framing::Lzo
            } else {
                Framing::None
            };
        } else {
            client.framing = super::super::sizes::configured(config.data.framing);
        }
        // What a client is pushed about its framing goes for the server's side as well.
        for option in &options {
            match option.split_whitespace().collect::<Vec<_>>()[..] {
                ["comp-lzo", ..] => client.framing = Framing::Lzo,
                ["compress", "stub-v2" | "lz4-v2"] => client.framing = Framing::V2,
                ["compress", "lzo"] => client.framing = Framing::Lzo,
                ["compress"] | ["compress", "stub" | "lz4"] => {
                    client.framing = Framing::Swap;
                }
                _ => {}
            }
        }
        debug_assert!(config.data.framing == Configured::None || !options.is_empty());
        let push = PushOptions {
            options,
            tun_mtu: Some(self.mtu.into()),
            peer_id: Some(id.0),
        };
        self.with(id, |session, now, out| session.push(&push, now, out));
    }

    pub(super) fn refuse(&mut self, id: ClientId, why: &str) {
        log::warn!("the client is refused: {why}");
        self.with(id, |session, now, out| {
            session.deny(AuthFailed::default(), now, out);
        });
    }

    /// Refuses a client that may come again soon: by saying so if it knows the word, else without one, for most clients
    /// give up after any other.
    fn refuse_for_now(&mut self, id: ClientId, why: &str) {
        log::warn!("the client is refused for now: {why}");
        self.with(id, |session, now, out| {
            let info = session.peer_info();
            if !info.is_some_and(|it| it.proto().has(IvProto::AUTH_FAIL_TEMP)) {
                return session.close(CloseReason::Local, out);
            }
            let failed = AuthFailed {
                kind: AuthFailedKind::Temporary {
                    backoff: None,
                    advance: Advance::Unspecified,
                },
                reason: "the server is busy".to_owned(),
            };
            session.deny(failed, now, out);
        });
    }
}
