//! Every format that import reads, small, read back and compared.

#[path = "small/inputs.rs"]
mod inputs;

use inputs::{Dataset, Home, f32s, features, gzip, i32s, i64s, npy, npz};
use rudder_graph::npy::NpyType;
use rudder_graph::{Dtype, Split, layout};
use rudder_importer::{
    BlockSize, Cancel, Direction, Existing, ImportError, ImportOptions, Input, InspectError, Partitioner,
    Phase, Progress, Silent, Total, Verify, import, inspect,
};
use std::path::Path;
use zip::CompressionMethod::{Deflated, Stored};

const EDGES: [(u64, u64); 5] = [(0, 1), (0, 2), (1, 2), (3, 0), (3, 3)];

/// The edges as an edge index.
fn edge_index() -> Vec<u8> {
    i32s(&[2, 5], &[0, 0, 1, 3, 3, 1, 2, 2, 0, 3])
}

fn rows(home: &Home) -> Vec<f32> {
    home.dataset().rows().iter().flat_map(|row| inputs::words(row, f32::from_le_bytes)).collect()
}

/// Checks the edges and the features of [`features`].
fn check(home: &Home) {
    home.import().unwrap();
    let dataset = home.dataset();
    assert_eq!(dataset.edges(), EDGES);
    assert_eq!(rows(home), (0..12).map(|i| i as f32 / 2.0).collect::<Vec<_>>());
    inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap();
}

#[test]
fn edges_come_in_many_forms() {
    let (csc, csr) = ("csc", "csr");
    // In-neighbours of 0: 3; 1: 0; 2: 0, 1; 3: 3. Out-neighbours of 0: 1, 2; 1: 2; 2: none; 3: 0, 3.
    let lists = |kind| match kind {
        "csc" => [i64s(&[5], &[0, 1, 2, 4, 5]), i32s(&[5], &[3, 0, 0, 1, 3])],
        _ => [i64s(&[5], &[0, 2, 3, 3, 5]), i32s(&[5], &[1, 2, 2, 0, 3])],
    };
    let [csc_indptr, csc_indices] = lists(csc);
    let [csr_indptr, csr_indices] = lists(csr);
    let text = "0\t1\n0\t2\n1\t2\n3\t0\n3\t3\n";
    let forms: Vec<Vec<(&str, Vec<u8>)>> = vec![
        vec![("edges.npy", edge_index())],
        vec![("edge_index.npy", i64s(&[2, 5], &[0, 0, 1, 3, 3, 1, 2, 2, 0, 3]))],
        vec![("edges.npz", npz(Deflated, &[("anything", edge_index())]))],
        vec![("data.npz", npz(Stored, &[("edge_index", edge_index()), ("other", i64s(&[1], &[1]))]))],
        vec![("indptr.npy", csc_indptr.clone()), ("indices.npy", csc_indices.clone())],
        vec![("csc_indptr.npy", csc_indptr.clone()), ("csc_indices.npy", csc_indices.clone())],
        vec![("csr_indptr.npy", csr_indptr.clone()), ("csr_indices.npy", csr_indices.clone())],
        vec![("graph.npz", npz(Deflated, &[("csr_indptr", csr_indptr), ("csr_indices", csr_indices)]))],
        vec![("edges.tsv", text.as_bytes().to_vec())],
        vec![("edges.csv.gz", gzip(&format!("source,target\n{}", text.replace('\t', ","))))],
    ];
    for form in forms {
        let home = Home::new();
        home.put("features.npy", &features(4));
        form.iter().for_each(|(name, bytes)| home.put(name, bytes));
        check(&home);
    }
}

#[test]
fn an_edge_list_file_takes_features_from_elsewhere() {
    let home = Home::new();
    home.put("links.txt", b"# a comment\n0 1\n0 2\n1 2\n3 0\n3 3\n");
    home.put("other/rows.npz", &npz(Deflated, &[("x", features(4)), ("z", i64s(&[1], &[0]))]));
    let mut options = home.options();
    options.input = Input::Path(home.input().join("links.txt"));
    options.features = Some(home.input().join("other/rows.npz"));
    home.import_with(&options).unwrap();
    assert_eq!(home.dataset().edges(), EDGES);
    assert_eq!(rows(&home)[3], 1.5);
}

#[test]
fn every_dtype_keeps_its_bytes() {
    for (element, dtype) in [
        (NpyType::F32, Dtype::F32),
        (NpyType::F16, Dtype::F16),
        (NpyType::U16, Dtype::Bf16),
        (NpyType::I8, Dtype::I8),
        (NpyType::U8, Dtype::U8),
        (NpyType::I32, Dtype::I32),
        (NpyType::I64, Dtype::I64),
        (NpyType::F64, Dtype::F64),
    ] {
        let bytes: Vec<u8> = (0..4 * 3 * element.size()).map(|i| (i * 37 % 251) as u8).collect();
        let home = Home::new();
        home.put("edges.npy", &edge_index());
        home.put("x.npz", &npz(Deflated, &[("x", npy(element, &[4, 3], &bytes))]));
        home.import().unwrap();
        let dataset = home.dataset();
        assert_eq!(dataset.manifest.tables[0].dtype, dtype);
        assert_eq!(dataset.rows().concat(), bytes);

        // The same as a sparse matrix that holds every element.
        let indices: Vec<i32> = (0..4).flat_map(|_| [2, 0, 1]).collect();
        let size = element.size() as usize;
        let data: Vec<u8> = (0..4)
            .flat_map(|row| [2, 0, 1].map(|column| row * 3 + column))
            .flat_map(|at: usize| bytes[at * size..(at + 1) * size].to_vec())
            .collect();
        let members = [
            ("data", npy(element, &[12], &data)),
            ("indices", i32s(&[12], &indices)),
            ("indptr", i32s(&[5], &[0, 3, 6, 9, 12])),
            ("shape", i64s(&[2], &[4, 3])),
        ];
        let home = Home::new();
        home.put("edges.npy", &edge_index());
        home.put("features.npz", &npz(Deflated, &members));
        home.import().unwrap();
        assert_eq!(home.dataset().rows().concat(), bytes, "{dtype:?}");
    }
}

#[test]
fn ogb_is_read_from_either_directory() {
    for inside in [false, true] {
        let home = Home::new();
        home.put("raw/edge.csv.gz", &gzip("0,1\n0,2\n1,2\n3,0\n3,3\n"));
        home.put("raw/num-node-list.csv.gz", &gzip("4\n"));
        home.put("raw/node-feat.csv.gz", &gzip("0,0.5,1\n1.5,2.0,2.5\n3,3.5,4e0\n4.5,5,5.5\n"));
        home.put("raw/node-label.csv.gz", &gzip("2\n0.0\nnan\n1\n"));
        home.put("split/time/train.csv.gz", &gzip("3\n0\n"));
        home.put("split/time/valid.csv.gz", &gzip("1\n"));
        home.put("split/time/test.csv", b"2\n");
        let dataset = ogb_dataset(&home, inside);
        assert_eq!(dataset.edges(), EDGES);
        assert_eq!(rows(&home), (0..12).map(|i| i as f32 / 2.0).collect::<Vec<_>>());
        assert_eq!(dataset.labels(), [2, 0, -1, 1]);
        let splits = Split::ALL.map(|split| dataset.split(split));
        assert_eq!(splits, [vec![0, 3], vec![1], vec![2]]);
    }
}

/// What is read where the graph's folder is named, or its `raw` inside of it.
fn ogb_dataset(home: &Home, inside: bool) -> Dataset {
    let mut options = home.options();
    if inside {
        options.input = Input::Path(home.input().join("raw"));
    }
    home.import_with(&options).unwrap();
    home.dataset()
}

#[test]
fn large_ogb_graphs_are_read_from_arrays() {
    for inside in [false, true] {
        let home = Home::new();
        let data =
            [("edge_index", edge_index()), ("node_feat", features(4)), ("node_year", i64s(&[4, 1], &[0; 4]))];
        home.put("raw/data.npz", &npz(Deflated, &data));
        let labels: Vec<u8> = [2.0_f32, f32::NAN, 0.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        home.put(
            "raw/node-label.npz",
            &npz(Deflated, &[("node_label", npy(NpyType::F32, &[4, 1], &labels))]),
        );
        home.put("split/time/train.csv.gz", &gzip("3\n0\n"));
        home.put("split/time/valid.csv.gz", &gzip("1\n"));
        home.put("split/time/test.csv.gz", &gzip("2\n"));
        let dataset = ogb_dataset(&home, inside);
        assert_eq!(dataset.edges(), EDGES);
        assert_eq!(dataset.labels(), [2, -1, 0, 1]);
        assert_eq!(Split::ALL.map(|split| dataset.split(split)), [vec![0, 3], vec![1], vec![2]]);
    }
}

#[test]
fn ogb_graphs_of_several_types_are_refused_by_name() {
    let home = Home::new();
    home.put("raw/relations/author___writes___paper/edge.csv.gz", &gzip("0,1\n"));
    let error = home.import().unwrap_err().to_string();
    assert!(error.contains("relations") && error.contains("export_dataset"), "{error}");
}

#[test]
fn splits_come_in_many_forms() {
    let forms: Vec<Vec<(&str, Vec<u8>)>> = vec![
        vec![("split.npy", npy(NpyType::I8, &[4], &[3, 1, 2, 1]))],
        vec![
            ("split_train.npy", i64s(&[3], &[3, 1, 1])),
            ("split_val.npy", i64s(&[1], &[2])),
            ("split_test.npy", i32s(&[1], &[0])),
        ],
        vec![(
            "masks.npz",
            npz(
                Deflated,
                &[
                    ("train_mask", npy(NpyType::Bool, &[4], &[0, 1, 0, 1])),
                    ("val_mask", npy(NpyType::Bool, &[4], &[0, 0, 1, 0])),
                    ("test_mask", npy(NpyType::Bool, &[4], &[1, 0, 0, 0])),
                ],
            ),
        )],
    ];
    for form in forms {
        let home = Home::new();
        home.put("edges.npy", &edge_index());
        home.put("features.npy", &features(4));
        form.iter().for_each(|(name, bytes)| home.put(name, bytes));
        home.import().unwrap();
        let splits = Split::ALL.map(|split| home.dataset().split(split));
        assert_eq!(splits, [vec![1, 3], vec![2], vec![0]]);
    }
}

#[test]
fn labels_may_be_floats_columns_or_several() {
    for (labels, expected) in [
        (f32s(&[4], &[1.0, f32::NAN, 0.0, -1.0]), Some(vec![1, -1, 0, -1])),
        (i64s(&[4, 1], &[5, -7, 0, 2]), Some(vec![5, -1, 0, 2])),
        (i64s(&[4, 2], &[0; 8]), None),
    ] {
        let home = Home::new();
        home.put("edges.npy", &edge_index());
        home.put("features.npy", &features(4));
        home.put("y.npy", &labels);
        let summary = home.import().unwrap();
        assert_eq!(summary.labels.is_some(), expected.is_some());
        match expected {
            Some(expected) => assert_eq!(home.dataset().labels(), expected),
            None => assert!(summary.notes.iter().any(|note| note.contains("labels left out"))),
        }
    }
}

#[test]
fn isolated_vertices_and_empty_parts_are_valid() {
    for partitioner in [Partitioner::Auto, Partitioner::Metis, Partitioner::Streaming] {
        for (vertices, parts) in [(4, 9), (4, 2), (300, 3)] {
            let home = Home::new();
            home.put("edges.npy", &edge_index());
            home.put("features.npy", &features(vertices));
            let mut options = home.options();
            (options.parts, options.partitioner) = (Some(parts), partitioner);
            options.block_size = BlockSize::Auto;
            let summary = home.import_with(&options).unwrap();
            assert_eq!(summary.parts.len() as u32, parts);
            let dataset = home.dataset();
            assert_eq!(dataset.edges(), EDGES);
            assert_eq!(rows(&home), (0..vertices * 3).map(|i| i as f32 / 2.0).collect::<Vec<_>>());
            let again = inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap();
            assert_eq!(again.edge_cut, summary.edge_cut);
        }
    }
}

#[test]
fn symmetric_adds_reverses_once() {
    let home = Home::new();
    home.put("edges.npy", &edge_index());
    home.put("features.npy", &features(4));
    let mut options = home.options();
    options.direction = Direction::Symmetric;
    home.import_with(&options).unwrap();
    let edges = home.dataset().edges();
    assert_eq!(edges, [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (2, 0), (2, 1), (3, 0), (3, 3)]);
}

#[test]
fn generated_graphs_repeat_and_keep_to_their_spec() {
    for spec in [
        "rmat,vertices=500,edges=4k,dim=5,seed=3",
        "planted,vertices=500,edges=4k,communities=5,dim=5,dtype=i8",
    ] {
        let digest = || {
            let home = Home::new();
            let mut options = home.options();
            options.input = Input::Generate(spec.to_owned());
            (options.parts, options.block_size) = (Some(3), BlockSize::Auto);
            let summary = home.import_with(&options).unwrap();
            assert_eq!((summary.vertices, summary.edges, summary.tables[0].dim), (500, 4000, 5));
            assert_eq!(summary.tables[0].rows_per_block, summary.import.unwrap().block_sizes.unwrap().best());
            inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap();
            summary.digest
        };
        assert_eq!(digest(), digest());
    }
    let home = Home::new();
    let options = ImportOptions::new(Input::Generate("rmat,vertices=5".into()), home.target());
    assert!(matches!(home.import_with(&options), Err(ImportError::Generate(_))));
}

#[test]
fn options_that_cannot_be_are_refused() {
    type Case = (fn(&mut ImportOptions), &'static str);
    let cases: [Case; 7] = [
        (|o| o.parts = Some(0), "0 parts"),
        (|o| o.parts = Some(65_536), "65536 parts"),
        (|o| o.block_size = BlockSize::Rows(3), "3 rows a block"),
        (|o| o.block_size = BlockSize::Rows(128), "128 rows a block"),
        (|o| o.fanout.clear(), "fanouts"),
        (|o| o.seeds = 0, "seeds"),
        (|o| o.target = o.target.with_file_name("a name"), "is not a name"),
    ];
    let home = Home::new();
    home.put("edges.npy", &edge_index());
    home.put("features.npy", &features(4));
    for (spoil, message) in cases {
        let mut options = home.options();
        spoil(&mut options);
        let error = home.import_with(&options).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn an_existing_dataset_is_replaced_only_on_demand() {
    let home = Home::new();
    home.put("edges.npy", &edge_index());
    home.put("features.npy", &features(4));
    let first = home.import().unwrap();
    let mut options = home.options();
    options.seed = 2;
    assert!(matches!(import(&options, &mut Silent), Err(ImportError::TargetExists(_))));
    assert_eq!(inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap().digest, first.digest);
    options.existing = Existing::Replace;
    let second = home.import_with(&options).unwrap();
    assert_ne!(first.digest, second.digest);
    assert_eq!(inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap().digest, second.digest);
    // A failing import leaves the old one.
    home.put("edges.npy", b"broken");
    assert!(import(&options, &mut Silent).is_err());
    assert_eq!(inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap().digest, second.digest);
}

#[test]
fn the_summary_is_text_and_json() {
    let home = Home::new();
    home.put("edges.npy", &edge_index());
    home.put("features.npy", &features(4));
    let summary = home.import().unwrap();
    let text = summary.to_string();
    for part in [
        "vertices     4\n",
        "edges        5\n",
        "12 B a row, 2 rows a block, 2 blocks",
        "peak memory",
        "drawn with seed",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json: serde_json::Value = serde_json::to_value(&summary).unwrap();
    assert_eq!((&json["vertices"], &json["tables"][0]["rows_per_block"]), (&4.into(), &2.into()));
    assert_eq!(json["tables"][0]["dtype"], "f32");
}

/// Keeps what it is told, and checks that calls come in order.
#[derive(Default)]
struct Recorded {
    open: Option<Phase>,
    phases: Vec<Phase>,
}

impl Progress for Recorded {
    fn begin(&mut self, phase: Phase, _total: Total) {
        assert_eq!(self.open.replace(phase), None);
        self.phases.push(phase);
    }

    fn advance(&mut self, _done: u64) {}

    fn end(&mut self, phase: Phase) {
        assert_eq!(self.open.take(), Some(phase));
    }
}

#[test]
fn progress_passes_the_phases_in_order() {
    let home = Home::new();
    home.put("edges.npz", &npz(Deflated, &[("edges", edge_index())]));
    home.put("features.npy", &features(4));
    let mut options = home.options();
    (options.parts, options.block_size) = (Some(2), BlockSize::Auto);
    let mut recorded = Recorded::default();
    import(&options, &mut recorded).unwrap();
    use Phase::{BlockSize as Weigh, Edges, Features, Graph, Order, Partition, Unpack};
    assert_eq!(recorded.phases, [Unpack, Edges, Partition, Order, Weigh, Graph, Features, Phase::Sync]);
}

/// Cancels when a phase begins.
struct CancelAt(Phase, Cancel);

impl Progress for CancelAt {
    fn begin(&mut self, phase: Phase, _total: Total) {
        if phase == self.0 {
            self.1.cancel();
        }
    }

    fn advance(&mut self, _done: u64) {}
    fn end(&mut self, _phase: Phase) {}
}

#[test]
fn a_run_can_be_cancelled_in_every_phase() {
    use Phase::{BlockSize as Weigh, Edges, Features, Graph, Order, Partition, Unpack};
    for phase in [Unpack, Edges, Partition, Order, Weigh, Graph, Features] {
        let home = Home::new();
        home.put("edges.npz", &npz(Deflated, &[("edges", edge_index())]));
        home.put("features.npy", &features(4));
        let mut options = home.options();
        (options.parts, options.block_size) = (Some(2), BlockSize::Auto);
        options.partitioner = Partitioner::Streaming;
        let result = import(&options, &mut CancelAt(phase, options.cancel.clone()));
        assert!(matches!(result, Err(ImportError::Cancelled(_))), "{phase:?}: {result:?}");
        assert_eq!(std::fs::read_dir(home.target().parent().unwrap()).unwrap().count(), 0, "{phase:?}");
    }
}

/// Changes a byte of a file of a dataset.
fn flip(directory: &Path, relative: &str, at: usize) {
    let path = directory.join(relative);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damage_to_a_dataset_is_found_and_named() {
    type Case = (fn(&Path), fn(&InspectError) -> bool);
    let cases: [Case; 8] = [
        (
            |d| flip(d, "parts/0/features.npy", 4096 + 13),
            |e| matches!(e, InspectError::Checksum { block: 0, bad: 1, .. }),
        ),
        (|d| flip(d, "parts/0/features.crc.npy", 128), |e| matches!(e, InspectError::Digest { .. })),
        (|d| flip(d, "labels.npy", 140), |e| matches!(e, InspectError::Digest { .. })),
        (|d| flip(d, layout::DATASET_ID, 128), |e| matches!(e, InspectError::Digest { .. })),
        (|d| flip(d, "graph/edges.indices.npy", 131), |e| matches!(e, InspectError::Value { .. })),
        (|d| flip(d, "graph/edges.indptr.npy", 135), |e| matches!(e, InspectError::Value { .. })),
        (|d| flip(d, layout::MANIFEST, 40), |e| matches!(e, InspectError::Manifest { .. })),
        (
            |d| std::fs::remove_file(d.join("split_train.npy")).unwrap(),
            |e| matches!(e, InspectError::Io { .. }),
        ),
    ];
    for (at, (damage, expected)) in cases.into_iter().enumerate() {
        let home = Home::new();
        home.put("edges.npy", &edge_index());
        home.put("features.npy", &features(4));
        home.put("labels.npy", &i64s(&[4], &[0, 1, 2, 3]));
        home.import().unwrap();
        damage(&home.target());
        let error = inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap_err();
        assert!(expected(&error), "case {at}: {error:?}");
    }
}

#[test]
fn a_directory_with_some_parts_is_inspected() {
    let home = Home::new();
    home.put("edges.npy", &edge_index());
    home.put("features.npy", &features(300));
    let mut options = home.options();
    options.parts = Some(3);
    let whole = home.import_with(&options).unwrap();
    std::fs::remove_dir_all(home.target().join("parts/1")).unwrap();
    let some = inspect(&home.target(), Verify::Checksums, &mut Silent).unwrap();
    assert_eq!(some.parts.iter().map(|part| part.present).collect::<Vec<_>>(), [true, false, true]);
    let verified = some.verified.unwrap();
    assert_eq!((verified.parts_absent, verified.blocks), (1, whole.parts[0].blocks + whole.parts[2].blocks));
    std::fs::remove_file(home.target().join("parts/0/features.crc.npy")).unwrap();
    assert!(matches!(inspect(&home.target(), Verify::Shapes, &mut Silent), Err(InspectError::Io { .. })));
}
