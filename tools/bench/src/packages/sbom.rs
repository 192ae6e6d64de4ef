//! Writes a bill of materials in CycloneDX 1.5 for the program's crates, from `cargo metadata` and `Cargo.lock`.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Why a bill cannot be written.
#[derive(Debug, Error)]
pub enum SbomError {
    /// The output of `cargo metadata` is invalid.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] serde_json::Error),
    /// `Cargo.lock` is invalid.
    #[error("Cargo.lock: {0}")]
    Lock(#[from] Box<toml::de::Error>),
    /// The program's crate is not among the packages.
    #[error("cargo metadata: package {0} does not exist")]
    NoProgram(String),
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Crate {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Writes the bill of a program's crate and all its dependencies, except those for tests. The same input gives the
/// same text.
///
/// # Errors
/// When one of the texts is invalid.
pub fn write(program: &str, metadata: &str, lock: &str) -> Result<String, SbomError> {
    let metadata: Metadata = serde_json::from_str(metadata)?;
    let lock: Lock = toml::from_str(lock).map_err(Box::new)?;
    let crates: BTreeMap<&str, &Crate> = metadata
        .packages
        .iter()
        .map(|it| (it.id.as_str(), it))
        .collect();
    // Normal and build dependencies, without those for tests.
    let needs: BTreeMap<&str, Vec<&str>> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| {
            let needed = node.deps.iter().filter(|dependency| {
                let mut kinds = dependency.dep_kinds.iter();
                kinds.any(|it| it.kind.as_deref() != Some("dev"))
            });
            (node.id.as_str(), needed.map(|it| it.pkg.as_str()).collect())
        })
        .collect();
    let root = metadata
        .packages
        .iter()
        .find(|it| it.name == program && it.source.is_none());
    let root = root.ok_or_else(|| SbomError::NoProgram(program.to_owned()))?;
    let mut found = BTreeSet::from([root.id.as_str()]);
    let mut open = vec![root.id.as_str()];
    while let Some(id) = open.pop() {
        for &next in needs.get(id).into_iter().flatten() {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    let checksum = |it: &Crate| {
        let mut locked = lock.package.iter();
        let locked =
            locked.find(|locked| locked.name == it.name && locked.version == it.version)?;
        locked.checksum.clone()
    };
    let mut components: Vec<&Crate> = found
        .iter()
        .filter(|&&id| id != root.id)
        .filter_map(|id| crates.get(id).copied())
        .collect();
    components.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    let listed: Vec<Value> = components
        .iter()
        .map(|it| component("library", it, checksum(it)))
        .collect();
    let edges = [root].into_iter().chain(components).map(|it| {
        let mut needed: Vec<String> = needs
            .get(it.id.as_str())
            .into_iter()
            .flatten()
            .filter_map(|id| crates.get(id).map(|it| purl(it)))
            .collect();
        needed.sort();
        needed.dedup();
        json!({ "ref": purl(it), "dependsOn": needed })
    });
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component("application", root, None) },
        "components": listed,
        "dependencies": edges.collect::<Vec<Value>>(),
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn purl(it: &Crate) -> String {
    format!("pkg:cargo/{}@{}", it.name, it.version)
}

fn component(kind: &str, it: &Crate, checksum: Option<String>) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(it),
        "name": it.name,
        "version": it.version,
        "purl": purl(it),
    });
    if let Some(license) = &it.license {
        // Some crates still write a slash for "or".
        let expression = license.replace(" / ", " OR ").replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(repository) = &it.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_has_what_is_built_and_nothing_of_tests() {
        let package = |name: &str, source: Value| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "repository": null, "source": source });
        let need =
            |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let registry = json!("registry+https://github.com/rust-lang/crates.io-index");
        let metadata = json!({
            "packages": [
                package("program", Value::Null),
                package("normal", registry.clone()),
                package("build", registry.clone()),
                package("test", registry),
            ],
            "resolve": { "nodes": [
                { "id": "program", "deps": [need("normal", Value::Null), need("test", json!("dev"))] },
                { "id": "normal", "deps": [need("build", json!("build"))] },
            ]},
        });
        let lock = "[[package]]\nname = \"normal\"\nversion = \"1.0.0\"\nchecksum = \"abcd\"\n";
        let text = write("program", &metadata.to_string(), lock).unwrap();
        let bill: Value = serde_json::from_str(&text).unwrap();
        let names: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["build", "normal"]);
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "abcd");
        assert_eq!(
            bill["components"][1]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(
            bill["dependencies"][0]["dependsOn"],
            json!(["pkg:cargo/normal@1.0.0"])
        );
        assert!(matches!(
            write("other", &metadata.to_string(), lock),
            Err(SbomError::NoProgram(_))
        ));
    }
}
