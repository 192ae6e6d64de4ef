//! The results as JSON: every value of every repetition.

use std::collections::BTreeMap;

use serde::Serialize;

use super::records::Records;
use super::report::Run;
use host::machine::Machine;

#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    repetitions: u32,
    seconds: u32,
    segmentation_offload_of_the_cable: bool,
    versions: BTreeMap<&'a str, &'a str>,
    missing: BTreeMap<&'static str, &'a str>,
    records: Vec<Value<'a>>,
    failures: Vec<Value<'a>>,
}

#[derive(Serialize)]
struct Value<'a> {
    repetition: u32,
    test: &'static str,
    implementation: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<&'static str, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Writes the results as one JSON document.
///
/// # Errors
/// If a value cannot be serialized, which does not happen.
pub(super) fn json(run: &Run, records: &Records) -> serde_json::Result<String> {
    let values = records.records.iter().map(|record| Value {
        repetition: record.repetition,
        test: record.test.name(),
        implementation: record.contender.name(),
        values: record
            .values
            .iter()
            .map(|(metric, value)| (metric.key(), *value))
            .collect(),
        error: None,
    });
    let failures = records.failures.iter().map(|failure| Value {
        repetition: failure.repetition,
        test: failure.test.name(),
        implementation: failure.contender.name(),
        values: BTreeMap::new(),
        error: Some(&failure.error),
    });
    let missing = run.missing.iter();
    let versions = run.versions.iter();
    let document = Document {
        machine: &run.machine,
        repetitions: run.repetitions,
        seconds: run.seconds,
        segmentation_offload_of_the_cable: run.segmentation,
        versions: versions.map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        missing: missing.map(|(k, v)| (k.name(), v.as_str())).collect(),
        records: values.collect(),
        failures: failures.collect(),
    };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::records::tests::noisy;
    use crate::bench::report::tests::run;

    #[test]
    fn every_value_has_its_place_and_unit() {
        let document = json(&run(), &noisy()).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let page = include_str!("../../../../docs/json.md");
        for name in document.as_object().unwrap().keys() {
            assert!(page.contains(&format!("- `{name}`: ")), "{name}");
        }
        let first = &document["records"][0];
        assert_eq!(first["implementation"], "millrace");
        assert_eq!(first["test"], "tcp1");
        assert_eq!(first["values"]["mbit_per_s"], 4000.0);
        assert_eq!(document["machine"]["processors"], 2);
    }
}
