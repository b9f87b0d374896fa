use super::*;
use proptest::prelude::*;

/// A file with this dictionary, in this version.
fn file(major: u8, dictionary: &str) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend([major, 0]);
    match major {
        1 => bytes.extend((dictionary.len() as u16).to_le_bytes()),
        _ => bytes.extend((dictionary.len() as u32).to_le_bytes()),
    }
    bytes.extend(dictionary.as_bytes());
    bytes
}

fn dictionary(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}  \n")
}

fn parse(descr: &str, fortran: &str, shape: &str) -> Result<NpyHeader, NpyError> {
    NpyHeader::parse(&file(1, &dictionary(descr, fortran, shape)))
}

#[test]
fn what_numpy_writes_is_read() {
    for (descr, element) in
        [("'<f4'", NpyType::F32), ("'|b1'", NpyType::Bool), ("\"<i8\"", NpyType::I64), ("'>u1'", NpyType::U8)]
    {
        assert_eq!(parse(descr, "False", "(3,)").unwrap().element, element);
    }
    for (shape, expected) in [
        ("()", vec![]),
        ("(3,)", vec![3]),
        ("(3, 4)", vec![3, 4]),
        ("(0, 5)", vec![0, 5]),
        ("(7L,)", vec![7]),
    ] {
        let header = parse("'<f4'", "False", shape).unwrap();
        assert_eq!(header.data_bytes, 4 * expected.iter().product::<u64>());
        assert_eq!(header.shape, expected);
    }
    assert_eq!(parse("'<i4'", "True", "(5, 1)").unwrap().shape, [5, 1]);
    for version in [1, 2, 3] {
        let bytes = file(version, &dictionary("'<f2'", "False", "(2, 2)"));
        let header = NpyHeader::parse(&bytes).unwrap();
        assert_eq!(header.data_offset, bytes.len() as u64);
        assert_eq!(NpyHeader::length(&bytes[..PREAMBLE_BYTES]), Ok(bytes.len()));
    }
}

#[test]
fn what_is_not_read_says_why() {
    type Case = (&'static str, &'static str, &'static str, fn(&NpyError) -> bool);
    let cases: [Case; 16] = [
        ("'|O'", "False", "(3,)", |e| *e == NpyError::Objects),
        ("[('a', '<i4')]", "False", "(3,)", |e| *e == NpyError::Structured),
        ("'<U7'", "False", "(3,)", |e| matches!(e, NpyError::Element(_))),
        ("'<c8'", "False", "(3,)", |e| matches!(e, NpyError::Element(_))),
        ("'ä'", "False", "(3,)", |e| matches!(e, NpyError::Element(_))),
        ("''", "False", "(3,)", |e| matches!(e, NpyError::Element(_))),
        ("'>f4'", "False", "(3,)", |e| matches!(e, NpyError::BigEndian(_))),
        ("'<f4'", "True", "(3, 2)", |e| *e == NpyError::FortranOrder),
        ("'<f4'", "Maybe", "(3,)", |e| matches!(e, NpyError::Syntax { .. })),
        ("'<f4'", "False", "3", |e| matches!(e, NpyError::Syntax { .. })),
        ("'<f4'", "False", "(-3,)", |e| matches!(e, NpyError::Syntax { .. })),
        ("'<f4'", "False", "(99999999999999999999,)", |e| matches!(e, NpyError::Syntax { .. })),
        ("'<f4'", "False", "(4294967296, 4294967296)", |e| matches!(e, NpyError::Overflow { .. })),
        ("'<f4'", "False", "(4294967296, 4294967296, 0)", |e| matches!(e, NpyError::Overflow { .. })),
        ("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)", |e| matches!(e, NpyError::Dimensions(9))),
        ("'<f4', 'descr': '<f4'", "False", "(1,)", |e| matches!(e, NpyError::Syntax { .. })),
    ];
    for (descr, fortran, shape, expected) in cases {
        let error = parse(descr, fortran, shape).unwrap_err();
        assert!(expected(&error), "{descr} {fortran} {shape}: {error:?}");
    }
}

#[test]
fn preambles_are_checked() {
    assert_eq!(NpyHeader::parse(b"PK\x03\x04"), Err(NpyError::Magic));
    assert_eq!(NpyHeader::parse(b"\x93NUMPY\x04\x00abcd"), Err(NpyError::Version { major: 4, minor: 0 }));
    let long = file(2, "")[..8].iter().copied().chain(u32::MAX.to_le_bytes()).collect::<Vec<_>>();
    assert_eq!(NpyHeader::parse(&long), Err(NpyError::HeaderTooLong(u32::MAX as usize)));
    assert!(matches!(NpyHeader::parse(b""), Err(NpyError::Truncated { .. })));
    let whole = file(1, &dictionary("'<f4'", "False", "(3,)"));
    for cut in 0..whole.len() {
        assert!(matches!(NpyHeader::parse(&whole[..cut]), Err(NpyError::Truncated { .. })), "{cut}");
    }
}

#[test]
fn files_hold_exactly_their_data() {
    let mut bytes = header(NpyType::U32, &[2], Padding::Aligned);
    assert_eq!(bytes.len() % 64, 0);
    bytes.extend([1, 0, 0, 0, 2, 0, 0]);
    assert_eq!(NpyHeader::parse_file(&bytes), Err(NpyError::DataLength { expected: 8, found: 7 }));
    bytes.push(0);
    assert_eq!(NpyHeader::parse_file(&bytes).unwrap().1, [1, 0, 0, 0, 2, 0, 0, 0]);
    bytes.push(0);
    assert_eq!(NpyHeader::parse_file(&bytes), Err(NpyError::DataLength { expected: 8, found: 9 }));
}

#[test]
fn feature_dtypes_keep_their_size() {
    use Dtype::*;
    for dtype in [F32, F16, Bf16, I8, U8, I32, I64, F64] {
        let element = NpyType::from(dtype);
        assert_eq!(element.size(), dtype.size() as u64);
        assert_eq!(element.feature_dtype(), Some(dtype));
    }
}

proptest! {
    #[test]
    fn headers_read_back(kind in 0_usize..12, shape in prop::collection::vec(0_u64..1000, 0..6), to: bool) {
        let element = NpyType::ALL[kind];
        let padding = if to { Padding::To(4096) } else { Padding::Aligned };
        let bytes = header(element, &shape, padding);
        let read = NpyHeader::parse(&bytes).unwrap();
        prop_assert_eq!(read.data_bytes, element.size() * shape.iter().product::<u64>());
        prop_assert_eq!((read.element, read.shape, read.data_offset), (element, shape, bytes.len() as u64));
        prop_assert_eq!(bytes.len() % if to { 4096 } else { 64 }, 0);
        prop_assert_eq!(bytes.last(), Some(&b'\n'));
    }

    #[test]
    fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..300), version in 0_u8..5) {
        let _ = NpyHeader::parse(&tail);
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        bytes.extend(tail);
        let _ = NpyHeader::parse(&bytes);
    }

    #[test]
    fn one_changed_byte_never_panics(at in 0_usize..80, byte: u8) {
        let mut bytes = file(1, &dictionary("'<f4'", "False", "(12, 34)"));
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = NpyHeader::parse(&bytes);
    }
}
