//! Finds the chip that an image is for, from the image's own files.
//!
//! [`Hints::see`] takes every file and keeps the few lines that name a board, a chip or a build target;
//! [`Hints::find`] weighs them. A device tree that the kernel boots with counts most. Next come the board's
//! name in a header or settings file, then OpenWrt's build target, which several chips share. The package
//! architecture comes last: it names only the core.

use super::{Isa, Soc, Table};
use crate::dtb::{self, Dtb};

/// Maximum number of clues of one kind that are kept. An image has one, or a tree for each of a dozen boards.
const CLUES: usize = 64;
/// Bytes of a settings file that are read.
const TEXT: usize = 64 * 1024;
/// Bytes of a module that are searched for its version string.
const MODULE: usize = 4 * 1024 * 1024;
/// Maximum number of modules that are searched.
const MODULES: usize = 8;

/// The chip that an image or a box has.
#[derive(Clone, Debug, PartialEq)]
pub struct Detected<'a> {
    /// Detected chip.
    pub soc: &'a Soc,
    /// The evidence, as a sentence without a full stop.
    pub because: String,
    /// Whether no other chip is possible and no clue contradicts.
    pub certain: bool,
}

/// Hints in an image's files about the chip that it is for.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// `compatible` of each device tree, and where the tree was.
    trees: Vec<(String, Vec<String>)>,
    /// Names of boards, and where they were.
    boards: Vec<(String, String)>,
    /// OpenWrt's targets, and where they were.
    targets: Vec<(String, String)>,
    /// OpenWrt's package architectures, and where they were.
    archs: Vec<(String, String)>,
    /// `vermagic` of modules.
    vermagics: Vec<String>,
    modules: usize,
}

impl Hints {
    /// Looks at one file. `path` is its path in its file system, or the role of a raw part: `dtb`, `header`.
    pub fn see(&mut self, path: &str, data: &[u8]) {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name {
            "dtb" => self.tree(path, data),
            "header" => self.header(data),
            "openwrt_release" => self.settings(path, data, "DISTRIB_TARGET", "DISTRIB_ARCH"),
            "os-release" => self.settings(path, data, "OPENWRT_BOARD", "OPENWRT_ARCH"),
            "board.json" => self.board_json(path, data),
            // Names the board in OpenWrt's tar images.
            "CONTROL" => {
                if let Some(board) = setting(text(data), "BOARD") {
                    self.board(path, board);
                }
            }
            // Files of NETGEAR's own firmware, and of a running OpenWrt.
            "module_name" | "board_name" if path.matches('/').count() <= 3 => {
                self.board(path, text(data).lines().next().unwrap_or(""));
            }
            "compatible"
                if path.ends_with("device-tree/compatible")
                    || path.ends_with("base/compatible") =>
            {
                self.compatible(path, dtb::texts(data));
            }
            _ if name.ends_with(".dtb") => self.tree(path, data),
            _ if name.ends_with(".ko") => self.module(data),
            _ => {}
        }
    }

    /// The chip that the clues identify, if any.
    #[must_use]
    pub fn find<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        let tree = self.by_tree(table);
        let board = self.by_board(table);
        let mut found = match (tree, board) {
            (Some(mut tree), Some(board)) => {
                if !same(tree.soc, board.soc) {
                    tree.certain = false;
                    tree.because = format!("{}, although {}", tree.because, board.because);
                }
                tree
            }
            (Some(found), None) | (None, Some(found)) => found,
            (None, None) => self.by_target(table).or_else(|| self.by_arch(table))?,
        };
        if let Some(other) = self
            .vermagics
            .iter()
            .find(|magic| !could_run(found.soc.core.isa, magic))
        {
            found.certain = false;
            found.because = format!("{}, although its kernel modules say {other}", found.because);
        }
        Some(found)
    }

    fn by_tree<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        let mut found = self.trees.iter().filter_map(|(from, compatible)| {
            let (soc, by) = by_compatible(table, compatible)?;
            Some((soc, format!("the device tree ({from}) says {by}")))
        });
        let (soc, mut because) = found.next()?;
        let mut certain = true;
        for (other, _) in found {
            if other.id != soc.id && !because.contains(&other.name) {
                certain &= same(soc, other);
                because = format!(
                    "{because}, but another device tree is for the {}",
                    other.name
                );
            }
        }
        Some(Detected {
            soc,
            because,
            certain,
        })
    }

    fn by_board<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        self.boards.iter().find_map(|(from, board)| {
            let soc = table.board(board)?;
            Some(Detected {
                soc,
                because: format!("{from} names the board {board}"),
                certain: true,
            })
        })
    }

    fn by_target<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        self.targets.iter().find_map(|(from, target)| {
            let socs: Vec<&Soc> = table
                .socs()
                .iter()
                .filter(|soc| soc.openwrt_targets.iter().any(|of| of == target))
                .collect();
            let first = *socs.first()?;
            let because = format!("{from} names the OpenWrt target {target}");
            // A target named like a chip is for that chip only.
            let subtarget = target.rsplit('/').next().unwrap_or(target);
            if let Some(soc) = socs.iter().find(|soc| soc.id == subtarget) {
                return Some(Detected {
                    soc,
                    because,
                    certain: true,
                });
            }
            let others: Vec<&str> = socs[1..].iter().map(|soc| soc.name.as_str()).collect();
            let because = match others.as_slice() {
                [] => because,
                others => format!("{because}, which {} have in common", others.join(", ")),
            };
            Some(Detected {
                soc: first,
                because,
                certain: false,
            })
        })
    }

    fn by_arch<'t>(&self, table: &'t Table) -> Option<Detected<'t>> {
        self.archs.iter().find_map(|(from, arch)| {
            let mut socs = table
                .socs()
                .iter()
                .filter(|soc| soc.openwrt_arch.iter().any(|of| of == arch));
            let soc = socs.next()?;
            // One chip stands for all only if the same options fit all of them.
            socs.all(|other| same(soc, other)).then(|| Detected {
                soc,
                because: format!(
                    "{from} names the package architecture {arch}, which the {} has",
                    soc.name
                ),
                certain: false,
            })
        })
    }

    fn tree(&mut self, path: &str, data: &[u8]) {
        let Some(tree) = Dtb::parse(data) else {
            return;
        };
        if let Some(property) = tree.root().property("compatible") {
            self.compatible(path, property.texts());
        }
    }

    fn compatible<'a>(&mut self, path: &str, names: impl Iterator<Item = &'a str>) {
        let names: Vec<String> = names
            .take(CLUES)
            .map(|name| name.chars().take(128).collect())
            .collect();
        if self.trees.len() < CLUES && !names.is_empty() {
            self.trees.push((path.to_owned(), names));
        }
    }

    /// Reads the text of NETGEAR's headers: CHK has the board's number, DNI the model's name.
    fn header(&mut self, data: &[u8]) {
        let first = text(data).lines().next().unwrap_or("");
        if let Some(board) = first.strip_prefix("board_id:") {
            self.board("the CHK header", board);
        } else if let Some(device) = first.strip_prefix("device:") {
            self.board("the DNI header", device);
        }
    }

    fn settings(&mut self, path: &str, data: &[u8], target: &str, arch: &str) {
        let text = text(data);
        if let Some(value) = setting(text, target) {
            push(&mut self.targets, path, value);
        }
        if let Some(value) = setting(text, arch) {
            push(&mut self.archs, path, value);
        }
    }

    fn board_json(&mut self, path: &str, data: &[u8]) {
        let json: Option<serde_json::Value> = data
            .get(..data.len().min(TEXT))
            .and_then(|d| serde_json::from_slice(d).ok());
        if let Some(id) = json
            .as_ref()
            .and_then(|json| json.pointer("/model/id")?.as_str())
        {
            self.board(path, id);
        }
    }

    fn module(&mut self, data: &[u8]) {
        if self.modules < MODULES {
            self.modules += 1;
            let data = &data[..data.len().min(MODULE)];
            let marker = b"vermagic=";
            if let Some(at) = data
                .windows(marker.len())
                .position(|window| window == marker)
            {
                let rest = &data[at + marker.len()..data.len().min(at + 256)];
                self.vermagics.push(text(rest).trim().to_owned());
            }
        }
    }

    fn board(&mut self, from: &str, board: &str) {
        push(&mut self.boards, from, board);
    }
}

/// The chip that a device tree's `compatible` identifies by chip or board name, and the matching name.
pub(super) fn by_compatible<'t, 'n>(
    table: &'t Table,
    names: &'n [String],
) -> Option<(&'t Soc, &'n str)> {
    // `compatible` lists the most specific name first, so the first known name is the nearest.
    let chip = names
        .iter()
        .find_map(|name| Some((table.compatible(name)?, name.as_str())));
    let board = || {
        names
            .iter()
            .find_map(|name| Some((table.board(name)?, name.as_str())))
    };
    chip.or_else(board)
}

/// Whether the same options fit both chips.
fn same(a: &Soc, b: &Soc) -> bool {
    a.core.gcc == b.core.gcc && a.big_endian == b.big_endian
}

/// Whether modules with this version string could run on a core of this kind: the string names the architecture.
fn could_run(isa: Isa, vermagic: &str) -> bool {
    let mut words = vermagic.split_whitespace();
    words.all(|word| match isa {
        Isa::Armv5te => !matches!(word, "ARMv6" | "ARMv7" | "aarch64") && !word.starts_with("MIPS"),
        Isa::Armv7 => !matches!(word, "ARMv5" | "aarch64") && !word.starts_with("MIPS"),
        // A 64-bit core may run a 32-bit kernel: that is a finding, not a contradiction.
        Isa::Armv8 => !word.starts_with("MIPS"),
        Isa::Mips32r2 | Isa::Mips64OcteonPlus | Isa::Mips64Octeon3 | Isa::PowerPcSpe => {
            !word.starts_with("ARMv") && word != "aarch64"
        }
    })
}

/// The value of `NAME='value'` in a shell settings file.
fn setting<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let value = line.trim().strip_prefix(name)?.strip_prefix('=')?;
        Some(value.trim().trim_matches(['\'', '"']))
    })
}

/// The text at the beginning of the bytes, up to the first zero byte.
fn text(data: &[u8]) -> &str {
    let data = &data[..data.len().min(TEXT)];
    let data = data.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(data) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&data[..error.valid_up_to()]).unwrap_or(""),
    }
}

fn push(clues: &mut Vec<(String, String)>, from: &str, value: &str) {
    let value = value.trim();
    if clues.len() < CLUES && !value.is_empty() && value.len() <= 256 {
        clues.push((from.to_owned(), value.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtb::tests::Writer;

    fn find(files: &[(&str, &[u8])]) -> Option<Detected<'static>> {
        let mut hints = Hints::default();
        for (path, data) in files {
            hints.see(path, data);
        }
        hints.find(Table::builtin())
    }

    fn tree(compatible: &str) -> Vec<u8> {
        Writer::default()
            .begin("")
            .property("compatible", compatible.as_bytes())
            .end()
            .finish()
    }

    #[test]
    fn a_device_tree_names_the_chip() {
        let found = find(&[("dtb", &tree("netgear,r7800\0qcom,ipq8065\0qcom,ipq8064\0"))]).unwrap();
        assert_eq!((found.soc.id.as_str(), found.certain), ("ipq8065", true));
        assert_eq!(found.because, "the device tree (dtb) says qcom,ipq8065");
    }

    #[test]
    fn a_device_tree_that_names_only_the_board_is_enough() {
        let found = find(&[("dtb", &tree("avm,fritzbox-7530\0"))]).unwrap();
        assert_eq!((found.soc.id.as_str(), found.certain), ("ipq4019", true));
    }

    #[test]
    fn trees_for_unlike_chips_leave_a_doubt() {
        let (one, two) = (tree("qcom,ipq8065\0"), tree("brcm,bcm4708\0"));
        let found = find(&[("dtb", &one), ("dtb", &two)]).unwrap();
        assert!(!found.certain);
        assert!(found.because.contains("BCM4708"), "{}", found.because);
        let like = tree("qcom,ipq8064\0");
        assert!(find(&[("dtb", &one), ("dtb", &like)]).unwrap().certain);
    }

    #[test]
    fn openwrts_release_files_name_the_target() {
        let release = b"DISTRIB_ID='OpenWrt'\nDISTRIB_TARGET='ipq806x/generic'\nDISTRIB_ARCH='arm_cortex-a15_neon-vfpv4'\n";
        let found = find(&[("/etc/openwrt_release", release)]).unwrap();
        assert!(found.soc.id.starts_with("ipq806") && !found.certain);
        assert!(
            found.because.contains("ipq806x/generic") && found.because.contains("IPQ8065"),
            "{}",
            found.because
        );
        let release = b"NAME=\"OpenWrt\"\nOPENWRT_BOARD=\"mediatek/mt7622\"\nOPENWRT_ARCH=\"aarch64_cortex-a53\"\n";
        let found = find(&[("/usr/lib/os-release", release)]).unwrap();
        assert_eq!((found.soc.id.as_str(), found.certain), ("mt7622", true));
    }

    #[test]
    fn an_architecture_that_unlike_chips_share_tells_nothing() {
        assert!(find(&[("/etc/openwrt_release", b"DISTRIB_ARCH='aarch64_generic'\n")]).is_none());
        let found = find(&[(
            "/etc/openwrt_release",
            b"DISTRIB_ARCH='aarch64_cortex-a76'\n",
        )])
        .unwrap();
        assert_eq!((found.soc.id.as_str(), found.certain), ("bcm2712", false));
    }

    #[test]
    fn boards_are_named_in_many_places() {
        let files: [(&str, &[u8]); 5] = [
            (
                "/etc/board.json",
                br#"{"model":{"id":"netgear,r7800","name":"Netgear Nighthawk X4S R7800"}}"#,
            ),
            (
                "/sysupgrade-netgear_r7800/CONTROL",
                b"BOARD=netgear_r7800\n",
            ),
            ("/module_name", b"R7800\n"),
            ("/tmp/sysinfo/board_name", b"netgear,r7800\n"),
            ("header", b"device:R7800\nversion:V1.0.2.68\nregion:\n"),
        ];
        for file in files {
            let found = find(&[file]).unwrap_or_else(|| panic!("{}", file.0));
            assert_eq!(
                (found.soc.id.as_str(), found.certain),
                ("ipq8065", true),
                "{}",
                file.0
            );
        }
    }

    #[test]
    fn netgears_board_numbers_are_known() {
        let found = find(&[("header", b"board_id:U12H270T00_NETGEAR\n")]).unwrap();
        assert_eq!((found.soc.id.as_str(), found.certain), ("bcm4709", true));
    }

    #[test]
    fn modules_for_another_architecture_leave_a_doubt() {
        let module = b"\x7fELF...vermagic=4.14.131 SMP mod_unload MIPS32_R2 32BIT \0name=x\0";
        let tree = tree("qcom,ipq8065\0");
        let found = find(&[("dtb", &tree), ("/lib/modules/4.14.131/x.ko", module)]).unwrap();
        assert!(
            !found.certain && found.because.contains("MIPS32_R2"),
            "{}",
            found.because
        );
        let module = b"vermagic=4.14.131 SMP mod_unload ARMv7 p2v8 \0";
        assert!(
            find(&[("dtb", &tree), ("/lib/modules/4.14.131/x.ko", module)])
                .unwrap()
                .certain
        );
    }

    #[test]
    fn other_files_tell_nothing() {
        assert!(
            find(&[
                ("/etc/passwd", b"DISTRIB_TARGET='ipq806x/generic'"),
                ("/etc/board.json", b"{")
            ])
            .is_none()
        );
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(
            name in prop::sample::select(vec![
                "dtb", "header", "/etc/openwrt_release", "/etc/os-release", "/etc/board.json", "/s/CONTROL",
                "/module_name", "/lib/a.ko", "/proc/device-tree/compatible",
            ]),
            start in prop::sample::select(vec![
                &b""[..], b"board_id:", b"device:", b"\xd0\x0d\xfe\xed", b"DISTRIB_TARGET='", b"BOARD=", b"vermagic=",
            ]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let data = [start, &rest].concat();
            let _ = find(&[(name, &data)]);
        }
    }
}
