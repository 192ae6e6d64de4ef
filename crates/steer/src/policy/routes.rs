//! Default routes: in each tunnel's table through the tunnel, in one more table through the uplink.

use netio::netlink::{Family, Link, Route, TABLE_MAIN};

use crate::facts::{FAMILIES, Facts};
use crate::policy::others::is_mwan3;
use crate::policy::resolved::Resolved;
use crate::way::lead;

/// Metric of the policy's routes: behind those that a tunnel makes itself.
pub(super) const METRIC: u32 = 9100;

/// The routes that settings request.
pub(super) fn wanted(resolved: &Resolved, facts: &Facts) -> Vec<Route> {
    let mut routes = Vec::new();
    for it in resolved.answering() {
        let Some(link) = facts.named(&it.device) else {
            continue;
        };
        for family in FAMILIES {
            // A device that is not a tunnel, such as a second uplink, has a gateway.
            let defaults = facts.defaults(TABLE_MAIN, family).into_iter();
            let mut own = defaults.filter(|it| it.prefix == 0 && it.dev == Some(link.index));
            let (via, onlink) = own.next().map_or((None, false), |it| (it.via, it.onlink));
            let route = lead(link, it.table, METRIC, facts, family);
            routes.extend(route.map(|it| Route { via, onlink, ..it }));
        }
    }
    if is_around(resolved, facts) {
        for line in lines(resolved, facts) {
            routes.push(Route {
                dev: line.dev,
                via: line.via,
                onlink: line.onlink,
                metric: Some(METRIC),
                ..Route::default_of(Family::of(line.dst)).table(resolved.policy.table)
            });
        }
    }
    routes
}

/// The preferred default route of each family that leads neither into a tunnel nor into the LAN.
fn lines<'f>(resolved: &Resolved, facts: &'f Facts) -> Vec<&'f Route> {
    let policy = &resolved.policy;
    let is_line = |link: &Link| !policy.is_tunnel(&link.name) && !policy.lan.contains(&link.name);
    let is_out = |it: &&Route| {
        let link = it.dev.and_then(|dev| facts.link(dev));
        it.prefix == 0 && link.is_some_and(is_line)
    };
    let of = |family| facts.defaults(TABLE_MAIN, family).into_iter().find(is_out);
    FAMILIES.into_iter().filter_map(of).collect()
}

/// The devices of uplinks, sorted. Empty if packets need no route around tunnels.
pub(super) fn line_devices(resolved: &Resolved, facts: &Facts) -> Vec<String> {
    if !is_around(resolved, facts) {
        return Vec::new();
    }
    let links = lines(resolved, facts).into_iter();
    let links = links.filter_map(|it| facts.link(it.dev?));
    let mut lines: Vec<String> = links.map(|link| link.name.clone()).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Whether packets need a route around tunnels: only if a tunnel has the host's default route. Beside mwan3, which
/// chooses an uplink for each packet, mwan3 decides.
pub(super) fn is_around(resolved: &Resolved, facts: &Facts) -> bool {
    is_any_full(resolved, facts) && !facts.rules().any(is_mwan3)
}

/// Whether a tunnel has the host's default route: in the main table, or by a rule for all packets without the tunnel's
/// own mark. `wg-quick` and this program make such a rule.
fn is_any_full(resolved: &Resolved, facts: &Facts) -> bool {
    let by_main = FAMILIES.into_iter().any(|family| {
        let mut defaults = facts.defaults(TABLE_MAIN, family).into_iter();
        let first = defaults.find_map(|it| facts.link(it.dev?));
        first.is_some_and(|link| resolved.policy.is_tunnel(&link.name))
    });
    by_main
        || facts
            .rules()
            .any(|it| it.invert && it.fwmark.is_some() && it.table != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{facts, link, resolved, route, tunnel};
    use netio::netlink::Rule;

    fn shown(facts: &Facts) -> Vec<String> {
        let routes = wanted(&resolved(), facts);
        routes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tunnel_that_is_up_is_led_into_in_the_families_that_it_has() {
        let mut facts = facts();
        assert!(shown(&facts).is_empty());
        facts.links.push(link(7, "mr-us", false));
        tunnel(&mut facts, 7, "10.8.0.2");
        assert!(shown(&facts).is_empty());
        facts.links.last_mut().unwrap().up = true;
        assert_eq!(
            shown(&facts),
            ["0.0.0.0/0 by interface number 7 in table 7701"]
        );
        tunnel(&mut facts, 7, "fd08::2");
        assert_eq!(shown(&facts).len(), 2);
    }

    #[test]
    fn what_goes_around_takes_the_line_and_no_tunnel() {
        let mut facts = facts();
        assert!(!is_any_full(&resolved(), &facts));
        facts.links.push(link(7, "mr-us", true));
        for half in ["0.0.0.0", "128.0.0.0"] {
            facts.main.push(route(half, 1, 7, 254));
        }
        facts.main.push(route("0.0.0.0", 0, 7, 254));
        assert!(is_any_full(&resolved(), &facts));
        assert_eq!(
            shown(&facts),
            ["0.0.0.0/0 via 198.51.100.1 by interface number 3 in table 7700"]
        );
        assert_eq!(line_devices(&resolved(), &facts), ["wan"]);
    }

    #[test]
    fn a_full_tunnel_of_wg_quick_is_known_by_its_rule() {
        let mut facts = facts();
        let rule = Rule::not_marked(Family::V4, 51820, 51820);
        facts.rules[0].as_mut().unwrap().push(rule);
        assert!(is_any_full(&resolved(), &facts));
    }
}
