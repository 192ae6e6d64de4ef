//! Computes digits of pi and e with small integers and a division at every step.
//!
//! Both write a number in places of different bases. Each step multiplies all places by ten (or ten thousand), from
//! the last to the first, with a carry. The carry out of the first place is the next decimal digit (or four). The
//! compiler does not know the bases, so it cannot replace the divisions; without a division instruction, each is a
//! call. crates/crypto/tools/flags/system.c is the same in C.

/// Places for four digits of pi: log2(10000) rounded up, because each place adds one bit.
const PI_PLACES: usize = 14;

/// Returns `digits` digits of pi, the 3 included; `digits` is a multiple of four.
///
/// pi = 2 + 1/3 (2 + 2/5 (2 + 3/7 (2 + ...))). With 2400 digits, everything fits 32 bits.
pub(super) fn pi(digits: usize) -> Vec<u8> {
    let mut places = vec![2000_u32; digits / 4 * PI_PLACES];
    let mut out = Vec::with_capacity(digits);
    let mut held = 0;
    while !places.is_empty() {
        let (mut carry, mut place) = (0, places.len() as u32);
        for slot in places.iter_mut().rev() {
            let (value, base) = (carry * place + *slot * 10_000, 2 * place - 1);
            *slot = value % base;
            carry = value / base;
            place -= 1;
        }
        let four = held + carry / 10_000;
        held = carry % 10_000;
        out.extend([1000, 100, 10, 1].map(|unit| b'0' + (four / unit % 10) as u8));
        places.truncate(places.len() - PI_PLACES);
    }
    out
}

/// Returns the digits of e after the point, nine fewer than places, because the last ones are inexact.
///
/// e - 2 = 1/2! + 1/3! + ...: places with the bases 2, 3, 4 and so on, all with the digit 1.
pub(super) fn e(places: usize) -> Vec<u8> {
    // The first place stands for 1/2!.
    let mut slots = vec![1_u32; places.saturating_sub(2)];
    let digits = places.saturating_sub(9);
    let mut out = Vec::with_capacity(digits);
    for _ in 0..digits {
        let (mut carry, mut base) = (0, slots.len() as u32 + 1);
        for slot in slots.iter_mut().rev() {
            let value = 10 * *slot + carry;
            *slot = value % base;
            carry = value / base;
            base -= 1;
        }
        out.push(b'0' + carry as u8);
        slots.pop();
    }
    out
}

/// Computes the 32-bit FNV-1a hash, to check digits.
pub(super) fn sum(digits: &[u8]) -> u32 {
    digits.iter().fold(0x811c_9dc5, |sum, &digit| {
        (sum ^ u32::from(digit)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::system::{E_PLACES, E_SUM, PI_DIGITS, PI_SUM};

    /// A number from 0 to below 10^9: the integer part, then groups of nine decimals.
    #[derive(Clone)]
    struct Long(Vec<u64>);

    const GROUP: u64 = 1_000_000_000;

    impl Long {
        fn new(whole: u64, digits: usize) -> Self {
            let mut groups = vec![0; digits / 9 + 4];
            groups[0] = whole;
            Self(groups)
        }

        fn divide(&mut self, by: u64) {
            let mut rest = 0;
            for group in &mut self.0 {
                let value = rest * GROUP + *group;
                *group = value / by;
                rest = value % by;
            }
        }

        fn multiply(&mut self, by: u64) {
            let mut carry = 0;
            for group in self.0.iter_mut().rev() {
                let value = *group * by + carry;
                *group = value % GROUP;
                carry = value / GROUP;
            }
        }

        fn add(&mut self, other: &Self) {
            let mut carry = 0;
            for (group, more) in self.0.iter_mut().zip(&other.0).rev() {
                let value = *group + more + carry;
                *group = value % GROUP;
                carry = value / GROUP;
            }
        }

        fn subtract(&mut self, other: &Self) {
            let mut borrow = 0;
            for (group, less) in self.0.iter_mut().zip(&other.0).rev() {
                let value = *group + GROUP - less - borrow;
                *group = value % GROUP;
                borrow = 1 - value / GROUP;
            }
        }

        fn is_zero(&self) -> bool {
            self.0.iter().all(|&group| group == 0)
        }

        /// Formats the integer part and `digits` decimals.
        fn text(&self, digits: usize) -> String {
            let behind: String = self.0[1..].iter().map(|one| format!("{one:09}")).collect();
            format!("{}{}", self.0[0], &behind[..digits])
        }
    }

    /// arctan(1 / x) = 1/x - 1/3x^3 + 1/5x^5 - ...
    fn arctangent(x: u64, digits: usize) -> Long {
        let (mut power, mut sum) = (Long::new(1, digits), Long::new(0, digits));
        power.divide(x);
        for turn in 0.. {
            if power.is_zero() {
                break;
            }
            let mut term = power.clone();
            term.divide(2 * turn + 1);
            match turn % 2 {
                0 => sum.add(&term),
                _ => sum.subtract(&term),
            }
            power.divide(x * x);
        }
        sum
    }

    /// Machin's formula: pi = 16 arctan(1/5) - 4 arctan(1/239).
    #[test]
    fn pi_is_what_another_formula_gives() {
        let mut wanted = arctangent(5, PI_DIGITS);
        wanted.multiply(4);
        wanted.subtract(&arctangent(239, PI_DIGITS));
        wanted.multiply(4);
        let wanted = wanted.text(PI_DIGITS - 1);
        assert!(wanted.starts_with("314159265358979323846264338327950288419716939937510"));
        let digits = pi(PI_DIGITS);
        assert_eq!(String::from_utf8(digits.clone()).unwrap(), wanted);
        assert_eq!(sum(&digits), PI_SUM);
    }

    #[test]
    fn e_is_what_the_sum_of_its_terms_gives() {
        let digits = e(E_PLACES);
        let (mut term, mut wanted) = (Long::new(1, E_PLACES), Long::new(0, E_PLACES));
        for next in 1.. {
            if term.is_zero() {
                break;
            }
            wanted.add(&term);
            term.divide(next);
        }
        let wanted = wanted.text(digits.len());
        assert!(wanted.starts_with("271828182845904523536028747135266249775724709369995"));
        assert_eq!(String::from_utf8(digits.clone()).unwrap(), wanted[1..]);
        assert_eq!(sum(&digits), E_SUM);
    }

    #[test]
    fn few_digits_are_right_too() {
        assert_eq!(pi(4), b"3141");
        assert_eq!(pi(12), b"314159265358");
        assert_eq!(e(20), b"71828182845");
        assert_eq!(e(3), b"");
        assert_eq!(pi(0), b"");
    }

    #[test]
    fn the_sum_is_that_of_fnv() {
        // From the published test suite of FNV-1a.
        assert_eq!(sum(b""), 0x811c_9dc5);
        assert_eq!(sum(b"a"), 0xe40c_292c);
        assert_eq!(sum(b"foobar"), 0xbf9c_f968);
    }
}
