//! Serial numbers as people and scripts read them.

use crate::der;

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

/// The decimal digits of an INTEGER's content.
pub(crate) fn decimal(integer: &[u8]) -> String {
    match integer.first() {
        // The authority left out the leading zero; stock programs call the number negative, too.
        Some(128..) => format!("-{}", digits(&negated(integer))),
        _ => digits(der::unsigned(integer)),
    }
}

/// The magnitude of a negative number in two's complement.
fn negated(integer: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = integer.iter().map(|byte| !byte).collect();
    for byte in bytes.iter_mut().rev() {
        let carry;
        (*byte, carry) = byte.overflowing_add(1);
        if !carry {
            break;
        }
    }
    bytes
}

/// The decimal digits of a number, most significant byte first.
fn digits(bytes: &[u8]) -> String {
    // RFC 5280 allows 20 bytes. The work grows with the square, so much longer numbers stay in hexadecimal.
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
        let mut longest = [0xff; 21];
        longest[0] = 0;
        assert_eq!(
            decimal(&longest),
            "1461501637330902918203684832716283019655932542975"
        );
        assert_eq!(decimal(&[0x80, 0]), "-32768");
        assert_eq!(decimal(&[0xff]), "-1");
        assert_eq!(hex(&[0, 0xab]), "00:ab");
    }
}
