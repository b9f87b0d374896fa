use super::*;
use proptest::prelude::*;

fn rmat(vertices: u64, edges: u64) -> GraphGenerator {
    let shape = Shape::Rmat { a: 0.57, b: 0.19, c: 0.19 };
    GraphGenerator::new(GeneratorSpec { shape, vertices, edges, seed: 3, classes: 4 }).unwrap()
}

fn planted(vertices: u64, communities: u32, inside: f64) -> GraphGenerator {
    let shape = Shape::PlantedPartition { communities, inside };
    GraphGenerator::new(GeneratorSpec { shape, vertices, edges: 4 * vertices, seed: 3, classes: communities })
        .unwrap()
}

#[test]
fn communities_tile_the_vertices() {
    for (vertices, communities) in [(1, 1), (7, 3), (10, 10), (1000, 7), (4_000_000_000, 65_537)] {
        let mut next = 0;
        for community in 0..communities {
            let (first, len) = community_range(community, vertices, communities);
            assert_eq!(first, next);
            assert!(len > 0);
            for vertex in [first, first + len - 1] {
                assert_eq!(community_of(vertex, vertices, communities), community, "{vertex} of {vertices}");
            }
            next = first + len;
        }
        assert_eq!(next, vertices);
    }
}

#[test]
fn rmat_is_skewed_and_planted_partition_is_clustered() {
    let graph = rmat(1000, 20_000);
    let mut degrees = vec![0_u32; 1000];
    graph.edges().for_each(|(_, target)| degrees[target.index()] += 1);
    degrees.sort_unstable();
    let top: u32 = degrees[900..].iter().sum();
    assert!(top > 7_000, "the top tenth of an R-MAT graph has {top} of 20,000 edges");

    let graph = planted(1000, 10, 0.9);
    let inside = graph.edges().filter(|&(s, t)| graph.label(s) == graph.label(t)).count();
    // 0.9 + 0.1 / 10 of 4000 is 3640, standard deviation 18.
    assert!((3530..3750).contains(&inside), "{inside}");
}

#[test]
fn scrambling_is_a_permutation() {
    for vertices in [1, 2, 3, 5, 16, 1000] {
        let graph = rmat(vertices, 0);
        let mut seen: Vec<_> = (0..vertices).map(|v| graph.scramble(v).0).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..vertices as u32).collect::<Vec<_>>());
    }
}

#[test]
fn features_of_a_class_lie_together() {
    let graph = planted(100, 2, 0.9);
    let row = |v| {
        let mut row = [0.0_f32; 32];
        graph.feature_row(VertexId(v), &mut row);
        row
    };
    let distance =
        |a: [f32; 32], b: [f32; 32]| -> f32 { a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum() };
    assert!(distance(row(0), row(1)) < distance(row(0), row(99)));
    assert!(row(7).iter().all(|x| (-2.0..2.0).contains(x)));
    assert_eq!(row(7), row(7));
}

#[test]
fn specs_read_and_refuse() {
    let (spec, rest) = GeneratorSpec::parse("rmat:vertices=2M,edges=16M,seed=9,dim=128,dtype=f16").unwrap();
    assert_eq!((spec.vertices, spec.edges, spec.seed, spec.classes), (2_000_000, 16_000_000, 9, 16));
    assert_eq!(rest, [("dim".into(), "128".into()), ("dtype".into(), "f16".into())]);
    let (spec, _) = GeneratorSpec::parse("planted:vertices=1k,edges=4k,communities=8,inside=0.5").unwrap();
    assert_eq!(spec.shape, Shape::PlantedPartition { communities: 8, inside: 0.5 });
    for bad in [
        "",
        "rmat",
        "rmat:",
        "rmat:vertices=5",
        "star:vertices=5,edges=5",
        "rmat:vertices=0,edges=5",
        "rmat:vertices=5G,edges=5",
        "rmat:vertices=99999999999999999999,edges=5",
        "rmat:vertices=-1,edges=5",
        "rmat:vertices=5,edges=5,a=0.9,b=0.9",
        "rmat:vertices=5,edges=5,a=nan",
        "rmat:vertices=5,edges=5,classes=0",
        "rmat:vertices=5,vertices=5,edges=5",
        "rmat:vertices=5ä,edges=5",
        "planted:vertices=5,edges=5,communities=6",
        "planted:vertices=5,edges=5,communities=0",
    ] {
        assert!(GeneratorSpec::parse(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn edges_stay_inside_and_repeat(vertices in 1_u64..5000, seed: u64, a in 0.0..0.5, b in 0.0..0.5) {
        for shape in [Shape::Rmat { a, b, c: 0.0 }, Shape::PlantedPartition { communities: 1, inside: a }] {
            let spec = GeneratorSpec { shape, vertices, edges: 50, seed, classes: 3 };
            let graph = GraphGenerator::new(spec.clone()).unwrap();
            let edges: Vec<_> = graph.edges().collect();
            prop_assert!(edges.iter().all(|(s, t)| u64::from(s.0) < vertices && u64::from(t.0) < vertices));
            let again = GraphGenerator::new(spec).unwrap();
            let backwards: Vec<_> = (0..50).rev().map(|n| again.edge(n)).collect();
            prop_assert!(edges.iter().rev().eq(&backwards));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}") {
        let _ = GeneratorSpec::parse(&text);
    }
}
