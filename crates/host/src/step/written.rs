//! A step as read from the journal: its kind, and its values by name.
//!
//! serde's derived reader of the enum has a part for each kind of step: 18 KB of an ARMv7 program. This one has a fifth.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{SavedRoute, Step};
use crate::dns::NameServers;

/// `{KIND: {NAME: VALUE, ...}}`, or only `KIND` for a step without values.
impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(from)?;
        let fault = || D::Error::custom("no step, or not all that belongs to one");
        read(written).ok_or_else(fault)
    }
}

/// The step; `None` for an unknown kind or a missing value.
fn read(written: Value) -> Option<Step> {
    let (kind, values) = match written {
        Value::String(kind) => (kind, Map::new()),
        Value::Object(step) if step.len() == 1 => match step.into_iter().next()? {
            (kind, Value::Object(values)) => (kind, values),
            _ => return None,
        },
        _ => return None,
    };
    Values(values).step(&kind)
}

struct Values(Map<String, Value>);

impl Values {
    /// The value of that name, which is null where it is absent; `None` if it is of another type.
    fn get<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        serde_json::from_value(self.0.remove(name).unwrap_or_default()).ok()
    }

    fn step(mut self, kind: &str) -> Option<Step> {
        Some(match kind {
            "Address" => Step::Address {
                addr: self.get("addr")?,
                prefix: self.get("prefix")?,
                peer: self.get("peer")?,
            },
            "Mtu" => Step::Mtu {
                mtu: self.get("mtu")?,
            },
            "Up" => Step::Up,
            "Route" => Step::Route {
                dst: self.get("dst")?,
                prefix: self.get("prefix")?,
                via: self.get("via")?,
                metric: self.get("metric")?,
                table: self.get("table")?,
                optional: self.get("optional")?,
                first: self.get::<Option<_>>("first")?.unwrap_or(false),
            },
            "Dns" => Step::Dns {
                resolver: self.get("resolver")?,
                wanted: NameServers {
                    servers: self.get("servers")?,
                    search: self.get("search")?,
                    only: self.get::<Option<_>>("only")?.unwrap_or_default(),
                },
            },
            "UnmarkedRule" => Step::UnmarkedRule {
                v6: self.get("v6")?,
                mark: self.get("mark")?,
                table: self.get("table")?,
                priority: self.get("priority")?,
                passes: self.get("passes")?,
            },
            "MainRule" => Step::MainRule {
                v6: self.get("v6")?,
                priority: self.get("priority")?,
                passes: self.get::<Option<_>>("passes")?.unwrap_or(0),
            },
            "Sysctl" => Step::Sysctl {
                key: self.get("key")?,
                value: self.get("value")?,
                before: self.get("before")?,
            },
            "Masquerade" => Step::Masquerade {
                interface: self.get("interface")?,
                sources: self.get("sources")?,
                except: self.get("except")?,
            },
            "OuterRoute" => Step::OuterRoute {
                dst: self.get("dst")?,
                prefix: self.get("prefix")?,
                via: self.get("via")?,
                dev: self.get("dev")?,
                metric: self.get("metric")?,
                towards: self.get("towards")?,
            },
            "Unreachable" => Step::Unreachable {
                dst: self.get("dst")?,
                prefix: self.get("prefix")?,
                metric: self.get("metric")?,
            },
            "Displace" => Step::Displace(SavedRoute {
                dst: self.get("dst")?,
                prefix: self.get("prefix")?,
                via: self.get("via")?,
                dev: self.get("dev")?,
                metric: self.get("metric")?,
                src: self.get("src")?,
                mtu: self.get("mtu")?,
                scope: self.get("scope")?,
                protocol: self.get("protocol")?,
                onlink: self.get("onlink")?,
            }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::Resolver;
    use std::net::IpAddr;
    use std::path::PathBuf;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9));

    fn name_servers(only: &[&str]) -> NameServers {
        NameServers {
            servers: vec![HERE, THERE],
            search: vec!["example.org".to_owned()],
            only: only.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Steps of each kind, with every optional value once present and once absent.
    fn all() -> Vec<Step> {
        let mut all = vec![Step::Up, Step::Mtu { mtu: 1420 }];
        let resolvers = [
            Resolver::Resolvectl,
            Resolver::Resolvconf {
                prefix: "tun.".to_owned(),
            },
            Resolver::Dnsmasq {
                directory: PathBuf::from("/tmp/dnsmasq.d"),
            },
        ];
        for resolver in resolvers {
            for only in [&[][..], &["example.net"]] {
                all.push(Step::Dns {
                    resolver: resolver.clone(),
                    wanted: name_servers(only),
                });
            }
        }
        for (via, number) in [(None, None), (Some(THERE), Some(7))] {
            let byte = number.map(|_| 254);
            all.extend([
                Step::Address {
                    addr: HERE,
                    prefix: 24,
                    peer: via,
                },
                Step::Route {
                    dst: HERE,
                    prefix: 32,
                    via,
                    metric: number,
                    table: 51820,
                    optional: via.is_some(),
                    first: via.is_none(),
                },
                Step::OuterRoute {
                    dst: HERE,
                    prefix: 0,
                    via,
                    dev: 4,
                    metric: 5,
                    towards: via,
                },
                Step::Displace(SavedRoute {
                    dst: HERE,
                    prefix: 1,
                    via,
                    dev: number,
                    metric: number,
                    src: via,
                    mtu: number,
                    scope: byte,
                    protocol: byte,
                    onlink: via.is_some(),
                }),
                Step::UnmarkedRule {
                    v6: via.is_some(),
                    mark: 0xca6c,
                    table: 51820,
                    priority: 10,
                    passes: byte,
                },
                Step::MainRule {
                    v6: via.is_some(),
                    priority: 9,
                    passes: u8::from(via.is_some()),
                },
            ]);
        }
        all.extend([
            Step::Sysctl {
                key: "net/ipv4/ip_forward".to_owned(),
                value: "1".to_owned(),
                before: "0".to_owned(),
            },
            Step::Masquerade {
                interface: "tun0".to_owned(),
                sources: vec![(HERE, 24), (THERE, 64)],
                except: Vec::new(),
            },
            Step::Unreachable {
                dst: THERE,
                prefix: 1,
                metric: 6,
            },
        ]);
        all
    }

    #[test]
    fn every_step_is_read_as_it_was_written() {
        for step in all() {
            let text = serde_json::to_string(&step).unwrap();
            let read: Step =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read, step, "{text}");
        }
    }

    /// An earlier version wrote no `only`, and another name for a value; a later version may write more.
    #[test]
    fn what_other_versions_wrote_is_read() {
        let text = r#"{"Dns":{"resolver":{"OpenWrt":{"directory":"/tmp/d"}},"servers":[],"search":[],"later":[1]}}"#;
        let Step::Dns { resolver, wanted } = serde_json::from_str(text).unwrap() else {
            panic!("another step");
        };
        let directory = PathBuf::from("/tmp/d");
        assert_eq!(resolver, Resolver::Dnsmasq { directory });
        assert_eq!(wanted, NameServers::default());
    }

    #[test]
    fn what_is_no_whole_step_is_refused() {
        for text in [
            "{}",
            "7",
            r#""Down""#,
            r#""Mtu""#,
            r#"{"Later":{}}"#,
            r#"{"Mtu":{}}"#,
            r#"{"Mtu":{"mtu":null}}"#,
            r#"{"Mtu":{"mtu":-1}}"#,
            r#"{"MainRule":{"v6":true}}"#,
            r#"{"MainRule":{"v6":true,"priority":1},"Up":{}}"#,
            r#"{"Unreachable":{"dst":"nowhere","prefix":1,"metric":1}}"#,
        ] {
            assert!(serde_json::from_str::<Step>(text).is_err(), "{text}");
        }
    }
}
