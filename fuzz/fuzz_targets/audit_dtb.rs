//! A device tree from a stranger's image, and the hints taken from it and from settings files.
#![no_main]

use audit::dtb::{Dtb, Node};
use audit::soc::{Hints, Table};

/// Walks the whole tree once and looks each item up by name, which must find it or another of that name.
fn walk(node: &Node<'_>, bytes: usize, seen: &mut usize) {
    for property in node.properties() {
        *seen += 1;
        assert!(property.value.len() <= bytes);
        assert!(node.property(property.name).is_some());
        let _ = (property.text(), property.cell(), property.texts().count());
    }
    for child in node.children() {
        *seen += 1;
        if !child.name().is_empty() {
            assert!(node.child(child.name()).is_some());
        }
        walk(&child, bytes, seen);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // Looking each item up by name takes quadratic time, so larger inputs are skipped.
    if data.len() > 16 * 1024 {
        return;
    }
    if let Some(tree) = Dtb::parse(data) {
        let mut seen = 0;
        walk(&tree.root(), data.len(), &mut seen);
        assert!(seen <= data.len() / 4, "more parts than words");
    }
    for path in [
        "dtb",
        "header",
        "/etc/openwrt_release",
        "/etc/board.json",
        "/lib/a.ko",
    ] {
        let mut hints = Hints::default();
        hints.see(path, data);
        if let Some(found) = hints.find(Table::builtin()) {
            assert!(!found.because.is_empty());
        }
    }
});
