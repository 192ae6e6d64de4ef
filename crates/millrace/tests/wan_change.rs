//! Changes of a router's uplink under a client of each protocol: `ifdown wan`, another address, another uplink. The
//! tunnel must come back at once, as netifd leaves all of that to its programs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use lab::acceptance::netifd::Netifd;
use lab::acceptance::openvpn::{Pair, credentials};
use lab::acceptance::{Directory, Net, PATIENCE, PROGRAM, TwoLines, ip, until_answer};
use lab::openvpn::{KeyKind, Setup, Transport};
use lab::peer::Keys;
use lab::{Host, Link, LinkOptions, Process};

const OFFICE: &str = "office";

/// The servers' address inside the tunnels; OpenVPN's is in its own file.
const INSIDE: &str = "10.9.0.1";

/// Changes of the uplinks, each after the one before: a name, and netifd's work. After each of them the path from
/// before is dead.
const CHANGES: [Change; 8] = [
    ("another address", |router| {
        run(&router.a, "addr del 192.168.1.1/24 dev wan");
        router.wan_gets("192.168.1.77/24");
    }),
    ("ifdown and ifup", |router| {
        router.wan_is(false);
        router.wan_is(true);
        router.wan_gets("192.168.1.77/24");
    }),
    ("ifdown, and ifup with another address", |router| {
        router.wan_is(false);
        router.wan_is(true);
        router.wan_gets("192.168.1.78/24");
    }),
    ("ifdown, and another uplink", |router| {
        router.wan_is(false);
        router.leads("lte");
    }),
    (
        "the first uplink again, while the other has an address",
        |router| {
            router.wan_is(true);
            router.works("lte", false);
            router.wan_gets("192.168.1.1/24");
        },
    ),
    ("another uplink, while the first has an address", |router| {
        router.works("lte", true);
        router.works("wan", false);
        router.leads("lte");
    }),
    ("a device that is made anew, as PPPoE's", |router| {
        router.replugs();
        router.works("lte", false);
    }),
    ("the same once more", Router::replugs),
];

type Change = (&'static str, fn(&Router));

/// A router A with two uplinks, and the Internet B with a server behind both.
struct Router {
    a: Host,
    b: Host,
    directory: Directory,
}

impl Router {
    fn new() -> Self {
        let (a, b) = Net::hosts();
        b.add_address("lo", ip(TwoLines::SERVER), 32).unwrap();
        let router = Self {
            a,
            b,
            directory: Directory::new(),
        };
        router.plug("wan", 1);
        router.plug("lte", 2);
        // The servers have inner addresses, too, and would answer past the tunnel.
        run(&router.a, "route add unreachable 10.0.0.0/8");
        router
    }

    fn plug(&self, name: &str, number: u8) {
        let options = LinkOptions::numbered(number);
        Link::new(&self.a, name, &self.b, name, &options).unwrap();
    }

    fn replugs(&self) {
        run(&self.a, "link del wan");
        self.plug("wan", 1);
        self.leads("wan");
    }

    /// Whether the provider answers through this uplink.
    fn works(&self, uplink: &str, works: bool) {
        let network = if uplink == "wan" { 1 } else { 2 };
        run(&self.b, &format!("addr flush dev {uplink}"));
        if works {
            run(
                &self.b,
                &format!("addr add 192.168.{network}.2/24 dev {uplink}"),
            );
        }
    }

    /// Leads the default route through an uplink.
    fn leads(&self, uplink: &str) {
        let network = if uplink == "wan" { 1 } else { 2 };
        let words = format!("route replace default via 192.168.{network}.2 dev {uplink}");
        run(&self.a, &words);
    }

    /// Takes `wan` down with its address, or up.
    fn wan_is(&self, up: bool) {
        run(&self.a, "addr flush dev wan");
        self.a.set_up("wan", up).unwrap();
    }

    fn wan_gets(&self, address: &str) {
        run(&self.a, &format!("addr add {address} dev wan"));
        self.leads("wan");
    }

    fn serve(&self, name: &str, text: &str) -> Process {
        let file = self.directory.file(name, text);
        let mut server = self.b.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
        let is_up = |line: &str| line.contains("is up");
        let waited = server.wait_for_line("the server", PATIENCE, is_up);
        waited.unwrap_or_else(|error| panic!("{error}\n{}", server.stderr()));
        server
    }
}

fn run(host: &Host, words: &str) {
    host.output("ip", words.split(' ')).unwrap();
}

/// A client under netifd.
struct Client<'r> {
    router: &'r Router,
    /// The name of the case.
    name: String,
    /// The server's address inside the tunnel.
    inside: String,
    /// The client's words while it has no uplink.
    lacks: Option<&'r str>,
    /// The tunnel is bound to `wan`.
    bound: bool,
}

impl Client<'_> {
    /// Brings up the client and the uplink in this order, and then changes the uplinks below the tunnel.
    fn comes_back(&self) {
        let router = self.router;
        let mut netifd = Netifd::start(&router.a, OFFICE, router.directory.path());
        netifd.has_line("wan", "wan");
        netifd.if_up();
        if let Some(words) = self.lacks {
            netifd.until_said(words);
        }
        router.leads("wan");
        self.answers("the first uplink");
        netifd.until_up();
        let changes = CHANGES
            .iter()
            .filter(|(what, _)| !self.bound || !what.contains("another uplink"));
        for (what, change) in changes {
            change(router);
            self.answers(what);
        }
        assert_eq!((netifd.taken(), netifd.starts), (1, 1), "{}", netifd.said());
        assert_eq!(netifd.complaints(), Vec::<String>::new());
        netifd.if_down();
    }

    /// Waits until the server answers through the tunnel.
    fn answers(&self, what: &str) {
        let time = until_answer(&self.router.a, &self.inside).as_secs_f32();
        let met = format!("{}: {what}: {time:.1} s", self.name);
        println!("{met}");
        lab::met(&met);
    }
}

/// Routes in a client's words, and whether they lead everything into the tunnel.
fn both(all: &str, some: &str) -> [(bool, String); 2] {
    [(false, some.to_owned()), (true, all.to_owned())]
}

#[test]
fn a_wireguard_client_comes_back_at_once() {
    if !lab::acceptance::ready() {
        return;
    }
    for (all, ranges) in both("0.0.0.0/0", "10.9.0.0/24") {
        let router = Router::new();
        let (ours, theirs) = (
            Keys::generate(&router.a).unwrap(),
            Keys::generate(&router.b).unwrap(),
        );
        let text = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = 1002\nAddress = {INSIDE}/24\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = 10.9.0.2/32\n",
            theirs.private, ours.public
        );
        let _server = router.serve("wg0.conf", &text);
        let text = format!(
            "config interface '{OFFICE}'\n\toption proto 'millrace'\n\
             \toption private_key '{}'\n\tlist addresses '10.9.0.2/24'\n\
             config millrace_{OFFICE}\n\toption public_key '{}'\n\
             \toption endpoint_host '{}'\n\toption endpoint_port '1002'\n\
             \tlist allowed_ips '{ranges}'\n\toption route_allowed_ips '1'\n",
            ours.private,
            theirs.public,
            TwoLines::SERVER
        );
        router.directory.replace("network", &text);
        let client = Client {
            router: &router,
            name: format!("WireGuard, all {all}"),
            inside: INSIDE.to_owned(),
            lacks: None,
            bound: false,
        };
        client.comes_back();
    }
}

#[test]
fn an_openvpn_client_comes_back_at_once() {
    if !lab::acceptance::openvpn::ready() {
        return;
    }
    let routes = both("redirect-gateway def1", "route 10.50.0.0 255.255.0.0");
    for ((all, more), transport) in routes
        .iter()
        .flat_map(|it| [(it, Transport::Udp), (it, Transport::Tcp)])
    {
        let router = Router::new();
        let (mut setup, programs) = (Setup::default(), Pair::Both.programs(false));
        setup.transport = transport;
        let (keys, at) = (credentials(KeyKind::Ecdsa), ip(TwoLines::SERVER));
        let file = setup.server_file(programs[0].as_ref(), keys, at).unwrap();
        let _server = programs[0].start(&router.b, &file).unwrap();
        let file = setup.client_file(programs[1].as_ref(), keys, at).unwrap();
        let text = format!("{file}\n{more}\n");
        router.directory.replace("office.ovpn", &text);
        router.directory.interface(OFFICE, "office.ovpn", "");
        let client = Client {
            router: &router,
            name: format!("OpenVPN, {transport:?}, all {all}"),
            inside: setup.inner4(1).to_string(),
            lacks: None,
            bound: false,
        };
        client.comes_back();
    }
}

#[test]
fn a_pptp_client_comes_back_at_once() {
    if !lab::acceptance::ready() {
        return;
    }
    let common = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\n";
    let routes = both("default-route = true", "routes = [\"10.50.0.0/16\"]");
    for ((all, more), bound) in routes.iter().flat_map(|it| [(it, false), (it, true)]) {
        let router = Router::new();
        let text = format!(
            "{common}listen = \"{}\"\naddress = \"{INSIDE}/24\"\ninterface = \"pptp0\"\n\
             [users]\nalice = \"correct horse\"\n",
            TwoLines::SERVER
        );
        let _server = router.serve("server.toml", &text);
        let text = format!(
            "{common}server = \"{}\"\nusername = \"alice\"\npassword = \"correct horse\"\n{more}\n",
            TwoLines::SERVER
        );
        router.directory.replace("office.toml", &text);
        let uplink = if bound { "\tlist uplink 'wan'\n" } else { "" };
        router.directory.interface(OFFICE, "office.toml", uplink);
        let client = Client {
            router: &router,
            name: format!("PPTP, all {all}, bound {bound}"),
            inside: INSIDE.to_owned(),
            // This pause is longer than a second.
            lacks: (!bound).then_some("trying again in 4 s"),
            bound,
        };
        client.comes_back();
    }
}
