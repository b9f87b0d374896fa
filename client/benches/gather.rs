//! Gather from mapped memory beside a plain copy loop over the same rows: `cargo bench -p rudder-client`.

use rudder_client::gather::gather_into;
use rudder_client::location::Location;

/// More than any last-level cache, so that rows come from memory as in training.
const MAPPING_BYTES: usize = 512 << 20;
const ROWS: usize = 100_000;

/// Row sizes: 32, 128 and 1024 columns of f32.
const ROW_BYTES: [usize; 3] = [128, 512, 4096];

fn main() {
    divan::main();
}

struct Rows {
    mapping: memmap2::MmapMut,
    offsets: Vec<usize>,
    to: Vec<u8>,
}

fn rows(row_bytes: usize) -> Rows {
    let mut mapping = memmap2::MmapMut::map_anon(MAPPING_BYTES).expect("memory for the benchmark");
    mapping.fill(1);
    let draws = rudder_graph::random::Key::new(1);
    let slots = (MAPPING_BYTES / row_bytes) as u64;
    let offsets = (0..ROWS as u64).map(|i| draws.below(i, slots) as usize * row_bytes).collect();
    Rows { mapping, offsets, to: vec![0; ROWS * row_bytes] }
}

#[divan::bench(args = ROW_BYTES)]
fn gather(bencher: divan::Bencher, row_bytes: usize) {
    let mut rows = rows(row_bytes);
    let locations: Vec<_> = rows.offsets.iter().map(|&offset| Location::new(0, offset as u64)).collect();
    bencher.counter(divan::counter::BytesCount::new(ROWS * row_bytes)).bench_local(|| {
        gather_into(|_| &rows.mapping[..], &locations, row_bytes, &mut rows.to).expect("rows lie inside");
    });
}

#[divan::bench(args = ROW_BYTES)]
fn plain_copy_loop(bencher: divan::Bencher, row_bytes: usize) {
    let mut rows = rows(row_bytes);
    bencher.counter(divan::counter::BytesCount::new(ROWS * row_bytes)).bench_local(|| {
        for (&offset, row) in rows.offsets.iter().zip(rows.to.chunks_exact_mut(row_bytes)) {
            row.copy_from_slice(&rows.mapping[offset..offset + row_bytes]);
        }
    });
}
