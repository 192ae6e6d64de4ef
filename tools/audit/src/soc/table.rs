//! `socs.toml`, parsed, checked and searchable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::{Core, Soc};

const BUILTIN: &str = include_str!("socs.toml");

/// The structure of `socs.toml`: `core` says what processor cores can do, and `soc` which chip has which core.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Addresses by short names.
    source: BTreeMap<String, String>,
    core: Vec<Core>,
    soc: Vec<Soc>,
}

/// Facts of a core that need a source.
const CORE_FACTS: [&str; 3] = ["features", "gcc", "cpu"];
/// Facts of a chip that need a source, or an entry in `unsure`.
const SOC_FACTS: [&str; 8] = [
    "core",
    "features",
    "cores",
    "ghz",
    "routers",
    "accelerator",
    "compatible",
    "openwrt",
];
/// Core features that a row may list in `unsure`.
const FEATURES: [&str; 5] = ["neon", "vfp", "fpu", "divide", "aes"];

/// Maximum number of similar names that the search offers for an unknown router.
const NEAR: usize = 5;

/// A fault in a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The text is not TOML, or lacks the expected structure.
    #[error("table of chips: {0}")]
    Form(#[from] toml::de::Error),
    /// A row contradicts another one or is incomplete.
    #[error("table of chips, {row}: {what}")]
    Row {
        /// Id of the row.
        row: String,
        /// Fault in the row.
        what: String,
    },
}

/// All known chips.
#[derive(Debug, Default)]
pub struct Table {
    socs: Vec<Soc>,
    /// Index of the chip by simplified id, alias and name.
    names: BTreeMap<String, usize>,
    /// Index of the chip by simplified router name, with and without its maker.
    routers: BTreeMap<String, Vec<usize>>,
}

impl Table {
    /// The table that comes with the program.
    #[must_use]
    pub fn builtin() -> &'static Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        // A test ensures that this text parses; without it the program is useless.
        TABLE.get_or_init(|| Self::parse(BUILTIN).unwrap_or_default())
    }

    /// Reads a table and checks that its rows are complete, have sources, and do not contradict each other.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let file: File = toml::from_str(text)?;
        let mut table = Self::default();
        let mut used = BTreeSet::new();
        let mut cores = BTreeMap::new();
        for mut core in file.core {
            core.sources = check_sources(&core.id, &core.sources, &file.source, &mut used)?;
            for fact in CORE_FACTS {
                let needless = fact == "cpu" && core.cpu.is_empty();
                if !needless && !core.sources.contains_key(fact) {
                    return Err(wrong(&core.id, format!("no source for {fact}")));
                }
            }
            if let Some(twin) = cores.insert(core.id.clone(), core) {
                return Err(wrong(&twin.id, "a second core of this id".to_owned()));
            }
        }
        for mut soc in file.soc {
            soc.sources = check_sources(&soc.id, &soc.sources, &file.source, &mut used)?;
            check_row(&soc)?;
            let core = cores.get(&soc.core_id).ok_or_else(|| {
                let what = format!("core {} is not in the table", soc.core_id);
                wrong(&soc.id, what)
            })?;
            soc.core = core.clone();
            for (fact, addresses) in &core.sources {
                let sources = soc.sources.entry(fact.clone()).or_default();
                sources.extend(addresses.iter().cloned());
            }
            table.add(soc)?;
        }
        match file.source.keys().find(|key| !used.contains(key.as_str())) {
            Some(key) => Err(wrong(key, "no fact uses this source".to_owned())),
            None => Ok(table),
        }
    }

    /// All chips, in the order of the file.
    #[must_use]
    pub fn socs(&self) -> &[Soc] {
        &self.socs
    }

    /// The chip of this id, alias or name. Case, spaces, hyphens and the like do not matter.
    #[must_use]
    pub fn soc(&self, name: &str) -> Option<&Soc> {
        self.names
            .get(&simple(name))
            .map(|index| &self.socs[*index])
    }

    /// The ids of chips whose ids, aliases or names resemble `name`, nearest first; may be empty.
    #[must_use]
    pub fn near_socs(&self, name: &str) -> Vec<&str> {
        let wanted = simple(name);
        if wanted.is_empty() {
            return Vec::new();
        }
        let resembles = |known: &String| match simple(known) {
            known if known.contains(&wanted) || wanted.contains(&known) => 0,
            known => distance(&known, &wanted),
        };
        let mut near: Vec<(usize, &str)> = Vec::new();
        for soc in &self.socs {
            let names = soc.aliases.iter().chain([&soc.id, &soc.name]);
            let least = names.map(resembles).min().unwrap_or(usize::MAX);
            if least <= 1 + wanted.len() / 4 {
                near.push((least, &soc.id));
            }
        }
        near.sort();
        near.into_iter().take(NEAR).map(|(_, id)| id).collect()
    }

    /// The chip of this router. Case, spaces, hyphens and the like do not matter, and the maker may be left
    /// out where no other maker has a router of that name.
    ///
    /// # Errors
    /// The names of similar routers, nearest first; may be empty.
    pub fn router(&self, model: &str) -> Result<&Soc, Vec<&str>> {
        let wanted = simple(model);
        match self.routers.get(&wanted).map(Vec::as_slice) {
            Some([index]) => Ok(&self.socs[*index]),
            _ => self.by_end(&wanted).ok_or_else(|| self.near(&wanted)),
        }
    }

    /// The chip shared by all routers whose names end in `wanted`: `MT6000` finds GL.iNet's GL-MT6000.
    fn by_end(&self, wanted: &str) -> Option<&Soc> {
        let mut found = self
            .routers
            .iter()
            .filter(|(name, _)| wanted.len() > 3 && name.ends_with(wanted));
        let first = found.next()?.1.first()?;
        found
            .all(|(_, indices)| indices.iter().all(|index| index == first))
            .then(|| &self.socs[*first])
    }

    /// The chip of a board, named as device trees, OpenWrt or NETGEAR's headers do: `netgear,r7800`,
    /// `U12H270T00_NETGEAR`.
    pub(super) fn board(&self, name: &str) -> Option<&Soc> {
        let wanted = simple(name);
        self.socs
            .iter()
            .find(|soc| soc.board_ids.iter().any(|id| simple(id) == wanted))
            .or_else(|| self.router(name).ok())
    }

    /// The chip that a device tree calls by this name.
    pub(super) fn compatible(&self, name: &str) -> Option<&Soc> {
        self.socs.iter().find(|soc| {
            soc.compatible
                .iter()
                .any(|of| of.eq_ignore_ascii_case(name))
        })
    }

    /// Routers whose names resemble `wanted`.
    fn near(&self, wanted: &str) -> Vec<&str> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut near: Vec<(usize, &str)> = Vec::new();
        for router in self.socs.iter().flat_map(|soc| &soc.routers) {
            let distance = [simple(router), simple(model(router))]
                .iter()
                .map(|name| {
                    if name.contains(wanted) {
                        0
                    } else {
                        distance(name, wanted)
                    }
                })
                .min()
                .unwrap_or(usize::MAX);
            if distance <= 1 + wanted.len() / 4 {
                near.push((distance, router));
            }
        }
        near.sort();
        near.dedup();
        near.into_iter()
            .take(NEAR)
            .map(|(_, router)| router)
            .collect()
    }

    fn add(&mut self, soc: Soc) -> Result<(), TableError> {
        let index = self.socs.len();
        let names: BTreeSet<String> = [&soc.id, &soc.name]
            .into_iter()
            .chain(&soc.aliases)
            .map(|name| simple(name))
            .collect();
        for name in names {
            if self.names.insert(name, index).is_some() {
                return Err(wrong(
                    &soc.id,
                    "its id, name or an alias also belongs to another row".to_owned(),
                ));
            }
        }
        for router in &soc.routers {
            for name in BTreeSet::from([simple(router), simple(model(router))]) {
                let indexes = self.routers.entry(name).or_default();
                if !indexes.contains(&index) {
                    indexes.push(index);
                }
            }
            if self.routers[&simple(router)].len() > 1 {
                return Err(wrong(&soc.id, format!("{router} is in another row, too")));
            }
        }
        self.socs.push(soc);
        Ok(())
    }
}

/// A name without case, spaces and punctuation.
pub(super) fn simple(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric() || *c == '+')
        .flat_map(char::to_lowercase)
        .collect()
}

/// A router's name without its maker, which is the first word.
fn model(router: &str) -> &str {
    router.split_once(' ').map_or(router, |(_, model)| model)
}

/// Edit distance: the insertions, deletions and replacements that turn one name into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn wrong(row: &str, what: String) -> TableError {
    TableError::Row {
        row: row.to_owned(),
        what,
    }
}

/// Checks a row's sources and replaces their short names by addresses.
fn check_sources<'a>(
    id: &str,
    sources: &BTreeMap<String, Vec<String>>,
    addresses: &'a BTreeMap<String, String>,
    used: &mut BTreeSet<&'a str>,
) -> Result<BTreeMap<String, Vec<String>>, TableError> {
    let mut out = BTreeMap::new();
    for (fact, keys) in sources {
        if !SOC_FACTS.contains(&fact.as_str()) && !CORE_FACTS.contains(&fact.as_str()) {
            return Err(wrong(id, format!("{fact} is not a known fact")));
        }
        let mut found = Vec::new();
        for key in keys {
            let (key, address) = addresses
                .get_key_value(key)
                .ok_or_else(|| wrong(id, format!("source {key} is not listed")))?;
            if !address.starts_with("https://") {
                return Err(wrong(id, format!("source {key} is not an address")));
            }
            used.insert(key);
            found.push(address.clone());
        }
        if found.is_empty() {
            return Err(wrong(id, format!("{fact} has an empty list of sources")));
        }
        out.insert(fact.clone(), found);
    }
    Ok(out)
}

/// Checks that every fact has a source or is listed in `unsure`.
fn check_row(row: &Soc) -> Result<(), TableError> {
    if row.cores == 0 || row.ghz.0 <= 0.0 || row.ghz.0 > row.ghz.1 {
        return Err(wrong(
            &row.id,
            "it has no cores, or invalid clocks".to_owned(),
        ));
    }
    if row.id != simple(&row.id) {
        return Err(wrong(
            &row.id,
            "an id must consist of lower-case letters and digits".to_owned(),
        ));
    }
    for fact in SOC_FACTS {
        let empty = match fact {
            "routers" => row.routers.is_empty(),
            "accelerator" => row.accelerator.is_none(),
            "compatible" => row.compatible.is_empty(),
            "openwrt" => row.openwrt_targets.is_empty() && row.openwrt_arch.is_empty(),
            _ => false,
        };
        let unsure = row.unsure.iter().any(|unsure| unsure == fact);
        if !empty && !unsure && !row.sources.contains_key(fact) {
            return Err(wrong(&row.id, format!("no source for {fact}")));
        }
    }
    match row
        .unsure
        .iter()
        .find(|fact| !SOC_FACTS.contains(&fact.as_str()) && !FEATURES.contains(&fact.as_str()))
    {
        Some(fact) => Err(wrong(&row.id, format!("{fact} is not a known fact"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
