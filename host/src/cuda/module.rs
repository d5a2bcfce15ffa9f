//! Modules of one kernel each, loaded at the kernel's first use, once per context.
//!
//! The driver takes a tenth of a second or more to compile a large kernel, and families have a hundred, so it
//! is given only what is used.

mod early;
#[cfg_attr(not(test), allow(dead_code))] // the build script tells what is read here
mod shared_lines;
mod text;

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use cuda_driver::sys;

use super::capture::Relaxed;
use super::context::Context;
use super::function::{Function, parameter_count, required_block};
use super::lock;
use crate::error::{Error, Result};
use text::Parts;

/// What a PTX image was built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PtxArch {
    /// Compute capability 8.0; the driver compiles it for anything newer.
    Sm80,
    /// Exactly compute capability 9.0, with Hopper's own instructions.
    Sm90a,
}

impl fmt::Display for PtxArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sm80 => "sm_80",
            Self::Sm90a => "sm_90a",
        })
    }
}

/// A family's kernels for one architecture as the build script packs them: the compressed modules of one
/// kernel each, one after the other, and the kernels by name. Modules are told by the lines of others that they share.
pub(crate) type Pack = (&'static [u8], &'static [PackedKernel]);
/// Name, first byte and end in the pack, bytes of the PTX, and the number of the kernel by whose lines it is told: its own where by none.
pub(crate) type PackedKernel = (&'static str, usize, usize, usize, usize);

/// A packed module, with [`text::NAME`] for the kernel's name and distances for its numbers.
fn unpacked((bytes, kernels): Pack, index: usize) -> Option<String> {
    let &(_, start, end, _, base) = kernels.get(index)?;
    let text = String::from_utf8(miniz_oxide::inflate::decompress_to_vec(&bytes[start..end]).ok()?).ok()?;
    if base == index {
        Some(text)
    } else {
        shared_lines::with_lines_of(&unpacked((bytes, kernels), base)?, &text)
    }
}

/// The PTX of a family of kernels.
#[derive(Debug)]
pub struct PtxFamily {
    /// Its name; no other family of the program has it.
    pub name: &'static str,
    images: Images,
    /// Whether the launch behind one of its portable kernels may start when all blocks of that one have, and not only when they
    /// end.
    lets_next: bool,
}

/// The PTX for each architecture it was built for.
#[derive(Debug)]
enum Images {
    Packed(&'static [(PtxArch, Pack)]),
    Text(&'static [(PtxArch, &'static str)]),
}

impl PtxFamily {
    pub(crate) const fn packed(name: &'static str, images: &'static [(PtxArch, Pack)]) -> Self {
        Self { name, images: Images::Packed(images), lets_next: false }
    }

    pub(crate) const fn text(name: &'static str, images: &'static [(PtxArch, &'static str)]) -> Self {
        Self { name, images: Images::Text(images), lets_next: false }
    }

    /// For kernels of short blocks: the launch behind one gains another 0.1 µs. Behind long blocks it would come to lie where those
    /// left places first, which costs more.
    pub(crate) const fn letting_next_start(self) -> Self {
        Self { lets_next: true, ..self }
    }

    /// The architectures that there is PTX for.
    pub fn archs(&self) -> Vec<PtxArch> {
        match self.images {
            Images::Packed(images) => images.iter().map(|image| image.0).collect(),
            Images::Text(images) => images.iter().map(|image| image.0).collect(),
        }
    }

    /// The architecture whose PTX a device gets: exactly its own, else the portable one.
    pub fn arch_for(&self, device: (u32, u32)) -> Option<PtxArch> {
        let exact = (device == (9, 0)).then_some(PtxArch::Sm90a);
        let portable = (device >= (8, 0)).then_some(PtxArch::Sm80);
        let archs = self.archs();
        exact.into_iter().chain(portable).find(|arch| archs.contains(arch))
    }

    /// The names of its kernels, in order. Some may be missing for an architecture.
    pub fn kernels(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = match self.images {
            Images::Packed(images) => {
                images.iter().flat_map(|(_, (_, kernels))| kernels.iter().map(|k| k.0)).collect()
            }
            Images::Text(images) => {
                images.iter().flat_map(|(_, ptx)| Parts::of(ptx).kernels().collect::<Vec<_>>()).collect()
            }
        };
        names.sort_unstable();
        names.dedup();
        names
    }

    /// What the family adds to the program.
    #[cfg(test)]
    pub(crate) fn packed_bytes(&self) -> usize {
        match self.images {
            Images::Packed(images) => images.iter().map(|(_, (bytes, _))| bytes.len()).sum(),
            Images::Text(images) => images.iter().map(|(_, ptx)| ptx.len()).sum(),
        }
    }

    /// The PTX of one kernel: a module with this kernel and what it uses.
    pub fn ptx(&self, arch: PtxArch, kernel: &str) -> Option<String> {
        match self.images {
            Images::Packed(images) => {
                let &(_, pack) = images.iter().find(|image| image.0 == arch)?;
                let index = pack.1.binary_search_by_key(&kernel, |packed| packed.0).ok()?;
                let text = unpacked(pack, index)?.replace(text::NAME, kernel);
                Some(text::numbers_from_distances(&text, pack.1[index].3))
            }
            Images::Text(images) => {
                let (_, ptx) = images.iter().find(|image| image.0 == arch)?;
                Parts::of(ptx).module(kernel)
            }
        }
    }

    /// The same as a device loads it that can start kernels early: this one can be.
    #[cfg(test)]
    pub(crate) fn ptx_that_waits(&self, arch: PtxArch, kernel: &str) -> Option<String> {
        early::that_waits(&self.ptx(arch, kernel)?, self.lets_next)
    }
}

/// A load that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleLoad {
    /// The family's name.
    pub family: &'static str,
    /// The kernel's name.
    pub kernel: &'static str,
    /// Which of the family's architectures.
    pub arch: PtxArch,
    /// How long the driver took; little if it found its result of an earlier process in its cache.
    pub micros: u64,
    /// Size of the kernel's PTX.
    pub ptx_bytes: usize,
}

/// A kernel's module in a context.
#[derive(Debug)]
pub struct Module {
    pub(super) inner: cust::module::Module,
    pub(super) family: &'static str,
    pub(super) kernel: &'static str,
    pub(super) arch: PtxArch,
    /// The block that the kernel's PTX demands.
    pub(super) required_block: Option<[u32; 3]>,
    /// How many parameters the kernel has.
    pub(super) parameters: usize,
    /// Whether the device starts kernels early, and this one waits for what is ahead of it.
    pub(super) can_start_early: bool,
}

impl Module {
    /// The architecture of the PTX that was loaded.
    pub fn arch(&self) -> PtxArch {
        self.arch
    }

    /// The error of this kernel's module.
    pub(super) fn failure(family: &'static str, arch: PtxArch, code: sys::CUresult, log: String) -> Error {
        Error::Module { family, arch: arch.to_string(), name: cuda_driver::error_name(code), log }
    }

    fn load(
        family: &'static PtxFamily,
        kernel: &'static str,
        context: &Context,
    ) -> Result<(Self, ModuleLoad)> {
        let info = context.info();
        let Some(arch) = family.arch_for(info.arch) else {
            return Err(Error::Architecture { device: info.name.clone(), required: (9, 0), got: info.arch });
        };
        let failure = |code, log| Self::failure(family.name, arch, code, log);
        let Some(ptx) = family.ptx(arch, kernel) else {
            return Err(failure(sys::CUDA_ERROR_NOT_FOUND, format!("it has no kernel `{kernel}`")));
        };
        let waiting = if info.early_starts { early::that_waits(&ptx, family.lets_next) } else { None };
        let can_start_early = waiting.is_some();
        let ptx = waiting.unwrap_or(ptx);
        let required_block = required_block(&ptx, kernel);
        let parameters = parameter_count(&ptx, kernel);
        let ptx_bytes = ptx.len();
        let Ok(text) = CString::new(ptx) else {
            return Err(failure(sys::CUDA_ERROR_INVALID_VALUE, format!("{kernel}: the PTX has a zero byte")));
        };
        context.make_current()?;
        let _relaxed = Relaxed::enter();
        let start = Instant::now();
        let inner = cust::module::Module::from_ptx_cstr(&text, &[]).map_err(|_| {
            let (code, log) = load_for_log(&text);
            failure(code, format!("{kernel}: {log}"))
        })?;
        let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let load = ModuleLoad { family: family.name, kernel, arch, micros, ptx_bytes };
        let family = family.name;
        Ok((Self { inner, family, kernel, arch, required_block, parameters, can_start_early }, load))
    }
}

/// Loads once more, this time for what the compiler has to say, which `cust` does not pass on.
#[cold]
fn load_for_log(ptx: &CString) -> (sys::CUresult, String) {
    const SIZE: usize = 16 << 10;
    let (mut errors, mut infos) = (vec![0_u8; SIZE], vec![0_u8; SIZE]);
    let mut options = [
        sys::CU_JIT_ERROR_LOG_BUFFER,
        sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        sys::CU_JIT_INFO_LOG_BUFFER,
        sys::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    ];
    // Sizes are passed in the pointers' place.
    let size: *mut c_void = ptr::without_provenance_mut(SIZE);
    let mut values = [errors.as_mut_ptr().cast(), size, infos.as_mut_ptr().cast(), size];
    let mut module = ptr::null_mut();
    // SAFETY: the image is text with a terminator; options and values are of the documented types, and the
    // buffers have the sizes given.
    let code = unsafe {
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        sys::cuModuleLoadDataEx(&mut module, ptx.as_ptr().cast(), 4, options, values)
    };
    if code == sys::CUDA_SUCCESS {
        // SAFETY: just loaded, and used by nobody.
        unsafe { sys::cuModuleUnload(module) };
    }
    let text = |log: &[u8]| {
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        String::from_utf8_lossy(&log[..end]).trim().to_owned()
    };
    (code, format!("{}\n{}", text(&errors), text(&infos)).trim().to_owned())
}

/// The place of a family and of a kernel's name in the program. The same kernel may be reached through
/// several places; each is looked up by name once.
type Key = [usize; 3];

/// Addresses are spread well enough by one multiplication; the default hasher would cost as much as the
/// rest of a launch's checks.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(byte.into());
        }
    }

    fn write_usize(&mut self, value: usize) {
        self.0 = (self.0.rotate_left(5) ^ value as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn finish(&self) -> u64 {
        // The table takes the low bits, the product's best ones are the high ones.
        self.0.rotate_left(26)
    }
}

/// A kernel, locked while it is being loaded so that only one thread does so; other kernels are not held up.
type Slot = Arc<Mutex<Option<Function>>>;

/// What a context has loaded.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// By the names of family and kernel.
    slots: Mutex<HashMap<[&'static str; 2], Slot>>,
    functions: RwLock<HashMap<Key, Function, BuildHasherDefault<AddressHasher>>>,
    loads: Mutex<Vec<ModuleLoad>>,
}

impl Context {
    /// A kernel of a family, loaded by the first call.
    #[inline]
    pub fn function(&self, family: &'static PtxFamily, kernel: &'static str) -> Result<Function> {
        let key = [ptr::from_ref(family).addr(), kernel.as_ptr().addr(), kernel.len()];
        let functions = self.modules.functions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&key) {
            return Ok(function.clone());
        }
        drop(functions);
        self.find_function(key, family, kernel)
    }

    #[cold]
    fn find_function(&self, key: Key, family: &'static PtxFamily, kernel: &'static str) -> Result<Function> {
        let slot = lock(&self.modules.slots).entry([family.name, kernel]).or_default().clone();
        let mut slot = lock(&slot);
        let function = match &*slot {
            Some(function) => function.clone(),
            None => {
                let (module, load) = Module::load(family, kernel, self)?;
                let function = Function::load(module)?;
                lock(&self.modules.loads).push(load);
                slot.insert(function).clone()
            }
        };
        let mut functions = self.modules.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.insert(key, function.clone());
        Ok(function)
    }

    /// The loads so far, in order.
    pub fn module_loads(&self) -> Vec<ModuleLoad> {
        lock(&self.modules.loads).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_chosen_for_exactly_its_architecture_or_the_portable_one() {
        static BOTH: PtxFamily = PtxFamily::text("both", &[(PtxArch::Sm80, "a"), (PtxArch::Sm90a, "b")]);
        static HOPPER: PtxFamily = PtxFamily::text("hopper", &[(PtxArch::Sm90a, "b")]);
        assert_eq!(BOTH.arch_for((8, 0)), Some(PtxArch::Sm80));
        assert_eq!(BOTH.arch_for((8, 9)), Some(PtxArch::Sm80));
        assert_eq!(BOTH.arch_for((9, 0)), Some(PtxArch::Sm90a));
        assert_eq!(BOTH.arch_for((10, 0)), Some(PtxArch::Sm80), "sm_90a code runs on 9.0 only");
        assert_eq!(BOTH.arch_for((7, 5)), None);
        assert_eq!(HOPPER.arch_for((9, 0)), Some(PtxArch::Sm90a));
        assert_eq!(HOPPER.arch_for((10, 0)), None);
    }

    const PTX: &str = "// compiler; {\n.version 8.0\n.target sm_80, debug // }\n.address_size 64\n\
        .shared .align 16 .b32 sums[32];\n.shared .align 16 .b32 sums_b[32];\n\
        .extern .shared .align 128 .b8 dynamic[];\n.global .align 4 .b8 table[2] = {1, 2};\n\
        .global .u64 place = generic(table);\n.func (.param .b32 out) help(.param .b32 in)\n.noreturn;\n\
        .visible .entry row(\n\t.param .u64 row_param_0\n)\n.reqntid 64\n{\n\tmov.b32 %r1, sums;\n\
        \t{\n\tcall.uni (x), help, (y);\n\t}\n\tret; // dynamic\n}\n\
        .visible .entry row_wide()\n{\n\tmov.b32 %r1, dynamic;\n\tmov.b64 %rd1, place;\n}\n\
        .func (.param .b32 out) help(.param .b32 in)\n{\n\ttrap;\n}\n.entry none()\n{\n\tret;\n}\n\
        .file\t1 \"/a//b}.rs\"\n.section .debug_str\n{\n.b8 0;\n}\n";

    #[test]
    fn a_kernel_comes_with_what_it_uses_and_nothing_else() {
        static FAMILY: PtxFamily = PtxFamily::text("f", &[(PtxArch::Sm80, PTX)]);
        assert_eq!(FAMILY.kernels(), ["none", "row", "row_wide"]);
        assert_eq!(FAMILY.archs(), [PtxArch::Sm80]);
        let ptx = |kernel| FAMILY.ptx(PtxArch::Sm80, kernel).unwrap();
        let head = ".version 8.0\n.target sm_80, debug // }\n.address_size 64\n";
        let tail = ".file\t1 \"/a//b}.rs\"\n.section .debug_str\n{\n.b8 0;\n}\n";
        let help = ".func (.param .b32 out) help(.param .b32 in)\n";
        assert_eq!(ptx("none"), format!("{head}.entry none()\n{{\n\tret;\n}}\n{tail}"));
        assert_eq!(
            ptx("row_wide"),
            format!(
                "{head}.extern .shared .align 128 .b8 dynamic[];\n.global .align 4 .b8 table[2] = {{1, 2}};\n\
                 .global .u64 place = generic(table);\n.visible .entry row_wide()\n{{\n\tmov.b32 %r1, dynamic;\n\
                 \tmov.b64 %rd1, place;\n}}\n{tail}"
            )
        );
        let row = ptx("row");
        assert!(row.starts_with(&format!("{head}.shared .align 16 .b32 sums[32];\n")), "{row}");
        assert!(row.contains(&format!("{help}.noreturn;\n.visible .entry row(\n")), "{row}");
        assert!(row.ends_with(&format!("\tret; // dynamic\n}}\n{help}{{\n\ttrap;\n}}\n{tail}")), "{row}");
        assert!(!row.contains("sums_b") && !row.contains("table") && !row.contains("row_wide"), "{row}");
        assert_eq!(FAMILY.ptx(PtxArch::Sm80, "ro"), None);
        assert_eq!(FAMILY.ptx(PtxArch::Sm80, "help"), None);
        assert_eq!(FAMILY.ptx(PtxArch::Sm90a, "row"), None);
    }

    #[test]
    fn texts_come_back_from_the_lines_of_others() {
        use shared_lines::{Base, with_lines_of};
        let base = "a\nb\nc\nd\ne\nf\n";
        let lines: Vec<&str> = base.split('\n').collect();
        for (text, want) in [
            (base, "=0 7"),
            ("x\na\nb\nc\ny", "x\n=0 3\ny"),
            // From where the run before ended, and in front of that.
            ("a\nb\nc\nx\nd\ne\nf\n\nb\nc\nd", "=0 3\nx\n=0 4\n=-6 3"),
            // Too few to tell.
            ("a\nb\nx", "a\nb\nx"),
            ("\n\nx\n", "\n\nx\n"),
            ("", ""),
        ] {
            let told = Base::new(&lines).tell(text);
            assert_eq!(told, want);
            assert_eq!(with_lines_of(base, &told).as_deref(), Some(text));
        }
        let short = Base::new(&lines[..2]).tell(base);
        assert_eq!(short, base);
        for broken in ["=0 8", "=-1 3", "=9 1", "=0", "=x 3", "=0 99999999999999999999"] {
            assert_eq!(with_lines_of(base, broken), None, "{broken}");
        }
    }

    #[test]
    fn numbers_come_back_from_their_distances() {
        use text::{numbers_from_distances, numbers_to_distances};
        let ptx = ".reg .b32 %r<9>;\nadd.s32 %r1, %r2, %r1;\nld.b64 %rd1, [%rd2+40];\nmov.u32 %r3, %r2;\nbra $L_1;\n$L_1:\n";
        let distances = numbers_to_distances(ptx);
        let want = ".reg .b32 %r<9>;\nadd.s32 %r0, %r0, %r2;\nld.b64 %rd0, [%rd0+40];\nmov.u32 %r0, %r2;\nbra $L_0;\n$L_1:\n";
        assert_eq!(distances, want);
        assert_eq!(numbers_from_distances(&distances, ptx.len()), ptx);
        for odd in [
            "%r9, %r3, %r10, %r700, %r0",
            "%r007 %r-3 %r1x %tid.x %SP %",
            "%p0 %p1 %envreg31;%r5_%r6",
            "%é1 $é $L__BB7_12 $L_brx_2",
        ] {
            assert_eq!(numbers_from_distances(&numbers_to_distances(odd), 0), odd);
        }
        assert_eq!(numbers_from_distances(&numbers_to_distances(PTX), PTX.len()), PTX);
    }
}
