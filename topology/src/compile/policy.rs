//! A node's policy: a name with published parameters, or a table with its own.

use super::Compiler;
use crate::error::{Hint, ValueError};
use crate::policy::PolicySpec;
use crate::spec::PolicyText;

const FIXED_WINDOW_MAX: u32 = 1024;

/// The names, in the order of [`PolicySpec::ALL`].
const POLICIES: &[&str] = &{
    let mut names = [""; PolicySpec::ALL.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = PolicySpec::ALL[n].name();
        n += 1;
    }
    names
};

impl Compiler<'_> {
    pub(super) fn policy(&mut self, n: usize) -> Option<PolicySpec> {
        let Some((path, policy)) = self.setting(n, "policy", |node| node.policy.as_ref()) else {
            let unreadable =
                self.source.has(&format!("nodes.{n}.policy")) || self.source.has("defaults.policy");
            return (!unreadable).then_some(PolicySpec::Rudder);
        };
        match policy {
            PolicyText::Name(name) => self.named_policy(&path, name),
            &PolicyText::FixedWindow { fixed_window } => self
                .in_range(&path, "fixed_window", fixed_window, 1, FIXED_WINDOW_MAX)
                .map(|minibatches| PolicySpec::FixedWindow { minibatches }),
        }
    }

    fn named_policy(&mut self, path: &str, name: &str) -> Option<PolicySpec> {
        // A window's length is the operator's business: there is no default that would suit.
        let hint = match PolicySpec::named(name) {
            Some(PolicySpec::FixedWindow { .. }) => {
                Hint { nearest: Some("{ fixed_window = 8 }"), known: POLICIES }
            }
            Some(policy) => return Some(policy),
            None => Hint::new(name, POLICIES),
        };
        self.value_error(path, "policy", name, ValueError::Choice { hint });
        None
    }
}
