use super::*;
use crate::put::PutFile;
use proptest::prelude::*;
use rudder_topology::{PartId, TableName};

fn ends() -> (Sealer, Opener) {
    (Sealer::new(FrameKey([7; 32])), Opener::new(FrameKey([7; 32])))
}

fn open(opener: &mut Opener, bytes: &[u8]) -> Result<(Frame, Vec<u8>), FrameError> {
    let header = opener.open(bytes.first_chunk().expect("a header"))?;
    let payload = &bytes[HEADER_BYTES..];
    Ok((Frame::parse(&header, payload)?, payload.to_vec()))
}

fn put_file() -> impl Strategy<Value = PutFile> {
    let name = || "[a-z][a-z0-9_]{0,12}".prop_map(|text| TableName::new(text).expect("a name"));
    prop_oneof![
        Just(PutFile::Manifest),
        name().prop_map(|table| PutFile::Features { table }),
        name().prop_map(|table| PutFile::Checksums { table }),
        name().prop_map(|name| PutFile::GraphOffsets { name }),
        name().prop_map(|name| PutFile::GraphIndices { name }),
        Just(PutFile::Labels),
        Just(PutFile::SplitTrain),
        Just(PutFile::SplitValid),
        Just(PutFile::SplitTest),
        Just(PutFile::OriginalId),
        Just(PutFile::DatasetId),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(vec![Class::Demand, Class::Prefetch])
}

fn reason() -> impl Strategy<Value = FailReason> {
    (1_u32..8).prop_map(|code| FailReason::from_code(code).expect("a reason"))
}

fn item() -> impl Strategy<Value = BlockRows> {
    (any::<u32>(), 1_u64..).prop_map(|(block, mask)| BlockRows { block: BlockId(block), mask })
}

fn frame() -> impl Strategy<Value = Frame> {
    let id = || any::<u64>().prop_map(TransferId);
    let last = prop::sample::select(vec![Last::Last, Last::MoreFollows]);
    prop_oneof![
        (id(), class(), proptest::collection::vec(item(), 1..50))
            .prop_map(|(transfer, class, items)| Frame::Fetch { transfer, class, items }),
        (id(), any::<u32>(), any::<u32>(), last).prop_map(|(transfer, first_item, items, last)| {
            Frame::Rows { transfer, first_item, items, last }
        }),
        (id(), any::<u32>(), reason()).prop_map(|(transfer, item, reason)| Frame::Failed {
            transfer,
            item,
            reason
        }),
        id().prop_map(|transfer| Frame::Cancel { transfer }),
        Just(Frame::Ping),
        Just(Frame::Pong),
        (put_file(), any::<u16>(), any::<u64>(), any::<[u8; 32]>()).prop_map(
            |(file, part, size_bytes, digest)| {
                Frame::PutBegin(PutBegin { file, part: PartId(part), size_bytes, digest })
            }
        ),
        any::<u64>().prop_map(|offset| Frame::PutChunk { offset }),
        Just(Frame::PutEnd),
        any::<u64>().prop_map(|have| Frame::PutStatus(Ok(have))),
        (1_u32..8).prop_map(|code| Frame::PutStatus(Err(PutError::from_code(code).expect("a reason")))),
    ]
}

fn carries_bytes(frame: &Frame) -> bool {
    matches!(frame, Frame::Rows { .. } | Frame::PutChunk { .. })
}

proptest! {
    #[test]
    fn frames_come_back_as_they_were(
        frames in proptest::collection::vec((frame(), proptest::collection::vec(any::<u8>(), 0..200)), 1..8),
    ) {
        let (mut sealer, mut opener) = ends();
        for (frame, bytes) in frames {
            let payload = if carries_bytes(&frame) { bytes } else { Vec::new() };
            let sent = sealer.frame(&frame, &payload);
            let (came, came_payload) = open(&mut opener, &sent).expect("a frame of ours");
            prop_assert_eq!(&came, &frame);
            if carries_bytes(&frame) {
                prop_assert_eq!(came_payload, payload);
            }
        }
    }

    #[test]
    fn a_frame_with_any_bit_changed_is_refused(frame in frame(), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let (mut sealer, mut opener) = ends();
        let mut sent = sealer.frame(&frame, &[]);
        let at = at.index(sent.len());
        sent[at] ^= 1_u8 << bit;
        let refused = open(&mut opener, &sent).expect_err("a changed frame");
        let expected = if at < HEADER_BYTES { FrameError::Tag } else { FrameError::PayloadChecksum };
        prop_assert_eq!(refused, expected);
    }

    #[test]
    fn random_bytes_are_no_frame(bytes in any::<[[u8; 32]; 2]>()) {
        let (_, mut opener) = ends();
        prop_assert_eq!(open(&mut opener, &bytes.concat()), Err(FrameError::Tag));
    }

    /// Behind a right tag anything may stand: a peer with a key is no friend for that.
    #[test]
    fn no_header_makes_the_parser_panic(
        fields in any::<[u8; 40]>(), kind in 0_u8..14, payload in proptest::collection::vec(any::<u8>(), 0..100),
        own_crc in any::<bool>(),
    ) {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..40].copy_from_slice(&fields);
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = VERSION;
        bytes[5] = kind;
        bytes[32..36].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        if own_crc {
            bytes[36..40].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        }
        if let Ok(header) = Header::parse(&bytes) {
            // Ok or a typed error; the test is that it returns.
            let _ = Frame::parse(&header, &payload);
        }
    }
}

#[test]
fn the_order_of_frames_is_part_of_their_tag() {
    let (mut sealer, mut opener) = ends();
    let first = sealer.frame(&Frame::Ping, &[]);
    let second = sealer.frame(&Frame::Ping, &[]);
    assert!(open(&mut opener, &first).is_ok());
    assert_eq!(open(&mut opener, &first), Err(FrameError::Tag), "repeated");
    let (_, mut other) = ends();
    assert_eq!(open(&mut other, &second), Err(FrameError::Tag), "one left out");
}

#[test]
fn another_key_does_not_open() {
    let mut sealer = Sealer::new(FrameKey([8; 32]));
    let (_, mut opener) = ends();
    assert_eq!(open(&mut opener, &sealer.frame(&Frame::Ping, &[])), Err(FrameError::Tag));
    assert_eq!(format!("{:?}", FrameKey([8; 32])), "FrameKey(..)");
}

/// Seals a header whose fields were changed after the fact, as a peer with the key could.
fn forged(change: impl FnOnce(&mut [u8])) -> Result<Header, FrameError> {
    let (mut sealer, mut opener) = ends();
    let mut bytes: [u8; HEADER_BYTES] = *sealer.frame(&Frame::Ping, &[]).first_chunk().expect("a header");
    change(&mut bytes[..TAGGED]);
    let tag = tag(&FrameKey([7; 32]), 0, &bytes[..TAGGED]);
    bytes[TAGGED..].copy_from_slice(&tag);
    opener.open(&bytes)
}

#[test]
fn headers_out_of_bounds_are_refused_before_a_payload_is_read() {
    assert!(forged(|_| {}).is_ok());
    let too_long = PAYLOAD_BYTES_MAX as u32 + 1;
    for length in [too_long, u32::MAX] {
        let refused = forged(|bytes| bytes[32..36].copy_from_slice(&length.to_le_bytes()));
        assert_eq!(refused, Err(FrameError::TooLong(length)));
    }
    assert_eq!(forged(|bytes| bytes[0] ^= 1), Err(FrameError::Magic));
    assert_eq!(forged(|bytes| bytes[4] = 9), Err(FrameError::Version(9)));
    assert_eq!(forged(|bytes| bytes[5] = 200), Err(FrameError::Kind(200)));
    let field = FrameError::Field { kind: Kind::Ping, field: "reserved" };
    assert_eq!(forged(|bytes| bytes[47] = 1), Err(field));
}

#[test]
fn payloads_that_do_not_fit_their_header_are_refused() {
    let item = |mask: u64| [3_u32.to_le_bytes().as_slice(), &mask.to_le_bytes()].concat();
    let header = |kind, items: u32, payload: &[u8]| Header {
        kind,
        flags: 1,
        transfer: TransferId(1),
        first_item: 0,
        items,
        argument: 0,
        payload_bytes: payload.len() as u32,
        payload_crc: crc32c::crc32c(payload),
    };
    let parse = |kind, items, payload: &[u8]| Frame::parse(&header(kind, items, payload), payload);
    assert!(parse(Kind::Fetch, 1, &item(1)).is_ok());
    for (items, payload) in
        [(0, vec![]), (1, vec![]), (2, item(1)), (1, item(1)[..11].to_vec()), (1, item(0))]
    {
        assert!(matches!(parse(Kind::Fetch, items, &payload), Err(FrameError::Field { .. })), "{items}");
    }
    for kind in [Kind::Ping, Kind::Pong, Kind::Cancel, Kind::Failed, Kind::PutEnd, Kind::PutStatus] {
        assert_eq!(parse(kind, 1, &[1]), Err(FrameError::Field { kind, field: "payload" }));
    }
    let truncated = Frame::parse(&header(Kind::Fetch, 1, &item(1)), &item(1)[..5]);
    assert_eq!(truncated, Err(FrameError::PayloadChecksum));
}

#[test]
fn a_put_names_a_file_of_the_layout_and_nothing_else() {
    let table = TableName::new("feat").expect("a name");
    let path = |file: PutFile| file.relative_path(PartId(3)).display().to_string();
    assert_eq!(path(PutFile::Features { table: table.clone() }), "parts/3/feat.npy");
    assert_eq!(path(PutFile::Checksums { table }), "parts/3/feat.crc.npy");
    for name in ["", "../x", "a/b", ".hidden", "\0"] {
        let payload = [&[0; 32][..], &[0, 0, 2, name.len() as u8], name.as_bytes()].concat();
        assert_eq!(PutBegin::parse(1, &payload), None, "{name:?}");
    }
    // A name where none belongs, a length that is not the name's, a payload cut anywhere.
    for payload in
        [[&[0; 32][..], &[0, 0, 1, 1, b'a']].concat(), [&[0; 32][..], &[0, 0, 2, 9, b'a']].concat()]
    {
        assert_eq!(PutBegin::parse(1, &payload), None);
    }
    for bytes in 0..36 {
        assert_eq!(PutBegin::parse(1, &vec![1; bytes]), None);
    }
}
