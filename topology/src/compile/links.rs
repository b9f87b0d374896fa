//! Links and limits.

use super::Compiler;
use super::nodes::Head;
use crate::cluster::{Limits, LinkCost};
use crate::error::{LimitError, LinkError};
use crate::ids::{MachineName, NodeId};
use crate::routes::Routes;
use crate::spec::LinkSpec;
use crate::units::{Bytes, BytesPerSecond, Nanos};
use std::collections::HashMap;
use std::fmt::Display;

const LATENCY_DEFAULT: Nanos = Nanos(100_000);

impl Compiler<'_> {
    pub(super) fn routes(&mut self, heads: &[Head]) -> Routes {
        let spec = self.spec;
        let default_link = spec.default_link.as_ref().and_then(|link| self.default_link(link));
        // Where a machine is unknown there has been an error and the routes are never asked.
        let machines: Option<Vec<MachineName>> = heads.iter().map(|head| head.machine.clone()).collect();
        let mut routes = machines.map(|machines| Routes::new(machines, default_link));
        let mut lines: HashMap<(NodeId, NodeId), u32> = HashMap::new();
        for (n, link) in spec.links.iter().enumerate() {
            let path = format!("links.{n}");
            let cost = self.link_cost(&path, "[[links]]", link);
            for (from, to) in self.ends(&path, link) {
                if let Some(&first_line) = lines.get(&(from, to)) {
                    let [from, to] = [from, to].map(|id| heads[id.index()].shown.clone());
                    self.error(&path, LinkError::Duplicate { from, to, first_line });
                    continue;
                }
                lines.insert((from, to), self.source.line(&path).unwrap_or(0));
                if let (Some(routes), Some(cost)) = (&mut routes, cost) {
                    routes.link(from, to, cost);
                }
            }
        }
        routes.unwrap_or_default()
    }

    fn default_link(&mut self, link: &LinkSpec) -> Option<LinkCost> {
        for key in ["from", "to", "between"] {
            let path = format!("default_link.{key}");
            if self.source.has(&path) {
                self.error(&path, LinkError::EndsOfDefault { key });
            }
        }
        self.link_cost("default_link", "[default_link]", link)
    }

    fn link_cost(&mut self, path: &str, table: &str, link: &LinkSpec) -> Option<LinkCost> {
        let example = "bandwidth = \"1Gbit/s\"";
        let bandwidth = self
            .require(path, table, "bandwidth", example, link.bandwidth.as_deref())
            .and_then(|text| self.parse(&format!("{path}.bandwidth"), "bandwidth", text));
        let latency = match &link.latency {
            Some(text) => self.parse(&format!("{path}.latency"), "latency", text),
            None => Some(LATENCY_DEFAULT),
        };
        if bandwidth == Some(BytesPerSecond(0)) {
            self.error(&format!("{path}.bandwidth"), LinkError::ZeroBandwidth);
            return None;
        }
        Some(LinkCost { bandwidth: bandwidth?, latency: latency? })
    }

    /// The directed pairs of a link.
    fn ends(&mut self, path: &str, link: &LinkSpec) -> Vec<(NodeId, NodeId)> {
        let (names, both): ([&str; 2], bool) = match (&link.between, &link.from, &link.to) {
            (None, Some(from), Some(to)) => ([from, to], false),
            (Some(between), None, None) => match between.as_slice() {
                [a, b] => ([a, b], true),
                other => {
                    let error = LinkError::NotTwo { count: other.len() };
                    self.error(&format!("{path}.between"), error);
                    return Vec::new();
                }
            },
            (Some(_), _, _) => {
                self.error(path, LinkError::TwoForms);
                return Vec::new();
            }
            (None, _, _) => {
                let unreadable = ["from", "to", "between"].iter().any(|key| {
                    let value = match *key {
                        "from" => link.from.is_some(),
                        "to" => link.to.is_some(),
                        _ => false,
                    };
                    !value && self.source.has(&format!("{path}.{key}"))
                });
                if !unreadable {
                    self.error(path, LinkError::NoEnds);
                }
                return Vec::new();
            }
        };
        let ids = names.map(|name| self.end(path, name));
        let [Some(a), Some(b)] = ids else { return Vec::new() };
        if a == b {
            self.error(path, LinkError::ToItself { node: crate::spec::clip(names[0]) });
            return Vec::new();
        }
        if both { vec![(a, b), (b, a)] } else { vec![(a, b)] }
    }

    fn end(&mut self, path: &str, name: &str) -> Option<NodeId> {
        let id = self.node_of(name);
        if id.is_none() {
            let hint = self.name_hint(name);
            self.error(path, LinkError::UnknownNode { node: crate::spec::clip(name), hint });
        }
        id
    }

    pub(super) fn limits(&mut self) -> Limits {
        let spec = &self.spec.limits;
        let mut limits = Limits::default();
        let sizes = (Bytes(4 << 10), Bytes(64 << 30));
        self.limit(
            "link_in_flight_bytes",
            &spec.link_in_flight_bytes,
            sizes,
            &mut limits.link_in_flight_bytes,
        );
        self.limit(
            "node_in_flight_bytes",
            &spec.node_in_flight_bytes,
            sizes,
            &mut limits.node_in_flight_bytes,
        );
        let transfer = (Bytes(4 << 10), Bytes(16 << 20));
        self.limit("transfer_bytes_max", &spec.transfer_bytes_max, transfer, &mut limits.transfer_bytes_max);
        let patience = (Nanos::from_millis(100), Nanos::from_secs(600));
        self.limit("transfer_timeout", &spec.transfer_timeout, patience, &mut limits.transfer_timeout);
        let silence = (Nanos::from_millis(100), Nanos::from_secs(60));
        self.limit("heartbeat_timeout", &spec.heartbeat_timeout, silence, &mut limits.heartbeat_timeout);
        let mut rate = BytesPerSecond(0);
        let rates = (BytesPerSecond(1000), BytesPerSecond::from_mbit(10_000_000));
        self.limit("link_rate_max", &spec.link_rate_max, rates, &mut rate);
        limits.link_rate_max = (rate.0 > 0).then_some(rate);
        self.order(
            "transfer_bytes_max",
            "link_in_flight_bytes",
            |limits| (&mut limits.transfer_bytes_max, &mut limits.link_in_flight_bytes),
            &mut limits,
        );
        self.order(
            "link_in_flight_bytes",
            "node_in_flight_bytes",
            |limits| (&mut limits.link_in_flight_bytes, &mut limits.node_in_flight_bytes),
            &mut limits,
        );
        // A bound that was lowered above may lie below what the first pair left.
        limits.transfer_bytes_max = limits.transfer_bytes_max.min(limits.link_in_flight_bytes);
        limits
    }

    /// One limit does not exceed another. Where the file states both, that is its business; else the default gives way.
    fn order(
        &mut self,
        smaller: &'static str,
        larger: &'static str,
        both: impl Fn(&mut Limits) -> (&mut Bytes, &mut Bytes),
        limits: &mut Limits,
    ) {
        let stated = |key: &str| self.source.has(&format!("limits.{key}"));
        let (low, high) = both(limits);
        match (stated(smaller), stated(larger)) {
            _ if low <= high => {}
            (true, true) => self.error(&format!("limits.{smaller}"), LimitError::Order { smaller, larger }),
            (true, false) => *high = *low,
            (false, _) => *low = *high,
        }
    }

    fn limit<T>(&mut self, key: &'static str, text: &Option<String>, (min, max): (T, T), into: &mut T)
    where
        T: std::str::FromStr<Err = crate::quantity::QuantityError> + Ord + Display,
    {
        let Some(text) = text else { return };
        let path = format!("limits.{key}");
        let Some(value) = self.parse::<T>(&path, key, text) else { return };
        if value < min || value > max {
            let text = crate::spec::clip(text);
            self.error(&path, LimitError::Range { key, text, min: min.to_string(), max: max.to_string() });
            return;
        }
        *into = value;
    }
}
