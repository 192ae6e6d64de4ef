//! The width of the help, and the JSON of the commands beside the lists of `docs/json.md`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The page with the lists.
const PAGE: &str = include_str!("../../../docs/json.md");

/// Fails unless the page's section lists the fields of these documents, with their types: one that has all, and others
/// that lack what may be missing.
pub(crate) fn assert_documented(section: &str, samples: &[Value]) {
    let mut fields = BTreeMap::new();
    add(&mut fields, "", samples);
    let heading = format!("## `millrace {section}`\n");
    let (_, text) = PAGE.split_once(&heading).expect("the section is missing");
    let text = text.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("- `")?.split_once("`: ")?;
        Some((name.to_owned(), rest.split(", ").next()?.to_owned()))
    };
    let documented: BTreeMap<String, String> = text.lines().filter_map(row).collect();
    let rows: Vec<String> = fields
        .iter()
        .map(|(name, kind)| format!("- `{name}`: {kind}"))
        .collect();
    assert!(documented == fields, "{section}:\n{}", rows.join("\n"));
}

/// Adds the fields of these objects, each with its path and type.
fn add(fields: &mut BTreeMap<String, String>, before: &str, samples: &[Value]) {
    let objects: Vec<_> = samples.iter().filter_map(Value::as_object).collect();
    let names: BTreeSet<&String> = objects.iter().flat_map(|it| it.keys()).collect();
    for name in names {
        let values: Vec<&Value> = objects.iter().filter_map(|it| it.get(name)).collect();
        let items = values.iter().filter_map(|it| it.as_array()).flatten();
        let items: Vec<Value> = items.cloned().collect();
        let kinds: BTreeSet<&str> = values.iter().map(|it| kind(it)).collect();
        let of: BTreeSet<&str> = items.iter().map(kind).collect();
        let mut text: Vec<&str> = kinds.into_iter().filter(|it| *it != "null").collect();
        let of = of.into_iter().collect::<Vec<_>>().join(" or ");
        let list = format!("list of {of}");
        if text == ["list"] && !of.is_empty() {
            text = vec![&list];
        }
        if values.iter().any(|it| it.is_null()) {
            text.push("null");
        }
        if values.len() < objects.len() {
            text.push("left out");
        }
        let path = format!("{before}{name}");
        fields.insert(path.clone(), text.join(" or "));
        let inner = values.iter().filter(|it| it.is_object());
        let inner: Vec<Value> = inner.map(|it| (*it).clone()).collect();
        add(fields, &format!("{path}."), &inner);
        add(fields, &format!("{path}[]."), &items);
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

#[cfg(feature = "manual")]
/// The width of the widest line in a command's help, and in its subcommands'.
fn widest(command: &mut clap::Command) -> String {
    let text = command.render_long_help().to_string();
    let own = text.lines().map(str::to_owned);
    let others = command.get_subcommands_mut().map(widest);
    own.chain(others)
        .max_by_key(|line| line.chars().count())
        .unwrap_or_default()
}

#[cfg(feature = "manual")]
#[test]
fn help_fits_into_80_columns() {
    let mut cli = crate::cli();
    cli.build();
    let line = widest(&mut cli);
    assert!(line.chars().count() <= 80, "{line}");
}
