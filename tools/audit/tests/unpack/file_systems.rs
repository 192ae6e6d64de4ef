//! SquashFS in all its forms.

use super::*;

#[test]
fn squashfs_of_every_compressor_gives_the_root() {
    let kinds: [(u16, Pack, &str); 7] = [
        (1, pack::zlib, "gzip"),
        (2, pack::lzma, "lzma"),
        (4, pack::xz, "xz"),
        (5, pack::lz4, "lz4"),
        (6, pack::zstd, "zstd"),
        // Vendors' images that declare gzip and use LZMA.
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

/// A truncated image must not look like one without a file system, wherever it ends.
#[test]
fn a_squashfs_that_is_cut_off_is_named_as_skipped() {
    for major in [3, 4] {
        let kind = Kind {
            major,
            ..four(1, pack::zlib)
        };
        let image = squashfs::image(&images::root(), kind);
        // The end is followed by padding up to a page.
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

/// Routers of 2005 have such releases. The walk names the release, and ignores data that merely begins with its
/// letters.
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
