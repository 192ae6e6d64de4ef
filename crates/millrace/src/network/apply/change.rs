//! From one plan to another while the tunnel is up.

use netio::netlink::Netlink;

use super::{Applied, ApplyError, absent_is_fine, revert};
use crate::network::plan::Plan;
use crate::network::step::Step;

impl Applied {
    /// Does what `new` has and `old`, which is in force, has not, and then takes back what only `old` has. What both
    /// have is not touched.
    ///
    /// Returns what failed; everything has been tried.
    pub(crate) fn change(
        &mut self,
        old: &Plan,
        new: &Plan,
        netlink: &mut Netlink,
    ) -> Vec<ApplyError> {
        let dev = match netlink.index_of(&self.ifname) {
            Ok(dev) => dev,
            Err(error) => return vec![error.into()],
        };
        let mut errors = Vec::new();
        for step in &new.steps {
            if !old.steps.contains(step) {
                errors.extend(self.step(step, dev, netlink).err());
            }
        }
        let has_dns = new.steps.iter().any(|it| matches!(it, Step::Dns { .. }));
        for step in old.steps.iter().rev() {
            if new.steps.contains(step) {
                continue;
            }
            // New name servers have taken the place of the old ones.
            if has_dns && matches!(step, Step::Dns { .. }) {
                self.done.retain(|done| done != step);
            } else {
                errors.extend(self.retire(step, dev, netlink).err());
            }
        }
        errors
    }

    /// Takes one step back. What others may rely on, a setting of the whole host, stays until the end.
    fn retire(&mut self, step: &Step, dev: u32, netlink: &mut Netlink) -> Result<(), ApplyError> {
        match step {
            Step::Address { addr, prefix } => {
                return absent_is_fine(netlink.remove_address(dev, *addr, *prefix));
            }
            Step::Route { .. } => {
                return match step.route(Some(dev)) {
                    Some(route) => absent_is_fine(netlink.delete_route(&route)),
                    None => Ok(()),
                };
            }
            _ => {}
        }
        // What was there before the tunnel is not the tunnel's to take away.
        let done = self.done.iter().any(|done| done == step);
        let (Some(journal), true) = (&self.journal, done) else {
            return Ok(());
        };
        if matches!(step, Step::Sysctl { .. }) {
            return Ok(());
        }
        let errors = revert(std::slice::from_ref(step), &self.ifname, netlink, journal);
        // The rest stays among what is undone in the end: another tunnel may have left it to this one, whose journal
        // goes on naming it.
        if matches!(step, Step::Dns { .. }) {
            self.done.retain(|done| done != step);
        }
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}
