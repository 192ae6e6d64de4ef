//! The processor, from `/proc/cpuinfo`.

use report::{Core, CoreName, Feature, Vendor};

/// Kinds of cores, each with its number.
pub(super) fn cores(cpuinfo: &str) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    // A paragraph describes one processor, or the machine.
    for paragraph in cpuinfo.split("\n\n") {
        let core = core(paragraph);
        let is_same = |it: &Core| {
            Core {
                count: 1,
                ..it.clone()
            } == core
        };
        if core == NONE {
            continue;
        }
        match cores.iter_mut().find(|it| is_same(it)) {
            Some(known) => known.count = known.count.saturating_add(1),
            None => cores.push(core),
        }
    }
    cores
}

const NONE: Core = Core {
    count: 1,
    vendor: None,
    name: None,
    family: None,
    model: None,
};

fn core(paragraph: &str) -> Core {
    let mut core = NONE;
    for (key, value) in pairs(paragraph) {
        match key {
            "vendor_id" => core.vendor = vendor_of_x86(value),
            "cpu family" | "CPU architecture" => core.family = value.parse().ok(),
            "model" => core.model = value.parse().ok(),
            "CPU implementer" => core.vendor = hexadecimal(value).and_then(vendor_of_arm),
            "CPU part" => core.model = hexadecimal(value),
            // MIPS and PowerPC: "MIPS 1004Kc V2.15", "e500v2".
            "cpu model" | "cpu" => {
                let words = value.split_whitespace().map(str::to_ascii_lowercase);
                core.name = words.filter_map(|it| CoreName::named(&it)).next();
                core.vendor = value.starts_with("MIPS ").then_some(Vendor::Mips);
            }
            _ => {}
        }
    }
    core.name = core.name.or_else(|| name_of_arm(core.vendor?, core.model?));
    core
}

/// Features of all processors.
pub(super) fn features(cpuinfo: &str) -> Vec<Feature> {
    let lists = pairs(cpuinfo).filter(|(key, _)| {
        // x86, ARM and MIPS.
        matches!(*key, "flags" | "Features" | "ASEs implemented")
    });
    let words = lists.flat_map(|(_, value)| value.split_whitespace());
    let mut features: Vec<Feature> = words.filter_map(Feature::named).collect();
    features.sort_unstable();
    features.dedup();
    features
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.lines().filter_map(|it| it.split_once(':'));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
}

fn hexadecimal(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn vendor_of_x86(id: &str) -> Option<Vendor> {
    match id {
        "GenuineIntel" => Some(Vendor::Intel),
        "AuthenticAMD" => Some(Vendor::Amd),
        _ => None,
    }
}

// arch/arm64/include/asm/cputype.h and arch/arm/include/asm/cputype.h of Linux.
fn vendor_of_arm(implementer: u16) -> Option<Vendor> {
    let vendor = match implementer {
        0x41 => Vendor::Arm,
        0x42 => Vendor::Broadcom,
        0x43 => Vendor::Cavium,
        0x48 => Vendor::Hisilicon,
        0x51 => Vendor::Qualcomm,
        0x56 => Vendor::Marvell,
        0xc0 => Vendor::Ampere,
        _ => return None,
    };
    Some(vendor)
}

fn name_of_arm(vendor: Vendor, part: u16) -> Option<CoreName> {
    let name = match (vendor, part) {
        (Vendor::Arm, 0xc07) => CoreName::CortexA7,
        (Vendor::Arm, 0xc08) => CoreName::CortexA8,
        (Vendor::Arm, 0xc09) => CoreName::CortexA9,
        (Vendor::Arm, 0xc0e) => CoreName::CortexA17,
        (Vendor::Arm, 0xc0f) => CoreName::CortexA15,
        (Vendor::Arm, 0xd03) | (Vendor::Qualcomm, 0x801) => CoreName::CortexA53,
        (Vendor::Arm, 0xd04) => CoreName::CortexA35,
        (Vendor::Arm, 0xd05) => CoreName::CortexA55,
        (Vendor::Arm, 0xd07) => CoreName::CortexA57,
        (Vendor::Arm, 0xd08) => CoreName::CortexA72,
        (Vendor::Arm, 0xd09) => CoreName::CortexA73,
        (Vendor::Arm, 0xd0b) => CoreName::CortexA76,
        (Vendor::Broadcom, 0x100) => CoreName::BrahmaB53,
        (Vendor::Qualcomm, 0x04d | 0x06f) => CoreName::Krait,
        (Vendor::Marvell, 0x131) => CoreName::Feroceon,
        (Vendor::Marvell, 0x581 | 0x584) => CoreName::Pj4b,
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_routers_are_recognized() {
        let arm = "processor\t: 0\nmodel name\t: ARMv7 Processor rev 0 (v7l)\nFeatures\t: half neon vfpv4 \n\
            CPU implementer\t: 0x51\nCPU architecture: 7\nCPU part\t: 0x06f\n\n";
        let last = "Hardware\t: Qualcomm (Flattened Device Tree)\nSerial\t\t: 00000000deadbeef\n";
        let text = [arm, arm, last].concat();
        let krait = Core {
            count: 2,
            vendor: Some(Vendor::Qualcomm),
            name: Some(CoreName::Krait),
            family: Some(7),
            model: Some(0x6f),
        };
        assert_eq!(cores(&text), [krait]);
        assert_eq!(features(&text), [Feature::Neon, Feature::Vfpv4]);

        let mips = "system type\t\t: MediaTek MT7621 ver:1 eco:3\nmachine\t\t\t: Somebody's Router\n\
            processor\t\t: 0\ncpu model\t\t: MIPS 1004Kc V2.15\nASEs implemented\t: mips16 dsp mt\n\n";
        let mips_core = &cores(mips)[0];
        assert_eq!(mips_core.name, Some(CoreName::Mips1004Kc));
        assert_eq!(mips_core.vendor, Some(Vendor::Mips));
        assert_eq!(features(mips).len(), 3);

        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\
            model name\t: AMD EPYC\nflags\t\t: fpu aes avx2\n\n";
        let x86_core = &cores(x86)[0];
        assert_eq!(
            (x86_core.vendor, x86_core.family),
            (Some(Vendor::Amd), Some(25))
        );
        assert_eq!(x86_core.model, Some(1));
    }
}
