//! Clients and a server on a virtual wire with a virtual clock.

mod connect;
mod hostile;
mod refusal;
mod renewal;
mod silence;
mod world;
