//! Does the steps of a plan, and undoes them.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use netio::netlink::{Family, Netlink, NetlinkError, Route, Rule};
use thiserror::Error;

use super::dns::DnsError;
use super::facts::sysctl;
use super::journal::{DIRECTORY, Journal, JournalError};
use super::plan::{MAIN, Plan, Step};

/// Why a plan could not be applied, or not be undone. What had been done before it has been
/// undone.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ApplyError {
    /// The kernel refused a change.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The name servers.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A setting below `/proc/sys`.
    #[error("/proc/sys/{key}: {error}")]
    Sysctl {
        /// The setting.
        key: String,
        /// What the kernel said.
        error: io::Error,
    },
}

/// A plan that is in force. Dropping it undoes it too, but only [`Applied::undo`] says how that
/// went.
#[derive(Debug)]
pub(crate) struct Applied {
    ifname: String,
    /// What has been done and outlives the interface, in order.
    done: Vec<Step>,
    /// Gone once the steps have been undone.
    journal: Option<Journal>,
}

impl Applied {
    /// Applies `plan` to the interface, which must exist, in the namespace of `netlink`, which
    /// must be the process's own. The tunnel's sockets must have the plan's mark already.
    ///
    /// # Errors
    /// The first step that failed; the steps before it have been undone.
    pub(crate) fn apply(
        plan: &Plan,
        ifname: &str,
        netlink: &mut Netlink,
    ) -> Result<Self, ApplyError> {
        Self::apply_in(Path::new(DIRECTORY), plan, ifname, netlink)
    }

    fn apply_in(
        directory: &Path,
        plan: &Plan,
        ifname: &str,
        netlink: &mut Netlink,
    ) -> Result<Self, ApplyError> {
        let dev = netlink.index_of(ifname)?;
        let mut applied = Self {
            ifname: ifname.to_owned(),
            done: Vec::new(),
            journal: Some(recovered(directory, ifname, netlink)?),
        };
        for step in &plan.steps {
            if let Err(error) = applied.step(step, dev, netlink) {
                for undo in applied.take_back(netlink) {
                    log::warn!("{ifname}: {undo}");
                }
                return Err(error);
            }
        }
        Ok(applied)
    }

    fn step(&mut self, step: &Step, dev: u32, netlink: &mut Netlink) -> Result<(), ApplyError> {
        // What somebody else made is not ours to take away later.
        if step.outlives_interface() && exists(step, netlink)? {
            log::debug!("{}: there already: {step:?}", self.ifname);
            return Ok(());
        }
        if step.outlives_interface() {
            if let Some(journal) = &mut self.journal {
                journal.record(step)?;
            }
            self.done.push(step.clone());
        }
        execute(step, &self.ifname, dev, netlink)
    }

    /// Takes everything back, in reverse order. Addresses and routes of the interface itself go
    /// with the interface.
    ///
    /// # Errors
    /// What could not be taken back; everything has been tried.
    pub(crate) fn undo(mut self) -> Result<(), Vec<ApplyError>> {
        let errors = match Netlink::open() {
            Ok(mut netlink) => self.take_back(&mut netlink),
            Err(error) => vec![error.into()],
        };
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    fn take_back(&mut self, netlink: &mut Netlink) -> Vec<ApplyError> {
        let Some(journal) = self.journal.take() else {
            return Vec::new();
        };
        let mut errors = revert(&self.done, &self.ifname, netlink, &journal);
        self.done.clear();
        // A journal of what could not be undone would only be tried again in vain.
        errors.extend(journal.remove().err().map(ApplyError::from));
        errors
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if self.journal.is_none() {
            return;
        }
        match Netlink::open() {
            Ok(mut netlink) => {
                for error in self.take_back(&mut netlink) {
                    log::warn!("{}: {error}", self.ifname);
                }
            }
            Err(error) => log::warn!("{}: {error}", self.ifname),
        }
    }
}

/// Undoes what a daemon left behind that was killed while it had `ifname` up. Says whether there
/// was anything.
///
/// # Errors
/// [`JournalError::Running`] when it lives.
pub(crate) fn recover(ifname: &str) -> Result<bool, ApplyError> {
    let path = Path::new(DIRECTORY);
    // Not to make a file only to remove it.
    if !path.join(format!("{ifname}.undo")).exists() {
        return Ok(false);
    }
    let mut netlink = Netlink::open()?;
    recovered(path, ifname, &mut netlink)?.remove()?;
    Ok(true)
}

/// The interface's journal, with what was left in it undone.
fn recovered(directory: &Path, ifname: &str, netlink: &mut Netlink) -> Result<Journal, ApplyError> {
    let (mut journal, left) = Journal::open(directory, ifname)?;
    if !left.is_empty() {
        log::warn!("{ifname}: undoing what a daemon left behind that was killed");
        for error in revert(&left, ifname, netlink, &journal) {
            log::warn!("{ifname}: {error}");
        }
    }
    journal.clear()?;
    Ok(journal)
}

fn execute(step: &Step, ifname: &str, dev: u32, netlink: &mut Netlink) -> Result<(), ApplyError> {
    match step {
        Step::Address { addr, prefix } => netlink.add_address(dev, *addr, *prefix)?,
        Step::Mtu { mtu } => netlink.set_mtu(dev, *mtu)?,
        Step::Up => netlink.set_up(dev)?,
        Step::Route { dst, prefix, table } => {
            netlink.add_route(&Route::new(*dst, *prefix).dev(dev).table(*table))?;
        }
        Step::Dns {
            resolver,
            servers,
            search,
        } => resolver.set(ifname, servers, search)?,
        Step::HostRoute { dst, via, dev } => netlink.add_route(&host_route(*dst, *via, *dev))?,
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => {
            if let Some(rule) = rule(step) {
                netlink.add_rule(&rule)?;
            }
        }
        // Read-only in many containers, where the filter that looks at it is off as well.
        Step::Sysctl { key, value, .. } => {
            if let Err(error) = set_sysctl(key, value) {
                log::warn!("{ifname}: {error}; a strict rp_filter may drop the server's answers");
            }
        }
    }
    Ok(())
}

/// True when the host has already what the step would make.
fn exists(step: &Step, netlink: &mut Netlink) -> Result<bool, ApplyError> {
    Ok(match step {
        Step::HostRoute { dst, via, dev } => {
            let wanted = host_route(*dst, *via, *dev);
            netlink
                .routes(Some(MAIN))?
                .iter()
                .any(|route| route.dst == wanted.dst && route.prefix == wanted.prefix)
        }
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => match rule(step) {
            None => false,
            Some(wanted) => netlink.rules(wanted.family)?.iter().any(|rule| {
                // Where there is a mark the kernel tells its mask too.
                let rule = Rule {
                    mask: None,
                    ..*rule
                };
                rule == wanted
            }),
        },
        Step::Sysctl { key, value, .. } => sysctl(key).as_ref() == Some(value),
        _ => false,
    })
}

/// Undoes the steps in reverse order, tries all, and gives what failed.
fn revert(
    steps: &[Step],
    ifname: &str,
    netlink: &mut Netlink,
    journal: &Journal,
) -> Vec<ApplyError> {
    let undone = steps.iter().rev().map(|step| match step {
        Step::Dns { resolver, .. } => Ok(resolver.unset(ifname)?),
        Step::HostRoute { dst, via, dev } => {
            absent_is_fine(netlink.delete_route(&host_route(*dst, *via, *dev)))
        }
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => match rule(step) {
            Some(rule) => absent_is_fine(netlink.delete_rule(&rule)),
            None => Ok(()),
        },
        // Another tunnel may have come to need it.
        Step::Sysctl { key, before, .. } if journal.is_alone() => set_sysctl(key, before),
        _ => Ok(()),
    });
    undone.filter_map(Result::err).collect()
}

/// The step may have been recorded and not done, or undone by the user.
fn absent_is_fine(outcome: Result<(), NetlinkError>) -> Result<(), ApplyError> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        other => Ok(other?),
    }
}

fn host_route(dst: IpAddr, via: Option<IpAddr>, dev: u32) -> Route {
    let route = Route::new(dst, Family::of(dst).bits()).dev(dev);
    match via {
        Some(via) => route.via(via),
        None => route,
    }
}

/// The rule of a step that is about one.
fn rule(step: &Step) -> Option<Rule> {
    let family = |v6: bool| if v6 { Family::V6 } else { Family::V4 };
    match *step {
        Step::UnmarkedRule {
            v6,
            mark,
            table,
            priority,
        } => Some(Rule {
            priority: Some(priority),
            ..Rule::not_marked(family(v6), mark, table)
        }),
        Step::MainRule { v6, priority } => Some(Rule {
            priority: Some(priority),
            ..Rule::main_without_default(family(v6))
        }),
        _ => None,
    }
}

fn set_sysctl(key: &str, value: &str) -> Result<(), ApplyError> {
    fs::write(Path::new("/proc/sys").join(key), value).map_err(|error| ApplyError::Sysctl {
        key: key.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use config::wgquick;
    use lab::Host;
    use netio::netlink::VethEnd;

    use super::super::facts::Facts;
    use super::super::plan::Options;
    use super::*;

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        Address = 10.0.0.2/24, fd00::2/64\n[Peer]\n\
        PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
        AllowedIPs = 0.0.0.0/0, ::/0, 192.168.77.0/24\n";

    const ENDPOINT: &str = "192.0.2.1:51820";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A host with one line to the world, and an interface that stands for the tunnel.
    fn make_lines(netlink: &mut Netlink) {
        for (name, other) in [("wg0", "wg0-far"), ("wan", "wan-far")] {
            netlink
                .create_veth(VethEnd::new(name), VethEnd::new(other))
                .unwrap();
            let far = netlink.index_of(other).unwrap();
            netlink.set_up(far).unwrap();
        }
        let wan = netlink.index_of("wan").unwrap();
        netlink.set_up(wan).unwrap();
        netlink.add_address(wan, ip("198.51.100.2"), 24).unwrap();
        let default = Route::default_of(Family::V4).via(ip("198.51.100.1"));
        netlink.add_route(&default).unwrap();
    }

    fn plan(netlink: &mut Netlink, adjust: impl FnOnce(&mut Facts)) -> Plan {
        let import = wgquick::parse(FILE, "wg0.conf", wgquick::Options::default());
        let tunnel = import.into_tunnel().unwrap().0;
        let endpoints = [ENDPOINT.parse().unwrap()];
        let mut facts = Facts::gather(&tunnel, &endpoints, netlink).unwrap();
        adjust(&mut facts);
        Plan::new(&tunnel, &facts, Options::default()).unwrap()
    }

    fn state(netlink: &mut Netlink) -> impl PartialEq + std::fmt::Debug + use<> {
        let tunnels = ["wg0", "wg0-far"].map(|name| netlink.index_of(name).ok());
        let rules = [Family::V4, Family::V6].map(|family| netlink.rules(family).unwrap());
        let mut routes = netlink.routes(None).unwrap();
        // IPv6 gives every interface routes of its own whenever it is ready.
        routes.retain(|route| route.dst.is_ipv4() && !tunnels.contains(&route.dev));
        (rules, routes, sysctl(super::super::plan::SRC_VALID_MARK))
    }

    fn dev_to(netlink: &mut Netlink, to: &str, mark: u32) -> String {
        let way = netlink.route_get(ip(to), mark).unwrap();
        netlink.name_of(way.dev).unwrap()
    }

    /// Runs `test` in a host of its own, with a journal directory; says why it cannot.
    fn in_host(name: &str, test: impl FnOnce(&mut Netlink, &Path) + Send) {
        let host = match Host::new(name) {
            Ok(host) => host,
            Err(error) => return eprintln!("skipped, needs network namespaces: {error}"),
        };
        let directory =
            std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        host.run(|| {
            let mut netlink = Netlink::open().unwrap();
            make_lines(&mut netlink);
            test(&mut netlink, &directory);
        })
        .unwrap();
        let left = fs::read_dir(&directory).map_or(0, Iterator::count);
        let _ = fs::remove_dir_all(&directory);
        assert_eq!(left, 0, "a journal is left");
    }

    #[test]
    fn a_full_tunnel_is_made_and_taken_back() {
        in_host("apply", |netlink, directory| {
            let before = state(netlink);
            let plan = plan(netlink, |facts| assert!(facts.suppress_prefixlength));
            assert_eq!((plan.mtu, plan.fwmark), (1420, 51820));
            let applied = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap();
            assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
            assert_eq!(dev_to(netlink, "2001:db8::1", 0), "wg0");
            assert_eq!(dev_to(netlink, "192.0.2.1", plan.fwmark), "wan");
            // What is on the link stays there.
            assert_eq!(dev_to(netlink, "198.51.100.7", 0), "wan");
            assert_eq!(netlink.link("wg0").unwrap().mtu, 1420);
            applied.undo().unwrap();
            assert_eq!(state(netlink), before);
        });
    }

    #[test]
    fn a_kernel_without_suppression_gets_halves() {
        in_host("halves", |netlink, directory| {
            let before = state(netlink);
            let plan = plan(netlink, |facts| facts.suppress_prefixlength = false);
            let applied = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap();
            assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0");
            assert_eq!(dev_to(netlink, "192.0.2.1", 0), "wan");
            applied.undo().unwrap();
            assert_eq!(state(netlink), before);
        });
    }

    #[test]
    fn a_killed_daemons_changes_are_undone_by_the_next() {
        in_host("killed", |netlink, directory| {
            let before = state(netlink);
            let plan = plan(netlink, |_| {});
            let mut applied = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap();
            // As the kernel does with a dead process's files.
            applied.journal = None;
            drop(applied);
            assert_ne!(state(netlink), before);
            recovered(directory, "wg0", netlink)
                .unwrap()
                .remove()
                .unwrap();
            assert_eq!(state(netlink), before);
        });
    }

    #[test]
    fn a_plan_that_fails_half_way_leaves_nothing() {
        in_host("half", |netlink, directory| {
            let before = state(netlink);
            let mut plan = plan(netlink, |_| {});
            let again = plan.steps[0].clone();
            plan.steps.push(again);
            let error = Applied::apply_in(directory, &plan, "wg0", netlink).unwrap_err();
            assert!(matches!(error, ApplyError::Netlink(error) if error.is_exists()));
            assert_eq!(state(netlink), before);
        });
    }

    #[test]
    fn two_full_tunnels_do_not_take_each_others_rules() {
        in_host("two", |netlink, directory| {
            let before = state(netlink);
            let first = plan(netlink, |_| {});
            let first = Applied::apply_in(directory, &first, "wg0", netlink).unwrap();
            let between = state(netlink);
            let mut second = plan(netlink, |_| {});
            // The same network by two interfaces is refused, as it should be.
            let network = |step: &Step| matches!(step, Step::Route { table: MAIN, .. });
            second.steps.retain(|step| !network(step));
            assert_eq!(second.fwmark, 51821);
            let second = Applied::apply_in(directory, &second, "wg0-far", netlink).unwrap();
            assert_eq!(dev_to(netlink, "8.8.8.8", 0), "wg0-far");
            second.undo().unwrap();
            assert_eq!(state(netlink), between);
            first.undo().unwrap();
            assert_eq!(state(netlink), before);
        });
    }
}
