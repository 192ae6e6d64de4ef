//! Inner flows whose packets may pass a gap.

/// Maximum number of a flow's packets that may overtake a missing one: fewer than the three duplicate acknowledgements
/// that TCP takes for a loss (RFC 5681 section 3.2).
pub(super) const OVERTAKING_MAX: usize = 2;

const FLOWS: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The greatest numbers that passed a gap, plus one, greatest first. 0 means none.
    passed: [u64; OVERTAKING_MAX],
    /// One more than the greatest number that was held.
    held: u64,
}

/// Remembers for each flow which packets passed a gap, and whether any wait.
///
/// Flows that share a place count as one: they overtake less, never more.
#[derive(Clone, Debug, Default)]
pub(super) struct Overtaking {
    /// Empty until the first packet comes behind a gap.
    flows: Vec<Flow>,
}

impl Overtaking {
    /// Whether packet `number` of the flow may pass `limit`, the least missing number.
    ///
    /// It may if no packet of its flow waits, and if fewer than [`OVERTAKING_MAX`] of its flow have passed `limit`.
    /// Packets that passed a greater missing number have passed `limit` too, so the bound holds for each missing
    /// number.
    pub(super) fn may_pass(&self, flow: u32, limit: u64) -> bool {
        let Some(flow) = self.flows.get(place_of(flow)) else {
            return true;
        };
        flow.held <= limit && flow.passed[OVERTAKING_MAX - 1] <= limit
    }

    pub(super) fn passed(&mut self, flow: u32, number: u64) {
        let flow = self.flow(flow);
        let mut entry = number + 1;
        for passed in &mut flow.passed {
            if *passed < entry {
                std::mem::swap(passed, &mut entry);
            }
        }
    }

    pub(super) fn held(&mut self, flow: u32, number: u64) {
        let flow = self.flow(flow);
        flow.held = flow.held.max(number + 1);
    }

    pub(super) fn restart(&mut self) {
        self.flows.fill(Flow::default());
    }

    fn flow(&mut self, flow: u32) -> &mut Flow {
        if self.flows.is_empty() {
            self.flows = vec![Flow::default(); FLOWS];
        }
        &mut self.flows[place_of(flow)]
    }
}

const fn place_of(flow: u32) -> usize {
    // The upper bits of a product depend on all bits of the flow.
    (flow.wrapping_mul(0x9e37_79b1) >> 24) as usize
}
const _: () = assert!(FLOWS == 1 << 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_packets_of_a_flow_pass_and_no_third() {
        let mut overtaking = Overtaking::default();
        for number in [11, 12] {
            assert!(overtaking.may_pass(7, 10));
            overtaking.passed(7, number);
        }
        assert!(!overtaking.may_pass(7, 10));
        assert!(overtaking.may_pass(8, 10), "another flow");
        assert!(overtaking.may_pass(7, 12), "one of them was above");
    }

    #[test]
    fn no_packet_passes_one_of_its_flow_that_waits() {
        let mut overtaking = Overtaking::default();
        overtaking.held(7, 12);
        assert!(!overtaking.may_pass(7, 10));
        assert!(!overtaking.may_pass(7, 12));
        assert!(overtaking.may_pass(7, 13), "it has gone");
    }
}
