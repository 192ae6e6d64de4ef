//! Shared code of the OpenVPN tests: programs in both roles, and traffic through their tunnels.

use std::env;
use std::sync::OnceLock;

use crate::openvpn::{
    Credentials, KeyKind, MillraceOpenVpn, OldClient, OldServer, OpenVpn, RunningOpenVpn, Setup,
    StockOpenVpn,
};
use crate::{Host, LinkOptions, tools};

use super::{Net, PROGRAM, pings, tcp_both_ways, udp_both_ways, usable};

/// Whether tunnels and the stock program are available; if not, notes what is missing.
#[track_caller]
pub fn ready() -> bool {
    let programs = ["openvpn", "openssl", "ip"];
    crate::may_enter()
        && crate::require(tools::tun()).is_some()
        && crate::require(
            programs
                .into_iter()
                .try_for_each(|name| tools::find(name).map(drop)),
        )
        .is_some()
}

/// Bytes that each content test sends each way: 2 MB, or the value of `MILLRACE_TEST_BYTES`.
pub fn amount() -> usize {
    env::var("MILLRACE_TEST_BYTES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2_000_000)
}

/// Credentials of each key kind, made once per process.
pub fn credentials(kind: KeyKind) -> &'static Credentials {
    static ALL: [OnceLock<Credentials>; 3] = [const { OnceLock::new() }; 3];
    let place = match kind {
        KeyKind::Rsa => 0,
        KeyKind::Ecdsa => 1,
        KeyKind::Ed25519 => 2,
    };
    ALL[place].get_or_init(|| Credentials::new(kind).unwrap())
}

/// The program under test, with OpenVPN's options.
pub fn millrace() -> MillraceOpenVpn {
    MillraceOpenVpn::new(PROGRAM)
}

/// The programs at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pair {
    /// Millrace at both ends.
    Both,
    /// Millrace connects to the stock server.
    Client,
    /// The stock client connects to Millrace.
    Server,
}

impl Pair {
    /// All pairs.
    pub const ALL: [Self; 3] = [Self::Both, Self::Client, Self::Server];

    /// The programs, server first. With `old`, the stock program derives keys as before 2.6.
    pub fn programs(self, old: bool) -> [Box<dyn OpenVpn>; 2] {
        if env::var_os("MILLRACE_TEST_STOCK").is_some() {
            return stock(old);
        }
        let ours = || -> Box<dyn OpenVpn> { Box::new(millrace()) };
        let stock = || -> Box<dyn OpenVpn> { Box::new(StockOpenVpn) };
        match (self, old) {
            (Self::Both, _) => [ours(), ours()],
            (Self::Client, false) => [stock(), ours()],
            (Self::Client, true) => [Box::new(OldServer::new().unwrap()), ours()],
            (Self::Server, false) => [ours(), stock()],
            (Self::Server, true) => [ours(), Box::new(OldClient::new().unwrap())],
        }
    }
}

/// The stock program at both ends, server first. With `old`, both derive keys as before 2.6.
pub fn stock(old: bool) -> [Box<dyn OpenVpn>; 2] {
    if old {
        [Box::new(StockOpenVpn), Box::new(OldClient::new().unwrap())]
    } else {
        [Box::new(StockOpenVpn), Box::new(StockOpenVpn)]
    }
}

/// A running server at B and a running client at A of a [`Net`].
pub struct Ends<'h> {
    /// The server, at B.
    pub server: RunningOpenVpn<'h>,
    /// The client, at A.
    pub client: RunningOpenVpn<'h>,
    /// The tunnel's settings.
    pub setup: Setup,
    /// Inner IPv4 address of the server.
    pub server4: String,
    /// Inner IPv6 address of the server.
    pub server6: String,
    /// The programs' values, which may own temporary directories.
    _programs: [Box<dyn OpenVpn>; 2],
}

/// Prints the programs' output when a test fails.
impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, end) in [("server", &self.server), ("client", &self.client)] {
                let said = (end.process.stdout(), end.process.stderr());
                println!("---- the {name}:\n{}{}", said.0, said.1);
            }
        }
    }
}

impl<'h> Ends<'h> {
    /// Starts both programs over IPv4 and waits until they are connected.
    pub fn new(net: &'h Net, setup: &Setup, programs: [Box<dyn OpenVpn>; 2]) -> Self {
        Self::with(net, setup, programs, KeyKind::Ecdsa, false)
    }

    /// Starts both as [`Ends::new`] does, with keys of this kind, over this outer family.
    pub fn with(
        net: &'h Net,
        setup: &Setup,
        programs: [Box<dyn OpenVpn>; 2],
        kind: KeyKind,
        v6: bool,
    ) -> Self {
        Self::between([&net.b, &net.a], &net.link, setup, programs, kind, v6)
    }

    /// Starts a server and a client on any two hosts; the server is end B of `link`.
    pub fn between(
        [server, client]: [&'h Host; 2],
        link: &LinkOptions,
        setup: &Setup,
        programs: [Box<dyn OpenVpn>; 2],
        kind: KeyKind,
        v6: bool,
    ) -> Self {
        let mut setup = setup.as_of(StockOpenVpn.release());
        if StockOpenVpn.release() < (2, 6) && setup.client.find("reneg-sec").is_some() {
            // An old client requests its options a second or two late, and no server accepts a key renewal before
            // that.
            setup.client.remove("reneg-sec").line("reneg-sec 6");
        }
        let setup = &setup;
        let outer = if v6 { link.b6() } else { link.b4() };
        let keys = credentials(kind);
        let [at_server, at_client] = &programs;
        let file = setup.server_file(at_server.as_ref(), keys, outer).unwrap();
        let server = at_server.start(server, &file).unwrap();
        let file = setup.client_file(at_client.as_ref(), keys, outer).unwrap();
        let client = at_client.start(client, &file).unwrap();
        Self {
            server,
            client,
            setup: setup.clone(),
            server4: setup.inner4(1).to_string(),
            server6: setup.server6().to_string(),
            _programs: programs,
        }
    }

    /// Checks pings, TCP and UDP over both inner families, in both directions, with content compared.
    pub fn carries(&self, bytes: usize) {
        let (a, b) = (self.client.host(), self.server.host());
        let client4 = self.setup.inner4(2).to_string();
        let client6 = self.client.inner6().unwrap().to_string();
        usable(a, &client6);
        usable(b, &self.server6);
        for target in [&self.server4, &self.server6] {
            pings(a, target, 3);
        }
        for target in [&client4, &client6] {
            pings(b, target, 3);
        }
        tcp_both_ways(a, b, &self.server4, bytes / 2);
        tcp_both_ways(b, a, &client6, bytes / 2);
        udp_both_ways(a, b, &self.server6, 100, 1400);
        udp_both_ways(b, a, &client4, 100, 1400);
    }
}
