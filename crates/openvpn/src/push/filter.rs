//! `pull-filter` and `route-nopull`: what a client lets a server push.

/// The effect on an option that a filter matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAction {
    /// Takes the option, whatever later filters say.
    Accept,
    /// Leaves the option out.
    Ignore,
    /// Gives up the connection.
    Reject,
}

/// Filters in their order; the first one that matches decides.
#[derive(Clone, Debug, Default)]
pub struct PullFilter {
    /// The action for options that begin with the text.
    pub rules: Vec<(FilterAction, String)>,
    /// `route-nopull`: no routes, no redirection, no name servers.
    pub no_routes: bool,
}

impl PullFilter {
    /// Decides about an option, given as its words with one blank between them: quotes, backslashes and further blanks
    /// that the server wrote are gone.
    #[must_use]
    pub fn decide(&self, option: &str) -> FilterAction {
        self.rules
            .iter()
            .find(|(_, prefix)| option.starts_with(&**prefix))
            .map_or(FilterAction::Accept, |(action, _)| *action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides() {
        let filter = PullFilter {
            rules: vec![
                (FilterAction::Accept, "route 10.".to_owned()),
                (FilterAction::Ignore, "route ".to_owned()),
                (FilterAction::Reject, "redirect-gateway".to_owned()),
            ],
            no_routes: false,
        };
        assert_eq!(
            filter.decide("route 10.1.0.0 255.255.0.0"),
            FilterAction::Accept
        );
        assert_eq!(filter.decide("route 192.168.0.0"), FilterAction::Ignore);
        assert_eq!(filter.decide("redirect-gateway def1"), FilterAction::Reject);
        assert_eq!(
            filter.decide("route-gateway 10.0.0.1"),
            FilterAction::Accept
        );
    }
}
