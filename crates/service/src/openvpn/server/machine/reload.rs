//! SIGHUP: applies a new configuration without ending sessions, if possible.

use super::client::Step;
use super::connected::{add, remove};
use super::{ConfigurationRead, Cx, Machine, line};
use crate::openvpn::Ended;
use config::openvpn::{ClientSettings, OpenVpn, Role};
use openvpn::server::ClientId;
use openvpn::session::{CloseReason, Session};
use openvpn_host::accounts::{self, Addresses};
use openvpn_host::scripts::Learned;
use std::net::IpAddr;
use std::time::Duration;

impl<'a> Machine<'a> {
    /// Handles the new configuration. The server restarts if a change affects sessions, sockets or the interface.
    pub(super) fn configuration_read(
        &mut self,
        cx: &mut Cx<'_>,
        read: Result<ConfigurationRead<'a>, String>,
    ) {
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                return line!(
                    cx,
                    Error,
                    "SIGHUP received, but the server keeps its old configuration: {error}"
                );
            }
        };
        if read.material.is_none() {
            line!(
                cx,
                Warn,
                "SIGHUP received, but a certificate or key is not readable any more (for this user?); those read at \
                 the start stay in use"
            );
        }
        let changed = read.material.is_some() && read.material != self.material;
        if changed || !is_reloadable(self.config, read.config) {
            if let Err(error) = read.anew {
                return line!(
                    cx,
                    Error,
                    "SIGHUP received, but the server keeps its old configuration: {error}"
                );
            }
            line!(cx, Info, "SIGHUP[hard,] received, process restarting");
            return self.leave(cx, Ended::Reload);
        }
        line!(
            cx,
            Info,
            "SIGHUP received: changed settings applied, sessions kept"
        );
        // Also where the key is unreadable: the certificate is checked against the key in memory.
        cx.host.renew_certificate(read.config);
        self.take_over(cx, read.config);
    }

    fn take_over(&mut self, cx: &mut Cx<'_>, read: &'a OpenVpn) {
        self.config = read;
        let Some(server) = read.server() else {
            return;
        };
        let period =
            |rate: &config::openvpn::Rate| (rate.count, Duration::from_secs(rate.seconds.into()));
        let most = server.max_clients as usize;
        self.listener.limit(
            most,
            period(&server.connect_freq_initial),
            server.connect_freq.as_ref().map(period),
        );
        if is_tcp(read) {
            let open_files = cx.host.raise_open_files(most);
            self.connections.limit(most, open_files);
            if let Some(warning) = self.connections.too_few_for(most) {
                line!(cx, Warn, "{warning}");
            }
        }
        cx.plane.set_hairpin(server.client_to_client);
        match cx.host.passwords(read) {
            Ok(passwords) => self.passwords = passwords,
            Err(error) => line!(cx, Error, "{error}; the earlier file stays in use"),
        }
        match cx.host.names(read) {
            Ok(names) => self.names = names,
            Err(error) => line!(
                cx,
                Error,
                "{error}; clients keep their earlier names until a restart"
            ),
        }
        for (id, client) in &mut self.clients {
            let session = self.listener.session(*id);
            let certificate = session.and_then(Session::certificate);
            let certified = certificate.map(|it| &*it.common_name);
            let name = self.names.of(certified, &client.common_name);
            client.name = name.map(Box::from);
        }
        cx.host.change_routes(read);
        let inside = self.clients.iter().filter(|(_, it)| it.step == Step::In);
        let inside: Vec<ClientId> = inside.map(|(id, _)| *id).collect();
        for id in inside {
            let _about = self.about(id);
            self.read_file(cx, id);
        }
    }

    /// Disconnects clients whose certificate is revoked now, before their next negotiation. Runs even if the
    /// configuration is rejected: the key may be stolen.
    pub(super) fn find_revoked(&mut self, cx: &mut Cx<'_>) {
        cx.host.refresh_revocations(self.config);
        let revoked = self.clients.keys().filter(|id| {
            let session = self.listener.session(**id);
            let certificate = session.and_then(Session::certificate);
            certificate.is_some_and(|it| cx.host.is_revoked(it))
        });
        let revoked: Vec<ClientId> = revoked.copied().collect();
        for id in revoked {
            let _about = self.about(id);
            cx.host
                .announce("session ended: its certificate is revoked");
            self.close(cx, id, CloseReason::Local);
        }
    }

    /// Applies a client's current files. A client whose pushed options would change is disconnected and gets them when
    /// it returns.
    pub(super) fn refresh(&mut self, cx: &mut Cx<'_>, id: ClientId, own: ClientSettings) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let settings = accounts::merge(own, client.scripted.clone());
        let pushed = self.is_pushed(&settings, id);
        if settings == client.settings && pushed {
            return;
        }
        if !pushed {
            line!(cx, Info, "its options have changed; asking it to reconnect");
            return self.send_away(cx, id);
        }
        let addresses = client.addresses;
        let networks = self.networks_of(cx, &settings, &addresses);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut client.networks, networks.clone());
        let (name, environment) = (client.common_name.clone(), client.environment.clone());
        let seconds = |n: u32| Duration::from_secs(n.into());
        let inactive = settings.inactive.map(|(n, bytes)| (seconds(n), bytes));
        let timeout = settings.session_timeout.map(seconds);
        client.settings = settings;
        let without = |list: &[(IpAddr, u8)], others: &[(IpAddr, u8)]| {
            let rest = list.iter().filter(|it| !others.contains(it));
            rest.copied().collect::<Vec<_>>()
        };
        let (old, new) = (without(&before, &networks), without(&networks, &before));
        let changes = old.iter().map(|it| remove(id, *it));
        let changes = changes.chain(new.iter().map(|it| add(id, *it)));
        cx.plane.change_routes(&changes.collect::<Vec<_>>());
        self.tell_learned(cx, &environment, Learned::Delete, &old);
        for (ip, bits) in &new {
            line!(cx, Info, "network {ip}/{bits} is now routed to it");
        }
        self.tell_learned(cx, &environment, Learned::Add(&name), &new);
        self.with(cx, id, |session, _, _| session.limit(inactive, timeout));
    }

    /// Whether the client would be pushed the same options with these settings.
    fn is_pushed(&self, settings: &ClientSettings, id: ClientId) -> bool {
        let (Some(server), Some(client)) = (self.config.server(), self.clients.get(&id)) else {
            return true;
        };
        let addresses = Addresses::new(&self.side, settings, client.lease.as_ref());
        addresses == client.addresses
            && accounts::push_options(&server.push, settings, &addresses) == client.options
    }
}

/// Whether the server has TCP listeners.
pub(crate) fn is_tcp(config: &OpenVpn) -> bool {
    let mut connections = config.connections.iter();
    connections.any(|it| it.protocol.transport.is_tcp())
}

/// Whether only settings changed that can change under sessions.
fn is_reloadable(before: &OpenVpn, after: &OpenVpn) -> bool {
    let mut same = after.clone();
    let (Role::Server(was), Role::Server(is)) = (&before.role, &mut same.role) else {
        return false;
    };
    is.push.clone_from(&was.push);
    is.client_config_dir.clone_from(&was.client_config_dir);
    is.ccd_exclusive = was.ccd_exclusive;
    is.client_to_client = was.client_to_client;
    is.max_clients = was.max_clients;
    is.max_routes_per_client = was.max_routes_per_client;
    is.ifconfig_push_constraint = was.ifconfig_push_constraint;
    is.connect_freq = was.connect_freq;
    is.connect_freq_initial = was.connect_freq_initial;
    // Adding or removing the password file is not reloadable: without one, clients need no password.
    if was.password_file.is_some() == is.password_file.is_some() {
        is.password_file.clone_from(&was.password_file);
    }
    // A renewed certificate of the same key.
    if before.tls.cert.is_some() && same.tls.cert.is_some() {
        same.tls.cert.clone_from(&before.tls.cert);
    }
    same.network.home.clone_from(&before.network.home);
    same.network.routes.clone_from(&before.network.routes);
    same.network.routes_v6.clone_from(&before.network.routes_v6);
    same.places.clone_from(&before.places);
    same == *before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(lines: &str) -> OpenVpn {
        let text = format!(
            "dev tun\nserver 10.8.0.0 255.255.255.0\nca c\ncert c\nkey k\ndh none\n{lines}\n"
        );
        let name = std::path::Path::new("a.conf");
        let mut none = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let options = config::openvpn::Options::default();
        let import = config::openvpn::parse_bytes(text.as_bytes(), name, &mut none, options);
        import.unwrap().into_model().unwrap().0
    }

    #[test]
    fn sessions_go_on_where_only_clients_and_routes_change() {
        let before = server("");
        for lines in [
            "# nothing",
            "route 192.168.50.0 255.255.255.0",
            "push \"route 192.168.1.0 255.255.255.0\"",
            "client-config-dir ccd\nccd-exclusive",
            "client-to-client\nmax-clients 7",
            "#! [Server]\n#! LAN = 192.168.1.0/24",
            "<cert>\nrenewed\n</cert>",
        ] {
            assert!(is_reloadable(&before, &server(lines)), "{lines}");
        }
        for lines in [
            "port 1195",
            "proto tcp-server",
            "cipher AES-128-CBC",
            "data-ciphers AES-128-GCM",
            "keepalive 1 2",
            "tun-mtu 1400",
            "duplicate-cn",
            "auth-user-pass-file users",
            "verify-client-cert none\nauth-user-pass-file users",
            "verb 4",
        ] {
            assert!(!is_reloadable(&before, &server(lines)), "{lines}");
        }
    }
}
