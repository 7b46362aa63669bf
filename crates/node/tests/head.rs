//! A node's link to its head, on real descriptors.

use paceline_core::node::Config;
use paceline_node::{LinkLimits, Options, service};
use paceline_proto::{Incarnation, NodeId, Resources};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A node without CPUs, and what tells that it wants another link.
fn options() -> (Options, mpsc::UnboundedReceiver<()>) {
    let (headless, wanted) = mpsc::unbounded_channel();
    let options = Options {
        config: Config::new(NodeId(1), Incarnation(1), Resources::default()),
        command: vec!["sleep".into()],
        variables: Vec::new(),
        uplink: Arc::new(|_, _| ()),
        headless: Arc::new(move || headless.send(()).expect("the test listens")),
        answers: None,
        printed: None,
        object_memory: 1 << 20,
        limits: LinkLimits::default(),
        descent: None,
        store: None,
    };
    (options, wanted)
}

#[test]
fn link_that_cannot_be_watched_is_opened_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (options, mut wanted) = options();
        let (service, node) = service(options);
        let running = tokio::spawn(service.run());
        // The kernel does not watch files.
        node.join(OwnedFd::from(File::open("/proc/self/exe").unwrap()));
        let asked = tokio::time::timeout(Duration::from_secs(5), wanted.recv()).await;
        assert!(asked.is_ok(), "nobody looks for the head any more");
        node.close();
        running.await.unwrap();
    });
}
