//! What the tests share.
#![allow(dead_code)]

use simt::{Kind, Launch, Memory, Report, View};
use std::sync::atomic::{AtomicU32, Ordering};

/// A source line noted by a kernel: `LINE.set(line!() + 1)` above the statement.
pub struct Line(AtomicU32);

impl Line {
    pub const fn new() -> Line {
        Line(AtomicU32::new(0))
    }
    pub fn set(&self, line: u32) {
        self.0.store(line, Ordering::Relaxed);
    }
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lines of an access and of the one it meets.
pub struct Lines {
    pub a: Line,
    pub b: Line,
}

pub fn lines() -> Lines {
    Lines { a: Line::new(), b: Line::new() }
}

pub fn one(kernel: &str, blocks: u32, threads: u32) -> Launch<'_> {
    Launch::new(kernel, [blocks, 1, 1], [threads, 1, 1])
}

/// Runs a wrong kernel: its report must have this kind and the kernel's name.
#[track_caller]
pub fn wrong(l: &Launch, kind: Kind, body: &(dyn Fn() + Sync)) -> Report {
    let report = simt::launch(l, body).expect_err("a wrong kernel went unreported");
    assert_eq!(report.kind, kind, "{report}");
    assert_eq!(report.kernel, l.kernel, "{report}");
    assert!(!report.detail.is_empty());
    let text = report.to_string();
    assert!(text.contains(l.kernel) && text.contains(&report.site.to_string()), "{text}");
    *report
}

/// A race whose two lines are the given ones, in either order.
#[track_caller]
pub fn race(l: &Launch, lines: &Lines, body: &(dyn Fn() + Sync)) -> Report {
    let report = wrong(l, Kind::Race, body);
    let other = report.other.clone().expect("a race has two parties");
    let (mut found, mut want) = ([report.site.line, other.site.line], [lines.a.get(), lines.b.get()]);
    found.sort_unstable();
    want.sort_unstable();
    assert_eq!(found, want, "{report}");
    assert!(report.site.file.ends_with(".rs") && report.site.file == other.site.file, "{report}");
    report
}

/// Runs a right kernel, in natural order and in seven others.
#[track_caller]
pub fn right(l: &Launch, body: &(dyn Fn() + Sync)) {
    right_then(l, body, || ());
}

/// As `right`, with something to do before each run.
#[track_caller]
pub fn right_then(l: &Launch, body: &(dyn Fn() + Sync), mut before: impl FnMut()) {
    for seed in 0..8 {
        let l = Launch { seed, ..l.clone() };
        before();
        if let Err(report) = simt::launch(&l, body) {
            panic!("a right kernel was reported (seed {seed}): {report}");
        }
    }
}

pub fn of<T: Copy>(data: &[T]) -> (Memory, View<T>) {
    // SAFETY: tests use integers and floats, which have no padding.
    let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
    let memory = Memory::from_bytes(bytes);
    let view = memory.view(0, data.len());
    (memory, view)
}

pub fn uninit<T>(len: usize) -> (Memory, View<T>) {
    let memory = Memory::uninit(len * size_of::<T>());
    let view = memory.view(0, len);
    (memory, view)
}

pub fn read<T: Copy + Default>(memory: &Memory) -> Vec<T> {
    let mut out = vec![T::default(); memory.len() / size_of::<T>()];
    // SAFETY: as for `of`.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), size_of_val(&out[..])) };
    memory.read(0, bytes);
    out
}

pub fn tid() -> usize {
    simt::thread_idx()[0] as usize
}

pub fn bid() -> usize {
    simt::block_idx()[0] as usize
}

/// Each lane gets the value of the lane named by its second word.
pub fn gather(lanes: &[[u64; 2]; 32], mask: u32, out: &mut [u64; 32]) {
    for lane in (0..32).filter(|l| mask >> l & 1 != 0) {
        out[lane] = lanes[lanes[lane][1] as usize % 32][0];
    }
}

/// Sum over the mask.
pub fn total(lanes: &[[u64; 2]; 32], mask: u32, out: &mut [u64; 32]) {
    let sum = (0..32).filter(|l| mask >> l & 1 != 0).map(|l| lanes[l][0]).sum();
    out.fill(sum);
}

#[track_caller]
pub fn shuffle(mask: u32, value: u64, from: u32) -> u64 {
    simt::collective("shfl", mask, [value, from as u64], gather)
}

#[track_caller]
pub fn sum(mask: u32, value: u64) -> u64 {
    simt::collective("sum", mask, [value, 0], total)
}
