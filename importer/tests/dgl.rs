//! DGL's chunked graphs and partitions, and what is wrong with some. Files that DGL itself wrote are read by the tests
//! of the Python package.

#[path = "small/dgl_files.rs"]
mod dgl_files;
#[path = "small/inputs.rs"]
mod inputs;

use dgl_files::{flags, graph, longs, tensor, tensors};
use inputs::{Home, f32s, i64s};
use rudder_importer::Partitioner;

/// Six vertices in two parts.
const RANGES: [[u64; 2]; 2] = [[0, 4], [4, 6]];
const EDGES: [(u64, u64); 5] = [(0, 1), (4, 1), (5, 0), (1, 5), (4, 4)];

fn description(ranges: [[u64; 2]; 2]) -> serde_json::Value {
    let files = |part| {
        serde_json::json!({
            "node_feats": format!("part{part}/node_feat.dgl"),
            "edge_feats": format!("part{part}/edge_feat.dgl"),
            "part_graph": format!("part{part}/graph.dgl"),
        })
    };
    serde_json::json!({
        "graph_name": "small", "num_nodes": 6, "num_edges": 5, "part_method": "metis", "num_parts": 2, "halo_hops": 1,
        "node_map": {"_N": ranges}, "edge_map": {"_N:_E:_N": [[0, 3], [3, 5]]},
        "ntypes": {"_N": 0}, "etypes": {"_N:_E:_N": 0}, "part-0": files(0), "part-1": files(1),
    })
}

fn node_feats(first: u64, rows: u64) -> Vec<u8> {
    let data = (first * 2..(first + rows) * 2).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<_>>();
    let labels = (first..first + rows).map(|v| v % 3).collect::<Vec<_>>();
    let train: Vec<u8> = (first..first + rows).map(|v| u8::from(v < 3)).collect();
    tensors(&[
        ("_N/train_mask", flags(&train)),
        ("_N/label", longs(&labels)),
        ("_N/feat", tensor((2, 32), &[rows, 2], &data)),
    ])
}

/// Partitions of the six vertices, with the halo that DGL adds and edges of the halo that are not the part's own.
fn partitions() -> Home {
    let home = Home::new();
    home.put("small.json", description(RANGES).to_string().as_bytes());
    home.put("part0/node_feat.dgl", &node_feats(0, 4));
    home.put("part1/node_feat.dgl", &node_feats(4, 2));
    // Local 4 and 5 are vertices 5 and 4; the last edge, 1 to 5, is the other part's.
    home.put("part0/graph.dgl", &graph(&[0, 5, 4, 1], &[1, 1, 0, 4], &[0, 1, 2, 3, 5, 4], &[1, 1, 1, 0]));
    home.put("part1/graph.dgl", &graph(&[2, 0], &[1, 0], &[4, 5, 1], &[1, 1]));
    home
}

#[test]
fn partitions_are_read_and_stay_as_they_were_cut() {
    let home = partitions();
    let summary = home.import().unwrap();
    let dataset = home.dataset();
    assert_eq!(dataset.manifest.part_offsets, [0, 4, 6]);
    assert!(dataset.original[..4].iter().all(|&v| v < 4), "{:?}", dataset.original);
    let mut edges = EDGES;
    edges.sort_unstable();
    assert_eq!(dataset.edges(), edges);
    let rows: Vec<f32> =
        dataset.rows().concat().chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
    assert_eq!(rows, (0..12).map(|i| i as f32).collect::<Vec<_>>());
    assert_eq!(dataset.labels(), [0, 1, 2, 0, 1, 2]);
    assert_eq!(dataset.split(rudder_graph::layout::Split::Train), [0, 1, 2]);
    assert_eq!(summary.import.unwrap().partitioner, "as the input was cut");
    // The cut of DGL's goes when another is asked for.
    let mut options = home.options();
    (options.parts, options.partitioner) = (Some(3), Partitioner::Streaming);
    options.existing = rudder_importer::Existing::Replace;
    assert_eq!(home.import_with(&options).unwrap().parts.len(), 3);
}

/// Spoils partitions, and says what the message has to name.
type Case = (&'static str, fn(&Home), [&'static str; 2]);

#[test]
fn bad_partitions_are_named() {
    let cases: [Case; 14] = [
        (
            "cut tensors",
            |h| shorten(h, "part1/node_feat.dgl", 3),
            ["part1/node_feat.dgl[_N/feat]", "13 bytes"],
        ),
        ("cut graph", |h| shorten(h, "part0/graph.dgl", 40), ["part0/graph.dgl", "DGL"]),
        ("short graph", |h| h.put("part0/graph.dgl", b"abc"), ["part0/graph.dgl, byte 0", "ends where"]),
        (
            "other file",
            |h| h.put("part0/graph.dgl", &[7; 5000]),
            ["part0/graph.dgl, byte 0", "not a file of DGL's"],
        ),
        (
            "no graph",
            |h| std::fs::remove_file(h.input().join("part1/graph.dgl")).unwrap(),
            ["part1/graph.dgl", ""],
        ),
        (
            "rows",
            |h| h.put("part1/node_feat.dgl", &node_feats(4, 3)),
            ["part1/node_feat.dgl[_N/train_mask]", "2 rows"],
        ),
        (
            "a vertex",
            |h| h.put("part1/graph.dgl", &graph(&[2, 0], &[1, 0], &[4, 9, 1], &[1, 1])),
            ["part1/graph.dgl[_ID], element 1", "vertex 9 does not exist; the graph has 6"],
        ),
        (
            "an end",
            |h| h.put("part1/graph.dgl", &graph(&[2, 0], &[1, 3], &[4, 5, 1], &[1, 1])),
            ["part1/graph.dgl[destinations], element 1", "vertex 3 does not exist"],
        ),
        (
            "flags",
            |h| h.put("part1/graph.dgl", &graph(&[2, 0], &[1, 0], &[4, 5, 1], &[1])),
            ["part1/graph.dgl", "1 flags"],
        ),
        (
            "edges",
            |h| h.put("part1/graph.dgl", &graph(&[2, 0], &[1, 0], &[4, 5, 1], &[1, 0])),
            ["small.json", "4 edges in the parts, but 5, as num_edges says"],
        ),
        ("gap", |h| describe(h, description([[0, 3], [4, 6]])), ["small.json", "starts at 3"]),
        ("too few", |h| describe(h, description([[0, 4], [4, 5]])), ["small.json", "6, as num_nodes says"]),
        (
            "types",
            |h| {
                let mut json = description(RANGES);
                json["node_map"] = serde_json::json!({"a": RANGES, "b": RANGES});
                describe(h, json);
            },
            ["small.json", "2 vertex types (a, b)"],
        ),
        (
            "no JSON",
            |h| h.put("small.json", b"{\"num_parts\": "),
            ["small.json", "the JSON is not as DGL writes it"],
        ),
    ];
    for (what, spoil, expected) in cases {
        let home = partitions();
        spoil(&home);
        let error = home.import().unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{what}: {error}");
    }
}

fn shorten(home: &Home, name: &str, bytes: usize) {
    let whole = std::fs::read(home.input().join(name)).unwrap();
    home.put(name, &whole[..whole.len() - bytes]);
}

fn describe(home: &Home, json: serde_json::Value) {
    home.put("small.json", json.to_string().as_bytes());
}

#[test]
fn no_byte_of_a_partition_makes_it_panic() {
    let file = graph(&[0, 5, 4, 1], &[1, 1, 0, 4], &[0, 1, 2, 3, 5, 4], &[1, 1, 1, 0]);
    // The file's own header is passed over but for its first words.
    for at in (0..32).chain((4096..file.len()).step_by(101)) {
        for byte in [0xff, 0x01] {
            let home = partitions();
            let mut bytes = file.clone();
            bytes[at] ^= byte;
            home.put("part0/graph.dgl", &bytes);
            // Either it is noticed, or it was an id that could be another's.
            drop(home.import());
        }
    }
}

/// A chunked graph of six vertices in two chunks.
fn chunked(edit: fn(&mut serde_json::Value)) -> Home {
    let home = Home::new();
    let numpy = |name: &str| serde_json::json!({"format": {"name": "numpy"}, "data": [format!("{name}-0.npy"), format!("{name}-1.npy")]});
    let mut json = serde_json::json!({
        "graph_name": "small", "node_type": ["v"], "edge_type": ["v:to:v"],
        "num_nodes_per_chunk": [[4, 2]], "num_edges_per_chunk": [[3, 2]],
        "edges": {"v:to:v": {"format": {"name": "csv", "delimiter": " "}, "data": ["e0.csv", "e1.csv"]}},
        "node_data": {"v": {"feat": numpy("feat"), "label": numpy("label")}},
        "edge_data": {"v:to:v": {"weight": numpy("weight")}},
    });
    edit(&mut json);
    home.put("metadata.json", json.to_string().as_bytes());
    home.put("e0.csv", b"0 1\n4 1\n5 0\n");
    home.put("e1.csv", b"1 5\n4 4\n");
    let rows = |first: u64, rows: u64| (first * 2..(first + rows) * 2).map(|i| i as f32).collect::<Vec<_>>();
    home.put("feat-0.npy", &f32s(&[4, 2], &rows(0, 4)));
    home.put("feat-1.npy", &f32s(&[2, 2], &rows(4, 2)));
    home.put("label-0.npy", &i64s(&[4], &[0, 1, 2, 0]));
    home.put("label-1.npy", &i64s(&[2], &[1, 2]));
    home
}

#[test]
fn a_chunked_graph_is_read() {
    let home = chunked(|_| {});
    let summary = home.import().unwrap();
    let dataset = home.dataset();
    let mut edges = EDGES;
    edges.sort_unstable();
    assert_eq!(dataset.edges(), edges);
    assert_eq!(dataset.labels(), [0, 1, 2, 0, 1, 2]);
    assert_eq!(dataset.rows()[5], [10.0_f32, 11.0].map(f32::to_le_bytes).concat());
    assert!(summary.notes.iter().any(|note| note == "edge data left out: weight"), "{:?}", summary.notes);
}

#[test]
fn bad_chunks_are_named() {
    type Case = (fn(&mut serde_json::Value), fn(&Home), [&'static str; 2]);
    let cases: [Case; 9] = [
        (|_| {}, |h| h.put("e1.csv", b"1 5\n4 6\n"), ["e1.csv, line 2", "vertex 6 does not exist"]),
        (|_| {}, |h| h.put("e1.csv", b"1 5\n"), ["e1.csv", "1 edges, but 2, as num_edges_per_chunk says"]),
        (|_| {}, |h| h.put("label-1.npy", &i64s(&[3], &[1, 2, 3])), ["metadata.json", "`label` has 7 rows"]),
        (|_| {}, |h| h.put("feat-1.npy", &f32s(&[2, 3], &[0.0; 6])), ["feat-1.npy", "rows as in"]),
        (|_| {}, |h| h.put("v.txt", b"0\n1\n0\n"), ["v.txt", "parts of 3 vertices, but one for each of 6"]),
        (|_| {}, |h| h.put("v.txt", b"0\n1\nx\n0\n0\n0\n"), ["v.txt, line 3", "`x` is not a number"]),
        (
            |j| j["node_data"]["v"]["feat"]["format"]["name"] = "parquet".into(),
            |_| {},
            ["metadata.json[feat]", "`parquet` are not read: use numpy or csv"],
        ),
        (
            |j| j["node_type"] = serde_json::json!(["v", "w"]),
            |_| {},
            ["metadata.json", "2 vertex types (v, w)"],
        ),
        (
            |j| drop(j["node_data"]["v"]["feat"].take()),
            |_| {},
            ["metadata.json", "JSON is not as DGL writes it"],
        ),
    ];
    for (edit, spoil, expected) in cases {
        let home = chunked(edit);
        spoil(&home);
        let error = home.import().unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
}
