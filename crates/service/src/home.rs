//! Turns the `[Server]` section of a file into wishes of the host.

use config::home::{HomeServer, Masquerading};
use host::Forwarding;

/// How packets of those who call a server at home are forwarded.
pub(crate) fn forwarding(home: &HomeServer) -> Forwarding {
    let lan = home.lan.iter().map(|it| (it.addr(), it.prefix()));
    Forwarding {
        masquerade: home.masquerade != Masquerading::No,
        except: match home.masquerade {
            Masquerading::Internet => lan.collect(),
            Masquerading::Yes | Masquerading::No => Vec::new(),
        },
    }
}
