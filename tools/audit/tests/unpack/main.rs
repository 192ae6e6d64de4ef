//! Unpacks one root file system from every format that firmware has: each must yield the same files.

// Test helpers may panic, as tests do.
#![allow(clippy::unwrap_used)]

mod containers;
mod file_systems;
mod hostile;
mod images;
mod limits;

use std::collections::BTreeMap;

use audit::unpack::{Entry, EntryKind, Limits, UnpackError, Visitor, walk, walk_bytes};
use images::headers::Keep;
use images::squashfs::Kind;
use images::{Node, archives, flash, headers, pack, squashfs};

/// A compressor.
type Pack = fn(&[u8]) -> Vec<u8>;

/// Everything that the walk passed on.
#[derive(Default)]
struct Seen {
    /// Files of file systems, by path.
    files: BTreeMap<String, Node>,
    /// Parts, by their role.
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

/// Checks that the files are those of the directory, and that nothing was unreadable.
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

/// A little-endian squashfs 4.0.
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
    // The walk reports a link out of the root, and does not loop on a link to a parent.
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
