//! Functions of other programs, in Rust and in Python, by the names they are exported under.

use crate::support::*;
use paceline::{Array, Cluster, DeathCause, Error, Options, StartError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("functions_of_another_rust_program", functions_of_another_rust_program),
    ("its_failures_arrive", its_failures_arrive),
    ("programs_that_cannot_be_started", programs_that_cannot_be_started),
    ("functions_of_python", functions_of_python),
    ("exceptions_arrive", exceptions_arrive),
    ("what_python_cannot_do_is_told", what_python_cannot_do_is_told),
    ("a_python_slot_that_dies_is_replaced", a_python_slot_that_dies_is_replaced),
    ("all_languages_share_the_cpus", all_languages_share_the_cpus),
];

const MODULE: &str = "tests.rust_tasks.exported";

/// Built together with the tests.
fn exports() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().and_then(Path::parent).unwrap().join("examples/exports");
    assert!(path.exists(), "{} is not there: cargo build -p paceline --example exports", path.display());
    path
}

/// A cluster with an interpreter that has paceline. `make build` makes one; without it, there is nothing to test.
fn with_python(cpus: u64) -> Option<Cluster> {
    let installed = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let interpreter = std::env::var_os("PACELINE_PYTHON").map_or_else(installed, PathBuf::from);
    if !interpreter.exists() {
        assert!(std::env::var_os("CI").is_none(), "{} is not there: run make build", interpreter.display());
        println!("left out for want of {}: run make build", interpreter.display());
        return None;
    }
    Some(Cluster::embedded().cpus(cpus).python(interpreter).start().unwrap())
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Person {
    name: String,
    age: Option<u8>,
}

fn functions_of_another_rust_program() {
    let cluster = two();
    let program = cluster.program(exports());
    let area = program.function::<(f64, f64), f64>("area");
    assert_eq!(area.call((2.0, 3.0)).unwrap(), 6.0);
    assert_eq!(area.submit((2.0, 4.0)).wait().unwrap(), 8.0);
    let expected: Vec<f64> = (0..5_000).map(|n| f64::from(n) * 2.0).collect();
    assert_eq!(area.map((0..5_000).map(|n| (f64::from(n), 2.0))).unwrap(), expected);
    let one_by_one = area.options(Options::new().chunk_size(1).retries(0));
    assert_eq!(one_by_one.map([(1.0, 1.0), (2.0, 2.0)]).unwrap(), [1.0, 4.0]);
    let ada = Person { name: "Ada".into(), age: Some(36) };
    let birthday = program.function::<(Person, u8), Person>("birthday");
    assert_eq!(birthday.call((ada.clone(), 1)).unwrap(), Person { age: Some(37), ..ada });
    let double = program.function::<(Array<f64>,), Array<f64>>("double");
    let table = Array::new(vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(double.call((table,)).unwrap().data(), [2.0, 4.0, 6.0, 8.0]);
    let pid = program.function::<(), u32>("pid").call(()).unwrap();
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(), exports().canonicalize().unwrap());
}

fn its_failures_arrive() {
    let cluster = one();
    let program = cluster.program(exports());
    let error = program.function::<(Vec<i64>,), i64>("third").call((vec![],)).unwrap_err();
    let Error::Panicked { task: "third", location, .. } = &error else { panic!("{error:?}") };
    assert!(location.contains("exports.rs"), "{location}");
    let error = program.function::<(), ()>("nothing").call(()).unwrap_err();
    let Error::NoSuchTask { known, .. } = &error else { panic!("{error:?}") };
    assert!(known.contains(&"area".to_owned()) && error.to_string().contains("area"), "{error}");
    let error = program.function::<(&str, f64), f64>("area").call(("x", 1.0)).unwrap_err();
    assert!(error.to_string().ends_with("width: it is a string"), "{error}");
    let error = program.function::<(), ()>("abort").options(Options::new().retries(0)).call(()).unwrap_err();
    assert!(matches!(&error, Error::SlotDied { death, .. } if death.cause == DeathCause::Signal(6)));
    let area = program.function::<(f64, f64), f64>("area");
    assert_eq!(area.call((2.0, 3.0)).unwrap(), 6.0);
    drop(cluster);
    assert!(matches!(area.call((2.0, 3.0)), Err(Error::Closed)));
}

fn programs_that_cannot_be_started() {
    let cluster = one();
    let began = Instant::now();
    for (path, code) in [("/nowhere/at/all", None), ("/bin/false", Some(1)), ("/bin/ls", Some(2))] {
        let function = cluster.program(path).function::<(), ()>("anything");
        for error in [function.call(()), function.submit(()).wait()].map(Result::unwrap_err) {
            let Error::NotStarted { program, why, .. } = &error else { panic!("{error:?}") };
            assert_eq!((program.as_str(), error.code()), (path, "program-not-started"));
            assert_eq!(why.cause(), code.map(DeathCause::Exit), "{error}");
            assert!(error.hint().is_some());
        }
    }
    let error = cluster.program("/bin/ls").function::<(), ()>("x").call(()).unwrap_err();
    assert!(
        matches!(&error, Error::NotStarted { why, .. } if why.words().contains("paceline-zygote")),
        "{error}"
    );
    assert!(began.elapsed() < LIMIT);
    assert_eq!(square::call(&cluster, 7).unwrap(), 49, "everything else goes on");
    let bare = Cluster::embedded().cpus(1).python("/nowhere/python").start().unwrap();
    let error = bare.python("json").function::<(), ()>("loads").call(()).unwrap_err();
    assert!(matches!(&error, Error::NotStarted { why, .. } if matches!(**why, StartError::NotRun { .. })));
}

fn functions_of_python() {
    let Some(cluster) = with_python(2) else { return };
    let python = cluster.python(MODULE);
    let mean = python.function::<(Vec<f64>,), f64>("mean");
    assert_eq!(mean.call((vec![1.0, 2.0, 6.0],)).unwrap(), 3.0);
    assert_eq!(mean.submit((vec![1.0],)).wait().unwrap(), 1.0);
    let expected: Vec<f64> = (0..3_000).map(f64::from).collect();
    assert_eq!(mean.map((0..3_000).map(|n| (vec![f64::from(n)],))).unwrap(), expected);
    let add = python.function::<(i64, u64, i8), i64>("add");
    assert_eq!(add.call((i64::MIN, 1 << 62, -1)).unwrap(), i64::MIN + (1 << 62) - 1);
    assert_eq!(python.function::<(), i64>("add").call(()).unwrap(), 0);
    let scale = python.function::<(Array<f32>, f64), Array<f32>>("scale");
    let table = Array::new(vec![2, 1, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    let scaled = scale.call((table, 2.0)).unwrap();
    assert_eq!((scaled.shape(), scaled.data()), (&[2, 1, 2][..], &[2.0, 4.0, 6.0, 8.0][..]));
    #[derive(Debug, PartialEq, Deserialize)]
    struct Described<T> {
        r#type: String,
        value: T,
    }
    let person = Person { name: "Ada".into(), age: None };
    let described = python.function::<(Person,), Described<Person>>("describe").call((person.clone(),));
    assert_eq!(described.unwrap(), Described { r#type: "dict".into(), value: person });
    let map = BTreeMap::from([(1_u8, vec![Some("a"), None])]);
    let described = python.function::<_, Described<BTreeMap<u8, Vec<Option<String>>>>>("describe");
    assert_eq!(described.call((map,)).unwrap().value[&1], [Some("a".to_owned()), None]);
    let two = Options::new().cpus(2.0);
    assert_eq!(python.function::<(), String>("threads").options(two).call(()).unwrap(), "2");
}

fn exceptions_arrive() {
    let Some(cluster) = with_python(1) else { return };
    let fail = cluster.python(MODULE).function::<(String,), ()>("fail");
    let error = fail.call(("no such luck".into(),)).unwrap_err();
    let Error::Raised { kind, message, traceback, .. } = &error else { panic!("{error:?}") };
    assert_eq!((kind.as_str(), message.as_str()), ("LookupError", "no such luck"));
    assert!(traceback.contains("exported.py") && traceback.contains("in fail"), "{traceback}");
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        ("task-raised", "fail raised LookupError: no such luck")
    );
    let error = fail.map((0..100).map(|n| (n.to_string(),))).unwrap_err();
    assert!(matches!(&error, Error::Raised { message, .. } if message == "0"), "{error:?}");
}

fn what_python_cannot_do_is_told() {
    let Some(cluster) = with_python(1) else { return };
    let python = cluster.python(MODULE);
    let error = python.function::<(), i64>("hidden").call(()).unwrap_err();
    let Error::NoSuchTask { known, .. } = &error else { panic!("{error:?}") };
    assert!(known.contains(&"mean".to_owned()) && !known.contains(&"hidden".to_owned()), "{known:?}");
    let error = cluster.python("no_such_module").function::<(), ()>("x").call(()).unwrap_err();
    assert!(matches!(&error, Error::Raised { kind, .. } if kind == "ModuleNotFoundError"), "{error:?}");
    let error = python.function::<(), ()>("unsendable").call(()).unwrap_err();
    assert!(error.to_string().contains("result[1]['x']"), "{error}");
    let error = python.function::<(u8, u8), f64>("mean").call((1, 2)).unwrap_err();
    assert!(matches!(&error, Error::Raised { kind, .. } if kind == "TypeError"), "{error:?}");
    let error = python.function::<(Vec<f64>,), String>("mean").call((vec![1.0],)).unwrap_err();
    assert!(matches!(error, Error::Decode { what: "the value", .. }), "{error:?}");
}

fn a_python_slot_that_dies_is_replaced() {
    let Some(cluster) = with_python(1) else { return };
    let mark = Mark::new("python-dies");
    let die_once = cluster.python(MODULE).function::<(String,), u32>("die_once");
    assert_eq!(die_once.call((mark.0.to_string_lossy().into_owned(),)).unwrap(), 2);
}

fn all_languages_share_the_cpus() {
    let Some(cluster) = with_python(1) else { return };
    let python = cluster.python(MODULE).function::<(), u32>("pid");
    let rust = cluster.program(exports()).function::<(), u32>("pid");
    let began = Instant::now();
    let mut parents = BTreeSet::new();
    for _ in 0..3 {
        // One by one: on one CPU a slot of another program takes the place of the one before.
        let mut note = |pid: Result<u32, Error>| {
            let pid = pid.unwrap();
            parents.extend(zygotes(&[pid]));
            pid
        };
        let pids = [note(pid::call(&cluster)), note(python.call(())), note(rust.call(()))];
        assert!(pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2], "{pids:?}");
    }
    assert!(began.elapsed() < LIMIT);
    let futures: Vec<_> =
        (0..30).map(|n| if n % 2 == 0 { python.submit(()) } else { rust.submit(()) }).collect();
    for future in futures {
        assert!(future.wait_timeout(Duration::from_secs(20)).unwrap().is_some());
    }
    assert_eq!(parents.len(), 3, "one for each program: {parents:?}");
    drop(cluster);
    parents.iter().for_each(|&pid| assert!(is_gone(pid), "{pid} is still there"));
}
