//! The VPNs that the router may run, and the far end of each: a stock program, except for PPTP.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use lab::openvpn::{
    Cipher, ConfigFile, Credentials, Digest, KeyKind, MillraceOpenVpn, OpenVpn, RunningOpenVpn,
    Setup, StockOpenVpn,
};
use lab::peer::{
    AmneziaWg, HEADER_KEY, Keys, PeerOptions, RunningPeer, WgInterface, WgPeer, WireGuardPeer,
    WireguardGoPackaged,
};
use lab::{Host, LabError, Process};

use crate::machine::{FAR, File, MTU};
use crate::pptp;

/// The far end's WireGuard port.
const WG_PORT: u16 = 51820;

/// A program to compare, as it runs in the router.
#[derive(Clone, Copy)]
pub(crate) struct Contender {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Makes the interface `wg0`, which `wg` then configures.
    WireGuard(&'static str),
    /// Reads a WireGuard file with values of AmneziaWG; the program of the far end.
    AmneziaWg(AmneziaWg),
    /// Reads a configuration: the program, whose first words are given.
    OpenVpn(&'static str, Cipher),
    /// A client of PPTP's.
    Pptp(pptp::Client),
}

const MILLRACE_WIREGUARD: &str = "millrace wireguard -f wg0 >/tmp/vpn.log 2>&1 &";
const WIREGUARD_GO: &str = "wireguard-go -f wg0 >/tmp/vpn.log 2>&1 &";
const KERNEL: &str = "ip link add wg0 type wireguard";
const MILLRACE_OPENVPN: &str = "millrace openvpn";
const STOCK_OPENVPN: &str = "openvpn";

const ALL: [Contender; 14] = [
    wireguard("millrace-wireguard", MILLRACE_WIREGUARD),
    amneziawg("millrace-amneziawg-2.0", AmneziaWg::V20),
    amneziawg("millrace-amneziawg-3.1", AmneziaWg::V31),
    wireguard("wireguard-go", WIREGUARD_GO),
    wireguard("kernel-wireguard", KERNEL),
    openvpn("millrace-aes-256-gcm", MILLRACE_OPENVPN, Cipher::Aes256Gcm),
    openvpn("openvpn-aes-256-gcm", STOCK_OPENVPN, Cipher::Aes256Gcm),
    openvpn(
        "millrace-aes-256-cbc-sha1",
        MILLRACE_OPENVPN,
        Cipher::Aes256Cbc,
    ),
    openvpn("openvpn-aes-256-cbc-sha1", STOCK_OPENVPN, Cipher::Aes256Cbc),
    openvpn(
        "millrace-chacha20-poly1305",
        MILLRACE_OPENVPN,
        Cipher::ChaCha20Poly1305,
    ),
    openvpn(
        "openvpn-chacha20-poly1305",
        STOCK_OPENVPN,
        Cipher::ChaCha20Poly1305,
    ),
    pptp("millrace-pptp", pptp::Client::Millrace),
    pptp("kernel-pptp", pptp::Client::Kernel),
    pptp("pptp-linux", pptp::Client::UserSpace),
];

const fn wireguard(name: &'static str, start: &'static str) -> Contender {
    Contender {
        name,
        kind: Kind::WireGuard(start),
    }
}

const fn amneziawg(name: &'static str, far: AmneziaWg) -> Contender {
    Contender {
        name,
        kind: Kind::AmneziaWg(far),
    }
}

const fn openvpn(name: &'static str, start: &'static str, cipher: Cipher) -> Contender {
    Contender {
        name,
        kind: Kind::OpenVpn(start, cipher),
    }
}

const fn pptp(name: &'static str, client: pptp::Client) -> Contender {
    Contender {
        name,
        kind: Kind::Pptp(client),
    }
}

/// The far end, prepared but not started.
pub(crate) enum Making {
    Pptp,
    WireGuard(WgInterface),
    AmneziaWg(AmneziaWg, WgInterface),
    OpenVpn(ConfigFile),
}

/// The far end. Held so that it lives.
pub(crate) enum FarEnd<'h> {
    Pptp { _running: Process },
    WireGuard { _running: RunningPeer<'h> },
    OpenVpn { _running: RunningOpenVpn<'h> },
}

impl Contender {
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|contender| contender.name == name)
    }

    pub(crate) fn names() -> Vec<&'static str> {
        ALL.iter().map(|contender| contender.name).collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Prepares the far end, and the files for the router.
    pub(crate) fn prepare(&self, far: &Host) -> Result<(Making, Vec<File>), LabError> {
        match self.kind {
            Kind::Pptp(client) => Ok((Making::Pptp, client.files())),
            Kind::WireGuard(start) => {
                let (own, router) = (Keys::generate(far)?, Keys::generate(far)?);
                let everything = IpAddr::from([0; 4]);
                let outside = SocketAddr::new(address(FAR), WG_PORT);
                let peer = WgPeer::new(&own.public).at(outside).allow(everything, 0);
                let inside = interface(router.clone(), None, peer);
                let script = format!(
                    "{start}\n\
                     tries=0\n\
                     until wg setconf wg0 /wg.conf 2>/tmp/wg.log; do\n\
                     sleep 0.1\n\
                     tries=$((tries + 1))\n\
                     [ $tries != 100 ] || cat /tmp/vpn.log /tmp/wg.log\n\
                     done\n\
                     ip addr add 10.93.0.2/24 dev wg0\n\
                     ip link set wg0 mtu {MTU} up\n"
                );
                let peer = WgPeer::new(&router.public)
                    .allow([10, 93, 0, 2].into(), 32)
                    .allow([10, 91, 0, 0].into(), 24);
                Ok((
                    Making::WireGuard(interface(own, Some(WG_PORT), peer)),
                    vec![file("vpn", script), file("wg.conf", inside.file())],
                ))
            }
            Kind::AmneziaWg(program) => {
                let (own, router) = (Keys::generate(far)?, Keys::generate(far)?);
                let outside = SocketAddr::new(address(FAR), WG_PORT);
                let network = IpAddr::from([10, 93, 0, 0]);
                let peer = WgPeer::new(&own.public).at(outside).allow(network, 24);
                let [key, of_files] = HEADER_KEY;
                // Files join the words of a name.
                let lines = program.settings().replace('_', "").replace(key, of_files);
                let of_router =
                    format!("[Interface]\nAddress = 10.93.0.2/24\nMTU = {MTU}\n{lines}");
                let inside = interface(router.clone(), None, peer).file().replacen(
                    "[Interface]\n",
                    &of_router,
                    1,
                );
                let peer = WgPeer::new(&router.public)
                    .allow([10, 93, 0, 2].into(), 32)
                    .allow([10, 91, 0, 0].into(), 24);
                let script = "millrace up --no-dns /wg0.conf >/tmp/vpn.log 2>&1 &\n";
                Ok((
                    Making::AmneziaWg(program, interface(own, Some(WG_PORT), peer)),
                    vec![file("vpn", script.to_owned()), file("wg0.conf", inside)],
                ))
            }
            Kind::OpenVpn(start, cipher) => {
                let credentials = Credentials::new(KeyKind::Ecdsa)?;
                let mut setup = Setup {
                    network: 93,
                    cipher,
                    auth: Digest::Sha1,
                    tun_mtu: Some(MTU),
                    mssfix: Some(0),
                    interface: "tun0".to_owned(),
                    ..Setup::default()
                };
                setup
                    .server
                    .line("route 10.91.0.0 255.255.255.0")
                    .line("client-config-dir ccd")
                    .line("ccd-exclusive")
                    .file(
                        &format!("ccd/{}", credentials.pki.client().name),
                        "iroute 10.91.0.0 255.255.255.0\n",
                    );
                setup.client.line("log /tmp/vpn.log");
                let server = setup.server_file(&StockOpenVpn, &credentials, address(FAR))?;
                // The file is the same for all other programs: nothing in it is insecure.
                let client = if start == STOCK_OPENVPN {
                    setup.client_file(&StockOpenVpn, &credentials, address(FAR))?
                } else {
                    let millrace: &dyn OpenVpn = &MillraceOpenVpn::new("millrace");
                    setup.client_file(millrace, &credentials, address(FAR))?
                };
                let script = format!("{start} --config /openvpn.conf >/tmp/out.log 2>&1 &\n");
                Ok((
                    Making::OpenVpn(server),
                    vec![
                        file("vpn", script),
                        file("openvpn.conf", client.to_string()),
                    ],
                ))
            }
        }
    }
}

impl Making {
    /// Starts the far end, which may write files to `directory`.
    pub(crate) fn start<'h>(self, far: &'h Host, directory: &Path) -> Result<FarEnd<'h>, LabError> {
        match self {
            Self::Pptp => Ok(FarEnd::Pptp {
                _running: pptp::serve(far, directory)?,
            }),
            Self::WireGuard(configuration) => {
                wireguard_end(far, &WireguardGoPackaged, &configuration, "")
            }
            Self::AmneziaWg(program, configuration) => {
                wireguard_end(far, &program, &configuration, program.settings())
            }
            Self::OpenVpn(configuration) => Ok(FarEnd::OpenVpn {
                _running: StockOpenVpn.start(far, &configuration)?,
            }),
        }
    }
}

/// Starts a WireGuard program at the far end. `settings` are lines of UAPI.
fn wireguard_end<'h>(
    far: &'h Host,
    program: &dyn WireGuardPeer,
    configuration: &WgInterface,
    settings: &'static str,
) -> Result<FarEnd<'h>, LabError> {
    let options = PeerOptions {
        settings,
        ..PeerOptions::default()
    };
    let running = program.start(far, "wg0", &options)?;
    running.configure(configuration)?;
    running.bring_up(&[([10, 93, 0, 1].into(), 24)], MTU.into())?;
    running.route([10, 91, 0, 0].into(), 24)?;
    Ok(FarEnd::WireGuard { _running: running })
}

fn interface(keys: Keys, listen_port: Option<u16>, peer: WgPeer) -> WgInterface {
    WgInterface {
        keys,
        listen_port,
        fwmark: None,
        peers: vec![peer],
    }
}

fn file(path: &str, content: String) -> File {
    File {
        path: path.to_owned(),
        content: content.into_bytes(),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address of this file's")
}
