//! A tunnel between two hosts, carried by any of the programs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::openvpn::{ConfigFile, Credentials, OpenVpn, RunningOpenVpn, Setup};
use crate::peer::{Invocation, Keys, PeerOptions, RunningPeer, WgInterface, WgPeer, WireGuardPeer};
use crate::{Host, LabError, LinkOptions, Process};

/// How long a forwarder gets to create its interface.
const READY: Duration = Duration::from_secs(40);

/// The program that carries the packets.
pub enum Carrier {
    /// A WireGuard program, the same at both ends.
    WireGuard(Box<dyn WireGuardPeer>, PeerOptions),
    /// OpenVPN programs: a client and its server.
    OpenVpn {
        /// The program that connects.
        client: Box<dyn OpenVpn>,
        /// The program that listens.
        server: Box<dyn OpenVpn>,
        /// Settings of both; the tunnel's options replace the port, interface and network.
        setup: Box<Setup>,
        /// The certificates and keys of both.
        credentials: Arc<Credentials>,
    },
    /// The forwarder without a cipher ([`crate::forwarder`]), in two processes. Each is the given program, called
    /// with `arguments` and then `IFNAME PORT REMOTE`.
    Forwarder {
        /// The program.
        program: PathBuf,
        /// The program's first arguments.
        arguments: Vec<String>,
    },
}

/// One end of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEnd {
    /// The end's address on the line.
    pub outer: IpAddr,
    /// The addresses of the end's tunnel interface, each with its prefix length.
    pub inner: Vec<(IpAddr, u8)>,
    /// The networks behind this end, which the other end routes into the tunnel.
    pub behind: Vec<(IpAddr, u8)>,
}

/// Settings of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelOptions {
    /// The interface's name at both ends. Because it is the same, both hosts must be private.
    pub interface: String,
    /// UDP port of both ends.
    pub port: u16,
    /// MTU of the tunnel, in bytes. OpenVPN ignores it.
    pub mtu: u32,
    /// The end that connects, then the end that listens.
    pub ends: [TunnelEnd; 2],
}

impl TunnelOptions {
    /// Options for a tunnel over `link` between its ends `a` and `b`. Inside they are 10.`network`.0.1 and .2, and
    /// fd0f:`network`::1 and ::2. End `b` listens, end `a` connects.
    pub fn over(link: &LinkOptions, network: u8) -> Self {
        let end = |outer, number: u8| TunnelEnd {
            outer,
            inner: vec![
                ([10, network, 0, number].into(), 24),
                (
                    [0xfd0f, network.into(), 0, 0, 0, 0, 0, number.into()].into(),
                    64,
                ),
            ],
            behind: Vec::new(),
        };
        Self {
            interface: "wg0".to_owned(),
            port: 51_820,
            mtu: 1420,
            ends: [end(link.a4(), 1), end(link.b4(), 2)],
        }
    }

    /// The first inner address of end `number`, 0 or 1.
    pub fn inner(&self, number: usize) -> IpAddr {
        let end = self.ends.get(number);
        let address = end.and_then(|end| end.inner.first());
        address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |(ip, _)| *ip)
    }
}

/// Running programs at both ends. Dropping the value ends them and removes their interfaces.
#[derive(Debug)]
pub struct Tunnel<'h> {
    ends: [End<'h>; 2],
    options: TunnelOptions,
}

#[derive(Debug)]
enum End<'h> {
    WireGuard(RunningPeer<'h>, WgInterface),
    OpenVpnServer(RunningOpenVpn<'h>),
    OpenVpnClient(OpenVpnClient<'h>),
    Forwarder(&'h Host, Process),
}

/// An OpenVPN client, started only when the tunnel must connect: it cannot be configured later.
#[derive(Debug)]
struct OpenVpnClient<'h> {
    host: &'h Host,
    program: PathBuf,
    invocation: Invocation,
    file: ConfigFile,
    running: OnceLock<RunningOpenVpn<'h>>,
}

impl<'h> Tunnel<'h> {
    /// Starts the programs; [`Tunnel::connect`] then makes a tunnel of them. An OpenVPN server takes the first inner
    /// address and assigns the others. If the connecting end has the first one, the ends swap inner addresses: see
    /// [`Tunnel::options`].
    ///
    /// # Errors
    /// [`LabError::Missing`] if the program is not installed, [`LabError::Failed`] if it ends at once,
    /// [`LabError::Timeout`].
    pub fn start(
        carrier: &Carrier,
        hosts: [&'h Host; 2],
        mut options: TunnelOptions,
    ) -> Result<Self, LabError> {
        let [a, b] = hosts;
        let ends = match carrier {
            Carrier::WireGuard(program, settings) => {
                let keys = [Keys::generate(a)?, Keys::generate(b)?];
                let start = |host, number| {
                    let running = program.start(host, &options.interface, settings)?;
                    Ok::<_, LabError>(End::WireGuard(running, interface(&options, &keys, number)))
                };
                [start(a, 0)?, start(b, 1)?]
            }
            Carrier::OpenVpn {
                client,
                server,
                setup,
                credentials,
            } => {
                let [at_a, at_b] = &mut options.ends;
                if at_a.inner < at_b.inner {
                    std::mem::swap(&mut at_a.inner, &mut at_b.inner);
                }
                let setup = openvpn_setup(setup, &options);
                let remote = options.ends[1].outer;
                let file = setup.server_file(server.as_ref(), credentials, remote)?;
                let listens = server.start(b, &file)?;
                let calls = OpenVpnClient {
                    host: a,
                    program: client.available()?,
                    invocation: client.invocation(),
                    file: setup.client_file(client.as_ref(), credentials, remote)?,
                    running: OnceLock::new(),
                };
                [End::OpenVpnClient(calls), End::OpenVpnServer(listens)]
            }
            Carrier::Forwarder { program, arguments } => {
                let start = |host: &'h Host, remote: IpAddr| {
                    let mut process = host
                        .command(program)
                        .args(arguments)
                        .arg(&options.interface)
                        .arg(options.port.to_string())
                        .arg(remote.to_string())
                        .spawn()?;
                    process.wait_until("its interface", READY, || {
                        host.has_interface(&options.interface).unwrap_or(false)
                    })?;
                    Ok::<_, LabError>(End::Forwarder(host, process))
                };
                let [at_a, at_b] = &options.ends;
                [start(a, at_b.outer)?, start(b, at_a.outer)?]
            }
        };
        Ok(Self { ends, options })
    }

    /// Configures both ends, the listening one first, and returns the time at which it began with the other. The
    /// first packet triggers the handshake. An OpenVPN client starts here.
    ///
    /// # Errors
    /// [`LabError::Failed`] if `wg` fails, [`LabError::Netlink`].
    pub fn connect(&self) -> Result<Instant, LabError> {
        self.configure(1)?;
        let start = Instant::now();
        self.configure(0)?;
        Ok(start)
    }

    /// The tunnel's options, with the inner addresses that are in force.
    pub fn options(&self) -> &TunnelOptions {
        &self.options
    }

    /// The process ids of both ends; 0 for an OpenVPN client before [`Tunnel::connect`].
    pub fn processes(&self) -> [u32; 2] {
        self.ends.each_ref().map(|end| match end {
            End::WireGuard(peer, _) => peer.process.id(),
            End::OpenVpnServer(running) => running.process.id(),
            End::OpenVpnClient(client) => {
                let running = client.running.get();
                running.map_or(0, |running| running.process.id())
            }
            End::Forwarder(_, process) => process.id(),
        })
    }

    fn configure(&self, number: usize) -> Result<(), LabError> {
        let (own, other) = (&self.options.ends[number], &self.options.ends[1 - number]);
        let interface = &self.options.interface;
        let host = match &self.ends[number] {
            End::WireGuard(peer, configuration) => {
                peer.configure(configuration)?;
                peer.host()
            }
            End::OpenVpnServer(_) => return Ok(()),
            End::OpenVpnClient(client) => return client.connect(),
            End::Forwarder(host, _) => host,
        };
        host.set_mtu(interface, self.options.mtu)?;
        for (ip, prefix) in &own.inner {
            host.add_address(interface, *ip, *prefix)?;
        }
        host.set_up(interface, true)?;
        for network in &other.behind {
            host.add_device_route(*network, interface)?;
        }
        Ok(())
    }
}

impl OpenVpnClient<'_> {
    fn connect(&self) -> Result<(), LabError> {
        let Self {
            host,
            program,
            invocation,
            file,
            running,
        } = self;
        let launched = RunningOpenVpn::launch(program, invocation, host, file)?;
        running.set(launched).map_err(|_| LabError::Unusable {
            what: "the OpenVPN client".to_owned(),
            hint: "the client has been started already; make another tunnel".to_owned(),
        })
    }
}

/// The OpenVPN settings of a tunnel, with routes to the networks behind its ends.
fn openvpn_setup(setup: &Setup, options: &TunnelOptions) -> Setup {
    let mut setup = Setup {
        port: options.port,
        interface: options.interface.clone(),
        ..setup.clone()
    };
    if let IpAddr::V4(inner) = options.inner(1) {
        setup.network = inner.octets()[1];
    }
    let [client, server] = &options.ends;
    for (network, prefix) in &server.behind {
        setup.client.line(&route("route", *network, *prefix));
    }
    let mut of_client = String::new();
    for (network, prefix) in &client.behind {
        setup.server.line(&route("route", *network, *prefix));
        of_client += &(route("iroute", *network, *prefix) + "\n");
    }
    if !of_client.is_empty() {
        setup.server.line("client-config-dir ccd");
        setup.server.file("ccd/DEFAULT", of_client);
    }
    setup
}

/// The directive `name`, or its IPv6 form, for a network.
fn route(name: &str, network: IpAddr, prefix: u8) -> String {
    match network {
        IpAddr::V4(_) => {
            let ones = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            format!("{name} {network} {}", Ipv4Addr::from(ones))
        }
        IpAddr::V6(_) => format!("{name}-ipv6 {network}/{prefix}"),
    }
}

/// The settings of `wg` for end `number` of a tunnel.
fn interface(options: &TunnelOptions, keys: &[Keys; 2], number: usize) -> WgInterface {
    let other = 1 - number;
    let end = &options.ends[other];
    let mut peer = WgPeer::new(&keys[other].public);
    // Only one end knows the other's address, as between a router and its office.
    if number == 0 {
        peer = peer.at((end.outer, options.port).into());
    }
    for (ip, _) in &end.inner {
        peer = peer.allow(*ip, if ip.is_ipv4() { 32 } else { 128 });
    }
    peer.allowed_ips.extend(&end.behind);
    WgInterface {
        keys: keys[number].clone(),
        listen_port: Some(options.port),
        fwmark: None,
        peers: vec![peer],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openvpn_routes_what_is_behind_either_end() {
        let mut options = TunnelOptions::over(&LinkOptions::numbered(1), 9);
        options.ends[0].behind = vec![
            ([192, 168, 2, 0].into(), 24),
            ([0xfd00, 2, 0, 0, 0, 0, 0, 0].into(), 64),
        ];
        let setup = openvpn_setup(&Setup::default(), &options);
        assert_eq!(setup.network, 9);
        let server = setup.server.to_string();
        assert!(
            server.contains("route 192.168.2.0 255.255.255.0\n"),
            "{server}"
        );
        assert!(server.contains("route-ipv6 fd00:2::/64\n"), "{server}");
    }

    #[test]
    fn one_end_calls_and_each_allows_what_is_behind_the_other() {
        let mut options = TunnelOptions::over(&LinkOptions::numbered(1), 9);
        let lan = ([192, 168, 2, 0].into(), 24);
        options.ends[0].behind.push(lan);
        let keys = ["a", "b"].map(|name| Keys {
            private: format!("private {name}"),
            public: format!("public {name}"),
        });
        let caller = &interface(&options, &keys, 0).peers[0];
        assert_eq!(caller.public_key, "public b");
        assert_eq!(caller.endpoint, Some(([192, 168, 1, 2], 51_820).into()));
        assert!(!caller.allowed_ips.contains(&lan));
        let listener = &interface(&options, &keys, 1).peers[0];
        assert_eq!(listener.endpoint, None);
        assert!(listener.allowed_ips.contains(&lan));
        assert!(listener.allowed_ips.contains(&(options.inner(0), 32)));
    }
}
