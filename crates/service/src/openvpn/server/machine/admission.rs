//! Admission of an authenticated client: its file, its script, its addresses.

use super::client::{Deferred, Step};
use super::{ClientFile, Cx, Job, JobId, Machine, line};
use config::openvpn::{ClientSettings, parse_client_settings};
use config::report::{Report, Verdict};
use openvpn::data::format::Framing;
use openvpn::message::{Advance, AuthFailed, AuthFailedKind};
use openvpn::negotiate::IvProto;
use openvpn::push::PushOptions;
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, Session};
use openvpn_host::accounts::{self, Addresses};
use openvpn_host::console::log_lines;
use openvpn_host::scripts::Hook;
use openvpn_host::sizes;
use plane::SourceNetwork;
use std::net::IpAddr;

/// Reason of a refusal for now.
pub(super) const BUSY: &str = "the server is busy";

impl Machine<'_> {
    /// The client is authenticated and waits for its options.
    pub(super) fn push_requested(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let config = self.config;
        let Some(server) = config.server() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let environment = &mut client.environment;
        environment.set_peer("trusted", client.from.address);
        environment.set_connected(cx.now.wall, &self.clock);
        let name = client.common_name.clone();
        line!(
            cx,
            Info,
            "[{name}] Peer Connection Initiated with {}",
            log_lines::outer(client.from.address)
        );
        // Without `duplicate-cn`, a second login of the same name ends the earlier session.
        if !server.duplicate_cn {
            let earlier: Vec<ClientId> = self
                .clients
                .iter()
                .filter(|(other, c)| **other != id && c.common_name == name && c.is_admitted())
                .map(|(other, _)| *other)
                .collect();
            for other in earlier {
                line!(
                    cx,
                    Info,
                    "MULTI: new connection by client '{name}' will cause previous active sessions by this client to be dropped. Remember to use the --duplicate-cn option if you want multiple clients using the same certificate or username to concurrently connect."
                );
                self.close(cx, other, CloseReason::Replaced);
            }
        }
        let others = self.clients.iter().filter(|(other, _)| **other != id);
        let admitted = others.filter(|(_, client)| client.is_admitted());
        if admitted.count() >= server.max_clients as usize {
            return self.refuse_for_now(
                cx,
                id,
                "MULTI: new incoming connection would exceed maximum number of clients",
            );
        }
        // Counts towards `max-clients` while its files and scripts are read.
        if let Some(client) = self.clients.get_mut(&id) {
            client.step = Step::Settled;
        }
        self.read_file(cx, id);
    }

    /// Reads the client's file, if the configuration has a directory for it.
    pub(super) fn read_file(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let server = self.config.server();
        let directory = server.and_then(|it| it.client_config_dir.as_ref());
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        match directory {
            Some(directory) => {
                let directory = self.config.path(directory);
                let exclusive = server.is_some_and(|it| it.ccd_exclusive);
                let file = (cx.host).client_file(&directory, &client.common_name, exclusive);
                self.file_read(cx, id, file);
            }
            None => self.own_settings(cx, id, ClientSettings::default()),
        }
    }

    /// Continues a login after the client's file in `client-config-dir` was read.
    fn file_read(&mut self, cx: &mut Cx<'_>, id: ClientId, file: ClientFile) {
        let settings = match file {
            ClientFile::NotItsOwn => {
                let why = "it has no file in client-config-dir, and ccd-exclusive is set";
                return self.refuse(cx, id, why);
            }
            ClientFile::Unreadable(error) => {
                line!(cx, Warn, "client-config-dir: {error}");
                return self.refuse(cx, id, "its file in client-config-dir cannot be read");
            }
            ClientFile::Read(None) => ClientSettings::default(),
            ClientFile::Read(Some((path, text))) => {
                let (settings, report) =
                    parse_client_settings(&text, &path.display().to_string(), false);
                self.warn_of(cx, &report);
                settings
            }
        };
        if settings.disable {
            return self.refuse(cx, id, "its file in client-config-dir disables it");
        }
        self.own_settings(cx, id, settings);
    }

    fn warn_of(&mut self, cx: &mut Cx<'_>, report: &Report) {
        let entries = report.entries.iter();
        for entry in entries.filter(|entry| entry.verdict != Verdict::Honoured) {
            line!(cx, Warn, "{}", report.describe(entry));
        }
    }

    /// Applies a client's settings without its script's: at login, or for an admitted client after a reload.
    fn own_settings(&mut self, cx: &mut Cx<'_>, id: ClientId, settings: ClientSettings) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if client.step == Step::In {
            return self.refresh(cx, id, settings);
        }
        self.address(cx, id, settings);
        let config = self.config;
        let (Some(command), Some(client)) = (&config.scripts.client_connect, self.clients.get(&id))
        else {
            return self.admit(cx, id);
        };
        let (key, source) = (client.key(id), SourceNetwork::from(client.from.address));
        match self
            .hooks
            .invocation(Hook::ClientConnect, command, [], &client.environment)
        {
            Ok(script) => {
                let job = Job::Settings(script, self.script_directory());
                if let Err(busy) = self.start_for(cx, key, source, job) {
                    self.refuse_for_now(cx, id, &busy);
                }
            }
            Err(error) => {
                line!(cx, Warn, "{error}");
                self.refuse(cx, id, "client-connect cannot be run");
            }
        }
    }

    /// Handles the end of the script that makes a client's settings. Gets their text, or `None` if it comes later in
    /// the job's files.
    pub(super) fn settled(
        &mut self,
        cx: &mut Cx<'_>,
        id: ClientId,
        job: JobId,
        outcome: Result<Option<String>, String>,
    ) {
        match outcome {
            Ok(Some(text)) => {
                self.defer(cx, id, None);
                let (more, report) = parse_client_settings(&text, "client-connect", true);
                self.warn_of(cx, &report);
                let Some(client) = self.clients.get_mut(&id) else {
                    return;
                };
                client.scripted = more.clone();
                let settings = accounts::merge(std::mem::take(&mut client.settings), more);
                if settings.disable {
                    return self.refuse(cx, id, "client-connect disabled it");
                }
                self.address(cx, id, settings);
                self.admit(cx, id);
            }
            Ok(None) => self.defer(cx, id, Some(Deferred::Settings(job))),
            Err(error) => {
                self.defer(cx, id, None);
                line!(cx, Warn, "{error}");
                self.refuse(cx, id, "client-connect refused it");
            }
        }
    }

    /// Returns the networks behind a client with these settings, its own addresses first, without those beyond
    /// `max-routes-per-client`.
    pub(super) fn networks_of(
        &mut self,
        cx: &mut Cx<'_>,
        settings: &ClientSettings,
        addresses: &Addresses,
    ) -> Vec<(IpAddr, u8)> {
        let mut networks = accounts::inner_networks(settings, addresses);
        let Some(server) = self.config.server() else {
            return networks;
        };
        let most = settings.max_routes.unwrap_or(server.max_routes_per_client);
        let own = networks.len() - settings.iroutes.len() - settings.iroutes_v6.len();
        let most = own + most as usize;
        if networks.len() > most {
            line!(
                cx,
                Warn,
                "it has more routes than max-routes-per-client allows; the last {} are skipped",
                networks.len() - most
            );
            networks.truncate(most);
        }
        networks
    }

    /// Assigns the client's addresses.
    fn address(&mut self, cx: &mut Cx<'_>, id: ClientId, settings: ClientSettings) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if let Some(pool) = &mut self.pool {
            let needed = accounts::needs_lease(&self.side, &settings);
            match (client.lease, needed) {
                (None, true) => client.lease = pool.acquire(Some(&client.common_name)),
                (Some(lease), false) => {
                    pool.forget(lease.place);
                    client.lease = None;
                }
                _ => {}
            }
            if client.lease.is_none() && needed {
                line!(cx, Warn, "the address pool is used up");
            }
        }
        client.addresses = Addresses::new(&self.side, &settings, client.lease.as_ref());
        let constraint = self.config.server();
        let constraint = constraint.and_then(|it| it.ifconfig_push_constraint);
        if let (Some((network, netmask)), Some(address)) = (constraint, client.addresses.ifconfig)
            && (address.local & netmask) != (network & netmask)
        {
            line!(
                cx,
                Warn,
                "its address {} is not in {network} {netmask}, as ifconfig-push-constraint requires",
                address.local
            );
        }
        let addresses = client.addresses;
        client.environment.set_pool(
            self.side.topology,
            addresses.ifconfig,
            addresses.ifconfig_v6,
        );
        let networks = self.networks_of(cx, &settings, &addresses);
        if let Some(client) = self.clients.get_mut(&id) {
            client.networks = networks;
            client.settings = settings;
        }
    }

    /// Sends the client its options; its keys follow.
    fn admit(&mut self, cx: &mut Cx<'_>, id: ClientId) {
        let config = self.config;
        let Some(server) = config.server() else {
            return;
        };
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let mut options = accounts::push_options(&server.push, &client.settings, &client.addresses);
        client.options.clone_from(&options);
        let (mut framing, stream) = (config.data.framing, client.is_stream());
        if config.data.migrate
            && let Some(session) = self.listener.session(id)
        {
            let old = session
                .peer_options()
                .is_some_and(|o| o.split(',').any(|w| w == "comp-lzo"));
            let can = |flag| session.peer_info().is_some_and(|info| info.flag(flag));
            framing = if old && can("IV_COMP_STUBv2") {
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
        }
        // Pushed framing options also apply to the server's side.
        for option in &options {
            match option.split_whitespace().collect::<Vec<_>>()[..] {
                ["comp-lzo", ..] => framing = Framing::Lzo,
                ["compress", "stub-v2" | "lz4-v2"] => framing = Framing::V2,
                ["compress", "lzo"] => framing = Framing::Lzo,
                ["compress"] | ["compress", "stub" | "lz4"] => {
                    framing = Framing::Swap;
                }
                _ => {}
            }
        }
        debug_assert!(config.data.framing == Framing::None || !options.is_empty());
        let push = PushOptions {
            options,
            tun_mtu: Some(self.mtu.into()),
            peer_id: Some(id.0),
        };
        let (connection, now) = (self.connection_of(stream), cx.now.monotonic);
        let _about = self.about(id);
        let mut out = Vec::new();
        let agreed = self.listener.with(id, &mut out, |session, out| {
            session.push(&push, now, out);
            session.data_channel()
        });
        if let (Some(Some(agreed)), Some(client)) = (agreed, self.clients.get_mut(&id)) {
            let address = client.from.address;
            match sizes::shape(config, connection, agreed, framing, self.mtu, address) {
                Ok(shape) => client.channel.shape = shape,
                Err(error) => {
                    line!(cx, Error, "{error}");
                    return self.close(cx, id, CloseReason::Local);
                }
            }
        }
        self.perform(cx, out);
    }

    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, id: ClientId, why: &str) {
        line!(cx, Warn, "the client is refused: {why}");
        self.with(cx, id, |session, now, out| {
            session.deny(AuthFailed::default(), now, out);
        });
    }

    /// Refuses a client that may try again soon. Says so if the client understands `TEMP`; otherwise sends nothing,
    /// because most clients give up after any other refusal.
    pub(super) fn refuse_for_now(&mut self, cx: &mut Cx<'_>, id: ClientId, why: &str) {
        line!(cx, Warn, "the client is refused for now: {why}");
        self.with(cx, id, |session, now, out| {
            if !knows_temporary(session) {
                return session.close(CloseReason::Local, out);
            }
            session.deny(for_now(BUSY), now, out);
        });
    }
}

/// Whether the client understands a refusal for now.
pub(super) fn knows_temporary(session: &Session) -> bool {
    let info = session.peer_info();
    info.is_some_and(|it| it.proto().has(IvProto::AUTH_FAIL_TEMP))
}

/// Returns the message of a refusal for now, with this reason.
pub(super) fn for_now(reason: &str) -> AuthFailed {
    AuthFailed {
        kind: AuthFailedKind::Temporary {
            backoff: None,
            advance: Advance::Unspecified,
        },
        reason: reason.to_owned(),
    }
}
