//! Tests on file trees as real boxes have them.

use std::fs;
use std::io::Write;

use super::*;

fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    root
}

fn words32(pairs: &[(u32, u32)]) -> Vec<u8> {
    pairs
        .iter()
        .flat_map(|(key, value)| [*key, *value])
        .flat_map(u32::to_le_bytes)
        .collect()
}

fn words64(pairs: &[(u64, u64)]) -> Vec<u8> {
    pairs
        .iter()
        .flat_map(|(key, value)| [*key, *value])
        .flat_map(u64::to_le_bytes)
        .collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

const KRAIT: &str = "\
processor\t: 0
model name\t: ARMv7 Processor rev 0 (v7l)
BogoMIPS\t: 6.00
Features\t: half thumb fastmult edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32
CPU implementer\t: 0x51
CPU architecture: 7
CPU variant\t: 0x2
CPU part\t: 0x04d
CPU revision\t: 0

processor\t: 1
model name\t: ARMv7 Processor rev 0 (v7l)
Features\t: half thumb fastmult edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32
CPU implementer\t: 0x51
CPU part\t: 0x04d

Hardware\t: Generic DT based system
Revision\t: 0000
";

#[test]
fn an_r7800_is_known_by_its_device_tree() {
    let auxv = words32(&[(16, 0xf_b096), (6, 4096), (26, 0), (3, 0x1_0034), (0, 0)]);
    let root = tree(&[
        ("proc/cpuinfo", KRAIT.as_bytes()),
        ("proc/self/auxv", &auxv),
        ("proc/device-tree/compatible", b"netgear,r7800\0qcom,ipq8065\0qcom,ipq8064\0"),
        ("proc/device-tree/model", b"Netgear Nighthawk X4S R7800\0"),
        ("proc/sys/kernel/osrelease", b"5.15.137\n"),
        ("proc/config.gz", &gzip("CONFIG_NEON=y\n# CONFIG_KERNEL_MODE_NEON is not set\nCONFIG_CRYPTO_USER_API=m\n")),
        (
            "proc/crypto",
            b"name         : cbc(aes)\ndriver       : cbc-aes-qce\nmodule       : qcrypto\npriority     : 300\n\
              async        : yes\ntype         : skcipher\n\nname         : cbc(aes)\ndriver       : cbc(aes-generic)\n\
              module       : kernel\npriority     : 100\nasync        : no\ntype         : skcipher\n\n",
        ),
        ("proc/modules", b"qcrypto 45056 0 - Live 0x00000000\nnf_tables 200000 1 x, Live 0x00000000\n"),
        ("dev/crypto", b""),
    ]);
    let live = Live::read(root.path()).unwrap();
    assert_eq!(live.processors, 2);
    assert_eq!(
        live.cpus,
        [Cpu {
            implementer: 0x51,
            part: 0x4d,
            name: Some("Krait")
        }]
    );
    assert!(live.has("neon") && live.has("idiva") && !live.has("aes"));
    assert!(live.capabilities.contains(&"vfpv4") && live.capabilities.contains(&"idivt"));
    assert!(!live.capabilities.contains(&"vfpv3d16"));
    assert_eq!(live.model.as_deref(), Some("Netgear Nighthawk X4S R7800"));
    assert_eq!(
        live.config.get("CONFIG_NEON").map(String::as_str),
        Some("y")
    );
    assert!(!live.config.contains_key("CONFIG_KERNEL_MODE_NEON"));
    assert_eq!(live.config_file.as_deref(), Some("/proc/config.gz"));
    assert_eq!(live.af_alg, Some(true));
    assert!(live.dev_crypto && live.modules.contains("qcrypto"));
    let drivers = live.drivers_of("cbc(aes)");
    assert_eq!(
        (drivers[0].driver.as_str(), drivers[0].asynchronous),
        ("cbc-aes-qce", true)
    );
    assert_eq!(drivers[1].priority, 100);
    let found = live.find(Table::builtin()).unwrap();
    assert_eq!((found.soc.id.as_str(), found.certain), ("ipq8065", true));
}

#[test]
fn a_krait_without_a_device_tree_is_known_as_one() {
    let root = tree(&[("proc/cpuinfo", KRAIT.as_bytes())]);
    let live = Live::read(root.path()).unwrap();
    assert_eq!(live.af_alg, None);
    let found = live.find(Table::builtin()).unwrap();
    assert!(
        found.soc.core.name.starts_with("Krait") && !found.certain,
        "{}",
        found.because
    );
}

const FILOGIC: &str = "\
processor\t: 0
BogoMIPS\t: 26.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd03
CPU revision\t: 4
";

#[test]
fn an_mt7986_is_known_by_its_device_tree() {
    let auxv = words64(&[
        (33, 0xffff_8000_0000),
        (16, 0x8ff),
        (6, 4096),
        (26, 0),
        (0, 0),
    ]);
    let root = tree(&[
        ("proc/cpuinfo", FILOGIC.repeat(4).as_bytes()),
        ("proc/self/auxv", &auxv),
        (
            "sys/firmware/devicetree/base/compatible",
            b"glinet,gl-mt6000\0mediatek,mt7986a\0",
        ),
        ("proc/sys/kernel/osrelease", b"6.6.73\n"),
        (
            "boot/config-6.6.73",
            b"CONFIG_ARM64=y\nCONFIG_CRYPTO_AES_ARM64_CE=m\n",
        ),
        (
            "proc/net/protocols",
            b"protocol  size sockets  memory press maxhdr\nTCP       2752      4       0\n",
        ),
        ("sys/module/aes_ce_blk/refcnt", b"0\n"),
    ]);
    let live = Live::read(root.path()).unwrap();
    assert_eq!(live.processors, 4);
    assert_eq!(live.cpus.len(), 1);
    assert_eq!(
        live.capabilities,
        [
            "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "cpuid"
        ]
    );
    assert_eq!(live.config_file.as_deref(), Some("/boot/config-6.6.73"));
    assert_eq!(live.af_alg, Some(false));
    assert!(live.modules.contains("aes_ce_blk") && !live.dev_crypto);
    let found = live.find(Table::builtin()).unwrap();
    assert_eq!((found.soc.id.as_str(), found.certain), ("mt7986", true));
}

#[test]
fn a_raspberry_pi_4_is_known_and_has_no_aes() {
    let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\n\
                   CPU part\t: 0xd08\n\nRevision\t: c03111\nModel\t: Raspberry Pi 4 Model B Rev 1.1\n";
    let with = tree(&[
        ("proc/cpuinfo", cpuinfo.as_bytes()),
        (
            "proc/device-tree/compatible",
            b"raspberrypi,4-model-b\0brcm,bcm2711\0",
        ),
    ]);
    let found = Live::read(with.path())
        .unwrap()
        .find(Table::builtin())
        .unwrap()
        .soc;
    assert!(found.id == "bcm2711" && !found.core.aes);
    // Without the device tree, the missing AES distinguishes this chip from others with its core.
    let without = tree(&[("proc/cpuinfo", cpuinfo.as_bytes())]);
    let live = Live::read(without.path()).unwrap();
    let found = live.find(Table::builtin()).unwrap();
    assert_eq!((found.soc.id.as_str(), found.certain), ("bcm2711", false));
}

#[test]
fn mips_names_its_chip_in_cpuinfo() {
    let cpuinfo = b"system type\t\t: MediaTek MT7621 ver:1 eco:3\nmachine\t\t\t: Ubiquiti EdgeRouter X\n\
                    processor\t\t: 0\ncpu model\t\t: MIPS 1004Kc V2.15\nASEs implemented\t: mips16 dsp mt\n";
    let root = tree(&[("proc/cpuinfo", cpuinfo)]);
    let live = Live::read(root.path()).unwrap();
    assert!(live.has("dsp") && live.cpus.is_empty());
    assert_eq!(live.cpu_model.as_deref(), Some("MIPS 1004Kc V2.15"));
    let found = live.find(Table::builtin()).unwrap();
    assert_eq!((found.soc.id.as_str(), found.certain), ("mt7621", true));
    let names = [
        ("UBNT_E300 (CN7030p1.2-1000-AAP)", "cn7130"),
        ("Qualcomm Atheros QCA9558 ver 1 rev 0", "qca9558"),
    ];
    for (system, id) in names {
        let root = tree(&[(
            "proc/cpuinfo",
            format!("system type\t: {system}\n").as_bytes(),
        )]);
        assert_eq!(
            Live::read(root.path())
                .unwrap()
                .find(Table::builtin())
                .unwrap()
                .soc
                .id,
            id
        );
    }
}

#[test]
fn the_machine_that_the_tests_run_on_can_be_read() {
    let live = Live::read(Path::new("/")).unwrap();
    assert!(live.processors > 0);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(live.find(Table::builtin()), None);
        assert!(live.has("sse2") && live.capabilities.is_empty());
    }
}

#[test]
fn a_tree_without_cpuinfo_is_an_error() {
    assert!(Live::read(tree(&[]).path()).is_err());
}

#[test]
fn an_auxiliary_vector_that_makes_no_sense_is_left_out() {
    assert_eq!(auxiliary(&[0xff; 64], 8, false), None);
    assert_eq!(auxiliary(&[], 8, false), None);
    let big: Vec<u8> = [6_u32, 4096, 16, 1, 0, 0]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    assert_eq!(auxiliary(&big, 4, true), Some(vec![(6, 4096), (16, 1)]));
    assert_eq!(auxiliary(&big, 4, false), None);
}
