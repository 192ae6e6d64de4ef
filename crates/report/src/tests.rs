use crate::*;
use proptest::prelude::*;

fn report() -> Report {
    let version = Version::of("1.2.3");
    let report = Report {
        schema: SCHEMA,
        program: version,
        machine: Machine {
            architecture: Architecture::Arm,
            chip: Some(Chip::Ipq8065),
            processors: 2,
            cores: vec![Core {
                count: 2,
                vendor: Some(Vendor::Qualcomm),
                name: Some(CoreName::Krait),
                family: Some(7),
                model: Some(0x6f),
            }],
            features: vec![Feature::Neon],
            megahertz: None,
            megabytes: 512,
        },
        kernel: Kernel {
            version,
            modules: vec![Module::Tun],
        },
        openwrt: Some(OpenWrt {
            release: version,
            revision: Some(28739),
            netifd: version,
            firewall4: version,
            luci: None,
            offload: Offload::None,
        }),
        ciphers: vec![Measured {
            cipher: Cipher::Aes256Gcm,
            direction: Direction::Encrypt,
            side: Side::Cpu,
            packets: 32,
            bytes: 1408,
            nanoseconds: 1,
            processor_nanoseconds: 2,
        }],
        loopback: None,
        no_loopback: Some(NoLoopback::NoVeth),
        peer: Some(Peer {
            protocol: Protocol::OpenVpn,
            bytes: 1220,
            kilobits_per_second: 90_000,
            milliseconds: 5000,
            echoes: 46_000,
            lost: 3,
            microseconds: 7000,
        }),
        digest: Digest::default(),
    };
    report.sealed()
}

#[test]
fn words_are_found_by_their_text() {
    for &chip in Chip::ALL {
        assert_eq!(Chip::named(chip.name()), Some(chip));
    }
    assert_eq!(Chip::named("netgear"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// One other byte makes the text unreadable, breaks the digest, or is white space.
    #[test]
    fn the_digest_breaks_on_any_change(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let whole = report().text();
        let mut text = whole.clone().into_bytes();
        let at = at.index(text.len());
        prop_assume!(text[at] != byte);
        text[at] = byte;
        if let Ok(read) = serde_json::from_slice::<Report>(&text) {
            prop_assert!(!read.is_whole() || read == report(), "{}", String::from_utf8_lossy(&text));
        }
        prop_assert_eq!(serde_json::from_str::<Report>(&whole).unwrap(), report());
    }
}
