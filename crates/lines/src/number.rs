//! Numbers of 32 bits, extended to 64, so that later code need not handle wrapping.

/// Extends numbers of 32 bits to 64 by the greatest accepted one.
///
/// A number is extended to the value nearest to the greatest so far, as in RFC 4303 appendix A2: at most 2^31 - 1 in
/// front of it, at most 2^31 behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    greatest: Option<u64>,
}

impl Extender {
    /// Makes an extender that has seen nothing. The first number is used as it is.
    #[must_use]
    pub const fn new() -> Self {
        Self { greatest: None }
    }

    /// Returns the number whose low 32 bits are `low`; `None` if it would be below 0.
    ///
    /// This changes nothing: call [`Self::taken`] once the packet has proved to be authentic, or to be in its window.
    #[must_use]
    pub const fn extend(&self, low: u32) -> Option<u64> {
        let Some(greatest) = self.greatest else {
            return Some(low as u64);
        };
        // The wrapped difference, read as a signed number, is the shorter way between the two.
        let ahead = low.wrapping_sub(greatest as u32).cast_signed();
        greatest.checked_add_signed(ahead as i64)
    }

    /// Notes that the packet with this number, which [`Self::extend`] returned, was good.
    pub const fn taken(&mut self, number: u64) {
        match self.greatest {
            Some(greatest) if greatest >= number => {}
            _ => self.greatest = Some(number),
        }
    }

    /// Forgets the greatest number, because the peer has begun anew: the next number is used as it is.
    pub const fn restart(&mut self) {
        self.greatest = None;
    }
}

/// The numbers of a line's own packets, where the peer numbers packets for each line. They show the line's loss
/// exactly, whatever share of the packets it carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineNumbers {
    span: Option<(u64, u64)>,
    received: u64,
}

impl LineNumbers {
    /// The numbers of a line that has delivered nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            span: None,
            received: 0,
        }
    }

    /// Notes the first packet with this number.
    pub fn received(&mut self, number: u64) {
        let (least, greatest) = self.span.unwrap_or((number, number));
        self.span = Some((least.min(number), greatest.max(number)));
        self.received += 1;
    }

    /// The number of packets between the least and the greatest number that have not come.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.span.map_or(0, |(least, greatest)| {
            (greatest - least)
                .saturating_add(1)
                .saturating_sub(self.received)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_number_before_the_wrap_may_be_lost() {
        let mut extender = Extender::new();
        extender.taken(0xffff_fffe);
        assert_eq!(extender.extend(0), Some(1 << 32));
        extender.taken(1 << 32);
        assert_eq!(extender.extend(0xffff_ffff), Some(0xffff_ffff));
        assert_eq!(extender.extend(1), Some((1 << 32) + 1));
    }

    #[test]
    fn nothing_is_below_zero() {
        let mut extender = Extender::new();
        extender.taken(5);
        assert_eq!(extender.extend(0xffff_ffff), None);
        assert_eq!(extender.extend(0), Some(0));
    }

    #[test]
    fn after_a_restart_the_first_number_is_taken_as_it_is() {
        let mut extender = Extender::new();
        extender.taken(7 << 32);
        extender.restart();
        assert_eq!(extender.extend(3), Some(3));
    }

    #[test]
    fn a_lines_own_numbers_tell_its_loss() {
        let mut line = LineNumbers::new();
        assert_eq!(line.lost(), 0);
        for number in [7, 5, 9, 12] {
            line.received(number);
        }
        assert_eq!(line.lost(), 4, "6, 8, 10 and 11");
    }

    proptest! {
        #[test]
        fn a_number_near_the_greatest_is_found_again(greatest in any::<u64>(), ahead in -(1_i64 << 31)..(1 << 31)) {
            let mut extender = Extender::new();
            extender.taken(greatest);
            if let Some(number) = greatest.checked_add_signed(ahead) {
                prop_assert_eq!(extender.extend(number as u32), Some(number));
            }
        }

        #[test]
        fn a_walk_of_any_steps_is_followed(start in any::<u32>(), steps in prop::collection::vec(-5000_i64..0x4000_0000, 1..200)) {
            let mut extender = Extender::new();
            let mut number = u64::from(start);
            extender.taken(number);
            for step in steps {
                let Some(next) = number.checked_add_signed(step) else { continue };
                prop_assert_eq!(extender.extend(next as u32), Some(next));
                extender.taken(next);
                number = number.max(next);
            }
        }
    }
}
