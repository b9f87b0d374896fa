//! Files as DGL writes them, for tests.

#![allow(dead_code, reason = "each test file uses some of it")]

pub fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A tensor as DGL writes it; `kind` is its type's code and bits.
pub fn tensor(kind: (u8, u8), shape: &[u64], data: &[u8]) -> Vec<u8> {
    [tensor_start(kind, shape, data.len() as u64), data.to_vec()].concat()
}

/// What stands before a tensor's data.
pub fn tensor_start(kind: (u8, u8), shape: &[u64], data_bytes: u64) -> Vec<u8> {
    let mut bytes = words(&[0xdd5e_40f0_96b4_a13f, 0, 1]);
    bytes.extend((shape.len() as u32).to_le_bytes());
    bytes.extend([kind.0, kind.1, 1, 0]);
    bytes.extend(words(shape));
    bytes.extend(words(&[data_bytes]));
    bytes
}

pub fn longs(values: &[u64]) -> Vec<u8> {
    tensor((0, 64), &[values.len() as u64], &words(values))
}

pub fn flags(values: &[u8]) -> Vec<u8> {
    tensor((1, 8), &[values.len() as u64], values)
}

pub fn named(tensors: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, tensor) in tensors {
        bytes.extend(words(&[name.len() as u64]));
        bytes.extend(name.as_bytes());
        bytes.extend(tensor);
    }
    bytes
}

/// What `save_tensors` writes.
pub fn tensors(of: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let count = of.len() as u64;
    [words(&[0xdd5a_9fbe_3fa2_443f, count, count]), named(of)].concat()
}

/// What `save_graphs` writes for a part: its edges in its own ids, and who its vertices and edges are.
pub fn graph(sources: &[u64], destinations: &[u64], vertices: &[u64], inner: &[u8]) -> Vec<u8> {
    let matrix = |magic, of: [Vec<u8>; 2], flags: usize| {
        [words(&[magic, 1, 1]), of.concat(), longs(&[]), vec![0; flags]].concat()
    };
    let meta = || {
        let csr = matrix(0xdd6c_d312_05df_f127, [longs(&[0, 1]), longs(&[0])], 1);
        [words(&[0xdd3c_5ffe_2004_6abf]), csr].concat()
    };
    let coo = matrix(0xdd61_ffd3_05df_f127, [longs(sources), longs(destinations)], 2);
    let relation = [words(&[0xdd2e_60f0_f6b4_a127, 1 << 32 | 1, 1 << 32 | 7]), meta(), coo].concat();
    let mut bytes = words(&[0xdd2e_4ff0_46b4_a13f, 2, 2, 1]);
    bytes.resize(4096, 0xcc);
    bytes.extend(words(&[4096 + 16, 0, 0xdd58_9fbe_3522_4abf]));
    bytes.extend([meta(), words(&[1]), relation, words(&[1, vertices.len() as u64])].concat());
    bytes.extend([words(&[1, 1]), named(&[("_ID", longs(vertices))])].concat());
    bytes.extend([words(&[1, 1]), named(&[("inner_edge", flags(inner))])].concat());
    bytes
}
