//! Checks for directives that contradict each other.

use super::Builder;
use crate::openvpn::directive::Origin;
use crate::openvpn::{
    ClientCertificate, Connection, Management, ManagementAddress, PasswordMethod, ScriptSecurity,
    Topology, Transport,
};
use std::net::IpAddr;

/// Directives that stock refuses in a client.
const SERVER_ONLY: [&str; 23] = [
    "ifconfig-pool",
    "ifconfig-pool-persist",
    "ifconfig-ipv6-pool",
    "ifconfig-push-constraint",
    "learn-address",
    "client-connect",
    "client-crresponse",
    "client-disconnect",
    "client-config-dir",
    "ccd-exclusive",
    "client-to-client",
    "duplicate-cn",
    "connect-freq",
    "verify-client-cert",
    "client-cert-not-required",
    "username-as-common-name",
    "auth-user-pass-optional",
    "auth-user-pass-file",
    "opt-verify",
    "auth-user-pass-verify",
    "auth-gen-token",
    "stale-routes-check",
    "tls-crypt-v2-verify",
];

/// Directives without effect in a client.
const IDLE_IN_CLIENT: [&str; 6] = [
    "push",
    "max-clients",
    "max-routes-per-client",
    "connect-freq-initial",
    "auth-gen-token-secret",
    "tls-crypt-v2-max-age",
];

/// Directives without effect in a server.
const IDLE_IN_SERVER: [&str; 17] = [
    "pull-filter",
    "route-nopull",
    "auth-retry",
    "static-challenge",
    "auth-token",
    "auth-token-user",
    "push-peer-info",
    "remote-random",
    "remote-random-hostname",
    "resolv-retry",
    "connect-retry",
    "connect-retry-max",
    "connect-timeout",
    "server-poll-timeout",
    "http-proxy-override",
    "tun-mtu-max",
    "tls-exit",
];

/// Directives that stock refuses in a server, and the remedy.
const CLIENT_ONLY: [(&str, &str); 7] = [
    (
        "auth-user-pass",
        "is for clients; a server has `auth-user-pass-verify`",
    ),
    ("ipchange", "is for clients; a server has `client-connect`"),
    ("route-delay", "is for clients; remove the line"),
    ("up-delay", "is for clients; remove the line"),
    (
        "redirect-gateway",
        "is for clients; write `push \"redirect-gateway def1\"`",
    ),
    ("allow-recursive-routing", "is for clients; remove the line"),
    (
        "shaper",
        "is for clients; use `tc qdisc` on the server's interface",
    ),
];

const HOOKS: [&str; 12] = [
    "up",
    "down",
    "route-up",
    "route-pre-down",
    "ipchange",
    "tls-verify",
    "client-connect",
    "client-disconnect",
    "learn-address",
    "client-crresponse",
    "auth-user-pass-verify",
    "tls-crypt-v2-verify",
];

const NOWHERE: Origin = Origin::of_argument(0);

impl Builder {
    pub(super) fn check_tls(&mut self, server: bool) {
        let tls = &self.tls;
        let verify = &tls.verify;
        let has_ca = tls.ca.is_some() || tls.pkcs12.is_some();
        let by_fingerprint = !verify.peer_fingerprints.is_empty();
        if !has_ca && !by_fingerprint && !self.was_refused("ca") && !self.was_refused("capath") {
            let reason = "nothing says whom to believe; give `ca`, or `peer-fingerprint`";
            self.refuse(&NOWHERE, "ca", reason);
        }
        if by_fingerprint && !self.tls.verify.issuer_fingerprints.is_empty() {
            self.conflict(
                "verify-hash",
                "`peer-fingerprint` is given too; keep that one",
            );
        }
        if self.tls.pkcs12.is_some() {
            for name in ["cert", "key"] {
                if self.has(name) {
                    self.conflict(name, "`pkcs12` holds one already; remove one of them");
                }
            }
        }
        if let Some(max) = self.tls.version_max
            && max < self.tls.version_min
        {
            self.conflict("tls-version-min", "is above `tls-version-max`");
        }
        self.check_identity(server);
        if !server {
            self.check_server_verified();
        }
    }

    fn check_identity(&mut self, server: bool) {
        if self.tls.pkcs12.is_some() {
            return;
        }
        let refused = ["cert", "key", "pkcs12"]
            .iter()
            .any(|name| self.was_refused(name));
        match (self.tls.cert.is_some(), self.tls.key.is_some()) {
            (true, true) => {}
            _ if refused => {}
            (true, false) => self.conflict("cert", "there is no `key` for it; give both"),
            (false, true) => self.conflict("key", "there is no `cert` for it; give both"),
            (false, false) if server => {
                let reason = "a server needs a certificate and its key: `cert` and `key`, or \
                    `pkcs12`";
                self.refuse(&NOWHERE, "cert", reason);
            }
            (false, false) if self.client.auth_user_pass.is_none() => {
                let reason = "nothing says who this client is; give `cert` and `key`, `pkcs12`, \
                    or `auth-user-pass`";
                self.refuse(&NOWHERE, "auth-user-pass", reason);
            }
            (false, false) => {}
        }
    }

    fn check_server_verified(&mut self) {
        let verify = &self.tls.verify;
        let checked = verify.remote_cert_tls.is_some()
            || verify.remote_cert_eku.is_some()
            || verify.remote_cert_ku.is_some()
            || verify.ns_cert_type.is_some()
            || verify.x509_name.is_some()
            || !verify.peer_fingerprints.is_empty()
            || !verify.issuer_fingerprints.is_empty();
        let checked = checked || self.scripts.tls_verify.is_some();
        if !checked {
            self.warnings.push(
                "No server certificate verification method has been enabled: anyone with a \
                 client's certificate of the same CA can play the server; add `remote-cert-tls \
                 server` or `verify-x509-name NAME name`"
                    .to_owned(),
            );
        }
    }

    pub(super) fn check_scripts(&mut self) {
        if !self.options.permissions.scripts() {
            return;
        }
        if self.scripts.security < ScriptSecurity::Scripts {
            for name in HOOKS {
                if self.has(name) {
                    let reason = "scripts are not run without `script-security 2`; look at what \
                        it does, then add that line";
                    self.conflict(name, reason);
                }
            }
        }
        if let Some((_, PasswordMethod::Environment)) = self.scripts.auth_user_pass_verify
            && self.scripts.security < ScriptSecurity::Passwords
        {
            let reason = "`via-env` needs `script-security 3`; `via-file` is better";
            self.conflict_once("auth-user-pass-verify", reason);
        }
    }

    pub(super) fn check_management(&mut self) {
        let Some(management) = self.management.build() else {
            if let Some(name) = self.management.companion()
                && !self.was_refused("management")
                && let Some(entry) = super::table::find(name)
            {
                self.conflict(
                    entry.name,
                    "there is no `management ADDRESS PORT` that it could be for",
                );
            }
            return;
        };
        self.warn_of_open_management(&management);
        if matches!(management.address, ManagementAddress::Unix(_)) {
            return;
        }
        for name in ["management-client-user", "management-client-group"] {
            if self.has(name) {
                self.conflict(name, "only on a Unix socket is it known who connects");
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
                "management: every user of this machine may command the tunnel; \
                 management-client-user or management-client-group say who may"
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
        for name in SERVER_ONLY {
            if self.has(name) && !self.was_refused(name) {
                self.conflict(name, "is for servers; remove the line");
            }
        }
        for name in IDLE_IN_CLIENT {
            self.ignored(name, "for servers only");
        }
        if self.client.static_challenge.is_some() && self.client.auth_user_pass.is_none() {
            let reason = "goes with `auth-user-pass`, which is missing";
            self.conflict("static-challenge", reason);
        }
        if self
            .client
            .auth_token
            .as_ref()
            .is_some_and(|(_, token)| token.expose().is_empty())
        {
            self.client.auth_token = None;
            self.ignored(
                "auth-token-user",
                "there is no `auth-token` that it could be for",
            );
        }
        if self.client.no_client_cert && self.tls.cert.is_some() {
            self.note(
                "cert",
                "sent all the same: `setenv CLIENT_CERT 0` is meant for apps",
            );
        }
    }

    pub(super) fn check_server(&mut self, connections: &[Connection]) {
        for (name, reason) in CLIENT_ONLY {
            if self.has(name) && !self.was_refused(name) {
                self.conflict(name, reason);
            }
        }
        for name in IDLE_IN_SERVER {
            self.ignored(name, "for clients only");
        }
        self.check_pools();
        self.check_client_authentication();
        self.check_tokens();
        if self.server.ccd_exclusive && self.server.client_config_dir.is_none() {
            self.conflict("ccd-exclusive", "needs `client-config-dir`");
        }
        let tcp = |connection: &Connection| connection.protocol.transport == Transport::TcpServer;
        if self.server.connect_freq.is_some() && connections.iter().any(tcp) {
            self.conflict(
                "connect-freq",
                "goes with `proto udp` only; use `max-clients`",
            );
        }
    }

    fn check_pools(&mut self) {
        let server = &self.server;
        let (v4, v6) = (server.pool.is_some(), server.pool_v6.is_some());
        let netmask = server.pool.is_some_and(|pool| pool.netmask.is_some());
        if server.pool_persist.is_some() && !v4 && !v6 {
            let reason = "needs `ifconfig-pool`, `ifconfig-ipv6-pool` or `server`";
            self.conflict("ifconfig-pool-persist", reason);
        }
        if v6 && self.network.ifconfig_v6.is_none() {
            self.conflict("ifconfig-ipv6-pool", "needs `ifconfig-ipv6`");
        }
        if netmask && self.network.topology != Some(Topology::Subnet) {
            self.conflict(
                "ifconfig-pool",
                "a netmask goes with `topology subnet` only",
            );
        }
    }

    fn check_client_authentication(&mut self) {
        let by_password = self.has("auth-user-pass-verify") || self.has("auth-user-pass-file");
        let remedy = "needs somebody who checks passwords: `auth-user-pass-file` or \
            `auth-user-pass-verify`";
        let lax = self.tls.verify.client_certificate != ClientCertificate::Require;
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
            self.server.auth_token = None;
            self.ignored("auth-gen-token-secret", "there is no `auth-gen-token`");
            return;
        }
        let (every, window) = (self.timers.renegotiation.seconds, self.timers.hand_window);
        let Some(token) = &mut self.server.auth_token else {
            return;
        };
        if every == 0 {
            self.conflict(
                "auth-gen-token",
                "tokens are renewed with keys; `reneg-sec 0` forbids",
            );
        } else if token.renewal == 0 {
            token.renewal = every;
        } else if token.renewal < window.saturating_mul(2) {
            let reason = format!("renewal must be at least twice `hand-window`, {window} seconds");
            self.conflict("auth-gen-token", reason);
        }
    }

    pub(super) fn check_network(&mut self) {
        let bare = self
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
