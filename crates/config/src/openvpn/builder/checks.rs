//! Checks for directives that contradict each other.

use super::Builder;
use crate::openvpn::directive::Origin;
use crate::openvpn::table::{self, End, Support};
use crate::openvpn::{
    ClientCertificate, Connection, Management, ManagementAddress, PasswordMethod, ScriptSecurity,
    Topology, Transport,
};
use std::net::IpAddr;

const NOWHERE: Origin = Origin::of_argument(0);

impl Builder {
    pub(super) fn check_tls(&mut self, server: bool) {
        let tls = &mut self.draft.tls;
        if let Some(usage) = self.draft.remote_cert_tls {
            tls.rules.remote_cert_tls(usage);
        }
        let has_ca = tls.ca.is_some() || tls.pkcs12.is_some();
        let by_fingerprint = !tls.rules.peer_fingerprints.is_empty();
        if !has_ca && !by_fingerprint && !self.was_refused("ca") && !self.was_refused("capath") {
            let reason = "no line says which peers to trust; add `ca`, or `peer-fingerprint`";
            self.refuse(&NOWHERE, "ca", reason);
        }
        if by_fingerprint && !self.draft.tls.rules.issuer_fingerprints.is_empty() {
            self.conflict(
                "verify-hash",
                "`peer-fingerprint` is given too; keep that one",
            );
        }
        if self.draft.tls.pkcs12.is_some() {
            for name in ["cert", "key"] {
                if self.has(name) {
                    self.conflict(name, "`pkcs12` contains one already; remove one of them");
                }
            }
        }
        if let Some(max) = self.draft.tls.version_max
            && max < self.draft.tls.version_min
        {
            self.conflict("tls-version-min", "is above `tls-version-max`");
        }
        self.check_identity(server);
        if !server {
            self.check_server_verified();
        }
    }

    fn check_identity(&mut self, server: bool) {
        if self.draft.tls.pkcs12.is_some() {
            return;
        }
        let refused = ["cert", "key", "pkcs12"]
            .iter()
            .any(|name| self.was_refused(name));
        match (self.draft.tls.cert.is_some(), self.draft.tls.key.is_some()) {
            (true, true) => {}
            _ if refused => {}
            (true, false) => self.conflict("cert", "there is no `key` for it; give both"),
            (false, true) => self.conflict("key", "there is no `cert` for it; give both"),
            (false, false) if server => {
                let reason = "a server needs a certificate and its key: `cert` and `key`, or \
                    `pkcs12`";
                self.refuse(&NOWHERE, "cert", reason);
            }
            (false, false) if self.draft.client.auth_user_pass.is_none() => {
                let reason = "the client has no credentials; add `cert` and `key`, `pkcs12`, or `auth-user-pass`";
                self.refuse(&NOWHERE, "auth-user-pass", reason);
            }
            (false, false) => {}
        }
    }

    fn check_server_verified(&mut self) {
        let rules = &self.draft.tls.rules;
        let checked = rules.extended_key_usage.is_some()
            || rules.key_usage.is_some()
            || rules.netscape_type.is_some()
            || rules.name.is_some()
            || !rules.peer_fingerprints.is_empty()
            || !rules.issuer_fingerprints.is_empty();
        let checked = checked || self.draft.scripts.tls_verify.is_some();
        if !checked {
            self.warnings.push(
                "No server certificate verification method has been enabled: anyone with a client certificate from \
                 the same CA can impersonate the server; add `remote-cert-tls server` or `verify-x509-name NAME name`"
                    .to_owned(),
            );
        }
    }

    pub(super) fn check_scripts(&mut self) {
        if !self.draft.options.permissions.scripts() {
            return;
        }
        if self.draft.scripts.security < ScriptSecurity::Scripts {
            for entry in table::all() {
                if matches!(entry.support, Support::Script(..)) && self.has(entry.name) {
                    let reason = "scripts run only with `script-security 2`; read the script, then add that line";
                    self.conflict(entry.name, reason);
                }
            }
        }
        if self.draft.scripts.password_method == PasswordMethod::Environment
            && self.draft.scripts.auth_user_pass_verify.is_some()
            && self.draft.scripts.security < ScriptSecurity::Passwords
        {
            let reason = "`via-env` needs `script-security 3`; `via-file` is better";
            self.conflict_once("auth-user-pass-verify", reason);
        }
    }

    pub(super) fn check_management(&mut self) {
        if !self.draft.has_management {
            if let Some(name) = &self.draft.management_companion
                && !self.was_refused("management")
                && let Some(entry) = table::find(name)
            {
                self.conflict(
                    entry.name,
                    "has no effect without `management ADDRESS PORT`; add that, or remove the line",
                );
            }
            return;
        }
        let management = self.draft.management.clone();
        self.warn_of_open_management(&management);
        if matches!(management.address, ManagementAddress::Unix(_)) {
            return;
        }
        for name in ["management-client-user", "management-client-group"] {
            if self.has(name) {
                self.conflict(
                    name,
                    "needs a Unix socket, where the connecting user is known",
                );
            }
        }
    }

    /// Warns of an open management port: any program that reaches it may end the tunnel and read its log.
    fn warn_of_open_management(&mut self, management: &Management) {
        if management.password.is_some() || management.connect {
            return;
        }
        // No address is quoted, as it may come from an included file, which may be any file.
        let warning = match &management.address {
            ManagementAddress::Unix(_) => {
                if management.user.is_some() || management.group.is_some() {
                    return;
                }
                "management: every user of this machine may command the tunnel; restrict that with \
                 management-client-user or management-client-group"
                    .to_owned()
            }
            ManagementAddress::Tcp(host, _) => {
                let here = match host.parse::<IpAddr>() {
                    Ok(addr) => addr.to_canonical().is_loopback(),
                    Err(_) => host == "localhost",
                };
                let who = match here {
                    true => "every program of this machine",
                    false => "everyone who reaches that address",
                };
                format!(
                    "management: a TCP port without a password is strongly \
                     discouraged: {who} may command the tunnel. Name a file with a password \
                     behind it, or use a Unix socket"
                )
            }
        };
        self.warnings.push(warning);
    }

    pub(super) fn check_client(&mut self) {
        for entry in table::all() {
            match entry.end {
                End::Server => {
                    self.conflict_if_given(entry.name, "is for servers only; remove the line");
                }
                End::IdleInClient => self.ignored(entry.name, "for servers only"),
                End::Both | End::Client(_) | End::IdleInServer => {}
            }
        }
        if self.draft.client.static_challenge.is_some()
            && self.draft.client.auth_user_pass.is_none()
        {
            let reason = "needs `auth-user-pass`, which is missing";
            self.conflict("static-challenge", reason);
        }
        if self
            .draft
            .client
            .auth_token
            .as_ref()
            .is_some_and(|(_, token)| token.expose().is_empty())
        {
            self.draft.client.auth_token = None;
            self.ignored(
                "auth-token-user",
                "has no effect without `auth-token`; remove the line",
            );
        }
        if self.draft.client.no_client_cert && self.draft.tls.cert.is_some() {
            self.note(
                "cert",
                "sent anyway: `setenv CLIENT_CERT 0` is meant for apps",
            );
        }
    }

    pub(super) fn check_server(&mut self, connections: &[Connection]) {
        for entry in table::all() {
            match entry.end {
                End::Client(remedy) => self.conflict_if_given(entry.name, remedy),
                End::IdleInServer => self.ignored(entry.name, "for clients only"),
                End::Both | End::Server | End::IdleInClient => {}
            }
        }
        self.check_pools();
        self.check_client_authentication();
        self.check_tokens();
        if self.draft.server.ccd_exclusive && self.draft.server.client_config_dir.is_none() {
            self.conflict("ccd-exclusive", "needs `client-config-dir`");
        }
        let tcp = |connection: &Connection| connection.protocol.transport == Transport::TcpServer;
        if self.draft.server.connect_freq.is_some() && connections.iter().any(tcp) {
            self.conflict(
                "connect-freq",
                "works with `proto udp` only; use `max-clients`",
            );
        }
    }

    fn conflict_if_given(&mut self, name: &'static str, reason: &str) {
        if self.has(name) {
            self.conflict_once(name, reason);
        }
    }

    fn check_pools(&mut self) {
        let server = &self.draft.server;
        let (v4, v6) = (server.pool.is_some(), server.pool_v6.is_some());
        let netmask = server.pool.is_some_and(|pool| pool.netmask.is_some());
        if server.pool_persist.is_some() && !v4 && !v6 {
            let reason = "needs `ifconfig-pool`, `ifconfig-ipv6-pool` or `server`";
            self.conflict("ifconfig-pool-persist", reason);
        }
        if v6 && self.draft.network.ifconfig_v6.is_none() {
            self.conflict("ifconfig-ipv6-pool", "needs `ifconfig-ipv6`");
        }
        if netmask && self.draft.network.topology != Some(Topology::Subnet) {
            self.conflict(
                "ifconfig-pool",
                "a netmask works with `topology subnet` only",
            );
        }
    }

    fn check_client_authentication(&mut self) {
        let by_password = self.has("auth-user-pass-verify") || self.has("auth-user-pass-file");
        let remedy = "needs a password check: `auth-user-pass-file` or `auth-user-pass-verify`";
        let lax = self.draft.tls.client_certificate != ClientCertificate::Require;
        if lax && !by_password {
            let name = if self.has("verify-client-cert") {
                "verify-client-cert"
            } else {
                "client-cert-not-required"
            };
            self.conflict(name, remedy);
        }
        for name in ["username-as-common-name", "auth-user-pass-optional"] {
            if self.has(name) && !by_password {
                self.conflict(name, remedy);
            }
        }
    }

    fn check_tokens(&mut self) {
        if !self.has("auth-gen-token") {
            self.draft.server.auth_token = None;
            self.ignored(
                "auth-gen-token-secret",
                "needs `auth-gen-token`, which is missing",
            );
            return;
        }
        let keys = self.draft.timers.keys;
        let Some(token) = &mut self.draft.server.auth_token else {
            return;
        };
        let Some(every) = keys.renegotiation.time else {
            let reason = "needs key renewal, which `reneg-sec 0` disables";
            return self.conflict("auth-gen-token", reason);
        };
        if token.renewal.is_zero() {
            token.renewal = every;
        } else if token.renewal < keys.hand_window * 2 {
            let window = keys.hand_window.as_secs();
            let reason = format!("renewal must be at least twice `hand-window`, {window} seconds");
            self.conflict("auth-gen-token", reason);
        }
    }

    pub(super) fn check_network(&mut self) {
        let bare = self
            .draft
            .network
            .dns
            .servers
            .iter()
            .find(|(_, server)| server.addresses.is_empty());
        if let Some((number, _)) = bare {
            let reason =
                format!("server {number} has no address; add `dns server {number} address …`");
            self.conflict("dns", reason);
        }
    }
}
