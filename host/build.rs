//! Packs `ptx/*.ptx` for `src/families.rs`: each kernel as a module of its own, compressed.

#[allow(dead_code)] // the library reads what is written here
#[path = "src/cuda/module/text.rs"]
mod text;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use text::{Parts, numbers_from_distances, numbers_to_distances};

/// The last one, which gains 0.2 %.
const LEVEL: u8 = 10;

fn main() {
    for path in ["ptx", "build.rs", "src/cuda/module/text.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let files = fs::read_dir("ptx").expect("host/ptx is missing: run `cargo xtask build-ptx`");
    for path in files.map(|file| file.expect("host/ptx can be listed").path()) {
        if path.extension().is_some_and(|extension| extension == "ptx") {
            pack(&path, &out);
        }
    }
}

/// Writes `<name>.bin` and `<name>.rs`, an expression of the type `Pack`.
fn pack(path: &Path, out: &Path) {
    let ptx = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parts = Parts::of(&ptx);
    let mut names: Vec<&str> = parts.kernels().collect();
    names.sort_unstable();
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let packed: Vec<(Vec<u8>, usize)> = thread::scope(|scope| {
        let chunks = names.chunks(names.len().div_ceil(threads).max(1));
        let parts = &parts;
        let running: Vec<_> = chunks
            .map(|chunk| {
                scope.spawn(|| chunk.iter().map(|name| pack_kernel(parts, name)).collect::<Vec<_>>())
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no kernel fails to be packed")).collect()
    });
    let name = path.file_stem().and_then(|stem| stem.to_str()).expect("the names of PTX files are text");
    let blob = out.join(name).with_added_extension("bin");
    let mut bytes = Vec::new();
    let mut source = format!("(include_bytes!({blob:?}), &[\n");
    for (name, (data, length)) in names.iter().zip(packed) {
        let start = bytes.len();
        bytes.extend(data);
        // Writing to a String does not fail.
        let _ = writeln!(source, "    ({name:?}, {start}, {}, {length}),", bytes.len());
    }
    source.push_str("])\n");
    fs::write(&blob, bytes).expect("OUT_DIR can be written to");
    fs::write(out.join(name).with_added_extension("rs"), source).expect("OUT_DIR can be written to");
}

/// The compressed module of a kernel, and the bytes of its PTX.
fn pack_kernel(parts: &Parts, name: &str) -> (Vec<u8>, usize) {
    // Nobody reads it: without indentation.
    let module = parts.module(name).expect("the name is one of the parts'").replace("\n\t", "\n");
    let distances = numbers_to_distances(&module);
    assert!(
        numbers_from_distances(&distances, module.len()) == module,
        "{name}: it would come back otherwise"
    );
    (miniz_oxide::deflate::compress_to_vec(distances.as_bytes(), LEVEL), module.len())
}
