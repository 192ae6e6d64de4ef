use super::*;
use proptest::prelude::*;

#[test]
fn bytes_are_as_libubox_lays_them_out() {
    let fields = vec![
        ("action".to_owned(), Value::Int32(0)),
        ("link-up".to_owned(), Value::flag(true)),
        (
            "dns".to_owned(),
            Value::Array(vec![Value::text("10.8.0.1")]),
        ),
    ];
    #[rustfmt::skip]
    let wanted = [
        // Named, type 5 (32 bits), 20 bytes: the name's length, the name, a zero, and padding to a multiple of 4.
        0x85, 0, 0, 20,  0, 6, b'a', b'c',  b't', b'i', b'o', b'n',  0, 0, 0, 0,  0, 0, 0, 0,
        // Type 7 (8 bits), 17 bytes, and three bytes of padding.
        0x87, 0, 0, 17,  0, 7, b'l', b'i',  b'n', b'k', b'-', b'u',  b'p', 0, 0, 0,  1, 0, 0, 0,
        // Type 1 (a list), with its content's padded length: type 3 (a text) with an empty name.
        0x81, 0, 0, 32,  0, 3, b'd', b'n',  b's', 0, 0, 0,
        0x83, 0, 0, 17,  0, 0, 0, 0,  b'1', b'0', b'.', b'8',  b'.', b'0', b'.', b'1',  0, 0, 0, 0,
    ];
    assert_eq!(to_bytes(&fields), wanted);
    assert_eq!(from_bytes(&wanted).unwrap(), fields);
}

#[test]
fn what_is_cut_or_too_deep_is_refused() {
    let mut deep = Value::Array(Vec::new());
    for _ in 0..DEPTH_MAX {
        deep = Value::Array(vec![deep]);
    }
    let bytes = to_bytes(&[("x".to_owned(), deep)]);
    assert_eq!(from_bytes(&bytes), Err(Malformed));
    for bytes in [
        &[0x85, 0, 0][..],
        &[0x85, 0, 0, 3],
        &[0x85, 0, 0, 9, 0, 0, 0, 0],
        // A name without its final zero, and a name length beyond the end.
        &[0x87, 0, 0, 8, 0, 2, b'a', b'b'],
        &[0x87, 0, 0, 8, 0xff, 0xff, 0, 0],
        // A text without its final zero, and a number of three bytes.
        &[0x83, 0, 0, 12, 0, 1, b'a', 0, b'a', b'b', b'c', b'd'],
        &[0x85, 0, 0, 11, 0, 1, b'a', 0, 1, 2, 3, 0],
    ] {
        assert_eq!(from_bytes(bytes), Err(Malformed), "{bytes:?}");
    }
    // A text ends at its first zero.
    let cut = to_bytes(&[(String::new(), Value::text("a\0b"))]);
    assert_eq!(from_bytes(&cut).unwrap()[0].1, Value::text("a"));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[ -~\u{e4}]{0,12}".prop_map(Value::Text),
        any::<u64>().prop_map(Value::Int64),
        any::<u32>().prop_map(Value::Int32),
        any::<u16>().prop_map(Value::Int16),
        any::<u8>().prop_map(Value::Int8),
        (-1e9..1e9_f64).prop_map(Value::Double),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec(("[a-z-]{0,9}", inner), 0..5).prop_map(Value::Table),
        ]
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read_again(fields in prop::collection::vec(("[a-z-]{0,9}", value()), 0..5)) {
        let bytes = to_bytes(&fields);
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert_eq!(from_bytes(&bytes).unwrap(), fields);
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), fields in prop::collection::vec(("[a-z]{0,4}", value()), 1..4), new in any::<u8>()) {
        let _ = from_bytes(&bytes);
        let mut near = to_bytes(&fields);
        let at = at.index(near.len());
        near[at] = new;
        let _ = from_bytes(&near);
    }
}
