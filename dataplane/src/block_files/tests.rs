use super::*;
use crate::test_data::{Shape, TestData};
use proptest::prelude::*;
use rudder_topology::BlockId;

fn shape() -> Shape {
    Shape { rows_of_parts: vec![21, 0, 9], row_bytes: 12, rows_per_block: 4 }
}

fn open(directory: &Path, mode: StorageMode) -> Result<BlockFiles, OpenError> {
    BlockFiles::open(directory, mode, Bytes(1 << 20))
}

#[test]
fn a_dataset_is_opened_with_the_parts_that_are_there() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    let files = open(&data.directory, StorageMode::Auto).expect("opened");
    assert_eq!(files.parts(), [PartId(0), PartId(1), PartId(2)]);
    assert_eq!((files.mode(), files.dataset().as_str()), (ReadMode::Memory, "d"));
    data.remove_part(PartId(2));
    let files = open(&data.directory, StorageMode::Direct).expect("opened");
    assert_eq!((files.parts(), files.mode()), ([PartId(0), PartId(1)].as_slice(), ReadMode::Direct));
    let of_part_2 = data.whole_blocks(PartId(2))[0];
    assert_eq!(files.locate(of_part_2), Err(FailReason::NotStored));
}

#[test]
fn rows_that_do_not_exist_are_not_located() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    let files = open(&data.directory, StorageMode::Memory).expect("opened");
    // Block 5 is the short last one of part 0: one row.
    for (block, mask, found) in
        [(0, 0b1111, true), (0, 0b1_0000, false), (0, 0, false), (5, 1, true), (5, 2, false), (99, 1, false)]
    {
        let located = files.locate(BlockRows { block: BlockId(block), mask });
        assert_eq!(located.is_ok(), found, "{block} {mask:b}");
    }
}

#[test]
fn every_block_reads_as_written_and_a_changed_one_is_corrupt() {
    let root = tempfile::tempdir().expect("a directory");
    let data = TestData::write(root.path(), "d", &shape());
    data.corrupt(BlockId(2));
    let files = open(&data.directory, StorageMode::Memory).expect("opened");
    for part in [PartId(0), PartId(2)] {
        for item in data.whole_blocks(part) {
            let located = files.locate(item).expect("located");
            // Twice: once verified, once known.
            for _ in 0..2 {
                let read = files.mapped(&located);
                if item.block == BlockId(2) {
                    assert_eq!(read, Err(FailReason::Corrupt));
                } else {
                    assert_eq!(read.expect("read"), Some(data.expected(item).as_slice()));
                }
            }
        }
    }
}

#[test]
fn files_that_are_not_what_the_manifest_says_are_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let change = |name: &str, file: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let data = TestData::write(root.path(), name, &shape());
        let path = data.directory.join(file);
        std::fs::write(&path, change(std::fs::read(&path).expect("read"))).expect("written");
        open(&data.directory, StorageMode::Memory).expect_err(name)
    };
    let cut = |mut bytes: Vec<u8>| {
        bytes.pop();
        bytes
    };
    let flip_last = |mut bytes: Vec<u8>| {
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        bytes
    };
    let short = change("short-features", "parts/0/feat.npy", &cut);
    assert!(matches!(short, OpenError::Npy { .. }), "{short}");
    let stub = change("stub", "parts/0/feat.npy", &|bytes| bytes[..100].to_vec());
    assert!(matches!(stub, OpenError::Io { .. }), "{stub}");
    let other_shape = change("other-shape", "parts/2/feat.npy", &|_| {
        std::fs::read(root.path().join("short-features/parts/1/feat.npy")).expect("read")
    });
    assert!(matches!(other_shape, OpenError::Mismatch { what: "the shape", .. }), "{other_shape}");
    let crc_cut = change("crc-cut", "parts/0/feat.crc.npy", &cut);
    assert!(matches!(crc_cut, OpenError::Mismatch { what: "the length", .. }), "{crc_cut}");
    let crc_changed = change("crc-changed", "parts/0/feat.crc.npy", &flip_last);
    assert!(matches!(crc_changed, OpenError::Mismatch { what: "the digest", .. }), "{crc_changed}");
    let manifest = change("manifest", "dataset.toml", &|bytes| bytes[..bytes.len() / 2].to_vec());
    assert!(matches!(manifest, OpenError::Manifest { .. }), "{manifest}");
    let absent = open(&root.path().join("absent"), StorageMode::Memory).expect_err("absent");
    assert!(matches!(absent, OpenError::Io { .. }), "{absent}");
}

#[test]
fn blocks_too_large_to_be_read_at_once_are_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let large = Shape { rows_of_parts: vec![1], row_bytes: 1 << 20, rows_per_block: 1 };
    let data = TestData::write(root.path(), "large", &large);
    let refused = open(&data.directory, StorageMode::Direct).expect_err("too large");
    assert!(matches!(refused, OpenError::BlockTooLarge { .. }), "{refused}");
}

proptest! {
    #[test]
    fn rows_are_packed_as_the_mask_says(mask in any::<u64>(), row_bytes in 1_u32..9) {
        let block: Vec<u8> = (0..64 * row_bytes).map(|at| (at % 251) as u8).collect();
        let expected: Vec<u8> = (0..64).filter(|row| mask >> row & 1 == 1)
            .flat_map(|row| block[row * row_bytes as usize..(row + 1) * row_bytes as usize].to_vec()).collect();
        let mut appended = vec![9];
        append_rows(&block, row_bytes, mask, &mut appended);
        prop_assert_eq!(&appended[1..], &expected[..]);
        let mut copied = vec![0; expected.len()];
        copy_rows(&block, row_bytes, mask, &mut copied);
        prop_assert_eq!(copied, expected);
    }
}
