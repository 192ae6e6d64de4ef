//! The policy and the guard, as the page shows them: each device's path, and settings that do not do what the owner
//! expects.

use crate::carrying::{dead, down};
use crate::settings_files;
use serde_json::{Value, json};
use service::status::Status;
use steer::guard::Report;
use steer::picture::{Row, picture};
use steer::policy;

/// Looks at the host. `guard` is the guard's report, if there is one; `tunnels` are the tunnels that are up.
pub(super) fn look(guard: Option<&Report>, tunnels: &[Status]) -> Value {
    if !host::privileges::administers() {
        return Value::Null;
    }
    let (guarded, file, mistakes) = settings_files::read();
    let mistakes = mistakes.iter();
    let mut warnings: Vec<String> = mistakes
        .map(|it| format!("{}: {}; {}", it.of, it.words, it.remedy))
        .collect();
    if guard.is_none() && guarded.is_some_and(|it| !it.lan.is_empty()) {
        warnings.push(
            "guard: its file exists, but it is off: devices may leave unencrypted; run `millrace guard on`"
                .to_owned(),
        );
    }
    let (mut devices, mut policy) = (Vec::new(), Value::Null);
    let names: Vec<&str> = tunnels.iter().map(|it| it.interface.as_str()).collect();
    match picture(file.as_ref(), guard, &names) {
        Ok(mut seen) => {
            warnings.extend(seen.warnings);
            #[cfg(feature = "policy")]
            for tunnel in seen.own.iter().filter(|it| names.contains(&it.as_str())) {
                let lans = host::lan::unmasqueraded(tunnel);
                if !lans.is_empty() {
                    warnings.push(host::lan::words_about(&lans, tunnel).join("; "));
                }
            }
            let dead = dead(tunnels);
            devices.extend(seen.rows.iter().map(|it| device(it, &dead)));
            if file.is_some() || seen.policy.on || seen.policy.asked {
                policy = view(&mut seen.policy, &dead);
            }
        }
        Err(error) => warnings.push(error.to_string()),
    }
    json!({"warnings": warnings, "devices": devices, "policy": policy})
}

fn device(row: &Row, dead: &[(String, &str)]) -> Value {
    json!({
        "name": row.name,
        "address": row.address,
        "mac": row.mac,
        "lan": row.lan,
        "to": row.to,
        "path": row.path,
        "allowed": row.allowed.name(),
        "down": down(&row.path, dead),
        "by": row.by,
    })
}

#[cfg(feature = "policy")]
fn view(report: &mut policy::Report, dead: &[(String, &str)]) -> Value {
    let state = crate::policy::state(report);
    crate::policy::mark_down(report, dead);
    json!({"state": state, "rows": unique(crate::policy::rows(report))})
}

/// A program without the command `policy` only shows whether another one's is in force.
#[cfg(not(feature = "policy"))]
fn view(report: &mut policy::Report, _: &[(String, &str)]) -> Value {
    json!({"state": if report.on { "on" } else { "off" }, "rows": []})
}

/// Numbers rows of one name: the page tells rows apart by their names.
pub(super) fn unique(mut rows: Vec<(String, String)>) -> Vec<(String, String)> {
    for place in 0..rows.len() {
        let (before, rest) = rows.split_at_mut(place);
        let (name, _) = &mut rest[0];
        let is_same = |it: &&(String, String)| {
            let end = it.0.strip_prefix(name.as_str());
            end.is_some_and(|end| end.is_empty() || end.starts_with(" ("))
        };
        let count = before.iter().filter(is_same).count();
        if count > 0 {
            *name = format!("{name} ({})", count + 1);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_name_are_numbered() {
        let rows = ["note", "names", "note", "note 7", "note"];
        let rows = rows.map(|it| (it.to_owned(), String::new())).to_vec();
        let names: Vec<String> = unique(rows).into_iter().map(|it| it.0).collect();
        assert_eq!(names, ["note", "names", "note (2)", "note 7", "note (3)"]);
    }
}
