//! Containers that vendors and OpenWrt wrap a root and a kernel in.

use audit::soc::{Hints, Table};

use super::*;

/// A kernel in the form that ARM boots: a self-extracting program, a stream, then device trees.
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
    let mut hints = Hints::default();
    hints.see("header", seen.role("header")[0]);
    assert_eq!(hints.find(Table::builtin()).unwrap().soc.id, "bcm4709");
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
    // The archive after a kernel, and then inside one.
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
    // An uncompressed kernel, in a header that says so.
    has_the_kernel(&look(&headers::uimage(2, 0, &kernel)));
    // A kernel with unsupported compression (LZO) is passed on unchanged.
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
