//! Numbers within bytes, in either byte order.

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Big-endian; for bit fields this means that the first is at the top.
    pub(crate) big: bool,
}

/// The highest byte first.
pub(crate) const BIG: Order = Order { big: true };
/// The lowest byte first.
pub(crate) const LITTLE: Order = Order { big: false };

impl Order {
    /// The 16 bits at `at`; `None` if they reach beyond the end.
    #[inline]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = array(bytes, at)?;
        Some(match self.big {
            true => u16::from_be_bytes(bytes),
            false => u16::from_le_bytes(bytes),
        })
    }

    /// The 32 bits at `at`; `None` if they reach beyond the end.
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = array(bytes, at)?;
        Some(match self.big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    /// The 64 bits at `at`; `None` if they reach beyond the end.
    #[inline]
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = array(bytes, at)?;
        Some(match self.big {
            true => u64::from_be_bytes(bytes),
            false => u64::from_le_bytes(bytes),
        })
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
