use super::super::Event;
use super::*;
use paceline_proto::objects::ToStore;
use paceline_proto::{ClientId, LeaseId, LeaseSecret, NodeId};

const OWNER: ClientId = ClientId(1);
/// The process of the owner.
const ROOT: LinkId = LinkId(0);

struct World {
    store: Store,
    links: u64,
    numbers: u64,
}

impl World {
    fn new() -> World {
        let mut world = World { store: Store::new(NodeId(0), 1000), links: 0, numbers: 0 };
        world.tell(Event::LinkUp(ROOT));
        world.say(ROOT, ToStore::Hello { owner: OWNER, root: true });
        world
    }

    fn tell(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.store.handle(Tick::ZERO, event, &mut out);
        self.store.check().unwrap();
        out
    }

    fn say(&mut self, link: LinkId, message: ToStore) -> Vec<Effect> {
        self.tell(Event::From(link, message))
    }

    fn node(&mut self) -> LinkId {
        self.links += 1;
        let link = LinkId(self.links);
        self.tell(Event::LinkUp(link));
        let (lease, secret) = (LeaseId(1), LeaseSecret([0; 32]));
        self.say(link, ToStore::Node { owner: OWNER, node: NodeId(self.links), lease, secret });
        self.tell(Event::Reached { link, near: false, serves: true });
        link
    }

    /// It is made on this node, whose process then lets go of it.
    fn make(&mut self, node: LinkId, object: u128) -> Vec<Effect> {
        let object = ObjectId(object);
        let mut out = self.say(node, ToStore::Made { object, size: 10, inside: Vec::new() });
        out.extend(self.say(node, ToStore::Release { object }));
        out
    }

    /// A result that the owner's process has, made from these.
    fn kept(&mut self, node: LinkId, object: u128, inputs: &[u128]) {
        let reference = reference(object);
        self.say(node, ToStore::Made { object: ObjectId(object), size: 10, inside: Vec::new() });
        self.numbers += 1;
        self.say(ROOT, ToStore::Hold { number: self.numbers, reference });
        self.say(node, ToStore::Release { object: ObjectId(object) });
        self.remember(object, inputs, true);
    }

    fn remember(&mut self, object: u128, inputs: &[u128], again: bool) -> Vec<Effect> {
        let inputs = inputs.iter().copied().map(ObjectId).collect();
        self.say(ROOT, ToStore::Remember { object: ObjectId(object), inputs, bytes: 100, again })
    }

    fn release(&mut self, object: u128) -> Vec<Effect> {
        self.say(ROOT, ToStore::Release { object: ObjectId(object) })
    }

    fn get(&mut self, link: LinkId, object: u128) -> Vec<Effect> {
        self.numbers += 1;
        self.say(link, ToStore::Get { number: self.numbers, reference: reference(object) })
    }

    fn ran(&mut self, object: u128) -> Vec<Effect> {
        self.say(ROOT, ToStore::Ran { object: ObjectId(object), failed: None })
    }
}

fn reference(object: u128) -> Reference {
    Reference { object: ObjectId(object), owner: OWNER, home: NodeId(1) }
}

fn makes(out: &[Effect]) -> Vec<u128> {
    let made = out.iter().filter_map(|effect| match effect {
        Effect::To(ROOT, FromStore::Make { object }) => Some(object.0),
        _ => None,
    });
    made.collect()
}

fn forgets(out: &[Effect]) -> Vec<u128> {
    let forgotten = out.iter().filter_map(|effect| match effect {
        Effect::To(ROOT, FromStore::Forget { object }) => Some(object.0),
        _ => None,
    });
    forgotten.collect()
}

fn missing(out: &[Effect]) -> Vec<(LinkId, Missing)> {
    let missing = out.iter().filter_map(|effect| match effect {
        Effect::To(link, FromStore::Missing { why, .. }) => Some((*link, why.clone())),
        _ => None,
    });
    missing.collect()
}

fn fetches(out: &[Effect]) -> Vec<(u128, LinkId)> {
    let fetched = out.iter().filter_map(|effect| match effect {
        Effect::Fetch { object, link, .. } => Some((object.0, *link)),
        _ => None,
    });
    fetched.collect()
}

#[test]
fn a_lost_object_is_made_once_for_all_who_want_it() {
    let mut world = World::new();
    let (first, second) = (world.node(), world.node());
    world.kept(first, 1, &[]);
    assert_eq!(makes(&world.tell(Event::LinkDown(first))), [], "nobody wants it yet");
    assert_eq!(makes(&world.get(ROOT, 1)), [1]);
    assert_eq!(makes(&world.get(ROOT, 1)), [], "MK-1");
    assert_eq!(makes(&world.get(second, 1)), [], "MK-1");
    let third = world.node();
    let out = world.make(third, 1);
    assert_eq!(fetches(&out), [(1, third)], "it comes here,");
    let offered = |effect: &Effect| matches!(effect, Effect::Offer { link, source, .. } if (*link, *source) == (second, third));
    assert!(out.iter().any(offered), "and goes from node to node: {out:?}");
    assert_eq!(makes(&world.ran(1)), []);
}

#[test]
fn the_node_that_makes_it_need_not_ask_for_it() {
    let mut world = World::new();
    let (first, second) = (world.node(), world.node());
    world.kept(first, 1, &[]);
    world.tell(Event::LinkDown(first));
    assert_eq!(makes(&world.get(second, 1)), [1]);
    let out = world.make(second, 1);
    let answered =
        |effect: &Effect| matches!(effect, Effect::To(link, FromStore::Held { .. }) if *link == second);
    assert!(out.iter().any(answered), "{out:?}");
    assert_eq!(fetches(&out), []);
}

#[test]
fn what_it_is_made_from_is_made_first_and_goes_again() {
    let mut world = World::new();
    let node = world.node();
    world.kept(node, 1, &[]);
    world.kept(node, 2, &[1]);
    world.kept(node, 3, &[2, 1]);
    assert_eq!(forgets(&world.release(1)), [], "MK-5: something was made from it");
    world.release(2);
    world.tell(Event::LinkDown(node));
    let node = world.node();
    assert_eq!(makes(&world.get(ROOT, 3)), [1]);
    assert_eq!(makes(&world.make(node, 1)), [2], "MK-3");
    assert_eq!(makes(&world.ran(1)), []);
    assert_eq!(makes(&world.make(node, 2)), [3], "MK-3");
    world.ran(2);
    assert_eq!(world.store.objects.len(), 3, "MK-3: what it needs stays until it has run");
    assert_eq!(fetches(&world.make(node, 3)), [(3, node)]);
    world.ran(3);
    assert_eq!(world.store.objects.len(), 1, "nothing else needs the others");
    world.tell(Event::Fetched(ObjectId(3), true));
    let mut forgotten = forgets(&world.release(3));
    forgotten.sort_unstable();
    assert_eq!(forgotten, [1, 2, 3], "MK-5");
}

#[test]
fn it_is_made_three_times_and_then_lost() {
    let mut world = World::new();
    let node = world.node();
    world.kept(node, 1, &[]);
    world.tell(Event::LinkDown(node));
    assert_eq!(makes(&world.get(ROOT, 1)), [1]);
    for _ in 0..2 {
        let node = world.node();
        world.make(node, 1);
        world.ran(1);
        assert_eq!(makes(&world.tell(Event::LinkDown(node))), [1], "it is still wanted");
    }
    let node = world.node();
    world.make(node, 1);
    world.ran(1);
    assert_eq!(missing(&world.tell(Event::LinkDown(node))), [(ROOT, Missing::TooOften)], "MK-2");
}

#[test]
fn a_node_that_dies_with_what_was_just_made_costs_another_run() {
    let mut world = World::new();
    let node = world.node();
    world.kept(node, 1, &[]);
    world.kept(node, 2, &[1]);
    world.tell(Event::LinkDown(node));
    assert_eq!(makes(&world.get(ROOT, 2)), [1]);
    let node = world.node();
    assert_eq!(makes(&world.make(node, 1)), [2]);
    world.tell(Event::LinkDown(node));
    assert_eq!(makes(&world.ran(1)), [], "its user has begun: it will ask for it");
    let node = world.node();
    assert_eq!(makes(&world.get(node, 1)), [1]);
}

#[test]
fn why_it_cannot_be_made_is_said() {
    let mut world = World::new();
    let node = world.node();
    world.kept(node, 1, &[9]);
    world.say(node, ToStore::Made { object: ObjectId(2), size: 10, inside: Vec::new() });
    world.say(ROOT, ToStore::Hold { number: 900, reference: reference(2) });
    world.say(ROOT, ToStore::Hold { number: 901, reference: reference(3) });
    world.remember(2, &[], false);
    world.kept(node, 4, &[2]);
    world.kept(node, 5, &[]);
    world.kept(node, 6, &[5]);
    world.tell(Event::LinkDown(node));
    let other = world.node();
    assert_eq!(missing(&world.get(ROOT, 1)), [(ROOT, Missing::NoInput)], "nobody has ever known 9");
    assert_eq!(missing(&world.get(other, 2)), [(other, Missing::NotAgain)]);
    assert_eq!(missing(&world.get(ROOT, 4)), [(ROOT, Missing::NoInput)]);
    assert_eq!(makes(&world.get(ROOT, 6)), [5]);
    let failed = Some("ValueError".to_owned());
    let out = world.say(ROOT, ToStore::Ran { object: ObjectId(5), failed });
    assert_eq!(missing(&out), [(ROOT, Missing::Failed("ValueError".into()))]);
    assert_eq!(makes(&world.get(ROOT, 6)), [5], "it may go better the next time");
}

#[test]
fn the_oldest_are_forgotten_when_they_are_too_many() {
    let mut world = World::new();
    world.store.remember_at_most(250);
    let node = world.node();
    world.kept(node, 1, &[]);
    world.kept(node, 2, &[1]);
    let object = ObjectId(3);
    world.say(node, ToStore::Made { object, size: 10, inside: Vec::new() });
    assert_eq!(forgets(&world.remember(3, &[], true)), [1], "MK-4");
    world.tell(Event::LinkDown(node));
    assert_eq!(missing(&world.get(ROOT, 1)), [(ROOT, Missing::Forgotten)]);
    assert_eq!(missing(&world.get(ROOT, 2)), [(ROOT, Missing::NoInput)]);
    assert_eq!(forgets(&world.release(1)), [], "it was told already");
    assert_eq!(forgets(&world.release(2)), [2]);
    assert!(world.store.makers.records.is_empty(), "object 3 went with its node: nothing held it");
}

#[test]
fn a_node_that_is_back_with_its_copy_is_as_good() {
    let mut world = World::new();
    let node = world.node();
    world.kept(node, 1, &[]);
    world.tell(Event::LinkDown(node));
    assert_eq!(makes(&world.get(ROOT, 1)), [1]);
    let node = world.node();
    assert_eq!(fetches(&world.say(node, ToStore::Has { object: ObjectId(1) })), [(1, node)]);
    world.tell(Event::Fetched(ObjectId(1), true));
    assert_eq!(makes(&world.ran(1)), []);
}
