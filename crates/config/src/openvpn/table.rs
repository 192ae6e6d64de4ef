//! Every directive of OpenVPN 2.4 to 2.7, and what becomes of it.
//!
//! Sorted by what the directives are about. A directive that is not here is unknown.

use super::build::TAP;

/// What becomes of a directive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It does what it says; its values may still be refused.
    Honoured,
    /// It does nothing, for this reason.
    Ignored(&'static str),
    /// It cannot be done; the text says what to do instead.
    Refused(&'static str),
    /// It says what the program is to do instead of running a tunnel.
    Action,
}

/// One directive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub name: &'static str,
    /// Fewest values, an inline block being one.
    pub min: usize,
    /// Most values.
    pub max: usize,
    pub fate: Fate,
    /// May stand in `<connection>`.
    pub connection: bool,
    /// May stand in a file of `client-config-dir`.
    pub client: bool,
    /// May be an inline block.
    pub inline: bool,
    /// Several add up; otherwise the last one holds.
    pub list: bool,
}

impl Entry {
    const fn new(name: &'static str, min: usize, max: usize, fate: Fate) -> Self {
        Self {
            name,
            min,
            max,
            fate,
            connection: false,
            client: false,
            inline: false,
            list: false,
        }
    }

    const fn connection(mut self) -> Self {
        self.connection = true;
        self
    }

    const fn client(mut self) -> Self {
        self.client = true;
        self
    }

    const fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    const fn list(mut self) -> Self {
        self.list = true;
        self
    }
}

const fn yes(name: &'static str, min: usize, max: usize) -> Entry {
    Entry::new(name, min, max, Fate::Honoured)
}

const fn skip(name: &'static str, why: &'static str) -> Entry {
    Entry::new(name, 0, usize::MAX, Fate::Ignored(why)).list()
}

const fn no(name: &'static str, remedy: &'static str) -> Entry {
    Entry::new(name, 0, usize::MAX, Fate::Refused(remedy)).list()
}

const fn action(name: &'static str, max: usize) -> Entry {
    Entry::new(name, 0, max, Fate::Action)
}

/// Most values that a word list may have.
const MANY: usize = usize::MAX;

const WINDOWS: &str = "for Windows only";
const PKCS11: &str = "keys on smart cards are not supported; use `cert` and `key`, or `pkcs12`";
const EXTERNAL: &str =
    "keys held by the management client are not supported; use `cert` and `key`, or `pkcs12`";
const PULLED: &str = "only a server says this, when it pushes options; remove the line";
const OPENSSL: &str = "an OpenSSL setting; Millrace has its own cryptography";
const KERNEL: &str = "a tuning of stock's own input and output, which Millrace does not use";

/// The directive of this name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    GROUPS
        .iter()
        .flat_map(|group| group.iter())
        .find(|entry| entry.name == name)
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|group| group.iter())
}

const GROUPS: [&[Entry]; 11] = [
    ROLE, CONNECTION, DEVICE, NETWORK, TLS, DATA, TIMERS, SCRIPTS, SERVICE, SERVER, OTHERS,
];

const ROLE: &[Entry] = &[
    yes("client", 0, 0),
    yes("tls-client", 0, 0),
    yes("tls-server", 0, 0),
    yes("pull", 0, 0),
    yes("mode", 1, 1),
    yes("pull-filter", 2, 2).list(),
    yes("route-nopull", 0, 0),
    skip(
        "allow-pull-fqdn",
        "a pushed route with a name is passed over, and the log says so; write the `route` here",
    ),
    yes("push-peer-info", 0, 0),
    yes("auth-user-pass", 0, 1).inline(),
    yes("auth-retry", 1, 1),
    yes("static-challenge", 2, 3),
    yes("auth-token", 1, 1),
    yes("auth-token-user", 1, 1),
    yes("auth-nocache", 0, 0),
    yes("config", 1, 1).list(),
    yes("cd", 1, 1).list(),
    yes("ignore-unknown-option", 1, MANY).list(),
];

const CONNECTION: &[Entry] = &[
    yes("connection", 1, 1).inline().list(),
    yes("remote", 1, 3).connection().list(),
    yes("remote-random", 0, 0),
    yes("remote-random-hostname", 0, 0),
    yes("resolv-retry", 1, 1),
    yes("connect-retry", 1, 2).connection(),
    yes("connect-retry-max", 1, 1).connection(),
    yes("connect-timeout", 1, 1).connection(),
    yes("server-poll-timeout", 1, 1).connection(),
    yes("proto", 1, 1).connection(),
    yes("proto-force", 1, 1),
    yes("local", 1, 3).connection().list(),
    yes("port", 1, 1).connection(),
    yes("lport", 1, 1).connection(),
    yes("rport", 1, 1).connection(),
    yes("bind", 0, 1).connection(),
    yes("nobind", 0, 0).connection(),
    yes("float", 0, 0).connection(),
    yes("http-proxy", 2, 4).connection(),
    yes("http-proxy-option", 1, 3).connection().list(),
    yes("http-proxy-user-pass", 1, 1).inline(),
    yes("http-proxy-override", 2, 3),
    skip("http-proxy-retry", "a connection is always tried again").connection(),
    skip("socks-proxy-retry", "a connection is always tried again").connection(),
    skip(
        "http-proxy-timeout",
        "`connect-timeout` holds for proxies too",
    )
    .connection(),
    yes("socks-proxy", 1, 3).connection(),
    yes("tun-mtu", 1, 2).connection(),
    yes("tun-mtu-max", 1, 2).connection(),
    skip("tun-mtu-extra", "no buffer of Millrace depends on it").connection(),
    yes("link-mtu", 1, 1).connection(),
    yes("udp-mtu", 1, 1).connection(),
    yes("mssfix", 0, 2).connection(),
    yes("fragment", 1, 2).connection(),
    yes("max-packet-size", 1, 1).connection(),
    yes("mtu-disc", 1, 1).connection(),
    no("mtu-dynamic", "removed from OpenVPN; write `fragment`").connection(),
    skip(
        "mtu-test",
        "nothing is measured; `mssfix` is enough for TCP",
    ),
    yes("explicit-exit-notify", 0, 1).connection(),
    yes("sndbuf", 1, 1),
    yes("rcvbuf", 1, 1),
    yes("mark", 1, 1),
    yes("bind-dev", 1, 1),
    yes("multihome", 0, 0),
    yes("socket-flags", 0, MANY).client(),
    yes("tcp-nodelay", 0, 0),
    skip(
        "passtos",
        "outer packets have the system's usual type of service",
    ),
    skip("fast-io", KERNEL),
    skip("preresolve", "names are resolved when they are needed"),
    skip("ip-remote-hint", "a hint for other systems"),
    no(
        "shaper",
        "sending is not slowed down; use `tc qdisc` on the tunnel's interface",
    ),
    no("gremlin", "a test mode of stock; remove the line"),
    no(
        "client-nat",
        "addresses are not rewritten; use nftables on the tunnel's interface",
    ),
];

const DEVICE: &[Entry] = &[
    yes("dev", 1, 1),
    yes("dev-type", 1, 1),
    yes("dev-node", 1, 1),
    yes("txqueuelen", 1, 1),
    skip("disable-dco", "the kernel's own OpenVPN is not used anyway"),
    yes("topology", 1, 1),
    yes("persist-tun", 0, 0),
    skip("tun-ipv6", "IPv6 is always carried"),
    no("lladdr", TAP),
    no("vlan-tagging", TAP),
    no("vlan-accept", TAP),
    no("vlan-pvid", TAP).client(),
    no("server-bridge", TAP),
    no(
        "iproute",
        "addresses and routes are set through netlink; remove the line",
    ),
    skip("windows-driver", WINDOWS),
    skip("tap-sleep", WINDOWS),
];

const NETWORK: &[Entry] = &[
    yes("ifconfig", 2, 2),
    yes("ifconfig-ipv6", 2, 2),
    yes("ifconfig-noexec", 0, 0),
    skip(
        "ifconfig-nowarn",
        "addresses of the two ends are not compared",
    ),
    yes("route", 1, 4).list(),
    yes("route-ipv6", 1, 3).list(),
    yes("route-gateway", 1, 1),
    yes("route-ipv6-gateway", 1, 1),
    yes("route-metric", 1, 1),
    yes("route-delay", 0, 2),
    yes("route-noexec", 0, 0),
    skip("max-routes", "there is no such limit"),
    skip("route-method", WINDOWS),
    no(
        "route-table",
        "routes go to the main table; use `route-noexec` and a `route-up` script",
    ),
    yes("redirect-gateway", 0, MANY).list(),
    yes("redirect-private", 0, MANY).list(),
    yes("block-ipv6", 0, 0),
    yes("allow-recursive-routing", 0, 0),
    yes("dhcp-option", 1, MANY).list(),
    yes("dns", 2, MANY).list(),
    skip("dns-updown", "name servers are set without a script"),
    skip("register-dns", WINDOWS),
    skip("block-outside-dns", WINDOWS),
    skip("ip-win32", WINDOWS),
    skip("dhcp-renew", WINDOWS),
    skip("dhcp-release", WINDOWS),
    skip("dhcp-pre-release", WINDOWS),
    skip("dhcp-internal", WINDOWS),
    skip("rdns-internal", WINDOWS),
];

const TLS: &[Entry] = &[
    yes("ca", 1, 1).inline(),
    no(
        "capath",
        "directories of certificates are not searched; join them into one `ca` file",
    ),
    yes("cert", 1, 1).inline(),
    yes("key", 1, 1).inline(),
    yes("pkcs12", 1, 1).inline(),
    yes("extra-certs", 1, 1).inline(),
    yes("crl-verify", 1, 2).inline(),
    yes("askpass", 0, 1),
    skip(
        "dh",
        "no old Diffie-Hellman group is used: key exchange is by elliptic curves",
    )
    .inline(),
    yes("tls-version-min", 1, 2),
    yes("tls-version-max", 1, 1),
    yes("tls-cipher", 1, 1),
    yes("tls-ciphersuites", 1, 1),
    yes("tls-groups", 1, 1),
    yes("ecdh-curve", 1, 1),
    yes("tls-cert-profile", 1, 1),
    yes("tls-auth", 1, 2).connection().inline(),
    yes("key-direction", 1, 1).connection(),
    yes("tls-crypt", 1, 2).connection().inline(),
    yes("tls-crypt-v2", 1, 2).connection().inline(),
    yes("tls-crypt-v2-verify", 1, 1),
    yes("tls-crypt-v2-max-age", 1, 1),
    yes("remote-cert-tls", 1, 1),
    yes("remote-cert-ku", 0, MANY),
    yes("remote-cert-eku", 1, 1),
    yes("ns-cert-type", 1, 1),
    yes("verify-x509-name", 1, 2),
    yes("verify-hash", 1, 2).inline().list(),
    yes("peer-fingerprint", 1, 1).inline().list(),
    yes("x509-username-field", 1, MANY),
    skip(
        "x509-track",
        "scripts get X509_* for each field of every subject without it",
    ),
    no(
        "keying-material-exporter",
        "keying material is not given to anybody else; remove the line",
    ),
    no(
        "tls-remote",
        "removed from OpenVPN 2.4; write `verify-x509-name NAME name`",
    ),
    no(
        "compat-names",
        "removed from OpenVPN 2.5; write names as `verify-x509-name` has them",
    ),
    skip("no-name-remapping", "names are not rewritten"),
    no(
        "tls-export-cert",
        "peer certificates are not written to files; `tls-verify` gets X509_*",
    ),
    no(
        "cryptoapicert",
        "a Windows key store; use `cert` and `key`, or `pkcs12`",
    ),
    no("management-external-key", EXTERNAL),
    no("management-external-cert", EXTERNAL),
    no("pkcs11-providers", PKCS11),
    no("pkcs11-protected-authentication", PKCS11),
    no("pkcs11-private-mode", PKCS11),
    no("pkcs11-cert-private", PKCS11),
    no("pkcs11-pin-cache", PKCS11),
    no("pkcs11-id", PKCS11),
    no("pkcs11-id-management", PKCS11),
    no(
        "secret",
        "a static key without TLS has no forward secrecy and is gone from OpenVPN 2.8; \
         give both ends certificates, or `peer-fingerprint`",
    )
    .inline(),
    skip(
        "allow-deprecated-insecure-static-crypto",
        "there is no static-key mode to allow",
    ),
    yes("key-method", 1, 1),
    skip("single-session", "a peer has one session"),
    skip("prng", OPENSSL),
    skip("engine", OPENSSL),
    skip("providers", OPENSSL),
    skip("use-prediction-resistance", OPENSSL),
];

const DATA: &[Entry] = &[
    yes("data-ciphers", 1, 1).client(),
    yes("ncp-ciphers", 1, 1).client(),
    yes("data-ciphers-fallback", 1, 1).client(),
    yes("cipher", 1, 1).client(),
    yes("auth", 1, 1),
    yes("allow-insecure-ciphers", 0, 0),
    yes("ncp-disable", 0, 0),
    yes("keysize", 1, 1),
    yes("compat-mode", 1, 1),
    yes("comp-lzo", 0, 1).client(),
    yes("compress", 0, 1).client(),
    yes("allow-compression", 1, 1),
    skip("comp-noadapt", "nothing is compressed").client(),
    yes("replay-window", 1, 2),
    skip(
        "mute-replay-warnings",
        "replays are counted, not logged one by one",
    ),
    skip(
        "replay-persist",
        "keys and packet numbers of a session die with the process",
    ),
    no(
        "no-replay",
        "packets that come twice would be taken twice; remove the line",
    ),
    no(
        "no-iv",
        "removed from OpenVPN 2.5; remove the line at both ends",
    ),
    skip(
        "force-tls-key-material-export",
        "used whenever the client can",
    ),
];

const TIMERS: &[Entry] = &[
    yes("keepalive", 2, 2),
    yes("ping", 1, 1).client(),
    yes("ping-restart", 1, 1).client(),
    yes("ping-exit", 1, 1).client(),
    skip(
        "ping-timer-rem",
        "timeouts run only while there is a peer, always",
    )
    .client(),
    yes("inactive", 1, 2).client(),
    yes("session-timeout", 1, 1).client(),
    yes("reneg-sec", 1, 2),
    yes("reneg-bytes", 1, 1),
    yes("reneg-pkts", 1, 1),
    yes("hand-window", 1, 1),
    yes("tran-window", 1, 1),
    yes("tls-timeout", 1, 1),
    yes("tls-exit", 0, 0),
];

const SCRIPTS: &[Entry] = &[
    yes("script-security", 1, 2),
    yes("up", 1, 1),
    yes("up-delay", 0, 0),
    yes("up-restart", 0, 0),
    yes("down", 1, 1),
    yes("down-pre", 0, 0),
    yes("route-up", 1, 1),
    yes("route-pre-down", 1, 1),
    yes("ipchange", 1, 1),
    yes("tls-verify", 1, 1),
    yes("client-connect", 1, 1),
    yes("client-disconnect", 1, 1),
    yes("learn-address", 1, 1),
    yes("auth-user-pass-verify", 2, 2),
    yes("client-crresponse", 1, 1),
    yes("setenv", 1, 2).list(),
    yes("setenv-safe", 1, 2).list(),
    yes("tmp-dir", 1, 1),
    no(
        "plugin",
        "shared objects are not loaded; use a script (`auth-user-pass-verify`, \
         `client-connect`) or `auth-user-pass-file`",
    ),
];

const SERVICE: &[Entry] = &[
    yes("user", 1, 1),
    yes("group", 1, 1),
    no(
        "chroot",
        "the root directory is not changed; use `user` and `group`, or set the root directory in \
         the service file",
    ),
    no(
        "setcon",
        "no SELinux context is changed; set it in the service file",
    ),
    yes("daemon", 0, 1),
    yes("syslog", 0, 1),
    yes("writepid", 1, 1),
    yes("log", 1, 1),
    yes("log-append", 1, 1),
    yes("suppress-timestamps", 0, 0),
    yes("machine-readable-output", 0, 0),
    skip("errors-to-stderr", "messages go to one place"),
    yes("verb", 1, 1),
    yes("mute", 1, 1),
    yes("status", 1, 2),
    yes("status-version", 1, 1),
    no("memstats", "use `status`, or `millrace status --json`"),
    yes("nice", 1, 1),
    yes("mlock", 0, 0),
    yes("echo", 0, MANY).list().client(),
    yes("parameter", 0, MANY).list().client(),
    yes("remap-usr1", 1, 1),
    yes("persist-key", 0, 0),
    yes("persist-remote-ip", 0, 0),
    skip(
        "persist-local-ip",
        "a name after `local` is looked up at each connection; write the address",
    ),
    yes("management", 2, 3),
    yes("management-client", 0, 0),
    yes("management-hold", 0, 0),
    yes("management-signal", 0, 0),
    yes("management-forget-disconnect", 0, 0),
    yes("management-up-down", 0, 0),
    yes("management-query-passwords", 0, 0),
    no(
        "management-query-proxy",
        "the management client is not asked for a proxy; write `http-proxy` or `socks-proxy`",
    ),
    no(
        "management-query-remote",
        "the management client is not asked for the server; write `remote`, or several of them",
    ),
    no(
        "management-client-auth",
        "clients are not judged through the management port; use `auth-user-pass-verify` or \
         `auth-user-pass-file`",
    ),
    no(
        "management-client-pf",
        "removed from OpenVPN 2.6; use nftables on the interface",
    ),
    yes("management-log-cache", 1, 1),
    yes("management-client-user", 1, 1),
    yes("management-client-group", 1, 1),
];

const SERVER: &[Entry] = &[
    yes("server", 2, 3),
    yes("server-ipv6", 1, 1),
    yes("ifconfig-pool", 2, 3),
    yes("ifconfig-pool-persist", 1, 2),
    skip(
        "ifconfig-pool-linear",
        "removed from OpenVPN 2.5; `topology p2p` says the same",
    ),
    yes("ifconfig-ipv6-pool", 1, 1),
    yes("push", 1, 1).list().client(),
    yes("push-reset", 0, 0).client(),
    yes("push-remove", 1, 1).list().client(),
    yes("iroute", 1, 2).list().client(),
    yes("iroute-ipv6", 1, 1).list().client(),
    yes("ifconfig-push", 2, 3).client(),
    yes("ifconfig-ipv6-push", 1, 2).client(),
    yes("ifconfig-push-constraint", 2, 2),
    yes("disable", 0, 0).client(),
    yes("client-config-dir", 1, 1),
    yes("ccd-exclusive", 0, 0),
    yes("client-to-client", 0, 0),
    yes("duplicate-cn", 0, 0),
    yes("max-clients", 1, 1),
    yes("max-routes-per-client", 1, 1).client(),
    yes("verify-client-cert", 0, 1),
    yes("client-cert-not-required", 0, 0),
    yes("username-as-common-name", 0, 0),
    no(
        "override-username",
        "the name of a client is not rewritten; let the verify script set common names",
    )
    .client(),
    yes("auth-user-pass-optional", 0, 0),
    yes("auth-user-pass-file", 1, 1),
    yes("auth-gen-token", 0, 3),
    yes("auth-gen-token-secret", 1, 1).inline(),
    yes("connect-freq", 2, 2),
    yes("connect-freq-initial", 2, 2),
    yes("stale-routes-check", 1, 2),
    yes("opt-verify", 0, 0),
    skip(
        "tcp-queue-limit",
        "what waits for a client is bounded by its socket's buffer; set `sndbuf`",
    ),
    skip("bcast-buffers", KERNEL),
    skip("hash-size", KERNEL),
    no(
        "port-share",
        "a port is not shared with a web server; use sslh or HAProxy in front, or another port",
    ),
];

const OTHERS: &[Entry] = &[
    no("peer-id", PULLED),
    no("push-continuation", PULLED),
    no("key-derivation", PULLED),
    no("protocol-flags", PULLED),
    skip(
        "disable-occ",
        "differing options of the two ends are only logged",
    ),
    skip("msg-channel", WINDOWS),
    skip("win-sys", WINDOWS),
    skip("pause-exit", WINDOWS),
    skip("service", WINDOWS),
    skip("allow-nonadmin", WINDOWS),
    skip("show-adapters", WINDOWS),
    skip("show-net", WINDOWS),
    skip("show-net-up", WINDOWS),
    skip("show-valid-subnets", WINDOWS),
    action("help", 0),
    action("version", 0),
    action("genkey", 3),
    action("mktun", 0),
    action("rmtun", 0),
    action("show-ciphers", 0),
    action("show-digests", 0),
    action("show-tls", 0),
    action("show-curves", 0),
    action("show-groups", 0),
    action("show-gateway", 1),
    action("test-crypto", 0),
    no("show-engines", "there are no OpenSSL engines to show"),
    no("show-pkcs11-ids", PKCS11),
];

#[cfg(test)]
mod tests;
