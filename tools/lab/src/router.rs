//! Routers: hosts that forward, and translate addresses.

use std::ops::Deref;

use crate::{Host, LabError, tools};

/// A host that forwards IPv4 and IPv6 between its interfaces.
#[derive(Debug)]
pub struct Router(Host);

impl Router {
    /// Makes a router without interfaces; join it with [`crate::Link`].
    ///
    /// # Errors
    /// [`LabError::Host`] if the kernel refuses.
    pub fn new(name: &str) -> Result<Self, LabError> {
        Self::of(Host::new(name)?)
    }

    /// Turns an existing host into a router.
    ///
    /// # Errors
    /// [`LabError::Host`] if the kernel refuses.
    pub fn of(host: Host) -> Result<Self, LabError> {
        host.sysctl("net/ipv4/ip_forward", "1")?;
        // The machine's default may be strict, which drops replies that arrive on another interface.
        host.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        host.sysctl("net/ipv4/conf/default/rp_filter", "0")?;
        // Fails on a kernel without IPv6.
        let _ = host.sysctl("net/ipv6/conf/all/forwarding", "1");
        Ok(Self(host))
    }

    /// Masquerades everything that leaves through `interface`, as a home router does.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `nft`, [`LabError::Failed`] if the kernel has no NAT.
    pub fn masquerade(&self, interface: &str) -> Result<(), LabError> {
        self.nft(&format!(
            "table inet lab {{\n\
               chain postrouting {{\n\
                 type nat hook postrouting priority 100;\n\
                 oifname \"{interface}\" masquerade\n\
               }}\n\
             }}\n"
        ))
    }
}

impl Deref for Router {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

impl Host {
    /// Loads nftables rules.
    ///
    /// # Errors
    /// [`LabError::Missing`] without `nft`, [`LabError::Failed`] if `nft` rejects the rules.
    pub fn nft(&self, rules: &str) -> Result<(), LabError> {
        self.command(tools::find("nft")?)
            .args(["-f", "-"])
            .output_with_input(rules)
            .map(drop)
    }
}
