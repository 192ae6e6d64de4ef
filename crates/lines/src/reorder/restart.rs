//! Decides whether numbers far from the window mean that the peer has begun anew.

use super::WINDOW;
use plane::LineId;

/// Packets of one line that must agree on a restart.
const AGREEING: u8 = 3;

/// Counts consecutive packets of one line that are out of reach.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restart {
    line: LineId,
    last: u64,
    count: u8,
}

impl Restart {
    /// Notes a packet out of reach. Returns whether it and those before it agree on a restart.
    pub(super) fn agrees(&mut self, line: LineId, number: u64) -> bool {
        let follows = self.count > 0
            && line == self.line
            && number > self.last
            && number - self.last <= WINDOW;
        self.count = if follows { self.count + 1 } else { 1 };
        self.line = line;
        self.last = number;
        if self.count < AGREEING {
            return false;
        }
        self.count = 0;
        true
    }

    /// Notes a packet within reach by this line, which refutes a restart.
    pub(super) fn refuted(&mut self, line: LineId) {
        if line == self.line {
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_that_follow_one_another_on_one_line_agree() {
        let (a, b) = (LineId(0), LineId(1));
        let mut restart = Restart::default();
        assert!(!restart.agrees(a, 1_000_000));
        assert!(!restart.agrees(a, 1_000_001));
        assert!(!restart.agrees(b, 1_000_002), "another line");
        assert!(!restart.agrees(a, 1_000_003));
        assert!(!restart.agrees(a, 1_000_003), "does not follow");
        assert!(!restart.agrees(a, 9_000_000), "too far");
        assert!(!restart.agrees(a, 9_000_004));
        restart.refuted(a);
        assert!(!restart.agrees(a, 9_000_005));
        assert!(!restart.agrees(a, 9_000_006));
        assert!(restart.agrees(a, 9_000_007));
    }
}
