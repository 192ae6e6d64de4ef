//! Default routes: in each tunnel's table through the tunnel, in one more table by the uplink.

use config::policy::Policy;
use netio::netlink::{Family, Link, Route, RouteKind};

use crate::policy::facts::{FAMILIES, Facts};
use crate::policy::ways::Ways;

/// Metric of the policy's routes: behind those that a tunnel makes itself.
pub const METRIC: u32 = 9100;

/// Longest prefix that counts as a default route: one half of IPv4, or the global IPv6 networks (2000::/3).
const DEFAULT_BITS: [u8; 2] = [1, 3];

/// Whether the policy has made a route.
pub(crate) fn is_ours(route: &Route) -> bool {
    route.prefix == 0 && route.metric == Some(METRIC)
}

/// The routes that settings ask for.
pub(crate) fn wanted(policy: &Policy, ways: &Ways, facts: &Facts, is_around: bool) -> Vec<Route> {
    let mut routes = Vec::new();
    for lead in ways.leads.iter().filter(|it| it.is_for_answers) {
        let link = facts
            .links
            .iter()
            .find(|it| it.name == lead.device && it.up);
        let Some(link) = link else { continue };
        for family in FAMILIES
            .into_iter()
            .filter(|it| facts.has_address(link.index, *it))
        {
            let mut route = Route::default_of(family).dev(link.index).table(lead.table);
            // A device that is not a tunnel, such as a second uplink, has a gateway.
            if let Some(own) = default_of(facts, link, family) {
                (route.via, route.onlink) = (own.via, own.onlink);
            }
            route.metric = Some(METRIC);
            routes.push(route);
        }
    }
    if is_around {
        for family in FAMILIES {
            if let Some(line) = line(policy, facts, family) {
                let mut route = Route::default_of(family).table(ways.table);
                (route.dev, route.via, route.onlink) = (line.dev, line.via, line.onlink);
                route.metric = Some(METRIC);
                routes.push(route);
            }
        }
    }
    routes
}

fn default_of<'f>(facts: &'f Facts, link: &Link, family: Family) -> Option<&'f Route> {
    let mut defaults = facts.main.iter().filter(|it| it.prefix == 0);
    defaults.find(|it| it.dev == Some(link.index) && Family::of(it.dst) == family)
}

/// The default routes of the main table, the preferred first.
fn defaults(facts: &Facts, family: Family) -> Vec<(&Route, &Link)> {
    let bits = DEFAULT_BITS[usize::from(family == Family::V6)];
    let routes = facts.main.iter();
    let mut found: Vec<(&Route, &Link)> = routes
        .filter(|it| Family::of(it.dst) == family && it.prefix <= bits)
        .filter(|it| it.kind == RouteKind::Unicast)
        .filter_map(|it| Some((it, facts.link(it.dev?)?)))
        .collect();
    found.sort_by_key(|(route, _)| (u8::MAX - route.prefix, route.metric.unwrap_or(0)));
    found
}

/// The preferred default route that leads neither into a tunnel nor into the LAN.
fn line<'f>(policy: &Policy, facts: &'f Facts, family: Family) -> Option<&'f Route> {
    let is_line = |link: &Link| !policy.is_tunnel(&link.name) && !policy.lan.contains(&link.name);
    defaults(facts, family)
        .into_iter()
        .find(|(route, link)| route.prefix == 0 && is_line(link))
        .map(|(route, _)| route)
}

/// The devices of uplinks, sorted.
pub(crate) fn lines(policy: &Policy, facts: &Facts) -> Vec<String> {
    let mut lines: Vec<String> = FAMILIES
        .into_iter()
        .filter_map(|family| facts.link(line(policy, facts, family)?.dev?))
        .map(|link| link.name.clone())
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Whether a tunnel has the host's default route: in the main table, or by a rule for all packets without the tunnel's
/// own mark. `wg-quick` and this program make such a rule.
pub(crate) fn is_any_full(policy: &Policy, facts: &Facts) -> bool {
    let by_main = FAMILIES.into_iter().any(|family| {
        let first = defaults(facts, family).into_iter().next();
        first.is_some_and(|(_, link)| policy.is_tunnel(&link.name))
    });
    let mut rules = facts.rules.iter().flatten().flatten();
    by_main || rules.any(|it| it.invert && it.fwmark.is_some() && it.table != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fixture::{facts, link, policy, route, tunnel};
    use netio::netlink::Rule;

    fn shown(facts: &Facts, is_around: bool) -> Vec<String> {
        let policy = policy();
        let routes = wanted(&policy, &Ways::new(&policy), facts, is_around);
        routes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tunnel_that_is_up_is_led_into_in_the_families_that_it_has() {
        let mut facts = facts();
        assert!(shown(&facts, false).is_empty());
        facts.links.push(link(7, "mr-us", false));
        tunnel(&mut facts, 7, "10.8.0.2");
        assert!(shown(&facts, false).is_empty());
        facts.links.last_mut().unwrap().up = true;
        assert_eq!(
            shown(&facts, false),
            ["0.0.0.0/0 by interface number 7 in table 7701"]
        );
        tunnel(&mut facts, 7, "fd08::2");
        assert_eq!(shown(&facts, false).len(), 2);
    }

    #[test]
    fn what_goes_around_takes_the_line_and_no_tunnel() {
        let mut facts = facts();
        let policy = policy();
        assert!(!is_any_full(&policy, &facts));
        facts.links.push(link(7, "mr-us", true));
        for half in ["0.0.0.0", "128.0.0.0"] {
            facts.main.push(route(half, 1, 7, 254));
        }
        facts.main.push(route("0.0.0.0", 0, 7, 254));
        assert!(is_any_full(&policy, &facts));
        assert_eq!(
            shown(&facts, true),
            ["0.0.0.0/0 via 198.51.100.1 by interface number 3 in table 7700"]
        );
        assert_eq!(lines(&policy, &facts), ["wan"]);
    }

    #[test]
    fn a_full_tunnel_of_wg_quick_is_known_by_its_rule() {
        let mut facts = facts();
        let rule = Rule::not_marked(Family::V4, 51820, 51820);
        facts.rules[0].as_mut().unwrap().push(rule);
        assert!(is_any_full(&policy(), &facts));
    }
}
