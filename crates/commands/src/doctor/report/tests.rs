use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use report::{Cipher, CoreName, Direction, Protocol, Side};

/// A router with OpenWrt.
fn router() -> Texts {
    Texts {
        cpuinfo: "processor\t: 0\nmodel name\t: ARMv7 Processor rev 0 (v7l)\nFeatures\t: half neon vfpv4\n\
            CPU implementer\t: 0x51\nCPU architecture: 7\nCPU part\t: 0x06f\n\n\
            Hardware\t: Generic DT based system\nSerial\t\t: 0000000000000000\n"
            .to_owned(),
        compatible: "netgear,r7800\0qcom,ipq8065\0qcom,ipq8064\0".to_owned(),
        rate: "1725000\n".to_owned(),
        kernel: "6.6.93\n".to_owned(),
        modules: "wireguard 98304 0 - Live 0x00000000\ntun 57344 2\nsecret_module 1 0\n".to_owned(),
        openwrt: "DISTRIB_ID='OpenWrt'\nDISTRIB_RELEASE='24.10.2'\nDISTRIB_REVISION='r28739-d9340319c6'\n\
            DISTRIB_TAINTS='no-all busybox'\n"
            .to_owned(),
        packages: "Package: firewall4\nVersion: 2024.12.18~18fc0ead-r1\nArchitecture: all\n\n\
            P:netifd\nV:2024.12.17~ea01ed41-r1\nA:arm_cortex-a15\n\nP:luci-base-theme\nV:1.1\n"
            .to_owned(),
        firewall: "config defaults\n\toption flow_offloading '1'\n\toption flow_offloading_hw '1'\n".to_owned(),
    }
}

fn measured() -> Figures {
    let measured = Measured {
        cipher: Cipher::Aes256Gcm,
        direction: Direction::Encrypt,
        side: Side::Cpu,
        packets: 32,
        bytes: 1408,
        nanoseconds: 123_456,
        processor_nanoseconds: 120_000,
    };
    let loopback = Loopback {
        protocol: Protocol::WireGuard,
        kilobits_per_second: 512_000,
        milliseconds: 3001,
        processor_milliseconds: Some(2900),
    };
    let peer = Peer {
        protocol: Protocol::OpenVpn,
        bytes: 1220,
        kilobits_per_second: 90_000,
        milliseconds: 5000,
        echoes: 46_000,
        lost: 3,
        microseconds: 7000,
    };
    Figures {
        ciphers: vec![measured],
        loopback: Ok(loopback),
        peer: Some(peer),
    }
}

#[test]
fn a_router_is_described() {
    let report = router().report(measured());
    assert!(report.is_whole());
    let Machine {
        chip,
        cores,
        megahertz,
        ..
    } = &report.machine;
    assert_eq!((*chip, *megahertz), (Some(Chip::Ipq8065), Some(1725)));
    assert_eq!(cores[0].name, Some(CoreName::Krait));
    assert_eq!(report.kernel.modules, [Module::Tun, Module::Wireguard]);
    let openwrt = report.openwrt.unwrap();
    let texts =
        [openwrt.release, openwrt.netifd, openwrt.firewall4].map(|it| it.unwrap().to_string());
    assert_eq!(texts, ["24.10.2", "2024.12.17", "2024.12.18"]);
    assert_eq!((openwrt.luci, openwrt.revision), (None, Some(28739)));
    assert_eq!(openwrt.offload, Offload::Hardware);
}

#[test]
fn a_system_without_files_has_a_report() {
    let report = Texts::default().report(Figures {
        ciphers: Vec::new(),
        loopback: Err(NoLoopback::NotRoot),
        peer: None,
    });
    assert!(report.is_whole() && report.openwrt.is_none() && report.loopback.is_none());
    assert_eq!(report.no_loopback, Some(NoLoopback::NotRoot));
}

#[test]
fn every_chip_of_the_audits_table_is_known() {
    let table = include_str!("../../../../../tools/audit/src/soc/socs.toml");
    let lists = table
        .lines()
        .filter_map(|it| it.strip_prefix("compatible = "));
    // Every second piece between quotation marks is a name.
    let names: Vec<&str> = lists
        .flat_map(|it| it.split('"').skip(1).step_by(2))
        .collect();
    let names = names.iter().filter_map(|it| it.split_once(','));
    let unknown: Vec<_> = names.filter(|it| Chip::named(it.1).is_none()).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_report_is_documented() {
    let full = router().report(measured());
    let empty = Report {
        program: None,
        openwrt: None,
        kernel: Kernel {
            version: None,
            ..full.kernel.clone()
        },
        machine: Machine {
            chip: None,
            megahertz: None,
            cores: Texts {
                cpuinfo: "cpu : e500v2".to_owned(),
                ..router()
            }
            .machine()
            .cores,
            ..full.machine.clone()
        },
        loopback: None,
        no_loopback: Some(NoLoopback::NoVeth),
        peer: None,
        ..full.clone()
    };
    let none = Report {
        openwrt: Some(OpenWrt {
            release: None,
            revision: None,
            netifd: None,
            firewall4: None,
            ..full.openwrt.clone().unwrap()
        }),
        machine: Machine {
            cores: Texts {
                cpuinfo: "model : 1".to_owned(),
                ..router()
            }
            .machine()
            .cores,
            ..full.machine.clone()
        },
        loopback: full.loopback.clone().map(|it| Loopback {
            processor_milliseconds: None,
            ..it
        }),
        ..full.clone()
    };
    let with_luci = Texts {
        packages: "P:luci-base\nV:25.1.2\n".to_owned(),
        ..router()
    }
    .report(measured());
    let samples = [full, empty, none, with_luci].map(|it| serde_json::to_value(it).unwrap());
    crate::tests::assert_documented("doctor --report", &samples);
}

/// Values that tell who the owner is.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|[a, b, c, d]| format!("{a}.{b}.{c}.{d}")),
        any::<u128>().prop_map(|it| std::net::Ipv6Addr::from(it).to_string()),
        any::<[u8; 6]>().prop_map(|it| it.map(|byte| format!("{byte:02x}")).join(":")),
        "[A-Za-z0-9+/]{42}[AEIM]=",
        "[a-z]{4,12}-[a-z]{4,12}\\.(example|lan|dyndns\\.example)",
        "/(home|etc/millrace|root)/[a-z]{3,8}/[a-z]{3,8}\\.(conf|key)",
        "[0-9]{12,16}",
        "[A-Z][a-z]{5,9}'s [A-Z][a-z]{5,9}",
    ]
}

/// Puts a secret into a text.
fn planted(text: &str, secret: &str, at: Index, how: u8) -> String {
    let places: Vec<usize> = text
        .char_indices()
        .map(|it| it.0)
        .chain([text.len()])
        .collect();
    let at = places[at.index(places.len())];
    let (before, after) = text.split_at(at);
    // The rest of the line, or of the word.
    let line = after.find(['\n', '\0']).unwrap_or(after.len());
    let word = after
        .find(|it: char| it.is_whitespace() || "'-~\0".contains(it))
        .unwrap_or(after.len());
    match how % 5 {
        0 => format!("{before}{secret}{after}"),
        1 => format!("{before}{secret}{}", &after[line..]),
        2 => format!("{before}{secret}{}", &after[word..]),
        3 => format!("{before}\n{secret}\n{after}"),
        _ => {
            let value = before
                .rfind([':', '=', ',', ' ', '\t', '\''])
                .map_or(0, |it| it + 1);
            format!("{}{secret}{}", &before[..value], &after[word..])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_that_tells_the_owner_is_in_a_report(
        plants in prop::collection::vec((secret(), any::<[Index; 8]>(), any::<[u8; 8]>()), 1..4)
    ) {
        let mut texts = router();
        for (secret, places, how) in &plants {
            let Texts { cpuinfo, compatible, rate, kernel, modules, openwrt, packages, firewall } = &mut texts;
            let all = [cpuinfo, compatible, rate, kernel, modules, openwrt, packages, firewall];
            for ((text, at), how) in all.into_iter().zip(places).zip(how) {
                *text = planted(text, secret, *at, *how);
            }
        }
        let text = texts.report(measured()).text();
        for (secret, ..) in &plants {
            prop_assert!(!text.contains(secret.as_str()), "{secret}: {text}");
        }
        // Its types hold no other text.
        let read: Report = serde_json::from_str(&text).unwrap();
        prop_assert!(read.is_whole());
    }
}
