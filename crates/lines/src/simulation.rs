//! Windows behind emulated lines: what the parts do together, in virtual time.

mod balance;
mod failover;
mod path;
mod schedules;
mod table;
