//! Finds lines in the owner's configuration that name servers for some domains.

/// Servers that a configuration has for any of these names, in lines such as `server=/corp.example/192.0.2.1`. Lines
/// for subdomains count, too.
pub(super) fn servers_of(text: &str, names: &[String]) -> Vec<String> {
    let is_of = |value: &&str| {
        let mut words = value.split('/').skip(1).collect::<Vec<_>>();
        words.pop();
        words.iter().any(|word| {
            let word = word.trim_matches('.').to_ascii_lowercase();
            names.iter().any(|name| {
                let name = name.trim_matches('.').to_ascii_lowercase();
                word == name || word.strip_suffix(&name).is_some_and(|it| it.ends_with('.'))
            })
        })
    };
    let lines = text.lines().filter_map(|line| {
        let line = line.trim();
        let value = line
            .strip_prefix("server")
            .or_else(|| line.strip_prefix("local"))?;
        value.trim_start().strip_prefix('=').map(str::trim)
    });
    lines
        .filter(|it| it.starts_with('/'))
        .filter(is_of)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_owners_for_the_names_are_found() {
        let text = "server=8.8.8.8\n#server=/corp.example/1.1.1.1\nserver=/a.org/Corp.Example/192.0.2.1\n\
                    server=/db.corp.example/192.0.2.2\nserver=/mycorp.example/192.0.2.3\nserver=/a.org/192.0.2.4\n";
        assert_eq!(
            servers_of(text, &["corp.example".to_owned()]),
            [
                "/a.org/Corp.Example/192.0.2.1",
                "/db.corp.example/192.0.2.2"
            ]
        );
    }
}
