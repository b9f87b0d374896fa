use super::*;
use proptest::prelude::*;

fn to_node() -> Vec<ToNode> {
    vec![
        ToNode::Hello(Hello {
            job: JobId(7),
            rank: TrainerRank(3),
            dataset: DatasetName::new("debian").unwrap(),
            digest: "00ff".into(),
        }),
        ToNode::Announce {
            minibatch: MinibatchId(9),
            tables: vec![
                Rows { table: TableId(0), rows: vec![5, 1, 5, u32::MAX] },
                Rows { table: TableId(1), rows: vec![] },
            ],
        },
        ToNode::Want { minibatch: MinibatchId(u64::MAX) },
        ToNode::Release { minibatch: MinibatchId(0) },
        ToNode::StatisticsRequest,
        ToNode::Declare(Declared {
            spec: TraceSpec {
                seed: u64::MAX,
                rank: TrainerRank(1),
                world: 2,
                seeds: 1024,
                fanout: vec![15, 10, u32::MAX],
            },
            first: MinibatchId(3),
            end: 1 << 40,
        }),
    ]
}

fn to_trainer() -> Vec<ToTrainer> {
    vec![
        ToTrainer::Welcome(Welcome {
            generation: Generation(4),
            credits: 10,
            ready_ahead: 1,
            row_bytes: vec![512, 8],
            mappings: 2,
        }),
        ToTrainer::Refused(Refusal::Protocol { node: 1, trainer: 2 }),
        ToTrainer::Mapping(vec![MappingSpec { index: 0, bytes: 1 << 30 }]),
        ToTrainer::WelcomeEnd,
        ToTrainer::Ready {
            minibatch: MinibatchId(9),
            tables: vec![(TableId(0), vec![Location::new(1, 512), Location::new(0xffff, 0)])],
        },
        ToTrainer::Piece { minibatch: MinibatchId(9), bytes: vec![1, 2, 3] },
        ToTrainer::Failed { minibatch: MinibatchId(9), refusal: Refusal::UnknownRow(1) },
        ToTrainer::Statistics("{}".into()),
    ]
}

#[test]
fn every_message_survives_the_wire() {
    for message in to_node() {
        let mut out = vec![];
        message.encode(&mut out);
        assert_eq!(frame_length(out[..4].try_into().unwrap()).unwrap(), out.len() - 4);
        assert_eq!(ToNode::decode(&out[4..]).unwrap().unwrap(), message);
    }
    for message in to_trainer() {
        let mut out = vec![];
        message.encode(&mut out);
        assert_eq!(ToTrainer::decode(&out[4..]).unwrap(), message);
    }
}

#[test]
fn every_truncation_is_an_error_and_every_trailing_byte_too() {
    for message in to_node() {
        let mut out = vec![];
        message.encode(&mut out);
        for end in 4..out.len() {
            assert!(ToNode::decode(&out[4..end]).is_err(), "{message:?} cut at {end}");
        }
        out.push(0);
        assert_eq!(ToNode::decode(&out[4..]), Err(FrameError::Trailing(1)));
    }
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    let mut out = vec![];
    to_node()[0].encode(&mut out);
    out[5..9].copy_from_slice(&77_u32.to_le_bytes());
    assert_eq!(ToNode::decode(&out[4..]), Ok(Err(Refusal::Protocol { node: PROTOCOL_VERSION, trainer: 77 })));
}

#[test]
fn lengths_are_refused_before_allocation() {
    assert_eq!(frame_length([0; 4]), Err(FrameError::Empty));
    assert_eq!(frame_length(u32::MAX.to_le_bytes()), Err(FrameError::TooLong(u32::MAX as usize)));
    // An announce that claims four billion rows in a frame of a few bytes.
    let mut frame = vec![2];
    frame.extend_from_slice(&1_u64.to_le_bytes());
    frame.extend_from_slice(&1_u16.to_le_bytes());
    frame.extend_from_slice(&0_u16.to_le_bytes());
    frame.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(ToNode::decode(&frame), Err(FrameError::Count(u64::from(u32::MAX))));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = ToNode::decode(&bytes);
        let _ = ToTrainer::decode(&bytes);
    }
}

#[test]
fn a_declared_sampler_has_a_bounded_number_of_hops() {
    let declare = |hops| {
        let (rank, fanout) = (TrainerRank(0), vec![1; hops]);
        let spec = TraceSpec { seed: 1, rank, world: 1, seeds: 1, fanout };
        let mut out = vec![];
        ToNode::Declare(Declared { spec, first: MinibatchId(0), end: 1 }).encode(&mut out);
        ToNode::decode(&out[4..])
    };
    assert!(declare(HOPS_MAX).is_ok());
    assert_eq!(declare(HOPS_MAX + 1), Err(FrameError::Count(HOPS_MAX as u64 + 1)));
}
