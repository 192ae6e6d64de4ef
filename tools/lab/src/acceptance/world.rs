//! A client, its router, and a server outside.

use crate::{Host, Link, LinkOptions, Router};

/// Three hosts in a row.
///
/// ```text
/// client [eth0 192.168.1.1]--[192.168.1.2 lan  router  wan 192.168.2.1]--[192.168.2.2 eth0] server
/// ```
pub struct World {
    /// The host that connects to the outside.
    pub client: Host,
    /// The client's router.
    pub router: Router,
    /// The host outside.
    pub server: Host,
    /// The link between router and server.
    pub outside: LinkOptions,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Makes all three hosts, with routes and without tunnels.
    pub fn new() -> Self {
        let client = Host::private("client").unwrap();
        let router = Router::of(Host::new("router").unwrap()).unwrap();
        let server = Host::private("server").unwrap();
        let (inside, outside) = (LinkOptions::numbered(1), LinkOptions::numbered(2));
        Link::new(&client, "eth0", &router, "lan", &inside).unwrap();
        Link::new(&router, "wan", &server, "eth0", &outside).unwrap();
        for address in [inside.b4(), inside.b6()] {
            client.add_default_route(address).unwrap();
        }
        for address in [outside.a4(), outside.a6()] {
            server.add_default_route(address).unwrap();
        }
        for host in [&client, &server] {
            host.sysctl("net/ipv4/conf/all/rp_filter", "0").unwrap();
            host.sysctl("net/ipv4/conf/default/rp_filter", "0").unwrap();
        }
        Self {
            client,
            router,
            server,
            outside,
        }
    }

    /// The client's routes, rules and interfaces, as text to compare. Routes that the kernel derives from addresses
    /// are left out, because they appear a moment later.
    pub fn state(&self) -> String {
        let show = |words: &[&str]| self.client.output("ip", words).unwrap();
        let all = [
            show(&["-4", "route", "show", "table", "all"]),
            show(&["-6", "route", "show", "table", "all"]),
            show(&["-4", "rule"]),
            show(&["-6", "rule"]),
            show(&["-brief", "link"]),
        ]
        .concat();
        all.lines()
            .filter(|line| !line.contains("proto kernel"))
            .fold(String::new(), |text, line| text + line + "\n")
    }

    /// The interface through which the client sends to `address`, which `mark MARK` may follow.
    pub fn way_to(&self, address: &str) -> String {
        let words = ["route", "get"].into_iter().chain(address.split(' '));
        let text = self.client.output("ip", words);
        let text = text.unwrap_or_default();
        let mut words = text.split_whitespace();
        words.find(|word| *word == "dev");
        words.next().unwrap_or_default().to_owned()
    }
}
