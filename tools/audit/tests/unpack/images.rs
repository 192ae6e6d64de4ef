//! One root file system, and writers of every format in which firmware contains one. For tests only: the images are
//! complete, well formed and as small as possible.

#![allow(unreachable_pub, missing_docs)]

pub mod archives;
pub mod flash;
pub mod headers;
pub mod pack;
pub mod squashfs;

use std::path::Path;

/// The node at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File(Vec<u8>),
    Link(&'static str),
}

/// Bytes without repetition.
pub fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..length).map(|_| next()).collect()
}

/// A root file system: small and large files, an empty one, one with holes, links, nested directories, and
/// enough files to give tables more than one block. Paths lack the first slash and are sorted.
pub fn root() -> Vec<(String, Node)> {
    let mut elf = b"\x7fELF\x01\x01\x01\0".to_vec();
    elf.extend(noise(300_000, 7));
    let mut holes = vec![0; 200_000];
    holes[150_000] = 1;
    let text = "DISTRIB_TARGET='ipq806x/generic'\nDISTRIB_ARCH='arm_cortex-a15_neon-vfpv4'\n";
    let mut all = vec![
        ("bin/busybox".to_owned(), Node::File(elf.clone())),
        ("bin/sh".to_owned(), Node::Link("busybox")),
        ("etc/empty".to_owned(), Node::File(Vec::new())),
        ("etc/holes".to_owned(), Node::File(holes)),
        (
            "etc/openwrt_release".to_owned(),
            Node::File(text.repeat(20).into_bytes()),
        ),
        (
            "lib/modules/5.4.188/wireguard.ko".to_owned(),
            Node::File(elf[..70_000].to_vec()),
        ),
        (
            "usr/lib/libcrypto.so".to_owned(),
            Node::Link("libcrypto.so.1.1"),
        ),
        (
            "usr/lib/libcrypto.so.1.1".to_owned(),
            Node::File(text.repeat(3000).into_bytes()),
        ),
    ];
    for i in 0..400 {
        all.push((
            format!("www/page{i:03}.html"),
            Node::File(format!("<p>{i}</p>").repeat(i % 9).into_bytes()),
        ));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Writes the root file system as a directory.
pub fn to_directory(root: &[(String, Node)], dir: &Path) {
    for (path, node) in root {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match node {
            Node::File(bytes) => std::fs::write(path, bytes).unwrap(),
            Node::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
        }
    }
}

/// The directories of a root file system, the root (`""`) first, each after its parent.
pub fn directories(root: &[(String, Node)]) -> Vec<String> {
    let mut all = vec![String::new()];
    for (path, _) in root {
        for (at, _) in path.match_indices('/') {
            all.push(path[..at].to_owned());
        }
    }
    all.sort();
    all.dedup();
    all
}

/// An uncompressed kernel: a banner, and a built-in configuration.
pub fn vmlinux() -> Vec<u8> {
    let mut kernel = noise(40_000, 99);
    kernel.extend_from_slice(b"Linux version 5.4.188 (builder@host) #0 SMP\n\0IKCFG_ST");
    kernel.extend(pack::gzip(CONFIG));
    kernel.extend_from_slice(b"IKCFG_ED");
    kernel.extend(noise(20_000, 98));
    kernel
}

/// The configuration in [`vmlinux`].
pub const CONFIG: &[u8] = b"CONFIG_ARM=y\nCONFIG_NEON=y\n# CONFIG_KERNEL_MODE_NEON is not set\n";

/// Pads with `byte` to a multiple of `to`.
pub fn pad(bytes: &mut Vec<u8>, to: usize, byte: u8) {
    bytes.resize(bytes.len().next_multiple_of(to), byte);
}

/// CRC-32 as in zlib.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
