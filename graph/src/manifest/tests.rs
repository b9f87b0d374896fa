use super::*;
use crate::PartitionBook;
use proptest::prelude::*;
use rudder_topology::TableId;

/// A sealed manifest with two parts, a graph and a table.
fn manifest() -> Manifest {
    let name = |text: &str| TableName::new(text).unwrap();
    let mut manifest = Manifest {
        format: FORMAT_VERSION,
        name: DatasetName::new("tiny").unwrap(),
        vertices: 10,
        edges: 20,
        digest: String::new(),
        part_offsets: vec![0, 6, 10],
        graphs: vec![GraphSpec { name: name("cites"), edges: 20 }],
        tables: vec![TableSpec {
            name: name("x"),
            dim: 3,
            dtype: Dtype::F16,
            rows_per_block: 4,
            row_offsets: vec![0, 6, 10],
        }],
        files: Vec::new(),
        notes: vec!["edge cut 3 of 20".into()],
    };
    list_files(&mut manifest);
    manifest
}

fn list_files(manifest: &mut Manifest) {
    let file = |path| FileSpec { path, bytes: 1, digest: "0".repeat(64) };
    manifest.files = manifest.required_files().into_iter().map(file).collect();
    manifest.seal();
}

#[test]
fn a_sealed_manifest_reads_back() {
    let mut manifest = manifest();
    manifest.files.push(FileSpec { path: layout::LABELS.into(), bytes: 208, digest: "a".repeat(64) });
    manifest.seal();
    let again = Manifest::parse(&manifest.to_toml()).unwrap();
    assert_eq!(again, manifest);
    assert_eq!(PartitionBook::new(&again).blocks(), 3);
    assert_eq!(again.file("labels.npy").unwrap().bytes, 208);
}

#[test]
fn the_digest_covers_every_field() {
    let sealed = manifest();
    let changes: [fn(&mut Manifest); 4] = [
        |m| m.notes.push("x".into()),
        |m| m.files[0].bytes += 1,
        |m| m.tables[0].dim += 1,
        |m| m.part_offsets[1] = 5,
    ];
    for change in changes {
        let mut changed = sealed.clone();
        change(&mut changed);
        let errors = changed.check().unwrap_err().0;
        assert!(matches!(errors[..], [ManifestError::DigestDiffers { .. }]), "{errors:?}");
    }
}

#[test]
fn every_error_has_its_case() {
    type Case = (fn(&mut Manifest), fn(&ManifestError) -> bool);
    let cases: Vec<Case> = vec![
        (|m| m.format = 2, |e| matches!(e, ManifestError::Format(2))),
        (|m| m.vertices = 0, |e| matches!(e, ManifestError::Vertices { count: 0 })),
        (|m| m.vertices = 1 << 32, |e| matches!(e, ManifestError::Vertices { .. })),
        (|m| m.vertices = 11, |e| matches!(e, ManifestError::Offsets { .. })),
        (|m| m.part_offsets = vec![], |e| matches!(e, ManifestError::Offsets { .. })),
        (|m| m.part_offsets = vec![10], |e| matches!(e, ManifestError::Offsets { .. })),
        (|m| m.part_offsets = vec![1, 6, 10], |e| matches!(e, ManifestError::Offsets { .. })),
        (|m| m.part_offsets = vec![0; 70_000], |e| matches!(e, ManifestError::Offsets { .. })),
        (|m| m.tables[0].row_offsets = vec![0, 11, 10], |e| matches!(e, ManifestError::Offsets { .. })),
        (|m| m.tables[0].row_offsets = vec![0, 10], |e| matches!(e, ManifestError::OffsetCount { .. })),
        (|m| m.tables[0].rows_per_block = 0, |e| matches!(e, ManifestError::RowsPerBlock { .. })),
        (|m| m.tables[0].rows_per_block = 3, |e| matches!(e, ManifestError::RowsPerBlock { .. })),
        (|m| m.tables[0].rows_per_block = 128, |e| matches!(e, ManifestError::RowsPerBlock { .. })),
        (|m| m.tables[0].dim = 0, |e| matches!(e, ManifestError::BlockBytes { .. })),
        (|m| m.tables[0].dim = u32::MAX, |e| matches!(e, ManifestError::BlockBytes { .. })),
        (|m| m.tables[0].row_offsets = vec![0, 0, u64::MAX], |e| matches!(e, ManifestError::Blocks(_))),
        (|m| m.tables.clear(), |e| matches!(e, ManifestError::Tables(0))),
        (|m| m.tables.push(m.tables[0].clone()), |e| matches!(e, ManifestError::NameTwice(_))),
        (|m| m.graphs.push(m.graphs[0].clone()), |e| matches!(e, ManifestError::NameTwice(_))),
        (
            |m| m.tables[0].name = TableName::new("x.crc").unwrap(),
            |e| matches!(e, ManifestError::NameTaken(_)),
        ),
        (|m| m.edges = 19, |e| matches!(e, ManifestError::Edges { found: 20, expected: 19 })),
        (|m| m.digest = "xyz".into(), |e| matches!(e, ManifestError::Digest { .. })),
        (|m| m.files[1].digest = "A".repeat(64), |e| matches!(e, ManifestError::Digest { .. })),
        (|m| m.files[0].path = "../x".into(), |e| matches!(e, ManifestError::UnknownFile(_))),
        (|m| m.files.push(m.files[0].clone()), |e| matches!(e, ManifestError::FileTwice(_))),
        (|m| drop(m.files.pop()), |e| matches!(e, ManifestError::FileMissing(_))),
    ];
    for (index, (spoil, expected)) in cases.into_iter().enumerate() {
        let mut spoiled = manifest();
        spoil(&mut spoiled);
        if is_digest(&spoiled.digest) {
            spoiled.seal();
        }
        let errors = Manifest::parse(&spoiled.to_toml().replace("xyz", "")).map(|_| ()).unwrap_err();
        assert!(errors.0.iter().any(expected), "case {index}: {errors}");
    }
}

#[test]
fn errors_come_together() {
    let mut spoiled = manifest();
    (spoiled.format, spoiled.edges, spoiled.tables[0].rows_per_block) = (9, 1, 5);
    spoiled.seal();
    assert_eq!(spoiled.check().unwrap_err().0.len(), 3);
}

#[test]
fn text_is_bounded_and_strict() {
    let text = manifest().to_toml();
    let syntax = |text: &str| {
        let errors = Manifest::parse(text).unwrap_err().0;
        matches!(errors[..], [ManifestError::Syntax(_)])
    };
    assert!(syntax(&format!("unknown = 1\n{text}")));
    assert!(syntax(&text.replace("\"f16\"", "\"f17\"")));
    assert!(syntax(&text.replace("\"tiny\"", "\"../tiny\"")));
    assert!(syntax(&text.replace("vertices = 10", "vertices = -10")));
    assert!(syntax(""));
    let long = " ".repeat(MANIFEST_BYTES_MAX + 1);
    assert_eq!(Manifest::parse(&long).unwrap_err().0, [ManifestError::TooLong(long.len())]);
}

proptest! {
    #[test]
    fn cut_or_changed_text_never_panics(cut in 0_usize..1500, byte in 0_u8..128) {
        let mut text = manifest().to_toml();
        prop_assume!(cut < text.len() && text.is_char_boundary(cut) && text.is_char_boundary(cut + 1));
        let _ = Manifest::parse(&text[..cut]);
        text.replace_range(cut..=cut, &char::from(byte).to_string());
        let _ = Manifest::parse(&text);
    }

    /// What passes the checks has a book in which every row and block is found.
    #[test]
    fn books_of_checked_manifests_are_consistent(
        sizes in prop::collection::vec(0_u64..40, 1..6),
        shift in 0_u32..7,
    ) {
        let mut manifest = manifest();
        let mut offsets = vec![0];
        for size in sizes {
            offsets.push(offsets.last().unwrap() + size);
        }
        let rows = *offsets.last().unwrap();
        prop_assume!(rows > 0);
        manifest.vertices = rows;
        manifest.part_offsets.clone_from(&offsets);
        manifest.tables[0].row_offsets = offsets;
        manifest.tables[0].rows_per_block = 1 << shift;
        list_files(&mut manifest);
        manifest.check().unwrap();
        let book = PartitionBook::new(&manifest);
        let table = TableId(0);
        let mut seen = std::collections::HashMap::new();
        for row in 0..rows {
            let place = book.locate(table, row).unwrap();
            let block = book.block(place.block).unwrap();
            prop_assert_eq!(block.part, place.part);
            prop_assert!(place.row < block.rows);
            prop_assert!(book.part_blocks(table, place.part).contains(&place.block.0));
            *seen.entry(place.block).or_insert(0_u64) |= 1 << place.row;
        }
        prop_assert_eq!(seen.len(), book.blocks() as usize);
        for (block, mask) in seen {
            prop_assert_eq!(book.block(block).unwrap().full_mask(), mask);
        }
        prop_assert_eq!(book.locate(table, rows), None);
    }
}
