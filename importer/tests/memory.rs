//! Features stream: a process that imports them never holds more than a part of them. Alone in its file, since peak
//! memory is that of the whole process.

#[path = "small/inputs.rs"]
mod inputs;

use inputs::{Home, i32s};
use rudder_graph::npy::{NpyType, Padding, header};
use rudder_importer::{BlockSize, memory};
use std::fs::File;
use std::io::{BufWriter, Write};
use zip::write::SimpleFileOptions;

const VERTICES: u64 = 40_000;
const COLUMNS: u64 = 1_000;
const FEATURE_BYTES: u64 = VERTICES * COLUMNS * 4;

#[test]
fn compressed_features_are_never_held() {
    let home = Home::new();
    home.put("edges.npy", &i32s(&[2, 3], &[0, 1, 2, 1, 2, 39_999]));
    let file = BufWriter::new(File::create(home.input().join("features.npz")).unwrap());
    let mut archive = zip::ZipWriter::new(file);
    let fast = SimpleFileOptions::default().compression_level(Some(1));
    archive.start_file("x.npy", fast).unwrap();
    archive.write_all(&header(NpyType::F32, &[VERTICES, COLUMNS], Padding::Aligned)).unwrap();
    let row = vec![0x3f; COLUMNS as usize * 4];
    (0..VERTICES).for_each(|_| archive.write_all(&row).unwrap());
    archive.finish().unwrap();
    let mut options = home.options();
    (options.parts, options.block_size) = (Some(2), BlockSize::Auto);
    let summary = home.import_with(&options).unwrap();
    assert_eq!(summary.feature_bytes, FEATURE_BYTES);
    let peak = memory::peak().unwrap().0;
    assert!(peak < FEATURE_BYTES / 2, "{peak} bytes held of {FEATURE_BYTES} bytes of features");
    let import = summary.import.unwrap();
    assert!(import.memory_bytes_peak.unwrap() < import.memory_bytes_limit);
}
