//! Images that are cut short or exceed a limit.

use super::*;

#[test]
fn what_is_cut_short_gives_what_there_is_and_says_so() {
    let image = rootfs();
    // The tables are at the end; without them the walk finds no file.
    let seen = look(&image[..image.len() / 2]);
    assert!(seen.files.is_empty());
    // Without its last bytes an archive still yields its first files.
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
    // The holes of sparse files count: the walk reads them as bytes.
    let hole = std::fs::File::create(root.path().join("c")).unwrap();
    hole.set_len(60_000).unwrap();
    let result = walk(root.path(), &limits, &mut Seen::default());
    assert!(matches!(result, Err(UnpackError::TooMuch(150_000))));
}
