//! Turns drafts into connections: fills in defaults, and checks for contradictions in each.

use super::Builder;
use super::CONNECTIONS_MAX;
use crate::openvpn::directive::Origin;
use crate::openvpn::draft::{ConnectionDraft, HttpOptions, LocalLine, RawTransport};
use crate::openvpn::{
    Connection, ControlWrap, Digest, HttpAuth, KeyDirection, Local, Protocol, Proxy, Remote,
    SharedWrap, Transport,
};

impl Builder {
    /// All connections to try, or addresses to listen on.
    pub(super) fn settle_connections(&mut self, server: bool) -> Vec<Connection> {
        let drafts = self.drafts(server);
        if server {
            if self.has("remote") || self.has("connection") {
                for name in ["remote", "connection"] {
                    if self.has(name) {
                        self.conflict(name, "a server has no remote; remove the line");
                    }
                }
                return Vec::new();
            }
        } else if drafts.iter().all(|draft| draft.host.is_none()) {
            let origin = Origin::of_argument(0);
            // A wrong `remote` line already has its fault.
            if !self.was_refused("remote") {
                let reason = "a client needs a server: `remote HOST PORT`";
                self.refuse(&origin, "remote", reason);
            }
            return Vec::new();
        }
        if !server && self.draft.connection.locals.len() > 1 {
            self.conflict("local", "a client sends from one address; keep one of them");
        }
        if drafts.len() > CONNECTIONS_MAX {
            self.conflict("remote", format!("more than {CONNECTIONS_MAX} remotes"));
            return Vec::new();
        }
        let forced = self.draft.proto_tcp_forced;
        let mut connections = Vec::new();
        for draft in drafts {
            let connection = self.settle(draft, server);
            if forced.is_none_or(|tcp| tcp == connection.protocol.transport.is_tcp()) {
                connections.push(connection);
            }
        }
        if connections.is_empty() && self.is_sound() {
            self.conflict("proto-force", "no `remote` uses this protocol");
        }
        // One such connection among several is skipped when its turn comes.
        let hopeless = |it: &Connection| {
            matches!(it.proxy, Some(Proxy::Socks { .. })) && !it.protocol.transport.is_tcp()
        };
        if !connections.is_empty() && connections.iter().all(hopeless) {
            let reason = "works over TCP only; write `proto tcp-client` if the server supports it";
            self.conflict_once("socks-proxy", reason);
        }
        connections
    }

    /// Collects the drafts. `remote` lines count only without `<connection>`, as in stock.
    fn drafts(&mut self, server: bool) -> Vec<ConnectionDraft> {
        if server && self.draft.connection.locals.len() > 1 {
            let at = |line: &LocalLine| ConnectionDraft {
                locals: vec![line.clone()],
                ..self.draft.connection.clone()
            };
            return self.draft.connection.locals.iter().map(at).collect();
        }
        if !self.draft.blocks.is_empty() {
            if !self.draft.remotes.is_empty() {
                self.ignored("remote", "replaced by the <connection> blocks");
            }
            return std::mem::take(&mut self.draft.blocks);
        }
        if self.draft.remotes.is_empty() {
            return vec![self.draft.connection.clone()];
        }
        let template = self.draft.connection.clone();
        let remotes = std::mem::take(&mut self.draft.remotes).into_iter();
        let with = |line| {
            let mut draft = template.clone();
            draft.call(line);
            draft
        };
        remotes.map(with).collect()
    }

    fn settle(&mut self, mut draft: ConnectionDraft, server: bool) -> Connection {
        // A server has one draft for each `local`. A block's own `local` takes precedence over the shared one.
        if let Some(line) = draft.locals.last().cloned() {
            if let Some(port) = line.port {
                draft.local_port = port;
                draft.local_port_defined = true;
            }
            (draft.transport, draft.family) =
                line.protocol.unwrap_or((draft.transport, draft.family));
        }
        let transport = match draft.transport {
            RawTransport::Udp => Transport::Udp,
            RawTransport::Tcp if server => Transport::TcpServer,
            RawTransport::Tcp => Transport::TcpClient,
            RawTransport::TcpClient => Transport::TcpClient,
            RawTransport::TcpServer => Transport::TcpServer,
        };
        match (server, transport) {
            (true, Transport::TcpClient) => {
                self.clash(&draft, "proto", "a server needs `proto tcp-server`");
            }
            (false, Transport::TcpServer) => {
                self.clash(&draft, "proto", "a client needs `proto tcp-client`");
            }
            _ => {}
        }
        let proxy = self.proxy(&draft, transport, server);
        let local = self.local(&draft, transport, server);
        if draft.mtu.fragment.is_some() && transport.is_tcp() {
            self.clash(
                &draft,
                "fragment",
                "works with `proto udp` only; remove the line",
            );
        }
        if draft.mtu.tun.is_some() && draft.link_mtu {
            let name = if self.has("link-mtu") {
                "link-mtu"
            } else {
                "udp-mtu"
            };
            self.clash(&draft, name, "`tun-mtu` is given too; keep that one");
        }
        let mut exit_notify = draft.exit_notify;
        if transport.is_tcp() && exit_notify > 0 {
            self.ignored(
                "explicit-exit-notify",
                "not needed: the end of a TCP connection tells the peer",
            );
            exit_notify = 0;
        }
        let wrap = self.wrap(&draft, server);
        let remote = draft.host.map(|host| Remote {
            host,
            port: draft.remote_port,
        });
        Connection {
            remote,
            protocol: Protocol {
                transport,
                family: draft.family,
            },
            local,
            float: draft.float,
            retry: draft.retry,
            retry_max: draft.retry_max,
            connect_timeout: draft.timeout,
            proxy,
            mtu: draft.mtu,
            exit_notify,
            wrap,
        }
    }

    /// Refuses a line that contradicts another, in its block or outside.
    fn clash(&mut self, draft: &ConnectionDraft, name: &'static str, reason: &str) {
        match &draft.origin {
            Some(origin) => {
                let origin = origin.clone();
                self.refuse(&origin, name, reason);
            }
            // Remotes that share the line need only one message.
            None => self.conflict_once(name, reason),
        }
    }

    fn local(&mut self, draft: &ConnectionDraft, transport: Transport, server: bool) -> Local {
        let host = draft.locals.last().and_then(|it| it.host.clone());
        let wanted = host.is_some() || draft.local_port_defined || draft.bind;
        let opposite = [
            ("bind", draft.bind),
            ("local", host.is_some()),
            ("lport", draft.local_port_defined),
        ];
        if draft.nobind && server {
            let reason = "a server listens on a port; remove the line";
            self.clash(draft, "nobind", reason);
        } else if draft.nobind
            && let Some((name, _)) = opposite.iter().find(|(_, given)| *given)
        {
            let reason = "`nobind` says the opposite; keep one of them";
            self.clash(draft, name, reason);
        }
        let bind = !draft.nobind
            && (server || wanted || !(transport == Transport::TcpClient || self.draft.pulls()));
        Local {
            bind,
            host,
            port: if bind { draft.local_port } else { 0 },
            ipv6_only: draft.ipv6_only,
        }
    }

    fn proxy(
        &mut self,
        draft: &ConnectionDraft,
        transport: Transport,
        server: bool,
    ) -> Option<Proxy> {
        let http = match (&self.draft.http_override, &draft.http) {
            (Some(proxy), _) if transport == Transport::TcpClient => Some(proxy.clone()),
            (_, http) => http.clone(),
        };
        if http.is_none()
            && (draft.http_options != HttpOptions::default() || self.draft.http_user_pass.is_some())
        {
            let name = match self.draft.http_user_pass {
                Some(_) if draft.http_options == HttpOptions::default() => "http-proxy-user-pass",
                _ => "http-proxy-option",
            };
            self.clash(
                draft,
                name,
                "has no effect without `http-proxy HOST PORT`; add that, or remove the line",
            );
        }
        if let Some(mut http) = http {
            if server {
                self.clash(
                    draft,
                    "http-proxy",
                    "a server uses no proxy; remove the line",
                );
            } else if draft.socks.is_some() {
                self.clash(
                    draft,
                    "http-proxy",
                    "`socks-proxy` is given too; keep one of them",
                );
            } else if transport != Transport::TcpClient {
                let reason =
                    "works over TCP only; write `proto tcp-client` if the server supports it";
                self.clash(draft, "http-proxy", reason);
            }
            if let Some(credentials) = &self.draft.http_user_pass {
                http.credentials = Some(credentials.clone());
                if http.auth == HttpAuth::None {
                    http.auth = HttpAuth::Auto;
                }
            }
            let options = &draft.http_options;
            http.version = options.version.clone().unwrap_or(http.version);
            http.user_agent = options.user_agent.clone().or(http.user_agent);
            http.headers.clone_from(&options.headers);
            return Some(Proxy::Http(http));
        }
        if draft.socks.is_some() && server {
            self.clash(
                draft,
                "socks-proxy",
                "a server uses no proxy; remove the line",
            );
        }
        draft.socks.clone()
    }

    fn wrap(&mut self, draft: &ConnectionDraft, server: bool) -> ControlWrap {
        // A block with a key of its own ignores the keys outside.
        let outside = &self.draft.connection;
        let none =
            draft.tls_auth.is_none() && draft.tls_crypt.is_none() && draft.tls_crypt_v2.is_none();
        let (from, direction) = match none {
            true => (outside.clone(), outside.key_direction),
            false => (draft.clone(), draft.key_direction),
        };
        if let Some(force) = draft.force_cookie.or(outside.force_cookie) {
            self.draft.tls.force_cookie = force;
        }
        if from.tls_auth.is_some() && from.tls_crypt.is_some() {
            let reason = "`tls-auth` is given too, and the two exclude each other; keep the one that the other end has";
            self.clash(draft, "tls-crypt", reason);
        }
        if !server
            && from.tls_crypt_v2.is_some()
            && (from.tls_auth.is_some() || from.tls_crypt.is_some())
        {
            let reason = "a client has one of `tls-auth`, `tls-crypt` and `tls-crypt-v2`; keep \
                the one that the server asks for";
            self.clash(draft, "tls-crypt-v2", reason);
        }
        if from.tls_auth.is_some() && self.draft.data.auth == Digest::None {
            let reason = "`tls-auth` needs a digest: write for example `auth SHA256`";
            self.conflict_once("auth", reason);
        }
        if let Some(key) = &from.tls_auth
            && key.is_inline()
            && direction.is_none()
        {
            self.note(
                "tls-auth",
                "no `key-direction` is set, so the other end must have none either; most servers use 0, and then the \
                 client needs `key-direction 1`",
            );
        }
        if from.tls_auth.is_none() {
            self.ignored(
                "key-direction",
                "has no effect without `tls-auth`; remove the line",
            );
        }
        let shared = match (from.tls_auth, from.tls_crypt) {
            (_, Some(key)) => SharedWrap::TlsCrypt { key },
            (Some(key), None) => SharedWrap::TlsAuth {
                key,
                direction: direction.unwrap_or(KeyDirection::Bidirectional),
            },
            (None, None) => SharedWrap::None,
        };
        ControlWrap {
            shared,
            tls_crypt_v2: from.tls_crypt_v2,
        }
    }
}
