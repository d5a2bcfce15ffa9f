use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::ops::{self, Approximate};
use crate::{DType, Device, Error, Tensor};

fn ones(device: &Device, count: usize) -> Tensor {
    Tensor::from_slice(device, &[count], &vec![1.0f32; count]).unwrap()
}

/// Two launches in nested ranges, and one behind them.
fn sample() -> Profile {
    let device = Device::cpu();
    let x = ones(&device, 1000);
    let work = || {
        let y = range("outer", || range("inner", || ops::add(&x, &x)).and_then(|sum| ops::add(&sum, &x)))?;
        ops::gelu(&y, Approximate::Tanh)
    };
    record(&device, work).unwrap().0
}

#[test]
fn launches_are_recorded_with_their_shape_and_range() {
    let profile = sample();
    let launches = profile.launches();
    let names: Vec<&str> = launches.iter().map(|launch| launch.kernel).collect();
    assert!(names[0].starts_with("pointwise_add_") && names[2].starts_with("pointwise_gelu_"), "{names:?}");
    assert_eq!(launches.iter().map(|launch| launch.range).collect::<Vec<_>>(), [Some(1), Some(0), None]);
    let ranges: Vec<_> = profile.ranges().iter().map(|range| (range.name.as_str(), range.parent)).collect();
    assert_eq!(ranges, [("outer", None), ("inner", Some(0))]);
    for launch in launches {
        let operands = if launch.kernel.contains("add") { 3 } else { 2 };
        assert_eq!(launch.bytes, operands * 4000, "{}", launch.kernel);
        assert!(launch.grid[0] > 0 && launch.threads.is_multiple_of(32) && launch.family == "pointwise");
        assert_eq!((launch.run, launch.stream, launch.cluster), (Some(launch.call), 0, 1));
    }
}

#[test]
fn times_follow_one_another() {
    let profile = sample();
    let end = |span: Span| span.start + span.length;
    let calls: Vec<Span> = profile.launches().iter().map(|launch| launch.call).collect();
    assert!(calls.windows(2).all(|pair| end(pair[0]) <= pair[1].start), "{calls:?}");
    assert!(calls.iter().all(|call| call.length > Duration::ZERO));
    let [outer, inner] = profile.ranges() else { panic!("{:?}", profile.ranges()) };
    assert!(outer.span.start <= inner.span.start && inner.span.start <= calls[0].start);
    assert!(end(calls[0]) <= end(inner.span) && end(inner.span) <= end(outer.span));
    assert!(end(calls[1]) <= end(outer.span) && end(outer.span) <= calls[2].start);
    assert!(end(calls[2]) <= profile.elapsed());
}

#[test]
fn kernels_are_added_up() {
    let profile = sample();
    let kernels = profile.kernels();
    assert_eq!(kernels.iter().map(|kernel| kernel.calls).sum::<usize>(), 3);
    assert!(kernels.windows(2).all(|pair| pair[0].run >= pair[1].run), "{kernels:?}");
    let add = kernels.iter().find(|total| total.kernel.contains("add")).unwrap();
    let own = &profile.launches()[..2];
    assert_eq!((add.calls, add.bytes), (2, 2 * 12_000));
    assert_eq!(add.call, own.iter().map(|launch| launch.call.length).sum());
    assert_eq!(add.run, add.call);
}

#[test]
fn nothing_is_recorded_outside_and_recordings_do_not_nest() {
    let device = Device::cpu();
    let x = ones(&device, 8);
    let nested = || record(&device, || ops::add(&x, &x));
    let error = record(&device, nested).unwrap_err();
    assert_eq!(error.to_string(), "profile::record: this thread is recording already");
    ops::add(&x, &x).unwrap();
    range("outside", || ops::add(&x, &x)).unwrap();
    let (profile, ()) = record(&device, || Ok(())).unwrap();
    assert!(profile.launches().is_empty() && profile.ranges().is_empty() && profile.kernels().is_empty());
    // Another thread's launches are its own.
    let other = || std::thread::scope(|scope| scope.spawn(|| ops::add(&x, &x).map(drop)).join().unwrap());
    assert!(record(&device, other).unwrap().0.launches().is_empty());
}

#[test]
fn recordings_end_with_errors_and_panics_and_failed_launches_are_left_out() {
    let device = Device::cpu();
    let x = ones(&device, 8);
    let unwritten = Tensor::uninit(&device, DType::F32, &[8]).unwrap();
    let failing = || ops::add(&x, &unwritten);
    assert!(matches!(record(&device, failing), Err(Error::Checker { .. })));
    let (profile, error) = record(&device, || Ok(failing().unwrap_err())).unwrap();
    assert!(matches!(error, Error::Checker { .. }) && profile.launches().is_empty());
    let panicking =
        || record(&device, || range("never ends", || -> crate::Result<()> { panic!("on purpose") }));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
    assert!(record(&device, || Ok(())).is_ok());
}

#[test]
fn a_range_that_outlives_its_recording_belongs_to_no_other() {
    let device = Device::cpu();
    let profile = range("around", || {
        let (first, ()) = record(&device, || range("in the first", || Ok(()))).unwrap();
        assert_eq!(first.ranges().len(), 1);
        record(&device, || range("in the second", || Ok(()))).unwrap().0
    });
    assert_eq!(
        profile.ranges().iter().map(|range| range.name.as_str()).collect::<Vec<_>>(),
        ["in the second"]
    );
}

/// What chrome://tracing and Perfetto want of each event, by its phase.
fn check_event(event: &Value) {
    let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
    assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
    match event["ph"].as_str() {
        Some("M") => assert!(event["args"]["name"].is_string(), "{event}"),
        Some("X") => {
            assert!(number("ts") >= 0.0 && number("dur") >= 0.0, "{event}");
            assert!(event["cat"].is_string() && event["args"].is_object(), "{event}");
        }
        Some("s") => {
            assert!(number("ts") >= 0.0 && event["id"].is_u64() && event["cat"].is_string(), "{event}")
        }
        Some("f") => assert!(number("ts") >= 0.0 && event["id"].is_u64() && event["bp"] == "e", "{event}"),
        _ => panic!("no phase that is used here: {event}"),
    }
}

#[test]
fn a_trace_has_what_its_viewers_want() {
    let profile = sample();
    let trace: Value = serde_json::from_str(&profile.trace()).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ns");
    let events = trace["traceEvents"].as_array().unwrap();
    events.iter().for_each(check_event);
    let count = |phase: &str, category: &str| {
        events.iter().filter(|event| event["ph"] == phase && event["cat"] == category).count()
    };
    assert_eq!((count("X", "range"), count("X", "call"), count("X", "kernel")), (2, 3, 3));
    // Each arrow has two ends, in different processes, at the beginning of something.
    let mut ends: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "s" || event["ph"] == "f") {
        ends.entry(event["id"].as_u64().unwrap()).or_default().push(event);
        let begins = |other: &&Value| {
            other["ph"] == "X" && ["pid", "tid", "ts"].iter().all(|&key| other[key] == event[key])
        };
        assert!(events.iter().any(|other| begins(&other)), "{event}");
    }
    assert_eq!(ends.len(), 3);
    for pair in ends.values() {
        assert!(matches!(pair[..], [s, f] if s["ph"] == "s" && f["ph"] == "f" && s["pid"] != f["pid"]));
    }
    // Whatever has events has a name.
    for event in events {
        let names = |other: &&Value| {
            other["ph"] == "M" && other["name"] == "process_name" && other["pid"] == event["pid"]
        };
        assert!(events.iter().any(|other| names(&other)), "{event}");
    }
    let kernel = events.iter().find(|event| event["cat"] == "kernel").unwrap();
    assert_eq!(kernel["args"]["bytes"], 12_000);
    assert_eq!(kernel["args"]["block"][0], profile.launches()[0].threads);
}
