//! Chrome's trace format: `{"traceEvents": [..]}`, times in microseconds. Used are `M` (names of processes and threads),
//! `X` (something with a beginning and a duration) and the pair `s`, `f` (an arrow from a call to its kernel).

use serde_json::{Value, json};

use super::{Launch, Profile, Span};

/// The process numbers in the trace.
const HOST: u32 = 0;
const DEVICE: u32 = 1;
/// The host's only thread in the trace.
const THREAD: usize = 0;

pub fn json(profile: &Profile) -> Value {
    let mut streams: Vec<usize> = Vec::new();
    for launch in profile.launches() {
        if launch.run.is_some() && !streams.contains(&launch.stream) {
            streams.push(launch.stream);
        }
    }
    let mut events = vec![
        named("process_name", HOST, THREAD, "host"),
        named("thread_name", HOST, THREAD, "launches"),
        named("process_name", DEVICE, THREAD, &profile.device),
    ];
    for number in 0..streams.len() {
        events.push(named("thread_name", DEVICE, number, &format!("stream {number}")));
    }
    for range in profile.ranges() {
        events.push(complete(&range.name, "range", HOST, THREAD, range.span, json!({})));
    }
    for (id, launch) in profile.launches().iter().enumerate() {
        events.push(complete(
            &format!("launch {}", launch.kernel),
            "call",
            HOST,
            THREAD,
            launch.call,
            json!({}),
        ));
        let stream = streams.iter().position(|&stream| stream == launch.stream);
        if let (Some(run), Some(stream)) = (launch.run, stream) {
            events.push(complete(launch.kernel, "kernel", DEVICE, stream, run, facts(launch)));
            events.push(arrow("s", id, HOST, THREAD, launch.call));
            events.push(arrow("f", id, DEVICE, stream, run));
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

fn facts(launch: &Launch) -> Value {
    json!({
        "family": launch.family,
        "grid": launch.grid,
        "block": [launch.threads, 1, 1],
        "shared memory": launch.shared_bytes,
        "cluster": launch.cluster,
        "bytes": launch.bytes,
    })
}

fn micros(time: std::time::Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn named(what: &str, process: u32, thread: usize, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": process, "tid": thread, "args": { "name": name } })
}

fn complete(name: &str, category: &str, process: u32, thread: usize, span: Span, args: Value) -> Value {
    json!({
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": micros(span.start),
        "dur": micros(span.length),
        "args": args,
    })
}

/// An end of an arrow, at the beginning of what it belongs to.
fn arrow(phase: &str, id: usize, process: u32, thread: usize, span: Span) -> Value {
    let mut event = json!({
        "ph": phase,
        "name": "launch",
        "cat": "launch",
        "id": id,
        "pid": process,
        "tid": thread,
        "ts": micros(span.start),
    });
    if phase == "f" {
        event["bp"] = "e".into(); // belongs to what encloses it, not to what comes next
    }
    event
}
