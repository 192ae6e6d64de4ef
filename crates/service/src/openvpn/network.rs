//! The inside of an OpenVPN tunnel as the host sees it: addresses, routes and name servers of the
//! configuration and of what the server pushed.
//!
//! [`TunnelNetwork::merge`] joins the two and `TunnelNetwork::want` says what they mean for the
//! host; [`host`] does the rest. [`Inside`] is all of that in a row: one plan for the interface and
//! one for the routes, with room for the `up` script and `route-delay` between them.
//!
//! # What differs from OpenVPN
//! - A route to the server past the tunnel is made whenever a route of the tunnel covers the
//!   server, not only for `redirect-gateway`: without it the tunnel would carry itself. It follows
//!   when the gateway changes. `allow-recursive-routing` and the flag `local` switch it off.
//! - `redirect-gateway` without `def1` does not touch a default route that has a higher metric.
//! - A default route by `route` or `route-ipv6` without a metric is made of more specific routes, over which no default route
//!   of the host wins: neither one without a metric nor one that DHCP or a router advertisement brings later.
//! - An IPv6 route that names no metric gets one below that of the host's route to the same network.
//! - `block-ipv6` makes the global IPv6 networks unreachable by routes; the kernel then answers
//!   as OpenVPN does ("no route to host"), and goes on doing so when the process dies. OpenVPN
//!   blocks only what is routed into the tunnel.
//! - Name servers are set, which OpenVPN before 2.7 leaves to scripts.

mod inside;
mod merge;
mod want;

#[cfg(test)]
mod tests;

pub(super) use host::Facts as HostFacts;
pub(super) use inside::{Inside, InsideError, RouteNames, Surroundings, route_names};
pub(super) use merge::TunnelNetwork;
