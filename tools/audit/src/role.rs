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
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        if facts.kind == Kind::Module {
            return Self::of_module(file, facts);
        }
        if file == "vmlinux" {
            return Self::Kernel;
        }
        match () {
            () if starts(&["libcrypto.", "libcrypto-", "libboringssl", "libtongsuo"]) => {
                Self::Libcrypto
            }
            () if starts(&["libssl.", "libssl-"]) => Self::Libssl,
            () if starts(&["libmbed", "libpolarssl"]) => Self::MbedTls,
            () if starts(&["libwolfssl", "libcyassl"]) => Self::WolfSsl,
            () if starts(&[
                "libnettle",
                "libhogweed",
                "libgcrypt",
                "libsodium",
                "libgnutls",
                "libtomcrypt",
            ]) =>
            {
                Self::CryptoLibrary
            }
            () if starts(&["millrace"]) => Self::Millrace,
            () if starts(&["openvpn"]) && facts.kind == Kind::Program => Self::OpenVpn,
            () if starts(&["wireguard", "boringtun", "gotatun"]) => Self::WireGuard,
            () if starts(&[
                "libc.so",
                "libc-",
                "libuClibc",
                "ld-musl",
                "ld-uClibc",
                "ld-linux",
            ]) =>
            {
                Self::Libc
            }
            () if NETWORK
                .iter()
                .any(|known| *known == file || name.starts_with(known)) =>
            {
                Self::Network
            }
            () => Self::by_notes(facts),
        }
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

    /// Share of a tunnel's time that files of this role take, from 0 (none) to 100 (most of it).
    #[must_use]
    pub fn heat(self) -> u32 {
        match self {
            Self::Libcrypto => 100,
            Self::MbedTls | Self::WolfSsl | Self::Millrace => 95,
            Self::OpenVpn | Self::WireGuard => 90,
            Self::KernelConfig => 85,
            Self::Kernel | Self::CryptoModule => 80,
            // TLS runs only in handshakes; libcrypto encrypts the packets.
            Self::Libssl => 40,
            Self::Libc => 30,
            // No tunnel uses these libraries: OpenVPN links OpenSSL or Mbed TLS.
            Self::CryptoLibrary => 10,
            Self::Network => 20,
            Self::Module => 10,
            Self::Other => 5,
        }
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
        match self {
            Self::Libcrypto => "libcrypto",
            Self::Libssl => "libssl",
            Self::MbedTls => "mbedtls",
            Self::WolfSsl => "wolfssl",
            Self::CryptoLibrary => "crypto-library",
            Self::OpenVpn => "openvpn",
            Self::WireGuard => "wireguard",
            Self::Millrace => "millrace",
            Self::CryptoModule => "crypto-module",
            Self::Module => "module",
            Self::Kernel => "kernel",
            Self::KernelConfig => "kernel-config",
            Self::Libc => "libc",
            Self::Network => "network",
            Self::Other => "other",
        }
    }
}

/// Whether `part` names `cipher`: `sha256` and `chacha20poly1305` are ciphers, `destination` is not.
fn is_cipher(part: &str, cipher: &str) -> bool {
    part == cipher || (cipher.len() > 3 && part.starts_with(cipher))
}

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
