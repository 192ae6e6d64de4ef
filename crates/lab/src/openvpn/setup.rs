//! How a tunnel shall be, and the file of either end.

use std::net::{IpAddr, Ipv6Addr};

use crypto::{Cipher, Digest};

use super::{ConfigFile, Identity, KeyKind, OpenVpn, Pki, StaticKey, V2Keys};
use crate::LabError;

/// The transport of the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram a packet.
    Udp,
    /// One stream.
    Tcp,
}

/// How control packets are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrap {
    /// Only by TLS.
    Plain,
    /// With an HMAC by the digest of `auth`.
    TlsAuth,
    /// Encrypted with a key that is public.
    TlsCrypt,
    /// Encrypted with a key of each client's.
    TlsCryptV2,
}

/// Digests that few programs are asked for, and not every build of the stock program has.
pub const RARE_DIGESTS: [Digest; 7] = [
    Digest::Sha512_256,
    Digest::Sha3_256,
    Digest::Sha3_384,
    Digest::Sha3_512,
    Digest::Blake2s256,
    Digest::Blake2b512,
    Digest::Ripemd160,
];

/// Framings for compression that compresses nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No byte of it.
    None,
    /// `comp-lzo no`: a byte in front.
    CompLzoNo,
    /// `compress`: the first byte goes to the end.
    Compress,
    /// `compress stub-v2`: an escape where the packet begins with one.
    StubV2,
}

/// The certificates and keys of an authority's servers and clients.
#[derive(Debug)]
pub struct Credentials {
    /// Authority, server and client.
    pub pki: Pki,
    /// For `tls-auth` and `tls-crypt`.
    pub static_key: StaticKey,
    /// For `tls-crypt-v2`; none without the stock program to make them.
    pub v2: Option<V2Keys>,
}

impl Credentials {
    /// New ones.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `openssl`, [`LabError::Failed`].
    pub fn new(kind: KeyKind) -> Result<Self, LabError> {
        let v2 = match V2Keys::generate() {
            Err(LabError::Missing { .. }) => None,
            other => Some(other?),
        };
        Ok(Self {
            pki: Pki::new(kind)?,
            static_key: StaticKey::generate()?,
            v2,
        })
    }
}

/// How a tunnel between a server and its clients shall be: what both ends must agree on.
///
/// Inside, the server is 10.`network`.0.1 and fd0f:`network`::1; clients follow, as the server's pool hands
/// them out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// UDP or TCP.
    pub transport: Transport,
    /// The server's port.
    pub port: u16,
    /// Name of the interface, at both ends.
    pub interface: String,
    /// Number of the inner network.
    pub network: u8,
    /// Protection of control packets.
    pub wrap: Wrap,
    /// Cipher of the data channel.
    pub cipher: Cipher,
    /// Digest of the data channel and of [`Wrap::TlsAuth`].
    pub auth: Digest,
    /// Framing.
    pub framing: Framing,
    /// Largest datagram, in bytes, beyond which packets are cut (`fragment`).
    pub fragment: Option<u16>,
    /// TLS 1.2 at most.
    pub tls12: bool,
    /// MTU of the tunnel, in bytes.
    pub tun_mtu: Option<u16>,
    /// `mssfix`, in bytes; 0 is off.
    pub mssfix: Option<u16>,
    /// Further lines of the server.
    pub server: ConfigFile,
    /// Further lines of the client.
    pub client: ConfigFile,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            transport: Transport::Udp,
            port: 1194,
            interface: "ovpn0".to_owned(),
            network: 8,
            wrap: Wrap::Plain,
            cipher: Cipher::Aes256Gcm,
            auth: Digest::Sha1,
            framing: Framing::None,
            fragment: None,
            tls12: false,
            tun_mtu: None,
            mssfix: None,
            server: ConfigFile::new(),
            client: ConfigFile::new(),
        }
    }
}

impl Setup {
    /// The inner IPv4 address with this number; the server's is 1, the first client's 2.
    pub fn inner4(&self, number: u8) -> IpAddr {
        [10, self.network, 0, number].into()
    }

    /// The inner IPv6 address of the server; the first client's comes from
    /// [`RunningOpenVpn::inner6`](super::RunningOpenVpn::inner6).
    pub fn server6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd0f, self.network.into(), 0, 0, 0, 0, 0, 1).into()
    }

    /// Whether a program of this release has everything in it.
    pub fn is_of(&self, release: (u16, u16)) -> bool {
        self.as_of(release) == *self
    }

    /// The set-up as near as a program of this release comes to it.
    #[must_use]
    pub fn as_of(&self, release: (u16, u16)) -> Self {
        let mut setup = self.clone();
        if release < (2, 5) && setup.wrap == Wrap::TlsCryptV2 {
            setup.wrap = Wrap::TlsCrypt;
        }
        if release < (2, 5) && setup.cipher == Cipher::ChaCha20Poly1305 {
            setup.cipher = Cipher::Aes256Gcm;
        }
        setup
    }

    /// The server's file for `program`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if it takes keys that only the stock program can make.
    pub fn server_file(
        &self,
        program: &dyn OpenVpn,
        credentials: &Credentials,
        outer: IpAddr,
    ) -> Result<ConfigFile, LabError> {
        let mut file = ConfigFile::new();
        file.words("proto", [self.proto(outer, true)]);
        file.words("local", [outer]);
        file.words("port", [self.port]);
        file.line(&format!("server 10.{}.0.0 255.255.255.0", self.network));
        file.line(&format!("server-ipv6 fd0f:{:x}::/64", self.network));
        file.line("topology subnet").line("dh none");
        file.line("keepalive 10 60");
        self.common(&mut file, program);
        identity(&mut file, credentials, credentials.pki.server());
        self.wrap(&mut file, credentials, true)?;
        file.append(&self.server);
        Ok(file)
    }

    /// The client's file for `program`, for a server at `remote`.
    ///
    /// # Errors
    /// The errors of [`Setup::server_file`].
    pub fn client_file(
        &self,
        program: &dyn OpenVpn,
        credentials: &Credentials,
        remote: IpAddr,
    ) -> Result<ConfigFile, LabError> {
        let mut file = ConfigFile::new();
        file.line("client").line("nobind");
        file.words("proto", [self.proto(remote, false)]);
        file.words("remote", [remote.to_string(), self.port.to_string()]);
        // A lost first packet must not make a test slow.
        file.line("connect-retry 1 2");
        file.line("remote-cert-tls server");
        if self.transport == Transport::Udp {
            file.line("explicit-exit-notify 1");
        }
        self.common(&mut file, program);
        identity(&mut file, credentials, credentials.pki.client());
        self.wrap(&mut file, credentials, false)?;
        file.append(&self.client);
        Ok(file)
    }

    fn proto(&self, outer: IpAddr, server: bool) -> &'static str {
        match (self.transport, outer.is_ipv6(), server) {
            (Transport::Udp, false, _) => "udp4",
            (Transport::Udp, true, _) => "udp6",
            (Transport::Tcp, false, true) => "tcp4-server",
            (Transport::Tcp, true, true) => "tcp6-server",
            (Transport::Tcp, false, false) => "tcp4-client",
            (Transport::Tcp, true, false) => "tcp6-client",
        }
    }

    /// Writes the options that both ends must agree on.
    fn common(&self, file: &mut ConfigFile, program: &dyn OpenVpn) {
        file.words("dev", [&self.interface]).line("dev-type tun");
        file.line("persist-key").line("verb 3");
        file.words("cipher", [self.cipher.name()]);
        match (program.release() < (2, 5), self.cipher) {
            (true, Cipher::None) => drop(file.line("ncp-disable")),
            (true, cipher) => drop(file.words("ncp-ciphers", [cipher.name()])),
            (false, cipher) => drop(file.words("data-ciphers", [cipher.name()])),
        }
        file.words("auth", [self.auth.name()]);
        let unauthenticated = self.auth == Digest::None && !self.cipher.is_aead();
        if (self.cipher.is_insecure() || unauthenticated)
            && let Some(line) = program.insecure()
        {
            file.line(line);
        }
        match self.framing {
            Framing::None => {}
            Framing::CompLzoNo => drop(file.line("comp-lzo no")),
            Framing::Compress => drop(file.line("compress")),
            Framing::StubV2 => drop(file.line("compress stub-v2")),
        }
        if let Some(size) = self.fragment {
            file.words("fragment", [size]);
        }
        if let Some(mtu) = self.tun_mtu {
            file.words("tun-mtu", [mtu]);
        }
        if let Some(size) = self.mssfix {
            file.words("mssfix", [size]);
        }
        if self.tls12 {
            file.line("tls-version-max 1.2");
        }
    }

    fn wrap(
        &self,
        file: &mut ConfigFile,
        credentials: &Credentials,
        server: bool,
    ) -> Result<(), LabError> {
        match self.wrap {
            Wrap::Plain => {}
            Wrap::TlsAuth => {
                file.block("tls-auth", credentials.static_key.text());
                file.words("key-direction", [u8::from(!server)]);
            }
            Wrap::TlsCrypt => {
                file.block("tls-crypt", credentials.static_key.text());
            }
            Wrap::TlsCryptV2 => {
                let keys = credentials.v2.as_ref().ok_or_else(|| LabError::Missing {
                    tool: "openvpn".to_owned(),
                    hint: "install the package openvpn, which makes keys for tls-crypt-v2"
                        .to_owned(),
                })?;
                let key = if server { &keys.server } else { &keys.client };
                file.block("tls-crypt-v2", key);
            }
        }
        Ok(())
    }
}

fn identity(file: &mut ConfigFile, credentials: &Credentials, identity: &Identity) {
    file.block("ca", credentials.pki.ca());
    file.block("cert", &identity.certificate);
    file.block("key", &identity.key);
}
