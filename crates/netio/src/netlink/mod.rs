//! Routing netlink: links, addresses, routes and rules.
