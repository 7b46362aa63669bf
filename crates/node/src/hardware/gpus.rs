//! The GPUs of this machine: NVIDIA's by its own library, which the driver brings and which is loaded when asked for;
//! or such as do not exist, for tests.

use super::{Error, size};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::path::Path;
use std::str::FromStr;

/// Pretend to have so many GPUs, as in `4` or `4x16GB`.
pub const FAKE: &str = "PACELINE_FAKE_GPUS";
/// What others let this process see, batch systems above all.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// A node can have so many.
const MOST: usize = 64;
const FAKE_MEMORY: u64 = 16 << 30;
/// What the driver puts there. Without any of them its library need not be looked for.
const DRIVER: [&str; 3] = ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"];

/// One GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Its number in the order of the PCI bus (HW-3).
    pub id: u64,
    pub name: String,
    pub uuid: String,
    /// In bytes.
    pub memory: u64,
    /// What nobody used of that when we looked.
    pub free: u64,
}

/// Which of them to use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Gpus {
    /// All that `CUDA_VISIBLE_DEVICES` leaves to this process.
    #[default]
    Auto,
    /// So many of these, those with most free memory.
    Count(u64),
    /// Just these, whatever else says.
    Ids(Vec<u64>),
}

/// `auto`, a number of them, or ids with commas between them; one id alone has a comma behind it.
impl FromStr for Gpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Gpus, Error> {
        let wrong = || Error::WhichGpus { text: text.to_owned() };
        let text = text.trim();
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Gpus::Auto);
        }
        if !text.contains(',') {
            return text.parse().map(Gpus::Count).map_err(|_| wrong());
        }
        let ids = text.strip_suffix(',').unwrap_or(text).split(',').map(|id| id.trim().parse());
        ids.collect::<Result<_, _>>().map(Gpus::Ids).map_err(|_| wrong())
    }
}

/// Those to use, in the order of the bus. Those with less free memory than `least` are left out, unless they are named.
pub(super) fn find(which: &Gpus, least: u64) -> Result<Vec<Gpu>, Error> {
    if matches!(which, Gpus::Count(0)) {
        return Ok(Vec::new());
    }
    let fake = std::env::var(FAKE).ok().filter(|text| !text.trim().is_empty());
    let present = match fake {
        Some(text) => Ok(fakes(&text)?),
        None => nvidia(),
    };
    let visible = std::env::var(VISIBLE).ok();
    choose(present, which, least, visible.as_deref())
}

/// `present` is what there is, or why that is not known.
fn choose(
    present: Result<Vec<Gpu>, String>,
    which: &Gpus,
    least: u64,
    visible: Option<&str>,
) -> Result<Vec<Gpu>, Error> {
    let (present, said) = match present {
        Ok(mut gpus) => {
            gpus.truncate(MOST);
            let said = listed(&gpus);
            (gpus, said)
        }
        Err(reason) => (Vec::new(), reason),
    };
    let usable = |gpu: &Gpu| gpu.free >= least && visible.is_none_or(|list| is_visible(gpu, list));
    match which {
        Gpus::Auto => Ok(present.into_iter().filter(usable).collect()),
        Gpus::Count(wanted) => {
            let mut chosen: Vec<Gpu> = present.into_iter().filter(usable).collect();
            let count = usize::try_from(*wanted).unwrap_or(usize::MAX);
            if chosen.len() < count {
                let said = left_out(said, &chosen, least, visible);
                return Err(Error::TooManyGpus { wanted: *wanted, present: said });
            }
            chosen.sort_by_key(|gpu| (std::cmp::Reverse(gpu.free), gpu.id));
            chosen.truncate(count);
            chosen.sort_by_key(|gpu| gpu.id);
            Ok(chosen)
        }
        Gpus::Ids(ids) => {
            let mut chosen: Vec<Gpu> = Vec::new();
            for &id in ids {
                if chosen.iter().any(|gpu| gpu.id == id) {
                    return Err(Error::SameGpu { id });
                }
                match present.iter().find(|gpu| gpu.id == id) {
                    Some(gpu) => chosen.push(gpu.clone()),
                    None => return Err(Error::NoSuchGpu { missing: id, present: said }),
                }
            }
            chosen.sort_by_key(|gpu| gpu.id);
            Ok(chosen)
        }
    }
}

/// The same numbers as ours, or the beginning of a UUID. CUDA takes no notice of what follows one that it does not know,
/// and neither do we of one that is unknown.
fn is_visible(gpu: &Gpu, list: &str) -> bool {
    list.split(',').map(str::trim).any(|entry| match entry.parse::<u64>() {
        Ok(id) => id == gpu.id,
        Err(_) => entry.len() > "GPU-".len() && gpu.uuid.starts_with(entry),
    })
}

/// What there is, for who asked for something else.
fn listed(gpus: &[Gpu]) -> String {
    let one = |gpu: &Gpu| {
        let gibibytes = |bytes: u64| (bytes as f64 / (1u64 << 30) as f64 * 10.0).round() / 10.0;
        let (free, all) = (gibibytes(gpu.free), gibibytes(gpu.memory));
        format!("GPU {} ({}, {free} of {all} GiB free)", gpu.id, gpu.name)
    };
    match gpus {
        [] => "this machine has no GPU".into(),
        gpus => format!("this machine has {}", gpus.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

/// And why not all of it counts.
fn left_out(said: String, usable: &[Gpu], least: u64, visible: Option<&str>) -> String {
    let seen = visible.map(|list| format!("{VISIBLE}={list}"));
    let free = (least > 0).then(|| format!("the least free memory of {least} bytes"));
    match seen.into_iter().chain(free).collect::<Vec<_>>().join(" and ") {
        reasons if reasons.is_empty() => said,
        reasons => format!("{said}, of which {reasons} leaves {}", usable.len()),
    }
}

fn fakes(text: &str) -> Result<Vec<Gpu>, Error> {
    let wrong = || Error::FakeGpus { variable: FAKE, text: text.to_owned() };
    let (count, memory) = match text.trim().split_once('x') {
        Some((count, memory)) => (count, size(memory).map_err(|_| wrong())?),
        None => (text.trim(), FAKE_MEMORY),
    };
    let count: usize = count.trim().parse().ok().filter(|count| *count <= MOST).ok_or_else(wrong)?;
    let fake = |id| Gpu {
        id: id as u64,
        name: "fake GPU".into(),
        uuid: format!("GPU-00000000-0000-0000-0000-{id:012}"),
        memory,
        free: memory,
    };
    Ok((0..count).map(fake).collect())
}

/// All that the driver lets us see.
fn nvidia() -> Result<Vec<Gpu>, String> {
    if !DRIVER.iter().any(|file| Path::new(file).exists()) {
        return Err("this machine has no NVIDIA driver, so no GPU can be used".into());
    }
    ask_driver().map_err(|error| format!("its NVIDIA driver says nothing of its GPUs: {error}"))
}

fn ask_driver() -> Result<Vec<Gpu>, NvmlError> {
    // The driver itself brings the name with the number; the one without comes with packages for developers.
    let library = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().or_else(|_| Nvml::init())?;
    let mut found = Vec::new();
    for index in 0..library.device_count()? {
        // One that this process may not use, as in a container, is as good as absent, and CUDA does not count it either.
        let Ok(device) = library.device_by_index(index) else { continue };
        let (Ok(bus), Ok(memory)) = (device.pci_info(), device.memory_info()) else { continue };
        let gpu = Gpu {
            id: 0,
            name: device.name().unwrap_or_else(|_| "NVIDIA GPU".into()),
            uuid: device.uuid().unwrap_or_default(),
            memory: memory.total,
            free: memory.free,
        };
        found.push(((bus.domain, bus.bus, bus.device), gpu));
    }
    found.sort_by_key(|(bus, _)| *bus);
    Ok(found.into_iter().enumerate().map(|(id, (_, gpu))| Gpu { id: id as u64, ..gpu }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Result<Vec<Gpu>, String> {
        Ok(fakes("4x16GB").unwrap())
    }

    fn ids(gpus: Result<Vec<Gpu>, Error>) -> Vec<u64> {
        gpus.unwrap().into_iter().map(|gpu| gpu.id).collect()
    }

    #[test]
    fn which_ones() {
        assert_eq!("auto".parse(), Ok(Gpus::Auto));
        assert_eq!("2".parse(), Ok(Gpus::Count(2)));
        assert_eq!("0, 2".parse(), Ok(Gpus::Ids(vec![0, 2])));
        assert_eq!("3,".parse(), Ok(Gpus::Ids(vec![3])));
        for text in ["", "all", "1,x", ",", "-1"] {
            assert!(text.parse::<Gpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn those_that_are_named_must_be_there() {
        assert_eq!(ids(choose(four(), &Gpus::Ids(vec![2, 0]), 0, None)), [0, 2], "HW-3");
        let error = choose(four(), &Gpus::Ids(vec![1, 7]), 0, None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(
                "there is no GPU 7 here: this machine has GPU 0 (fake GPU, 16 of 16 GiB free), "
            )
        );
        assert_eq!(choose(four(), &Gpus::Ids(vec![1, 1]), 0, None), Err(Error::SameGpu { id: 1 }));
        let error = choose(four(), &Gpus::Count(5), 0, None).unwrap_err();
        assert!(error.to_string().starts_with("5 GPUs are more than can be used here: "), "{error}");
    }

    #[test]
    fn what_others_leave_to_us_counts() {
        assert_eq!(ids(choose(four(), &Gpus::Auto, 0, Some("3,1"))), [1, 3]);
        assert_eq!(ids(choose(four(), &Gpus::Auto, 0, Some(""))), [0; 0]);
        assert_eq!(ids(choose(four(), &Gpus::Auto, 0, Some("-1"))), [0; 0]);
        let uuid = "GPU-00000000-0000-0000-0000-000000000002";
        assert_eq!(ids(choose(four(), &Gpus::Count(1), 0, Some(uuid))), [2]);
        assert_eq!(ids(choose(four(), &Gpus::Ids(vec![0]), 0, Some(uuid))), [0], "the user says so");
        let error = choose(four(), &Gpus::Count(3), 0, Some("0,1")).unwrap_err();
        assert!(error.to_string().ends_with("of which CUDA_VISIBLE_DEVICES=0,1 leaves 2"), "{error}");
    }

    #[test]
    fn those_that_others_use_are_skipped() {
        let mut gpus = four().unwrap();
        gpus[0].free = 1 << 30;
        gpus[2].free = 8 << 30;
        assert_eq!(ids(choose(Ok(gpus.clone()), &Gpus::Auto, 2 << 30, None)), [1, 2, 3]);
        assert_eq!(ids(choose(Ok(gpus.clone()), &Gpus::Count(2), 0, None)), [1, 3], "the emptiest");
        assert_eq!(ids(choose(Ok(gpus), &Gpus::Count(3), 2 << 30, None)), [1, 2, 3]);
    }

    #[test]
    fn without_a_driver_only_who_asks_is_told() {
        let none = || Err("this machine has no NVIDIA driver".to_owned());
        assert_eq!(choose(none(), &Gpus::Auto, 0, None), Ok(vec![]), "HW-4");
        let error = choose(none(), &Gpus::Count(1), 0, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "1 GPU is more than can be used here: this machine has no NVIDIA driver"
        );
    }

    #[test]
    fn pretended_ones() {
        assert_eq!(fakes("2").unwrap()[1].memory, FAKE_MEMORY);
        assert_eq!(fakes("3x40GB").unwrap()[2].free, 40 << 30);
        assert!(["x", "2xmany", "1000", "two"].iter().all(|text| fakes(text).is_err()));
    }

    #[test]
    fn the_driver_of_this_machine_is_asked_without_harm() {
        // Here there may be one or not; either way there is an answer.
        if let Err(reason) = nvidia() {
            assert!(reason.contains("NVIDIA driver"), "{reason}");
        }
    }
}
