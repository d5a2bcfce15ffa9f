//! Packs `ptx/*.ptx` for `src/families.rs`: each kernel as a module of its own, told by the lines of another that it shares, compressed.

#[path = "src/cuda/module/shared_lines.rs"]
mod shared_lines;
#[allow(dead_code)] // the library reads what is written here
#[path = "src/cuda/module/text.rs"]
mod text;

use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use shared_lines::{Base, with_lines_of};
use text::{NAME, Parts, numbers_from_distances, numbers_to_distances};

/// The last one, which gains 0.2 %.
const LEVEL: u8 = 10;

fn main() {
    for path in ["ptx", "build.rs", "src/cuda/module/text.rs", "src/cuda/module/shared_lines.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Nobody runs what the tests of programs that do not compile check.
    let nobody_runs_it = env::var_os("CARGO_CFG_TRYBUILD").is_some();
    let files = fs::read_dir("ptx").expect("host/ptx is missing: run `cargo xtask build-ptx`");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("host/ptx can be listed").path()).collect();
    paths.sort();
    let mut hash = DefaultHasher::new();
    for path in paths {
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let kernels = if nobody_runs_it { Vec::new() } else { packed(&path) };
            for (_, kernel) in &kernels {
                hash.write(&kernel.data);
            }
            write(&path, &out, kernels);
        }
    }
    println!("cargo::rustc-env=WARPWRIGHT_KERNELS={:016x}", hash.finish());
}

/// The kernels of a PTX file, by name.
fn packed(path: &Path) -> Vec<(String, Packed)> {
    let ptx = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parts = Parts::of(&ptx);
    let mut names: Vec<&str> = parts.kernels().collect();
    names.sort_unstable();
    let packed: Vec<Packed> = thread::scope(|scope| {
        let parts = &parts;
        let running: Vec<_> = names
            .chunks(TOGETHER)
            .enumerate()
            .map(|(turn, chunk)| scope.spawn(move || pack_kernels(parts, chunk, turn * TOGETHER)))
            .collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no kernel fails to be packed")).collect()
    });
    names.into_iter().map(str::to_owned).zip(packed).collect()
}

/// Writes `<name>.bin` and `<name>.rs`, an expression of the type `Pack`.
fn write(path: &Path, out: &Path, kernels: Vec<(String, Packed)>) {
    let name = path.file_stem().and_then(|stem| stem.to_str()).expect("the names of PTX files are text");
    let blob = out.join(name).with_added_extension("bin");
    let mut bytes = Vec::new();
    let mut source = format!("(include_bytes!({blob:?}), &[\n");
    for (name, Packed { data, length, base }) in kernels {
        let start = bytes.len();
        bytes.extend(data);
        // Writing to a String does not fail.
        let _ = writeln!(source, "    ({name:?}, {start}, {}, {length}, {base}),", bytes.len());
    }
    source.push_str("])\n");
    fs::write(&blob, bytes).expect("OUT_DIR can be written to");
    fs::write(out.join(name).with_added_extension("rs"), source).expect("OUT_DIR can be written to");
}

/// A kernel's compressed module, the bytes of its PTX, and the number of the kernel by whose lines it is told.
struct Packed {
    data: Vec<u8>,
    length: usize,
    base: usize,
}

/// Kernels of a thread, of which some tell others: so many whatever the machine, so that all pack alike.
const TOGETHER: usize = 64;
/// Kernels that another may be told by: the last of those that are told by none.
const MOST_BASES: usize = 4;
/// What a kernel takes at most that is told by another, as a share of what it takes by itself; else others are told by it.
const WORTH: f64 = 0.6;

/// The kernels of these names, of which the first has number `first`.
fn pack_kernels(parts: &Parts, names: &[&str], first: usize) -> Vec<Packed> {
    let texts: Vec<(String, usize)> = names.iter().map(|name| text_of(parts, name)).collect();
    let lines: Vec<Vec<&str>> = texts.iter().map(|(text, _)| text.split('\n').collect()).collect();
    let mut bases: Vec<(usize, Base)> = Vec::new();
    let mut packed = Vec::new();
    for (index, (text, length)) in texts.iter().enumerate() {
        let alone = compressed(text);
        let told = bases.iter().rev().take(MOST_BASES).map(|(base, of_base)| {
            let told = of_base.tell(text);
            assert!(
                with_lines_of(&texts[*base].0, &told).as_ref() == Some(text),
                "{}: it would come back otherwise",
                names[index]
            );
            (*base, compressed(&told))
        });
        let best = told.min_by_key(|(_, data)| data.len());
        let worth = |data: &[u8]| (data.len() as f64) < WORTH * alone.len() as f64;
        let (base, data) = match best.filter(|(_, data)| worth(data)) {
            Some(best) => best,
            None => {
                bases.push((index, Base::new(&lines[index])));
                (index, alone)
            }
        };
        packed.push(Packed { data, length: *length, base: first + base });
    }
    packed
}

fn compressed(text: &str) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(text.as_bytes(), LEVEL)
}

/// The module of a kernel as it is packed, and the bytes of its PTX.
fn text_of(parts: &Parts, name: &str) -> (String, usize) {
    // Nobody reads it: without indentation.
    let module = parts.module(name).expect("the name is one of the parts'").replace("\n\t", "\n");
    let text = numbers_to_distances(&module).replace(name, &NAME.to_string());
    assert!(
        numbers_from_distances(&text.replace(NAME, name), module.len()) == module,
        "{name}: it would come back otherwise"
    );
    (text, module.len())
}
