//! Starts a server: all steps that can fail before the first client connects.

use super::background::{Background, Crew};
use super::handshakes::{self, Handshakes};
use super::host::ThisHost;
use super::listeners::Listeners;
use super::{Executor, Failure};
use crate::inbox::Inbox;
use crate::openvpn::INBOX;
use crate::openvpn::device::Peers;
use crate::openvpn::ready::Ready;
use crate::openvpn::server::machine::{Connections, Machine, Setup, is_tcp};
use crate::openvpn::{Context, client, device};
use config::openvpn::{Connection, OpenVpn};
use engine::Sockets;
use netio::poll::Waker;
use netio::udp::Family;
use openvpn::data::wire::OpenVpn as Packets;
use openvpn::server::{Listener, ListenerSettings};
use openvpn::session::TokenKeeper;
use openvpn_host::accounts::ServerSide;
use openvpn_host::accounts::client_names::ClientNames;
use openvpn_host::hooks::Hooks;
use openvpn_host::revocation::RevocationFile;
use openvpn_host::timestamp::Clock;
use openvpn_host::{process, setup, terms};
use plane::LineId;
use plane::Now;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Threads for scripts and password checks. A script may never end, so one source cannot use all threads.
const SCRIPTS: Crew = Crew {
    name: "script",
    threads: 4,
    share: 3,
    waiting: 4096,
    nice: None,
    linger: Duration::ZERO,
    confined: false,
};

impl<'a> Executor<'a> {
    pub(super) fn start(context: &'a Context) -> Result<Self, Failure> {
        let config: &OpenVpn = &context.config;
        let (Some(wanted), Some(connection)) = (config.server(), config.connections.first()) else {
            return Err("no server in the configuration".into());
        };
        let now = Now::read();
        // Created before the list is read, so that a change in between is noticed later.
        let crl = RevocationFile::new(&context.config);
        let Ready {
            mut tls,
            wraps,
            server,
        } = client::ready(context)?;
        let (Some(server), Some((_, wrap))) = (server, wraps.into_iter().next()) else {
            return Err("no server in the configuration".into());
        };
        let threads = handshakes::threads();
        if threads.is_some() {
            tls.hand_out_handshakes();
        }
        let tls = Arc::new(tls);
        setup::prepare(&tls);
        for warning in tls.warnings().iter().chain(&context.expiry(&tls).warnings) {
            log::warn!("WARNING: {warning}");
        }
        let tokens = match (&wanted.auth_token, &server.token_secret) {
            (None, _) | (_, None) => None,
            (Some(token), Some(secret)) => {
                let keeper = TokenKeeper::new(secret, token.lifetime, token.renewal);
                Some(Arc::new(keeper))
            }
        };
        let is_stream = |it: &&Connection| it.protocol.transport.is_tcp();
        let first_tcp = config.connections.iter().find(is_stream);
        let first_udp = config.connections.iter().find(|it| !is_stream(it));
        let kernel = context.mover.kernel();
        let of = |it| {
            Arc::new(terms::server(
                config,
                it,
                Arc::clone(&tls),
                tokens.clone(),
                kernel,
            ))
        };
        let mut settings = ListenerSettings::new(of(first_udp.unwrap_or(connection)), wrap);
        settings.streams = first_udp.and(first_tcp).map(of);
        settings.max_clients = wanted.max_clients as usize;
        let resets = wanted.connect_freq_initial;
        settings.resets = (resets.count, Duration::from_secs(resets.seconds.into()));
        let starts = wanted.connect_freq;
        settings.starts = starts.map(|rate| (rate.count, Duration::from_secs(rate.seconds.into())));
        settings.force_cookie = config.tls.force_cookie;

        let topology = config.network.topology.unwrap_or_default();
        let side = ServerSide {
            topology,
            ifconfig: config.network.ifconfig,
            ifconfig_v6: config.network.ifconfig_v6,
            pool_netmask: wanted.pool.and_then(|pool| pool.netmask),
            pool_bits_v6: wanted.pool_v6.map(|pool| pool.bits),
        };

        let inbox = Arc::new(Inbox::new(INBOX)?);
        let mtu = terms::tun_mtu(connection);
        let (plane, link) = device::start(
            Packets::Server,
            &config.device,
            &context.rungs,
            &context.dataplane,
            kernel.then_some(Peers::Several),
            mtu,
            connection.mtu.fragment.is_some(),
            &inbox,
            false,
        )?;
        if link.index != 0 {
            let ports = config.connections.iter().map(|it| it.local.port);
            host::tunnel_devices::mark_server(&link.name, ports);
            log::info!("TUN/TAP device {} opened", link.name);
        }
        context.monitoring.borrow_mut().publish(&link);
        plane.set_hairpin(wanted.client_to_client);
        let mut connections = Connections::new(settings.max_clients, 0);
        if is_tcp(config) {
            connections.limit(settings.max_clients, raise_open_files(settings.max_clients));
            if let Some(warning) = connections.too_few_for(settings.max_clients) {
                log::warn!("{warning}");
            }
        }
        let mut listeners = Listeners::new();
        let mut sockets = Sockets::default();
        for connection in &config.connections {
            if is_stream(&connection) {
                listeners.listen(config, connection)?;
                continue;
            }
            let more = device::open_udp(config, connection, &context.udp_settings(), None, false)?;
            for socket in more.iter() {
                log::info!(
                    "UDP{} link local (bound): port {}",
                    match socket.family() {
                        Family::V4 => "v4",
                        Family::V6 => "v6",
                    },
                    socket.port()
                );
            }
            let twice = (sockets.v4.is_some() && more.v4.is_some())
                || (sockets.v6.is_some() && more.v6.is_some());
            if twice {
                return Err(
                    "local: the server can listen on only one UDP port for each of IPv4 and IPv6; remove the others, \
                     or listen on every address with `local *`"
                        .into(),
                );
            }
            sockets.v4 = sockets.v4.or(more.v4);
            sockets.v6 = sockets.v6.or(more.v6);
        }
        if first_udp.is_some() {
            plane.open_line(LineId::FIRST, sockets)?;
        }
        let done = Arc::new(Waker::new()?);
        let [ring, bell] = [Arc::clone(&done), Arc::clone(&done)];
        let hooks = || Hooks::new(config, context.file.as_deref(), now.wall);
        // Reads keys, which the process may not do without privileges.
        let mut setup = Setup {
            config,
            material: setup::material(config),
            hooks: hooks(),
            temporary: std::env::temp_dir(),
            clock: Clock::system(),
            mtu,
            listener: Listener::new(settings, now.monotonic, now.wall),
            connections,
            side,
            pool: server.pool,
            passwords: server.passwords,
            names: ClientNames::read(config).unwrap_or_else(|error| {
                log::error!("{error}; clients have the names in their certificates");
                ClientNames::default()
            }),
        };
        let mut host = ThisHost {
            context,
            plane: Rc::from(plane),
            hooks: hooks(),
            link,
            mtu,
            topology,
            tls,
            crl,
            listeners,
            background: Background::new(SCRIPTS, move || ring.wake()),
            handshakes: Handshakes::new(
                threads.unwrap_or(1),
                config.service.nice.unwrap_or(0),
                move || bell.wake(),
            ),
            files: HashMap::new(),
            set: None,
            events: VecDeque::new(),
            ended: None,
        };
        setup.hooks.interface = host.bring_up()?;
        context.drop_privileges()?;
        Ok(Self {
            context,
            machine: Machine::new(setup, now),
            inbox,
            host,
            done,
        })
    }
}

/// Raises the limit of open files for this many TCP clients, as far as permitted. Returns the limit.
pub(super) fn raise_open_files(max_clients: usize) -> usize {
    process::raise_open_files(Connections::open_files_for(max_clients))
}
