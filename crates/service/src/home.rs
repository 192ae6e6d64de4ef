//! Turns the `[Server]` section of a file into host settings.

use config::home::{HomeServer, Masquerading};
use host::Forwarding;

/// How the host forwards packets of clients that call a server at home.
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
