//! Tests of the device tree reader, and a writer of trees for other tests.

use proptest::prelude::*;

use super::*;

/// Writes device trees, for these tests and for tests of code that reads trees.
#[derive(Default)]
pub(crate) struct Writer {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    pub(crate) fn begin(&mut self, name: &str) -> &mut Self {
        self.structure.extend(BEGIN_NODE.to_be_bytes());
        self.structure.extend(name.as_bytes());
        self.structure.push(0);
        self.pad()
    }

    pub(crate) fn property(&mut self, name: &str, value: &[u8]) -> &mut Self {
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        self.structure.extend(PROPERTY.to_be_bytes());
        self.structure
            .extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        self.structure.extend(at.to_be_bytes());
        self.structure.extend(value);
        self.pad()
    }

    pub(crate) fn end(&mut self) -> &mut Self {
        self.structure.extend(END_NODE.to_be_bytes());
        self
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.structure.extend(END.to_be_bytes());
        let sizes =
            [self.structure.len(), self.strings.len()].map(|size| u32::try_from(size).unwrap());
        let [structure, strings] = sizes;
        let header = 40 + 16;
        let fields = [
            0xd00d_feed,
            header + structure + strings,
            header,
            header + structure,
            40,
            17,
            16,
            0,
            strings,
            structure,
        ];
        let mut out: Vec<u8> = fields.into_iter().flat_map(u32::to_be_bytes).collect();
        out.extend([0; 16]);
        out.extend(&self.structure);
        out.extend(&self.strings);
        out
    }

    fn pad(&mut self) -> &mut Self {
        self.structure
            .resize(self.structure.len().next_multiple_of(4), 0);
        self
    }
}

fn sample() -> Vec<u8> {
    Writer::default()
        .begin("")
        .property("compatible", b"netgear,r7800\0qcom,ipq8065\0")
        .property("#address-cells", &1_u32.to_be_bytes())
        .begin("chosen")
        .property("bootargs", b"quiet\0")
        .end()
        .begin("cpus")
        .begin("cpu@0")
        .property("compatible", b"qcom,krait\0")
        .end()
        .end()
        .end()
        .finish()
}

#[test]
fn nodes_and_properties_are_found() {
    let bytes = sample();
    let tree = Dtb::parse(&bytes).unwrap();
    let compatible = tree.root().property("compatible").unwrap();
    assert_eq!(compatible.text(), Some("netgear,r7800"));
    assert_eq!(
        compatible.texts().collect::<Vec<_>>(),
        ["netgear,r7800", "qcom,ipq8065"]
    );
    assert_eq!(
        tree.root().property("#address-cells").unwrap().cell(),
        Some(1)
    );
    assert_eq!(
        tree.root()
            .children()
            .map(|node| node.name())
            .collect::<Vec<_>>(),
        ["chosen", "cpus"]
    );
    let cpu = tree
        .root()
        .child("cpus")
        .and_then(|cpus| cpus.child("cpu@0"))
        .unwrap();
    assert_eq!(
        cpu.property("compatible").unwrap().text(),
        Some("qcom,krait")
    );
    assert_eq!(cpu.children().count(), 0);
    assert!(tree.root().child("cpu@0").is_none());
    assert!(
        tree.root().property("bootargs").is_none(),
        "a child's property is not the node's"
    );
}

#[test]
fn what_follows_the_tree_does_not_matter() {
    let mut bytes = sample();
    let size = bytes.len();
    bytes.extend([0xff; 100]);
    let names = |bytes| {
        let tree = Dtb::parse(bytes).unwrap();
        let names = tree.root().children().map(|node| node.name().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&bytes), names(&bytes[..size]));
}

#[test]
fn every_cut_is_refused() {
    let bytes = sample();
    for length in 0..bytes.len() {
        assert!(Dtb::parse(&bytes[..length]).is_none(), "{length} bytes");
    }
}

#[test]
fn nodes_nested_without_end_are_refused() {
    let nested = |depth: u32| {
        let mut writer = Writer::default();
        for _ in 0..depth {
            writer.begin("a");
        }
        for _ in 0..depth {
            writer.end();
        }
        writer.finish()
    };
    assert!(Dtb::parse(&nested(DEPTH)).is_some());
    assert!(Dtb::parse(&nested(DEPTH + 1)).is_none());
}

#[test]
fn old_and_future_formats_are_refused() {
    for (field, value) in [(5, 3_u32), (6, 18)] {
        let mut bytes = sample();
        bytes[field * 4..field * 4 + 4].copy_from_slice(&value.to_be_bytes());
        assert!(Dtb::parse(&bytes).is_none(), "{value}");
    }
}

proptest! {
    #[test]
    fn bent_trees_do_no_harm(bends in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = sample();
        for (index, value) in bends {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(tree) = Dtb::parse(&bytes) {
            for node in tree.root().children() {
                for property in node.properties() {
                    let _ = (property.text(), property.cell());
                }
            }
        }
    }
}

#[test]
fn a_name_without_end_is_no_name() {
    let tree = |length: usize| {
        let name = "n".repeat(length);
        Writer::default()
            .begin("")
            .property(&name, b"")
            .end()
            .finish()
    };
    assert!(Dtb::parse(&tree(NAME)).is_some());
    assert!(Dtb::parse(&tree(NAME + 1)).is_none());
}
