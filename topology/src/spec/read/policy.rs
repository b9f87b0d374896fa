//! `policy`: a name or a table of one key.

use super::Reader;
use crate::spec::{
    ControllerText, MassiveGnnText, PolicyText, RudderPaperText, SamplingText, WindowStaticText,
};

const POLICY_KEYS: &[&str] = &[
    "fixed_window",
    "presc",
    "vip",
    "massivegnn",
    "rudder_paper",
    "window_static",
    "belady_superbatch",
    "rudder",
];
const EXPECTED: &str = "a policy such as \"rudder\" or { fixed_window = 8 }";
const SCORING_KEYS: [&str; 3] = ["alpha", "delta", "f"];

impl Reader<'_> {
    pub(super) fn policy(&mut self, key: &'static str) -> Option<PolicyText> {
        let item = self.table.get(key)?;
        if let Some(name) = item.as_str() {
            return Some(PolicyText::Name(name.to_owned()));
        }
        let Some(table) = item.as_table_like() else {
            self.wrong_type(key, item, EXPECTED);
            return None;
        };
        let path = self.path_of(key);
        let mut reader = Reader::new(self.source, table, &path, "`policy`", POLICY_KEYS);
        let mut found = [
            reader.number("fixed_window").map(|fixed_window| PolicyText::FixedWindow { fixed_window }),
            reader
                .table("presc", "`presc`", &["epochs", "seeds", "fanout"], sampling)
                .map(|presc| PolicyText::Presc { presc }),
            reader.table("vip", "`vip`", &["seeds", "fanout"], sampling).map(|vip| PolicyText::Vip { vip }),
            reader
                .table("massivegnn", "`massivegnn`", &SCORING_KEYS, scoring)
                .map(|massivegnn| PolicyText::MassiveGnn { massivegnn }),
            reader
                .table("rudder_paper", "`rudder_paper`", &["alpha", "delta", "f", "controller"], rudder_paper)
                .map(|rudder_paper| PolicyText::RudderPaper { rudder_paper }),
            reader
                .table("window_static", "`window_static`", &["minibatches", "cache"], window_static)
                .map(|window_static| PolicyText::WindowStatic { window_static }),
            reader
                .number("belady_superbatch")
                .map(|belady_superbatch| PolicyText::BeladySuperbatch { belady_superbatch }),
            reader
                .table("rudder", "`rudder`", &["seeds", "fanout"], sampling)
                .map(|rudder| PolicyText::Rudder { rudder }),
        ];
        let mut found = found.iter_mut().filter_map(Option::take);
        let (first, second) = (found.next(), found.next());
        if table.is_empty() || second.is_some() {
            self.wrong_type(key, item, EXPECTED);
            return None;
        }
        first
    }

    fn controller(&mut self, key: &'static str) -> Option<ControllerText> {
        const EXPECTED: &str = "\"always\", \"never\", { random = 0.5 } or { every = 32 }";
        let item = self.table.get(key)?;
        if let Some(name) = item.as_str() {
            return Some(ControllerText::Name(name.to_owned()));
        }
        let Some(table) = item.as_table_like().filter(|table| table.len() == 1) else {
            self.wrong_type(key, item, EXPECTED);
            return None;
        };
        let path = self.path_of(key);
        let mut reader = Reader::new(self.source, table, &path, "`controller`", &["random", "every"]);
        let random = reader.fraction("random").map(|random| ControllerText::Random { random });
        random.or_else(|| reader.number("every").map(|every| ControllerText::Every { every }))
    }
}

fn sampling(r: &mut Reader<'_>) -> SamplingText {
    SamplingText { epochs: r.number("epochs"), seeds: r.number("seeds"), fanout: r.numbers("fanout") }
}

fn scoring(r: &mut Reader<'_>) -> MassiveGnnText {
    MassiveGnnText { alpha: r.fraction("alpha"), delta: r.number("delta"), f: r.fraction("f") }
}

fn rudder_paper(r: &mut Reader<'_>) -> RudderPaperText {
    RudderPaperText { scoring: scoring(r), controller: r.controller("controller") }
}

fn window_static(r: &mut Reader<'_>) -> WindowStaticText {
    WindowStaticText { minibatches: r.number("minibatches"), cache: r.fraction("cache") }
}
