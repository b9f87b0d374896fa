//! What every minibatch costs in pure code: sampling, and mapping rows to blocks: `cargo bench -p rudder-graph`.

use divan::counter::ItemsCount;
use rudder_graph::generate::{GeneratorSpec, GraphGenerator, Shape};
use rudder_graph::random::Key;
use rudder_graph::{Csc, Demand, DemandMapper, Dtype, Manifest, PartitionBook};
use rudder_graph::{SampleKey, Sampler, TableSpec};
use rudder_topology::{DatasetName, TableId, TableName, VertexId};

fn main() {
    divan::main();
}

struct Graph {
    indptr: Vec<u64>,
    indices: Vec<u32>,
}

fn graph(vertices: u64, edges: u64) -> Graph {
    let shape = Shape::Rmat { a: 0.57, b: 0.19, c: 0.19 };
    let spec = GeneratorSpec { shape, vertices, edges, seed: 1, classes: 2 };
    let generator = GraphGenerator::new(spec).expect("a valid specification");
    let mut indptr = vec![0_u64; vertices as usize + 1];
    generator.edges().for_each(|(_, target)| indptr[target.index() + 1] += 1);
    for vertex in 0..vertices as usize {
        indptr[vertex + 1] += indptr[vertex];
    }
    let mut next = indptr.clone();
    let mut indices = vec![0; edges as usize];
    for (source, target) in generator.edges() {
        indices[next[target.index()] as usize] = source.0;
        next[target.index()] += 1;
    }
    Graph { indptr, indices }
}

/// Fanout 10, 5 over a million vertices and eight million edges; an item is a seed.
#[divan::bench(args = [64, 1024, 8192])]
fn sample(bencher: divan::Bencher, seeds: u64) {
    let graph = graph(1_000_000, 8_000_000);
    let csc = Csc::new(&graph.indptr, &graph.indices).expect("a graph");
    let draws = Key::new(3);
    let mut sampler = Sampler::new(vec![10, 5]);
    let mut minibatch = 0;
    bencher.counter(ItemsCount::new(seeds)).bench_local(|| {
        minibatch += 1;
        let seeds: Vec<_> =
            (0..seeds).map(|i| VertexId(draws.with(minibatch).below(i, csc.vertices()) as u32)).collect();
        sampler.sample(csc, SampleKey { seed: 1, epoch: 0, minibatch }, &seeds).len()
    });
}

fn book(rows: u64, rows_per_block: u32, parts: u64) -> PartitionBook {
    let offsets: Vec<u64> = (0..=parts).map(|part| part * rows / parts).collect();
    PartitionBook::new(&Manifest {
        format: 1,
        name: DatasetName::new("bench").expect("a name"),
        vertices: rows,
        edges: 0,
        digest: String::new(),
        part_offsets: offsets.clone(),
        graphs: Vec::new(),
        tables: vec![TableSpec {
            name: TableName::new("x").expect("a name"),
            dim: 128,
            dtype: Dtype::F32,
            rows_per_block,
            row_offsets: offsets,
        }],
        files: Vec::new(),
        notes: Vec::new(),
    })
}

/// 100,000 random rows over a million blocks of 8 rows, by number of parts; an item is a row.
#[divan::bench(args = [1, 8, 256])]
fn demand(bencher: divan::Bencher, parts: u64) {
    let rows = 8_000_000;
    let book = book(rows, 8, parts);
    let mut mapper = DemandMapper::default();
    let mut demand = Demand::default();
    let draws = Key::new(5);
    let wanted: Vec<_> = (0..100_000).map(|i| VertexId(draws.below(i, rows) as u32)).collect();
    bencher.counter(ItemsCount::new(wanted.len())).bench_local(|| {
        mapper.map_into(&book, TableId(0), &wanted, &mut demand).expect("all rows exist");
        demand.blocks.len()
    });
}
