//! Does one step on the host, checks whether it is done already, and undoes it.

use std::io;

use netio::netlink::masquerade::Masquerade;
use netio::netlink::{NetlinkError, Route, Rule};

use super::{ApplyError, absent_is_fine};
use crate::journal::Journal;
use crate::step::Step;
use crate::system::System;
use crate::ways::metric_of;

/// Does the step for the interface `ifname` of index `dev`.
pub(super) fn execute(
    step: &Step,
    ifname: &str,
    dev: u32,
    system: &mut dyn System,
) -> Result<(), ApplyError> {
    match step {
        Step::Address { addr, prefix, peer } => system.add_address(dev, *addr, *prefix, *peer)?,
        Step::Mtu { mtu } => system.set_mtu(dev, *mtu)?,
        Step::Up => system.set_up(dev)?,
        Step::Dns { resolver, wanted } => system.set_dns(resolver, ifname, wanted)?,
        Step::Route { first, .. } => {
            if let Some(route) = step.route(Some(dev)) {
                add(&route, *first, system).map_err(|error| taken(error, &route, system))?;
            }
        }
        Step::OuterRoute { .. } | Step::Unreachable { .. } => {
            if let Some(route) = step.route(Some(dev)) {
                system.add_route(&route)?;
            }
        }
        Step::Displace(saved) => absent_is_fine(system.delete_route(&saved.route()))?,
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => {
            if let Some(rule) = step.rule() {
                system.add_rule(&rule)?;
            }
        }
        Step::Sysctl { key, value, .. } => set_sysctl(system, key, value)?,
        Step::Masquerade {
            interface,
            sources,
            except,
        } => system.masquerade(&Masquerade {
            table: &Step::table_of(interface),
            interface,
            sources,
            except,
        })?,
    }
    Ok(())
}

/// Adds a route into the tunnel. With `first` an IPv4 route goes before other programs' equal routes, as OpenVPN does.
/// If the first of those is the tunnel's own, such as its network's, no route is added.
pub(super) fn add(route: &Route, first: bool, system: &mut dyn System) -> Result<(), NetlinkError> {
    match system.add_route(route) {
        Err(error) if first && error.is_exists() => {
            let routes = system.routes(Some(route.table))?;
            let equal = |it: &&Route| {
                let key = |it: &Route| (it.dst, it.prefix, metric_of(it));
                key(it) == key(route)
            };
            match routes.iter().find(equal) {
                Some(found) if found.dev == route.dev => Ok(()),
                Some(_) if route.dst.is_ipv4() => system.prepend_route(route),
                _ => Err(error),
            }
        }
        outcome => outcome,
    }
}

/// Names the interface of the equal route that keeps the host from adding this one.
fn taken(error: NetlinkError, route: &Route, system: &mut dyn System) -> ApplyError {
    let dev_of_equal = || {
        let routes = system.routes(Some(route.table)).ok()?;
        let equal = |it: &&Route| (it.dst, it.prefix) == (route.dst, route.prefix);
        let dev = routes.iter().find(equal)?.dev?;
        Some(system.device(dev).ok()?.0)
    };
    match error.is_exists().then(dev_of_equal).flatten() {
        Some(dev) => ApplyError::Taken {
            network: format!("{}/{}", route.dst, route.prefix),
            dev,
        },
        None => error.into(),
    }
}

/// True when the host already has what the step would make.
pub(super) fn exists(step: &Step, system: &mut dyn System) -> Result<bool, ApplyError> {
    Ok(match step {
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => match step.rule() {
            None => false,
            Some(wanted) => system.rules(wanted.family)?.iter().any(|rule| {
                // The kernel reports the mask of every mark.
                let rule = Rule {
                    mask: None,
                    ..*rule
                };
                rule == wanted
            }),
        },
        Step::Sysctl { key, value, .. } => system.sysctl(key).as_ref() == Some(value),
        _ => false,
    })
}

/// Undoes all steps in reverse order, and returns the errors. `journal` is the interface's; the journals of other
/// tunnels are in the same directory.
pub(super) fn revert(
    steps: &[Step],
    ifname: &str,
    system: &mut dyn System,
    journal: &Journal,
) -> Vec<ApplyError> {
    let dev = system.index_of(ifname).ok();
    let alive = journal.others().into_iter().filter(|other| other.alive);
    let needed: Vec<Step> = alive.flat_map(|other| other.steps).collect();
    let mut errors = Vec::new();
    for step in steps.iter().rev() {
        // Another tunnel needs this step, and has recorded it.
        if needed.iter().any(|other| other.is_shared_with(step)) {
            continue;
        }
        errors.extend(revert_one(step, ifname, dev, system).err());
    }
    errors
}

fn revert_one(
    step: &Step,
    ifname: &str,
    dev: Option<u32>,
    system: &mut dyn System,
) -> Result<(), ApplyError> {
    match step {
        Step::Mtu { .. } | Step::Up => Ok(()),
        Step::Dns { resolver, .. } => Ok(system.unset_dns(resolver, ifname)?),
        Step::Address { addr, prefix, peer } => match dev {
            None => Ok(()),
            Some(dev) => absent_is_fine(system.remove_address(dev, *addr, *prefix, *peer)),
        },
        Step::Route { .. } if dev.is_none() => Ok(()),
        Step::Route { .. } | Step::OuterRoute { .. } | Step::Unreachable { .. } => {
            match step.route(dev) {
                // Deletes by the actual metric, which the kernel may have chosen: the host may have its own route to
                // the same destination.
                Some(route) => absent_is_fine(system.delete_route(&Route {
                    metric: Some(metric_of(&route)),
                    ..route
                })),
                None => Ok(()),
            }
        }
        Step::Displace(saved) => match system.add_route(&saved.route()) {
            // A newer route has taken the place of the displaced one, and stays.
            Err(error) if error.is_exists() => Ok(()),
            other => Ok(other?),
        },
        Step::UnmarkedRule { .. } | Step::MainRule { .. } => match step.rule() {
            Some(rule) => absent_is_fine(system.delete_rule(&rule)),
            None => Ok(()),
        },
        Step::Sysctl { key, before, .. } => match set_sysctl(system, key, before) {
            // The interface is gone, and its settings with it.
            Err(ApplyError::Sysctl { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            other => other,
        },
        Step::Masquerade { interface, .. } => {
            absent_is_fine(system.delete_table(&Step::table_of(interface)))
        }
    }
}

pub(super) fn set_sysctl(
    system: &mut dyn System,
    key: &str,
    value: &str,
) -> Result<(), ApplyError> {
    let outcome = system.set_sysctl(key, value);
    outcome.map_err(|error| ApplyError::Sysctl {
        key: key.to_owned(),
        error,
    })
}
