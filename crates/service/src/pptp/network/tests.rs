use super::*;
use crate::pptp::tests::{client_model, model};
use ::config::pptp::Role;
use host::Manager;
use std::sync::{Arc, Mutex};

/// A manager that notes what it is told.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<Option<Want>>>);

impl Manager for Notes {
    fn set(&self, want: &Want) {
        self.0.lock().unwrap().push(Some(want.clone()));
    }

    fn lost(&self) {
        self.0.lock().unwrap().push(None);
    }

    fn refused(&self, _: &str) {}

    fn keeps_endpoints(&self, _: bool) -> bool {
        false
    }

    fn failed(&self, _: &str) {}

    fn wants_reload(&self) -> bool {
        false
    }

    fn takes_reload(&self) -> bool {
        false
    }
}

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn up() -> Up {
    Up {
        address: Ipv4Addr::new(10, 0, 0, 2),
        peer: Some(Ipv4Addr::new(10, 0, 0, 1)),
        dns: [Some(Ipv4Addr::new(10, 0, 0, 53)), None],
        mtu: 1396,
        protection: None,
        user: None,
    }
}

fn want(more: &str, no_dns: bool) -> Want {
    let model = client_model("vpn.example", "word", more);
    let Role::Client(client) = &model.role else {
        panic!("{model:?}");
    };
    of_client(&model, client, &up(), SERVER, no_dns)
}

#[test]
fn name_servers_of_the_server_are_used_only_if_the_file_asks_for_them() {
    let servers = |more: &str, no_dns| want(more, no_dns).name_servers.map(|it| it.servers);
    let own = IpAddr::from([10, 0, 0, 53]);
    assert_eq!(servers("dns = true\n", false), Some(vec![own]));
    assert_eq!(servers("dns = true\n", true), None);
    assert_eq!(servers("", false), None);
}

/// Every client of a server would otherwise be looked for on the whole network, although some addresses are elsewhere.
#[test]
fn a_server_with_routes_has_only_them() {
    let want = |more: &str, routes: &[&str]| {
        let address = "listen = \"0.0.0.0\"\naddress = \"10.0.0.1/24\"\n";
        let mut model = model(&format!("{address}{more}[users]\nalice = \"word\"\n"));
        let Role::Server(server) = &mut model.role else {
            panic!("{model:?}");
        };
        server.routes = routes.iter().map(|it| it.parse().unwrap()).collect();
        let server = server.clone();
        of_server(&model, &server)
    };
    let whole = want("", &[]);
    assert_eq!((whole.addresses[0].prefix, whole.routes.len()), (24, 0));
    assert_eq!(whole.mtu, Mtu::Exact(MTU.into()));
    let some = want("mtu = 1300\n", &["10.0.0.128/25"]);
    assert_eq!((some.addresses[0].prefix, some.routes.len()), (32, 1));
    assert_eq!(some.mtu, Mtu::Exact(1300));
}

/// The host refuses to touch an interface that is not there. Its manager learns the wishes all the same.
#[test]
fn a_manager_is_told_what_the_tunnel_wants_and_when_it_is_lost() {
    let notes = Arc::new(Notes::default());
    let manager: SharedManager = notes.clone();
    let told = || std::mem::take(&mut *notes.0.lock().unwrap());
    let mut network = Network::new("no-such-ppp", Some(&manager));
    assert!(!network.is_set());
    // Nothing follows before the tunnel is up.
    network.follow();
    network.keep_outside(SERVER);
    assert_eq!(told(), []);
    assert!(network.set(want("default-route = true\n", true)).is_err());
    let [Some(first)] = &told()[..] else {
        panic!("told once");
    };
    assert!(first.default_v4.is_some());
    assert_eq!(first.addresses[0].addr, IpAddr::from([10, 0, 0, 2]));
    // The host's routes have changed.
    network.follow();
    assert_eq!(told(), [Some(first.clone())]);
    network.undo();
    assert_eq!(told(), [None]);
    network.follow();
    assert_eq!(told(), []);
}
