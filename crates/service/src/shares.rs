//! Divides bounded room among strangers, so that a crowd leaves some for others.

use std::collections::HashMap;

use plane::SourceNetwork;

/// Bytes of a bounded room in use, by source. Every source has an equal share, and one more share stays free for the
/// first packets of a new source.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    taken: usize,
    by_source: HashMap<SourceNetwork, usize>,
}

impl Shares {
    /// Takes `bytes` of a room of `room` bytes. Returns false if that exceeds the source's share.
    pub(crate) fn take(&mut self, source: SourceNetwork, bytes: usize, room: usize) -> bool {
        let of_source = self.by_source.get(&source).copied().unwrap_or(0);
        let sources = self.by_source.len() + usize::from(of_source == 0);
        // The first packet of a source is accepted if there is room for it at all.
        let share = (room / (sources + 1)).max(bytes);
        if self.taken + bytes > room || of_source + bytes > share {
            return false;
        }
        self.taken += bytes;
        self.by_source.insert(source, of_source + bytes);
        true
    }

    /// Bytes in use.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// Returns bytes that a source no longer uses.
    pub(crate) fn give_back(&mut self, source: SourceNetwork, bytes: usize) {
        self.taken -= bytes;
        if let Some(of_source) = self.by_source.get_mut(&source) {
            *of_source -= bytes;
            if *of_source == 0 {
                self.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn crowds_leave_room_for_others() {
        let source = |host: u8| SourceNetwork::from(SocketAddr::from(([192, 0, 2, host], 1194)));
        for crowd in [1, 2, 10, 100] {
            let (mut shares, mut taken) = (Shares::default(), Vec::new());
            let mut take = |host: u8, bytes| {
                let fits = shares.take(source(host), bytes, 500_000);
                taken.extend(fits.then_some((source(host), bytes)));
                fits
            };
            for _ in 0..5000 {
                (0..crowd).for_each(|host| _ = take(host, 128));
            }
            // A client's messages that answer a certificate.
            assert!([1200, 1200, 700].iter().all(|it| take(200, *it)), "{crowd}");
            assert!(taken.len() * 128 >= 500_000 / 3, "{crowd}: {}", taken.len());
            for (source, bytes) in taken {
                shares.give_back(source, bytes);
            }
            assert!(shares.taken == 0 && shares.by_source.is_empty());
        }
    }
}
