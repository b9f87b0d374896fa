use super::*;
use hwlocality::topology::builder::TopologyBuilder;

fn synthetic() -> Topology {
    TopologyBuilder::new()
        .from_synthetic("Package:2 NUMANode:1 L3Cache:1 Core:4 PU:2")
        .expect("a description")
        .build()
        .expect("a topology")
}

fn cpus(specs: &[CoreSpec]) -> Result<Vec<usize>, PlacementError> {
    cpu_set(&synthetic(), specs).map(|set| cpu_numbers(&set))
}

fn object(kind: CoreObject, index: u32) -> CoreSpec {
    CoreSpec::Object { kind, index }
}

#[test]
fn objects_and_ranges_name_their_cpus() {
    let range = CoreSpec::CpuRange { first: 3, last: 5 };
    for (specs, expected) in [
        (vec![object(CoreObject::Core, 1)], vec![2, 3]),
        (vec![object(CoreObject::Pu, 7)], vec![7]),
        (vec![object(CoreObject::Package, 1)], (8..16).collect()),
        (vec![object(CoreObject::NumaNode, 0)], (0..8).collect()),
        (vec![object(CoreObject::L3, 1)], (8..16).collect()),
        (vec![range.clone()], vec![3, 4, 5]),
        (vec![range, object(CoreObject::Core, 7)], vec![3, 4, 5, 14, 15]),
    ] {
        assert_eq!(cpus(&specs), Ok(expected), "{specs:?}");
    }
}

#[test]
fn what_the_machine_lacks_is_named() {
    for spec in [
        object(CoreObject::Core, 8),
        object(CoreObject::NumaNode, 2),
        CoreSpec::CpuRange { first: 15, last: 16 },
        CoreSpec::CpuRange { first: 0, last: u32::MAX },
    ] {
        assert_eq!(cpus(std::slice::from_ref(&spec)), Err(PlacementError::NoSuchCores { spec }));
    }
    assert!(cpus(&[]).is_err());
}

#[test]
fn binding_on_a_described_topology_is_refused_rather_than_pretended() {
    let refused = bind(&synthetic(), &[object(CoreObject::Core, 0)]);
    assert_eq!(refused, Err(PlacementError::NotThisSystem));
}

#[test]
fn a_thread_is_bound_where_it_says() {
    assert_eq!(place_mover(&Cores::Shared), Ok(Placement::Shared));
    let cores = Cores::Reserved { mover: vec![object(CoreObject::Pu, 0)], training: Vec::new() };
    let bound = std::thread::spawn(move || {
        let placement = place_mover(&cores);
        let topology = read_topology().expect("a topology");
        let set = topology.cpu_binding(CpuBindingFlags::THREAD).expect("a binding");
        (placement, cpu_numbers(&set))
    });
    let (placement, cpus) = bound.join().expect("no panic");
    match placement.expect("bound") {
        Placement::Bound { cpus: said, .. } => assert_eq!(said, cpus),
        Placement::Shared => panic!("not bound"),
    }
}

#[test]
fn the_control_plane_has_what_movers_and_training_leave() {
    let control = |mover: &[CoreSpec], training: &[CoreSpec]| {
        control_set(&synthetic(), mover, training).map(|set| cpu_numbers(&set))
    };
    let range = |first, last| CoreSpec::CpuRange { first, last };
    assert_eq!(control(&[range(0, 3)], &[range(4, 13)]), Ok(vec![14, 15]));
    assert_eq!(control(&[object(CoreObject::Package, 0)], &[]), Ok((8..16).collect()));
    assert_eq!(
        control(&[range(0, 3)], &[range(4, 15)]),
        Ok((4..16).collect()),
        "with training, not with movers"
    );
    assert_eq!(control(&[range(0, 15)], &[]), Err(PlacementError::NothingLeft));
    assert!(control(&[range(0, 99)], &[]).is_err());
}
