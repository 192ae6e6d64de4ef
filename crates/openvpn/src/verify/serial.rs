//! Serial numbers as people and scripts read them.

/// Lower-case hexadecimal with colons, as OpenVPN prints digests and serial numbers.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(3 * bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if at > 0 {
            text.push(':');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The decimal digits of a number, most significant byte first.
pub(crate) fn decimal(bytes: &[u8]) -> String {
    // RFC 5280 allows 20 bytes. The work grows with the square, so what is far beyond stays in
    // hexadecimal.
    if bytes.len() > 64 {
        return hex(bytes);
    }
    let mut digits = vec![0u8];
    for &byte in bytes {
        let mut carry = u32::from(byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 10) as u8;
            carry /= 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }
    digits
        .iter()
        .rev()
        .map(|digit| char::from(b'0' + digit))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_out() {
        assert_eq!(decimal(&[]), "0");
        assert_eq!(decimal(&[1, 0]), "256");
        assert_eq!(
            decimal(&[0xff; 20]),
            "1461501637330902918203684832716283019655932542975"
        );
        assert_eq!(hex(&[0, 0xab]), "00:ab");
    }
}
