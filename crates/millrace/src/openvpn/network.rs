//! The inside of an OpenVPN tunnel as the host sees it: addresses, routes and name servers of the
//! configuration and of what the server pushed, made into steps that can be undone.
//!
//! [`TunnelNetwork::merge`] joins the two, [`facts::HostFacts::gather`] looks at the host,
//! [`TunnelNetwork::interface_plan`] and [`TunnelNetwork::route_plan`] decide, and
//! [`crate::network::Applied`] does it; [`Inside`] is all of that in a row. Between the two plans
//! there is room for the `up` script and `route-delay`.
//!
//! # What differs from OpenVPN
//! - A route to the server past the tunnel is made whenever a route of the tunnel covers the
//!   server, not only for `redirect-gateway`: without it the tunnel would carry itself. It follows
//!   when the gateway changes. `allow-recursive-routing` and the flag `local` switch it off.
//! - `redirect-gateway` without `def1` leaves a default route alone that has a higher metric.
//! - `block-ipv6` makes the global IPv6 networks unreachable by routes; the kernel then answers
//!   as OpenVPN does ("no route to host"), and goes on doing so when the process dies. OpenVPN
//!   blocks only what is routed into the tunnel.
//! - Name servers are set, which OpenVPN before 2.7 leaves to scripts.

mod facts;
mod inside;
mod merge;
mod plan;

#[cfg(test)]
mod tests;

pub(crate) use inside::{Inside, Surroundings};
pub(crate) use merge::TunnelNetwork;
