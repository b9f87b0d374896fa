//! Links and the flows that share them, as a fluid: a flow has a rate, and rates change only when flows come and go
//! or a link changes.
//!
//! [`Sharing::MaxMin`] is exact: all flows grow at the same pace until a link of theirs is full (progressive filling;
//! Bertsekas and Gallager, Data Networks, 1992, 6.5.2), anew at every change. [`Sharing::EqualShares`] is for large
//! clusters: a flow gets the least of its links' capacity over their flows, anew every quantum of time; what one
//! link's flows cannot use because another holds them up stays unused.
//!
//! A link may let a burst through at once, as a token bucket does: what it did not carry while it was idle, up to its
//! size. A flow takes what all of its links have saved up when it starts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A link, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIndex(pub u32);

/// A flow that was started. Those that ended are not recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    index: u32,
    serial: u32,
}

/// How rates are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    MaxMin,
    EqualShares { quantum_ns: u64 },
}

/// The links of a flow.
pub type Path = Vec<LinkIndex>;

#[derive(Debug)]
struct Flow {
    path: Path,
    left_bytes: f64,
    /// Bytes per nanosecond.
    rate: f64,
    /// Up to when `left_bytes` is right.
    as_of_ns: u64,
    serial: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Network {
    sharing: Sharing,
    /// Bytes per nanosecond.
    capacity: Vec<f64>,
    /// Bytes that each link can save up, has saved up, and until when that is right.
    burst: f64,
    saved: Vec<f64>,
    saved_ns: u64,
    /// Flows on each link.
    load: Vec<u32>,
    /// Bytes that each link was given so far.
    given: Vec<f64>,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    serial: u32,
    ends: BinaryHeap<Reverse<(u64, FlowId)>>,
    changed: bool,
    balanced_ns: u64,
}

/// What is less than this is rounding.
const BYTES_LEAST: f64 = 1e-3;

impl Network {
    /// `capacity`: bytes per second of each link; `burst`: bytes that each lets through at once after it was idle.
    #[must_use]
    pub fn new(capacity: &[f64], burst: f64, sharing: Sharing) -> Self {
        Network {
            sharing,
            capacity: capacity.iter().map(|rate| rate / 1e9).collect(),
            burst,
            saved: vec![burst; capacity.len()],
            saved_ns: 0,
            load: vec![0; capacity.len()],
            given: vec![0.0; capacity.len()],
            flows: Vec::new(),
            free: Vec::new(),
            serial: 0,
            ends: BinaryHeap::new(),
            changed: false,
            balanced_ns: 0,
        }
    }

    /// A flow of `bytes` over these links; over none it ends at once.
    pub fn start(&mut self, path: Path, bytes: f64, now_ns: u64) -> FlowId {
        let bytes = bytes - self.take_saved(&path, bytes, now_ns);
        self.serial = self.serial.wrapping_add(1);
        for link in &path {
            self.load[link.0 as usize] += 1;
            self.given[link.0 as usize] += bytes;
        }
        let rate = self.equal_share(&path);
        let flow = Flow { path, left_bytes: bytes, rate, as_of_ns: now_ns, serial: self.serial };
        let index = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            (self.flows.len() - 1) as u32
        });
        self.flows[index as usize] = Some(flow);
        let id = FlowId { index, serial: self.serial };
        self.changed = true;
        self.note_end(id);
        id
    }

    /// Ends a flow before its time; the bytes that it had left.
    pub fn cancel(&mut self, id: FlowId, now_ns: u64) -> Option<f64> {
        self.flow(id)?;
        self.progress(now_ns);
        let flow = self.remove(id)?;
        for link in &flow.path {
            self.given[link.0 as usize] -= flow.left_bytes;
        }
        Some(flow.left_bytes)
    }

    /// Bytes that a link carried, once its flows have ended, and its capacity in bytes per second.
    pub fn carried(&self, link: LinkIndex) -> (f64, f64) {
        (self.given[link.0 as usize], self.capacity[link.0 as usize] * 1e9)
    }

    /// Bytes per second from now on.
    pub fn set_capacity(&mut self, link: LinkIndex, rate: f64, now_ns: u64) {
        self.progress(now_ns);
        self.capacity[link.0 as usize] = rate / 1e9;
        self.changed = true;
    }

    /// Flows that have not ended.
    #[cfg(test)]
    fn flows(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// When something happens here by itself, if nothing happens from outside.
    pub fn next_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.changed && self.may_balance(now_ns) {
            self.balance(now_ns);
        }
        while let Some(Reverse((_, id))) = self.ends.peek() {
            if self.flow(*id).is_some() {
                break;
            }
            self.ends.pop();
        }
        let end = self.ends.peek().map(|end| end.0.0);
        match self.sharing {
            Sharing::EqualShares { quantum_ns } if self.changed => {
                let next = self.balanced_ns + quantum_ns;
                Some(end.map_or(next, |end| end.min(next)))
            }
            _ => end,
        }
    }

    /// The next flow that has ended by now.
    pub fn pop_ended(&mut self, now_ns: u64) -> Option<FlowId> {
        loop {
            let Reverse((at_ns, id)) = *self.ends.peek()?;
            if self.flow(id).is_none() {
                self.ends.pop();
                continue;
            }
            if at_ns > now_ns {
                return None;
            }
            self.ends.pop();
            if self.burst > 0.0 {
                // What it carried was not saved.
                self.progress(now_ns);
            }
            self.remove(id);
            return Some(id);
        }
    }

    fn may_balance(&self, now_ns: u64) -> bool {
        match self.sharing {
            Sharing::MaxMin => true,
            Sharing::EqualShares { quantum_ns } => now_ns >= self.balanced_ns + quantum_ns,
        }
    }

    fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.flows.get(id.index as usize)?.as_ref().filter(|flow| flow.serial == id.serial)
    }

    fn remove(&mut self, id: FlowId) -> Option<Flow> {
        self.flow(id)?;
        let flow = self.flows[id.index as usize].take()?;
        self.free.push(id.index);
        for link in &flow.path {
            self.load[link.0 as usize] -= 1;
        }
        self.changed = true;
        Some(flow)
    }

    fn equal_share(&self, path: &[LinkIndex]) -> f64 {
        let share =
            |link: &LinkIndex| self.capacity[link.0 as usize] / f64::from(self.load[link.0 as usize].max(1));
        path.iter().map(share).fold(f64::INFINITY, f64::min)
    }

    /// Takes what all links of a path have saved up.
    fn take_saved(&mut self, path: &[LinkIndex], bytes: f64, now_ns: u64) -> f64 {
        if self.burst <= 0.0 || path.is_empty() {
            return 0.0;
        }
        self.progress(now_ns);
        let taken = path.iter().map(|link| self.saved[link.0 as usize]).fold(bytes, f64::min);
        for link in path {
            self.saved[link.0 as usize] -= taken;
        }
        taken
    }

    /// What links could have carried and did not, they save.
    fn save(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.saved_ns) as f64;
        for (saved, capacity) in self.saved.iter_mut().zip(&self.capacity) {
            *saved += capacity * passed;
        }
        for flow in self.flows.iter().flatten() {
            let carried = flow.rate * now_ns.saturating_sub(flow.as_of_ns) as f64;
            for link in &flow.path {
                self.saved[link.0 as usize] -= carried.min(flow.left_bytes);
            }
        }
        for saved in &mut self.saved {
            *saved = saved.clamp(0.0, self.burst);
        }
        self.saved_ns = now_ns;
    }

    fn progress(&mut self, now_ns: u64) {
        if self.burst > 0.0 {
            self.save(now_ns);
        }
        for flow in self.flows.iter_mut().flatten() {
            let passed = now_ns.saturating_sub(flow.as_of_ns) as f64;
            if passed > 0.0 {
                flow.left_bytes = (flow.left_bytes - flow.rate * passed).max(0.0);
                flow.as_of_ns = now_ns;
            }
        }
    }

    /// Finds all rates anew.
    fn balance(&mut self, now_ns: u64) {
        self.progress(now_ns);
        match self.sharing {
            Sharing::MaxMin => self.fill(),
            Sharing::EqualShares { .. } => {
                for index in 0..self.flows.len() {
                    let Some(flow) = &self.flows[index] else { continue };
                    let rate = self.equal_share(&flow.path);
                    if let Some(flow) = &mut self.flows[index] {
                        flow.rate = rate;
                    }
                }
            }
        }
        self.changed = false;
        self.balanced_ns = now_ns;
        self.ends.clear();
        for index in 0..self.flows.len() {
            if let Some(flow) = &self.flows[index] {
                let id = FlowId { index: index as u32, serial: flow.serial };
                self.note_end(id);
            }
        }
    }

    fn note_end(&mut self, id: FlowId) {
        let Some(flow) = self.flow(id) else { return };
        let wait = if flow.left_bytes <= BYTES_LEAST { 0.0 } else { (flow.left_bytes / flow.rate).ceil() };
        // A link without capacity holds its flows until it changes.
        if wait < 1e18 {
            self.ends.push(Reverse((flow.as_of_ns.saturating_add(wait as u64), id)));
        }
    }

    /// Progressive filling.
    fn fill(&mut self) {
        let mut room = self.capacity.clone();
        let mut growing_on = self.load.clone();
        let mut growing: Vec<usize> =
            (0..self.flows.len()).filter(|&index| self.flows[index].is_some()).collect();
        while !growing.is_empty() {
            let share =
                |link: usize| (growing_on[link] > 0).then(|| room[link] / f64::from(growing_on[link]));
            let least = (0..room.len()).filter_map(share).fold(f64::INFINITY, f64::min);
            let full = |link: &LinkIndex| {
                let link = link.0 as usize;
                room[link] / f64::from(growing_on[link].max(1)) <= least * (1.0 + 1e-12)
            };
            let (stopped, still): (Vec<usize>, Vec<usize>) = growing.into_iter().partition(|&index| {
                self.flows[index]
                    .as_ref()
                    .is_some_and(|flow| least.is_infinite() || flow.path.iter().any(full))
            });
            for index in stopped {
                let Some(flow) = &mut self.flows[index] else { continue };
                flow.rate = least;
                for link in &flow.path {
                    let link = link.0 as usize;
                    room[link] = (room[link] - least).max(0.0);
                    growing_on[link] -= 1;
                }
            }
            growing = still;
        }
    }

    /// The rate of a flow in bytes per second.
    #[cfg(test)]
    fn rate(&self, id: FlowId) -> f64 {
        self.flow(id).map_or(0.0, |flow| flow.rate * 1e9)
    }
}

#[cfg(test)]
mod tests;
