//! The fixed lists of words that may stand in a report.

use crate::part::Part;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($word:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $(
                #[doc = concat!("`", $text, "`.")]
                $word,
            )*
        }

        impl $name {
            /// All words.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// The word's text.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }

            /// The word of this text.
            #[must_use]
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.name() == text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::named(&text).ok_or_else(|| D::Error::custom("unknown word"))
            }
        }

        impl Part for $name {
            fn schema() -> Value {
                let words: Vec<&str> = Self::ALL.iter().map(|it| it.name()).collect();
                json!({ "enum": words })
            }
        }
    };
}

words! {
    /// An instruction set, as Rust calls it.
    Architecture {
        Arm = "arm",
        Aarch64 = "aarch64",
        Mips = "mips",
        Mips64 = "mips64",
        Riscv64 = "riscv64",
        X86 = "x86",
        X86_64 = "x86_64",
        Other = "other",
    }
}

words! {
    /// A chip: its name in a device tree's `compatible`, without the maker in front of the comma.
    Chip {
        Alpine = "alpine",
        An7581 = "an7581",
        Armada370 = "armada370",
        Armada3720 = "armada3720",
        Armada380 = "armada380",
        Armada385 = "armada385",
        Armada7040 = "armada7040",
        Armada8040 = "armada8040",
        ArmadaXp = "armadaxp",
        Bcm2711 = "bcm2711",
        Bcm2712 = "bcm2712",
        Bcm2837 = "bcm2837",
        Bcm4708 = "bcm4708",
        Bcm47081 = "bcm47081",
        Bcm4709 = "bcm4709",
        Bcm47094 = "bcm47094",
        Bcm47189 = "bcm47189",
        Bcm47622 = "bcm47622",
        Bcm4906 = "bcm4906",
        Bcm4908 = "bcm4908",
        Bcm4912 = "bcm4912",
        Bcm49408 = "bcm49408",
        Bcm53573 = "bcm53573",
        Bcm6750 = "bcm6750",
        Bcm6756 = "bcm6756",
        Cn7130 = "cn7130",
        Cn9130 = "cn9130",
        En7523 = "en7523",
        En7581 = "en7581",
        Ipq4018 = "ipq4018",
        Ipq4019 = "ipq4019",
        Ipq4028 = "ipq4028",
        Ipq4029 = "ipq4029",
        Ipq5018 = "ipq5018",
        Ipq5332 = "ipq5332",
        Ipq6000 = "ipq6000",
        Ipq6018 = "ipq6018",
        Ipq8062 = "ipq8062",
        Ipq8064 = "ipq8064",
        Ipq8065 = "ipq8065",
        Ipq8068 = "ipq8068",
        Ipq8074 = "ipq8074",
        Ipq9574 = "ipq9574",
        Jh7110 = "jh7110",
        Kirkwood = "kirkwood",
        Kirkwood6281 = "kirkwood-88f6281",
        Kirkwood6282 = "kirkwood-88f6282",
        Mt7620aSoc = "mt7620a-soc",
        Mt7620nSoc = "mt7620n-soc",
        Mt7621Soc = "mt7621-soc",
        Mt7622 = "mt7622",
        Mt7623 = "mt7623",
        Mt7628aSoc = "mt7628a-soc",
        Mt7628anSoc = "mt7628an-soc",
        Mt7629 = "mt7629",
        Mt7981 = "mt7981",
        Mt7981b = "mt7981b",
        Mt7986a = "mt7986a",
        Mt7986b = "mt7986b",
        Mt7988a = "mt7988a",
        Mtk7620aSoc = "mtk7620a-soc",
        P1010 = "P1010",
        P2020 = "P2020",
        Qca9530 = "qca9530",
        Qca9531 = "qca9531",
        Qca9533 = "qca9533",
        Qca9550 = "qca9550",
        Qca9557 = "qca9557",
        Qca9558 = "qca9558",
        Qca9560 = "qca9560",
        Qca9563 = "qca9563",
        Rk3328 = "rk3328",
        Rk3399 = "rk3399",
        Rk3566 = "rk3566",
        Rk3568 = "rk3568",
        Rk3588 = "rk3588",
        Rk3588s = "rk3588s",
        Sun50iH5 = "sun50i-h5",
        Sun50iH616 = "sun50i-h616",
        Vr9 = "vr9",
        Xrx200 = "xrx200",
    }
}

words! {
    /// A designer of processor cores.
    Vendor {
        Amd = "amd",
        Ampere = "ampere",
        Arm = "arm",
        Broadcom = "broadcom",
        Cavium = "cavium",
        Hisilicon = "hisilicon",
        Intel = "intel",
        Marvell = "marvell",
        Mips = "mips",
        Qualcomm = "qualcomm",
    }
}

words! {
    /// A processor core.
    CoreName {
        BrahmaB53 = "brahma-b53",
        CortexA7 = "cortex-a7",
        CortexA8 = "cortex-a8",
        CortexA9 = "cortex-a9",
        CortexA15 = "cortex-a15",
        CortexA17 = "cortex-a17",
        CortexA35 = "cortex-a35",
        CortexA53 = "cortex-a53",
        CortexA55 = "cortex-a55",
        CortexA57 = "cortex-a57",
        CortexA72 = "cortex-a72",
        CortexA73 = "cortex-a73",
        CortexA76 = "cortex-a76",
        E500v2 = "e500v2",
        Feroceon = "feroceon",
        InterAptiv = "interaptiv",
        Krait = "krait",
        Mips1004Kc = "1004kc",
        Mips24Kc = "24kc",
        Mips24KEc = "24kec",
        Mips34Kc = "34kc",
        Mips74Kc = "74kc",
        Octeon = "octeon",
        Pj4b = "pj4b",
    }
}

words! {
    /// A feature of processors, as `/proc/cpuinfo` calls it.
    Feature {
        Aes = "aes",
        Asimd = "asimd",
        Atomics = "atomics",
        Avx = "avx",
        Avx2 = "avx2",
        Avx512f = "avx512f",
        Avx512Ifma = "avx512ifma",
        Bmi2 = "bmi2",
        Crc32 = "crc32",
        Dsp = "dsp",
        Dsp2 = "dsp2",
        Edsp = "edsp",
        IdivA = "idiva",
        Mips16 = "mips16",
        Mt = "mt",
        Neon = "neon",
        Pclmulqdq = "pclmulqdq",
        Pmull = "pmull",
        Sha1 = "sha1",
        Sha2 = "sha2",
        Sha512 = "sha512",
        ShaNi = "sha_ni",
        Ssse3 = "ssse3",
        Vaes = "vaes",
        Vfpv3 = "vfpv3",
        Vfpv4 = "vfpv4",
        Vpclmulqdq = "vpclmulqdq",
    }
}

words! {
    /// A module of the kernel.
    Module {
        ActMirred = "act_mirred",
        AlgifAead = "algif_aead",
        AlgifSkcipher = "algif_skcipher",
        Caam = "caam",
        CryptoSafexcel = "crypto_safexcel",
        Cryptodev = "cryptodev",
        Ifb = "ifb",
        IpGre = "ip_gre",
        MarvellCesa = "marvell_cesa",
        NfConntrack = "nf_conntrack",
        NfConntrackPptp = "nf_conntrack_pptp",
        NfFlowTable = "nf_flow_table",
        NfTables = "nf_tables",
        NftFlowOffload = "nft_flow_offload",
        Ovpn = "ovpn",
        PppGeneric = "ppp_generic",
        Pppoe = "pppoe",
        QcaNssDrv = "qca_nss_drv",
        QcaNssEcm = "ecm",
        Qcrypto = "qcrypto",
        SchCake = "sch_cake",
        SchFqCodel = "sch_fq_codel",
        Sun8iCe = "sun8i_ce",
        Tun = "tun",
        Veth = "veth",
        Wireguard = "wireguard",
    }
}

words! {
    /// Flow offloading.
    Offload {
        None = "none",
        Software = "software",
        Hardware = "hardware",
    }
}

words! {
    /// A cipher with a key of 256 bits.
    Cipher {
        Aes256Cbc = "aes-256-cbc",
        Aes256Gcm = "aes-256-gcm",
        ChaCha20Poly1305 = "chacha20-poly1305",
    }
}

words! {
    /// The direction of a cipher.
    Direction {
        Encrypt = "encrypt",
        Decrypt = "decrypt",
    }
}

words! {
    /// The hardware that computes a cipher.
    Side {
        Cpu = "cpu",
        Accelerator = "accelerator",
    }
}

words! {
    /// A tunnel's protocol.
    Protocol {
        OpenVpn = "openvpn",
        Pptp = "pptp",
        WireGuard = "wireguard",
    }
}

words! {
    /// The reason that no throughput was measured.
    NoLoopback {
        NotRoot = "not-root",
        NoNamespaces = "no-namespaces",
        NoVeth = "no-veth",
        NoTunnel = "no-tunnel",
        NoTraffic = "no-traffic",
    }
}
