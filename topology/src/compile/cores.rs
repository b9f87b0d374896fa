//! Core specifications and their overlap.

use super::Compiler;
use crate::cluster::{CoreObject, CoreSpec, Cores, Node};
use crate::error::{Hint, NodeError, ValueError};
use crate::ids::MachineName;
use std::collections::HashMap;
use std::fmt;

/// Linux supports at most this many cpus.
const CPUS_MAX: u32 = 8192;
/// More pieces than this in one list are a mistake.
const PIECES_MAX: usize = 256;
const CORE_MODES: &[&str] = &["shared", "reserved"];

/// `0-3,8,core:2,numa:0`.
pub(super) fn parse_cores(text: &str) -> Result<Vec<CoreSpec>, ValueError> {
    let pieces = text.split(',');
    if pieces.clone().count() > PIECES_MAX {
        return Err(ValueError::Cores);
    }
    pieces.map(|piece| parse_piece(piece.trim()).ok_or(ValueError::Cores)).collect()
}

fn parse_piece(piece: &str) -> Option<CoreSpec> {
    if let Some((kind, index)) = piece.split_once(':') {
        let kind = match kind {
            "package" => CoreObject::Package,
            "numa" => CoreObject::NumaNode,
            "l3" => CoreObject::L3,
            "core" => CoreObject::Core,
            "pu" => CoreObject::Pu,
            _ => return None,
        };
        return Some(CoreSpec::Object { kind, index: number(index)? });
    }
    let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(CoreSpec::CpuRange { first, last })
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|&n| n < CPUS_MAX)
}

impl fmt::Display for CoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CoreSpec::CpuRange { first, last } if first == last => write!(f, "{first}"),
            CoreSpec::CpuRange { first, last } => write!(f, "{first}-{last}"),
            CoreSpec::Object { kind, index } => {
                let kind = match kind {
                    CoreObject::Package => "package",
                    CoreObject::NumaNode => "numa",
                    CoreObject::L3 => "l3",
                    CoreObject::Core => "core",
                    CoreObject::Pu => "pu",
                };
                write!(f, "{kind}:{index}")
            }
        }
    }
}

/// The training cores of one machine with the node that trains there. A cpu number and an hwloc object can only be
/// compared on the machine itself, so each is compared with its like.
struct Training<'a> {
    cpus: Vec<Option<&'a Node>>,
    objects: Vec<(&'a CoreSpec, &'a Node)>,
}

impl<'a> Training<'a> {
    fn of(nodes: &[&'a Node]) -> Training<'a> {
        let mut training = Training { cpus: vec![None; CPUS_MAX as usize], objects: Vec::new() };
        for &node in nodes {
            let Cores::Reserved { training: list, .. } = &node.cores else { continue };
            for spec in list {
                match *spec {
                    CoreSpec::CpuRange { first, last } => {
                        for cpu in &mut training.cpus[first as usize..=last as usize] {
                            cpu.get_or_insert(node);
                        }
                    }
                    CoreSpec::Object { .. } if !training.objects.iter().any(|(have, _)| *have == spec) => {
                        training.objects.push((spec, node));
                    }
                    CoreSpec::Object { .. } => {}
                }
            }
        }
        training
    }

    /// The first of `spec`'s cores where a node trains.
    fn clash(&self, spec: &CoreSpec) -> Option<(CoreSpec, &'a Node)> {
        match *spec {
            CoreSpec::CpuRange { first, last } => {
                let mut taken = (first..=last).skip_while(|&cpu| self.cpus[cpu as usize].is_none());
                let start = taken.next()?;
                let owner = self.cpus[start as usize]?;
                let last = taken.take_while(|&cpu| self.cpus[cpu as usize].is_some()).last();
                Some((CoreSpec::CpuRange { first: start, last: last.unwrap_or(start) }, owner))
            }
            CoreSpec::Object { .. } => {
                let &(_, owner) = self.objects.iter().find(|(have, _)| *have == spec)?;
                Some((spec.clone(), owner))
            }
        }
    }
}

impl Compiler<'_> {
    pub(super) fn cores(&mut self, n: usize, shown: &str) -> Option<Cores> {
        let mode = self.setting(n, "cores", |node| node.cores.as_deref());
        let mover = self.setting(n, "mover_cores", |node| node.mover_cores.as_deref());
        let training = self.setting(n, "training_cores", |node| node.training_cores.as_deref());
        if let Some((path, text)) = &mode
            && !CORE_MODES.contains(text)
        {
            let hint = Hint::new(text, CORE_MODES);
            self.value_error(path, "cores", text, ValueError::Choice { hint });
            return None;
        }
        let shared = mode.as_ref().is_some_and(|(_, text)| *text == "shared");
        for (key, list) in [("mover_cores", &mover), ("training_cores", &training)] {
            if let (true, Some((path, _))) = (shared, list) {
                self.error(path, NodeError::SharedAndReserved { key });
                return None;
            }
        }
        if shared || (mode.is_none() && mover.is_none() && training.is_none()) {
            return Some(Cores::Shared);
        }
        let Some((mover_path, mover)) = mover else {
            self.error(&format!("nodes.{n}"), NodeError::NoMoverCores { node: shown.to_owned() });
            return None;
        };
        let mover = self.core_list(&mover_path, "mover_cores", mover)?;
        let training = match training {
            Some((path, text)) => self.core_list(&path, "training_cores", text)?,
            None => Vec::new(),
        };
        Some(Cores::Reserved { mover, training })
    }

    fn core_list(&mut self, path: &str, key: &'static str, text: &str) -> Option<Vec<CoreSpec>> {
        match parse_cores(text) {
            Ok(cores) => Some(cores),
            Err(error) => {
                self.value_error(path, key, text, error);
                None
            }
        }
    }

    /// No node's movers may run where a node of the same machine trains.
    pub(super) fn check_cores(&mut self, nodes: &[Option<Node>]) {
        let mut machines: HashMap<&MachineName, Vec<&Node>> = HashMap::new();
        for node in nodes.iter().flatten() {
            if matches!(&node.cores, Cores::Reserved { .. }) {
                machines.entry(&node.machine).or_default().push(node);
            }
        }
        for (machine, nodes) in &machines {
            let training = Training::of(nodes);
            for node in nodes {
                let Cores::Reserved { mover, .. } = &node.cores else { continue };
                let Some((cores, other)) = mover.iter().find_map(|spec| training.clash(spec)) else {
                    continue;
                };
                let path = format!("nodes.{}.mover_cores", node.id.index());
                let error = NodeError::CoresOverlap {
                    node: node.name.clone(),
                    other: other.name.clone(),
                    machine: (*machine).clone(),
                    cores: cores.to_string(),
                };
                self.error(&path, error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_or_refused() {
        let text = "0-3,8, core:2,numa:0";
        let cores = parse_cores(text).unwrap();
        let shown: Vec<String> = cores.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0-3", "8", "core:2", "numa:0"]);
        for bad in ["", "3-1", "a", "core:", "core", "socket:1", "0-", "-1", "9999", "1,,2", "+1"] {
            assert_eq!(parse_cores(bad), Err(ValueError::Cores), "{bad}");
        }
    }
}
