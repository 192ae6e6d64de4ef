//! Images that were damaged on purpose: the walk must end within its limits.

use std::sync::LazyLock;

use crate::images::headers::{self, Keep};
use crate::images::squashfs::{self, Kind};
use crate::images::{self, Node, archives, flash, pack};
use audit::unpack::{Entry, Limits, UnpackError, Visitor, walk_bytes};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    file: 1 << 20,
    total: 8 << 20,
    directory: 8 << 20,
    files: 100,
    depth: 3,
    ratio: 1000,
};

/// Counts the entries and their bytes.
#[derive(Default)]
struct Sum {
    entries: u32,
    skipped: u32,
    names: Vec<String>,
}

impl Visitor for Sum {
    fn entry(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.names.push(entry.path.to_owned());
        assert!(entry.data.len() as u64 <= LIMITS.file);
        if let Some(path) = entry.path.strip_prefix('/') {
            assert!(
                path.split('/').all(|name| !matches!(name, "" | "." | "..")),
                "{path}"
            );
        }
    }

    fn skipped(&mut self, _: &str, _: &str, _: &str) {
        self.skipped += 1;
    }
}

fn walked(image: &[u8]) -> (Sum, Result<(), UnpackError>) {
    let mut sum = Sum::default();
    let result = walk_bytes("image", image, &LIMITS, &mut sum);
    assert!(sum.entries <= LIMITS.files);
    assert!(sum.skipped <= 1000);
    assert!(matches!(
        result,
        Ok(()) | Err(UnpackError::TooLarge(_) | UnpackError::TooMany(_))
    ));
    (sum, result)
}

fn small_root() -> Vec<(String, Node)> {
    let text = b"DISTRIB_TARGET='ipq806x/generic'\n".repeat(40);
    vec![
        ("bin/busybox".to_owned(), Node::File(images::noise(2000, 3))),
        ("bin/sh".to_owned(), Node::Link("busybox")),
        ("etc/empty".to_owned(), Node::File(Vec::new())),
        ("etc/openwrt_release".to_owned(), Node::File(text)),
        ("lib/a.ko.xz".to_owned(), Node::File(pack::xz(b"\x7fELF"))),
    ]
}

/// One image of each kind.
static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let root = small_root();
    let kind = |magic, big, major, compression, pack| Kind {
        magic,
        big,
        major,
        compression,
        pack,
    };
    let four = squashfs::image(&root, kind(b"hsqs", false, 4, 4, pack::xz));
    let cpio = archives::cpio(&root);
    let mut kernel = images::noise(2000, 9);
    kernel.extend_from_slice(b"Linux version 5.4.188\n\0IKCFG_ST");
    kernel.extend(pack::gzip(images::CONFIG));
    let kernel = pack::lzma_sized(&kernel);
    let tree = headers::dtb("netgear,r7800");
    let parts = [
        ("kernel-1", "kernel", "lzma", kernel.as_slice()),
        ("fdt-1", "flat_dt", "none", &tree),
        ("rootfs-1", "filesystem", "none", &four),
    ];
    vec![
        four.clone(),
        squashfs::image(&root, kind(b"sqsh", true, 4, 1, pack::zlib)),
        squashfs::image(&root, kind(b"hsqs", false, 4, 6, pack::zstd)),
        squashfs::image(&root, kind(b"hsqs", false, 4, 5, pack::lz4)),
        squashfs::image(&root, kind(b"qshs", true, 3, 1, pack::lzma_short)),
        squashfs::image(&root, kind(b"shsq", false, 3, 1, pack::zlib)),
        headers::chk("U12H270T00_NETGEAR", &headers::trx(1, &[&kernel, &four])),
        headers::dni("R7800", &headers::uimage(2, 3, &kernel)),
        headers::fit(&parts, Keep::Inside),
        headers::fit(&parts, Keep::Offset),
        flash::ubi(&[flash::Volume {
            name: "rootfs",
            fixed: false,
            data: &four,
        }]),
        archives::sysupgrade("x", &headers::uimage(2, 3, &kernel), &four),
        archives::tar(&root),
        archives::zip("a.img", &four),
        cpio.clone(),
        pack::gzip(&cpio),
        pack::xz(&cpio),
        pack::zstd(&cpio),
        pack::lz4_kernel(&cpio),
    ]
});

/// Damage to an image.
#[derive(Clone, Debug)]
enum Harm {
    Set(usize, u8),
    /// Overwrites four bytes with a number, in either byte order.
    Word(usize, u32, bool),
    Cut(usize),
    /// Copies a stretch of the image elsewhere.
    Copy(usize, usize, usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    let words = prop_oneof![
        any::<u32>(),
        Just(0),
        Just(u32::MAX),
        0u32..5000,
        Just(1 << 31)
    ];
    // Headers and tables are at the two ends.
    let at = || prop_oneof![any::<usize>(), 0..300usize];
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, value)| Harm::Set(at, value)),
        4 => (at(), words, any::<bool>()).prop_map(|(at, value, big)| Harm::Word(at, value, big)),
        1 => any::<usize>().prop_map(Harm::Cut),
        1 => (any::<usize>(), any::<usize>(), 1..200usize).prop_map(|(from, to, length)| Harm::Copy(from, to, length)),
    ]
}

fn apply(image: &mut Vec<u8>, harm: &Harm) {
    let length = image.len().max(1);
    match *harm {
        _ if image.is_empty() => {}
        Harm::Set(at, value) => image[at % length] = value,
        Harm::Word(at, value, big) => {
            let bytes = if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            };
            for (place, byte) in image[at % length..].iter_mut().zip(bytes) {
                *place = byte;
            }
        }
        Harm::Cut(at) => image.truncate(at % length),
        Harm::Copy(from, to, count) => {
            let piece: Vec<u8> = image[from % length..].iter().copied().take(count).collect();
            for (place, byte) in image[to % length..].iter_mut().zip(piece) {
                *place = byte;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_damaged_image_ends_within_the_limits(
        which in any::<prop::sample::Index>(),
        harms in prop::collection::vec(harm(), 1..8),
    ) {
        let mut image = which.get(&IMAGES).clone();
        for harm in &harms {
            apply(&mut image, harm);
        }
        let _ = walked(&image);
    }

    #[test]
    fn any_bytes_end_within_the_limits(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let _ = walked(&bytes);
    }
}

#[test]
fn each_image_is_sound_before_it_is_damaged() {
    for image in IMAGES.iter() {
        let (sum, result) = walked(image);
        result.unwrap();
        assert_eq!(sum.skipped, 0);
        let kernel = |name: &str| name == "/etc/openwrt_release" || name == "vmlinux";
        assert!(sum.names.iter().any(|name| kernel(name)), "{:?}", sum.names);
    }
}

#[test]
fn a_squashfs_directory_within_itself_is_walked_once() {
    let kind = Kind {
        magic: b"hsqs",
        big: false,
        major: 4,
        compression: 1,
        pack: |bytes| vec![0; bytes.len() + 1],
    };
    let mut image = squashfs::image(&small_root(), kind);
    // The image is uncompressed, so `etc` can be made to contain the root: its entry gets the root's inode.
    let root = u16::from_le_bytes([image[32], image[33]]);
    let table = u64::from_le_bytes(image[72..80].try_into().unwrap()) as usize;
    let name = table
        + image[table..]
            .windows(3)
            .position(|name| name == b"etc")
            .unwrap();
    image[name - 8..name - 6].copy_from_slice(&root.to_le_bytes());
    let (sum, result) = walked(&image);
    result.unwrap();
    assert_eq!(
        sum.names
            .iter()
            .filter(|name| *name == "/bin/busybox")
            .count(),
        1
    );
    assert!(!sum.names.iter().any(|name| name.contains("etc")));
}

#[test]
fn a_volume_of_eraseblocks_numbered_beyond_the_device_is_skipped() {
    let mut image = flash::eraseblock(0, 0, false, 1, 1, b"first");
    image.extend(flash::eraseblock(0, u32::MAX - 1, false, 1, 1, b"last"));
    let (sum, result) = walked(&image);
    result.unwrap();
    assert_eq!(sum.skipped, 1);
}

#[test]
fn paths_out_of_an_archive_are_dropped() {
    let root = vec![
        ("../etc/passwd".to_owned(), Node::File(b"x".to_vec())),
        ("bin/sh".to_owned(), Node::File(b"y".to_vec())),
        ("etc/a".to_owned(), Node::File(b"z".to_vec())),
    ];
    for image in [archives::cpio(&root), archives::tar(&root)] {
        let (sum, result) = walked(&image);
        result.unwrap();
        assert_eq!(sum.names, ["/bin/sh", "/etc/a"]);
    }
}

#[test]
fn a_thousand_headers_of_streams_that_are_none_cost_little() {
    // Each looks like the beginning of a stream, but none continues.
    let headers: [&[u8]; 5] = [
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
        b"\xfd7zXZ\0\0\x01",
        b"\x28\xb5\x2f\xfd\x04\x88",
        b"\x02\x21\x4c\x18\xff\0\0\0\xf0",
        b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0",
    ];
    for header in headers {
        let image: Vec<u8> = (0..3000)
            .flat_map(|i| [header, &images::noise(40, i * 2 + 1)].concat())
            .collect();
        let (sum, _) = walked(&image);
        assert!(sum.entries <= 1);
    }
}
