//! A node's policy: a name with published parameters, or a table with its own.

use super::Compiler;
use crate::error::{Hint, SpecError, ValueError};
use crate::policy::{
    ControllerSpec, Fanout, MassiveGnnSpec, PRESC_EPOCHS_DEFAULT, PolicySpec, Sampling, WindowStaticSpec,
};
use crate::spec::{ControllerText, MassiveGnnText, PolicyText, SamplingText, WindowStaticText, clip};
use crate::units::Share;

const FIXED_WINDOW_MAX: u32 = 1024;
/// A trainer may announce 1,024 minibatches; two of them are the one in use and the one that is ready beside it.
const LOOK_AHEAD_MAX: u32 = 1022;
const MINIBATCHES_MAX: u32 = 1 << 20;
const SEEDS_MAX: u32 = 1 << 20;
const EPOCHS_MAX: u32 = 100;
/// The least that a share can differ from 0 and from 1.
const LEAST: f64 = 1e-6;

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
const CONTROLLERS: &[&str] = &["always", "never", "{ random = 0.5 }", "{ every = 32 }"];

impl Compiler<'_> {
    pub(super) fn policy(&mut self, n: usize) -> Option<PolicySpec> {
        let Some((path, policy)) = self.setting(n, "policy", |node| node.policy.as_ref()) else {
            let unreadable =
                self.source.has(&format!("nodes.{n}.policy")) || self.source.has("defaults.policy");
            return (!unreadable).then_some(PolicySpec::RUDDER);
        };
        match policy {
            PolicyText::Name(name) => self.named_policy(&path, name),
            &PolicyText::FixedWindow { fixed_window } => self
                .in_range(&path, "fixed_window", fixed_window, 1, FIXED_WINDOW_MAX)
                .map(|minibatches| PolicySpec::FixedWindow { minibatches }),
            PolicyText::Presc { presc } => {
                let path = format!("{path}.presc");
                let epochs = presc.epochs.unwrap_or(PRESC_EPOCHS_DEFAULT);
                let epochs = self.in_range(&format!("{path}.epochs"), "epochs", epochs, 1, EPOCHS_MAX);
                let sampling = self.sampling(&path, presc);
                Some(PolicySpec::Presc { epochs: epochs?, sampling: sampling? })
            }
            PolicyText::Vip { vip } => {
                Some(PolicySpec::Vip { sampling: self.sampling(&format!("{path}.vip"), vip)? })
            }
            PolicyText::MassiveGnn { massivegnn } => {
                self.scoring(&format!("{path}.massivegnn"), massivegnn).map(PolicySpec::MassiveGnn)
            }
            PolicyText::RudderPaper { rudder_paper } => {
                let path = format!("{path}.rudder_paper");
                let scoring = self.scoring(&path, &rudder_paper.scoring);
                let controller = match &rudder_paper.controller {
                    Some(controller) => self.controller(&format!("{path}.controller"), controller),
                    None => Some(ControllerSpec::Always),
                };
                Some(PolicySpec::RudderPaper { scoring: scoring?, controller: controller? })
            }
            PolicyText::WindowStatic { window_static } => {
                let path = format!("{path}.window_static");
                self.window_static(&path, window_static).map(PolicySpec::WindowStatic)
            }
            &PolicyText::BeladySuperbatch { belady_superbatch } => self
                .in_range(&path, "belady_superbatch", belady_superbatch, 1, LOOK_AHEAD_MAX)
                .map(|minibatches| PolicySpec::BeladySuperbatch { minibatches }),
            PolicyText::Rudder { rudder } => {
                let sampling = self.sampling(&format!("{path}.rudder"), rudder)?;
                Some(PolicySpec::Rudder { sampling: Some(sampling) })
            }
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

    fn sampling(&mut self, path: &str, text: &SamplingText) -> Option<Sampling> {
        let published = Sampling::PUBLISHED;
        let seeds = text.seeds.unwrap_or(published.seeds);
        let seeds = self.in_range(&format!("{path}.seeds"), "seeds", seeds, 1, SEEDS_MAX);
        let fanout = match text.fanout.as_deref().map(Fanout::new) {
            None => Some(published.fanout),
            Some(Some(fanout)) => Some(fanout),
            Some(None) => {
                let shown = clip(&format!("{:?}", text.fanout.as_deref().unwrap_or_default()));
                self.error(&format!("{path}.fanout"), SpecError::Fanout { text: shown });
                None
            }
        };
        Some(Sampling { seeds: seeds?, fanout: fanout? })
    }

    fn scoring(&mut self, path: &str, text: &MassiveGnnText) -> Option<MassiveGnnSpec> {
        let published = MassiveGnnSpec::PUBLISHED;
        let alpha = self.share(path, "alpha", text.alpha, published.alpha, (LEAST, 1.0 - LEAST));
        let delta = text.delta.unwrap_or(published.delta);
        let delta = self.in_range(&format!("{path}.delta"), "delta", delta, 1, MINIBATCHES_MAX);
        let fraction = self.share(path, "f", text.f, published.fraction, (0.0, 1.0));
        Some(MassiveGnnSpec { alpha: alpha?, delta: delta?, fraction: fraction? })
    }

    fn controller(&mut self, path: &str, text: &ControllerText) -> Option<ControllerSpec> {
        match text {
            ControllerText::Name(name) => match name.as_str() {
                "always" => Some(ControllerSpec::Always),
                "never" => Some(ControllerSpec::Never),
                other => {
                    let hint = match other {
                        "random" => Hint { nearest: Some("{ random = 0.5 }"), known: CONTROLLERS },
                        "every" => Hint { nearest: Some("{ every = 32 }"), known: CONTROLLERS },
                        other => Hint::new(other, CONTROLLERS),
                    };
                    self.value_error(path, "controller", other, ValueError::Choice { hint });
                    None
                }
            },
            &ControllerText::Random { random } => self
                .share(path, "random", Some(random), Share::ONE, (0.0, 1.0))
                .map(|probability| ControllerSpec::Random { probability }),
            &ControllerText::Every { every } => self
                .in_range(&format!("{path}.every"), "every", every, 1, MINIBATCHES_MAX)
                .map(|minibatches| ControllerSpec::Every { minibatches }),
        }
    }

    fn window_static(&mut self, path: &str, text: &WindowStaticText) -> Option<WindowStaticSpec> {
        let default = WindowStaticSpec::DEFAULT;
        let minibatches = text.minibatches.unwrap_or(default.minibatches);
        let path_of = format!("{path}.minibatches");
        let minibatches = self.in_range(&path_of, "minibatches", minibatches, 1, LOOK_AHEAD_MAX / 2);
        let cache = self.share(path, "cache", text.cache, default.cache, (0.0, 0.5));
        Some(WindowStaticSpec { minibatches: minibatches?, cache: cache? })
    }

    fn share(
        &mut self,
        path: &str,
        key: &'static str,
        value: Option<f64>,
        default: Share,
        (min, max): (f64, f64),
    ) -> Option<Share> {
        let Some(value) = value else { return Some(default) };
        let share = Share::new(value).filter(|_| (min..=max).contains(&value));
        if share.is_none() {
            let (value, min, max) = (value.to_string(), min.to_string(), max.to_string());
            self.error(&format!("{path}.{key}"), SpecError::Share { key, value, min, max });
        }
        share
    }
}
