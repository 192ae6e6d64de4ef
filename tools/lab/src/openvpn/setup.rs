//! Settings of an OpenVPN tunnel, and the configuration files of both ends.

use std::net::{IpAddr, Ipv6Addr};

use crypto::{Cipher, Digest};

use super::{ConfigFile, Identity, KeyKind, OpenVpn, Pki, StaticKey, V2Keys};
use crate::LabError;

/// The transport of the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// UDP: one datagram for each packet.
    Udp,
    /// TCP: one stream.
    Tcp,
}

/// How control packets are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrap {
    /// TLS only.
    Plain,
    /// `tls-auth`: with an HMAC by the digest of `auth`.
    TlsAuth,
    /// `tls-crypt`: encrypted with a key that all clients share.
    TlsCrypt,
    /// `tls-crypt-v2`: encrypted with a key per client.
    TlsCryptV2,
}

/// Rarely used digests, which some builds of the stock program lack.
pub const RARE_DIGESTS: [Digest; 7] = [
    Digest::Sha512_256,
    Digest::Sha3_256,
    Digest::Sha3_384,
    Digest::Sha3_512,
    Digest::Blake2s256,
    Digest::Blake2b512,
    Digest::Ripemd160,
];

/// Compression framings, without actual compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No framing byte.
    None,
    /// `comp-lzo no`: a byte in front of the packet.
    CompLzoNo,
    /// `compress`: a byte in front; the packet's first byte moves to the end.
    Compress,
    /// `compress stub-v2`: an escape byte, only before packets that begin with one.
    StubV2,
}

/// The certificates and keys of an authority's servers and clients.
#[derive(Debug)]
pub struct Credentials {
    /// The authority, server and client.
    pub pki: Pki,
    /// The key for `tls-auth` and `tls-crypt`.
    pub static_key: StaticKey,
    /// The keys for `tls-crypt-v2`; none without the stock program, which makes them.
    pub v2: Option<V2Keys>,
}

impl Credentials {
    /// Generates new credentials.
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

/// Settings of a tunnel between a server and its clients: everything on which both ends must agree.
///
/// Inside, the server is 10.`network`.0.1 and fd0f:`network`::1; clients get the next addresses of the server's pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// UDP or TCP.
    pub transport: Transport,
    /// The server's port.
    pub port: u16,
    /// Name of the interface at both ends.
    pub interface: String,
    /// Number of the inner network.
    pub network: u8,
    /// Protection of control packets.
    pub wrap: Wrap,
    /// Cipher of the data channel.
    pub cipher: Cipher,
    /// Digest of the data channel and of [`Wrap::TlsAuth`].
    pub auth: Digest,
    /// Compression framing.
    pub framing: Framing,
    /// Largest datagram in bytes; larger packets are fragmented (`fragment`).
    pub fragment: Option<u16>,
    /// Whether to limit TLS to version 1.2.
    pub tls12: bool,
    /// MTU of the tunnel, in bytes.
    pub tun_mtu: Option<u16>,
    /// `mssfix`, in bytes; 0 turns it off.
    pub mssfix: Option<u16>,
    /// Further lines of the server's file.
    pub server: ConfigFile,
    /// Further lines of the client's file.
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

    /// Whether a program of this release supports the whole set-up.
    pub fn is_of(&self, release: (u16, u16)) -> bool {
        self.as_of(release) == *self
    }

    /// The closest set-up that a program of this release supports.
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

    /// Writes the server's file for `program`.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the set-up needs keys that only the stock program can make.
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

    /// Writes the client's file for `program`, with the server at `remote`.
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
        // Retry soon: a lost first packet must not make a test slow.
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
