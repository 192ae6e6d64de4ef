//! Randomness without security needs: order, labels, proxy nonces.

use std::fs::File;
use std::io::{self, Read as _};

/// Returns bytes from the kernel's generator.
pub(super) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Formats bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Shuffles a list; leaves it as it is if the kernel provides no randomness.
pub(super) fn shuffle<T>(list: &mut [T]) {
    for last in (1..list.len()).rev() {
        let Ok(bytes) = bytes::<8>() else { return };
        // The modulo bias is negligible.
        let pick = u64::from_ne_bytes(bytes) % (last as u64 + 1);
        list.swap(last, pick as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut list: Vec<u32> = (0..50).collect();
        shuffle(&mut list);
        // The list stays sorted with a probability of 1 in 50!.
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
        assert_eq!(hex(&[0, 0xaf]), "00af");
    }
}
