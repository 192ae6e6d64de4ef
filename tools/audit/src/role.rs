//! The role of a file in a tunnel, and the share of a tunnel's time that it takes.

use crate::facts::{Facts, Kind};

/// The role of a file in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// OpenSSL's ciphers, also as a static library's objects, or one of its forks.
    Libcrypto,
    /// OpenSSL's TLS.
    Libssl,
    /// Mbed TLS: its cipher library, or the whole library.
    MbedTls,
    /// wolfSSL.
    WolfSsl,
    /// Another library of ciphers: nettle, libgcrypt, libsodium.
    CryptoLibrary,
    /// The `openvpn` program.
    OpenVpn,
    /// WireGuard: the kernel module or a program.
    WireGuard,
    /// This project's program.
    Millrace,
    /// A kernel module with ciphers in it.
    CryptoModule,
    /// Another kernel module.
    Module,
    /// A kernel.
    Kernel,
    /// A kernel's configuration.
    KernelConfig,
    /// The C library.
    Libc,
    /// A program or library that handles packets or sets tunnels up: `dnsmasq`, `pppd`, `ip`.
    Network,
    /// Anything else.
    Other,
}

impl Role {
    /// The role of the ELF file at `path`.
    #[must_use]
    pub fn of(path: &str, facts: &Facts) -> Self {
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = facts.soname.as_deref().unwrap_or(file);
        if facts.kind == Kind::Module {
            return Self::of_module(file, facts);
        }
        if file == "vmlinux" {
            return Self::Kernel;
        }
        NAMES
            .iter()
            .find(|(prefix, role)| {
                let fits = *role != Self::OpenVpn || facts.kind == Kind::Program;
                fits && name.starts_with(prefix)
            })
            .map_or_else(
                || match NETWORK
                    .iter()
                    .any(|known| *known == file || name.starts_with(known))
                {
                    true => Self::Network,
                    false => Self::by_notes(facts),
                },
                |(_, role)| *role,
            )
    }

    /// Derives the role from the file's contents: vendors rename programs and link them statically.
    fn by_notes(facts: &Facts) -> Self {
        let has = |prefix: &str| facts.notes.iter().any(|note| note.starts_with(prefix));
        if has("OpenVPN ") && facts.kind == Kind::Program {
            Self::OpenVpn
        } else if facts.kind == Kind::Object && facts.notes.iter().any(|n| n.contains("CRYPTOGAMS"))
        {
            Self::Libcrypto
        } else {
            Self::Other
        }
    }

    fn of_module(file: &str, facts: &Facts) -> Self {
        let named = facts
            .modinfo
            .iter()
            .find(|(key, _)| key == "name")
            .map(|(_, name)| name.as_str());
        let name = named
            .unwrap_or_else(|| file.split('.').next().unwrap_or(file))
            .replace('_', "-");
        if name == "wireguard" {
            return Self::WireGuard;
        }
        let crypto = facts.modinfo.iter().any(|(key, value)| {
            (key == "alias" && value.starts_with("crypto-"))
                || (key == "intree-path" && value.contains("crypto/"))
        });
        let parts = || name.split('-').map(|part| part.trim_start_matches("lib"));
        if crypto || parts().any(|part| CIPHERS.iter().any(|cipher| is_cipher(part, cipher))) {
            Self::CryptoModule
        } else {
            Self::Module
        }
    }

    /// The role's name in reports, and its heat.
    fn row(self) -> (&'static str, u32) {
        match self {
            Self::Libcrypto => ("libcrypto", 100),
            // TLS runs only in handshakes; libcrypto encrypts the packets.
            Self::Libssl => ("libssl", 40),
            Self::MbedTls => ("mbedtls", 95),
            Self::WolfSsl => ("wolfssl", 95),
            // No tunnel uses these libraries: OpenVPN links OpenSSL or Mbed TLS.
            Self::CryptoLibrary => ("crypto-library", 10),
            Self::OpenVpn => ("openvpn", 90),
            Self::WireGuard => ("wireguard", 90),
            Self::Millrace => ("millrace", 95),
            Self::CryptoModule => ("crypto-module", 80),
            Self::Module => ("module", 10),
            Self::Kernel => ("kernel", 80),
            Self::KernelConfig => ("kernel-config", 85),
            Self::Libc => ("libc", 30),
            Self::Network => ("network", 20),
            Self::Other => ("other", 5),
        }
    }

    /// Share of a tunnel's time that files of this role take, from 0 (none) to 100 (most of it).
    #[must_use]
    pub fn heat(self) -> u32 {
        self.row().1
    }

    /// Whether files of this role contain packet ciphers.
    #[must_use]
    pub fn has_ciphers(self) -> bool {
        matches!(
            self,
            Self::Libcrypto | Self::MbedTls | Self::WolfSsl | Self::CryptoLibrary | Self::Millrace
        )
    }

    /// The role's name in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.row().0
    }
}

/// Whether `part` names `cipher`: `sha256` and `chacha20poly1305` are ciphers, `destination` is not.
fn is_cipher(part: &str, cipher: &str) -> bool {
    part == cipher || (cipher.len() > 3 && part.starts_with(cipher))
}

/// Beginnings of file names, with the role of the file. Only programs are [`Role::OpenVpn`]: its plugins have such
/// names as well.
const NAMES: [(&str, Role); 27] = [
    ("libcrypto.", Role::Libcrypto),
    ("libcrypto-", Role::Libcrypto),
    ("libboringssl", Role::Libcrypto),
    ("libtongsuo", Role::Libcrypto),
    ("libssl.", Role::Libssl),
    ("libssl-", Role::Libssl),
    ("libmbed", Role::MbedTls),
    ("libpolarssl", Role::MbedTls),
    ("libwolfssl", Role::WolfSsl),
    ("libcyassl", Role::WolfSsl),
    ("libnettle", Role::CryptoLibrary),
    ("libhogweed", Role::CryptoLibrary),
    ("libgcrypt", Role::CryptoLibrary),
    ("libsodium", Role::CryptoLibrary),
    ("libgnutls", Role::CryptoLibrary),
    ("libtomcrypt", Role::CryptoLibrary),
    ("millrace", Role::Millrace),
    ("openvpn", Role::OpenVpn),
    ("wireguard", Role::WireGuard),
    ("boringtun", Role::WireGuard),
    ("gotatun", Role::WireGuard),
    ("libc.so", Role::Libc),
    ("libc-", Role::Libc),
    ("libuClibc", Role::Libc),
    ("ld-musl", Role::Libc),
    ("ld-uClibc", Role::Libc),
    ("ld-linux", Role::Libc),
];

/// Programs and libraries that handle packets or set tunnels up.
const NETWORK: [&str; 20] = [
    "dnsmasq",
    "pppd",
    "pptp",
    "pptpd",
    "xl2tpd",
    "charon",
    "libcharon",
    "libstrongswan",
    "hostapd",
    "wpad",
    "ip",
    "ip-full",
    "tc",
    "iptables",
    "xtables-multi",
    "nft",
    "libnftables",
    "libnl-",
    "libnetfilter",
    "stunnel",
];

/// Name parts of kernel modules that contain ciphers or digests.
const CIPHERS: [&str; 12] = [
    "aes",
    "chacha",
    "poly1305",
    "ghash",
    "sha1",
    "sha256",
    "sha512",
    "curve25519",
    "blake2s",
    "gcm",
    "cryptodev",
    "des",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::facts;

    #[test]
    fn what_a_tunnel_uses_comes_before_a_library_that_none_uses() {
        use crate::verdict::Verdict;
        let worst = Verdict::ALL.map(Verdict::weight).into_iter().max().unwrap();
        let least = Verdict::TooGeneric.weight();
        for used in [
            Role::Libcrypto,
            Role::MbedTls,
            Role::OpenVpn,
            Role::WireGuard,
        ] {
            assert!(
                worst * Role::CryptoLibrary.heat() < least * used.heat(),
                "{used:?}"
            );
        }
    }

    #[test]
    fn files_are_known_by_name_by_soname_and_by_what_is_inside() {
        let library = facts(Kind::Library);
        for (path, role) in [
            ("/usr/lib/libcrypto.so.1.1", Role::Libcrypto),
            ("/usr/lib/libssl.so.3", Role::Libssl),
            ("/usr/lib/libmbedcrypto.so.7", Role::MbedTls),
            ("/usr/lib/libwolfssl.so.35", Role::WolfSsl),
            ("/lib/ld-musl-armhf.so.1", Role::Libc),
            ("/usr/lib/libpng.so", Role::Other),
        ] {
            assert_eq!(Role::of(path, &library), role, "{path}");
        }
        let renamed = Facts {
            soname: Some("libcrypto.so.3".into()),
            ..library
        };
        assert_eq!(Role::of("/opt/lib/vendor.so", &renamed), Role::Libcrypto);
        let program = Facts {
            notes: vec!["OpenVPN 2.6.14 arm-openwrt-linux".into()],
            ..facts(Kind::Program)
        };
        assert_eq!(Role::of("/usr/sbin/vpnd", &program), Role::OpenVpn);
        assert_eq!(
            Role::of("/usr/sbin/openvpn", &facts(Kind::Program)),
            Role::OpenVpn
        );
        assert_eq!(
            Role::of("/usr/sbin/dnsmasq", &facts(Kind::Program)),
            Role::Network
        );
    }

    #[test]
    fn modules_are_known_by_what_they_say_of_themselves() {
        let module = |name: &str| Facts {
            modinfo: vec![("name".into(), name.into())],
            ..facts(Kind::Module)
        };
        assert_eq!(
            Role::of("/lib/modules/5.4/wireguard.ko", &module("wireguard")),
            Role::WireGuard
        );
        assert_eq!(
            Role::of("/lib/modules/5.4/x.ko", &module("chacha_neon")),
            Role::CryptoModule
        );
        assert_eq!(
            Role::of("/lib/modules/5.4/x.ko", &module("nhc_dest")),
            Role::Module
        );
        assert_eq!(
            Role::of("/lib/modules/5.4/x.ko", &module("usbcore")),
            Role::Module
        );
    }
}
