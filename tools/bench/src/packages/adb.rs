//! ADB, the format of apk 3's packages and indexes (apk-v3(5) of apk-tools, and what its reader expects).
//!
//! A file is a schema and blocks. The payload of the first block holds values, which refer to each other by offset
//! from its start; signatures cover that payload. A value is a word: four bits give its kind, the others are a number
//! or the value's offset.

mod container;
mod reader;
mod writer;

pub use container::{Block, Container, ContainerError, INDEX, PACKAGE};
pub use reader::{Reader, ValueError};
pub use writer::{NULL, Writer};

/// The kind of a word, in its highest four bits.
mod tag {
    /// Null, with the value 0; the format's true and false are not used.
    pub(super) const SPECIAL: u32 = 0x0;
    /// A number below 2^28, in the word itself.
    pub(super) const INT: u32 = 0x1;
    /// A 32-bit number at an offset, aligned to 4.
    pub(super) const INT_32: u32 = 0x2;
    /// A 64-bit number at an offset, aligned to 4.
    pub(super) const INT_64: u32 = 0x3;
    /// Bytes with a length of 8 bits.
    pub(super) const BLOB_8: u32 = 0x8;
    /// Bytes with a length of 16 bits, aligned to 2.
    pub(super) const BLOB_16: u32 = 0x9;
    /// Bytes with a length of 32 bits, aligned to 4.
    pub(super) const BLOB_32: u32 = 0xa;
    /// Words of one kind, after their number plus 1, aligned to 4.
    pub(super) const ARRAY: u32 = 0xd;
    /// Words that each have their own meaning.
    pub(super) const OBJECT: u32 = 0xe;
}

/// The bytes before the first value: two versions of the format (0), two reserved bytes, the root's word.
const HEADER: usize = 8;

/// Limit of the offset in a word: 28 bits.
const REACH: usize = 1 << 28;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A value of any kind.
    #[derive(Debug, Clone, PartialEq)]
    enum Any {
        Int(u64),
        Blob(Vec<u8>),
        Array(Vec<Self>),
    }

    fn any_value() -> impl Strategy<Value = Any> {
        let int = prop_oneof![
            any::<u64>(),
            0_u64..9,
            Just((1 << 28) - 1),
            Just(1 << 28),
            Just(1 << 32)
        ];
        let length = prop_oneof![
            1_usize..20,
            Just(255),
            Just(256),
            Just(65_535),
            Just(65_536)
        ];
        let blob = (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
        let leaf = prop_oneof![int.prop_map(Any::Int), blob.prop_map(Any::Blob)];
        leaf.prop_recursive(3, 20, 5, |inner| {
            proptest::collection::vec(inner, 1..5).prop_map(Any::Array)
        })
    }

    fn write(value: &Any, writer: &mut Writer) -> u32 {
        match value {
            Any::Int(value) => writer.int(*value),
            Any::Blob(bytes) => writer.blob(bytes),
            Any::Array(values) => {
                let words: Vec<u32> = values.iter().map(|it| write(it, writer)).collect();
                writer.array(&words)
            }
        }
    }

    fn read(reader: Reader<'_>, word: u32) -> Any {
        if let Ok(value) = reader.int(word) {
            Any::Int(value)
        } else if let Ok(bytes) = reader.blob(word) {
            Any::Blob(bytes.to_vec())
        } else {
            let words = reader.array(word).unwrap();
            Any::Array(words.iter().map(|it| read(reader, *it)).collect())
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any_value()) {
            let mut writer = Writer::default();
            let word = write(&value, &mut writer);
            let payload = writer.finish(word).unwrap();
            let reader = Reader::new(&payload).unwrap();
            prop_assert_eq!(read(reader, reader.root()), value);
        }

        #[test]
        fn no_payload_panics(payload in proptest::collection::vec(any::<u8>(), 8..200), words in proptest::collection::vec(any::<u32>(), 1..20)) {
            let mut payload = payload;
            payload[..2].fill(0);
            let reader = Reader::new(&payload).unwrap();
            for word in words {
                let _ = (reader.int(word), reader.blob(word), reader.array(word), reader.object(word));
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut writer = Writer::default();
        let name = writer.blob(b"abc");
        let wide = writer.int(1 << 28);
        let small = writer.int(5);
        let root = writer.object(&[name, wide, NULL, small, NULL]);
        let payload = writer.finish(root).unwrap();
        let expected = [
            // Versions, and the root: an object at offset 16.
            &[0, 0, 0, 0, 16, 0, 0, 0xe0][..],
            // A blob of three bytes; the next value, aligned, is a 32-bit number.
            &[3, b'a', b'b', b'c', 0, 0, 0, 0x10],
            // Five words: their count comes first, and the last slot, a null, is cut off.
            &[
                5, 0, 0, 0, 8, 0, 0, 0x80, 12, 0, 0, 0x20, 0, 0, 0, 0, 5, 0, 0, 0x10,
            ],
        ]
        .concat();
        assert_eq!(payload, expected);
    }

    #[test]
    fn equal_values_stand_once() {
        let mut writer = Writer::default();
        assert_eq!(writer.blob(b"root"), writer.blob(b"root"));
        let (alone, first, second) = (
            writer.array(&[7]),
            writer.own_blob(b"root"),
            writer.own_blob(b"root"),
        );
        assert_eq!(alone, writer.array(&[7]));
        assert_ne!(
            first, second,
            "what is written over later stands for itself"
        );
        assert_eq!(writer.blob(b""), NULL);
        assert_eq!(writer.object(&[NULL, NULL]), NULL);
    }
}
