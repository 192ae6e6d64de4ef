use super::*;
use report::{
    Architecture, Chip, Cipher, Core, CoreName, Digest, Direction, Kernel, Loopback, Machine,
    Measured, Module, NoLoopback, Offload, OpenWrt, Peer, Protocol, Report, SCHEMA, SIZE_MAX, Side,
    Vendor, Version,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// Compares a file below `docs` with its content, or writes it.
fn assert_current(name: &str, content: &str) {
    let path = Path::new(DOCS).join(name);
    if std::env::var_os("MILLRACE_WRITE").is_some() {
        fs::write(path, content).unwrap();
    } else {
        let found = fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == content,
            "docs/{name}: MILLRACE_WRITE=1 writes it again"
        );
    }
}

#[test]
fn the_schema_is_current() {
    assert_current("report.schema.json", &schema());
}

#[test]
fn the_page_is_made_from_the_reports() {
    let directory = Path::new(DOCS).join("benchmarks/routers");
    // Git keeps no empty directory.
    let files = match directory.is_dir() {
        true => files(&directory).unwrap(),
        false => Vec::new(),
    };
    let named = files.iter().map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (
            name,
            read_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
    });
    assert_current("benchmarks/routers.md", &page(&named.collect::<Vec<_>>()));
}

fn r7800() -> Report {
    let measured = |cipher, direction, side, nanoseconds| Measured {
        cipher,
        direction,
        side,
        packets: 32,
        bytes: 1408,
        nanoseconds,
        processor_nanoseconds: nanoseconds,
    };
    let version = |text| Version::of(text);
    let report = Report {
        schema: SCHEMA,
        program: version("1.0.0"),
        machine: Machine {
            architecture: Architecture::Arm,
            chip: Some(Chip::Ipq8065),
            processors: 2,
            cores: vec![Core {
                count: 2,
                vendor: Some(Vendor::Qualcomm),
                name: Some(CoreName::Krait),
                family: Some(7),
                model: Some(0x6f),
            }],
            features: vec![],
            megahertz: Some(1725),
            megabytes: 473,
        },
        kernel: Kernel {
            version: version("6.6.93"),
            modules: vec![Module::Tun, Module::Veth],
        },
        openwrt: Some(OpenWrt {
            release: version("24.10.2"),
            revision: Some(28739),
            netifd: version("2024.12.17"),
            firewall4: version("2024.12.18"),
            luci: None,
            offload: Offload::Software,
        }),
        ciphers: vec![
            measured(Cipher::Aes256Gcm, Direction::Encrypt, Side::Cpu, 1_000_000),
            measured(Cipher::Aes256Gcm, Direction::Decrypt, Side::Cpu, 2_000_000),
            measured(
                Cipher::Aes256Gcm,
                Direction::Encrypt,
                Side::Accelerator,
                400_000,
            ),
            measured(
                Cipher::Aes256Gcm,
                Direction::Decrypt,
                Side::Accelerator,
                400_000,
            ),
        ],
        loopback: Some(Loopback {
            protocol: Protocol::WireGuard,
            kilobits_per_second: 320_000,
            milliseconds: 3000,
            processor_milliseconds: Some(2400),
        }),
        no_loopback: None,
        peer: Some(Peer {
            protocol: Protocol::OpenVpn,
            bytes: 1220,
            kilobits_per_second: 90_000,
            milliseconds: 5000,
            echoes: 46_000,
            lost: 3,
            microseconds: 7000,
        }),
        digest: Digest::default(),
    };
    report.sealed()
}

#[test]
fn a_table_of_three_routers() {
    let er_x = Report {
        machine: Machine {
            architecture: Architecture::Mips,
            chip: Some(Chip::Mt7621Soc),
            processors: 4,
            cores: vec![],
            megahertz: None,
            ..r7800().machine
        },
        openwrt: r7800().openwrt.map(|it| OpenWrt {
            release: None,
            ..it
        }),
        ciphers: vec![],
        loopback: None,
        no_loopback: Some(NoLoopback::NoVeth),
        peer: None,
        ..r7800()
    };
    let debian = Report {
        openwrt: None,
        ..r7800()
    };
    let named = |name: &str, report: Report| (name.to_owned(), report.sealed());
    let reports = [
        named("r7800", r7800()),
        named("er-x", er_x),
        named("debian", debian),
    ];
    let page = page(&reports);
    // 120 MB took 2.4 s: 20 s for each gigabyte.
    for row in [
        "| r7800 | ipq8065 | 2 krait, 1725 MHz | 473 | 6.6.93 | 24.10.2 | software | 1.0.0 | 320 | 20.0 | openvpn 90.0 |\n",
        "| er-x | mt7621-soc | 4 mips | 473 | 6.6.93 | r28739 | software | 1.0.0 | no-veth |  |  |\n",
        "| debian | ipq8065 | 2 krait, 1725 MHz | 473 | 6.6.93 |  |  | 1.0.0 | 320 | 20.0 | openvpn 90.0 |\n",
        "| r7800 | 45.1 / 22.5; 113 / 113 |  |  |\n",
        "| er-x |  |  |  |\n",
    ] {
        assert!(page.contains(row), "{row}{page}");
    }
    for (_, report) in reports {
        assert_eq!(read(report.text().as_bytes()).unwrap(), report);
    }
}

#[test]
fn the_reader_takes_only_a_whole_report() {
    let whole = r7800();
    let text = whole.text();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        change(&mut value);
        read(value.to_string().as_bytes())
    };
    assert_eq!(changed(&|_| {}).unwrap(), whole);
    let refused = |result: Result<Report, ReadError>, wanted: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    let unknown = changed(&|it| it["machine"]["hostname"] = json!("\u{1b}[31mhome"));
    refused(unknown, "no report");
    refused(changed(&|it| it["hostname"] = json!(1)), "no report");
    refused(
        changed(&|it| it["machine"]["chip"] = json!("my router")),
        "no report",
    );
    refused(
        changed(&|it| it["kernel"]["version"] = json!("192.0.2.1")),
        "no report",
    );
    refused(
        changed(&|it| it["machine"]["megabytes"] = json!(-1)),
        "no report",
    );
    refused(changed(&|it| it["schema"] = json!(2)), "another schema");
    refused(
        changed(&|it| it["loopback"]["milliseconds"] = json!(1)),
        "digest",
    );
    refused(
        changed(&|it| it["digest"] = json!("0".repeat(64))),
        "digest",
    );
    let lacking = changed(&|it| drop(it.as_object_mut().unwrap().remove("no_loopback")));
    refused(lacking, "lacks");
    let twice = text.replacen("{", "{\"schema\": 1,", 1);
    refused(read(twice.as_bytes()), "no report");
    refused(read(&text.as_bytes()[..text.len() - 9]), "no report");
    let padded = text.clone() + &" ".repeat(SIZE_MAX);
    refused(read(padded.as_bytes()), "more than");
    refused(read(&[b'['; SIZE_MAX]), "no report");
}

/// Whether a value fits a schema, as far as ours use JSON Schema.
fn fits(schema: &Value, value: &Value) -> bool {
    if let Some(wanted) = schema.get("const") {
        return wanted == value;
    }
    if let Some(words) = schema.get("enum") {
        return words.as_array().unwrap().contains(value);
    }
    if let Some(any) = schema.get("anyOf") {
        return any.as_array().unwrap().iter().any(|it| fits(it, value));
    }
    match schema["type"].as_str().unwrap() {
        "null" => value.is_null(),
        "integer" => value
            .as_u64()
            .is_some_and(|it| it <= schema["maximum"].as_u64().unwrap()),
        "string" => value.is_string() && schema["pattern"].is_string(),
        "array" => value
            .as_array()
            .is_some_and(|it| it.iter().all(|it| fits(&schema["items"], it))),
        "object" => value.as_object().is_some_and(|it| {
            let properties = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().unwrap();
            schema["additionalProperties"] == false
                && required
                    .iter()
                    .all(|name| it.contains_key(name.as_str().unwrap()))
                && it
                    .iter()
                    .all(|(name, value)| properties.get(name).is_some_and(|of| fits(of, value)))
        }),
        other => panic!("{other}"),
    }
}

#[test]
fn reports_fit_the_schema() {
    let schema = report::schema();
    let mut value = serde_json::to_value(r7800()).unwrap();
    assert!(fits(&schema, &value));
    value["machine"]["cores"][0]["name"] = json!("my core");
    assert!(!fits(&schema, &value));
}
