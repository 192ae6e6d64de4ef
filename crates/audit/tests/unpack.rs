//! One root file system in every form that firmware has: the same files come out of each.

// Helpers of tests may fail as tests do.
#![allow(clippy::unwrap_used)]

mod images;

use std::collections::BTreeMap;

use audit::unpack::{Entry, EntryKind, Limits, UnpackError, Visitor, walk, walk_bytes};
use images::headers::Keep;
use images::squashfs::Kind;
use images::{Node, archives, flash, headers, pack, squashfs};

/// A compressor.
type Pack = fn(&[u8]) -> Vec<u8>;

/// Everything that was handed over.
#[derive(Default)]
struct Seen {
    /// What lies in file systems, by path.
    files: BTreeMap<String, Node>,
    /// What goes by its role.
    roles: Vec<(String, Vec<u8>)>,
    origins: Vec<String>,
    skipped: Vec<(String, String, String)>,
}

impl Visitor for Seen {
    fn entry(&mut self, entry: &Entry<'_>) {
        if !self.origins.iter().any(|origin| origin == entry.origin) {
            self.origins.push(entry.origin.to_owned());
        }
        let Some(path) = entry.path.strip_prefix('/') else {
            self.roles
                .push((entry.path.to_owned(), entry.data.to_vec()));
            return;
        };
        let node = match entry.kind {
            EntryKind::File => Node::File(entry.data.to_vec()),
            EntryKind::Symlink(target) => Node::Link(target.to_owned().leak()),
            EntryKind::Other => panic!("{path} is no file"),
        };
        assert!(
            self.files.insert(path.to_owned(), node).is_none(),
            "{path} twice"
        );
    }

    fn skipped(&mut self, origin: &str, what: &str, why: &str) {
        self.skipped
            .push((origin.to_owned(), what.to_owned(), why.to_owned()));
    }
}

impl Seen {
    fn role(&self, role: &str) -> Vec<&[u8]> {
        self.roles
            .iter()
            .filter(|(path, _)| path == role)
            .map(|(_, data)| data.as_slice())
            .collect()
    }
}

fn look(image: &[u8]) -> Seen {
    let mut seen = Seen::default();
    walk_bytes("image", image, &Limits::default(), &mut seen).unwrap();
    seen
}

fn look_within(image: &[u8], limits: Limits) -> (Seen, Result<(), UnpackError>) {
    let mut seen = Seen::default();
    let result = walk_bytes("image", image, &limits, &mut seen);
    (seen, result)
}

/// The same files as the directory, and nothing that could not be read.
#[track_caller]
fn is_the_root(seen: &Seen) {
    assert_eq!(seen.skipped, []);
    let expected: BTreeMap<_, _> = images::root().into_iter().collect();
    assert_eq!(
        seen.files.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (path, node) in &expected {
        assert!(seen.files[path] == *node, "{path} differs");
    }
}

/// Little-endian 4.0.
fn four(compression: u16, pack: Pack) -> Kind {
    Kind {
        magic: b"hsqs",
        big: false,
        major: 4,
        compression,
        pack,
    }
}

fn rootfs() -> Vec<u8> {
    squashfs::image(&images::root(), four(4, pack::xz))
}

#[test]
fn a_directory_is_walked_and_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    images::to_directory(&images::root(), dir.path());
    let mut seen = Seen::default();
    walk(dir.path(), &Limits::default(), &mut seen).unwrap();
    is_the_root(&seen);
    assert_eq!(seen.origins, [""]);
    // A link out of the root is reported, and a loop is none.
    std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
    std::os::unix::fs::symlink("..", dir.path().join("etc/up")).unwrap();
    let mut seen = Seen::default();
    walk(dir.path(), &Limits::default(), &mut seen).unwrap();
    assert_eq!(seen.files["out"], Node::Link("/etc"));
    assert_eq!(seen.files["etc/up"], Node::Link(".."));
    assert_eq!(seen.files.len(), images::root().len() + 2);
}

#[test]
fn a_socket_is_not_opened() {
    struct Others(Vec<String>);
    impl Visitor for Others {
        fn entry(&mut self, entry: &Entry<'_>) {
            assert_eq!(entry.kind, EntryKind::Other);
            self.0.push(entry.path.to_owned());
        }
        fn skipped(&mut self, _: &str, what: &str, why: &str) {
            panic!("{what}: {why}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut others = Others(Vec::new());
    walk(dir.path(), &Limits::default(), &mut others).unwrap();
    assert_eq!(others.0, ["/socket"]);
    assert!(matches!(
        walk(&path, &Limits::default(), &mut others),
        Err(UnpackError::NotAFile(_))
    ));
    let device = std::path::Path::new("/dev/null");
    assert!(matches!(
        walk(device, &Limits::default(), &mut others),
        Err(UnpackError::NotAFile(_))
    ));
}

#[test]
fn a_file_that_is_no_image_is_handed_over_by_its_name() {
    for bytes in [&b"\x7fELF\x01\x01\x01hsqs"[..], b"nothing known", b""] {
        let seen = look(bytes);
        assert_eq!(seen.roles, [("image".to_owned(), bytes.to_vec())]);
        assert_eq!(seen.origins, [""]);
    }
}

#[test]
fn squashfs_of_every_compressor_gives_the_root() {
    let kinds: [(u16, Pack, &str); 7] = [
        (1, pack::zlib, "gzip"),
        (2, pack::lzma, "lzma"),
        (4, pack::xz, "xz"),
        (5, pack::lz4, "lz4"),
        (6, pack::zstd, "zstd"),
        // Vendors that say gzip and have LZMA.
        (1, pack::lzma, "lzma"),
        (1, pack::lzma_short, "lzma"),
    ];
    for (compression, pack, name) in kinds {
        let seen = look(&squashfs::image(&images::root(), four(compression, pack)));
        is_the_root(&seen);
        assert_eq!(seen.origins, [format!("squashfs ({name}) at 0x0")]);
    }
}

#[test]
fn squashfs_of_both_orders_and_versions_gives_the_root() {
    for (magic, big, major) in [(b"sqsh", true, 4), (b"sqsh", true, 3), (b"hsqs", false, 3)] {
        let kind = Kind {
            magic,
            big,
            major,
            compression: 1,
            pack: pack::zlib,
        };
        is_the_root(&look(&squashfs::image(&images::root(), kind)));
    }
}

#[test]
fn netgears_squashfs_3_with_lzma_gives_the_root() {
    let forms: [Pack; 5] = [
        pack::lzma,
        pack::lzma_sized,
        pack::lzma_short,
        pack::lzma_bare,
        pack::lzma_odd,
    ];
    for pack in forms {
        for (magic, big) in [(b"qshs", true), (b"shsq", false), (b"hsqs", false)] {
            let kind = Kind {
                magic,
                big,
                major: 3,
                compression: 1,
                pack,
            };
            let seen = look(&squashfs::image(&images::root(), kind));
            is_the_root(&seen);
            assert_eq!(seen.origins, ["squashfs (lzma) at 0x0"]);
        }
    }
}

#[test]
fn squashfs_with_lzo_is_named_as_skipped() {
    let seen = look(&squashfs::image(&images::root(), four(3, pack::zlib)));
    assert!(
        seen.skipped
            .iter()
            .any(|(_, what, why)| what == "squashfs" && why.contains("lzo")),
        "{:?}",
        seen.skipped
    );
}

/// An image that was not loaded to its end must not look like one without a file system, wherever it ends.
#[test]
fn a_squashfs_that_is_cut_off_is_named_as_skipped() {
    for major in [3, 4] {
        let kind = Kind {
            major,
            ..four(1, pack::zlib)
        };
        let image = squashfs::image(&images::root(), kind);
        // Behind the end lies padding up to a page.
        let end = image.len() - 4096;
        for length in (4..200).chain((200..end).step_by(9973)).chain([end]) {
            let seen = look(&image[..length]);
            assert!(
                seen.skipped
                    .iter()
                    .any(|(_, what, why)| what.starts_with("squashfs") && why.contains("cut off")),
                "{major}, {length} bytes of {}: {:?}",
                image.len(),
                seen.skipped
            );
        }
    }
}

/// As routers of 2005 have it. The release is named, and what merely begins with the same letters is not.
#[test]
fn a_squashfs_of_another_version_is_named_as_skipped() {
    for (magic, big) in [(b"hsqs", false), (b"sqsh", true)] {
        let two = |value: u16| {
            if big {
                value.to_be_bytes()
            } else {
                value.to_le_bytes()
            }
        };
        let mut image = vec![0; 4096];
        image[..4].copy_from_slice(magic);
        image[28..30].copy_from_slice(&two(2));
        image[30..32].copy_from_slice(&two(1));
        image[34..36].copy_from_slice(&two(16));
        let seen = look(&image);
        assert_eq!(seen.skipped.len(), 1, "{:?}", seen.skipped);
        let (origin, what, why) = &seen.skipped[0];
        assert_eq!(
            (origin.as_str(), what.as_str()),
            ("squashfs 2.1 at 0x0", "squashfs 2.1")
        );
        assert!(why.contains("not unpacked"), "{why}");
        image[34..36].copy_from_slice(&two(3));
        assert!(look(&image).skipped.is_empty());
    }
}

/// A kernel in the form that ARM boots: a program that unpacks itself, a stream, and device trees behind it.
fn zimage(stream: &[u8]) -> Vec<u8> {
    let mut image = images::noise(5000, 5);
    image[0] = 0;
    image.extend(stream);
    image.extend((images::vmlinux().len() as u32).to_le_bytes());
    images::pad(&mut image, 4, 0);
    image.extend(headers::dtb("netgear,r7800"));
    image
}

#[track_caller]
fn has_the_kernel(seen: &Seen) {
    assert!(seen.role("vmlinux") == [images::vmlinux().as_slice()]);
    assert_eq!(seen.role("kernel-config"), [images::CONFIG]);
}

#[test]
fn trx_gives_the_root_and_the_kernel() {
    let root = squashfs::image(&images::root(), four(4, pack::xz));
    let kernel = pack::lzma_sized(&images::vmlinux());
    let first = look(&headers::trx(1, &[&kernel, &root]));
    is_the_root(&first);
    has_the_kernel(&first);
    let loader = images::noise(1000, 3);
    let second = look(&headers::trx(2, &[&pack::gzip(&loader), &kernel, &root]));
    is_the_root(&second);
    has_the_kernel(&second);
}

#[test]
fn chk_around_trx_gives_the_root_the_kernel_and_the_board() {
    let kernel = pack::lzma(&images::vmlinux());
    let image = headers::chk(
        "U12H270T00_NETGEAR",
        &headers::trx(1, &[&kernel, &rootfs()]),
    );
    let seen = look(&image);
    is_the_root(&seen);
    has_the_kernel(&seen);
    assert_eq!(seen.role("header"), [b"board_id:U12H270T00_NETGEAR\n"]);
}

#[test]
fn dni_around_uimage_gives_the_root_the_kernel_the_tree_and_the_board() {
    let mut inside = headers::uimage(2, 0, &zimage(&pack::xz(&images::vmlinux())));
    images::pad(&mut inside, 1 << 16, 0xff);
    inside.extend(rootfs());
    let seen = look(&headers::dni("R7800", &inside));
    is_the_root(&seen);
    has_the_kernel(&seen);
    assert_eq!(seen.role("dtb"), [headers::dtb("netgear,r7800")]);
    assert!(seen.role("header")[0].starts_with(b"device:R7800\n"));
    assert!(
        seen.origins
            .iter()
            .any(|origin| origin.starts_with("squashfs (xz) at 0x"))
    );
}

#[test]
fn fit_gives_the_root_the_kernel_and_the_trees() {
    let kernel = pack::lzma(&images::vmlinux());
    let trees = [
        headers::dtb("glinet,gl-mt6000"),
        headers::dtb("bananapi,bpi-r3"),
    ];
    let packed = pack::gzip(&trees[1]);
    let root = rootfs();
    let images = [
        ("kernel-1", "kernel", "lzma", kernel.as_slice()),
        ("fdt-1", "flat_dt", "none", &trees[0]),
        ("fdt-2", "flat_dt", "gzip", &packed),
        ("rootfs-1", "filesystem", "none", &root),
    ];
    for keep in [Keep::Inside, Keep::Offset, Keep::Position] {
        let seen = look(&headers::fit(&images, keep));
        is_the_root(&seen);
        has_the_kernel(&seen);
        assert_eq!(seen.role("dtb"), [&trees[0], &trees[1]]);
    }
}

#[test]
fn ubi_gives_the_root_and_the_kernel_of_static_and_dynamic_volumes() {
    let kernel = headers::uimage(2, 1, &pack::gzip(&images::vmlinux()));
    let root = rootfs();
    for fixed in [false, true] {
        let volumes = [
            flash::Volume {
                name: "kernel",
                fixed,
                data: &kernel,
            },
            flash::Volume {
                name: "rootfs",
                fixed,
                data: &root,
            },
        ];
        // After a boot loader, as in a copy of the whole flash.
        let mut image = vec![0xff; flash::ERASEBLOCK];
        image.extend(flash::ubi(&volumes));
        let seen = look(&image);
        is_the_root(&seen);
        has_the_kernel(&seen);
        let origin = "UBI at 0x20000 > volume rootfs > squashfs (xz) at 0x0";
        assert!(
            seen.origins.iter().any(|it| it == origin),
            "{:?}",
            seen.origins
        );
    }
}

#[test]
fn ubifs_is_named_as_skipped() {
    let mut data = vec![0x31, 0x18, 0x10, 0x06];
    data.resize(4096, 0);
    data[20] = 6;
    let seen = look(&flash::ubi(&[flash::Volume {
        name: "rootfs_data",
        fixed: false,
        data: &data,
    }]));
    assert_eq!(seen.skipped.len(), 1);
    assert_eq!(seen.skipped[0].1, "UBIFS");
}

#[test]
fn a_sysupgrade_archive_with_metadata_gives_the_root_and_the_kernel() {
    let kernel = headers::uimage(2, 0, &zimage(&pack::zstd(&images::vmlinux())));
    let mut image = archives::sysupgrade("netgear_r7800", &kernel, &rootfs());
    let json = r#"{"supported_devices":["netgear,r7800"]}"#;
    image.extend(headers::metadata(json));
    let mut seen = look(&image);
    has_the_kernel(&seen);
    assert_eq!(seen.role("dtb").len(), 1);
    assert_eq!(seen.role("metadata"), [json.as_bytes()]);
    let control = seen.files.remove("sysupgrade-netgear_r7800/CONTROL");
    assert_eq!(control, Some(Node::File(b"BOARD=netgear_r7800\n".to_vec())));
    is_the_root(&seen);
}

#[test]
fn an_initial_ram_file_system_gives_the_root_however_it_is_packed() {
    let archive = archives::cpio(&images::root());
    is_the_root(&look(&archive));
    for pack in [
        pack::gzip,
        pack::xz,
        pack::lzma,
        pack::zstd,
        pack::lz4_kernel,
    ] {
        is_the_root(&look(&headers::uimage(3, 0, &pack(&archive))));
    }
    // Behind a kernel, and built into one.
    let mut image = headers::uimage(2, 1, &pack::gzip(&images::vmlinux()));
    image.extend(headers::uimage(3, 0, &pack::xz(&archive)));
    let seen = look(&image);
    is_the_root(&seen);
    has_the_kernel(&seen);
    for inside in [archive.clone(), pack::xz(&archive)] {
        let mut kernel = images::vmlinux();
        images::pad(&mut kernel, 4, 0);
        kernel.extend(inside);
        let seen = look(&headers::uimage(2, 1, &pack::gzip(&kernel)));
        is_the_root(&seen);
        assert!(seen.role("vmlinux") == [kernel.as_slice()]);
    }
}

#[test]
fn kernels_are_unpacked_whatever_packed_them() {
    let kernel = images::vmlinux();
    for pack in [
        pack::gzip,
        pack::xz,
        pack::lzma,
        pack::zstd,
        pack::lz4_kernel,
    ] {
        let seen = look(&zimage(&pack(&kernel)));
        has_the_kernel(&seen);
        assert_eq!(seen.role("dtb").len(), 1);
    }
    // Not packed, in a header that says so.
    has_the_kernel(&look(&headers::uimage(2, 0, &kernel)));
    // Packed with what is not unpacked: handed over as it is.
    let seen = look(&headers::uimage(2, 4, b"no stream of lzo"));
    assert_eq!(seen.role("kernel"), [b"no stream of lzo"]);
    assert_eq!(seen.skipped.len(), 1);
}

#[test]
fn archives_of_a_root_give_the_root() {
    let tar = archives::tar(&images::root());
    is_the_root(&look(&tar));
    is_the_root(&look(&pack::gzip(&tar)));
    is_the_root(&look(
        &archives::zip("R7800-V1.0.2.68.img", &headers::dni("R7800", &rootfs()))
            .into_iter()
            .collect::<Vec<_>>(),
    ));
}

#[test]
fn compressed_modules_and_kernels_in_a_tree_are_unpacked() {
    let module = b"\x7fELF, a module".repeat(50);
    let root = vec![
        (
            "boot/vmlinuz-5.4.188".to_owned(),
            Node::File(zimage(&pack::gzip(&images::vmlinux()))),
        ),
        (
            "lib/modules/5.4.188/a.ko.xz".to_owned(),
            Node::File(pack::xz(&module)),
        ),
        (
            "lib/modules/5.4.188/b.ko.gz".to_owned(),
            Node::File(pack::gzip(&module)),
        ),
    ];
    let seen = look(&squashfs::image(&root, four(4, pack::xz)));
    assert_eq!(
        seen.files["lib/modules/5.4.188/a.ko.xz"],
        Node::File(module.clone())
    );
    assert_eq!(
        seen.files["lib/modules/5.4.188/b.ko.gz"],
        Node::File(module)
    );
    has_the_kernel(&seen);
}

#[test]
fn what_is_cut_short_gives_what_there_is_and_says_so() {
    let image = rootfs();
    // The tables are at the end; without them there is nothing.
    let seen = look(&image[..image.len() / 2]);
    assert!(seen.files.is_empty());
    // Without its last bytes an archive still gives its first files.
    let archive = archives::cpio(&images::root());
    let seen = look(&archive[..archive.len() / 2]);
    assert!(seen.files.contains_key("bin/busybox"));
    assert_eq!(seen.skipped.len(), 1);
}

#[test]
fn a_file_beyond_its_limit_is_skipped_and_the_rest_is_not() {
    let limits = Limits {
        file: 100_000,
        ..Limits::default()
    };
    for image in [
        rootfs(),
        archives::cpio(&images::root()),
        archives::tar(&images::root()),
    ] {
        let (seen, result) = look_within(&image, limits);
        result.unwrap();
        let large = ["bin/busybox", "etc/holes", "usr/lib/libcrypto.so.1.1"];
        assert_eq!(seen.skipped.len(), large.len(), "{:?}", seen.skipped);
        assert!(large.iter().all(|path| !seen.files.contains_key(*path)));
        assert_eq!(seen.files.len(), images::root().len() - large.len());
    }
    let (seen, result) = look_within(&pack::gzip(&vec![1; 200_000]), limits);
    result.unwrap();
    assert_eq!(seen.skipped.len(), 1);
}

#[test]
fn bytes_beyond_the_total_end_the_walk() {
    let limits = Limits {
        total: 400_000,
        ..Limits::default()
    };
    for image in [rootfs(), pack::gzip(&archives::cpio(&images::root()))] {
        let (_, result) = look_within(&image, limits);
        assert!(matches!(result, Err(UnpackError::TooLarge(400_000))));
    }
}

#[test]
fn files_beyond_their_number_end_the_walk() {
    let limits = Limits {
        files: 100,
        ..Limits::default()
    };
    for image in [
        rootfs(),
        archives::cpio(&images::root()),
        archives::tar(&images::root()),
    ] {
        let (seen, result) = look_within(&image, limits);
        assert!(matches!(result, Err(UnpackError::TooMany(100))));
        assert!(seen.files.len() <= 100);
    }
}

#[test]
fn what_lies_too_deep_is_skipped() {
    let wrap = |times: usize| {
        (0..times).fold(archives::cpio(&images::root()), |inner, _| {
            pack::gzip(&inner)
        })
    };
    is_the_root(&look(&wrap(8)));
    let seen = look(&wrap(9));
    assert!(seen.files.is_empty());
    assert!(seen.skipped[0].2.contains("deep"), "{:?}", seen.skipped);
}

#[test]
fn a_stream_that_swells_too_much_is_skipped() {
    let limits = Limits {
        ratio: 10,
        ..Limits::default()
    };
    let zeros = pack::gzip(&vec![0; 20 << 20]);
    let (seen, result) = look_within(&zeros, limits);
    result.unwrap();
    assert!(seen.skipped[0].2.contains("too much"), "{:?}", seen.skipped);
    let holes = vec![("etc/holes".to_owned(), Node::File(vec![0; 20 << 20]))];
    let (seen, result) = look_within(&squashfs::image(&holes, four(4, pack::xz)), limits);
    result.unwrap();
    assert!(
        seen.skipped[0].2.contains("more than can be true"),
        "{:?}",
        seen.skipped
    );
}

#[test]
fn a_file_with_many_names_is_read_once() {
    let root = tempfile::tempdir().unwrap();
    let first = root.path().join("a");
    std::fs::write(&first, vec![1; 100_000]).unwrap();
    for number in 0..50 {
        std::fs::hard_link(&first, root.path().join(format!("b{number}"))).unwrap();
    }
    let limits = Limits {
        directory: 150_000,
        ..Limits::default()
    };
    let mut seen = Seen::default();
    walk(root.path(), &limits, &mut seen).unwrap();
    let link = |node: &&Node| matches!(node, Node::Link("/a"));
    assert_eq!(seen.files.values().filter(link).count(), 50);
    assert_eq!(seen.files.len(), 51);
    // Bytes count: files that are only claimed to be there are read all the same.
    let hole = std::fs::File::create(root.path().join("c")).unwrap();
    hole.set_len(60_000).unwrap();
    let result = walk(root.path(), &limits, &mut Seen::default());
    assert!(matches!(result, Err(UnpackError::TooMuch(150_000))));
}
