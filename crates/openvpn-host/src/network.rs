//! Host side of an OpenVPN tunnel: addresses, routes and name servers from the configuration and the server's push.
//!
//! [`TunnelNetwork::merge`] joins the two and `TunnelNetwork::want` turns them into host settings; [`host`] applies
//! them. [`Inside`] does all of that in two plans: one for the interface and one for the routes. The `up` script and
//! `route-delay` come between them.
//!
//! # What differs from OpenVPN
//! - A host route to the server outside the tunnel is made whenever a tunnel route covers the server, not only for
//!   `redirect-gateway`: otherwise the tunnel would carry its own packets. It follows gateway changes.
//!   `allow-recursive-routing` and the flag `local` switch it off.
//! - `redirect-gateway` without `def1` leaves default routes with a higher metric in place.
//! - A default route from `route` or `route-ipv6` without a metric is made of more specific routes. No default route of
//!   the host overrides those, even one that DHCP or a router advertisement adds later.
//! - An IPv6 route without a metric gets one below the host's route to the same network.
//! - `block-ipv6` makes the global IPv6 networks unreachable by routes. The kernel then answers as OpenVPN does ("no
//!   route to host"), even after the process dies. OpenVPN blocks only packets that are routed into the tunnel.
//! - Name servers are set; OpenVPN before 2.7 leaves them to scripts.

mod inside;
mod merge;
mod want;

#[cfg(test)]
mod tests;

pub use host::Facts as HostFacts;
pub use inside::{Inside, InsideError, RouteNames, Surroundings, route_names};
pub use merge::TunnelNetwork;
