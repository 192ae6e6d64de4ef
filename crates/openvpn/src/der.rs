//! Reading DER (X.690), as far as certificates, keys and their containers need it.
//!
//! Every reader borrows from its input and steps over one element at a time; nothing recurses but
//! what its caller makes recurse. Lengths of up to four bytes are read; the indefinite form of BER
//! is not. Writes serial numbers as people and scripts read them.

/// Object identifiers that certificates are both written and checked with.
pub(crate) mod oid {
    /// Keys on an elliptic curve (RFC 5480).
    pub(crate) const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    pub(crate) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    pub(crate) const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
    pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
    pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
    /// The purposes of [`EXTENDED_KEY_USAGE`].
    pub(crate) const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
    pub(crate) const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
}

/// The bytes are not the DER that was expected here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadDer;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The tag of a constructed, context-specific element (`[n]` around another).
pub(crate) const fn context(number: u8) -> u8 {
    0xa0 | number
}

/// A DER element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// The whole element, with tag and length.
    pub(crate) whole: &'a [u8],
}

/// Reads a row of elements, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next element, whatever it is.
    pub(crate) fn any(&mut self) -> Result<Element<'a>, BadDer> {
        let bytes = self.rest;
        let (&tag, rest) = bytes.split_first().ok_or(BadDer)?;
        let (&first, rest) = rest.split_first().ok_or(BadDer)?;
        // Tag numbers from 31 on take more bytes; nothing that is read here has them.
        if tag & 0x1f == 0x1f {
            return Err(BadDer);
        }
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (len, rest) = rest
                    .split_at_checked(usize::from(first & 0x7f))
                    .ok_or(BadDer)?;
                (
                    len.iter()
                        .fold(0, |sum, &byte| sum << 8 | usize::from(byte)),
                    rest,
                )
            }
            _ => return Err(BadDer),
        };
        let (content, rest) = rest.split_at_checked(len).ok_or(BadDer)?;
        self.rest = rest;
        Ok(Element {
            tag,
            content,
            whole: &bytes[..bytes.len() - rest.len()],
        })
    }

    /// The next element, which must have this tag.
    pub(crate) fn element(&mut self, tag: u8) -> Result<Element<'a>, BadDer> {
        let element = self.any()?;
        if element.tag == tag {
            Ok(element)
        } else {
            Err(BadDer)
        }
    }

    /// The content of the next element, which must have this tag.
    pub(crate) fn content(&mut self, tag: u8) -> Result<&'a [u8], BadDer> {
        Ok(self.element(tag)?.content)
    }

    /// The elements inside the next one, which must have this tag.
    pub(crate) fn inside(&mut self, tag: u8) -> Result<Self, BadDer> {
        Ok(Self::new(self.content(tag)?))
    }

    /// The next element if it has this tag.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, BadDer> {
        if self.rest.first() == Some(&tag) {
            self.any().map(Some)
        } else {
            Ok(None)
        }
    }

    /// The octets of a BIT STRING; unused bits are an error.
    pub(crate) fn bit_string(&mut self) -> Result<&'a [u8], BadDer> {
        match self.content(BIT_STRING)?.split_first() {
            Some((0, bits)) => Ok(bits),
            _ => Err(BadDer),
        }
    }

    /// A small number that is not negative.
    pub(crate) fn number(&mut self) -> Result<u32, BadDer> {
        let bytes = unsigned(self.content(INTEGER)?);
        if bytes.len() > 4 {
            return Err(BadDer);
        }
        Ok(bytes
            .iter()
            .fold(0, |sum, &byte| sum << 8 | u32::from(byte)))
    }

    /// Fails if any bytes are left.
    pub(crate) fn end(&self) -> Result<(), BadDer> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(BadDer)
        }
    }
}

/// A reader inside the single element that `bytes` must be.
pub(crate) fn only(bytes: &[u8], tag: u8) -> Result<Reader<'_>, BadDer> {
    let mut reader = Reader::new(bytes);
    let inside = reader.inside(tag)?;
    reader.end()?;
    Ok(inside)
}

/// An INTEGER's bytes without the zeros in front.
pub(crate) fn unsigned(integer: &[u8]) -> &[u8] {
    let zeros = integer.iter().take_while(|&&byte| byte == 0).count();
    &integer[zeros..]
}

/// An object identifier in dotted form.
pub(crate) fn dotted(oid: &[u8]) -> String {
    let mut text = String::new();
    let mut arc: u64 = 0;
    for &byte in oid {
        // An arc that overflows belongs to no identifier that anyone has registered.
        arc = arc.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let root = (arc / 40).min(2);
            text = format!("{root}.{}", arc - 40 * root);
        } else {
            text.push('.');
            text.push_str(&arc.to_string());
        }
        arc = 0;
    }
    text
}

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
        _ => digits(unsigned(integer)),
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
    fn elements_are_read_one_by_one() {
        let bytes = [0x30, 5, 2, 1, 7, 4, 0, 0x05, 0];
        let mut outer = Reader::new(&bytes);
        let mut inner = outer.inside(SEQUENCE).expect("a sequence");
        assert_eq!(inner.number(), Ok(7));
        assert_eq!(inner.optional(OID).expect("nothing broken"), None);
        assert_eq!(inner.content(OCTET_STRING), Ok(&[][..]));
        assert_eq!(inner.end(), Ok(()));
        assert_eq!(outer.end(), Err(BadDer));
    }

    #[test]
    fn long_lengths_are_read_and_lies_refused() {
        let mut long = vec![4, 0x82, 1, 0];
        long.extend([9; 256]);
        assert_eq!(
            Reader::new(&long).content(OCTET_STRING).map(<[u8]>::len),
            Ok(256)
        );
        long.pop();
        for bad in [
            &long[..],
            &[4],
            &[4, 0x80, 0, 0],
            &[4, 0x85, 0, 0, 0, 0, 0],
            &[0x1f, 1, 0],
        ] {
            assert_eq!(Reader::new(bad).any(), Err(BadDer), "{bad:02x?}");
        }
    }

    #[test]
    fn identifiers_are_dotted() {
        assert_eq!(dotted(&[0x55, 4, 3]), "2.5.4.3");
        assert_eq!(
            dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]),
            "1.2.840.113549.1.9.1"
        );
        assert_eq!(dotted(&[0x88, 0x37, 3]), "2.999.3");
    }

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
