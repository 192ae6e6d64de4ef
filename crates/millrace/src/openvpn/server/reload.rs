//! SIGHUP: what has changed is done while sessions go on, where that can be.

use super::super::policy::clients::{self, Addresses};
use super::super::policy::scripts::Learned;
use super::super::{Ended, setup};
use super::served::Step;
use super::{Server, start};
use config::openvpn::{OpenVpn, Role};
use openvpn::server::ClientId;
use std::sync::Arc;
use std::time::Duration;

impl Server<'_> {
    /// Reads the configuration again. Returns a reason to start anew: something has changed that sessions, sockets or the
    /// interface were made with.
    pub(super) fn reload(&mut self) -> Option<Ended> {
        let read = match self.context.read_again() {
            Ok(read) => read,
            Err(error) => {
                log::error!("SIGHUP received, and the server goes on as it was: {error}");
                return None;
            }
        };
        let material = setup::material(&read);
        if material.is_none() {
            log::warn!(
                "SIGHUP: a certificate or key cannot be read any more (by this user?): those that were read at the \
                 start are used"
            );
        }
        let changed = material.is_some() && material != self.material;
        if changed || !is_reloadable(self.config, &read) {
            log::info!("SIGHUP[hard,] received, process restarting");
            return Some(Ended::Reload);
        }
        log::info!("SIGHUP received: what has changed is done, and sessions go on");
        self.take_over(read);
        None
    }

    fn take_over(&mut self, read: OpenVpn) {
        if *self.config != read {
            self.config = self.context.keep(read);
            self.hooks.follow(self.config);
        }
        let Some(server) = self.config.server() else {
            return;
        };
        let period =
            |rate: &config::openvpn::Rate| (rate.count, Duration::from_secs(rate.seconds.into()));
        self.listener.limit(
            server.max_clients as usize,
            period(&server.connect_freq_initial),
            server.connect_freq.as_ref().map(period),
        );
        let most = server.max_clients as usize;
        start::limit_streams(self.config, most, &mut self.streams);
        self.tunnel.set_hairpin(server.client_to_client);
        match start::passwords(self.config) {
            Ok(file) => self.passwords = file,
            Err(error) => log::error!("{error}; the earlier file is used"),
        }
        if let Err(error) = self.change_routes() {
            log::error!("{error}");
        }
        let inside = self.clients.iter().filter(|(_, it)| it.step == Step::In);
        let inside: Vec<ClientId> = inside.map(|(id, _)| *id).collect();
        for id in inside {
            self.refresh(id);
        }
        self.tunnel.set_routes(self.routes.clone());
    }

    /// Gives a client that is in what its files say now. One that would be pushed something else is sent away, and comes
    /// again for it.
    fn refresh(&mut self, id: ClientId) {
        let _who = self.speak_of(id);
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let own = match self.own_settings(&client.common_name) {
            Ok(own) => own,
            Err(why) => return self.refuse(id, why),
        };
        let settings = clients::merge(own, client.scripted.clone());
        if settings == client.settings && self.is_pushed(&settings, id) {
            return;
        }
        if !self.is_pushed(&settings, id) {
            log::info!("its options have changed: it is told to connect again");
            return self.send_away(id);
        }
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        let networks = self.networks_of(&settings, &client.addresses);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut client.networks, networks.clone());
        let peer = Arc::clone(&client.conduit.peer);
        let (name, environment) = (client.common_name.clone(), client.environment.clone());
        let seconds = |n: u32| Duration::from_secs(n.into());
        let inactive = settings.inactive.map(|(n, bytes)| (seconds(n), bytes));
        let timeout = settings.session_timeout.map(seconds);
        client.settings = settings;
        for network in before.iter().filter(|it| !networks.contains(it)) {
            let mine = |of: &Arc<_>| Arc::ptr_eq(of, &peer);
            self.routes.remove_if(network.0, network.1, mine);
            if let Some(command) = &self.config.scripts.learn_address {
                self.tell_learned(command, &environment, Learned::Delete, *network);
            }
        }
        for network in networks.iter().filter(|it| !before.contains(it)) {
            self.routes.insert(network.0, network.1, Arc::clone(&peer));
            log::info!(
                "network {}/{} is behind it from now on",
                network.0,
                network.1
            );
            if let Some(command) = &self.config.scripts.learn_address {
                self.tell_learned(command, &environment, Learned::Add(&name), *network);
            }
        }
        self.with(id, |session, _, _| session.limit(inactive, timeout));
    }

    /// Whether a client would be pushed with these settings what it was pushed.
    fn is_pushed(&self, settings: &config::openvpn::ClientSettings, id: ClientId) -> bool {
        let (Some(server), Some(client)) = (self.config.server(), self.clients.get(&id)) else {
            return true;
        };
        let addresses = Addresses::new(&self.side, settings, client.lease.as_ref());
        addresses == client.addresses
            && clients::push_options(&server.push, settings, &addresses) == client.options
    }
}

/// Whether nothing else has changed than what can change under sessions.
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
    // Whether there is one is another question: without any nobody is asked for a password.
    if was.password_file.is_some() == is.password_file.is_some() {
        is.password_file.clone_from(&was.password_file);
    }
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
