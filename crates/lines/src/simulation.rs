//! Windows behind emulated lines: tests of all parts together, in virtual time.

mod balance;
mod emulator;
mod failover;
mod path;
mod schedules;
mod table;
