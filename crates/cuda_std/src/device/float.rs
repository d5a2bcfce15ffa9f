unsafe extern "C" {
    #[link_name = "llvm.nvvm.ex2.approx.ftz.f"]
    fn llvm_ex2(x: f32) -> f32;
    #[link_name = "llvm.nvvm.lg2.approx.ftz.f"]
    fn llvm_lg2(x: f32) -> f32;
    #[link_name = "llvm.nvvm.rcp.approx.ftz.f"]
    fn llvm_rcp(x: f32) -> f32;
    #[link_name = "llvm.nvvm.rsqrt.approx.ftz.f"]
    fn llvm_rsqrt(x: f32) -> f32;
    #[link_name = "llvm.nvvm.sqrt.rn.f"]
    fn llvm_sqrt(x: f32) -> f32;
    #[link_name = "llvm.nvvm.tanh.approx.f32"]
    fn llvm_tanh(x: f32) -> f32;
    #[link_name = "llvm.nvvm.fmax.nan.f"]
    fn llvm_max_nan(a: f32, b: f32) -> f32;
    #[link_name = "llvm.nvvm.fmin.nan.f"]
    fn llvm_min_nan(a: f32, b: f32) -> f32;
    #[link_name = "llvm.fma.f32"]
    fn llvm_fma(a: f32, b: f32, c: f32) -> f32;
}

macro_rules! wrap {
    ($($name:ident($($x:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        pub fn $name($($x: f32),*) -> f32 {
            // SAFETY: arithmetic.
            unsafe { $intrinsic($($x),*) }
        }
    )*};
}
wrap! {
    exp2(x) = llvm_ex2;
    log2(x) = llvm_lg2;
    rcp(x) = llvm_rcp;
    rsqrt(x) = llvm_rsqrt;
    sqrt(x) = llvm_sqrt;
    max_nan(a, b) = llvm_max_nan;
    min_nan(a, b) = llvm_min_nan;
    fma(a, b, c) = llvm_fma;
    tanh_approx(x) = llvm_tanh;
}
