//! DGL's folders stream as well: neither features nor edges are ever held as the files have them. Alone in its file, since
//! peak memory is that of the whole process.

#[path = "small/dgl_files.rs"]
mod dgl_files;
#[path = "small/inputs.rs"]
mod inputs;

use dgl_files::{graph, tensor_start, words};
use inputs::{Home, i64s};
use rudder_graph::npy::{NpyType, Padding, header};
use rudder_importer::memory;
use std::fs::File;
use std::io::{BufWriter, Write};

const VERTICES: u64 = 40_000;
const COLUMNS: u64 = 1_000;
const FEATURE_BYTES: u64 = VERTICES * COLUMNS * 4;
const EDGES: u64 = 200_000;

/// Appends the features of some vertices.
fn features(file: &mut impl Write, vertices: u64) {
    let row = vec![0x3f; COLUMNS as usize * 4];
    (0..vertices).for_each(|_| file.write_all(&row).unwrap());
}

fn create(home: &Home, name: &str) -> BufWriter<File> {
    let path = home.input().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    BufWriter::new(File::create(path).unwrap())
}

/// What `partition_graph` writes, in two parts.
fn partitions() -> Home {
    let home = Home::new();
    let half = VERTICES / 2;
    for part in 0..2_u64 {
        let mut file = create(&home, &format!("part{part}/node_feat.dgl"));
        let name = b"_N/feat";
        file.write_all(&words(&[0xdd5a_9fbe_3fa2_443f, 1, 1, name.len() as u64])).unwrap();
        file.write_all(name).unwrap();
        file.write_all(&tensor_start((2, 32), &[half, COLUMNS], half * COLUMNS * 4)).unwrap();
        features(&mut file, half);
        let sources: Vec<u64> = (0..EDGES / 2).map(|edge| edge * 7 % half).collect();
        let destinations: Vec<u64> = (0..EDGES / 2).map(|edge| edge % half).collect();
        let vertices: Vec<u64> = (part * half..(part + 1) * half).collect();
        let bytes = graph(&sources, &destinations, &vertices, &vec![1; EDGES as usize / 2]);
        home.put(&format!("part{part}/graph.dgl"), &bytes);
    }
    let files = |part| {
        serde_json::json!({
            "node_feats": format!("part{part}/node_feat.dgl"), "edge_feats": format!("part{part}/edge_feat.dgl"),
            "part_graph": format!("part{part}/graph.dgl"),
        })
    };
    let json = serde_json::json!({
        "graph_name": "large", "num_nodes": VERTICES, "num_edges": EDGES, "num_parts": 2,
        "node_map": {"_N": [[0, half], [half, VERTICES]]},
        "edge_map": {"_N:_E:_N": [[0, EDGES / 2], [EDGES / 2, EDGES]]},
        "part-0": files(0), "part-1": files(1),
    });
    home.put("large.json", json.to_string().as_bytes());
    home
}

/// What `chunk_graph` writes: two chunks, edges as text.
fn chunks() -> Home {
    let home = Home::new();
    for chunk in 0..2 {
        let mut file = create(&home, &format!("node_data/feat{chunk}.npy"));
        let shape = [VERTICES / 2, COLUMNS];
        file.write_all(&header(NpyType::F32, &shape, Padding::Aligned)).unwrap();
        features(&mut file, VERTICES / 2);
        let mut edges = create(&home, &format!("edges/{chunk}.txt"));
        for edge in 0..EDGES / 2 {
            writeln!(edges, "{} {}", edge * 7 % VERTICES, edge % VERTICES).unwrap();
        }
    }
    let labels: Vec<i64> = (0..VERTICES as i64 / 2).map(|vertex| vertex % 3).collect();
    (0..2)
        .for_each(|chunk| home.put(&format!("node_data/label{chunk}.npy"), &i64s(&[VERTICES / 2], &labels)));
    let files = |name: &str| [format!("node_data/{name}0.npy"), format!("node_data/{name}1.npy")];
    let json = serde_json::json!({
        "graph_name": "large", "node_type": ["n"], "edge_type": ["n:to:n"],
        "num_nodes_per_chunk": [[VERTICES / 2, VERTICES / 2]], "num_edges_per_chunk": [[EDGES / 2, EDGES / 2]],
        "edges": {"n:to:n": {"format": {"name": "csv", "delimiter": " "}, "data": ["edges/0.txt", "edges/1.txt"]}},
        "node_data": {"n": {
            "feat": {"format": {"name": "numpy"}, "data": files("feat")},
            "label": {"format": {"name": "numpy"}, "data": files("label")},
        }},
    });
    home.put("metadata.json", json.to_string().as_bytes());
    home
}

#[test]
fn features_and_edges_are_never_held() {
    for home in [partitions(), chunks()] {
        let summary = home.import().unwrap();
        assert_eq!((summary.feature_bytes, summary.edges), (FEATURE_BYTES, EDGES));
        let import = summary.import.unwrap();
        let peak = import.memory_bytes_peak.unwrap();
        assert!(peak < FEATURE_BYTES / 2, "{peak} bytes held of {FEATURE_BYTES} bytes of features");
        assert!(peak < import.memory_bytes_limit, "{peak} bytes, {} allowed", import.memory_bytes_limit);
        assert!(memory::peak().unwrap().0 < FEATURE_BYTES / 2);
    }
}
