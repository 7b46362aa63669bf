use super::*;
use crate::frame::Decoder;
use proptest::prelude::*;

fn round_trip_to(message: &ToSlot) -> ToSlot {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    let mut decoder = Decoder::default();
    decoder.feed(&bytes);
    ToSlot::decode(decoder.next_frame().unwrap().unwrap()).unwrap()
}

fn round_trip_from(message: &FromSlot) -> FromSlot {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    let mut decoder = Decoder::default();
    decoder.feed(&bytes);
    FromSlot::decode(decoder.next_frame().unwrap().unwrap()).unwrap()
}

fn call(seq: u64, payload: &'static [u8]) -> Call {
    Call {
        seq: Seq(seq),
        task: TaskId(40 + seq),
        attempt: 1,
        at_most_once: false,
        function: FunctionId(0xabc),
        timeout: Duration::from_nanos(513),
        payload: Bytes::from_static(payload),
    }
}

#[test]
fn every_message_survives() {
    let to = [
        ToSlot::Hello(Hello { client: ClientId(3), lease: LeaseId(u128::MAX), replies: 9, keeps: true }),
        ToSlot::Environment(Environment {
            directory: "/home".into(),
            path: vec!["a".into(), "ß".into()],
            variables: vec![("OMP_NUM_THREADS".into(), "1".into())],
            files: 3,
        }),
        ToSlot::Define { function: FunctionId(7), bytes: Bytes::from_static(b"code") },
        ToSlot::Run { acked: 5, calls: vec![call(1, b""), call(2, b"xyz")] },
        ToSlot::Withdraw { calls: vec![Seq(2), Seq(3)] },
        ToSlot::Cancel { calls: vec![] },
        ToSlot::Kill { calls: vec![Seq(9)] },
        ToSlot::Ack { acked: u64::MAX },
    ];
    for message in to {
        assert_eq!(round_trip_to(&message), message);
    }
    let from = [
        FromSlot::Hello { received: Seq(4) },
        FromSlot::Replies {
            first: 17,
            replies: vec![Reply {
                seq: Seq(1),
                status: Status::Raised,
                took: Duration::from_nanos(1234),
                payload: Bytes::from_static(b"why"),
            }],
        },
        FromSlot::Running { call: Seq(12) },
        FromSlot::Begun { calls: vec![Seq(13), Seq(15)] },
    ];
    for message in from {
        assert_eq!(round_trip_from(&message), message);
    }
}

#[test]
fn golden_run() {
    let mut bytes = Vec::new();
    ToSlot::Run { acked: 2, calls: vec![call(3, b"ab")] }.encode(&mut bytes).unwrap();
    #[rustfmt::skip]
    assert_eq!(bytes[frame::HEADER..], [
        2, 0, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,  43, 0, 0, 0, 0, 0, 0, 0,
        0xbc, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        1, 2, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0,  2, 0, 0, 0,  b'a', b'b',
    ]);
}

#[test]
fn golden_replies() {
    let reply = Reply {
        seq: Seq(3),
        status: Status::Value,
        took: Duration::from_nanos(258),
        payload: Bytes::from_static(b"v"),
    };
    let mut bytes = Vec::new();
    FromSlot::Replies { first: 1, replies: vec![reply] }.encode(&mut bytes).unwrap();
    #[rustfmt::skip]
    assert_eq!(bytes[frame::HEADER..], [
        1, 0, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,  2, 1, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0,  0, 0, 0, 0,  b'v',
    ]);
}

#[test]
fn a_lying_count_is_refused() {
    let mut body = vec![0; 8];
    body.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode_run(Bytes::from(body)), Err(Error::Malformed { what: "run" }));
}

proptest! {
    /// Whatever arrives, a decoder answers: a message or an error, never a panic.
    #[test]
    fn random_bodies_never_panic(kind in any::<u8>(), body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let frame = Frame { kind, cpu: 0, segments: Vec::new(), body: Bytes::from(body), inline: Vec::new() };
        let _ = ToSlot::decode(frame.clone());
        let _ = FromSlot::decode(frame);
    }
}
