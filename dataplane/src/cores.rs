//! Where a mover's thread runs, and where everything else does: hwloc finds the cores that the topology file names and
//! binds the calling thread.
//! Memory is local by first touch: a bound thread allocates its buffers after it was bound.

use hwlocality::cpu::binding::CpuBindingFlags;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::Topology;
use rudder_topology::{CoreObject, CoreSpec, Cores};

/// Where a thread runs, for ready lines and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Not bound: it shares cores with training.
    Shared,
    /// Bound to these CPUs, as the operating system numbers them.
    Bound { cpus: Vec<usize>, numa_nodes: Vec<usize> },
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Shared => f.write_str("shared cores, not bound"),
            Placement::Bound { cpus, numa_nodes } => {
                write!(f, "bound to cpus {cpus:?} of NUMA nodes {numa_nodes:?}")
            }
        }
    }
}

/// Why a thread could not be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("hwloc cannot read this machine's topology: {reason}")]
    Unreadable { reason: String },
    #[error("this machine has no {spec:?}")]
    NoSuchCores { spec: CoreSpec },
    #[error("hwloc describes another machine (a synthetic or loaded topology): binding would do nothing")]
    NotThisSystem,
    #[error(
        "movers take every core, so nothing is left for the control plane; give movers fewer `mover_cores`"
    )]
    NothingLeft,
    #[error("binding to cpus {cpus:?} was refused: {reason}")]
    Refused { cpus: Vec<usize>, reason: String },
}

/// Binds the calling thread as `cores` says for movers.
pub fn place_mover(cores: &Cores) -> Result<Placement, PlacementError> {
    match cores {
        Cores::Shared => Ok(Placement::Shared),
        Cores::Reserved { mover, .. } => bind(&read_topology()?, mover),
    }
}

/// Binds the calling thread, and those that it will start, to where neither movers nor training run: control plane,
/// advisor and HTTP. Where training takes all that movers leave, they share with training; never with movers.
pub fn place_control(cores: &Cores) -> Result<Placement, PlacementError> {
    let Cores::Reserved { mover, training } = cores else { return Ok(Placement::Shared) };
    let topology = read_topology()?;
    let set = control_set(&topology, mover, training)?;
    bind_set(&topology, &set)
}

/// The CPUs that are left.
fn control_set(
    topology: &Topology,
    mover: &[CoreSpec],
    training: &[CoreSpec],
) -> Result<CpuSet, PlacementError> {
    let mut left = topology.allowed_cpuset().clone_target();
    left -= &cpu_set(topology, mover)?;
    if training.is_empty() {
        return not_empty(left);
    }
    let mut own = left.clone();
    own -= &cpu_set(topology, training)?;
    not_empty(if own.is_empty() { left } else { own })
}

fn not_empty(set: CpuSet) -> Result<CpuSet, PlacementError> {
    if set.is_empty() { Err(PlacementError::NothingLeft) } else { Ok(set) }
}

fn read_topology() -> Result<Topology, PlacementError> {
    Topology::new().map_err(|error| PlacementError::Unreadable { reason: error.to_string() })
}

fn bind(topology: &Topology, specs: &[CoreSpec]) -> Result<Placement, PlacementError> {
    bind_set(topology, &cpu_set(topology, specs)?)
}

fn bind_set(topology: &Topology, set: &CpuSet) -> Result<Placement, PlacementError> {
    if !topology.is_this_system() {
        return Err(PlacementError::NotThisSystem);
    }
    let cpus = cpu_numbers(set);
    topology
        .bind_cpu(set, CpuBindingFlags::THREAD)
        .map_err(|error| PlacementError::Refused { cpus: cpus.clone(), reason: error.to_string() })?;
    let numa_nodes = topology
        .objects_with_type(ObjectType::NUMANode)
        .filter(|node| node.cpuset().is_some_and(|own| own.intersects(set)))
        .filter_map(|node| node.os_index())
        .collect();
    Ok(Placement::Bound { cpus, numa_nodes })
}

fn cpu_numbers(set: &CpuSet) -> Vec<usize> {
    set.iter_set().map(usize::from).collect()
}

/// The CPUs that the specs name, all of which must exist.
fn cpu_set(topology: &Topology, specs: &[CoreSpec]) -> Result<CpuSet, PlacementError> {
    let mut set = CpuSet::new();
    for spec in specs {
        let missing = || PlacementError::NoSuchCores { spec: spec.clone() };
        let named = match spec {
            CoreSpec::CpuRange { first, last } => cpu_range(topology, *first, *last).ok_or_else(missing)?,
            CoreSpec::Object { kind, index } => {
                let object = topology
                    .objects_with_type(object_type(*kind))
                    .find(|object| object.logical_index() == *index as usize)
                    .ok_or_else(missing)?;
                object.cpuset().ok_or_else(missing)?.clone_target()
            }
        };
        set |= &named;
    }
    if set.is_empty() {
        return Err(PlacementError::Refused { cpus: Vec::new(), reason: "the set is empty".to_owned() });
    }
    Ok(set)
}

fn cpu_range(topology: &Topology, first: u32, last: u32) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for number in first..=last {
        let unit = topology
            .objects_with_type(ObjectType::PU)
            .find(|unit| unit.os_index() == Some(number as usize))?;
        set |= &unit.cpuset()?.clone_target();
    }
    Some(set)
}

fn object_type(kind: CoreObject) -> ObjectType {
    match kind {
        CoreObject::Package => ObjectType::Package,
        CoreObject::NumaNode => ObjectType::NUMANode,
        CoreObject::L3 => ObjectType::L3Cache,
        CoreObject::Core => ObjectType::Core,
        CoreObject::Pu => ObjectType::PU,
    }
}

#[cfg(test)]
#[path = "cores_tests.rs"]
mod tests;
