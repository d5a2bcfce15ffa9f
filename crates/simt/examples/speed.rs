//! Threads a second on one core, at each level of checks.
//!
//! `cargo run --release -p simt --example speed`

use simt::{Checks, Launch, Memory, SharedView, StaticShared, View};

const ROWS: usize = 16384;
const COLS: usize = 256;
const N: usize = 2048;

fn main() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    pool.install(|| {
        println!("{:24}{:>10}{:>10}{:>10}   million CUDA threads a second", "", "none", "bounds", "full");
        row("softmax 16384x256", softmax);
        row("transpose 2048x2048", transpose);
        row("empty, 64 threads", empty);
    });
}

fn row(name: &str, run: fn(Checks) -> (u64, f64)) {
    print!("{name:24}");
    for checks in [Checks::None, Checks::Bounds, Checks::Full] {
        let best = (0..5).map(|_| run(checks)).map(|(n, s)| n as f64 / s).fold(0.0, f64::max);
        print!("{:10.2}", best / 1e6);
    }
    println!();
}

fn timed(l: &Launch, body: &(dyn Fn() + Sync)) -> (u64, f64) {
    let start = cpu_seconds();
    let stats = simt::launch(l, body).unwrap_or_else(|r| panic!("{r}"));
    (stats.threads, cpu_seconds() - start)
}

/// Processor time of this OS thread: the machine may be shared.
fn cpu_seconds() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn f(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

/// One butterfly step: each lane gets its partner's value.
fn shuffle_xor(lanes: &[[u64; 2]; 32], _mask: u32, out: &mut [u64; 32]) {
    for lane in 0..32 {
        out[lane] = lanes[lane ^ lanes[lane][1] as usize][0];
    }
}

#[track_caller]
#[inline]
fn xor(v: f32, step: u64) -> f32 {
    f(simt::collective("shfl_xor", u32::MAX, [v.to_bits() as u64, step], shuffle_xor))
}

/// Rows of 256 elements, one a warp: two loads and two stores of 16 bytes and ten shuffles a thread.
fn softmax(checks: Checks) -> (u64, f64) {
    let data: Vec<u8> =
        (0..ROWS * COLS).flat_map(|i| ((i * 7919 % 1000) as f32 / 100.0).to_le_bytes()).collect();
    let (x, y) = (Memory::from_bytes(&data), Memory::uninit(ROWS * COLS * 4));
    let (xv, yv): (View<f32>, View<f32>) = (x.view(0, ROWS * COLS), y.view(0, ROWS * COLS));
    let mut l = Launch::new("softmax", [ROWS as u32 / 4, 1, 1], [128, 1, 1]);
    l.checks = checks;
    let result = timed(&l, &|| {
        let row = simt::block_idx()[0] as usize * 4 + simt::warp_id() as usize;
        let at = row * 256 + simt::lane_id() as usize * 4;
        // SAFETY: checked.
        let mut v = unsafe { [xv.load_vector::<4>(at), xv.load_vector::<4>(at + 128)] };
        let mut m = v.iter().flatten().fold(f32::MIN, |a, &b| a.max(b));
        for step in [16, 8, 4, 2, 1] {
            m = m.max(xor(m, step));
        }
        v.iter_mut().flatten().for_each(|e| *e = (*e - m).exp());
        let mut s: f32 = v.iter().flatten().sum();
        for step in [16, 8, 4, 2, 1] {
            s += xor(s, step);
        }
        v.iter_mut().flatten().for_each(|e| *e /= s);
        // SAFETY: checked.
        unsafe {
            yv.store_vector(at, v[0]);
            yv.store_vector(at + 128, v[1]);
        }
    });
    assert_eq!(y.first_uninitialized(), None);
    result
}

static TILE: StaticShared = StaticShared::new(32 * 33 * 4, 4);

fn transpose(checks: Checks) -> (u64, f64) {
    let data: Vec<u8> = (0..(N * N) as u32).flat_map(u32::to_le_bytes).collect();
    let (x, y) = (Memory::from_bytes(&data), Memory::uninit(N * N * 4));
    let (xv, yv): (View<u32>, View<u32>) = (x.view(0, N * N), y.view(0, N * N));
    let mut l = Launch::new("transpose", [N as u32 / 32, N as u32 / 32, 1], [32, 8, 1]);
    l.checks = checks;
    let result = timed(&l, &|| {
        let tile: SharedView<u32> = simt::static_array(&TILE, 32 * 33);
        let ([tx, ty, _], [bx, by, _]) =
            (simt::thread_idx().map(|v| v as usize), simt::block_idx().map(|v| v as usize));
        // SAFETY: checked.
        unsafe {
            for j in (0..32).step_by(8) {
                tile.store((ty + j) * 33 + tx, xv.load((by * 32 + ty + j) * N + bx * 32 + tx));
            }
            simt::sync_block();
            for j in (0..32).step_by(8) {
                yv.store((bx * 32 + ty + j) * N + by * 32 + tx, tile.load(tx * 33 + ty + j));
            }
        }
    });
    let mut word = [0; 4];
    y.read(4 * (5 * N + 3), &mut word);
    assert_eq!(u32::from_le_bytes(word) as usize, 3 * N + 5);
    result
}

fn empty(checks: Checks) -> (u64, f64) {
    let mut l = Launch::new("empty", [100_000, 1, 1], [64, 1, 1]);
    l.checks = checks;
    timed(&l, &|| ())
}
