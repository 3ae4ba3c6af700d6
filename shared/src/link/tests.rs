use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;

use tokio::net::UnixStream;

use super::*;

fn raw(message: &ToWorker) -> Option<usize> {
    if let ToWorker::Client { len, .. } = message { Some(*len) } else { None }
}

#[tokio::test]
async fn a_hand_over_carries_its_socket_and_more_bytes_than_the_socket_buffer() {
    let (near, far) = UnixStream::pair().unwrap();
    let (_, mut writer) = split(near);
    let (mut reader, _) = split(far);
    let (mut ours, theirs) = StdStream::pair().unwrap();
    let bytes = vec![b'x'; 1 << 20];
    let message = ToWorker::Client {
        id: 7,
        session_id: SessionId::new(),
        features: vec!["attach".into()],
        peer: Peer::default(),
        len: bytes.len(),
    };

    let (sent, received) = tokio::join!(writer.hand_over(&message, theirs.as_fd(), &bytes), reader.next(raw));
    sent.unwrap();
    drop(theirs);
    let (got, hand_over) = received.unwrap().unwrap();
    let hand_over = hand_over.unwrap();
    assert_eq!(got, message);
    assert_eq!(hand_over.bytes, bytes);
    StdStream::from(hand_over.socket).write_all(b"hi").unwrap();
    let mut answer = [0; 2];
    ours.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hi");
}

#[tokio::test]
async fn messages_keep_their_order_and_the_end_is_seen() {
    let (near, far) = UnixStream::pair().unwrap();
    let (_, mut writer) = split(near);
    let (mut reader, _) = split(far);
    writer.send(&ToWorker::Go { scope: None }).await.unwrap();
    writer.send(&ToWorker::MayLeave {}).await.unwrap();
    drop(writer);
    assert_eq!(reader.next(raw).await.unwrap().unwrap().0, ToWorker::Go { scope: None });
    assert_eq!(reader.next(raw).await.unwrap().unwrap().0, ToWorker::MayLeave {});
    assert!(reader.next::<ToWorker>(raw).await.unwrap().is_none());
}

#[tokio::test]
async fn a_message_of_a_newer_release_is_no_error() {
    let (near, far) = StdStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let (mut reader, _) = split(UnixStream::from_std(far).unwrap());
    (&near).write_all(b"{\"type\":\"from_the_future\",\"x\":1}\n").unwrap();
    assert_eq!(reader.next(raw).await.unwrap().unwrap().0, ToWorker::Unknown);
}
